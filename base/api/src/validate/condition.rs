//! Rules of conditions in the form that all new kinds have.

use serde_json::Value;

use super::error::{Errors, Seen, list, text};
use crate::path::Path;
use crate::syntax;

/// The conditions of a status.
pub(super) fn all(conditions: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut kinds = Seen::default();
    for (i, condition) in list(conditions).iter().enumerate() {
        let (here, kind) = (path.index(i), text(&condition["type"]));
        if kinds.again(kind) {
            errors.duplicate(&here.child("type"), kind);
        }
        one(condition, &here, errors);
    }
}

fn one(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MOST_REASON: usize = 1024;
    const MOST_MESSAGE: usize = 32 * 1024;
    let kind = text(&condition["type"]);
    errors.all_invalid(&path.child("type"), kind, syntax::qualified_name(kind));
    let (status, statuses) = (text(&condition["status"]), ["False", "True", "Unknown"]);
    if !statuses.contains(&status) {
        errors.not_supported(&path.child("status"), status, &statuses);
    }
    if let Some(generation) = condition["observedGeneration"].as_i64().filter(|generation| *generation < 0) {
        let here = path.child("observedGeneration");
        errors.invalid(&here, generation, "must be greater than or equal to zero");
    }
    if condition["lastTransitionTime"].is_null() {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    let (here, reason) = (path.child("reason"), text(&condition["reason"]));
    if reason.is_empty() {
        errors.required(&here, "");
    } else {
        errors.all_invalid(&here, reason, syntax::condition_reason(reason));
        if reason.len() > MOST_REASON {
            errors.too_long(&here, MOST_REASON);
        }
    }
    if text(&condition["message"]).len() > MOST_MESSAGE {
        errors.too_long(&path.child("message"), MOST_MESSAGE);
    }
}
