//! Definitions as kube-apiserver stores them: JSON of `apiextensions.k8s.io/v1beta1`, where what all versions share stands once.

use podwire_api::builtin;
use serde_json::{Map, Value, json};

const V1BETA1: &str = "apiextensions.k8s.io/v1beta1";

/// What stands with each version in `v1`, and with the whole definition in `v1beta1` if it is the same for all.
const SHARED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

/// The names of the path in columns differ by case.
fn rename_paths(columns: Option<&mut Value>, from: &str, to: &str) {
    for column in columns.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(column) = column {
            rename(column, from, to);
        }
    }
}

fn versions(spec: &mut Map<String, Value>) -> Vec<&mut Map<String, Value>> {
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    versions.into_iter().flatten().filter_map(Value::as_object_mut).collect()
}

/// Turns a definition of `v1` into one of `v1beta1`.
pub(super) fn to_v1beta1(object: &mut Value) {
    object["apiVersion"] = V1BETA1.into();
    object["kind"] = (*builtin::custom_resource_definitions().kind).into();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for version in versions(spec) {
        rename_paths(version.get_mut("additionalPrinterColumns"), "jsonPath", "JSONPath");
    }
    for (each, whole) in SHARED {
        let mut versions = versions(spec);
        let first = versions.first().and_then(|first| first.get(each)).cloned();
        let Some(first) = first.filter(|first| versions.iter().all(|other| other.get(each) == Some(first)))
        else {
            continue;
        };
        versions.iter_mut().for_each(|version| drop(version.remove(each)));
        spec.insert(whole.to_owned(), first);
    }
    if let Some(name) = spec.get("versions").and_then(|versions| versions.get(0)?.get("name")).cloned() {
        spec.insert("version".to_owned(), name);
    }
    // Without a word it would be true.
    spec.entry("preserveUnknownFields").or_insert(json!(false));
    if let Some(Value::Object(conversion)) = spec.get_mut("conversion")
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        rename(&mut webhook, "clientConfig", "webhookClientConfig");
        conversion.extend(webhook);
    }
}

/// Turns a definition of `v1beta1` into one of `v1`; one of `v1` stays as it is.
pub(super) fn to_v1(object: &mut Value) {
    if object["apiVersion"] != V1BETA1 {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let version = spec.remove("version");
    if spec.get("versions").and_then(Value::as_array).is_none_or(Vec::is_empty)
        && let Some(name) = version
    {
        spec.insert("versions".to_owned(), json!([{"name": name, "served": true, "storage": true}]));
    }
    for (each, whole) in SHARED {
        let Some(shared) = spec.remove(whole) else { continue };
        for version in versions(spec) {
            version.entry(each).or_insert_with(|| shared.clone());
        }
    }
    for version in versions(spec) {
        rename_paths(version.get_mut("additionalPrinterColumns"), "JSONPath", "jsonPath");
    }
    match spec.get("preserveUnknownFields") {
        None => drop(spec.insert("preserveUnknownFields".to_owned(), json!(true))),
        Some(Value::Bool(false)) => drop(spec.remove("preserveUnknownFields")),
        Some(_) => {}
    }
    if let Some(Value::Object(conversion)) = spec.get_mut("conversion") {
        let mut webhook = Map::new();
        for (there, here) in [
            ("webhookClientConfig", "clientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ] {
            if let Some(value) = conversion.remove(there) {
                webhook.insert(here.to_owned(), value);
            }
        }
        if webhook.contains_key("clientConfig") {
            conversion.insert("webhook".to_owned(), webhook.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(spec: Value) -> Value {
        let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": spec});
        let mut there = object.clone();
        to_v1beta1(&mut there);
        let mut back = there.clone();
        to_v1(&mut back);
        assert_eq!(back["spec"], object["spec"], "{there}");
        there["spec"].take()
    }

    #[test]
    fn what_all_versions_share_stands_once() {
        let column = |key: &str| json!([{"name": "Age", "type": "date", key: ".metadata.creationTimestamp"}]);
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let version = |name: &str, schema: &Value| {
            json!({"name": name, "served": true, "storage": name == "v1", "schema": schema,
            "subresources": {"status": {}}, "additionalPrinterColumns": column("jsonPath")})
        };
        let there = there_and_back(json!({"versions": [version("v1", &schema), version("v2", &schema)]}));
        assert_eq!(there["validation"], schema);
        assert_eq!(there["additionalPrinterColumns"], column("JSONPath"));
        assert_eq!((&there["version"], &there["preserveUnknownFields"]), (&json!("v1"), &json!(false)));
        assert_eq!(there["versions"][1], json!({"name": "v2", "served": true, "storage": false}));
        let other = json!({"openAPIV3Schema": {"type": "object", "properties": {}}});
        let there = there_and_back(json!({"versions": [version("v1", &schema), version("v2", &other)]}));
        assert_eq!((there.get("validation"), &there["versions"][1]["schema"]), (None, &other));
    }

    #[test]
    fn a_webhook_of_conversion_keeps_its_place() {
        let there = there_and_back(json!({"versions": [], "conversion": {"strategy": "Webhook", "webhook":
            {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}}}));
        assert_eq!(
            there["conversion"],
            json!({"strategy": "Webhook", "webhookClientConfig": {"url": "https://x"},
            "conversionReviewVersions": ["v1"]})
        );
        there_and_back(
            json!({"versions": [], "conversion": {"strategy": "None"}, "preserveUnknownFields": true}),
        );
    }

    #[test]
    fn a_definition_of_old_with_one_version_is_read() {
        let mut old =
            json!({"apiVersion": V1BETA1, "spec": {"version": "v1", "validation": {"openAPIV3Schema": {}}}});
        to_v1(&mut old);
        assert_eq!(
            old["spec"],
            json!({"versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {}}}], "preserveUnknownFields": true})
        );
    }
}
