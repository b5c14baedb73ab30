//! Conditions of an object's status: finding one, and putting a new one in its place.
//!
//! The rules: <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties>.

use serde_json::Value;

/// What every kind of condition has.
pub trait Condition {
    /// What it is about, e.g. `Ready`.
    fn kind(&self) -> &str;
    /// `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
}

impl Condition for Value {
    fn kind(&self) -> &str {
        self["type"].as_str().unwrap_or_default()
    }

    fn status(&self) -> &str {
        self["status"].as_str().unwrap_or_default()
    }
}

/// The conditions of an object.
pub fn of(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The condition of this kind.
pub fn find<'a, C: Condition>(conditions: impl IntoIterator<Item = &'a C>, kind: &str) -> Option<&'a C> {
    conditions.into_iter().find(|one| one.kind() == kind)
}

/// Whether the condition of this kind is there and true.
pub fn is_true<'a, C: Condition + 'a>(conditions: impl IntoIterator<Item = &'a C>, kind: &str) -> bool {
    find(conditions, kind).is_some_and(|one| one.status() == "True")
}

/// Lets a condition that has the status it had `before` keep the time of its last transition.
pub fn keep_transition_time(before: Option<&Value>, condition: &mut Value) {
    if let Some(before) = before.filter(|before| before.status() == condition.status()) {
        condition["lastTransitionTime"] = before["lastTransitionTime"].clone();
    }
}

/// Puts a condition in the place of the one of its kind, or at the end; says whether anything changed.
///
/// Its time of transition is that of the one before if the status is the same.
pub fn set(conditions: &mut Vec<Value>, mut new: Value) -> bool {
    let Some(before) = conditions.iter_mut().find(|one| one.kind() == new.kind()) else {
        conditions.push(new);
        return true;
    };
    keep_transition_time(Some(before), &mut new);
    let changed = *before != new;
    *before = new;
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_that_stays_keeps_its_time() {
        let ready = |status: &str, reason: &str, time: u32| json!({"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": time});
        let mut all = vec![ready("True", "One", 1)];
        assert!(!set(&mut all, ready("True", "One", 2)));
        assert!(set(&mut all, ready("True", "Two", 3)));
        assert_eq!(all, [ready("True", "Two", 1)]);
        assert!(is_true(&all, "Ready"));
        assert!(set(&mut all, ready("False", "Two", 4)));
        assert_eq!((all[0]["lastTransitionTime"].as_u64(), is_true(&all, "Ready")), (Some(4), false));
        assert!(set(&mut all, json!({"type": "Other", "status": "True"})));
        assert_eq!((all.len(), find(&all, "Missing")), (2, None));
    }
}
