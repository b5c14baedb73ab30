//! Rules of the classes of priority and runtime.

use serde_json::Value;

use super::error::{Errors, Seen, Shown, list, text};
use super::{meta, pod};
use crate::path::Path;
use crate::syntax;

/// The classes that are always there, with their values.
const SYSTEM: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// A class of priority.
pub(crate) fn priority(object: &Value, errors: &mut Errors) {
    const MOST: i64 = 1_000_000_000;
    let (name, value) = (text(&object["metadata"]["name"]), object["value"].as_i64().unwrap_or(0));
    if name.starts_with("system-") {
        let complaint = match SYSTEM.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, right)) if *right != value => {
                Some(format!("value of {name} PriorityClass must be {right}"))
            }
            Some(_) if object["globalDefault"] == true => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(complaint) = complaint {
            let words =
                "priority class names with 'system-' prefix are reserved for system use only. error: ";
            errors.forbidden(&Path::root("metadata").child("name"), &format!("{words}{complaint}"));
        }
    } else if value > MOST {
        let words = format!("maximum allowed value of a user defined priority is {MOST}");
        errors.forbidden(&Path::root("value"), &words);
    }
    if !object["preemptionPolicy"].is_null() {
        let here = Path::root("preemptionPolicy");
        errors.one_of(&here, &object["preemptionPolicy"], &["PreemptLowerPriority", "Never"]);
    }
}

/// What pods were given by their class stays.
pub(crate) fn priority_update(new: &Value, old: &Value, errors: &mut Errors) {
    let value = |object: &Value| object["value"].as_i64().unwrap_or(0);
    if value(new) != value(old) {
        errors.forbidden(&Path::root("value"), "may not be changed in an update.");
    }
    errors.immutable(&Path::root("preemptionPolicy"), &new["preemptionPolicy"], &old["preemptionPolicy"]);
}

/// A class of runtime.
pub(crate) fn runtime(object: &Value, errors: &mut Errors) {
    match text(&object["handler"]) {
        "" => errors.required(&Path::root("handler"), ""),
        handler => errors.all_invalid(&Path::root("handler"), handler, syntax::dns_label(handler)),
    }
    let overhead = Path::root("overhead");
    pod::amounts(&object["overhead"]["podFixed"], &overhead.child("limits"), errors);
    let path = Path::root("scheduling");
    let scheduling = &object["scheduling"];
    meta::labels(&scheduling["nodeSelector"], &path.child("nodeSelector"), errors);
    let (here, tolerations) = (path.child("tolerations"), &scheduling["tolerations"]);
    pod::tolerations(tolerations, &here, errors);
    let mut seen = Seen::default();
    for (i, toleration) in list(tolerations).iter().enumerate() {
        let fields = ["key", "operator", "value", "effect"].map(|field| text(&toleration[field]));
        if seen.again(fields) {
            let names = ["Key", "Operator", "Value", "Effect"];
            let shown: Vec<String> = names
                .iter()
                .zip(fields)
                .map(|(go, value)| format!("\"{go}\":{}", Value::from(value)))
                .collect();
            let shown =
                format!("{{{},\"TolerationSeconds\":{}}}", shown.join(","), toleration["tolerationSeconds"]);
            errors.duplicate(&here.index(i), Shown(shown));
        }
    }
}

/// The handler of a class stays.
pub(crate) fn runtime_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable_text(&Path::root("handler"), &new["handler"], &old["handler"]);
}
