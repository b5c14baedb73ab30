//! `TaintNodesByCondition`: a new node has the taint that keeps pods away until it is found ready.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Mutating, Operation, Request};
use crate::status::Result;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

/// The plugin.
pub(super) struct TaintNodesByCondition;

impl Mutating for TaintNodesByCondition {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && request.is_whole("", "Node")
    }

    fn admit<'a>(&'a self, _: &'a Request<'a>, node: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        taint(node);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Taints a new node; the controller of nodes takes the taint away when the node is ready.
fn taint(node: &mut Value) {
    let taint = json!({"key": NOT_READY, "effect": EFFECT});
    let is_there = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == EFFECT;
    match node["spec"]["taints"].as_array_mut() {
        Some(taints) if taints.iter().any(is_there) => {}
        Some(taints) => taints.push(taint),
        None => node["spec"]["taints"] = json!([taint]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_is_tainted_once() {
        let mut node = json!({"spec": {"taints": [{"key": NOT_READY, "effect": "NoExecute"}]}});
        taint(&mut node);
        taint(&mut node);
        assert_eq!(node["spec"]["taints"][1], json!({"key": NOT_READY, "effect": EFFECT}));
        assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 2);
    }
}
