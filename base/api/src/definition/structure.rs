//! Whether a schema is structural: a type at every place, and junctors that only add rules to what is there.

use serde_json::{Value, json};

use super::{list, text};
use crate::path::Path;
use crate::structural::Pattern;
use crate::validate::Errors;

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What a schema inside a junctor must not have, and the words for it.
const FORBIDDEN: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// Complaints about a root schema, sorted as upstream sorts them.
pub(super) fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut found = Errors::default();
    invariants(schema, Level::Root, path, &mut found);
    complete(schema, Some(schema), path, path, &mut found);
    let mut found = found.done();
    found.sort_by_cached_key(|error| format!("{}: {}", error.field, error.message));
    found.into_iter().for_each(|error| errors.add(error));
}

fn flag(schema: &Value, name: &str) -> bool {
    schema[name].as_bool() == Some(true)
}

fn invariants(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    if errors.are_full() {
        return;
    }
    let kind = text(&schema["type"]);
    let items = schema.get("items").filter(|items| items.is_object());
    match items {
        Some(items) => invariants(items, Level::Item, &path.child("items"), errors),
        None if kind == "array" => errors.required(&path.child("items"), "must be specified"),
        None => {}
    }
    let properties = path.child("properties");
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        invariants(property, Level::Field, &properties.key(name), errors);
    }
    let additional = path.child("additionalProperties");
    if let Some(schema) = schema.get("additionalProperties") {
        if level == Level::Root {
            errors.forbidden(&additional, "must not be used at the root");
        }
        if schema.is_object() {
            invariants(schema, Level::Field, &additional, errors);
        }
    }
    let mixed = flag(schema, "x-kubernetes-int-or-string");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    for (name, also) in [
        ("x-kubernetes-preserve-unknown-fields", flag(schema, "x-kubernetes-preserve-unknown-fields")),
        ("x-kubernetes-embedded-resource", embedded),
    ] {
        if mixed && also {
            let words = "must be false if x-kubernetes-int-or-string is true";
            errors.invalid(&path.child(name), &Value::Bool(true), words);
        }
    }
    junctors(schema, is_mixed(&schema["anyOf"]), is_mixed(&schema["allOf"][0]["anyOf"]), path, errors);
    types(schema, level, path, errors);
    metadata(schema, level, path, errors);
    let empty = schema["properties"].as_object().is_none_or(serde_json::Map::is_empty);
    if embedded && !flag(schema, "x-kubernetes-preserve-unknown-fields") && empty {
        let words = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&properties, words);
    }
}

fn types(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let (kind, at) = (text(&schema["type"]), path.child("type"));
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let untyped =
        flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && kind != "object" {
        let words = "must be object if x-kubernetes-embedded-resource is true";
        match kind {
            "" => errors.required(&at, words),
            kind => errors.invalid(&at, kind, words),
        }
    } else if kind.is_empty() && !untyped {
        errors.required(
            &at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
    if embedded && schema.get("additionalProperties").is_some() {
        let words = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(&path.child("additionalProperties"), words);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(&at, kind, "must be object at the root");
    }
}

/// What a schema may say about the parts that every whole object has.
fn metadata(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let whole = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        let property = &schema["properties"][name];
        if whole && !property.is_null() && property["type"] != "string" {
            errors.invalid(&properties.key(name).child("type"), text(&property["type"]), "must be string");
        }
    }
    let Some(metadata) = schema["properties"].get("metadata") else { return };
    let at = properties.key("metadata");
    if whole && metadata["type"] != "object" {
        errors.invalid(&at.child("type"), text(&metadata["type"]), "must be object");
    }
    if level == Level::Root {
        let names = |(key, value): (&String, &Value)| match key.as_str() {
            "type" | "default" => true,
            "properties" => {
                let map = value.as_object();
                map.is_some_and(|map| map.keys().all(|name| matches!(name.as_str(), "name" | "generateName")))
            }
            _ => false,
        };
        if !metadata.as_object().is_some_and(|map| map.iter().all(names)) {
            let words = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.forbidden(&at, words);
        }
    }
}

/// `anyOf` of an integer and a string, as everybody writes it beside `x-kubernetes-int-or-string`.
fn is_mixed(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn junctors(schema: &Value, skip_any: bool, skip_first: bool, path: &Path<'_>, errors: &mut Errors) {
    for (junctor, skip) in [("anyOf", skip_any), ("allOf", false), ("oneOf", false)] {
        let here = path.child(junctor);
        for (at, schema) in list(&schema[junctor]).iter().enumerate().filter(|_| !skip) {
            nested(schema, skip_first && junctor == "allOf" && at == 0, &here.index(at), errors);
        }
    }
    if let Some(not) = schema.get("not") {
        nested(not, false, &path.child("not"), errors);
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(why) = Pattern::check(pattern)
    {
        let words = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid(&path.child("pattern"), pattern, &words);
    }
}

/// A schema inside a junctor.
fn nested(schema: &Value, skip_any: bool, path: &Path<'_>, errors: &mut Errors) {
    if errors.are_full() {
        return;
    }
    junctors(schema, skip_any, false, path, errors);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(items, false, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        nested(property, false, &properties.key(name), errors);
    }
    for (name, words) in FORBIDDEN {
        if schema.get(name).is_some_and(|value| *value != false || *name == "additionalProperties") {
            errors.forbidden(&path.child(name), words);
        }
    }
    if schema["properties"].get("metadata").is_some() {
        errors.forbidden(&properties.key("metadata"), "must not be specified in a nested context");
    }
}

/// What junctors name has to be there without them.
fn complete(rules: &Value, schema: Option<&Value>, at: &Path<'_>, named_at: &Path<'_>, errors: &mut Errors) {
    if errors.are_full() {
        return;
    }
    let mut inner = |rules: &Value, named_at: &Path<'_>| part(rules, schema, at, named_at, errors);
    if let Some(not) = rules.get("not") {
        inner(not, &named_at.child("not"));
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        let here = named_at.child(junctor);
        for (index, rules) in list(&rules[junctor]).iter().enumerate() {
            inner(rules, &here.index(index));
        }
    }
}

fn part(rules: &Value, schema: Option<&Value>, at: &Path<'_>, named_at: &Path<'_>, errors: &mut Errors) {
    let missing = |at: &Path<'_>, named_at: &Path<'_>, errors: &mut Errors| {
        errors.required(at, &format!("because it is defined in {named_at}"));
    };
    let Some(schema) = schema else { return missing(at, named_at, errors) };
    complete(rules, Some(schema), at, named_at, errors);
    if let Some(items) = rules.get("items").filter(|items| items.is_object()) {
        let there = schema.get("items").filter(|items| items.is_object());
        part(items, there, &at.child("items"), &named_at.child("items"), errors);
    }
    let (there, named) = (at.child("properties"), named_at.child("properties"));
    for (name, property) in rules["properties"].as_object().into_iter().flatten() {
        part(property, schema["properties"].get(name), &there.key(name), &named.key(name), errors);
    }
}
