//! Rules of budgets of disruptions.

use serde_json::Value;

use super::error::{Errors, Shown, text};
use super::{condition, meta};
use crate::path::Path;
use crate::syntax;

/// A budget; `lenient` does not look at values of the selector.
pub(crate) fn budget(object: &Value, lenient: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        errors.invalid(&path, Shown(shown(spec)), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        amount(&spec[field], &path.child(field), errors);
        at_most_all(&spec[field], &path.child(field), errors);
    }
    if spec["selector"].is_object() {
        meta::label_selector_with(&spec["selector"], lenient, &path.child("selector"), errors);
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) = spec["unhealthyPodEvictionPolicy"].as_str().filter(|p| !policies.contains(p)) {
        errors.not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, &policies);
    }
}

/// A changed budget.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    budget(new, meta::is_bad_selector(&old["spec"]["selector"]), errors);
}

/// The specification as upstream's internal type prints itself.
fn shown(spec: &Value) -> String {
    let selector = meta::shown_selector(&spec["selector"]);
    format!(
        "{{\"MinAvailable\":{},\"Selector\":{selector},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
        spec["minAvailable"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]
    )
}

/// A number that is not negative, or a percentage.
pub(super) fn amount(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(given) => errors.all_invalid(path, given, syntax::percent(given)),
        number => errors.nonnegative(path, number),
    }
}

/// A percentage of at most all.
pub(super) fn at_most_all(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let percent = value.as_str().filter(|given| syntax::percent(given).is_empty());
    let Some(digits) = percent.and_then(|given| given.strip_suffix('%')) else { return };
    // What does not fit is more than all.
    if digits.parse::<u64>().map_or(true, |percent| percent > 100) {
        errors.invalid(path, text(value), "must not be greater than 100%");
    }
}

/// What is known about the pods of a budget.
pub(crate) fn status(new: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let status = &new["status"];
    condition::all(&status["conditions"], &path.child("conditions"), errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.nonnegative(&path.child(field), &status[field]);
    }
}
