//! Rules of events, in the legacy shape that all are judged in.

use serde_json::Value;

use super::error::{Errors, Shown, text};
use crate::path::Path;
use crate::syntax;

/// Which group an event is written through: it decides how strictly it is judged, and what a field is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The legacy group.
    Legacy,
    /// `events.k8s.io`.
    New,
}

/// Rules that hold for events of both groups.
pub(crate) fn event(object: &Value, door: Door, errors: &mut Errors) {
    let namespace = text(&object["metadata"]["namespace"]);
    let involved = text(&object["involvedObject"]["namespace"]);
    let timed = !object["eventTime"].is_null();
    let fits = match (timed, involved) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, involved) => involved == namespace,
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        let root = Path::root("involvedObject");
        errors.invalid(&root.child("namespace"), involved, "does not match event.namespace");
    }
    if timed {
        reported(object, door, errors);
    }
    errors.all_invalid(&Path::root("namespace"), namespace, syntax::dns_subdomain(namespace));
}

/// Fields an event with a micro-second time must carry.
fn reported(object: &Value, door: Door, errors: &mut Errors) {
    let name = text(&object["reportingComponent"]);
    let here = Path::root(if door == Door::New { "reportingController" } else { "reportingComponent" });
    if name.is_empty() {
        errors.required(&here, "");
    }
    errors.all_invalid(&here, name, syntax::qualified_name(name));
    for (field, must, most) in [
        ("reportingInstance", true, 128),
        ("action", true, 128),
        ("reason", true, 128),
        ("message", false, 1024),
    ] {
        let value = text(&object[field]);
        if must && value.is_empty() {
            errors.required(&Path::root(field), "");
        }
        if value.len() > most {
            errors.invalid(&Path::root(field), "", &format!("can have at most {most} characters"));
        }
    }
}

/// Rules of a new event of `events.k8s.io` on top: no deprecated fields, a time and a known type.
pub(crate) fn new_event(object: &Value, errors: &mut Errors) {
    series(&object["series"], errors);
    if object["eventTime"].is_null() {
        errors.required(&Path::root("eventTime"), "");
    }
    let kind = text(&object["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&Path::root("type"), "", &format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        if !object[field].is_null() && object[field].as_i64() != Some(0) {
            errors.invalid(&Path::root(field), "", "needs to be unset");
        }
    }
    if ["component", "host"].iter().any(|key| !text(&object["source"][*key]).is_empty()) {
        errors.invalid(&Path::root("source"), "", "needs to be unset");
    }
}

fn series(series: &Value, errors: &mut Errors) {
    if !series.is_object() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        errors.invalid(&Path::root("series.count"), "", "should be at least 2");
    }
    if series["lastObservedTime"].is_null() {
        errors.required(&Path::root("series.lastObservedTime"), "");
    }
}

/// Of an event of `events.k8s.io` only the series goes on.
pub(crate) fn new_event_update(new: &Value, old: &Value, errors: &mut Errors) {
    if new["series"] != old["series"] {
        series(&new["series"], errors);
    }
    reference(new, old, "involvedObject", false, errors);
    for field in ["reason", "message"] {
        errors.immutable_text(&Path::root(field), &new[field], &old[field]);
    }
    let source = |event: &Value| {
        let part = |key: &str| Value::from(text(&event["source"][key]));
        format!("{{\"Component\":{},\"Host\":{}}}", part("component"), part("host"))
    };
    if source(new) != source(old) {
        errors.invalid(&Path::root("source"), Shown(source(new)), "field is immutable");
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        errors.immutable(&Path::root(field), &new[field], &old[field]);
    }
    let count = |event: &Value| event["count"].as_i64().unwrap_or(0);
    if count(new) != count(old) {
        errors.invalid(&Path::root("count"), count(new), "field is immutable");
    }
    for field in ["reason", "type"] {
        errors.immutable_text(&Path::root(field), &new[field], &old[field]);
    }
    errors.immutable(&Path::root("eventTime"), &new["eventTime"], &old["eventTime"]);
    errors.immutable_text(&Path::root("action"), &new["action"], &old["action"]);
    reference(new, old, "related", true, errors);
    let (now, before) = (&new["reportingComponent"], &old["reportingComponent"]);
    errors.immutable_text(&Path::root("reportingController"), now, before);
    errors.immutable_text(
        &Path::root("reportingInstance"),
        &new["reportingInstance"],
        &old["reportingInstance"],
    );
}

/// A reference to another object, which stays.
fn reference(new: &Value, old: &Value, field: &str, optional: bool, errors: &mut Errors) {
    let shown = |event: &Value| {
        let object = &event[field];
        if optional && !object.is_object() {
            return "null".to_owned();
        }
        let parts = [
            ("Kind", "kind"),
            ("Namespace", "namespace"),
            ("Name", "name"),
            ("UID", "uid"),
            ("APIVersion", "apiVersion"),
            ("ResourceVersion", "resourceVersion"),
            ("FieldPath", "fieldPath"),
        ];
        let parts = parts.map(|(go, key)| format!("\"{go}\":{}", Value::from(text(&object[key]))));
        format!("{{{}}}", parts.join(","))
    };
    if shown(new) != shown(old) {
        errors.invalid(&Path::root(field), Shown(shown(new)), "field is immutable");
    }
}
