//! Kinds that say what is allowed: webhooks, admission policies, disruption budgets.

use serde_json::Value;

use super::{Facts, Generation, Object, Strategy, stored_only};
use crate::defaults::{self, each, set};
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

    fn calls_webhooks(&self) -> bool {
        true
    }

    fn defaults(&self, object: &mut Object) {
        each(object, "webhooks", |hook| {
            defaults::webhook(hook);
            if self.mutating {
                set(hook, "reinvocationPolicy", "Never");
            }
        });
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::webhook::configuration(object, self.mutating, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::WEBHOOKS
    }
}

/// Admission policies and their bindings.
#[derive(Debug)]
pub(crate) struct AdmissionPolicies;

impl Strategy for AdmissionPolicies {
    fn facts(&self) -> Facts {
        ADMISSION
    }

    fn unenforced(&self, kind: &Kind, _: &Value) -> Option<String> {
        Some(stored_only(&kind.kind))
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
