//! What a schema in a definition must not have, whether or not it is structural.

use serde_json::Value;

use super::{list, structure, text};
use crate::path::Path;
use crate::structural::{Check, Node};
use crate::validate::Errors;

/// The fields of a root schema that goes with a status subresource, as upstream names them.
const AT_ROOT: &[(&str, &str)] = &[
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Complaints about the schema of one version, or of all when they have the same.
pub(super) fn root(schema: &Value, path: &Path<'_>, has_status: bool, errors: &mut Errors) {
    if has_status {
        status_root(schema, path, errors);
    }
    if schema["nullable"] == true {
        errors.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
    }
    let before = errors.len();
    // A list of schemas for the elements of a list can be no structure at all.
    let readable = !has_tuples(schema);
    if readable {
        structure::check(schema, path, errors);
    }
    if readable && errors.len() == before {
        defaults(schema, &Node::root(schema), path, Place { root: true, inside_meta: false }, errors);
    }
    rules(schema, path, &Standing { root: true, ..Standing::default() }, errors);
}

fn has_tuples(schema: &Value) -> bool {
    if !schema.is_object() {
        return false;
    }
    let below = ["items", "not", "additionalProperties"].map(|name| &schema[name]);
    let junctors = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| list(&schema[name]));
    let properties = schema["properties"].as_object().into_iter().flat_map(serde_json::Map::values);
    schema["items"].is_array() || below.into_iter().chain(junctors).chain(properties).any(has_tuples)
}

fn status_root(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(&schema["type"]);
    if !kind.is_empty() && kind != "object" {
        let words = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.invalid(&path.child("type"), kind, words);
    }
    let known = |name: &str| AT_ROOT.iter().any(|(json, _)| *json == name);
    if schema.as_object().into_iter().flatten().any(|(name, _)| !known(name)) {
        let names: Vec<&str> = AT_ROOT.iter().map(|(_, go)| *go).collect();
        let words = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.invalid(path, schema, &words);
    }
}

#[derive(Clone, Copy)]
struct Place {
    root: bool,
    inside_meta: bool,
}

/// Defaults have to survive pruning and be valid themselves.
fn defaults(schema: &Value, node: &Node, path: &Path<'_>, place: Place, errors: &mut Errors) {
    let whole = place.root || node.embedded;
    if let Some(default) = &node.default {
        let at = path.child("default");
        if !place.inside_meta && !node.keeps(default) {
            errors.invalid(&at, &**default, "must not have unknown fields");
        }
        for error in Check::new(&at.to_string()).run(node, default, None) {
            errors.add(error);
        }
    }
    if let Some(items) = &node.items {
        let place = Place { root: false, inside_meta: place.inside_meta && !items.embedded };
        defaults(&schema["items"], items, &path.child("items"), place, errors);
    }
    let properties = path.child("properties");
    for (name, node) in &node.properties {
        let inside_meta =
            (whole && crate::structural::is_meta(name)) || (place.inside_meta && !node.embedded);
        let place = Place { root: false, inside_meta };
        defaults(&schema["properties"][&**name], node, &properties.key(name), place, errors);
    }
}

/// What holds for a schema because of where it stands.
#[derive(Default, Clone, Copy)]
struct Standing<'a> {
    root: bool,
    inside_meta: bool,
    /// Why there may be no defaults.
    no_defaults: Option<&'a str>,
}

fn rules(schema: &Value, path: &Path<'_>, at: &Standing<'_>, errors: &mut Errors) {
    if errors.are_full() || !schema.is_object() {
        return;
    }
    standard(schema, path, at, errors);
    if schema["uniqueItems"] == true {
        let words = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), words);
    }
    let below = Standing { root: false, ..*at };
    if let Some(additional) = schema.get("additionalProperties") {
        let child = path.child("additionalProperties");
        if schema.get("properties").is_some() && *additional != true {
            errors.forbidden(&child, "additionalProperties and properties are mutual exclusive");
        }
        let why = at.inside_meta.then_some("inside additionalProperties applying to object metadata");
        rules(additional, &child, &Standing { no_defaults: why.or(at.no_defaults), ..below }, errors);
    }
    let properties = path.child("properties");
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let meta =
            (at.root || schema["x-kubernetes-embedded-resource"] == true) && crate::structural::is_meta(name);
        let why = format!("in top-level {name}");
        let no_defaults = if meta && at.root { Some(why.as_str()) } else { at.no_defaults };
        let standing = Standing { root: false, inside_meta: at.inside_meta || meta, no_defaults };
        rules(property, &properties.key(name), &standing, errors);
    }
    rules(&schema["not"], &path.child("not"), &below, errors);
    for junctor in ["allOf", "oneOf", "anyOf"] {
        let path = path.child(junctor);
        for (at, schema) in list(&schema[junctor]).iter().enumerate() {
            rules(schema, &path.index(at), &below, errors);
        }
    }
    rules(&schema["items"], &path.child("items"), &below, errors);
    extensions(schema, path, errors);
}

