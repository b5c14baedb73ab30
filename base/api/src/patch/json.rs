//! JSON patch: add, remove, replace, move, copy, test over JSON pointers.
//!
//! A short patch can ask for much: what copies add, what moves walk through and how deep it all nests is bounded while
//! the patch is applied, because even dropping a value that nests too deeply would overflow the stack.

use std::io;

use serde_json::Value;

use super::PatchError;
use crate::strict::{DEEPEST, TOO_DEEP};

const MOST_OPERATIONS: usize = 10_000;
/// What all copies of a patch may add, as upstream's `JSONPatchMaxCopyBytes`.
const MOST_COPIED: usize = 3 << 20;
/// How many values operations may look through or shift in all.
const MOST_STEPS: usize = 10_000_000;

/// How much more a patch may do.
struct Room {
    copied: usize,
    steps: usize,
}

impl Room {
    fn steps(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.checked_sub(steps).ok_or("the patch asks for too much work")?;
        Ok(())
    }

    /// Accounts for a copy of a value.
    fn copy(&mut self, value: &Value) -> Result<(), String> {
        let mut size = Length(0);
        // Ignored: counting cannot fail.
        serde_json::to_writer(&mut size, value).ok();
        self.copied += size.0;
        if self.copied <= MOST_COPIED {
            return Ok(());
        }
        let copied = self.copied;
        Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MOST_COPIED}"
        ))
    }

    /// Refuses a value that would nest too deeply where it is put.
    fn nest(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let above = path.bytes().filter(|b| *b == b'/').count();
        let Some(levels) = DEEPEST.checked_sub(above) else { return Err(TOO_DEEP.to_owned()) };
        self.fits(value, levels)
    }

    fn fits(&mut self, value: &Value, levels: usize) -> Result<(), String> {
        self.steps(1)?;
        let below = match value {
            Value::Array(_) | Value::Object(_) => levels.checked_sub(1).ok_or(TOO_DEEP)?,
            _ => return Ok(()),
        };
        match value {
            Value::Array(items) => items.iter().try_for_each(|v| self.fits(v, below)),
            Value::Object(map) => map.values().try_for_each(|v| self.fits(v, below)),
            _ => Ok(()),
        }
    }
}

/// Counts what is written to it.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

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
    let mut room = Room { copied: 0, steps: MOST_STEPS };
    operations.iter().try_for_each(|o| operation(document, o, &mut room).map_err(PatchError::Unprocessable))
}

fn operation(document: &mut Value, operation: &Value, room: &mut Room) -> Result<(), String> {
    let path = || operation["path"].as_str().ok_or("operation missing path field: missing value");
    let from = || operation["from"].as_str().ok_or("operation, missing from field: missing value");
    let value = || operation.get("value").ok_or("operation, missing value field: missing value");
    match operation["op"].as_str().unwrap_or("unknown") {
        "add" => {
            let (path, value) = (path()?, value()?);
            room.nest(path, value)?;
            add(document, path, value.clone(), room)
        }
        "remove" => remove(document, path()?, room).map(|_| ()),
        "replace" => {
            let (path, value) = (path()?, value()?);
            room.nest(path, value)?;
            let missing =
                || format!("replace operation does not apply: doc is missing key: {path}: missing value");
            *lookup_mut(document, path).ok_or_else(missing)? = value.clone();
            Ok(())
        }
        "move" => {
            let (from, path) = (from()?, path()?);
            let moved = remove(document, from, room)?;
            room.nest(path, &moved)?;
            add(document, path, moved, room)
        }
        "copy" => {
            let (from, path) = (from()?, path()?);
            let missing =
                || format!("copy operation does not apply: doc is missing from path: {from}: missing value");
            let found = lookup(document, from).ok_or_else(missing)?;
            room.copy(found)?;
            room.nest(path, found)?;
            let copied = found.clone();
            add(document, path, copied, room)
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

fn add(document: &mut Value, path: &str, value: Value, room: &mut Room) -> Result<(), String> {
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
            room.steps(items.len() - at)?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err(missing()),
    }
}

fn remove(document: &mut Value, path: &str, room: &mut Room) -> Result<Value, String> {
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
            Some(at) if at < items.len() => {
                room.steps(items.len() - at)?;
                Ok(items.remove(at))
            }
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

    fn refused(document: Value, patch: &Value) -> String {
        match apply(&mut document.clone(), patch) {
            Err(PatchError::Unprocessable(why)) => why,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn copies_add_no_more_than_a_body_may_have() {
        // Thirty doublings of a kilobyte are a terabyte.
        let mut patch = vec![json!({"op": "add", "path": "/a", "value": {"x": "y".repeat(1024)}})];
        patch.extend((0..30).map(|i| json!({"op": "copy", "from": "/a", "path": format!("/a/{i}")})));
        let why = refused(json!({}), &Value::Array(patch));
        assert!(why.starts_with("Unable to complete the copy"), "{why}");
        let list = json!([{"op": "copy", "from": "/a", "path": "/a/-"}]);
        let mut document = json!({"a": [1]});
        apply(&mut document, &list).unwrap();
        assert_eq!(document, json!({"a": [1, [1]]}));
    }

    #[test]
    fn nothing_nests_deeper_than_a_body_may() {
        // Each moves all there is into the innermost of another fifty levels.
        let tower = "/a".repeat(50);
        let nested = (0..50).fold(json!({}), |inner, _| json!({"a": inner}));
        let mut patch = vec![json!({"op": "add", "path": "/x", "value": nested})];
        for _ in 0..100 {
            patch.push(json!({"op": "add", "path": "/y", "value": nested}));
            patch.push(json!({"op": "move", "from": "/x", "path": format!("/y{tower}/a")}));
            patch.push(json!({"op": "move", "from": "/y", "path": "/x"}));
        }
        assert_eq!(refused(json!({}), &Value::Array(patch)), TOO_DEEP);
        let added = json!([{"op": "add", "path": "/a".repeat(DEEPEST + 1), "value": 1}]);
        assert_eq!(refused(json!({}), &added), TOO_DEEP);
        let copied = json!([{"op": "add", "path": "/x", "value": nested}, {"op": "copy", "from": "/x", "path": format!("/x{tower}/a")}]);
        assert_eq!(refused(json!({}), &copied), TOO_DEEP);
    }

    #[test]
    fn work_that_a_short_patch_asks_for_is_bounded() {
        let list = json!({"a": vec![0; 50_000]});
        let mut patch = vec![json!({"op": "move", "from": "/a/0", "path": "/a/-"}); 1000];
        assert_eq!(refused(list.clone(), &Value::Array(patch.clone())), "the patch asks for too much work");
        patch.truncate(50);
        apply(&mut list.clone(), &Value::Array(patch)).unwrap();
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
