//! Pods: graceful deletion, quality of service, the parts that change while they run.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Facts, Generation, Object, Strategy, copy, graft, keep_owners, part};
use crate::defaults::{self, child};
use crate::pod_resources::PodResources;
use crate::quota::Measure;
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, Part, fields, warnings};

/// Pods.
#[derive(Debug)]
pub(crate) struct Pods;

impl Strategy for Pods {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, deletion_shows_object: true, ..Facts::PLAIN }
    }

    fn defaults(&self, object: &mut Object) {
        defaults::pod::pod(object);
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        if part(object, "spec")["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
            child(object, "spec").insert("terminationGracePeriodSeconds".to_owned(), json!(1));
        }
        let class = PodResources::from(part(object, "spec")).qos().as_str();
        object.insert("status".to_owned(), json!({"phase": "Pending", "qosClass": class}));
        gated_condition(object);
    }

    fn prepare_status(&self, new: &mut Object, old: &Value) {
        let status = child(new, "status");
        for key in ["qosClass", "observedGeneration"] {
            if status.get(key).is_none() {
                copy(status, &old["status"], key);
            }
        }
    }

    fn prepare_part(&self, part: Part, new: Value, old: &Value) -> Value {
        let mut new = match part {
            Part::EphemeralContainers => graft(old, &new, &["spec", "ephemeralContainers"]),
            Part::Resize => resized(old, &new),
            _ => return new,
        };
        if new["spec"] != old["spec"]
            && let Some(generation) = new["metadata"]["generation"].as_i64()
        {
            new["metadata"]["generation"] = (generation + 1).into();
        }
        new
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::pod::pod(object, errors);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::pod::only_on_create(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::pod::update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        match part {
            Part::Status => validate::pod::update_status(new, old, errors),
            Part::EphemeralContainers => validate::pod::update_ephemeral(new, old, errors),
            Part::Resize => validate::pod::update_resize(new, old, errors),
            _ => {}
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings::pod_object(object)
    }

    fn measure(&self) -> Measure {
        Measure::Pods
    }

    fn columns(&self) -> &[Column] {
        table::columns::POD
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        table::pod::row(object, now)
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        match field {
            "status.podIPs" => Some(pod_ips(object)),
            "spec.hostNetwork" => Some(fields::flag(object, field)),
            _ => fields::plain(object, field),
        }
    }

    fn renamed_field(&self, field: &str) -> Option<&'static str> {
        (field == "spec.host").then_some("spec.nodeName")
    }

    /// Nothing is waited for when a pod never ran or has ended.
    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if unscheduled || ended {
            return Some(0);
        }
        let grace = asked.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
        Some(if grace < 0 { 1 } else { grace })
    }
}

fn pod_ips(object: &Value) -> Cow<'_, str> {
    let ips = object["status"]["podIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
    match ips {
        [] => Cow::Borrowed(""),
        [one] => Cow::Borrowed(one["ip"].as_str().unwrap_or_default()),
        many => Cow::Owned(many.iter().filter_map(|i| i["ip"].as_str()).collect::<Vec<_>>().join(",")),
    }
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

/// The old pod with the resources of the new one.
fn resized(old: &Value, new: &Value) -> Value {
    let mut out = old.clone();
    keep_owners(&mut out, new);
    for list in ["containers", "initContainers"] {
        let wanted = new["spec"][list].as_array().cloned().unwrap_or_default();
        for container in out["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(found) = wanted.iter().find(|other| other["name"] == container["name"]) {
                container["resources"] = found.get("resources").cloned().unwrap_or_else(|| json!({}));
                if let Some(policy) = found.get("resizePolicy") {
                    container["resizePolicy"] = policy.clone();
                }
            }
        }
    }
    out
}
