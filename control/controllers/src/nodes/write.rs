//! What the node controller writes: conditions and taints of nodes, the end of pods.

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use podwire_client::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use podwire_client::{Client, Meta, ResourceExt};
use serde_json::{Value, json};

use super::plan::Doom;
use super::view::PodView;
use crate::FIELD_MANAGER;
use crate::watching::is_status;

/// The time, as conditions carry it.
pub(crate) fn stamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

fn written(node: &str, what: &str, result: Result<Meta, podwire_client::Error>) -> Option<u64> {
    match result {
        Ok(object) => object.resource_version().and_then(|text| text.parse().ok()),
        Err(error) => {
            tracing::debug!(node, what, %error, "node not written; it is looked at again");
            None
        }
    }
}

/// Writes a silent node's conditions; returns the node's new resource version.
pub(crate) async fn node_conditions(client: Client, name: &str, conditions: Value) -> Option<u64> {
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    written(name, "conditions", Api::<Node>::all(client).patch_status(name, &params(), &patch).await)
}

/// Writes a node's taints, provided that it is still at version `seen`.
pub(crate) async fn node_taints(client: Client, name: &str, seen: u64, taints: Vec<Taint>) -> Option<u64> {
    let patch =
        Patch::Merge(json!({"metadata": {"resourceVersion": seen.to_string()}, "spec": {"taints": taints}}));
    written(name, "taints", Api::<Node>::all(client).patch(name, &params(), &patch).await)
}

/// Says that a pod is not ready because its node is not.
pub(crate) async fn pod_unready(client: Client, pod: &PodView) {
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": stamp()});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    if let Err(error) = api.patch_status(&pod.name, &params(), &patch).await {
        tracing::debug!(pod = pod.name, %error, "pod not marked unready");
    }
}

/// Removes a pod; says whether it is gone or on its way.
pub(crate) async fn remove_pod(client: Client, pod: &PodView, uid: &str, why: Doom) -> bool {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let removed = end(&api, pod, uid, why).await;
    match removed {
        Ok(()) => true,
        // Gone, or another pod of that name has taken its place.
        Err(error) if is_status(&error, 404) || is_status(&error, 409) => true,
        Err(error) => {
            tracing::warn!(pod = pod.name, ?why, %error, "pod not removed; will retry");
            false
        }
    }
}

async fn end(api: &Api<Pod>, pod: &PodView, uid: &str, why: Doom) -> Result<(), podwire_client::Error> {
    if let Some(status) = last_words(pod, why) {
        let patch = Patch::Strategic(json!({"metadata": {"uid": uid}, "status": status}));
        api.patch_status(&pod.name, &params(), &patch).await?;
    }
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let delete = match why {
        Doom::Tainted => DeleteParams { preconditions, ..DeleteParams::default() },
        // Nobody is left to stop it gracefully.
        _ => DeleteParams { preconditions, grace_period_seconds: Some(0), ..DeleteParams::default() },
    };
    api.delete(&pod.name, &delete).await
}

/// What the pod's status says about its end.
fn last_words(pod: &PodView, why: Doom) -> Option<Value> {
    let (reason, message) = match why {
        Doom::Orphan => ("DeletionByPodGC", "PodGC: node no longer exists"),
        Doom::Tainted => ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        Doom::Unscheduled | Doom::Surplus => return None,
    };
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": stamp(),
    });
    let mut status = json!({"conditions": [condition]});
    if why == Doom::Orphan && !pod.terminal {
        status["phase"] = json!("Failed");
    }
    Some(status)
}
