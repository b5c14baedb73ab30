//! Resource quotas: charged before an object is stored, never exceeded, given back when it is not stored.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use futures::future::join_all;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::{Answer, Server, raw, start};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A quota with a status, as the controller writes it.
async fn quota(server: &Server, name: &str, hard: Value, spec: Value) -> Answer {
    let mut object = json!({"metadata": {"name": name}, "spec": spec});
    object["spec"]["hard"] = hard.clone();
    let made = server.post(QUOTAS, &object).await;
    assert_eq!((made.code, made.headers.get("warning")), (201, None), "{}", made.text);
    let used: serde_json::Map<String, Value> =
        hard.as_object().unwrap().keys().map(|name| (name.clone(), json!("0"))).collect();
    object["status"] = json!({"hard": hard, "used": used});
    let told = server.put(&format!("{QUOTAS}/{name}/status"), &object).await;
    assert_eq!(told.code, 200, "{}", told.text);
    told
}

async fn used(server: &Server, name: &str) -> Value {
    server.get(&format!("{QUOTAS}/{name}")).await.body["status"]["used"].clone()
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn pod(name: &str, cpu: &str) -> Value {
    let resources = if cpu.is_empty() { json!({}) } else { json!({"requests": {"cpu": cpu}}) };
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

#[tokio::test]
async fn what_is_beyond_a_quota_is_refused_in_upstreams_words() {
    let server = start().await;
    quota(&server, "compute", json!({"pods": "2", "requests.cpu": "1"}), json!({})).await;
    let silent = server.post(PODS, &pod("silent", "")).await;
    assert_eq!((silent.code, silent.body["reason"].as_str()), (403, Some("Forbidden")), "{}", silent.text);
    assert_eq!(
        silent.body["message"],
        "pods \"silent\" is forbidden: failed quota: compute: must specify requests.cpu for: c"
    );
    assert_eq!(server.post(PODS, &pod("one", "600m")).await.code, 201);
    assert_eq!(used(&server, "compute").await, json!({"pods": "1", "requests.cpu": "600m"}));
    let more = server.post(PODS, &pod("more", "500m")).await;
    assert_eq!(more.code, 403);
    assert_eq!(
        more.body["message"],
        "pods \"more\" is forbidden: exceeded quota: compute, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    let trial = server.post(&format!("{PODS}?dryRun=All"), &pod("trial", "400m")).await;
    assert_eq!(trial.code, 201, "a trial takes nothing: {}", trial.text);
    assert_eq!(server.post(&format!("{PODS}?dryRun=All"), &pod("trial", "401m")).await.code, 403);
    let path = format!("{PODS}/one/resize");
    let resize =
        |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    let strategic = "application/strategic-merge-patch+json";
    let grown = server.patch(&path, strategic, &resize("1100m")).await;
    assert_eq!(grown.code, 403, "{}", grown.text);
    assert!(grown.body["message"].as_str().unwrap().ends_with(
        "exceeded quota: compute, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    ));
    assert_eq!(server.patch(&path, strategic, &resize("1")).await.code, 200);
    assert_eq!(used(&server, "compute").await, json!({"pods": "1", "requests.cpu": "1"}));
    server.stop().await;
}

#[tokio::test]
async fn services_are_charged_when_their_type_changes_and_scopes_choose_pods() {
    let server = start().await;
    quota(&server, "ports", json!({"services.nodeports": "1", "count/configmaps": "1"}), json!({})).await;
    let web = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}});
    assert_eq!(server.post(SERVICES, &web).await.code, 201);
    let merge = "application/merge-patch+json";
    let opened =
        server.patch(&format!("{SERVICES}/web"), merge, &json!({"spec": {"type": "NodePort"}})).await;
    assert_eq!(
        opened.body["message"],
        "services \"web\" is forbidden: exceeded quota: ports, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1"
    );
    let selector =
        json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]});
    quota(&server, "urgent", json!({"pods": "0"}), json!({"scopeSelector": selector})).await;
    quota(&server, "patient", json!({"pods": "0"}), json!({"scopes": ["Terminating"]})).await;
    let class = json!({"metadata": {"name": "high"}, "value": 5});
    assert_eq!(server.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.code, 201);
    assert_eq!(server.post(PODS, &pod("plain", "")).await.code, 201);
    let mut urgent = pod("urgent", "");
    urgent["spec"]["priorityClassName"] = "high".into();
    let refused = server.post(PODS, &urgent).await;
    assert!(refused.body["message"].as_str().unwrap().contains("exceeded quota: urgent"), "{}", refused.text);
    let bounded =
        server.patch(&format!("{PODS}/plain"), merge, &json!({"spec": {"activeDeadlineSeconds": 9}})).await;
    assert_eq!(bounded.code, 403, "a pod that comes into a scope is charged: {}", bounded.text);
    server.stop().await;
}

