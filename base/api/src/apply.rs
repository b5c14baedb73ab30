//! Who owns which field: managedFields of updates, and server-side apply with its conflicts.
//!
//! Field sets stay in their JSON form (`f:`, `k:`, `v:` keys), so that tracking an update touches only what changed.

mod managed;
mod set;
mod typed;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::Kind;
use crate::defaults::child;
use managed::{Entry, Managers};
use set::Set;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How a write came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Everything else.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who writes, through which door, when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// Kind of write.
    pub operation: Operation,
    /// Subresource written through, empty for the object itself.
    pub subresource: &'a str,
    /// Time of the write.
    pub time: Timestamp,
}

/// Another manager owns a field that an apply would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as messages print it: `"kubectl" using v1`.
    pub manager: String,
    /// Path of the field, e.g. `.data.x`.
    pub field: String,
}

/// An apply was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Fields are owned by others: 409 with a cause `FieldManagerConflict` for each.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The patch is not acceptable: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The patch does not fit the schema: 500 upstream.
    #[error("{0}")]
    Typed(String),
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.field);
    }
    let mut lines = Vec::new();
    let mut current = "";
    for conflict in conflicts {
        if conflict.manager != current {
            current = &conflict.manager;
            lines.push(format!("conflicts with {current}:"));
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Records in `new` that the writer changed what differs from `old` (nothing stored before: `None`).
pub fn track_update(kind: &Kind, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let given = take_managed(new);
    let stored = || old.map_or(Value::Null, |o| o["metadata"]["managedFields"].clone());
    let managed = match given {
        Some(list) if writer.subresource.is_empty() && is_reset(&list) => Value::Null,
        Some(list) if writer.subresource.is_empty() && !list.as_array().is_none_or(Vec::is_empty) => list,
        _ => stored(),
    };
    let mut managers = Managers::decode(managed);
    let existed = old.is_some_and(|o| o["metadata"]["uid"].is_string());
    if managers.is_empty() && existed {
        return;
    }
    let empty;
    let live = match old {
        Some(old) => old,
        None => {
            empty = empty_object(kind);
            &empty
        }
    };
    update(kind, live, new, &mut managers, writer);
    put_managed(new, managers);
}

fn update(kind: &Kind, live: &Value, new: &Value, managers: &mut Managers, writer: &Writer<'_>) {
    let mut changes = typed::compare(&kind.schema, live, new);
    changes.exclude(&reset_fields(kind, writer.subresource));
    managers.release(&changes);
    let mut mine = changes.added;
    if !changes.modified.is_empty() {
        mine.union(&changes.modified);
    }
    mine.subtract(never_tracked());
    if !mine.is_empty() {
        managers.claim(kind, writer, mine);
        managers.cap(kind);
    }
}

/// Applies a configuration to the live object and gives the object to store, with defaults and managedFields.
pub fn server_side(
    kind: &Kind,
    live: Option<&Value>,
    patch: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let config = checked(kind, patch)?;
    let mut base = live.cloned().unwrap_or_else(|| empty_object(kind));
    let managed = take_managed(&mut base).unwrap_or(Value::Null);
    let mut managers = Managers::decode(managed);
    if managers.is_empty() {
        let before = Writer { manager: "before-first-apply", operation: Operation::Update, ..*writer };
        update(kind, &empty_object(kind), &base, &mut managers, &before);
    }
    let attempt = |force: bool| merged(kind, &base, &config, managers.clone(), writer, force);
    let (mut object, managers) = match attempt(force) {
        Err(ApplyError::Conflicts(conflicts)) if writer.manager == "kubectl" => {
            let allowed = agreed_by_last_applied(kind, &base);
            let left: Vec<Conflict> = conflicts.into_iter().filter(|c| !allowed.contains(&c.field)).collect();
            if left.is_empty() { attempt(true)? } else { return Err(ApplyError::Conflicts(left)) }
        }
        other => other?,
    };
    if writer.manager == "kubectl" && object["metadata"]["annotations"][LAST_APPLIED].is_string() {
        let mut applied = patch.clone();
        if let Some(Value::Object(annotations)) = applied.pointer_mut("/metadata/annotations") {
            annotations.remove(LAST_APPLIED);
        }
        object["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{applied}\n"));
    }
    crate::strict::conform(kind, &mut object).map_err(|e| ApplyError::BadRequest(e.to_string()))?;
    crate::defaults::apply(kind, &mut object);
    put_managed(&mut object, managers);
    Ok(object)
}

/// The patch as a configuration of this kind.
fn checked(kind: &Kind, patch: &Value) -> Result<Value, ApplyError> {
    let Value::Object(_) = patch else {
        return Err(ApplyError::BadRequest("error decoding YAML: the patch is no object".to_owned()));
    };
    let version = patch["apiVersion"].as_str().unwrap_or_default();
    if version != kind.api_version() {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            kind.api_version()
        )));
    }
    if !patch["metadata"]["managedFields"].is_null() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let unknown =
        crate::strict::conform(kind, &mut patch.clone()).map_err(|e| ApplyError::Typed(e.to_string()))?;
    let named = unknown.iter().map(|u| u.trim_start_matches("unknown field \"").trim_end_matches('"'));
    let mut lines: Vec<String> = named.map(|path| format!(".{path}: field not declared in schema")).collect();
    lines.extend(typed::duplicates(&kind.schema, patch));
    if !lines.is_empty() {
        let shown =
            if lines.len() == 1 { lines.remove(0) } else { format!("errors:\n  {}", lines.join("\n  ")) };
        let text = |key: &str| patch["metadata"][key].as_str().unwrap_or_default();
        return Err(ApplyError::Typed(format!(
            "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {shown}",
            text("namespace"),
            text("name"),
            kind.group,
            kind.version,
            kind.kind
        )));
    }
    Ok(patch.clone())
}

