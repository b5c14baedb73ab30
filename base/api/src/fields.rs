//! Values of the fields an object can be selected by.

use std::borrow::Cow;

use serde_json::Value;

use crate::{Kind, Text};

/// The names of a kind's selectable fields.
pub fn names(kind: &Kind) -> impl Iterator<Item = &str> {
    ["metadata.name", "metadata.namespace"].into_iter().chain(kind.selectable_fields.iter().map(Text::as_ref))
}

/// Every selectable field of the object with its value as selectors see it, in the order of [`names`].
pub fn selectable<'a>(kind: &'a Kind, object: &'a Value) -> Vec<(&'a str, Cow<'a, str>)> {
    names(kind).map(|field| (field, value(kind, object, field).unwrap_or_default())).collect()
}

/// The value of one selectable field.
pub fn value<'a>(kind: &Kind, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
    kind.strategy.field(object, field)
}

/// The value at a path of names.
pub(crate) fn plain<'a>(object: &'a Value, path: &str) -> Option<Cow<'a, str>> {
    word(lookup(object, path))
}

/// A simple value as a selector sees it.
pub(crate) fn word(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(s) => Some(Cow::Borrowed(s)),
        Value::Number(n) => Some(Cow::Owned(n.to_string())),
        Value::Bool(b) => Some(Cow::Borrowed(if *b { "true" } else { "false" })),
        _ => None,
    }
}

/// A flag that is false when it is absent.
pub(crate) fn flag(object: &Value, path: &str) -> Cow<'static, str> {
    Cow::Borrowed(if lookup(object, path).as_bool() == Some(true) { "true" } else { "false" })
}

fn lookup<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |at, part| &at[part])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectable_fields_are_read_as_text() {
        let pod = crate::by_resource("", "v1", "pods").unwrap();
        let object = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}});
        let fields = selectable(pod, &object);
        for expected in [
            ("metadata.name", "p"),
            ("metadata.namespace", "d"),
            ("spec.nodeName", "n1"),
            ("spec.hostNetwork", "false"),
            ("status.phase", "Running"),
            ("status.podIPs", "10.0.0.1"),
            ("status.podIP", ""),
        ] {
            assert!(
                fields.iter().any(|(f, v)| (*f, v.as_ref()) == expected),
                "{expected:?} not in {fields:?}"
            );
        }
        let node = crate::by_resource("", "v1", "nodes").unwrap();
        assert_eq!(
            value(node, &json!({"spec": {"unschedulable": true}}), "spec.unschedulable").as_deref(),
            Some("true")
        );
    }
}
