//! Kinds that say what is allowed: webhooks, admission policies, disruption budgets.

use serde_json::Value;

use super::{Facts, Generation, Object, Strategy};
use crate::defaults::{self, absent, child, each};
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, Part, syntax};

const ADMISSION: Facts =
    Facts { generation: Generation::Counted, updates_unconditionally: false, ..Facts::PLAIN };

/// Configurations of webhooks.
#[derive(Debug)]
pub(crate) struct Webhooks {
    /// Whether they may change what they are asked about.
    pub(crate) mutating: bool,
}

impl Strategy for Webhooks {
    fn facts(&self) -> Facts {
        Facts { rules_admission: true, ..ADMISSION }
    }

    fn compares_metadata_once(&self) -> bool {
        true
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn calls_webhooks(&self) -> bool {
        true
    }

    fn defaults(&self, object: &mut Object) {
        each(object, "webhooks", |hook| {
            defaults::webhook(hook);
            if self.mutating {
                absent(hook, "reinvocationPolicy", "Never");
            }
        });
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::webhook::configuration(object, None, self.mutating, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::webhook::configuration(new, Some(old), self.mutating, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::WEBHOOKS
    }
}

/// Admission policies.
#[derive(Debug)]
pub(crate) struct AdmissionPolicies;

impl Strategy for AdmissionPolicies {
    fn facts(&self) -> Facts {
        Facts { rules_admission: true, ..ADMISSION }
    }

    fn compares_metadata_once(&self) -> bool {
        true
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn is_admission_policy(&self) -> bool {
        true
    }

    fn defaults(&self, object: &mut Object) {
        let spec = child(object, "spec");
        absent(spec, "failurePolicy", "Fail");
        if let Some(Value::Object(constraints)) = spec.get_mut("matchConstraints") {
            defaults::match_resources(constraints);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::admission_policy::policy(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::admission_policy::policy(new, Some(old), errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::admission_policy::status(new, errors);
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::ADMISSION_POLICY
    }
}

/// What makes a policy apply.
#[derive(Debug)]
pub(crate) struct PolicyBindings;

impl Strategy for PolicyBindings {
    fn facts(&self) -> Facts {
        Facts { rules_admission: true, ..ADMISSION }
    }

    fn compares_metadata_once(&self) -> bool {
        true
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn defaults(&self, object: &mut Object) {
        if let Some(Value::Object(resources)) = child(object, "spec").get_mut("matchResources") {
            defaults::match_resources(resources);
        }
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::admission_policy::binding(object, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::POLICY_BINDING
    }
}

/// Budgets of disruptions.
#[derive(Debug)]
pub(crate) struct DisruptionBudgets;

impl Strategy for DisruptionBudgets {
    fn facts(&self) -> Facts {
        ADMISSION
    }

    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::path_segment(name)
    }

    fn has_common_metadata(&self) -> bool {
        false
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::budget::budget(object, false, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::budget::update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::budget::status(new, errors);
        }
    }

    fn unenforced(&self, kind: &Kind, _: &Value) -> Option<String> {
        Some(format!(
            "{}: stored, but this version does not compute disruptions; evictions of the pods it selects are refused",
            kind.kind
        ))
    }

    fn columns(&self) -> &[Column] {
        table::columns::DISRUPTION_BUDGET
    }
}
