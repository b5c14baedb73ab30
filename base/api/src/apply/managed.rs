//! The managedFields list: one entry per manager, operation and subresource.

use serde_json::{Value, json};

use super::set::Set;
use super::typed::Changes;
use super::{Conflict, Operation, Writer};
use crate::Kind;

const MOST_UPDATERS: usize = 10;

/// What one manager owns.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    manager: String,
    operation: String,
    api_version: String,
    subresource: String,
    pub(super) time: Option<String>,
    pub(super) fields: Set,
}

impl Entry {
    fn new(kind: &Kind, writer: &Writer<'_>, fields: Set, time: Option<String>) -> Entry {
        let manager = if writer.manager.is_empty() { "unknown" } else { writer.manager };
        Entry {
            manager: manager.to_owned(),
            operation: writer.operation.as_str().to_owned(),
            api_version: kind.api_version(),
            subresource: writer.subresource.to_owned(),
            time,
            fields,
        }
    }

    pub(super) fn applied(kind: &Kind, writer: &Writer<'_>, fields: Set, time: Option<String>) -> Entry {
        Entry::new(kind, writer, fields, time)
    }

    fn is_update(&self) -> bool {
        self.operation == Operation::Update.as_str()
    }

    fn same_writer(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (!self.is_update() || self.api_version == other.api_version)
    }

    /// The manager as conflict messages print it.
    fn shown(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.is_update() {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }
}

/// All managers of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managers(Vec<Entry>);

impl Managers {
    pub(super) fn decode(list: Value) -> Managers {
        let Value::Array(items) = list else { return Managers::default() };
        let entries = items.into_iter().filter_map(|mut item| {
            let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
            let (manager, operation) = (text("manager"), text("operation"));
            let (api_version, subresource) = (text("apiVersion"), text("subresource"));
            let time = item["time"].as_str().map(str::to_owned);
            let fields = Set::from_json(item.get_mut("fieldsV1")?.take());
            Some(Entry { manager, operation, api_version, subresource, time, fields })
        });
        Managers(entries.collect())
    }

    pub(super) fn encode(mut self) -> Value {
        fn key(e: &Entry) -> (&str, Option<&str>, &str, &str, &str) {
            (&e.operation, e.time.as_deref(), &e.manager, &e.api_version, &e.subresource)
        }
        self.0.sort_by(|a, b| key(a).cmp(&key(b)));
        let items = self.0.into_iter().map(|entry| {
            let mut item = json!({
                "manager": entry.manager,
                "operation": entry.operation,
                "apiVersion": entry.api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields.into_json(),
            });
            if let Some(time) = entry.time {
                item["time"] = json!(time);
            }
            if !entry.subresource.is_empty() {
                item["subresource"] = json!(entry.subresource);
            }
            item
        });
        Value::Array(items.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everybody loses what changed; managers left with nothing go.
    pub(super) fn release(&mut self, changes: &Changes) {
        for entry in &mut self.0 {
            for set in [&changes.added, &changes.modified, &changes.removed] {
                entry.fields.subtract(set);
            }
        }
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    /// The writer owns these fields from now on.
    pub(super) fn claim(&mut self, kind: &Kind, writer: &Writer<'_>, fields: Set) {
        let entry = Entry::new(kind, writer, fields, Some(crate::time::seconds(writer.time)));
        match self.0.iter_mut().find(|e| e.same_writer(&entry)) {
            Some(found) => {
                found.fields.union(&entry.fields);
                found.time = entry.time;
            }
            None => self.0.push(entry),
        }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    /// Takes out what the writer applied last.
    pub(super) fn take_applied(&mut self, writer: &Writer<'_>) -> Option<Entry> {
        let at = self.0.iter().position(|e| {
            e.manager == writer.manager && !e.is_update() && e.subresource == writer.subresource
        })?;
        Some(self.0.remove(at))
    }

    /// The fields of all managers together.
    pub(super) fn everything(&self) -> Set {
        let mut out = Set::default();
        for entry in &self.0 {
            out.union(&entry.fields);
        }
        out
    }

    pub(super) fn conflicts(&self, changes: &Changes) -> Vec<Conflict> {
        let mut out = Vec::new();
        for entry in &self.0 {
            let mut touched = entry.fields.intersection(&changes.modified);
            touched.union(&entry.fields.intersection(&changes.added));
            out.extend(touched.paths().into_iter().map(|field| Conflict { manager: entry.shown(), field }));
        }
        out.sort_by(|a, b| a.manager.cmp(&b.manager));
        out
    }

    /// Merges the oldest updaters into one entry when there are too many.
    pub(super) fn cap(&mut self, kind: &Kind) {
        let updaters = self.0.iter().filter(|e| e.is_update()).count();
        if updaters <= MOST_UPDATERS {
            return;
        }
        let (mut oldest, rest): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.0).into_iter().partition(Entry::is_update);
        oldest.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
        let kept = oldest.split_off(updaters - MOST_UPDATERS + 1);
        let mut bucket = Entry {
            manager: "ancient-changes".to_owned(),
            operation: Operation::Update.as_str().to_owned(),
            api_version: kind.api_version(),
            subresource: String::new(),
            time: None,
            fields: Set::default(),
        };
        for entry in oldest {
            bucket.fields.union(&entry.fields);
            bucket.time = entry.time;
        }
        self.0 = rest.into_iter().chain([bucket]).chain(kept).collect();
    }
}
