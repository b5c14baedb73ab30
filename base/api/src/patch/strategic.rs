//! Strategic merge patch: merge keys from the schema and the `$patch`, `$retainKeys`, `$setElementOrder` and
//! `$deleteFromPrimitiveList` directives. Nulls that match nothing are dropped, as the API server does.

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::{Cardinality, Field, Message};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_LIST: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

pub(super) fn apply(schema: &Message, document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    match (document, patch) {
        (Value::Object(document), Value::Object(patch)) => merge_map(document, patch, Some(schema)),
        _ => Err(PatchError::BadRequest("invalid JSON document".to_owned())),
    }
}

fn bad_format(what: &str) -> PatchError {
    PatchError::BadRequest(format!("invalid patch format of {what}"))
}

/// Prints a value as Go's `%v` prints a decoded one.
fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(s) => s.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => go_map(map),
        other => other.to_string(),
    }
}

fn go_map(map: &Object) -> String {
    format!("map[{}]", map.iter().map(|(k, v)| format!("{k}:{}", go(v))).collect::<Vec<_>>().join(" "))
}

fn no_merge_key(element: &Object, key: &str) -> PatchError {
    PatchError::Internal(format!("map: {} does not contain declared merge key: {key}", go_map(element)))
}

fn bad_directive(directive: &Value, map: &Object) -> PatchError {
    PatchError::Internal(format!("unknown patch type: {} in map: {}", go(directive), go_map(map)))
}

fn merge_map(original: &mut Object, patch: &Object, schema: Option<&Message>) -> Result<(), PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                *original = patch.clone();
                original.remove(PATCH);
                Ok(())
            }
            Some("delete") => {
                original.clear();
                Ok(())
            }
            Some("merge") => {
                let mut rest = patch.clone();
                rest.remove(PATCH);
                merge_map(original, &rest, schema)
            }
            _ => Err(bad_directive(directive, patch)),
        };
    }
    retain_keys(original, patch)?;
    for (key, value) in patch {
        if key == RETAIN {
            continue;
        }
        if let Some(list) = key.strip_prefix(ORDER) {
            if !patch.contains_key(list) {
                ordered(original, list, value, None, schema)?;
            }
        } else if let Some(list) = key.strip_prefix(DELETE_LIST) {
            delete_from(original, list, value)?;
        } else if let Some(order) = patch.get(&format!("{ORDER}{key}")).filter(|_| value.is_array()) {
            ordered(original, key, order, Some(value), schema)?;
        } else {
            merge_value(original, key, value, schema)?;
        }
    }
    Ok(())
}

fn merge_value(
    original: &mut Object,
    key: &str,
    patch: &Value,
    schema: Option<&Message>,
) -> Result<(), PatchError> {
    if patch.is_null() {
        original.remove(key);
        return Ok(());
    }
    let field = schema.and_then(|s| s.field(key));
    match (original.get_mut(key), patch) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            if field.is_some_and(Field::patch_replaces) {
                *old = new.clone();
                return Ok(());
            }
            // Below a map the keys are data, not fields.
            let inner = field.filter(|f| f.cardinality == Cardinality::One).and_then(Field::message);
            merge_map(old, new, inner)
        }
        (Some(Value::Array(old)), Value::Array(new)) => merge_list(old, new, field),
        _ => {
            match plain(patch) {
                Some(value) => original.insert(key.to_owned(), value),
                None => original.remove(key),
            };
            Ok(())
        }
    }
}

