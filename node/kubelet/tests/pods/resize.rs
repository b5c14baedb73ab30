//! Pods that ask for other resources while they run.

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::api::{Api, Patch, PatchParams};
use podwire_api::quantity::Quantity;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NODE, restarts};

const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

fn asks(resources: Value) -> Value {
    json!({"containers": [{"name": "app", "image": "run:1", "resources": resources}]})
}

async fn resize(cluster: &Cluster, name: &str, resources: Value) {
    let patch = json!({"spec": {"containers": [{"name": "app", "resources": resources}]}});
    cluster
        .pods()
        .patch_subresource("resize", name, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .unwrap();
}

fn shown<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == name)
}

/// Requests of processors as the status has them: granted, and in force.
fn cpu(pod: &Pod) -> (String, String) {
    let entry = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let granted = entry.allocated_resources.as_ref().map(|all| all["cpu"].0.clone());
    let actual = entry.resources.as_ref().and_then(|r| r.requests.as_ref()).map(|all| all["cpu"].0.clone());
    (granted.unwrap_or_default(), actual.unwrap_or_default())
}

fn has(pod: &Pod, amount: &str) -> bool {
    cpu(pod) == (amount.to_owned(), amount.to_owned())
}

fn settled(pod: &Pod) -> bool {
    shown(pod, PENDING).is_none() && shown(pod, IN_PROGRESS).is_none()
}

