//! JSON patch: add, remove, replace, move, copy, test over JSON pointers.

use serde_json::Value;

use super::PatchError;

const MOST_OPERATIONS: usize = 10_000;

pub(super) fn apply(document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        let found = match patch {
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            _ => return Ok(()),
        };
        return Err(PatchError::BadRequest(format!(
            "json: cannot unmarshal {found} into Go value of type jsonpatch.Patch"
        )));
    };
    if operations.len() > MOST_OPERATIONS {
        return Err(PatchError::TooLarge { limit: MOST_OPERATIONS, given: operations.len() });
    }
    operations.iter().try_for_each(|o| operation(document, o).map_err(PatchError::Unprocessable))
}

fn operation(document: &mut Value, operation: &Value) -> Result<(), String> {
    let path = || operation["path"].as_str().ok_or("operation missing path field: missing value");
    let from = || operation["from"].as_str().ok_or("operation, missing from field: missing value");
    let value = || operation.get("value").ok_or("operation, missing value field: missing value");
    match operation["op"].as_str().unwrap_or("unknown") {
        "add" => add(document, path()?, value()?.clone()),
        "remove" => remove(document, path()?).map(|_| ()),
        "replace" => {
            let (path, value) = (path()?, value()?.clone());
            let missing =
                || format!("replace operation does not apply: doc is missing key: {path}: missing value");
            *lookup_mut(document, path).ok_or_else(missing)? = value;
            Ok(())
        }
        "move" => {
            let (from, path) = (from()?, path()?);
            let moved = remove(document, from)?;
            add(document, path, moved)
        }
        "copy" => {
            let (from, path) = (from()?, path()?);
            let missing =
                || format!("copy operation does not apply: doc is missing from path: {from}: missing value");
            let copied = lookup(document, from).ok_or_else(missing)?.clone();
            add(document, path, copied)
        }
        "test" => {
            let path = path()?;
            let expected = operation.get("value").unwrap_or(&Value::Null);
            match lookup(document, path) {
                Some(found) if found == expected => Ok(()),
                None if expected.is_null() => Ok(()),
                _ => Err(format!("testing value {path} failed: test failed")),
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn token(text: &str) -> String {
    if text.contains('~') { text.replace("~1", "/").replace("~0", "~") } else { text.to_owned() }
}

fn lookup<'a>(document: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut at = document;
    for part in parts(pointer)? {
        at = match at {
            Value::Object(map) => map.get(&part)?,
            Value::Array(items) => items.get(index(&part, items.len())?)?,
            _ => return None,
        };
    }
    Some(at)
}

fn lookup_mut<'a>(document: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    let mut at = document;
    for part in parts(pointer)? {
        at = match at {
            Value::Object(map) => map.get_mut(&part)?,
            Value::Array(items) => {
                let i = index(&part, items.len())?;
                items.get_mut(i)?
            }
            _ => return None,
        };
    }
    Some(at)
}

fn parts(pointer: &str) -> Option<Vec<String>> {
    match pointer {
        "" => Some(Vec::new()),
        p => Some(p.strip_prefix('/')?.split('/').map(token).collect()),
    }
}

/// Index of an existing element; negative ones count from the end, as upstream allows.
fn index(part: &str, length: usize) -> Option<usize> {
    let at = part.parse::<i64>().ok()?;
    let at = if at < 0 { at + i64::try_from(length).ok()? } else { at };
    usize::try_from(at).ok()
}

fn split(pointer: &str) -> Option<(&str, String)> {
    let (parent, last) = pointer.rsplit_once('/')?;
    Some((parent, token(last)))
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    let missing = || format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
    let (parent, last) = split(path).ok_or_else(missing)?;
    match lookup_mut(document, parent).ok_or_else(missing)? {
        Value::Object(map) => {
            map.insert(last, value);
            Ok(())
        }
        Value::Array(items) if last == "-" => {
            items.push(value);
            Ok(())
        }
        Value::Array(items) => {
            let at = index(&last, items.len() + 1)
                .ok_or_else(|| format!("value was not a proper array index: '{last}'"))?;
            if at > items.len() {
                return Err(format!(
                    "error in add for path: '{path}': Unable to access invalid index: {at}: invalid index referenced"
                ));
            }
            items.insert(at, value);
            Ok(())
        }
        _ => Err(missing()),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let missing =
        || format!("remove operation does not apply: doc is missing path: \"{path}\": missing value");
    let (parent, last) = split(path).ok_or_else(missing)?;
    match lookup_mut(document, parent).ok_or_else(missing)? {
        Value::Object(map) => map.remove(&last).ok_or_else(|| {
            format!(
                "error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
            )
        }),
        Value::Array(items) => match index(&last, items.len()) {
            Some(at) if at < items.len() => Ok(items.remove(at)),
            _ => Err(format!(
                "error in remove for path: '{path}': Unable to access invalid index: {last}: invalid index referenced"
            )),
        },
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_follow_rfc_6902() {
        for (document, patch, expected) in [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (
                json!({"a": [1, 3]}),
                json!([{"op": "add", "path": "/a/1", "value": 2}]),
                json!({"a": [1, 2, 3]}),
            ),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/0"}]), json!({"a": [2]})),
            (json!({"a/b": 1}), json!([{"op": "replace", "path": "/a~1b", "value": 2}]), json!({"a/b": 2})),
            (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
            (
                json!({"a": {"x": 1}}),
                json!([{"op": "copy", "from": "/a", "path": "/b"}]),
                json!({"a": {"x": 1}, "b": {"x": 1}}),
            ),
            (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), json!({"a": 1})),
            (json!({"a": 1}), json!([]), json!({"a": 1})),
        ] {
            let mut patched = document.clone();
            apply(&mut patched, &patch).unwrap_or_else(|e| panic!("{document} + {patch}: {e}"));
            assert_eq!(patched, expected, "{document} + {patch}");
        }
    }

    #[test]
    fn operations_that_do_not_apply_are_refused() {
        let document = json!({"a": 1, "l": [1]});
        for patch in [
            json!([{"op": "remove", "path": "/x"}]),
            json!([{"op": "replace", "path": "/x", "value": 1}]),
            json!([{"op": "add", "path": "/x/y", "value": 1}]),
            json!([{"op": "add", "path": "/l/5", "value": 1}]),
            json!([{"op": "test", "path": "/a", "value": 2}]),
            json!([{"op": "copy", "from": "/x", "path": "/y"}]),
            json!([{"op": "frobnicate", "path": "/a"}]),
            json!([{"op": "add", "path": "/b"}]),
            json!([{"op": "remove", "path": "x"}]),
        ] {
            let refused = apply(&mut document.clone(), &patch);
            assert!(matches!(refused, Err(PatchError::Unprocessable(_))), "{patch}: {refused:?}");
        }
        assert!(matches!(apply(&mut json!({}), &json!({})), Err(PatchError::BadRequest(_))));
    }
}