#[tokio::test]
async fn a_creation_that_fails_gives_its_share_back() {
    let server = start().await;
    quota(&server, "maps", json!({"configmaps": "3"}), json!({})).await;
    assert_eq!(server.post(MAPS, &map("a")).await.code, 201);
    assert_eq!(server.post(MAPS, &map("a")).await.code, 409, "the name is taken");
    assert_eq!(used(&server, "maps").await, json!({"configmaps": "1"}));
    let invalid = json!({"metadata": {"name": "b"}, "data": {"no key": "x"}});
    assert_eq!(server.post(MAPS, &invalid).await.code, 422);
    assert_eq!(used(&server, "maps").await, json!({"configmaps": "1"}));
    assert_eq!(server.post(MAPS, &map("b")).await.code, 201);
    assert_eq!(server.post(MAPS, &map("c")).await.code, 201);
    assert_eq!(server.post(MAPS, &map("d")).await.code, 403, "and then it is full");
    server.stop().await;
}

#[tokio::test]
async fn what_is_said_to_be_used_is_not_less_than_what_is_there() {
    let server = start().await;
    for name in ["a", "b"] {
        assert_eq!(server.post(MAPS, &map(name)).await.code, 201);
    }
    let told = quota(&server, "maps", json!({"configmaps": "3", "secrets": "1"}), json!({})).await;
    assert_eq!(
        told.body["status"]["used"],
        json!({"configmaps": "2", "secrets": "0"}),
        "whoever counts too late"
    );
    let path = format!("{QUOTAS}/maps/status");
    let merge = "application/merge-patch+json";
    let more = server.patch(&path, merge, &json!({"status": {"used": {"configmaps": "3"}}})).await;
    assert_eq!(more.body["status"]["used"]["configmaps"], "3", "more may be said");
    let less = server.patch(&path, merge, &json!({"status": {"used": {"configmaps": "0"}}})).await;
    assert_eq!(less.body["status"]["used"]["configmaps"], "2");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_race_never_exceed_a_quota() {
    const CLIENTS: usize = 64;
    let server = start().await;
    quota(&server, "first", json!({"configmaps": "40", "pods": "10"}), json!({})).await;
    quota(&server, "second", json!({"count/configmaps": "37"}), json!({})).await;
    let (server, path) = (&server, format!("{QUOTAS}/first/status"));
    let path = &path;
    let answers = join_all((0..CLIENTS).map(|client| async move {
        let mut made = 0;
        for round in 0..2 {
            // Some names are taken: those give their share back to whoever comes after.
            let name = if client % 8 == 0 { "same".to_owned() } else { format!("m{client}-{round}") };
            let answer = server.post(MAPS, &map(&name)).await;
            assert!(matches!(answer.code, 201 | 403 | 409), "{}", answer.text);
            made += usize::from(answer.code == 201);
            if client % 16 == 1 {
                // A controller with an old view says that nothing is used, again and again.
                let merge = "application/merge-patch+json";
                let said = json!({"status": {"used": {"configmaps": "0"}}});
                assert_eq!(server.patch(path, merge, &said).await.code, 200);
            }
        }
        made
    }))
    .await;
    let listed = server.get(MAPS).await.body["items"].as_array().unwrap().len();
    assert_eq!(answers.iter().sum::<usize>(), 37, "as many as the smaller one allows");
    assert_eq!(listed, 37);
    assert_eq!(used(server, "second").await, json!({"count/configmaps": "37"}));
}

#[tokio::test]
async fn a_request_that_is_broken_off_leaves_no_charge_behind() {
    let server = start().await;
    quota(&server, "maps", json!({"configmaps": "500"}), json!({})).await;
    for number in 0..60_u32 {
        let (admin, body) = (server.admin.clone(), map(&format!("m{number}")).to_string());
        let request = async move {
            let response = raw(&admin, "POST", MAPS, &[("content-type", "application/json")], body).await;
            response.into_body().collect().await.unwrap();
        };
        // Broken off at some point of its way: before, in the middle or after.
        tokio::time::timeout(Duration::from_micros(u64::from(number) * 60), request).await.ok();
    }
    // What was broken off may still be stored while this looks.
    let listed = || async { server.get(MAPS).await.body["items"].as_array().unwrap().len().to_string() };
    for _ in 0..2000 {
        if used(&server, "maps").await["configmaps"] == listed().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(used(&server, "maps").await["configmaps"], listed().await);
    server.stop().await;
}
