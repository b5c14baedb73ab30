//! The seam between the API server and whatever keeps its objects: values, guards, events, the trait.
//!
//! Shaped after what Kubernetes asks of etcd: single-key guarded transactions, prefix lists at a
//! revision, watches that resume after a revision.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::StoreError;

/// A point in the store's one global sequence of writes; 0 is the empty store.
pub type Revision = u64;

/// One key with its value and the writes that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The full key, for example `/registry/pods/default/web`.
    pub key: Arc<str>,
    /// The stored bytes, as they were given.
    pub value: Bytes,
    /// The write that created this life of the key.
    pub create_revision: Revision,
    /// The latest write to the key.
    pub mod_revision: Revision,
}

/// What must hold for a transaction to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The key exists and its latest write is this one.
    ModRevision(Revision),
    /// Nothing is asked.
    Any,
}

/// What a transaction does to its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Store `value`; with a `ttl` the key is deleted once that long has passed.
    Put {
        /// The bytes to keep.
        value: Bytes,
        /// How long the key lives, counted from now.
        ttl: Option<Duration>,
    },
    /// Remove the key; removing a key that does not exist is a conflict.
    Delete,
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The write is durable and visible.
    Committed {
        /// The revision of this write.
        revision: Revision,
        /// What the key held before.
        previous: Option<KeyValue>,
    },
    /// The guard did not hold; nothing was written.
    Conflict {
        /// What the key holds.
        current: Option<KeyValue>,
    },
}

/// One page of a prefix, in key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The keys of this page.
    pub items: Vec<KeyValue>,
    /// The revision all items were read at.
    pub revision: Revision,
    /// Whether keys follow after the last item.
    pub more: bool,
    /// How many keys follow after the last item.
    pub remaining: u64,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created or overwritten.
    Put,
    /// It was removed, by a caller or because its time to live ended.
    Delete,
}

/// One committed write as watchers see it; its revision is `kv.mod_revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key after the write; on [`EventKind::Delete`] the last value with the deletion's revision.
    pub kv: KeyValue,
    /// The key before the write.
    pub previous: Option<KeyValue>,
}

impl Event {
    /// The write this event stands for.
    pub fn revision(&self) -> Revision {
        self.kv.mod_revision
    }
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Events in the order of their revisions, of whole revisions only; there is one at least.
    Events(Vec<Arc<Event>>),
    /// All events up to this revision were told, although other keys than the watched ones have changed since the last.
    Progress(Revision),
}

/// What happens, in revision order; the first error is the last item.
pub type WatchStream = BoxStream<'static, Result<News, StoreError>>;

/// A revisioned key-value store.
///
/// All methods are cancel safe except [`Store::txn`]: a dropped transaction may still be committed.
pub trait Store: Send + Sync + 'static {
    /// Reads one key at the newest revision.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>>;

    /// Lists the keys that start with `prefix` and sort after `after`, at most `limit` of them, as
    /// they were at revision `at` (the newest when absent).
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, StoreError>>;

    /// Writes or removes one key if `guard` holds; answers once the write is durable.
    fn txn<'a>(&'a self, key: &'a str, guard: Guard, op: Op) -> BoxFuture<'a, Result<Outcome, StoreError>>;

    /// Streams every event under `prefix` with a revision greater than `after`.
    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>>;

    /// The newest committed revision. Watches hear of it soon, if they do not already know of all that happened until then.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// Whether writes can be made: false after one whose durability is unknown, until the store is opened again.
    fn health(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets history: afterwards only revisions from `before` on can be listed or watched from.
    fn compact<'a>(&'a self, before: Revision) -> BoxFuture<'a, Result<(), StoreError>>;
}
