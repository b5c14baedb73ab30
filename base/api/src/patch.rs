//! The three patch languages: JSON patch (RFC 6902), merge patch (RFC 7396) and strategic merge patch.

mod json;
mod strategic;

use serde_json::{Map, Value};

use crate::Kind;

/// A patch was refused; the texts are Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The patch does not apply: 422. Upstream answers with a fixed sentence; this is the detail for the log.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch contradicts the schema: 500 upstream.
    #[error("{0}")]
    Internal(String),
    /// Too many operations: 413.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {given}")]
    TooLarge {
        /// Most operations accepted.
        limit: usize,
        /// Operations in the patch.
        given: usize,
    },
    /// Lists too long to be merged: 413.
    #[error("a list of {given} elements is not merged with one of {found}")]
    TooMuch {
        /// The longest list in the patch.
        given: usize,
        /// The longest list in the object.
        found: usize,
    },
}

/// Applies a JSON patch; on error the document may be half patched and must be discarded.
pub fn json(document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    json::apply(document, patch)
}

/// Applies a merge patch: null deletes, objects merge, everything else replaces.
pub fn merge(document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Object(fields) = patch else {
        return Err(PatchError::BadRequest("Invalid JSON Patch".to_owned()));
    };
    merge_object(document, fields);
    Ok(())
}

fn merge_object(target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => merge_object(target.entry(key.clone()).or_insert(Value::Null), inner),
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
}

/// Two lists are merged by looking for each element of one in the other: at most this many pairs.
const MOST_PAIRS: usize = 25_000_000;

/// Refuses a patch or an applied configuration whose lists are so long that merging them would take minutes.
pub fn check_work(live: &Value, patch: &Value) -> Result<(), PatchError> {
    let (given, found) = (longest_list(patch), longest_list(live));
    if given.saturating_mul(given.saturating_add(found)) > MOST_PAIRS {
        return Err(PatchError::TooMuch { given, found });
    }
    Ok(())
}

fn longest_list(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(longest_list).max().unwrap_or(0).max(items.len()),
        Value::Object(map) => map.values().map(longest_list).max().unwrap_or(0),
        _ => 0,
    }
}

/// Applies a strategic merge patch with the kind's merge keys; on error the document must be discarded.
pub fn strategic(kind: &Kind, document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    check_work(document, patch)?;
    strategic::apply(&kind.schema, document, patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_that_would_take_minutes_to_merge_are_refused() {
        let pods = crate::by_resource("", "v1", "pods").unwrap();
        let named =
            |count: usize| -> Value { (0..count).map(|i| json!({"name": format!("n{i}")})).collect() };
        let mut document = json!({"spec": {"containers": named(30_000)}});
        let patch = json!({"spec": {"containers": named(30_000)}});
        let refused = strategic(pods, &mut document, &patch).unwrap_err();
        assert_eq!(refused.to_string(), "a list of 30000 elements is not merged with one of 30000");
        strategic(pods, &mut document, &json!({"spec": {"containers": named(3)}})).unwrap();
    }

    #[test]
    fn merge_patches_follow_rfc_7396() {
        for (document, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": [1]}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        ] {
            let mut patched = document.clone();
            merge(&mut patched, &patch).unwrap();
            assert_eq!(patched, expected, "{document} + {patch}");
        }
        assert!(matches!(merge(&mut json!({}), &json!([])), Err(PatchError::BadRequest(_))));
    }
}
