//! Rules of the conditions of certificate requests: who approves does so in `/approval`, and nobody takes it back.

use serde_json::Value;

use super::error::{Errors, list, text};
use crate::path::Path;

/// Conditions that say what became of a request; they are true or not there.
const VERDICTS: &[&str] = &["Approved", "Denied", "Failed"];

/// Checks the conditions after an update; `approval` says whether it came through `/approval`.
pub(crate) fn update(new: &Value, old: &Value, approval: bool, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.child("conditions");
    conditions(list(&new["status"]["conditions"]), &path, errors);
    let of = |object: &Value, verdict: &str| -> Vec<Value> {
        let all = list(&object["status"]["conditions"]).iter();
        all.filter(|condition| text(&condition["type"]) == verdict).cloned().collect()
    };
    for verdict in VERDICTS {
        if of(new, verdict).len() < of(old, verdict).len() {
            errors.forbidden(&path, &format!("updates may not remove a condition of type {verdict:?}"));
        }
    }
    for verdict in VERDICTS.iter().filter(|verdict| !approval && **verdict != "Failed") {
        if of(new, verdict).len() > of(old, verdict).len() {
            errors.forbidden(&path, &format!("updates may not add a condition of type {verdict:?}"));
        }
    }
    let issued = text(&old["status"]["certificate"]);
    if !issued.is_empty() && issued != text(&new["status"]["certificate"]) {
        let path = Path::root("status");
        errors.forbidden(&path.child("certificate"), "updates may not modify existing certificate content");
    }
}

fn conditions(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let (mut seen, mut judged) = (Vec::new(), None);
    for (i, condition) in all.iter().enumerate() {
        let here = path.index(i);
        let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
        if kind.is_empty() {
            errors.required(&here.child("type"), "");
        }
        let supported: &[&str] =
            if VERDICTS.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.required(&here.child("status"), "");
        } else if !supported.contains(&status) {
            errors.not_supported(&here.child("status"), status, supported);
        }
        if matches!(kind, "Approved" | "Denied") && judged.replace(kind).is_some_and(|other| other != kind) {
            errors.invalid(path, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if seen.contains(&kind) {
            errors.duplicate(&here.child("type"), kind);
        } else {
            seen.push(kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(kinds: &[&str]) -> Value {
        let conditions: Vec<Value> = kinds.iter().map(|k| json!({"type": k, "status": "True"})).collect();
        json!({"status": {"conditions": conditions}})
    }

    fn complaints(new: &[&str], old: &[&str], approval: bool) -> Vec<String> {
        let mut errors = Errors::default();
        update(&request(new), &request(old), approval, &mut errors);
        errors.done().into_iter().map(|e| e.message).collect()
    }

    #[test]
    fn a_verdict_comes_through_approval_and_stays() {
        assert!(complaints(&["Approved"], &[], true).is_empty());
        assert!(complaints(&["Approved", "Failed"], &["Approved"], false).is_empty());
        let added = "Forbidden: updates may not add a condition of type \"Approved\"";
        assert_eq!(complaints(&["Approved"], &[], false), [added]);
        let removed = "Forbidden: updates may not remove a condition of type \"Denied\"";
        assert_eq!(complaints(&[], &["Denied"], true), [removed]);
        let both = "Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
        assert_eq!(complaints(&["Approved", "Denied"], &["Approved"], true), [both]);
    }
}
