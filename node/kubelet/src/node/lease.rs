//! The node's lease: proof of life, renewed every ten seconds.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Node;
use crate::{api::ApiError, clock};

const NAMESPACE: &str = "kube-node-lease";
const DURATION_SECONDS: u32 = 40;
const PERIOD: Duration = Duration::from_secs(10);

/// Renews the lease until `shutdown`. A renewal that has begun is finished.
pub(crate) async fn run(node: Arc<Node>, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = ticks.tick(), if wait.is_zero() => {}
            () = tokio::time::sleep(wait), if !wait.is_zero() => {}
        }
        wait = match renew(&node).await {
            Ok(()) => Duration::ZERO,
            Err(error) => {
                tracing::warn!(error = %error, "lease not renewed; will retry");
                (wait * 2).clamp(Duration::from_millis(200), Duration::from_secs(7))
            }
        };
    }
}

async fn renew(node: &Node) -> Result<(), ApiError> {
    let name = &node.config.node_name;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}");
    let spec = json!({
        "holderIdentity": name, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": micro_time(),
    });
    match node.api.patch_merge(&path, &json!({"spec": spec})).await {
        Err(error) if error.code() == Some(404) => create(node, spec).await,
        other => other.map(drop),
    }
}

async fn create(node: &Node, spec: Value) -> Result<(), ApiError> {
    let name = &node.config.node_name;
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    if let Ok(object) = node.api.get(&format!("/api/v1/nodes/{name}")).await {
        let uid = object["metadata"]["uid"].clone();
        lease["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
    }
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    match node.api.json(Method::POST, &path, &lease).await {
        Err(error) if error.code() == Some(404) => {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
            node.api.json(Method::POST, "/api/v1/namespaces", &namespace).await?;
            node.api.json(Method::POST, &path, &lease).await.map(drop)
        }
        other => other.map(drop),
    }
}

/// Now with microseconds, as leases carry it.
fn micro_time() -> String {
    clock::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
