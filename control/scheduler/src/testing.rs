//! Objects for unit tests, written as short JSON.

use serde_json::{Value, json};

use crate::node::NodeFacts;
use crate::pod::{PodInfo, Templates};

fn overlay(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                overlay(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// A pod with one container that asks for nothing, changed by `over`; its uid is its name.
pub(crate) fn pod(over: Value) -> PodInfo {
    pod_of(over, &mut Templates::default())
}

/// The same, sharing what it has in common with others.
pub(crate) fn pod_of(over: Value, templates: &mut Templates) -> PodInfo {
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    overlay(&mut object, over);
    object["metadata"]["uid"] = object["metadata"]["name"].clone();
    PodInfo::new(&serde_json::from_value(object).unwrap(), templates).unwrap()
}

/// A pod that asks for some CPU.
pub(crate) fn cpu_pod(name: &str, cpu: &str) -> PodInfo {
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
    pod(json!({"metadata": {"name": name}, "spec": {"containers": containers}}))
}

/// A node with 4 CPUs, 8 GiB and room for 110 pods, changed by `over`.
pub(crate) fn node(over: Value) -> NodeFacts {
    let mut object = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    overlay(&mut object, over);
    NodeFacts::new(&serde_json::from_value(object).unwrap())
}
