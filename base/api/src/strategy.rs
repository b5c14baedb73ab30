//! What the server itself decides about an object before it is validated: status, generation, ownership of fields.

mod qos;

use serde_json::{Map, Value, json};

use crate::Kind;
use crate::defaults::child;

pub use qos::pod_qos;

type Object = Map<String, Value>;

pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// An entry, null when absent.
fn part<'a>(map: &'a Object, key: &str) -> &'a Value {
    map.get(key).unwrap_or(&Value::Null)
}

/// Daemon sets still carry the generation of their template as an annotation.
fn template_generation(map: &mut Object, generation: i64) {
    let annotations = child(child(map, "metadata"), "annotations");
    annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
}

/// Prepares an object for creation: clients cannot set status, generation starts at one.
pub fn prepare_create(kind: &Kind, object: &mut Value) {
    let Value::Object(map) = object else { return };
    // CSI drivers count only their changes.
    if kind.has_generation() && kind.resource != "csidrivers" {
        child(map, "metadata").insert("generation".to_owned(), json!(1));
    } else {
        child(map, "metadata").remove("generation");
    }
    match (kind.group, kind.kind) {
        ("", "Pod") => {
            if part(map, "spec")["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
                child(map, "spec").insert("terminationGracePeriodSeconds".to_owned(), json!(1));
            }
            let class = pod_qos(part(map, "spec"));
            map.insert("status".to_owned(), json!({"phase": "Pending", "qosClass": class}));
            gated_condition(map);
        }
        ("", "Namespace") => {
            map.insert("status".to_owned(), json!({"phase": "Active"}));
            let spec = child(map, "spec");
            let listed = spec.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
            if !listed.iter().any(|f| f == "kubernetes") {
                let finalizers = listed.into_iter().chain([json!("kubernetes")]).collect();
                spec.insert("finalizers".to_owned(), Value::Array(finalizers));
            }
        }
        ("apps", "DaemonSet") => {
            reset_status(kind, map);
            template_generation(map, 1);
        }
        // Nodes are registered together with their status.
        ("", "Node") => {}
        ("", "PersistentVolume" | "PersistentVolumeClaim") => {
            map.insert("status".to_owned(), json!({"phase": "Pending"}));
        }
        ("", "Service") => {
            map.insert("status".to_owned(), json!({"loadBalancer": {}}));
        }
        _ if kind.has_status() => reset_status(kind, map),
        _ => {}
    }
}

/// An empty status in the shape Go prints it.
fn reset_status(kind: &Kind, map: &mut Object) {
    map.remove("status");
    let mut whole = Value::Object(std::mem::take(map));
    // Ignored: the object had the kind's shape before its status was taken away.
    crate::strict::conform(kind, &mut whole).ok();
    if let Value::Object(restored) = whole {
        *map = restored;
    }
}

/// Prepares an update of the main resource: status stays, generation follows the spec.
pub fn prepare_update(kind: &Kind, new: &mut Value, old: &Value) {
    let Value::Object(map) = new else { return };
    if kind.has_status() || matches!(kind.kind, "Pod" | "Namespace" | "Node") {
        copy(map, old, "status");
    }
    if kind.is("", "Namespace") {
        copy(map, old, "spec");
    }
    let generation = old["metadata"]["generation"].clone();
    let metadata = child(map, "metadata");
    if generation.is_null() {
        metadata.remove("generation");
    } else {
        metadata.insert("generation".to_owned(), generation);
    }
    if kind.is("apps", "DaemonSet") {
        let before = old["metadata"]["annotations"][TEMPLATE_GENERATION]
            .as_str()
            .and_then(|t| t.parse().ok())
            .unwrap_or(1);
        let changed = part(map, "spec")["template"] != old["spec"]["template"];
        template_generation(map, if changed { before + 1 } else { before });
    }
    // A priority class keeps the one it was created with.
    if kind.has_generation() && kind.resource != "priorityclasses" && differs(kind, new, old) {
        bump_generation(new);
    }
}

/// Prepares an update of `/status`: everything but the status stays, except labels and annotations.
pub fn prepare_status_update(kind: &Kind, new: &mut Value, old: &Value) {
    let Value::Object(map) = new else { return };
    for (key, value) in old.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "status" | "metadata") {
            map.insert(key.clone(), value.clone());
        }
    }
    let foreign: Vec<String> = map
        .keys()
        .filter(|key| {
            !matches!(key.as_str(), "status" | "metadata" | "apiVersion" | "kind")
                && old.get(key.as_str()).is_none()
        })
        .cloned()
        .collect();
    for key in foreign {
        map.remove(&key);
    }
    let metadata = child(map, "metadata");
    for key in ["generation", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"] {
        copy(metadata, &old["metadata"], key);
    }
    if !kind.is("", "Pod") {
        copy(metadata, &old["metadata"], "finalizers");
        return;
    }
    let status = child(map, "status");
    if status.get("qosClass").is_none() {
        copy(status, &old["status"], "qosClass");
    }
    if status.get("observedGeneration").is_none() {
        copy(status, &old["status"], "observedGeneration");
    }
}

