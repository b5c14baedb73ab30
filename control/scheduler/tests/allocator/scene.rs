//! The parts of questions.

use serde_json::{Value, json};

pub(crate) const NODE: &str = "n1";
pub(crate) const DRIVER: &str = "a.example.com";

/// What is offered, taken and asked for.
#[derive(Clone, Default)]
pub(crate) struct Scene {
    pub(crate) slices: Vec<Value>,
    pub(crate) classes: Vec<Value>,
    pub(crate) claims: Vec<Value>,
    pub(crate) allocated: Vec<Value>,
}

impl Scene {
    /// One class, `any`, that means every device.
    pub(crate) fn new() -> Scene {
        Scene { classes: vec![class("any", &[])], ..Scene::default() }
    }

    pub(crate) fn slice(mut self, slice: Value) -> Scene {
        self.slices.push(slice);
        self
    }

    pub(crate) fn class(mut self, class: Value) -> Scene {
        self.classes.push(class);
        self
    }

    pub(crate) fn claim(mut self, claim: Value) -> Scene {
        self.claims.push(claim);
        self
    }

    /// Another claim has a device.
    pub(crate) fn taken(mut self, result: Value) -> Scene {
        self.allocated.push(json!({"devices": {"results": [result]}}));
        self
    }

    pub(crate) fn question(&self) -> Value {
        // Upstream takes slices in any order; ours has them in that of their names.
        let mut slices = self.slices.clone();
        slices.sort_by_key(|slice| slice["metadata"]["name"].as_str().unwrap().to_owned());
        json!({
            "node": {"metadata": {"name": NODE, "labels": {"zone": "a", "cores": "8"}}},
            "slices": slices,
            "classes": self.classes,
            "claims": self.claims,
            "allocated": self.allocated,
        })
    }
}

/// A device that another claim has.
pub(crate) fn taken(pool: &str, device: &str) -> Value {
    json!({"request": "r", "driver": DRIVER, "pool": pool, "device": device})
}

/// A slice of the node that is asked about, the only one of its pool.
pub(crate) fn slice(pool: &str, devices: Vec<Value>) -> Value {
    let spec = json!({
        "driver": DRIVER,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "nodeName": NODE,
        "devices": devices,
    });
    json!({"metadata": {"name": format!("{pool}-1")}, "spec": spec})
}

pub(crate) fn devices(count: usize) -> Vec<Value> {
    (0..count).map(|number| json!({"name": format!("d{number}")})).collect()
}

pub(crate) fn class(name: &str, selectors: &[&str]) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selectors": cel(selectors)}})
}

pub(crate) fn cel(selectors: &[&str]) -> Value {
    selectors.iter().map(|text| json!({"cel": {"expression": text}})).collect()
}

/// A claim of these requests.
pub(crate) fn claim(name: &str, requests: Vec<Value>) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": requests}},
    })
}

/// A request for so many devices.
pub(crate) fn exactly(name: &str, count: i64) -> Value {
    json!({"name": name, "exactly": want(count)})
}

/// A request for all devices.
pub(crate) fn all(name: &str) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "All"}})
}

pub(crate) fn want(count: i64) -> Value {
    json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": count})
}

/// With further fields, or others.
pub(crate) fn with(mut value: Value, more: Value) -> Value {
    merge(&mut value, more);
    value
}

fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (key, one) in more {
                merge(fields.entry(key).or_insert(Value::Null), one);
            }
        }
        (value, more) => *value = more,
    }
}