/// What pods may have of the node's processors, in thousandths.
async fn milli_cpus(cluster: &Cluster) -> i64 {
    cluster.registered().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let status = nodes.get(NODE).await.unwrap().status.unwrap();
    Quantity::parse(&status.allocatable.unwrap()["cpu"].0).unwrap().milli_value()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_is_granted_carried_out_and_told() {
    let cluster = Cluster::start().await;
    cluster.create("web", asks(json!({"requests": {"cpu": "100m"}}))).await;
    let before = cluster.running("web").await;
    assert_eq!(cpu(&before), ("100m".into(), "100m".into()));
    resize(&cluster, "web", json!({"requests": {"cpu": "150m"}})).await;
    let after = cluster.until("web", "resized", |pod| has(pod, "150m") && settled(pod)).await;
    assert_eq!(restarts(&after), 0);
    assert_eq!(cluster.fake.calls("update_container_resources"), 1);
    let generation = after.metadata.generation.unwrap();
    let summary = format!(
        r#"{{"containers":[{{"name":"app","resources":{{"requests":{{"cpu":"150m"}}}}}}],"generation":{generation}}}"#
    );
    assert_eq!(cluster.event("web", "ResizeStarted").await, format!("Pod resize started: {summary}"));
    assert_eq!(cluster.event("web", "ResizeCompleted").await, format!("Pod resize completed: {summary}"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_is_waited_for_across_a_restart_and_given_when_they_go() {
    let mut cluster = Cluster::start().await;
    let all = milli_cpus(&cluster).await;
    let most = format!("{}m", all - 300);
    cluster.create("web", asks(json!({"requests": {"cpu": "100m"}}))).await;
    cluster.create("big", asks(json!({"requests": {"cpu": most}}))).await;
    cluster.running("web").await;
    cluster.running("big").await;
    resize(&cluster, "web", json!({"requests": {"cpu": "400m"}})).await;
    let waits = cluster.until("web", "deferred", |pod| shown(pod, PENDING).is_some()).await;
    let condition = shown(&waits, PENDING).unwrap();
    assert_eq!(condition.reason.as_deref(), Some("Deferred"));
    let text = format!(
        "Node didn't have enough resource: cpu, requested: 400, used: {}, capacity: {all}",
        all - 300
    );
    assert_eq!(condition.message.as_deref(), Some(text.as_str()));
    assert_eq!(condition.observed_generation, waits.metadata.generation);
    assert_eq!(cpu(&waits), ("100m".into(), "100m".into()), "it keeps what it has");
    assert!(cluster.event("web", "ResizeDeferred").await.starts_with("Pod resize Deferred: {"));
    cluster.stop_kubelet().await;
    cluster.start_kubelet().await;
    // Room for what was granted, not for what is asked for.
    cluster.create("small", asks(json!({"requests": {"cpu": "200m"}}))).await;
    cluster.running("small").await;
    let waits = cluster.pods().get("web").await.unwrap();
    assert_eq!(cpu(&waits), ("100m".into(), "100m".into()));
    cluster.delete("big", 0).await;
    cluster.until("web", "resized", |pod| has(pod, "400m") && settled(pod)).await;
    assert_eq!(cluster.fake.calls("update_container_resources"), 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_does_not_have_is_infeasible_until_the_wish_changes() {
    let cluster = Cluster::start().await;
    let all = milli_cpus(&cluster).await;
    cluster.create("web", asks(json!({"requests": {"cpu": "100m"}}))).await;
    cluster.running("web").await;
    resize(&cluster, "web", json!({"requests": {"cpu": format!("{}m", all + 1)}})).await;
    let told = cluster.until("web", "infeasible", |pod| shown(pod, PENDING).is_some()).await;
    let condition = shown(&told, PENDING).unwrap();
    assert_eq!(condition.reason.as_deref(), Some("Infeasible"));
    let text = format!("Node didn't have enough capacity: cpu, requested: {}, capacity: {all}", all + 1);
    assert_eq!(condition.message.as_deref(), Some(text.as_str()));
    assert!(cluster.event("web", "ResizeInfeasible").await.starts_with("Pod resize Infeasible: {"));
    resize(&cluster, "web", json!({"requests": {"cpu": "100m"}})).await;
    cluster.until("web", "content", settled).await;
    assert_eq!(cluster.fake.calls("update_container_resources"), 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_in_use_is_not_taken_away() {
    let cluster = Cluster::start().await;
    let limit =
        |amount: &str| json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": amount}});
    cluster.create("web", asks(limit("200Mi"))).await;
    cluster.running("web").await;
    cluster.fake.world.lock().unwrap().memory_usage = Some(100 << 20);
    resize(&cluster, "web", limit("50Mi")).await;
    let failed = |pod: &Pod| shown(pod, IN_PROGRESS).is_some_and(|c| c.reason.as_deref() == Some("Error"));
    let told = cluster.until("web", "refused", failed).await;
    let text = format!(
        "cannot decrease memory limits: attempting to set container \"app\" memory limit ({}) below current usage ({})",
        50 << 20,
        100 << 20
    );
    assert_eq!(shown(&told, IN_PROGRESS).unwrap().message.as_deref(), Some(text.as_str()));
    assert_eq!(cluster.fake.calls("update_container_resources"), 0);
    assert!(cluster.event("web", "ResizeError").await.starts_with("Pod resize error: {"));
    cluster.fake.world.lock().unwrap().memory_usage = Some(1 << 20);
    cluster.until("web", "resized", settled).await;
    assert_eq!(cluster.fake.calls("update_container_resources"), 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_asked_for_it_is_restarted_with_its_new_resources() {
    let cluster = Cluster::start().await;
    let mut spec = asks(json!({"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}}));
    spec["containers"][0]["resizePolicy"] =
        json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    cluster.create("web", spec).await;
    cluster.running("web").await;
    resize(&cluster, "web", json!({"limits": {"memory": "128Mi"}})).await;
    let after = cluster.until("web", "restarted", |pod| restarts(pod) == 1 && settled(pod)).await;
    assert_eq!(cluster.fake.calls("update_container_resources"), 0);
    let memory = |made: &crate::runtime::Made| {
        let linux = made.config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
        linux.map(|resources| resources.memory_limit_in_bytes)
    };
    let limits: Vec<i64> =
        cluster.fake.world.lock().unwrap().containers.values().filter_map(memory).collect();
    assert!(limits.contains(&(128 << 20)), "{limits:?}");
    assert!(cluster.event("web", "Killing").await.contains("resize requires restart"));
    assert_eq!(after.status.unwrap().phase.as_deref(), Some("Running"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_runtime_refuses_is_told_and_tried_again() {
    let cluster = Cluster::start().await;
    cluster.create("web", asks(json!({"requests": {"cpu": "100m"}}))).await;
    cluster.running("web").await;
    cluster.fake.world.lock().unwrap().fail_update = Some("the kernel said no".into());
    resize(&cluster, "web", json!({"requests": {"cpu": "150m"}})).await;
    let failed = |pod: &Pod| shown(pod, IN_PROGRESS).is_some_and(|c| c.reason.as_deref() == Some("Error"));
    let told = cluster.until("web", "refused", failed).await;
    assert!(shown(&told, IN_PROGRESS).unwrap().message.as_ref().unwrap().contains("the kernel said no"));
    assert_eq!(cpu(&told), ("150m".into(), "100m".into()), "granted, and not in force");
    cluster.fake.world.lock().unwrap().fail_update = None;
    cluster.until("web", "resized", |pod| has(pod, "150m") && settled(pod)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_memory_restarts_a_container_that_wants_it_and_no_other() {
    let mut cluster = Cluster::start().await;
    let spec = |policy: &str| {
        json!({"containers": [{"name": "app", "image": "run:1",
            "resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "64Mi"}},
            "resizePolicy": [{"resourceName": "memory", "restartPolicy": policy}]}]})
    };
    cluster.create("anew", spec("RestartContainer")).await;
    cluster.create("same", spec("NotRequired")).await;
    cluster.running("anew").await;
    cluster.running("same").await;
    // The one that comes next knows what the one before it started the container with.
    cluster.stop_kubelet().await;
    for name in ["anew", "same"] {
        resize(&cluster, name, json!({"requests": {"memory": "48Mi"}})).await;
    }
    cluster.start_kubelet().await;
    let asked = |pod: &Pod| {
        let entry = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
        entry.allocated_resources.as_ref().map(|all| all["memory"].0.clone())
    };
    let done = |pod: &Pod| asked(pod).as_deref() == Some("48Mi") && settled(pod);
    cluster.until("anew", "restarted", |pod| done(pod) && restarts(pod) == 1).await;
    let same = cluster.until("same", "resized", done).await;
    assert_eq!(restarts(&same), 0);
    let anew = cluster.pods().get("anew").await.unwrap();
    assert_eq!(restarts(&anew), 1, "once");
    cluster.stop().await;
}
