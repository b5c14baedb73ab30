//! The embedded engine: everything in memory, a checksummed log with group commit on disk.
//!
//! One named thread owns all writes (see `writer`); reads look at the shared index. A watcher is only a
//! cursor into the shared history: it never holds the writer up, and when it falls behind the
//! retained history it is told so. It does not replicate: one process has one directory.

mod files;
pub mod hostile;
mod index;
mod log;
mod plan;
mod record;
mod recover;
mod snapshot;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use tokio::sync::{mpsc, oneshot, watch};

use self::files::DirLock;
use self::index::{Index, Retention};
use self::record::MAX_CHANGE;
use self::writer::{Bounds, Message, Request, Writer};
use crate::{Guard, KeyValue, Listing, Op, Outcome, Revision, Store, StoreError, WatchStream};

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
            quota_bytes: default_quota(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            snapshot_log_bytes: 16 << 20,
        }
    }

    /// Takes the directory, restores what it holds and starts the writer.
    pub fn open(self) -> Result<Embedded, StoreError> {
        let lock = DirLock::take(&self.dir)?;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let retention = Retention {
            events: self.history_events,
            bytes: self.history_bytes,
            age_ms: millis(self.history_age),
            settles_ms: millis(self.settles_after),
            settled_bytes: self.settled_bytes,
        };
        let mut index = Index::new(retention);
        let log = recover::recover(&self.dir, &mut index, writer::now_ms())?;
        let (published, _) = watch::channel(Progress { revision: index.revision(), closed: false });
        let shared = Arc::new(Shared { index: RwLock::new(index), published, broken: OnceLock::new() });
        let (sender, inbox) = mpsc::channel(4096);
        let bounds = Bounds { snapshot_log_bytes: self.snapshot_log_bytes, quota_bytes: self.quota_bytes };
        let writer = Writer::new(shared.clone(), self.dir.clone(), lock, log, inbox, bounds);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run())
            .map_err(|source| StoreError::io("start the writer of", self.dir, source))?;
        Ok(Embedded { inner: Arc::new(Inner { shared, sender: Some(sender), thread: Some(thread) }) })
    }
}

/// What etcd keeps at most, or a quarter of the memory in the text of `/proc/meminfo`: everything is in memory.
fn default_quota(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(2 << 30, |kilobytes| (kilobytes * 1024 / 4).clamp(64 << 20, 2 << 30))
}

/// A handle to an open embedded store; the last one to go closes it.
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    sender: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.sender.take();
        if let Some(thread) = self.thread.take() {
            // Ignored: a panic of the writer was reported by the panic hook; nothing is left to undo.
            thread.join().ok();
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    revision: Revision,
    closed: bool,
}

/// What the writer and the readers share.
struct Shared {
    index: RwLock<Index>,
    published: watch::Sender<Progress>,
    /// Why writes cannot be made any more.
    broken: OnceLock<StoreError>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, revision: Revision) {
        self.published.send_modify(|progress| progress.revision = revision);
    }

    fn close(&self) {
        self.published.send_modify(|progress| progress.closed = true);
    }

    fn open(&self) -> Result<(), StoreError> {
        if self.published.borrow().closed { Err(StoreError::Closed) } else { Ok(()) }
    }
}

impl Embedded {
    /// Finishes what was begun, gives the directory back and refuses everything from then on.
    pub async fn close(&self) {
        let (reply, done) = oneshot::channel();
        if self.send(Message::Close(reply)).await.is_ok() {
            // Ignored: an error means that the writer is already gone, which is what was wanted.
            done.await.ok();
        }
    }

    async fn send(&self, message: Message) -> Result<(), StoreError> {
        let sender = self.inner.sender.as_ref().ok_or(StoreError::Closed)?;
        sender.send(message).await.map_err(|_| StoreError::Closed)
    }

    async fn commit(&self, key: &str, guard: Guard, op: Op) -> Result<Outcome, StoreError> {
        let size = key.len() + if let Op::Put { value, .. } = &op { value.len() } else { 0 };
        if size > MAX_CHANGE {
            return Err(StoreError::TooLarge { size, limit: MAX_CHANGE });
        }
        let (reply, answer) = oneshot::channel();
        self.send(Message::Txn(Request { key: key.into(), guard, op, reply: Some(reply) })).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    fn stream(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        self.inner.shared.open()?;
        let index = self.inner.shared.read();
        if after > index.revision() {
            return Err(StoreError::FutureRevision { requested: after, current: index.revision() });
        }
        if after < index.floor() {
            return Err(StoreError::Compacted { oldest: index.floor() });
        }
        drop(index);
        let cursor = Cursor {
            shared: self.inner.shared.clone(),
            progress: self.inner.shared.published.subscribe(),
            prefix: prefix.into(),
            revision: after,
            ended: false,
        };
        Ok(stream::unfold(cursor, Cursor::next).boxed())
    }
}

/// One watcher's place in the history.
struct Cursor {
    shared: Arc<Shared>,
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
            let found = self.shared.read().events_after(&self.prefix, self.revision, WATCH_BATCH);
            match found {
                Ok((events, reached)) => {
                    self.revision = reached;
                    if !events.is_empty() {
                        return Some((Ok(events), self));
                    }
                }
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
}

impl Store for Embedded {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        async move {
            self.inner.shared.open()?;
            Ok(self.inner.shared.read().get(key).map(|entry| entry.kv.clone()))
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
        async move {
            self.inner.shared.open()?;
            self.inner.shared.read().list(prefix, after, limit, at)
        }
        .boxed()
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
        async move {
            self.inner.shared.open()?;
            self.inner.shared.broken.get().map_or(Ok(()), |error| Err(error.clone()))
        }
        .boxed()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            self.inner.shared.open()?;
            Ok(self.inner.shared.read().revision())
        }
        .boxed()
    }

    fn compact<'a>(&'a self, before: Revision) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let (reply, done) = oneshot::channel();
            self.send(Message::Compact(before, reply)).await?;
            done.await.map_err(|_| StoreError::Closed)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_is_etcds_or_what_the_machine_can_hold() {
        assert_eq!(default_quota("MemTotal:       64000000 kB\n"), 2 << 30);
        assert_eq!(default_quota("MemTotal:       2097152 kB\nMemFree: 1 kB\n"), 512 << 20);
        assert_eq!(default_quota("nothing"), 2 << 30);
    }
}
