//! Deletion: grace, finalizers, preconditions, namespaces; and binding, which decides about grace.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use serde_json::{Value, json};
use server::{send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}})
}

fn binding(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}})
}

#[tokio::test]
async fn a_pod_is_bound_once_and_then_deleted_in_two_steps() {
    let server = start().await;
    let made = server.post(PODS, &pod("p")).await.body;
    let bound = server.post(&format!("{PODS}/p/binding"), &binding("n1")).await;
    assert_eq!((bound.code, bound.body["status"].as_str()), (201, Some("Success")), "{}", bound.text);
    let twice = server.post(&format!("{PODS}/p/binding"), &binding("n2")).await;
    assert_eq!(twice.code, 409);
    assert!(twice.body["message"].as_str().unwrap().ends_with("pod p is already assigned to node \"n1\""));

    let first = server.delete(&format!("{PODS}/p"), &Value::Null).await;
    assert_eq!((first.code, first.body["metadata"]["deletionGracePeriodSeconds"].as_i64()), (200, Some(30)));
    let again = server.post(PODS, &pod("p")).await;
    assert_eq!(again.body["message"], "object is being deleted: pods \"p\" already exists");

    let wrong = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    assert_eq!(server.delete(&format!("{PODS}/p"), &wrong).await.code, 409);
    let right = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}});
    let done = send(
        &server.as_user("n1"),
        "DELETE",
        &format!("{PODS}/p"),
        &[("content-type", "application/json")],
        right.to_string(),
    )
    .await;
    assert_eq!((done.code, done.body["kind"].as_str()), (200, Some("Pod")), "{}", done.text);
    assert_eq!(server.get(&format!("{PODS}/p")).await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn an_unbound_pod_goes_at_once() {
    let server = start().await;
    server.post(PODS, &pod("p")).await;
    assert_eq!(server.delete(&format!("{PODS}/p"), &Value::Null).await.code, 200);
    assert_eq!(server.get(&format!("{PODS}/p")).await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_taken_away() {
    let server = start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    server.post(maps, &json!({"metadata": {"name": "f", "finalizers": ["example.com/hold"]}})).await;
    let marked = server.delete(&format!("{maps}/f"), &Value::Null).await;
    assert!(marked.body["metadata"]["deletionTimestamp"].is_string(), "{}", marked.text);
    assert_eq!(marked.body["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(server.get(&format!("{maps}/f")).await.code, 200);
    let last = server.patch(&format!("{maps}/f"), MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!((last.code, last.body["metadata"]["name"].as_str()), (200, Some("f")));
    assert_eq!(server.get(&format!("{maps}/f")).await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        server.post(maps, &json!({"metadata": {"name": name, "labels": {"tier": tier}}})).await;
    }
    let answer = server.delete(&format!("{maps}?labelSelector=tier%3Dx"), &Value::Null).await;
    assert_eq!(answer.body["items"].as_array().unwrap().len(), 2, "{}", answer.text);
    let left = server.get(maps).await.body;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_terminating_namespace_takes_nothing_new_and_goes_when_finalized() {
    let server = start().await;
    let made = server.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    assert_eq!(made.body["spec"]["finalizers"], json!(["kubernetes"]), "{}", made.text);
    let absent =
        server.post("/api/v1/namespaces/nowhere/configmaps", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(
        (absent.code, absent.body["message"].as_str()),
        (404, Some("namespaces \"nowhere\" not found"))
    );

    let marked = server.delete("/api/v1/namespaces/team", &Value::Null).await;
    assert_eq!(marked.body["status"]["phase"], "Terminating", "{}", marked.text);
    let refused =
        server.post("/api/v1/namespaces/team/configmaps", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (403, Some("Forbidden")), "{}", refused.text);
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");

    let mut object = server.get("/api/v1/namespaces/team").await.body;
    object["spec"]["finalizers"] = json!([]);
    let done = server.put("/api/v1/namespaces/team/finalize", &object).await;
    assert_eq!(done.code, 200, "{}", done.text);
    assert_eq!(server.get("/api/v1/namespaces/team").await.code, 404);
    assert_eq!(server.delete("/api/v1/namespaces/default", &Value::Null).await.code, 403);
    server.stop().await;
}

#[tokio::test]
async fn an_eviction_deletes_unless_a_budget_forbids_it() {
    let server = start().await;
    let mut labelled = pod("p");
    labelled["metadata"]["labels"] = json!({"app": "db"});
    server.post(PODS, &labelled).await;
    server.post(&format!("{PODS}/p/binding"), &binding("n1")).await;
    server.patch(&format!("{PODS}/p/status"), MERGE, &json!({"status": {"phase": "Running"}})).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}});
    assert_eq!(server.post(budgets, &budget).await.code, 201);
    server.get(budgets).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let refused = server.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!(
        (refused.code, refused.body["reason"].as_str()),
        (429, Some("TooManyRequests")),
        "{}",
        refused.text
    );
    server.delete(&format!("{budgets}/b"), &Value::Null).await;
    server.get(budgets).await;
    let evicted = server.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!(evicted.code, 201, "{}", evicted.text);
    assert!(server.get(&format!("{PODS}/p")).await.body["metadata"]["deletionTimestamp"].is_string());
    server.stop().await;
}
