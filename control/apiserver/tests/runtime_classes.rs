//! Runtime classes: what pods get from the class they name.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use serde_json::{Value, json};
use server::start;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
    pod
}

#[tokio::test]
async fn a_pod_gets_overhead_and_nodes_from_its_runtime_class() {
    let server = start().await;
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    assert_eq!(server.post(CLASSES, &class).await.code, 201);
    let made = server.post(PODS, &pod("given", json!({"runtimeClassName": "vm"}))).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let spec = &made.body["spec"];
    assert_eq!((&spec["overhead"], &spec["nodeSelector"]), (&json!({"cpu": "250m"}), &json!({"vm": "yes"})));
    assert!(spec["tolerations"].as_array().unwrap().contains(&json!({"key": "vm", "operator": "Exists"})));
    for (spec, words) in [
        (json!({"runtimeClassName": "none"}), "pod rejected: RuntimeClass \"none\" not found"),
        (
            json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
        ),
    ] {
        let refused = server.post(PODS, &pod("p", spec)).await;
        assert_eq!(refused.code, 403, "{}", refused.text);
        assert_eq!(refused.body["message"], format!("pods \"p\" is forbidden: {words}"));
    }
    server.stop().await;
}