/// Merges the configuration into the live object, removes what the manager gave up, finds conflicts.
fn merged(
    kind: &Kind,
    live: &Value,
    config: &Value,
    mut managers: Managers,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(Value, Managers), ApplyError> {
    let mut object = typed::merge(&kind.schema, live, config);
    let reset = reset_fields(kind, writer.subresource);
    let mut mine = typed::field_set(&kind.schema, config);
    mine.exclude(&reset);
    let last = managers.take_applied(writer);
    if let Some(last) = &last {
        let mut owned = managers.everything();
        owned.union(&mine);
        typed::remove(&kind.schema, &mut object, &last.fields, &owned);
    }
    let mut changes = typed::compare(&kind.schema, live, &object);
    changes.exclude(&reset);
    let conflicts = managers.conflicts(&changes);
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    let changed = !changes.is_empty();
    managers.release(&changes);
    mine.subtract(never_tracked());
    if !mine.is_empty() {
        let time = if changed { Some(writer.time) } else { None };
        let previous = last.and_then(|l| l.time);
        managers.add(Entry::applied(kind, writer, mine, time.map(crate::time::seconds).or(previous)));
    }
    Ok((object, managers))
}

/// Fields that kubectl's own annotation says it applied and nobody changed since.
fn agreed_by_last_applied(kind: &Kind, live: &Value) -> Vec<String> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default();
    let Ok(applied) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    if applied["apiVersion"].as_str() != Some(kind.api_version().as_str()) {
        return Vec::new();
    }
    let mut agreed = typed::field_set(&kind.schema, &applied);
    let changes = typed::compare(&kind.schema, &applied, live);
    for set in [&changes.modified, &changes.added, &changes.removed] {
        agreed.subtract(set);
    }
    agreed.paths()
}

/// The object Go has before anything was decoded into it.
fn empty_object(kind: &Kind) -> Value {
    let mut object = Value::Object(Map::new());
    crate::strict::conform(kind, &mut object).expect("an empty object has every shape");
    object
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed(object: &mut Value, managers: Managers) {
    let list = managers.encode();
    if let (Value::Object(map), Value::Array(items)) = (object, &list)
        && !items.is_empty()
    {
        child(map, "metadata").insert("managedFields".to_owned(), list);
    }
}

/// A client clears all ownership with a list of one empty entry.
fn is_reset(list: &Value) -> bool {
    list.as_array().is_some_and(|items| items.is_empty() || items.len() == 1 && items[0] == json!({}))
}

/// Fields that the door written through ignores.
fn reset_fields(kind: &Kind, subresource: &str) -> Set {
    match subresource {
        "status" if kind.schema.is_structural() || kind.strategy.status_comes_alone() => {
            Set::from_json(json!({"f:metadata": {}, "f:spec": {}}))
        }
        "status" => Set::from_json(json!({"f:spec": {}})),
        "" if kind.has_status() => Set::from_json(json!({"f:status": {}})),
        _ => Set::default(),
    }
}

fn never_tracked() -> &'static Set {
    static SET: std::sync::OnceLock<Set> = std::sync::OnceLock::new();
    SET.get_or_init(|| {
        Set::from_json(json!({
            "f:apiVersion": {}, "f:kind": {},
            "f:metadata": {
                ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
                "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {},
            },
        }))
    })
}

#[cfg(test)]
mod tests;
