//! Values of the fields an object can be selected by.

use std::borrow::Cow;

use serde_json::Value;

use crate::Kind;

/// The names of a kind's selectable fields.
pub fn names(kind: &Kind) -> impl Iterator<Item = &'static str> + use<> {
    ["metadata.name", "metadata.namespace"].into_iter().chain(kind.selectable_fields.iter().copied())
}

/// Every selectable field of the object with its value as selectors see it, in the order of [`names`].
pub fn selectable<'a>(kind: &Kind, object: &'a Value) -> Vec<(&'static str, Cow<'a, str>)> {
    names(kind).map(|field| (field, value(kind, object, field).unwrap_or_default())).collect()
}

/// JSON paths that [`selectable`] reads; enough of an object to compute its selectable fields.
pub fn source_paths(kind: &Kind) -> &'static [&'static str] {
    match (kind.group, kind.resource) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "events") => &["involvedObject", "reason", "reportingComponent", "source", "type"],
        ("events.k8s.io", "events") => {
            &["regarding", "reason", "reportingController", "deprecatedSource", "type"]
        }
        ("batch", "jobs") => &["status.succeeded"],
        _ => kind.selectable_fields,
    }
}

/// The value of one selectable field.
pub fn value<'a>(kind: &Kind, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
    let found = match (kind.resource, field) {
        ("pods", "status.podIPs") => return Some(pod_ips(object)),
        ("events", "source") => return event_source(kind, object).map(Cow::Borrowed),
        ("events", "reportingComponent") if kind.group.is_empty() => &object["reportingComponent"],
        ("jobs", "status.successful") => &object["status"]["succeeded"],
        ("nodes", "spec.unschedulable") | ("pods", "spec.hostNetwork") => {
            return Some(Cow::Borrowed(if lookup(object, field).as_bool() == Some(true) {
                "true"
            } else {
                "false"
            }));
        }
        _ => lookup(object, field),
    };
    match found {
        Value::String(s) => Some(Cow::Borrowed(s)),
        Value::Number(n) => Some(Cow::Owned(n.to_string())),
        Value::Bool(b) => Some(Cow::Borrowed(if *b { "true" } else { "false" })),
        _ if field == "status.replicas" || field == "status.successful" => Some(Cow::Borrowed("0")),
        _ => None,
    }
}

fn lookup<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |at, part| &at[part])
}

fn pod_ips(object: &Value) -> Cow<'_, str> {
    let ips = object["status"]["podIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
    match ips {
        [] => Cow::Borrowed(""),
        [one] => Cow::Borrowed(one["ip"].as_str().unwrap_or_default()),
        many => Cow::Owned(many.iter().filter_map(|i| i["ip"].as_str()).collect::<Vec<_>>().join(",")),
    }
}

fn event_source<'a>(kind: &Kind, object: &'a Value) -> Option<&'a str> {
    let (source, reporter) = if kind.group.is_empty() {
        ("source", "reportingComponent")
    } else {
        ("deprecatedSource", "reportingController")
    };
    let component = object[source]["component"].as_str().filter(|c| !c.is_empty());
    component.or_else(|| object[reporter].as_str())
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
