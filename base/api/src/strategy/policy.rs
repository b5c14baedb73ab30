//! Kinds that say what is allowed: webhooks, admission policies, disruption budgets, flow control.

use serde_json::Value;

use super::{Facts, Generation, Strategy, stored_only};
use crate::Kind;
use crate::table::{self, Column};
use crate::validate::{self, Errors};

const ADMISSION: Facts =
    Facts { generation: Generation::Counted, updates_unconditionally: false, ..Facts::PLAIN };

/// Configurations of webhooks.
#[derive(Debug)]
pub(crate) struct Webhooks;

impl Strategy for Webhooks {
    fn facts(&self) -> Facts {
        ADMISSION
    }

    fn unenforced(&self, kind: &Kind, _: &Value) -> Option<String> {
        Some(stored_only(&kind.kind))
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

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::disruption_budget(object, errors);
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

/// Flow schemas and priority levels.
#[derive(Debug)]
pub(crate) struct FlowControl;

impl Strategy for FlowControl {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, ..Facts::PLAIN }
    }
}
