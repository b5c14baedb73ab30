//! A store that remembers which keys it was asked for, and a listener that remembers what authorization was asked.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and fails where it unwraps"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use podwire_store::{Guard, KeyValue, Listing, Op, Outcome, Revision, Store, StoreError, WatchStream};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// What happened since it was last asked.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Heard>>);

/// What was heard.
#[derive(Debug, Default, Clone)]
pub(crate) struct Heard {
    /// Keys and prefixes that the store was asked for.
    pub(crate) keys: Vec<String>,
    /// What authorization was asked.
    pub(crate) asked: Vec<BTreeMap<String, String>>,
}

impl Record {
    /// Everything since the last call.
    pub(crate) fn take(&self) -> Heard {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn key(&self, key: &str) {
        self.0.lock().unwrap().keys.push(key.to_owned());
    }

    /// Listens on this thread for as long as the guard lives.
    pub(crate) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(tracing_subscriber::registry().with(Listener(self.clone())))
    }
}

struct Listener(Record);

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: tracing::Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "authorization" {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.0.lock().unwrap().asked.push(fields.0);
        }
    }
}

/// Passes everything on and writes down the keys.
pub(crate) struct Recording<S> {
    pub(crate) inner: S,
    pub(crate) record: Record,
}

impl<S: Store> Store for Recording<S> {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        self.record.key(key);
        self.inner.get(key)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, StoreError>> {
        self.record.key(prefix);
        self.inner.list(prefix, after, limit, at)
    }

    fn txn<'a>(&'a self, key: &'a str, guard: Guard, op: Op) -> BoxFuture<'a, Result<Outcome, StoreError>> {
        self.record.key(key);
        self.inner.txn(key, guard, op)
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.inner.watch(prefix, after)
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.inner.revision()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.health()
    }

    fn compact<'a>(&'a self, before: Revision) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.compact(before)
    }
}
