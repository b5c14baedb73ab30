//! Kinds of the cluster as a whole: namespaces, nodes, leases, classes of priority and runtime.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{Facts, Generation, Object, Strategy, copy, graft, stored_only};
use crate::defaults::{self, absent, child};
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, Part, fields, syntax};

/// The label prefix by which namespaces ask for pod security.
const POD_SECURITY: &str = "pod-security.kubernetes.io/";

/// Namespaces: emptied before they go.
#[derive(Debug)]
pub(crate) struct Namespaces;

impl Strategy for Namespaces {
    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::dns_label(name)
    }

    fn defaults(&self, object: &mut Object) {
        defaults::namespace(object);
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        object.insert("status".to_owned(), json!({"phase": "Active"}));
        let spec = child(object, "spec");
        let listed = spec.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        if !listed.iter().any(|f| f == "kubernetes") {
            let finalizers = listed.into_iter().chain([json!("kubernetes")]).collect();
            spec.insert("finalizers".to_owned(), Value::Array(finalizers));
        }
    }

    fn prepare_update(&self, _: &Kind, new: &mut Object, old: &Value) {
        copy(new, old, "status");
        copy(new, old, "spec");
    }

    fn prepare_part(&self, part: Part, new: Value, old: &Value) -> Value {
        if part == Part::Finalize { graft(old, &new, &["spec", "finalizers"]) } else { new }
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::core::namespace(object, errors);
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        match part {
            Part::Status => validate::core::namespace_status(new, errors),
            Part::Finalize => validate::core::namespace_finalizers(new, errors),
            _ => {}
        }
    }

    fn unenforced(&self, _: &Kind, object: &Value) -> Option<String> {
        let labels = object["metadata"]["labels"].as_object()?;
        labels.keys().find(|key| key.starts_with(POD_SECURITY)).map(|label| stored_only(label))
    }

    fn columns(&self) -> &[Column] {
        table::columns::NAMESPACE
    }

    fn is_held(&self, object: &Value) -> bool {
        object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
    }

    fn mark_terminating(&self, object: &mut Value, now: &str) -> bool {
        object["metadata"]["deletionTimestamp"] = now.into();
        object["status"]["phase"] = "Terminating".into();
        true
    }
}

/// Nodes: registered together with their status.
#[derive(Debug)]
pub(crate) struct Nodes;

impl Strategy for Nodes {
    fn defaults(&self, object: &mut Object) {
        defaults::node(object);
    }

    fn prepare_create(&self, _: &Kind, _: &mut Object) {}

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::node::node(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::node::update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::node::update(new, old, errors);
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::NODE
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        match field {
            "spec.unschedulable" => Some(fields::flag(object, field)),
            _ => fields::plain(object, field),
        }
    }
}

/// Leases.
#[derive(Debug)]
pub(crate) struct Leases;

impl Strategy for Leases {
    fn facts(&self) -> Facts {
        Facts { creates_on_update: true, updates_unconditionally: false, ..Facts::PLAIN }
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        forget_coordination(object);
    }

    fn prepare_update(&self, _: &Kind, new: &mut Object, _: &Value) {
        forget_coordination(new);
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::core::lease(object, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::LEASE
    }
}

/// Drops what belongs to coordinated leader election, a feature that upstream has switched off.
fn forget_coordination(lease: &mut Object) {
    if let Some(Value::Object(spec)) = lease.get_mut("spec") {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

/// Runtime classes.
#[derive(Debug)]
pub(crate) struct RuntimeClasses;

impl Strategy for RuntimeClasses {
    fn facts(&self) -> Facts {
        Facts { creates_on_update: true, updates_unconditionally: false, ..Facts::PLAIN }
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::class::runtime(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::class::runtime_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::RUNTIME_CLASS
    }
}

/// Priority classes: they keep the generation they were created with.
#[derive(Debug)]
pub(crate) struct PriorityClasses;

impl Strategy for PriorityClasses {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Fixed, ..Facts::PLAIN }
    }

    fn defaults(&self, object: &mut Object) {
        absent(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::class::priority(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::class::priority_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::PRIORITY_CLASS
    }
}
