//! Objects as upstream's complaints print them: its internal structs, whose fields have names of their own and are all
//! there, whether anything was given or not.

use serde_json::Value;

use crate::validate::error::{Shown, list};

/// What a field holds, and with it how it is printed when nothing was given.
#[derive(Clone, Copy)]
enum Form {
    /// Text, empty when absent.
    Text,
    /// A number, zero when absent.
    Number,
    /// Anything, null when absent.
    Any,
    /// A struct, with all its fields when absent.
    Struct(Fields),
    /// A struct, null when absent.
    Pointer(Fields),
    /// Structs, null when absent.
    Structs(Fields),
}

/// The fields of a struct in their order: the name that is printed, the name in JSON, and what it holds.
type Fields = &'static [(&'static str, &'static str, Form)];

use Form::{Any, Number, Pointer, Struct, Structs, Text};

const CLAIM: Fields = &[("Devices", "devices", Struct(DEVICES))];
const DEVICES: Fields = &[
    ("Requests", "requests", Structs(REQUEST)),
    ("Constraints", "constraints", Structs(CONSTRAINT)),
    ("Config", "config", Structs(CONFIG)),
];
const REQUEST: Fields = &[
    ("Name", "name", Text),
    ("Exactly", "exactly", Pointer(EXACTLY)),
    ("FirstAvailable", "firstAvailable", Structs(ALTERNATIVE)),
];
const EXACTLY: Fields = &[
    ("DeviceClassName", "deviceClassName", Text),
    ("Selectors", "selectors", Structs(SELECTOR)),
    ("AllocationMode", "allocationMode", Text),
    ("Count", "count", Number),
    ("AdminAccess", "adminAccess", Any),
    ("Tolerations", "tolerations", Structs(TOLERATION)),
    ("Capacity", "capacity", Pointer(CAPACITY)),
];
const ALTERNATIVE: Fields = &[
    ("Name", "name", Text),
    ("DeviceClassName", "deviceClassName", Text),
    ("Selectors", "selectors", Structs(SELECTOR)),
    ("AllocationMode", "allocationMode", Text),
    ("Count", "count", Number),
    ("Tolerations", "tolerations", Structs(TOLERATION)),
    ("Capacity", "capacity", Pointer(CAPACITY)),
];
const SELECTOR: Fields = &[("CEL", "cel", Pointer(&[("Expression", "expression", Text)]))];
const TOLERATION: Fields = &[
    ("Key", "key", Text),
    ("Operator", "operator", Text),
    ("Value", "value", Text),
    ("Effect", "effect", Text),
    ("TolerationSeconds", "tolerationSeconds", Any),
];
const CAPACITY: Fields = &[("Requests", "requests", Any)];
const CONSTRAINT: Fields = &[
    ("Requests", "requests", Any),
    ("MatchAttribute", "matchAttribute", Any),
    ("DistinctAttribute", "distinctAttribute", Any),
];
const CONFIG: Fields = &[("Requests", "requests", Any), ("Opaque", "opaque", Pointer(OPAQUE))];
const OPAQUE: Fields = &[("Driver", "driver", Text), ("Parameters", "parameters", Any)];

const ALLOCATION: Fields = &[
    (
        "Devices",
        "devices",
        Struct(&[("Results", "results", Structs(RESULT)), ("Config", "config", Structs(SOURCED))]),
    ),
    ("NodeSelector", "nodeSelector", Pointer(&[("NodeSelectorTerms", "nodeSelectorTerms", Structs(NODES))])),
    ("AllocationTimestamp", "allocationTimestamp", Any),
];
const RESULT: Fields = &[
    ("Request", "request", Text),
    ("Driver", "driver", Text),
    ("Pool", "pool", Text),
    ("Device", "device", Text),
    ("AdminAccess", "adminAccess", Any),
    ("Tolerations", "tolerations", Structs(TOLERATION)),
    ("BindingConditions", "bindingConditions", Any),
    ("BindingFailureConditions", "bindingFailureConditions", Any),
    ("ShareID", "shareID", Any),
    ("ConsumedCapacity", "consumedCapacity", Any),
];
const SOURCED: Fields =
    &[("Source", "source", Text), ("Requests", "requests", Any), ("Opaque", "opaque", Pointer(OPAQUE))];
