//! One object in the cache and one change of it: bytes, what selectors look at, shared encodings.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};
use podwire_api::selector::{FieldSelector, LabelSelector};
use podwire_api::{Kind, protobuf};
use podwire_store::KeyValue;
use serde_json::{Map, Value};

use super::words::Words;
use crate::codec;
use crate::extract::Wanted;

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The key in the store.
    pub(crate) key: Arc<str>,
    /// The revision of the write that made it.
    pub(crate) revision: u64,
    /// Stored JSON after its opening; see [`codec`].
    pub(crate) tail: Bytes,
    kind: Arc<Kind>,
    /// The values of the selectable fields in their order, the UID, of kinds that were defined at run time the version
    /// that the bytes are in, then keys and values of the labels.
    words: Words,
    /// The object in other versions that a webhook has made of it.
    served: Mutex<Option<Box<Served>>>,
    /// The object in protobuf, once somebody has read it that way.
    binary: OnceLock<Bytes>,
}

/// An object in other versions; in a place of its own, as nearly no entry has any.
#[derive(Debug, Default)]
struct Served(Vec<Arc<Entry>>);

impl Entry {
    /// Reads what selectors need; an unreadable value is reported and gives `None`.
    pub(crate) fn read(kind: &Arc<Kind>, wanted: &Wanted, kv: &KeyValue) -> Option<Arc<Self>> {
        let tail = codec::tail(kv).inspect_err(|error| report(kv, error)).ok()?;
        let text = codec::json_text(kv).inspect_err(|error| report(kv, error)).ok()?;
        let partial = wanted.read(text).inspect_err(|error| report(kv, error)).ok()?;
        let fields = podwire_api::fields::selectable(kind, &partial);
        let none = Map::new();
        let labels = partial.pointer("/metadata/labels").and_then(Value::as_object).unwrap_or(&none);
        let labels = labels.iter().filter_map(|(key, value)| Some([key.as_str(), value.as_str()?]));
        let uid = partial.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let version = kind.schema.is_structural().then(|| codec::version(kv).unwrap_or_default());
        let words = fields.iter().map(|(_, value)| value.as_ref()).chain([uid]).chain(version);
        let words = Words::new(words.chain(labels.flatten()));
        Some(Arc::new(Self {
            key: kv.key.clone(),
            revision: kv.mod_revision,
            tail,
            kind: kind.clone(),
            words,
            served: Mutex::default(),
            binary: OnceLock::new(),
        }))
    }

    /// The same, for what was made of another: bytes that are those of the other are shared.
    pub(crate) fn read_like(
        other: &Entry,
        kind: &Arc<Kind>,
        wanted: &Wanted,
        kv: &KeyValue,
    ) -> Option<Arc<Self>> {
        let mut entry = Self::read(kind, wanted, kv)?;
        if let Some(own) = Arc::get_mut(&mut entry).filter(|own| own.tail == other.tail) {
            own.tail = other.tail.clone();
        }
        Some(entry)
    }

    /// The version that the bytes are in, of an object that says it.
    fn version(&self) -> Option<&str> {
        let at = podwire_api::fields::names(&self.kind).count() + 1;
        self.words.get(at).filter(|version| self.kind.schema.is_structural() && !version.is_empty())
    }

    /// The object as it is stored.
    pub(crate) fn to_stored(&self) -> KeyValue {
        let value = codec::whole(self.version(), &self.tail);
        KeyValue { key: self.key.clone(), value, create_revision: 0, mod_revision: self.revision }
    }

    /// The object in the version of `kind`, if a webhook has made it for this very kind.
    pub(crate) fn served(&self, kind: &Arc<Kind>) -> Option<Arc<Entry>> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.as_ref()?.0.iter().find(|entry| Arc::ptr_eq(&entry.kind, kind)).cloned()
    }

    /// Keeps what a webhook has made of it, in place of what was made for another kind of that version.
    pub(crate) fn keep_served(&self, made: Arc<Entry>) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let served = served.get_or_insert_default();
        served.0.retain(|entry| entry.kind.version != made.kind.version);
        served.0.push(made);
    }

    /// The value of a selectable field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let index = podwire_api::fields::names(&self.kind).position(|field| field == name)?;
        self.words.get(index)
    }

    /// The object's UID, for kinds whose path is traced.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.words.get(podwire_api::fields::names(&self.kind).count()).filter(|uid| !uid.is_empty())
    }

    /// The labels, sorted by key.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let before = 1 + usize::from(self.kind.schema.is_structural());
        let mut words = self.words.from(podwire_api::fields::names(&self.kind).count() + before);
        std::iter::from_fn(move || Some((words.next()?, words.next()?)))
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(label, _)| *label == key).map(|(_, value)| value)
    }

    /// Whether both selectors choose this object.
    pub(crate) fn matches(&self, labels: Option<&LabelSelector>, fields: Option<&FieldSelector>) -> bool {
        labels.is_none_or(|selector| selector.matches_with(|key| self.label(key)))
            && fields.is_none_or(|selector| selector.matches(|name| self.field(name).map(Into::into)))
    }

    /// Parses the whole object, as a client sees it.
    pub(crate) fn decode(&self, kind: &Kind) -> Value {
        let mut text = BytesMut::with_capacity(self.tail.len() + 128);
        codec::write_object(&mut text, kind, self.revision, &self.tail);
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::error!(key = %self.key, %error, "a cached object is not readable");
            Value::Null
        })
    }

    /// The object as a bare message in protobuf, encoded once for all who read it that way.
    pub(crate) fn binary(&self, kind: &Kind) -> Bytes {
        self.binary.get_or_init(|| protobuf::encode_message(&kind.schema, &self.decode(kind)).into()).clone()
    }

    /// The length of its JSON, for estimates.
    pub(crate) fn len(&self) -> usize {
        self.tail.len() + 64
    }
}

