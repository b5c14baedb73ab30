//! Cells of admission policies and their bindings.

use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn param_kind(object: &Value, _: Timestamp) -> Value {
    let kind = &object["spec"]["paramKind"];
    let text = |key: &str| kind[key].as_str().unwrap_or_default();
    match kind.is_object() {
        true => json!(format!("{}/{}", text("apiVersion"), text("kind"))),
        false => json!("<unset>"),
    }
}

/// A selector as upstream prints its type.
fn selector(given: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = given["matchLabels"].as_object().into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", text(value))).collect();
    let terms = given["matchExpressions"].as_array().into_iter().flatten();
    let term = |term: &Value| {
        let values = term["values"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ");
        let (key, operator) = (text(&term["key"]), text(&term["operator"]));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let terms: String = terms.map(term).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
    )
}

pub(super) fn param_ref(object: &Value, _: Timestamp) -> Value {
    let given = &object["spec"]["paramRef"];
    let text = |key: &str| given[key].as_str().unwrap_or_default();
    json!(match (text("name"), text("namespace")) {
        ("", _) if given["selector"].is_object() => selector(&given["selector"]),
        ("", _) => "<unset>".to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    })
}