/// Adds one to the generation (also when a pod's graceful deletion begins).
pub fn bump_generation(object: &mut Value) {
    let next = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    object["metadata"]["generation"] = json!(next);
}

fn copy(map: &mut Object, from: &Value, key: &str) {
    match from.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// Whether anything but metadata and status changed; for pods only the spec counts.
fn differs(kind: &Kind, new: &Value, old: &Value) -> bool {
    if kind.schema.field("spec").is_some() {
        return new["spec"] != old["spec"];
    }
    let rest = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    let relabelled =
        kind.resource == "endpointslices" && new["metadata"]["labels"] != old["metadata"]["labels"];
    relabelled || rest(new) != rest(old)
}

/// A pod created with scheduling gates says so in its conditions.
fn gated_condition(map: &mut Object) {
    let gated = part(map, "spec")["schedulingGates"].as_array().is_some_and(|g| !g.is_empty());
    if gated {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": null,
        });
        child(map, "status").insert("conditions".to_owned(), json!([condition]));
    }
}

/// In `/status` of a certificate request the verdicts stay as they were, as far as they are the same in number.
pub fn keep_verdicts(new: &mut Value, old: &Value) {
    for verdict in ["Approved", "Denied"] {
        let before: Vec<Value> =
            old["status"]["conditions"].as_array().into_iter().flatten().cloned().collect();
        let before: Vec<Value> = before.into_iter().filter(|c| c["type"] == verdict).collect();
        let now = new.get_mut("status").and_then(|status| status.get_mut("conditions"));
        let now: Vec<&mut Value> = now
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .filter(|c| c["type"] == verdict)
            .collect();
        if now.len() == before.len() {
            now.into_iter().zip(before).for_each(|(now, before)| *now = before);
        }
    }
}

/// Puts times into the conditions of a certificate request that have none; one that was there keeps its own.
pub fn date_conditions(new: &mut Value, old: &Value, now: &str) {
    let before = old["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let conditions = new.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.into();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = |other: &&Value| {
                other["type"] == condition["type"]
                    && other["status"] == condition["status"]
                    && other["lastTransitionTime"].is_string()
            };
            let kept = before.iter().find(same).map(|other| other["lastTransitionTime"].clone());
            condition["lastTransitionTime"] = kept.unwrap_or_else(|| now.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, resource: &str) -> &'static Kind {
        crate::by_resource(group, "v1", resource).unwrap()
    }

    #[test]
    fn clients_cannot_set_status_on_creation() {
        let mut pod = json!({"metadata": {"generation": 9}, "spec": {"containers": []}, "status": {"phase": "Running"}});
        prepare_create(kind("", "pods"), &mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["metadata"]["generation"], 1);
        let mut namespace = json!({"metadata": {"name": "n"}});
        prepare_create(kind("", "namespaces"), &mut namespace);
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        let mut node = json!({"metadata": {}, "status": {"capacity": {"cpu": "1"}}});
        prepare_create(kind("", "nodes"), &mut node);
        assert_eq!(node["status"]["capacity"]["cpu"], "1");
        let mut deployment = json!({"metadata": {}, "spec": {}, "status": {"replicas": 3}});
        prepare_create(kind("apps", "deployments"), &mut deployment);
        assert_eq!(deployment["status"], json!({}));
    }

    #[test]
    fn generation_follows_the_spec_only() {
        let old = json!({"metadata": {"generation": 4}, "spec": {"a": 1}, "status": {"phase": "Running"}});
        let mut same = json!({"metadata": {"generation": 7, "labels": {"a": "b"}}, "spec": {"a": 1}, "status": {"phase": "Failed"}});
        prepare_update(kind("", "pods"), &mut same, &old);
        assert_eq!(
            (same["metadata"]["generation"].as_i64(), same["status"]["phase"].as_str()),
            (Some(4), Some("Running"))
        );
        let mut changed = json!({"metadata": {}, "spec": {"a": 2}});
        prepare_update(kind("", "pods"), &mut changed, &old);
        assert_eq!(changed["metadata"]["generation"], 5);
    }

    #[test]
    fn the_status_endpoint_leaves_the_spec_alone() {
        let old = json!({"metadata": {"generation": 4, "ownerReferences": [{"uid": "u"}]}, "spec": {"a": 1}, "status": {"qosClass": "Burstable"}});
        let mut new =
            json!({"metadata": {"labels": {"x": "y"}}, "spec": {"a": 2}, "status": {"phase": "Running"}});
        prepare_status_update(kind("", "pods"), &mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"generation": 4, "labels": {"x": "y"}, "ownerReferences": [{"uid": "u"}]}, "spec": {"a": 1}, "status": {"phase": "Running", "qosClass": "Burstable"}})
        );
    }
}