fn report(kv: &KeyValue, error: &dyn std::error::Error) {
    tracing::error!(key = %kv.key, error = %crate::error_chain(error), "a stored object is not readable and is left out");
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// The object appeared.
    Added,
    /// It was there and is different now.
    Modified,
    /// It is gone; the entry is its last state at the deletion's revision.
    Deleted,
}

impl ChangeKind {
    /// The event type on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// What happened.
    pub(crate) kind: ChangeKind,
    /// The object after the change.
    pub(crate) entry: Arc<Entry>,
    /// The object before it.
    pub(crate) previous: Option<Arc<Entry>>,
    /// When it was heard of, for trimming.
    pub(crate) heard: tokio::time::Instant,
}

/// A change with what was encoded of it, shared by all watchers.
#[derive(Debug)]
pub(crate) struct Told {
    change: Change,
    /// As JSON and in protobuf, for each way of seeing it.
    json: [OnceLock<Bytes>; 3],
    binary: [OnceLock<Bytes>; 3],
}

impl Change {
    /// A change heard of now.
    pub(crate) fn new(kind: ChangeKind, entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Self { kind, entry, previous, heard: tokio::time::Instant::now() }
    }

    /// The same change of an object that looks otherwise.
    pub(crate) fn with(&self, entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Self { kind: self.kind, entry, previous, heard: self.heard }
    }

    /// How a watcher with these selectors sees the change: entering is an addition, leaving a deletion.
    pub(crate) fn seen_through(
        &self,
        labels: Option<&LabelSelector>,
        fields: Option<&FieldSelector>,
    ) -> Option<ChangeKind> {
        if labels.is_none() && fields.is_none() {
            return Some(self.kind);
        }
        let before = self.previous.as_ref().is_some_and(|entry| entry.matches(labels, fields));
        let after = self.kind != ChangeKind::Deleted && self.entry.matches(labels, fields);
        match (before, after) {
            (false, true) => Some(ChangeKind::Added),
            (true, true) => Some(ChangeKind::Modified),
            (true, false) => Some(ChangeKind::Deleted),
            (false, false) => None,
        }
    }

    /// The object a watcher is shown: on leaving a selection its former state at the new revision.
    pub(crate) fn shown(&self, seen: ChangeKind) -> (&Entry, u64) {
        match (&self.previous, seen, self.kind) {
            (Some(previous), ChangeKind::Deleted, ChangeKind::Modified) => (previous, self.entry.revision),
            _ => (&self.entry, self.entry.revision),
        }
    }
}

impl std::ops::Deref for Told {
    type Target = Change;

    fn deref(&self) -> &Change {
        &self.change
    }
}

impl Told {
    /// A change of which nothing is encoded yet.
    pub(crate) fn new(change: Change) -> Arc<Self> {
        Arc::new(Self { change, json: Default::default(), binary: Default::default() })
    }

    /// The event as a line of JSON, encoded once for all who watch.
    pub(crate) fn frame(&self, kind: &Kind, seen: ChangeKind) -> Bytes {
        let encode = || {
            let (entry, revision) = self.change.shown(seen);
            json_frame(kind, seen.as_str(), revision, &entry.tail)
        };
        self.json[seen as usize].get_or_init(encode).clone()
    }

    /// The event in Kubernetes' protobuf framing, encoded once for all who watch that way.
    pub(crate) fn binary_frame(&self, kind: &Kind, seen: ChangeKind) -> Bytes {
        let encode = || {
            let (entry, revision) = self.change.shown(seen);
            if let Some(known) = entry.binary.get().filter(|_| revision == entry.revision) {
                return binary_frame(kind, seen.as_str(), known);
            }
            let mut object = entry.decode(kind);
            object["metadata"]["resourceVersion"] = revision.to_string().into();
            binary_frame(kind, seen.as_str(), &protobuf::encode_message(&kind.schema, &object))
        };
        self.binary[seen as usize].get_or_init(encode).clone()
    }
}

/// One event of a watch in protobuf, from the bare message of its object.
pub(crate) fn binary_frame(kind: &Kind, event: &str, message: &[u8]) -> Bytes {
    protobuf::watch_event(event, &protobuf::envelope(&kind.api_version(), &kind.kind, message)).into()
}

/// One line of a JSON watch stream.
pub(crate) fn json_frame(kind: &Kind, event: &str, revision: u64, tail: &[u8]) -> Bytes {
    line(event, tail.len(), |out| codec::write_object(out, kind, revision, tail))
}

/// The same for a watch of metadata alone.
pub(crate) fn partial_frame(event: &str, revision: u64, tail: &[u8]) -> Bytes {
    line(event, tail.len(), |out| codec::write_partial(out, revision, tail))
}

fn line(event: &str, length: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(length + 128);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    write(&mut out);
    out.extend_from_slice(b"}\n");
    out.freeze()
}
