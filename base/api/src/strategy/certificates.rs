//! Certificate requests: who may judge them, and the times of their conditions.

use serde_json::Value;

use super::{Object, Strategy, copy};
use crate::table::{self, Column};
use crate::validate::certificate::Through;
use crate::validate::{self, Errors};
use crate::{Kind, Part, syntax};

/// Certificate signing requests.
#[derive(Debug)]
pub(crate) struct SigningRequests;

impl Strategy for SigningRequests {
    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::path_segment(name)
    }

    fn prepare_update(&self, _: &Kind, new: &mut Object, old: &Value) {
        copy(new, old, "spec");
        copy(new, old, "status");
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn parts_look_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::certificate::create(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::certificate::update(new, old, Through::Main, errors);
    }

    fn prepare_part(&self, part: Part, mut new: Value, old: &Value) -> Value {
        if part == Part::Approval {
            keep_all_but_conditions(&mut new, old);
        }
        new
    }

    fn finish_update(&self, part: Option<Part>, new: &mut Value, old: &Value, now: &str) {
        if part == Some(Part::Status) {
            keep_verdicts(new, old);
        }
        date_conditions(new, old, now);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        let through = match part {
            Part::Status => Through::Status,
            Part::Approval => Through::Approval,
            _ => return,
        };
        validate::certificate::update(new, old, through, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::SIGNING_REQUEST
    }
}

/// A request whose conditions and metadata are new, and nothing else.
fn keep_all_but_conditions(new: &mut Value, old: &Value) {
    let conditions = new["status"].get("conditions").cloned();
    for key in ["spec", "status"] {
        new[key] = old[key].clone();
    }
    match (conditions, new["status"].as_object_mut()) {
        (Some(conditions), _) => new["status"]["conditions"] = conditions,
        (None, Some(status)) => {
            status.remove("conditions");
        }
        (None, None) => {}
    }
}

/// In `/status` the verdicts stay as they were, as far as they are the same in number.
fn keep_verdicts(new: &mut Value, old: &Value) {
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

/// Puts times into conditions that have none; one that was there keeps its own.
fn date_conditions(new: &mut Value, old: &Value, now: &str) {
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
