//! Reads the questions: a good object of a kind, and changes of it that spoil it for creation or update.
//!
//! A change is a map from JSON pointers to values, null removes. In `update`, `status` and other parts a change is of
//! the new object, or a pair of changes for the old one and the new one. `mixed` is how many questions more are made of
//! several changes for creation each, so that the order of complaints is asked for too.

use std::sync::Arc;

use podwire_api::{Kind, Part, by_resource, split_api_version};
use serde_json::{Map, Value, json};

use crate::dice::Dice;

/// One question.
pub(crate) struct Case {
    /// What is asked, without the object that it is asked about.
    pub(crate) short: Value,
    pub(crate) kind: &'static Arc<Kind>,
    /// The subresource that is written to, with its name.
    pub(crate) part: Option<(&'static str, Part)>,
    /// The stored object; none when one is created.
    pub(crate) old: Option<Value>,
    pub(crate) new: Value,
}

const PARTS: &[(&str, Option<Part>)] = &[
    ("update", None),
    ("status", Some(Part::Status)),
    ("approval", Some(Part::Approval)),
    ("finalize", Some(Part::Finalize)),
];

/// The questions of a file.
pub(crate) fn of(text: &str) -> Vec<Case> {
    let kinds: Vec<Map<String, Value>> = serde_json::from_str(text).unwrap();
    kinds.iter().flat_map(of_kind).collect()
}

fn of_kind(entry: &Map<String, Value>) -> Vec<Case> {
    let word = |key: &str| entry[key].as_str().unwrap();
    let (group, version) = split_api_version(word("apiVersion"));
    let kind = by_resource(group, version, word("resource")).unwrap();
    let good = whole(kind, word("apiVersion"), &entry["good"]);
    let list = |key: &str| entry.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut creations = list("create");
    let mixed = entry.get("mixed").and_then(Value::as_u64).unwrap_or(0);
    let mut dice = Dice::new(7);
    creations.extend((0..mixed).map(|_| mix(&list("create"), &mut dice)).collect::<Vec<_>>());
    let created = creations.into_iter().map(|change| Case {
        short: json!([word("resource"), "create", change]),
        kind,
        part: None,
        old: None,
        new: changed(&good, &change),
    });
    let mut cases: Vec<Case> = created.collect();
    for (name, part) in PARTS {
        for change in list(name) {
            let (before, after) = match change.as_array() {
                Some(pair) => (&pair[0], &pair[1]),
                None => (&json!({}), &change),
            };
            let old = stored(changed(&good, before));
            cases.push(Case {
                short: json!([word("resource"), name, change]),
                kind,
                part: part.map(|part| (*name, part)),
                new: stored(changed(&good, after)),
                old: Some(old),
            });
        }
    }
    cases
}

/// The good object with what every one has.
fn whole(kind: &Kind, version: &str, good: &Value) -> Value {
    let mut object = good.clone();
    object["apiVersion"] = version.into();
    object["kind"] = kind.kind.to_string().into();
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = "x".into();
    }
    if kind.namespaced {
        object["metadata"]["namespace"] = "a".into();
    }
    object
}

/// The object as it comes out of the store.
fn stored(mut object: Value) -> Value {
    let metadata = &mut object["metadata"];
    for (key, value) in
        [("uid", "u"), ("creationTimestamp", "2026-01-01T00:00:00Z"), ("resourceVersion", "7")]
    {
        if metadata[key].is_null() {
            metadata[key] = value.into();
        }
    }
    object
}

/// Some of the changes at once, none of which touches what another does.
fn mix(changes: &[Value], dice: &mut Dice) -> Value {
    let mut all = Map::new();
    for _ in 0..4 {
        let change = changes[dice.below(changes.len())].as_object().unwrap();
        let apart = |a: &str, b: &str| !format!("{a}/").starts_with(&format!("{b}/"));
        let fits = change.keys().all(|new| all.keys().all(|old| apart(new, old) && apart(old, new)));
        if fits {
            all.extend(change.clone());
        }
    }
    all.into()
}

fn changed(good: &Value, change: &Value) -> Value {
    let mut object = good.clone();
    for (pointer, value) in change.as_object().unwrap() {
        put(&mut object, pointer, value);
    }
    object
}

/// Puts a value at a JSON pointer whose parents are made as needed.
fn put(object: &mut Value, pointer: &str, value: &Value) {
    let mut steps: Vec<String> = pointer.split('/').skip(1).map(|s| s.replace("~1", "/")).collect();
    let last = steps.pop().unwrap();
    let mut at = object;
    for step in &steps {
        at = enter(at, step);
    }
    match (value, &mut *at) {
        (Value::Null, Value::Object(map)) => {
            map.remove(&last);
        }
        (Value::Null, _) => panic!("{pointer} does not name a field to remove"),
        _ => *enter(at, &last) = repeated(value),
    }
}

fn enter<'a>(at: &'a mut Value, step: &str) -> &'a mut Value {
    match (step.parse::<usize>(), &mut *at) {
        (Ok(index), Value::Array(items)) => {
            while items.len() <= index {
                items.push(json!({}));
            }
            &mut at[index]
        }
        _ => &mut at[step],
    }
}

/// What is long is written short: `{"repeat": "a", "times": 9}` is a text; `{"list": "a$", "times": 9}` is a list and
/// `{"map": {"a$": 1}, "times": 9}` a map, where `$` is the number of the item.
fn repeated(value: &Value) -> Value {
    let times = value["times"].as_u64().unwrap_or_default();
    match value {
        Value::Object(map) if times > 0 => match (&map.get("repeat"), &map.get("list"), &map.get("map")) {
            (Some(Value::String(text)), ..) => text.repeat(usize::try_from(times).unwrap()).into(),
            (_, Some(item), _) => (0..times).map(|at| repeated(&numbered(item, at))).collect(),
            (.., Some(Value::Object(item))) => {
                let items = (0..times).map(|at| repeated(&numbered(&Value::Object(item.clone()), at)));
                items.flat_map(|item| item.as_object().unwrap().clone()).collect::<Map<_, _>>().into()
            }
            _ => value.clone(),
        },
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), repeated(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(repeated).collect(),
        other => other.clone(),
    }
}

fn numbered(item: &Value, at: u64) -> Value {
    serde_json::from_str(&item.to_string().replace('$', &at.to_string())).unwrap()
}
