//! Admission webhooks: real servers behind TLS on loopback are asked, believed, bounded and passed over.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;
#[path = "support/webhook.rs"]
mod webhook;

use std::time::{Duration, Instant};

use podwire_store::{Guard, Op, Store};
use serde_json::{Value, json};
use server::{Answer, Server, start};
use webhook::{Reply, Webhook};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

fn rules(resource: &str) -> Value {
    json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}])
}

/// A webhook of a configuration.
fn hook(name: &str, client: Value, change: Value) -> Value {
    let mut hook = json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": client, "timeoutSeconds": 5, "rules": rules("configmaps")});
    for (key, value) in change.as_object().unwrap() {
        hook[key] = value.clone();
    }
    hook
}

async fn register(server: &Server, path: &str, name: &str, hooks: Value) -> Answer {
    let made = server.post(path, &json!({"metadata": {"name": name}, "webhooks": hooks})).await;
    assert_eq!((made.code, made.headers.get("warning")), (201, None), "{}", made.text);
    made
}

fn allow(review: &Value) -> Reply {
    Reply::answer(review, json!({"allowed": true}))
}

/// An answer that adds to the data of a config map.
fn set(review: &Value, key: &str, value: &str) -> Reply {
    Reply::patch(review, &json!([{"op": "add", "path": format!("/data/{key}"), "value": value}]))
}

