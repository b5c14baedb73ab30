//! Real clients: kube in process and over TLS, with certificates, tokens, and without.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use server::{send, start};

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "img:1"}]},
    }))
    .unwrap()
}

async fn round_trip(client: kube::Client) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let made = pods.create(&PostParams::default(), &pod("web")).await.unwrap();
    let version = made.metadata.resource_version.clone().unwrap();
    let stream = pods.watch(&WatchParams::default(), &version).await.unwrap();
    let mut stream = std::pin::pin!(stream);
    let patch = json!({"metadata": {"labels": {"seen": "yes"}}});
    pods.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    match stream.try_next().await.unwrap().unwrap() {
        WatchEvent::Modified(pod) => assert_eq!(pod.metadata.labels.unwrap()["seen"], "yes"),
        other => panic!("unexpected {other:?}"),
    }
    let got = pods.get("web").await.unwrap();
    assert_eq!(got.metadata.uid, made.metadata.uid);
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1);
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    match stream.try_next().await.unwrap().unwrap() {
        WatchEvent::Deleted(pod) => assert_eq!(pod.metadata.name.as_deref(), Some("web")),
        other => panic!("unexpected {other:?}"),
    }
    assert!(pods.get_opt("web").await.unwrap().is_none());
}

#[tokio::test]
async fn kube_works_in_process() {
    let server = start().await;
    round_trip(server.kube()).await;
    server.stop().await;
}

#[tokio::test]
async fn kube_works_over_tls_with_a_certificate() {
    let server = start().await;
    round_trip(server.remote("kubernetes-admin", &["system:masters"]).await).await;
    server.stop().await;
}

#[tokio::test]
async fn a_stranger_with_a_good_certificate_may_do_nothing() {
    let server = start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.remote("mallory", &["guests"]).await);
    match maps.list(&ListParams::default()).await.unwrap_err() {
        kube::Error::Api(status) => {
            assert_eq!(status.code, 403);
            assert_eq!(
                status.message,
                "configmaps is forbidden: User \"mallory\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
            );
        }
        other => panic!("unexpected {other:?}"),
    }
    server.stop().await;
}

#[tokio::test]
async fn nobody_sees_health_and_nothing_else() {
    let server = start().await;
    let nobody = server.nobody();
    assert_eq!(send(&nobody, "GET", "/readyz", &[], "").await.text, "ok");
    let pods = send(&nobody, "GET", "/api/v1/pods", &[], "").await;
    assert_eq!((pods.code, pods.body["reason"].as_str()), (403, Some("Forbidden")));
    let forged = send(&nobody, "GET", "/api/v1/pods", &[("authorization", "Bearer nonsense")], "").await;
    assert_eq!((forged.code, forged.body["reason"].as_str()), (401, Some("Unauthorized")));
    server.stop().await;
}

#[tokio::test]
async fn a_node_registers_itself_and_writes_no_other() {
    let server = start().await;
    let node = |name: &str| json!({"metadata": {"name": name}}).to_string();
    let json_type = [("content-type", "application/json")];
    let own = send(&server.as_user("n1"), "POST", "/api/v1/nodes", &json_type, node("n1")).await;
    assert_eq!(own.code, 201, "{}", own.text);
    let other = send(&server.as_user("n1"), "POST", "/api/v1/nodes", &json_type, node("n3")).await;
    assert_eq!(other.code, 403);
    let nodes: Api<Node> = Api::all(server.remote("system:node:n1", &["system:nodes"]).await);
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let patched = nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    assert_eq!(patched.status.unwrap().conditions.unwrap()[0].type_, "Ready");
    server.stop().await;
}

#[tokio::test]
async fn an_account_s_token_is_bound_to_its_pod() {
    let server = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let made = server.post(pods, &serde_json::to_value(pod("p")).unwrap()).await.body;
    let request = json!({"spec": {"expirationSeconds": 3607,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}}});
    let answer = server.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let token = answer.body["status"]["token"].as_str().unwrap().to_owned();
    let review = json!({"spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let believed = server.post(path, &review).await.body;
    assert_eq!(believed["status"]["authenticated"], true, "{believed}");
    assert_eq!(believed["status"]["user"]["username"], "system:serviceaccount:default:default");
    let bearer = format!("Bearer {token}");
    let own = send(&server.nobody(), "GET", "/apis", &[("authorization", &bearer)], "").await;
    assert_eq!(own.code, 200);
    server.delete(&format!("{pods}/p"), &Value::Null).await;
    let gone = send(&server.nobody(), "GET", "/apis", &[("authorization", &bearer)], "").await;
    assert_eq!(gone.code, 401, "the pod the token was bound to is gone");
    server.stop().await;
}

#[tokio::test]
async fn discovery_comes_in_both_forms_and_is_cacheable() {
    let server = start().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let new = send(&server.admin, "GET", "/apis", &[("accept", accept)], "").await;
    assert_eq!(new.body["kind"], "APIGroupDiscoveryList");
    assert_eq!(
        new.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let tag = new.headers["etag"].to_str().unwrap().to_owned();
    let same = send(&server.admin, "GET", "/apis", &[("accept", accept), ("if-none-match", &tag)], "").await;
    assert_eq!(same.code, 304);
    let old = server.get("/apis").await;
    assert_eq!(old.body["kind"], "APIGroupList");
    let core = server.get("/api/v1").await.body;
    let resources = core["resources"].as_array().unwrap();
    assert!(resources.iter().any(|resource| resource["name"] == "pods/eviction"));
    assert!(server.get("/openapi/v3").await.body["paths"]["api/v1"].is_object());
    assert_eq!(server.get("/version").await.body["major"], "1");
    server.stop().await;
}

#[tokio::test]
async fn logs_of_a_pod_on_an_unreachable_node_fail_clearly() {
    let server = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    server.post(pods, &serde_json::to_value(pod("p")).unwrap()).await;
    assert_eq!(server.get(&format!("{pods}/p/log")).await.text, "");
    let node = json!({"metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}});
    server.post("/api/v1/nodes", &node).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    server.post(&format!("{pods}/p/binding"), &binding).await;
    let answer = server.get(&format!("{pods}/p/log")).await;
    assert_eq!(
        (answer.code, answer.body["reason"].as_str()),
        (500, Some("InternalError")),
        "{}",
        answer.text
    );
    assert!(
        answer.body["message"].as_str().unwrap().contains("error dialing backend: 127.0.0.1:1"),
        "{}",
        answer.text
    );
    server.stop().await;
}

#[tokio::test]
async fn a_role_lets_a_user_do_what_it_says_and_no_more() {
    let server = start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]});
    assert_eq!(server.post(&format!("{rbac}/roles"), &role).await.code, 201);
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
    assert_eq!(server.post(&format!("{rbac}/rolebindings"), &binding).await.code, 201);
    server.get(&format!("{rbac}/rolebindings")).await;
    let ann = server.remote("ann", &[]).await;
    let here: Api<ConfigMap> = Api::default_namespaced(ann.clone());
    assert!(here.list(&ListParams::default()).await.is_ok());
    let made = here.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err();
    assert!(matches!(made, kube::Error::Api(status) if status.code == 403));
    let elsewhere: Api<ConfigMap> = Api::namespaced(ann, "kube-system");
    assert!(elsewhere.list(&ListParams::default()).await.is_err());
    let review = json!({"spec": {"user": "ann", "resourceAttributes":
        {"verb": "list", "resource": "configmaps", "namespace": "default"}}});
    let answer = server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    assert_eq!(answer.body["status"]["allowed"], true, "{}", answer.text);
    server.stop().await;
}