/// The patch as a value of its own: without directives, directive objects and nulls.
fn plain(patch: &Value) -> Option<Value> {
    match patch {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(Value::Object(
            map.iter()
                .filter(|(key, value)| !value.is_null() && !key.starts_with('$'))
                .filter_map(|(key, value)| Some((key.clone(), plain(value)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(plain).collect())),
        other => Some(other.clone()),
    }
}

fn retain_keys(original: &mut Object, patch: &Object) -> Result<(), PatchError> {
    let Some(directive) = patch.get(RETAIN) else { return Ok(()) };
    let keys = directive.as_array().ok_or_else(|| bad_format("retainKeys"))?;
    let retained = |key: &str| keys.iter().any(|k| k.as_str() == Some(key));
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        if !value.is_null() && !retained(key) {
            return Err(PatchError::Unprocessable("patch content doesn't match retainKeys list".to_owned()));
        }
    }
    original.retain(|key, _| retained(key));
    Ok(())
}

fn delete_from(original: &mut Object, list: &str, directive: &Value) -> Result<(), PatchError> {
    let gone = directive.as_array().ok_or_else(|| bad_format("primitive list"))?;
    if let Some(Value::Array(items)) = original.get_mut(list) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

fn merge_list(original: &mut Vec<Value>, patch: &[Value], field: Option<&Field>) -> Result<(), PatchError> {
    if !field.is_some_and(Field::patch_merges) {
        *original = patch.iter().filter_map(plain).collect();
        return Ok(());
    }
    let before = original.clone();
    let order = merge_elements(original, patch, field)?;
    if let Some(order) = order {
        let key = field.map(|f| f.merge_key).filter(|k| !k.is_empty());
        *original = arrange(std::mem::take(original), &order, &before, key);
    }
    Ok(())
}

/// Merges the elements of a list; gives the patch elements that decide the order, none after `$patch: replace`.
fn merge_elements(
    original: &mut Vec<Value>,
    patch: &[Value],
    field: Option<&Field>,
) -> Result<Option<Vec<Value>>, PatchError> {
    let maps = original.iter().chain(patch).next().is_some_and(Value::is_object);
    if original.iter().chain(patch).any(|v| v.is_object() != maps) {
        let shown = format!(
            "[[{}] [{}]]",
            original.iter().map(go).collect::<Vec<_>>().join(" "),
            patch.iter().map(go).collect::<Vec<_>>().join(" ")
        );
        return Err(PatchError::Internal(format!("list element types are not identical: {shown}")));
    }
    if !maps {
        for item in patch {
            if item.is_array() {
                return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
            }
            if !original.contains(item) {
                original.push(item.clone());
            }
        }
        return Ok(Some(patch.to_vec()));
    }
    let key = field.map_or("", |f| f.merge_key);
    if key.is_empty() {
        let name = field.map_or("", |f| f.name);
        return Err(PatchError::Internal(format!("cannot merge lists without merge key for {name}")));
    }
    let (mut rest, mut replace) = (Vec::new(), false);
    for element in patch.iter().filter_map(Value::as_object) {
        match element.get(PATCH) {
            None => rest.push(element),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let value = element.get(key).ok_or_else(|| no_merge_key(element, key))?;
                    original.retain(|item| item.get(key) != Some(value));
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    return Err(PatchError::Internal(
                        "merging lists cannot yet be specified in the patch".to_owned(),
                    ));
                }
                _ => return Err(bad_directive(directive, element)),
            },
        }
    }
    if replace {
        *original = rest.into_iter().filter_map(|e| plain(&Value::Object(e.clone()))).collect();
        return Ok(None);
    }
    let schema = field.and_then(Field::message);
    for element in &rest {
        let value = element.get(key).ok_or_else(|| no_merge_key(element, key))?;
        match original.iter_mut().find(|item| item.get(key) == Some(value)) {
            Some(Value::Object(found)) => merge_map(found, element, schema)?,
            _ => original.extend(plain(&Value::Object((*element).clone()))),
        }
    }
    Ok(Some(rest.into_iter().map(|e| Value::Object(e.clone())).collect()))
}

/// Merges a list (if the patch has one) and arranges it as `$setElementOrder` says.
fn ordered(
    original: &mut Object,
    list: &str,
    directive: &Value,
    patch: Option<&Value>,
    schema: Option<&Message>,
) -> Result<(), PatchError> {
    let order = directive.as_array().ok_or_else(|| bad_format("setElementOrder list"))?;
    let field = schema.and_then(|s| s.field(list));
    let key = field.map(|f| f.merge_key).filter(|k| !k.is_empty());
    if let Some(Value::Array(patch)) = patch {
        check_order(patch, order, key)?;
    }
    let before = original.get(list).and_then(Value::as_array).cloned();
    match (&before, patch) {
        (None, None) => return Ok(()),
        (None, Some(patch)) => {
            original.insert(list.to_owned(), plain(patch).unwrap_or(Value::Null));
        }
        (Some(_), Some(Value::Array(patch))) => {
            if let Some(Value::Array(items)) = original.get_mut(list) {
                merge_elements(items, patch, field)?;
            }
        }
        _ => {}
    }
    if let Some(Value::Array(items)) = original.get_mut(list) {
        let mut places = before.unwrap_or_default();
        if places.iter().any(|was| !items.iter().any(|item| same(item, was, key))) {
            // Upstream deletes in place, so that what is added takes the places of what went.
            places = items.iter().take(places.len()).cloned().collect();
        }
        *items = arrange(std::mem::take(items), order, &places, key);
    }
    Ok(())
}

fn same(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    }
}

/// The elements of the patch must come in the order the directive gives.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    let mut at = 0;
    for element in patch.iter().filter(|e| e.get(PATCH).is_none()) {
        match order[at..].iter().position(|o| same(o, element, key)) {
            Some(offset) => at += offset,
            None => {
                let show =
                    |list: &[Value]| format!("[{}]", list.iter().map(go).collect::<Vec<_>>().join(" "));
                return Err(PatchError::Internal(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    show(patch),
                    show(order)
                )));
            }
        }
    }
    Ok(())
}

