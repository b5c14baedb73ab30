//! The engine as the API server has it: everything it needs in memory, a short history, no socket in between.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use tokio::sync::watch;

use crate::engine::disk::Found;
use crate::engine::index::{Event as Change, Retention, Then, Told};
use crate::engine::key::Kv;
use crate::engine::record::MAX_CHANGE;
use crate::engine::refused::Refused;
use crate::engine::writer::{Answer, Work};
use crate::engine::{self, Engine, EngineConfig, Progress};
use crate::{
    Event, EventKind, Guard, KeyValue, Listing, News, Op, Outcome, Revision, Store, StoreError, WatchStream,
};

/// Events handed out at once to a watcher that catches up.
const WATCH_BATCH: usize = 512;

/// How to open an embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// The directory that belongs to the store alone; made when absent.
    pub dir: PathBuf,
    /// Most events kept for watchers and old lists.
    pub history_events: usize,
    /// Most bytes of values kept for watchers and old lists.
    pub history_bytes: usize,
    /// How long events are kept for watchers and old lists.
    pub history_age: Duration,
    /// How long all of that is kept; afterwards only the newest `settled_bytes` of it, so that a burst gives its memory
    /// back. Who reconnects later than that and is further behind lists anew.
    pub settles_after: Duration,
    /// Most bytes of values kept beyond `settles_after`.
    pub settled_bytes: usize,
    /// Most bytes of live keys and values; more is refused until something is deleted.
    pub quota_bytes: u64,
    /// The log is replaced by a snapshot when it reaches this size (or twice the live data, if more).
    pub snapshot_log_bytes: u64,
    /// The revision that a store begins with that is made now; one that is there goes on with its own.
    pub first: Revision,
}

impl EmbeddedConfig {
    /// The usual settings for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            history_events: 100_000,
            history_bytes: 64 << 20,
            history_age: Duration::from_secs(600),
            settles_after: Duration::from_secs(5),
            settled_bytes: 1 << 20,
            quota_bytes: engine::default_quota(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            snapshot_log_bytes: 16 << 20,
            first: 0,
        }
    }

    /// Takes the directory, restores what it holds and starts the writer.
    pub fn open(self) -> Result<Embedded, StoreError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let retention = Retention {
            events: self.history_events,
            bytes: self.history_bytes,
            age_ms: millis(self.history_age),
            settles_ms: millis(self.settles_after),
            settled_bytes: self.settled_bytes,
            then: Then::Forgotten,
        };
        let config = EngineConfig {
            dir: self.dir,
            retention,
            quota_bytes: self.quota_bytes,
            snapshot_log_bytes: self.snapshot_log_bytes,
            first: self.first,
            no_sync: false,
        };
        Ok(Embedded { engine: config.open()? })
    }
}

/// A handle to an open embedded store; the last one to go closes it.
#[derive(Clone)]
pub struct Embedded {
    engine: Engine,
}

impl Embedded {
    /// Finishes what was begun, gives the directory back and refuses everything from then on.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// What the engine shares with its readers.
    pub(crate) fn shared(&self) -> &engine::Shared {
        self.engine.shared()
    }

    async fn commit(&self, key: &str, guard: Guard, op: Op) -> Result<Outcome, StoreError> {
        let size = key.len() + if let Op::Put { value, .. } = &op { value.len() } else { 0 };
        if size > MAX_CHANGE {
            return Err(StoreError::TooLarge { size, limit: MAX_CHANGE });
        }
        match self.submit(Work::Guarded(key.into(), guard, op)).await? {
            Answer::Guarded(outcome) => Ok(outcome),
            other => unreachable!("a guarded transaction is answered by its outcome, not {other:?}"),
        }
    }

    async fn submit(&self, work: Work) -> Result<Answer, StoreError> {
        self.engine.submit(work).await.map_err(|refused| match refused {
            Refused::Store(error) => error,
            other => unreachable!("nothing that the trait can ask is refused with {other:?}"),
        })
    }

    fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> Result<Listing, StoreError> {
        self.engine.open()?;
        let (found, remaining, revision) = {
            let index = self.engine.read();
            let revision = at.unwrap_or(index.revision());
            if revision > index.revision() {
                return Err(StoreError::FutureRevision { requested: revision, current: index.revision() });
            }
            if revision < index.floor() {
                return Err(StoreError::Compacted { oldest: index.floor() });
            }
            let (found, remaining) = index.page(prefix, after, limit.unwrap_or(usize::MAX), revision);
            (found, remaining, revision)
        };
        let mut items = Vec::with_capacity(found.len());
        for one in found {
            items.push(KeyValue::from(&*one.read()?));
        }
        Ok(Listing { items, revision, more: remaining > 0, remaining })
    }

