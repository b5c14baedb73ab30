//! Validation: every complaint Kubernetes would make about an object, with its field path, reason and words.
//!
//! Objects have the kind's shape and defaults when they come here. Kinds without rules of their own get those of
//! metadata alone.

mod address;
pub(crate) mod admission_policy;
pub(crate) mod autoscaler;
pub(crate) mod budget;
pub(crate) mod certificate;
pub(crate) mod claim;
pub(crate) mod class;
mod condition;
pub(crate) mod core;
mod cron;
pub(crate) mod device;
pub(crate) mod endpoints;
mod error;
pub(crate) mod event;
pub(crate) mod flow;
pub(crate) mod ingress;
pub(crate) mod job;
pub mod limits;
mod meta;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod rbac;
pub(crate) mod storage;
pub(crate) mod volume;
pub(crate) mod webhook;
pub(crate) mod workload;

use serde_json::Value;

use crate::path::Path;
use crate::{Kind, Part};
pub(crate) use address::canonical as canonical_address;
pub(crate) use error::{Seen, Shown, go_float};
pub(crate) use meta::{annotations, embedded as embedded_meta, labels};

pub use error::{BadSelector, Beside, Cause, Errors, FieldError, Judge, summary};
pub use meta::{generate_name, object_name};

/// Complaints about a new object.
pub fn create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    create_beside(kind, object, Beside::default())
}

/// [`create`] with what is found elsewhere.
pub fn create_beside(kind: &Kind, object: &Value, beside: Beside) -> Vec<FieldError> {
    let mut errors = Errors::with(beside.judge);
    errors.extend(beside.before);
    if kind.strategy.has_common_metadata() {
        meta::create(kind, object, &mut errors);
    }
    kind.strategy.validate(kind, object, &mut errors);
    kind.strategy.validate_create(object, &mut errors);
    if !kind.strategy.has_common_metadata() && errors.is_empty() {
        // Even a kind that has rules of its own for that keeps what no key could be made from away.
        meta::create_any(kind, object, &mut errors);
    }
    errors.done()
}

/// Complaints about an update of the main resource.
pub fn update(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    update_beside(kind, new, old, Beside::default())
}

/// [`update`] with what is found elsewhere.
pub fn update_beside(kind: &Kind, new: &Value, old: &Value, beside: Beside) -> Vec<FieldError> {
    let mut errors = Errors::with(beside.judge);
    if kind.strategy.orders_its_rules() {
        return ordered(kind, None, new, old, beside.before, errors);
    }
    metadata_update(kind, new, old, &mut errors);
    errors.extend(beside.before);
    if kind.strategy.has_common_metadata() && kind.strategy.looks_at_all_metadata_again() {
        meta::create(kind, new, &mut errors);
    }
    kind.strategy.validate(kind, new, &mut errors);
    kind.strategy.validate_update(new, old, &mut errors);
    errors.done()
}

/// Complaints about an update through a subresource.
pub fn update_part(kind: &Kind, part: Part, new: &Value, old: &Value) -> Vec<FieldError> {
    update_part_beside(kind, part, new, old, Beside::default())
}

/// [`update_part`] with what is found elsewhere.
pub fn update_part_beside(
    kind: &Kind,
    part: Part,
    new: &Value,
    old: &Value,
    beside: Beside,
) -> Vec<FieldError> {
    let mut errors = Errors::with(beside.judge);
    if kind.strategy.orders_its_rules() {
        return ordered(kind, Some(part), new, old, beside.before, errors);
    }
    if matches!(part, Part::Status | Part::Approval) {
        metadata_update(kind, new, old, &mut errors);
        if kind.strategy.parts_look_at_all_metadata_again() {
            meta::create(kind, new, &mut errors);
        }
    }
    kind.strategy.validate_part(part, new, old, &mut errors);
    errors.done()
}

/// Complaints about a change of an object whose kind has an order of its own for all but what every object is asked.
fn ordered(
    kind: &Kind,
    part: Option<Part>,
    new: &Value,
    old: &Value,
    before: Vec<FieldError>,
    mut errors: Errors,
) -> Vec<FieldError> {
    meta::of_any(new, &mut errors);
    meta::update(new, old, &mut errors);
    errors.extend(before);
    kind.strategy.validate_change(kind, part, new, old, &mut errors);
    errors.done()
}

/// Upstream looks at the metadata for all kinds and then once more for most of them, and clients see both.
fn metadata_update(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    meta::of_any(new, errors);
    meta::update(new, old, errors);
    if kind.strategy.has_common_metadata() && !kind.strategy.compares_metadata_once() {
        meta::update(new, old, errors);
    }
    if kind.strategy.has_common_metadata() && kind.strategy.has_core_finalizers() {
        meta::known_finalizers(&new["metadata"]["finalizers"], errors);
    }
}

/// Complaints about a `Binding`.
pub fn binding(object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let target = Path::root("target");
    let kind = object["target"]["kind"].as_str().unwrap_or_default();
    if !kind.is_empty() && kind != "Node" {
        errors.not_supported(&target.child("kind"), kind, &["Node", "<empty>"]);
    }
    if object["target"]["name"].as_str().unwrap_or_default().is_empty() {
        errors.required(&target.child("name"), "");
    }
    errors.done()
}

#[cfg(test)]
mod tests;
