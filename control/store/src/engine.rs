//! The engine: keys and their versions in memory and on disk, a checksummed log with group commit.
//!
//! One named thread owns all writes (see `writer`); reads look at the shared index. A watcher is only a
//! cursor into the shared history: it never holds the writer up, and when it falls behind what is kept it is told so.
//! It does not replicate: one process has one directory.

pub(crate) mod check;
mod decide;
pub(crate) mod disk;
pub(crate) mod export;
pub(crate) mod files;
pub(crate) mod index;
pub(crate) mod key;
pub(crate) mod leases;
pub(crate) mod log;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod refused;
mod snapshot;
pub(crate) mod writer;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot, watch};

use self::files::DirLock;
use self::index::{Index, Retention};
use self::refused::Refused;
use self::writer::{Answer, Bounds, Clock, Message, Request, Work, Writer};
use crate::{Revision, StoreError};

/// How to open a store.
#[derive(Debug, Clone)]
pub(crate) struct EngineConfig {
    pub(crate) dir: PathBuf,
    pub(crate) retention: Retention,
    pub(crate) quota_bytes: u64,
    /// The log is replaced by a snapshot when it reaches this size (or twice what must be kept, if more).
    pub(crate) snapshot_log_bytes: u64,
    /// The revision of an empty store.
    pub(crate) first: Revision,
    /// Acknowledge what a power cut may still lose.
    pub(crate) no_sync: bool,
}

impl EngineConfig {
    /// Takes the directory, restores what it holds and starts the writer.
    pub(crate) fn open(self) -> Result<Engine, StoreError> {
        let lock = DirLock::take(&self.dir)?;
        let mut index = Index::new(self.retention);
        let mut recovered = recover::recover(&self.dir, &mut index, self.first, writer::now_ms())?;
        recovered.log = recovered.log.without_sync(self.no_sync);
        let shared = Arc::new(Shared::new(index));
        let (sender, inbox) = mpsc::channel(4096);
        let bounds = Bounds { snapshot_log_bytes: self.snapshot_log_bytes, quota_bytes: self.quota_bytes };
        let writer = Writer::new(shared.clone(), self.dir.clone(), lock, recovered, inbox, bounds);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run())
            .map_err(|source| StoreError::io("start the writer of", self.dir, source))?;
        Ok(Engine { inner: Arc::new(Inner { shared, sender: Some(sender), thread: Some(thread) }) })
    }
}

/// What etcd keeps at most, or a quarter of the memory in the text of `/proc/meminfo`: all keys are in memory.
pub(crate) fn default_quota(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(2 << 30, |kilobytes| (kilobytes * 1024 / 4).clamp(64 << 20, 2 << 30))
}

/// A handle to an open store; the last one to go closes it.
#[derive(Clone)]
pub(crate) struct Engine {
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

/// How far the store has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) revision: Revision,
    pub(crate) closed: bool,
}

/// What the writer and the readers share.
pub(crate) struct Shared {
    index: RwLock<Index>,
    published: watch::Sender<Progress>,
    /// Why writes cannot be made any more.
    broken: OnceLock<StoreError>,
    /// Whether the store is out of space, until somebody says otherwise.
    pub(crate) alarm: AtomicBool,
    /// What leases are timed by.
    pub(crate) clock: Clock,
}

impl Shared {
    fn new(index: Index) -> Self {
        let (published, _) = watch::channel(Progress { revision: index.revision(), closed: false });
        let (broken, alarm) = (OnceLock::new(), AtomicBool::new(false));
        Self { index: RwLock::new(index), published, broken, alarm, clock: Clock::start() }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, revision: Revision) {
        self.published.send_modify(|progress| progress.revision = revision);
    }

    fn close(&self) {
        self.published.send_modify(|progress| progress.closed = true);
    }
}

impl Engine {
    /// What both doors share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// The index, to be read.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.inner.shared.read()
    }

    /// Whether the store is open.
    pub(crate) fn open(&self) -> Result<(), StoreError> {
        if self.inner.shared.published.borrow().closed { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Whether writes can be made.
    pub(crate) fn health(&self) -> Result<(), StoreError> {
        self.open()?;
        self.inner.shared.broken.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Hears of every published revision.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Progress> {
        self.inner.shared.published.subscribe()
    }

    /// Has something done; not cancel safe: what was sent may still be done.
    pub(crate) async fn submit(&self, work: Work) -> Result<Answer, Refused> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Do(Request { work, reply: Some(reply) })).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Finishes what was begun, gives the directory back and refuses everything from then on.
    pub(crate) async fn close(&self) {
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
}

#[cfg(test)]
mod tests {
    use super::index::Then;
    use super::*;

    /// Bounds without a rule for what has settled.
    pub(super) fn retention() -> Retention {
        Retention {
            events: 1000,
            bytes: 1 << 20,
            age_ms: 60_000,
            settles_ms: u64::MAX,
            settled_bytes: usize::MAX,
            then: Then::Forgotten,
        }
    }

    #[test]
    fn the_quota_is_etcds_or_what_the_machine_can_hold() {
        assert_eq!(default_quota("MemTotal:       64000000 kB\n"), 2 << 30);
        assert_eq!(default_quota("MemTotal:       2097152 kB\nMemFree: 1 kB\n"), 512 << 20);
        assert_eq!(default_quota("nothing"), 2 << 30);
    }
}