fn standard(schema: &Value, path: &Path<'_>, at: &Standing<'_>, errors: &mut Errors) {
    let kind = text(&schema["type"]);
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, TYPES);
    }
    if let (Some(why), Some(_)) = (at.no_defaults, schema.get("default")) {
        errors.forbidden(&path.child("default"), &format!("must not be set {why}"));
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(name).is_some() {
            errors.forbidden(&path.child(name), &format!("{name} is not supported"));
        }
    }
    if kind == "null" {
        let words = "type cannot be set to null, use nullable as an alternative";
        errors.forbidden(&path.child("type"), words);
    }
    if schema["items"].is_array() {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
    if at.inside_meta && schema["x-kubernetes-embedded-resource"] == true {
        errors.forbidden(
            &path.child("x-kubernetes-embedded-resource"),
            "must not be used inside of resource meta",
        );
    }
}

/// The rules of `x-kubernetes-*`.
fn extensions(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(&schema["type"]);
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(&at, &Value::Bool(false), "must be true or undefined");
    }
    let typed = |name: &str, wanted: &str, errors: &mut Errors| {
        let words = format!("must be {wanted} if {name} is specified");
        match kind {
            "" => errors.required(&path.child("type"), &words),
            kind if kind != wanted => errors.invalid(&path.child("type"), kind, &words),
            _ => {}
        }
    };
    if let Some(map_type) = schema["x-kubernetes-map-type"].as_str() {
        typed("x-kubernetes-map-type", "object", errors);
        if !matches!(map_type, "atomic" | "granular") {
            errors.not_supported(&path.child("x-kubernetes-map-type"), map_type, &["atomic", "granular"]);
        }
    }
    if schema["x-kubernetes-list-type"].is_string() {
        typed("x-kubernetes-list-type", "array", errors);
    }
    list_type(schema, path, errors);
}

fn list_type(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list_type = schema["x-kubernetes-list-type"].as_str();
    let (items, at_items) = (&schema["items"], path.child("items"));
    let at_type = path.child("x-kubernetes-list-type");
    let keys = list(&schema["x-kubernetes-list-map-keys"]);
    if list_type == Some("set") && schema["type"] == "array" {
        let words = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let shown = &items["x-kubernetes-list-type"];
        match text(&items["type"]) {
            "array" if shown.is_string() && *shown != "atomic" => {
                errors.invalid(&at_items.child("x-kubernetes-list-type"), shown, words);
            }
            "object" if items["x-kubernetes-map-type"] != "atomic" => {
                errors.invalid(&at_items.child("x-kubernetes-map-type"), shown, words);
            }
            _ => {}
        }
    }
    if let Some(given) = list_type.filter(|given| !matches!(*given, "atomic" | "set" | "map")) {
        errors.not_supported(&at_type, given, &["atomic", "set", "map"]);
    }
    if !keys.is_empty() && list_type != Some("map") {
        let words = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(&at_type, words),
            Some(given) => errors.invalid(&at_type, given, words),
        }
    }
    if list_type == Some("map") {
        keyed(schema, keys, path, errors);
    }
    let (Some(list_type @ ("set" | "map")), true) = (list_type, items.is_object()) else { return };
    if items["nullable"] == true {
        let words = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&at_items.child("nullable"), &words);
    }
    if list_type == "set" {
        return;
    }
    let properties = at_items.child("properties");
    for key in keys.iter().filter_map(Value::as_str) {
        let Some(property) = items["properties"].get(key) else { continue };
        let at = properties.key(key);
        if !list(&items["required"]).iter().any(|name| name == key) && property.get("default").is_none() {
            let words = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&at.child("default"), words);
        }
        if property["nullable"] == true {
            let words = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&at.child("nullable"), words);
        }
    }
}

fn keyed(schema: &Value, keys: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let (items, at_items) = (&schema["items"], path.child("items"));
    let at_keys = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.required(&at_keys, "must not be empty if x-kubernetes-list-type is map");
    }
    if items.is_null() {
        return errors.required(&at_items, "must have a schema if x-kubernetes-list-type is map");
    }
    let kind = text(&items["type"]);
    if kind != "object" {
        let words = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(&at_items.child("type"), kind, words);
    }
    let shown = Value::from(keys.to_vec());
    let properties = at_items.child("properties");
    for (at, key) in keys.iter().enumerate() {
        match items["properties"].get(text(key)) {
            Some(property) if matches!(text(&property["type"]), "array" | "object") => {
                let words = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(&properties.key(text(key)).child("type"), kind, words);
            }
            Some(_) => {}
            None => errors.invalid(&at_keys, &shown, "entries must all be names of item properties"),
        }
        if keys[..at].contains(key) {
            errors.invalid(&at_keys, &shown, "must not contain duplicate entries");
        }
    }
}
