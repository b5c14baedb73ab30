//! Lists whose elements have to differ, and the metadata of whole objects inside of others.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{ListType, Node};
use crate::path::Path;
use crate::validate::{Errors, embedded_meta};

/// Complaints about elements that are twice in a list that is a set or has keys.
pub(crate) fn sets_and_maps(node: &Node, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if errors.are_full() {
        return;
    }
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                match (node.property(name), node.additional_schema()) {
                    (Some(node), _) => sets_and_maps(node, value, &path.child(name), errors),
                    (None, Some(node)) => sets_and_maps(node, value, &path.key(name), errors),
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            match node.list_type {
                ListType::Set => {
                    for at in twice(list.iter().map(Value::to_string)) {
                        errors.duplicate(&path.index(at), &list[at]);
                    }
                }
                ListType::Map => keyed(node, list, path, errors),
                ListType::Atomic => {}
            }
            if let Some(items) = &node.items {
                for (at, item) in list.iter().enumerate() {
                    sets_and_maps(items, item, &path.index(at), errors);
                }
            }
        }
        _ => {}
    }
}

fn keyed(node: &Node, list: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if let Some(at) = list.iter().position(|item| !item.is_null() && !item.is_object()) {
        return errors.invalid(&path.index(at), &list[at], "must be an object for an array of list-type map");
    }
    let key = |item: &Value| {
        let keys = node.keys().iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
        Value::Object(keys.collect::<Map<String, Value>>())
    };
    for at in twice(list.iter().map(|item| key(item).to_string())) {
        errors.duplicate(&path.index(at), &key(&list[at]));
    }
}

/// Where each thing stands that is there before, the first time that it is there again.
fn twice(items: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    for (at, item) in items.enumerate() {
        let times = seen.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            out.push(at);
        }
    }
    out
}

/// Complaints about whole objects inside of this one.
pub(crate) fn embedded_metadata(
    node: &Node,
    value: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
    root: bool,
) {
    if !node.holds_embedded || errors.are_full() {
        return;
    }
    match value {
        Value::Object(object) => {
            if node.embedded && !root {
                embedded_meta(value, path, errors);
            }
            for (name, value) in object {
                match (node.property(name), node.additional_schema()) {
                    (Some(node), _) => embedded_metadata(node, value, &path.child(name), errors, false),
                    (None, Some(node)) => embedded_metadata(node, value, &path.key(name), errors, false),
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &node.items else { return };
            for (at, item) in list.iter().enumerate() {
                embedded_metadata(items, item, &path.index(at), errors, false);
            }
        }
        _ => {}
    }
}
