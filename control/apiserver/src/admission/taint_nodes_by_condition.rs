//! What the server adds to new nodes: the taint that keeps pods away until the node is found ready.

use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

/// Taints a new node; the controller of nodes takes the taint away when the node is ready.
pub(super) fn taint(node: &mut Value) {
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