const NODES: Fields = &[
    ("MatchExpressions", "matchExpressions", Structs(MATCH)),
    ("MatchFields", "matchFields", Structs(MATCH)),
];
const MATCH: Fields = &[("Key", "key", Text), ("Operator", "operator", Text), ("Values", "values", Any)];

const ATTRIBUTE: Fields = &[
    ("IntValue", "int", Any),
    ("BoolValue", "bool", Any),
    ("StringValue", "string", Any),
    ("VersionValue", "version", Any),
    ("IntValues", "ints", Any),
    ("BoolValues", "bools", Any),
    ("StringValues", "strings", Any),
    ("VersionValues", "versions", Any),
];

/// Metadata that a template may come with, in the order of upstream's struct; what is absent is not printed.
const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// The specification of a claim.
pub(super) fn claim(spec: &Value) -> Shown {
    Shown(printed(Struct(CLAIM), spec))
}

/// The specification of a template: the metadata's fields stand among its own.
pub(super) fn template(spec: &Value) -> Shown {
    let given = METADATA.iter().filter(|key| !spec["metadata"][**key].is_null());
    let mut members: Vec<String> =
        given.map(|key| format!("\"{key}\":{}", json(&spec["metadata"][*key]))).collect();
    members.push(format!("\"Spec\":{}", printed(Struct(CLAIM), &spec["spec"])));
    Shown(format!("{{{}}}", members.join(",")))
}

/// What a claim was given.
pub(super) fn allocation(allocation: &Value) -> Shown {
    Shown(printed(Struct(ALLOCATION), allocation))
}

/// The terms of a selector of nodes.
pub(super) fn node_terms(terms: &Value) -> Shown {
    Shown(printed(Structs(NODES), terms))
}

/// An attribute of a device.
pub(super) fn attribute(attribute: &Value) -> Shown {
    Shown(printed(Struct(ATTRIBUTE), attribute))
}

/// Any value.
pub(super) fn any(value: &Value) -> Shown {
    Shown(json(value))
}

/// What tells devices that claims have from one another.
pub(super) fn device_id([driver, pool, device, share]: [&str; 4]) -> Shown {
    let text = |text: &str| json(&Value::from(text));
    Shown(format!(
        "{{\"Driver\":{},\"Pool\":{},\"Device\":{},\"ShareID\":{}}}",
        text(driver),
        text(pool),
        text(device),
        text(share)
    ))
}

fn printed(form: Form, value: &Value) -> String {
    let members = |fields: Fields| {
        let members =
            fields.iter().map(|(go, key, form)| format!("\"{go}\":{}", printed(*form, &value[*key])));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    match form {
        Text if value.is_null() => "\"\"".to_owned(),
        Number if value.is_null() => "0".to_owned(),
        Text | Number | Any => json(value),
        Pointer(_) | Structs(_) if value.is_null() => "null".to_owned(),
        Struct(fields) | Pointer(fields) => members(fields),
        Structs(fields) => {
            let items = list(value).iter().map(|item| printed(Struct(fields), item));
            format!("[{}]", items.collect::<Vec<_>>().join(","))
        }
    }
}

/// JSON as Go writes it: what a browser could take for markup is escaped.
fn json(value: &Value) -> String {
    value
        .to_string()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_fields_are_printed_and_markup_is_escaped() {
        let spec = json!({"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c",
            "selectors": [{"cel": {"expression": "a < b && c"}}]}}]}});
        assert_eq!(
            claim(&spec).0,
            "{\"Devices\":{\"Requests\":[{\"Name\":\"a\",\"Exactly\":{\"DeviceClassName\":\"c\",\"Selectors\":\
             [{\"CEL\":{\"Expression\":\"a \\u003c b \\u0026\\u0026 c\"}}],\"AllocationMode\":\"\",\"Count\":0,\
             \"AdminAccess\":null,\"Tolerations\":null,\"Capacity\":null},\"FirstAvailable\":null}],\
             \"Constraints\":null,\"Config\":null}}"
        );
    }
}