/// Elements named by `order` in that order; the others keep their place relative to them.
fn arrange(items: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let rank = |item: &Value| order.iter().position(|o| same(o, item, key));
    let place = |item: &Value| before.iter().position(|o| same(o, item, key));
    let (mut named, others): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|i| rank(i).is_some());
    named.sort_by_key(&rank);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let take_other = match (others.peek(), named.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(name)) => matches!((place(other), place(name)), (Some(a), Some(b)) if a < b),
        };
        out.extend(if take_other { others.next() } else { named.next() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(document: &Value, patch: &Value) -> Result<Value, PatchError> {
        let kind = crate::by_resource("", "v1", "pods").unwrap();
        let mut document = document.clone();
        apply(&kind.schema, &mut document, patch).map(|()| document)
    }

    fn check(document: &Value, patch: &Value, expected: &Value) {
        let result = patched(document, patch).unwrap_or_else(|e| panic!("{document} + {patch}: {e}"));
        assert_eq!(&result, expected, "{document} + {patch}");
    }

    #[test]
    fn lists_merge_by_their_key() {
        let two = json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}});
        for (patch, expected) in [
            (
                json!({"spec": {"containers": [{"name": "b", "image": "k"}]}}),
                json!([{"name": "a", "image": "i"}, {"name": "b", "image": "k"}]),
            ),
            (
                json!({"spec": {"containers": [{"name": "c", "image": "x", "tty": null}]}}),
                json!([{"name": "c", "image": "x"}, {"name": "a", "image": "i"}, {"name": "b", "image": "j"}]),
            ),
            (
                json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
                json!([{"name": "b", "image": "j"}]),
            ),
            (json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}), json!([{"name": "z"}])),
            (
                json!({"spec": {"containers": [{"name": "a", "image": null}]}}),
                json!([{"name": "a"}, {"name": "b", "image": "j"}]),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}),
                json!([{"name": "b", "image": "j"}, {"name": "a", "image": "i"}]),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c"}]}}),
                json!([{"name": "c"}, {"name": "a", "image": "i"}, {"name": "b", "image": "j"}]),
            ),
        ] {
            check(&two, &patch, &json!({"spec": {"containers": expected}}));
        }
    }

    #[test]
    fn maps_scalars_and_atomic_lists_follow_the_schema() {
        for (document, patch, expected) in [
            (
                json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
                json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
                json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
            ),
            (
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
                json!({"metadata": {"finalizers": ["b"]}}),
            ),
            (
                json!({"metadata": {"finalizers": ["a"]}}),
                json!({"metadata": {"finalizers": ["b"]}}),
                json!({"metadata": {"finalizers": ["b", "a"]}}),
            ),
            (
                json!({"spec": {"tolerations": [{"key": "a"}]}}),
                json!({"spec": {"tolerations": [{"key": "b"}]}}),
                json!({"spec": {"tolerations": [{"key": "b"}]}}),
            ),
            (
                json!({"spec": {"nodeSelector": {"a": "1"}}}),
                json!({"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}}),
                json!({"spec": {"nodeSelector": {"b": "2"}}}),
            ),
            (json!({"spec": {"nodeName": "n"}}), json!({"spec": {"$patch": "delete"}}), json!({"spec": {}})),
            (
                json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}}),
                json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}}),
            ),
            (
                json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "X", "status": "True"}]}}),
                json!({"status": {"$setElementOrder/conditions": [{"type": "Ready"}, {"type": "X"}], "conditions": [{"type": "Ready", "status": "True"}]}}),
                json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}]}}),
            ),
            (json!({}), json!({"metadata": {"labels": {"a": null}}}), json!({"metadata": {"labels": {}}})),
        ] {
            check(&document, &patch, &expected);
        }
    }

    #[test]
    fn broken_patches_are_refused_with_upstreams_texts() {
        let document = json!({"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}]}, "metadata": {"finalizers": ["a"]}});
        for (patch, error) in [
            (
                json!({"spec": {"containers": [{"image": "x"}]}}),
                "map: map[image:x] does not contain declared merge key: name",
            ),
            (json!({"spec": {"$patch": "frob"}}), "unknown patch type: frob in map: map[$patch:frob]"),
            (
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
                "invalid patch format of primitive list",
            ),
            (
                json!({"spec": {"$setElementOrder/containers": "a"}}),
                "invalid patch format of setElementOrder list",
            ),
            (
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "configMap": {}}]}}),
                "patch content doesn't match retainKeys list",
            ),
            (
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": 1}]}}),
                "invalid patch format of retainKeys",
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
                "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
            ),
        ] {
            assert_eq!(patched(&document, &patch).unwrap_err().to_string(), error, "{patch}");
        }
    }
}