#[tokio::test]
async fn a_webhook_changes_what_is_created_and_another_refuses_it() {
    let server = start().await;
    let changes = Webhook::start(&server.pki, |review| set(review, "b", "2")).await;
    let refuses = Webhook::start(&server.pki, |review| match review["request"]["name"].as_str() {
        Some("bad") => Reply::answer(
            review,
            json!({"allowed": false, "warnings": ["think again"],
            "status": {"code": 409, "reason": "Conflict", "message": "not this one"}}),
        ),
        Some("mute") => Reply::answer(review, json!({"allowed": false})),
        _ => Reply::answer(review, json!({"allowed": true, "warnings": ["well"]})),
    })
    .await;
    register(&server, MUTATING, "m", json!([hook("m.ex.com", changes.client(), json!({}))])).await;
    register(&server, VALIDATING, "v", json!([hook("v.ex.com", refuses.client(), json!({}))])).await;

    let made = server.post(MAPS, &map("good")).await;
    assert_eq!((made.code, &made.body["data"]), (201, &json!({"a": "1", "b": "2"})), "{}", made.text);
    assert_eq!(made.headers["warning"], "299 - \"well\"");
    let asked = &changes.asked()[0];
    assert_eq!(
        (&asked["apiVersion"], &asked["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let request = &asked["request"];
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["requestResource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(
        (&request["operation"], &request["namespace"], &request["name"]),
        (&json!("CREATE"), &json!("default"), &json!("good"))
    );
    assert_eq!((&request["dryRun"], &request["oldObject"]), (&json!(false), &Value::Null));
    assert_eq!(request["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(
        (&request["object"]["kind"], &request["object"]["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(
        refuses.asked()[0]["request"]["object"]["data"],
        json!({"a": "1", "b": "2"}),
        "it sees what will be stored"
    );

    let refused = server.post(MAPS, &map("bad")).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(refused.body["message"], "admission webhook \"v.ex.com\" denied the request: not this one");
    assert_eq!(refused.headers["warning"], "299 - \"think again\"");
    let refused = server.post(MAPS, &map("mute")).await;
    assert_eq!(refused.code, 400);
    assert_eq!(
        refused.body["message"],
        "admission webhook \"v.ex.com\" denied the request without explanation"
    );

    let path = format!("{MAPS}/good");
    let merge = "application/merge-patch+json";
    assert_eq!(server.patch(&path, merge, &json!({"data": {"c": "3"}})).await.code, 200);
    let updated = refuses.asked().last().unwrap()["request"].clone();
    assert_eq!(
        (&updated["operation"], &updated["oldObject"]["data"]),
        (&json!("UPDATE"), &json!({"a": "1", "b": "2"}))
    );
    changes.answer(|review| Reply::answer(review, json!({"allowed": true})));
    assert_eq!(server.delete(&path, &Value::Null).await.code, 200);
    let deleted = refuses.asked().last().unwrap()["request"].clone();
    assert_eq!((&deleted["operation"], &deleted["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(deleted["oldObject"]["data"]["c"], "3");
    assert_eq!(
        server.delete(&format!("{VALIDATING}/v"), &Value::Null).await.code,
        200,
        "no webhook keeps another"
    );
    assert_eq!(server.post(MAPS, &map("bad")).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_is_away_slow_or_confused_is_told_of_or_passed_over() {
    let server = start().await;
    let odd = Webhook::start(&server.pki, |review| match review["request"]["name"].as_str() {
        Some("slow") => Reply::Hang,
        Some("garbage") => Reply::Raw(200, "<html>".into()),
        Some("broken") => Reply::Raw(500, "oh no".into()),
        Some("other") => Reply::Raw(200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "x", "allowed": true}}).to_string()),
        Some("huge") => Reply::Raw(200, "x".repeat(4 << 20)),
        Some("namespace") => Reply::patch(review, &json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}])),
        Some("kind") => Reply::patch(review, &json!([{"op": "replace", "path": "/kind", "value": "Secret"}])),
        Some("shape") => Reply::patch(review, &json!([{"op": "replace", "path": "/data", "value": [1]}])),
        Some("bent") => Reply::patch(review, &json!([{"op": "replace", "path": "/metadata", "value": "x"}])),
        Some("nowhere") => Reply::patch(review, &json!([{"op": "remove", "path": "/data/none"}])),
        _ => allow(review),
    })
    .await;
    let away = json!({"url": "https://127.0.0.1:1", "caBundle": odd.client()["caBundle"]});
    let once = json!({"timeoutSeconds": 1});
    register(&server, MUTATING, "odd", json!([hook("odd.ex.com", odd.client(), once.clone())])).await;
    let begun = Instant::now();
    for (name, words) in [
        ("slow", "failed to call webhook: Post \"https://127.0.0.1:"),
        ("garbage", "received invalid webhook response: "),
        (
            "broken",
            "failed to call webhook: an error on the server (\"oh no\") has prevented the request from succeeding",
        ),
        ("other", "received invalid webhook response: expected response.uid="),
        ("huge", "failed to call webhook: "),
    ] {
        let refused = server.post(MAPS, &map(name)).await;
        assert_eq!((refused.code, refused.body["reason"].as_str()), (500, Some("InternalError")), "{name}");
        let message = refused.body["message"].as_str().unwrap();
        let head = format!("Internal error occurred: failed calling webhook \"odd.ex.com\": {words}");
        assert!(message.starts_with(&head), "{name}: {message}");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "no longer than it has");
    for name in ["namespace", "kind", "shape", "bent", "nowhere"] {
        let refused = server.post(MAPS, &map(name)).await;
        assert_eq!(refused.code, 500, "{name}: {}", refused.text);
        assert_eq!(server.get(&format!("{MAPS}/{name}")).await.code, 404);
    }
    assert_eq!(server.post(MAPS, &map("fine")).await.code, 201);

    register(&server, VALIDATING, "away", json!([hook("away.ex.com", away.clone(), once.clone())])).await;
    let refused = server.post(MAPS, &map("closed")).await;
    assert_eq!(
        refused.body["message"],
        "Internal error occurred: failed calling webhook \"away.ex.com\": failed to call webhook: Post \"https://127.0.0.1:1/?timeout=1s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    assert_eq!(server.delete(&format!("{VALIDATING}/away"), &Value::Null).await.code, 200);
    let open = json!({"failurePolicy": "Ignore", "timeoutSeconds": 1});
    register(&server, VALIDATING, "open", json!([hook("open.ex.com", away, open)])).await;
    assert_eq!(server.post(MAPS, &map("open")).await.code, 201, "passed over");
    let mut stranger = odd.client();
    stranger["caBundle"] = json!("");
    register(&server, VALIDATING, "stranger", json!([hook("stranger.ex.com", stranger, json!({}))])).await;
    let refused = server.post(MAPS, &map("untrusted")).await;
    assert!(
        refused.body["message"].as_str().unwrap().contains("tls: failed to verify certificate"),
        "{}",
        refused.text
    );
    server.stop().await;
}

#[tokio::test]
async fn rules_selectors_and_trials_choose_who_is_asked() {
    let server = start().await;
    let all = Webhook::start(&server.pki, allow).await;
    let client = all.client();
    let only = |change: Value| hook("a.ex.com", client.clone(), change);
    for (number, (change, path, object, asked)) in [
        (json!({"rules": rules("secrets")}), MAPS, map("a"), 0),
        (json!({"rules": rules("configmaps/*")}), MAPS, map("b"), 1),
        (json!({"rules": [{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}), MAPS, map("c"), 0),
        (json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Cluster"}]}), MAPS, map("d"), 0),
        (json!({"objectSelector": {"matchLabels": {"ask": "me"}}}), MAPS, map("e"), 0),
        (json!({"objectSelector": {"matchLabels": {"ask": "me"}}}), MAPS, json!({"metadata": {"name": "f", "labels": {"ask": "me"}}}), 1),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), MAPS, map("g"), 1),
        (json!({"namespaceSelector": {"matchExpressions": [{"key": "ask", "operator": "Exists"}]}}), MAPS, map("h"), 0),
        (json!({"rules": [{"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"]}]}), "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", json!({"metadata": {"name": "i"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}), 1),
        (json!({"matchPolicy": "Exact", "rules": [{"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"]}]}), "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", json!({"metadata": {"name": "j"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}), 0),
    ].into_iter().enumerate() {
        let name = format!("n{number}");
        register(&server, VALIDATING, &name, json!([only(change.clone())])).await;
        let before = all.asked().len();
        let made = server.post(path, &object).await;
        assert_eq!(made.code, 201, "{change}: {}", made.text);
        assert_eq!(all.asked().len() - before, asked, "{change}");
        assert_eq!(server.delete(&format!("{VALIDATING}/{name}"), &Value::Null).await.code, 200);
    }
    let converted = all
        .asked()
        .into_iter()
        .find(|asked| asked["request"]["resource"]["resource"] == "horizontalpodautoscalers")
        .unwrap();
    assert_eq!(converted["request"]["object"]["apiVersion"], "autoscaling/v1");
    assert_eq!(converted["request"]["requestKind"]["version"], "v2");

    let refused = server.post(VALIDATING, &json!({"metadata": {"name": "x"}, "webhooks": [hook("a.ex.com", client.clone(), json!({"sideEffects": "Some"}))]})).await;
    assert_eq!(refused.code, 422, "one with side effects cannot be called for a trial: {}", refused.text);
    register(&server, VALIDATING, "trial", json!([only(json!({}))])).await;
    assert_eq!(server.post(&format!("{MAPS}?dryRun=All&fieldManager=me"), &map("trial")).await.code, 201);
    let trial = all.asked().last().unwrap()["request"].clone();
    assert_eq!(trial["dryRun"], true);
    assert_eq!(
        trial["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "me"})
    );
    let before = all.asked().len();
    let conditions = json!([{"name": "a", "expression": "request.nothing == 'x'"}]);
    let bad =
        json!({"metadata": {"name": "cel"}, "webhooks": [only(json!({"matchConditions": conditions}))]});
    let refused = server.post(VALIDATING, &bad).await;
    let told = (refused.code, refused.text.contains("undefined field 'nothing'"), all.asked().len());
    assert_eq!(told, (422, true, before), "and nobody is asked about webhooks: {}", refused.text);
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_is_called_again_when_a_later_one_changed_something_and_built_in_plugins_see_it() {
    let server = start().await;
    let counts = Webhook::start(&server.pki, |review| {
        let containers = review["request"]["object"]["spec"]["containers"].as_array().unwrap().len();
        Reply::patch(review, &json!([{"op": "add", "path": "/metadata/annotations", "value": {"containers": containers.to_string()}}]))
    })
    .await;
    let never = Webhook::start(&server.pki, allow).await;
    let injects = Webhook::start(&server.pki, |review| {
        let containers = review["request"]["object"]["spec"]["containers"].as_array().unwrap();
        if containers.len() > 1 {
            return allow(review);
        }
        Reply::patch(
            review,
            &json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "s"}}]),
        )
    })
    .await;
    let pods = json!({"rules": rules("pods")});
    let again = json!({"rules": rules("pods"), "reinvocationPolicy": "IfNeeded"});
    register(
        &server,
        MUTATING,
        "a",
        json!([
            hook("counts.ex.com", counts.client(), again),
            hook("never.ex.com", never.client(), pods.clone())
        ]),
    )
    .await;
    register(&server, MUTATING, "b", json!([hook("injects.ex.com", injects.client(), pods)])).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = server.post(PODS, &pod).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(made.body["metadata"]["annotations"]["containers"], "2", "it saw the sidecar");
    assert_eq!((counts.asked().len(), never.asked().len(), injects.asked().len()), (2, 1, 1));
    let sidecar = &made.body["spec"]["containers"][1];
    assert_eq!(sidecar["imagePullPolicy"], "Always", "what was added has its defaults");
    let mounts = sidecar["volumeMounts"].as_array().unwrap();
    assert_eq!(mounts[0]["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount", "and its token");
    assert_eq!(made.body["spec"]["volumes"].as_array().unwrap().len(), 1, "of the one volume");
    server.stop().await;
}

/// An address as long as that of loopback, to which no slice may lead.
const ELSEWHERE: &str = "10.9.8.77";

/// Lets what is stored lead to loopback, behind the server's back.
async fn lead_home(server: &Server, key: &str) {
    let stored = server.store.get(key).await.unwrap().unwrap();
    let mut value = stored.value.to_vec();
    let at = value.windows(ELSEWHERE.len()).position(|part| part == ELSEWHERE.as_bytes()).unwrap();
    value[at..at + ELSEWHERE.len()].copy_from_slice(b"127.0.0.1");
    let op = Op::Put { value: value.into(), ttl: None };
    server.store.txn(key, Guard::ModRevision(stored.mod_revision), op).await.unwrap();
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_found_by_its_endpoints() {
    let server = start().await;
    let hidden = Webhook::start_named(&server.pki, "hook.default.svc", allow).await;
    let service = json!({"namespace": "default", "name": "hook", "path": "/check"});
    let client = json!({"service": service, "caBundle": hidden.client()["caBundle"]});
    register(&server, VALIDATING, "s", json!([hook("s.ex.com", client, json!({}))])).await;
    let told = |answer: &Answer| answer.body["message"].as_str().unwrap().to_owned();
    let none = server.post(MAPS, &map("none")).await;
    assert_eq!(
        told(&none),
        "Internal error occurred: failed calling webhook \"s.ex.com\": failed to call webhook: Post \"https://hook.default.svc:443/check?timeout=5s\": service \"hook\" not found"
    );
    let object = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    assert_eq!(server.post("/api/v1/namespaces/default/services", &object).await.code, 201);
    let empty = server.post(MAPS, &map("empty")).await;
    assert!(
        told(&empty).ends_with("svc:443/check?timeout=5s\": no endpoints available for service \"hook\""),
        "{}",
        empty.text
    );
    let slice = json!({"metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": [ELSEWHERE], "conditions": {"ready": true}}], "ports": [{"name": "https", "port": hidden.port()}]});
    let made = server.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    assert_eq!(made.code, 201, "{}", made.text);
    lead_home(&server, "/registry/endpointslices/default/hook-1").await;
    let mut last = 0;
    for _ in 0..200 {
        last = server.post(MAPS, &map("found")).await.code;
        if last == 201 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(last, 201, "the cache hears of the slice");
    assert_eq!(hidden.paths().last().unwrap(), "/check?timeout=5s");
    server.stop().await;
}

#[tokio::test]
async fn no_webhook_keeps_a_definition_or_its_objects_from_going() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let server = start().await;
    let definition = json!({"metadata": {"name": "pins.ex.com"}, "spec": {"group": "ex.com", "scope": "Namespaced",
        "names": {"plural": "pins", "kind": "Pin"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    assert_eq!(server.post(DEFINITIONS, &definition).await.code, 201);
    let pins = "/apis/ex.com/v1/namespaces/default/pins";
    let pin = json!({"apiVersion": "ex.com/v1", "kind": "Pin", "metadata": {"name": "p"}});
    assert_eq!(server.post(pins, &pin).await.code, 201);
    // Nobody listens there, and whoever asks is refused.
    let away = json!({"url": "https://127.0.0.1:1/"});
    for (name, resource) in [("pins", "pins"), ("status", "customresourcedefinitions/status")] {
        let refuses = hook(&format!("{name}.ex.com"), away.clone(), json!({"rules": rules(resource)}));
        register(&server, VALIDATING, name, json!([refuses])).await;
    }
    assert_eq!(server.delete(&format!("{pins}/p"), &json!({})).await.code, 500);
    assert_eq!(server.delete(&format!("{DEFINITIONS}/pins.ex.com"), &json!({})).await.code, 200);
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.get(&format!("{DEFINITIONS}/pins.ex.com")).await.code != 404 {
        assert!(Instant::now() < deadline, "the definition stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn match_conditions_choose_what_a_webhook_is_asked_about() {
    let server = start().await;
    let asked = Webhook::start(&server.pki, |review| {
        Reply::answer(review, json!({"allowed": false, "status": {"message": "no"}}))
    })
    .await;
    let conditions = |expressions: &[&str]| -> Value {
        let each = expressions.iter().enumerate();
        each.map(|(at, text)| json!({"name": format!("c{at}"), "expression": text})).collect()
    };
    let expressions =
        ["object.data.a == '1'", "!request.userInfo.username.startsWith('node')", "request.name != 'free'"];
    let chosen = hook("c.ex.com", asked.client(), json!({"matchConditions": conditions(&expressions)}));
    register(&server, VALIDATING, "c", json!([chosen])).await;
    assert_eq!(server.post(MAPS, &map("held")).await.code, 400, "the webhook says no");
    assert_eq!(server.post(MAPS, &map("free")).await.code, 201);
    let other = json!({"metadata": {"name": "other"}, "data": {"a": "2"}});
    assert_eq!(server.post(MAPS, &other).await.code, 201);
    assert_eq!(asked.asked().len(), 1);
    // What cannot be told is refused, or passed over if the webhook may be.
    let without = json!({"metadata": {"name": "without"}});
    let refused = server.post(MAPS, &without).await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str().unwrap()),
        (
            403,
            "configmaps \"without\" is forbidden: expression 'object.data.a == '1'' resulted in error: no such key: data"
        )
    );
    let open = json!({"failurePolicy": "Ignore", "matchConditions": conditions(&expressions)});
    let path = format!("{VALIDATING}/c");
    let mut configuration = server.get(&path).await.body;
    configuration["webhooks"] = json!([hook("c.ex.com", asked.client(), open)]);
    assert_eq!(server.put(&path, &configuration).await.code, 200);
    assert_eq!(server.post(MAPS, &without).await.code, 201);
    assert_eq!(asked.asked().len(), 1, "and nobody was asked");
    server.stop().await;
}
