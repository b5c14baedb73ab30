//! How what is offered is published: in slices that the API server takes, written only where something changed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Devices of one slice.
const MOST: usize = 128;
/// The longest name of an object.
const NAME: usize = 253;

/// Whose slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) driver: String,
    pub(crate) node: String,
    /// Uid of the node's object, with which slices go.
    pub(crate) node_uid: String,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Put(Box<(String, Value)>),
    Delete(String),
}

impl Pool {
    fn name(&self, number: usize) -> String {
        let mut name = format!("{}-{}", self.node, self.driver);
        name.truncate(NAME - 6);
        format!("{name}-{number}")
    }

    /// What has to be written so that what `published` (objects by name) becomes `devices`; nothing if it is that.
    pub(crate) fn changes(&self, devices: &[Value], published: &BTreeMap<String, Value>) -> Vec<Write> {
        let parts: Vec<&[Value]> = match devices {
            // A pool without devices is told, too: nobody waits for more of it.
            [] => vec![devices],
            devices => devices.chunks(MOST).collect(),
        };
        let wanted: Vec<(String, &[Value])> =
            parts.iter().enumerate().map(|(at, part)| (self.name(at), *part)).collect();
        let generation =
            |slice: &Value| slice.pointer("/spec/pool/generation").and_then(Value::as_i64).unwrap_or(0);
        let newest = published.values().map(generation).max().unwrap_or(0);
        let is_there = |(name, part): &(String, &[Value])| {
            published.get(name).is_some_and(|slice| {
                let spec = &slice["spec"];
                let found = spec["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
                found == *part
                    && generation(slice) == newest
                    && spec["pool"]["resourceSliceCount"] == wanted.len()
                    && spec["pool"]["name"] == self.node.as_str()
            })
        };
        let names: BTreeSet<&String> = wanted.iter().map(|(name, _)| name).collect();
        let mut writes = Vec::new();
        if !wanted.iter().all(is_there) {
            for (name, part) in &wanted {
                let slice = self.slice(name, part, newest + 1, wanted.len());
                writes.push(Write::Put(Box::new((name.clone(), slice))));
            }
        }
        let gone = published.keys().filter(|name| !names.contains(name));
        writes.extend(gone.map(|name| Write::Delete(name.clone())));
        writes
    }

    fn slice(&self, name: &str, devices: &[Value], generation: i64, count: usize) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name, "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node_uid, "controller": true,
            }]},
            "spec": {
                "driver": self.driver,
                "nodeName": self.node,
                "pool": {"name": self.node, "generation": generation, "resourceSliceCount": count},
                "devices": devices,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool { driver: "dra.net".into(), node: "node1".into(), node_uid: "n1".into() }
    }

    fn many(count: usize) -> Vec<Value> {
        (0..count).map(|at| json!({"name": format!("d{at}")})).collect()
    }

    fn carried_out(published: &mut BTreeMap<String, Value>, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Put(put) => drop(published.insert(put.0, put.1)),
                Write::Delete(name) => drop(published.remove(&name)),
            }
        }
    }

    #[test]
    fn slices_are_split_at_the_limit_and_written_only_when_something_changed() {
        let mut published = BTreeMap::new();
        for (count, slices, generation) in [(0, 1, 1), (300, 3, 2), (129, 2, 3), (128, 1, 4)] {
            let writes = pool().changes(&many(count), &published);
            assert!(!writes.is_empty());
            carried_out(&mut published, writes);
            assert_eq!(published.len(), slices);
            assert_eq!(pool().changes(&many(count), &published), [], "it is written once");
            for slice in published.values() {
                let pool = json!({"name": "node1", "generation": generation, "resourceSliceCount": slices});
                assert_eq!(slice["spec"]["pool"], pool);
            }
        }
        // A kubelet that starts deletes slices; they come again.
        published.clear();
        assert_eq!(pool().changes(&many(1), &published).len(), 1);
    }
}