    fn stream(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        self.engine.open()?;
        let index = self.engine.read();
        if after > index.revision() {
            return Err(StoreError::FutureRevision { requested: after, current: index.revision() });
        }
        if after < index.floor() {
            return Err(StoreError::Compacted { oldest: index.floor() });
        }
        drop(index);
        let cursor = Cursor {
            shared: self.engine.shared().clone(),
            progress: self.engine.subscribe(),
            prefix: prefix.into(),
            revision: after,
            ended: false,
        };
        Ok(stream::unfold(cursor, Cursor::next).boxed())
    }
}

/// One watcher's place in the history.
struct Cursor {
    shared: Arc<engine::Shared>,
    progress: watch::Receiver<Progress>,
    prefix: String,
    revision: Revision,
    ended: bool,
}

impl Cursor {
    async fn next(mut self) -> Option<(<WatchStream as futures::Stream>::Item, Self)> {
        if self.ended {
            return None;
        }
        loop {
            // Marked as seen before looking, so that a write in between wakes this watcher again.
            let closed = self.progress.borrow_and_update().closed;
            let before = self.revision;
            match self.look() {
                Ok(events) if events.is_empty() && self.revision > before => {
                    return Some((Ok(News::Progress(self.revision)), self));
                }
                Ok(events) if events.is_empty() => {}
                Ok(events) => return Some((Ok(News::Events(events)), self)),
                Err(error) => {
                    self.ended = true;
                    return Some((Err(error), self));
                }
            }
            if closed || self.progress.changed().await.is_err() {
                self.ended = true;
                return Some((Err(StoreError::Closed), self));
            }
        }
    }

    /// What has happened since the last look.
    fn look(&mut self) -> Result<Vec<Arc<Event>>, StoreError> {
        let shared = self.shared.clone();
        loop {
            let (told, reached, newest) = {
                let index = shared.read();
                if self.revision < index.floor() {
                    return Err(StoreError::Compacted { oldest: index.floor() });
                }
                let prefix = self.prefix.as_bytes();
                let (told, reached) =
                    index.events_after(|key| key.starts_with(prefix), self.revision, WATCH_BATCH)?;
                (told, reached, index.revision())
            };
            self.revision = reached;
            if !told.is_empty() || reached >= newest {
                let read = |told: Told| Ok(Arc::new(event(&*told.read()?)));
                return told.into_iter().map(read).collect();
            }
        }
    }
}

impl From<&Kv> for KeyValue {
    fn from(kv: &Kv) -> Self {
        KeyValue {
            key: kv.key.text(),
            value: kv.value.clone(),
            create_revision: kv.create,
            mod_revision: kv.main,
        }
    }
}

/// A change as the trait tells it: of a deletion the last value, with the deletion's revision.
fn event(change: &Change) -> Event {
    let previous = change.previous.as_deref().map(KeyValue::from);
    match (&change.kv, &previous) {
        (Some(kv), _) => Event { kind: EventKind::Put, kv: KeyValue::from(&**kv), previous },
        (None, Some(last)) => {
            let kv = KeyValue { mod_revision: change.main, ..last.clone() };
            Event { kind: EventKind::Delete, kv, previous }
        }
        (None, None) => {
            let kv = KeyValue { key: change.key.text(), ..KeyValue::from(&Kv::nothing(change.main)) };
            Event { kind: EventKind::Delete, kv, previous }
        }
    }
}

impl Store for Embedded {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        async move {
            self.engine.open()?;
            let found = {
                let index = self.engine.read();
                index.get(key.as_bytes(), index.revision())
            };
            Ok(found.map(Found::read).transpose()?.map(|kv| KeyValue::from(&*kv)))
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, StoreError>> {
        async move { self.page(prefix, after, limit, at) }.boxed()
    }

    fn txn<'a>(&'a self, key: &'a str, guard: Guard, op: Op) -> BoxFuture<'a, Result<Outcome, StoreError>> {
        self.commit(key, guard, op).boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        async move { self.stream(prefix, after) }.boxed()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move { self.engine.health() }.boxed()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            self.engine.open()?;
            Ok(self.engine.read().revision())
        }
        .boxed()
    }

    fn compact<'a>(&'a self, before: Revision) -> BoxFuture<'a, Result<(), StoreError>> {
        async move { self.submit(Work::CompactTo(before)).await.map(|_| ()) }.boxed()
    }
}
