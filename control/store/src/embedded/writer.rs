//! The one thread that changes the store: decide a batch, make it durable, publish it, answer.
//!
//! Inputs: messages from every handle, and the clock (keys that reached the end of their life).
//! Outputs: the shared index, the revision that watchers wait for, one answer per message. It starts
//! at most one snapshot thread at a time and joins it before it ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::files::DirLock;
use super::index::Index;
use super::log::Log;
use super::plan::Batch;
use super::record::{Change, Header, Tag};
use super::recover::MAX_BATCH;
use super::{Shared, snapshot};
use crate::{Guard, Op, Outcome, Revision, StoreError};

/// What an existing value may grow by in a full store, so that it can be marked and unmarked on its way out.
const GROWTH: usize = 4096;
/// A batch is closed once it holds this much.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// What a handle asks of the writer.
pub(crate) enum Message {
    /// Carry out a transaction.
    Txn(Request),
    /// Forget history before a revision.
    Compact(Revision, oneshot::Sender<()>),
    /// Stop; the answer comes when the directory is free again.
    Close(oneshot::Sender<()>),
}

/// One transaction and who waits for it; nobody waits for an expiry.
pub(crate) struct Request {
    pub(crate) key: Arc<str>,
    pub(crate) guard: Guard,
    pub(crate) op: Op,
    pub(crate) reply: Option<oneshot::Sender<Result<Outcome, StoreError>>>,
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How large things may become.
pub(crate) struct Bounds {
    /// The log, before a snapshot replaces it.
    pub(crate) snapshot_log_bytes: u64,
    /// All live keys and values.
    pub(crate) quota_bytes: u64,
}

struct Snapshotting {
    thread: JoinHandle<Result<(), StoreError>>,
    stop: Arc<AtomicBool>,
}

/// The state only the writer thread touches.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    dir: PathBuf,
    lock: DirLock,
    log: Log,
    inbox: mpsc::Receiver<Message>,
    expiries: BinaryHeap<Reverse<(u64, Arc<str>, Revision)>>,
    bounds: Bounds,
    snapshotting: Option<Snapshotting>,
    /// A failed snapshot is tried again only when the log has grown to this.
    snapshot_not_before: u64,
}

impl Writer {
    /// A writer for a recovered store.
    pub(crate) fn new(
        shared: Arc<Shared>,
        dir: PathBuf,
        lock: DirLock,
        log: Log,
        inbox: mpsc::Receiver<Message>,
        bounds: Bounds,
    ) -> Self {
        let expiries = shared
            .read()
            .entries_after(None)
            .filter(|entry| entry.expires_ms != 0)
            .map(|entry| Reverse((entry.expires_ms, entry.kv.key.clone(), entry.kv.mod_revision)))
            .collect();
        let (snapshotting, snapshot_not_before) = (None, 0);
        Self { shared, dir, lock, log, inbox, expiries, bounds, snapshotting, snapshot_not_before }
    }

    /// Runs until closed or until every handle is gone.
    pub(crate) fn run(mut self) {
        let clock = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime without I/O needs no resource that could be missing");
        let mut messages = Vec::new();
        let closer = loop {
            messages.clear();
            let wait = self.until_next_expiry().into_iter().chain(self.until_settled()).min();
            let received = clock.block_on(async {
                match wait {
                    None => self.inbox.recv_many(&mut messages, MAX_BATCH / 2).await,
                    Some(wait) => {
                        tokio::time::timeout(wait, self.inbox.recv_many(&mut messages, MAX_BATCH / 2))
                            .await
                            .unwrap_or(usize::MAX)
                    }
                }
            });
            if received == 0 {
                break None;
            }
            if let Some(closer) = self.handle(&mut messages) {
                break Some(closer);
            }
        };
        self.finish();
        if let Some(closer) = closer {
            // Ignored: whoever asked may no longer care.
            closer.send(()).ok();
        }
    }

    fn finish(self) {
        let Self { shared, snapshotting, inbox, lock, mut log, .. } = self;
        drop(inbox);
        log.trim();
        if let Some(Snapshotting { thread, stop }) = snapshotting {
            stop.store(true, Ordering::Relaxed);
            // Ignored: an abandoned snapshot leaves only a file that the next open removes.
            thread.join().ok();
        }
        shared.close();
        drop(lock);
    }

    fn until_next_expiry(&self) -> Option<Duration> {
        let Reverse((at, ..)) = self.expiries.peek()?;
        // Looked at again at least once a minute, because the wall clock may be set.
        Some(Duration::from_millis(at.saturating_sub(now_ms()).clamp(1, 60_000)))
    }

    /// A burst of writes leaves a history that nobody needs for long.
    fn until_settled(&self) -> Option<Duration> {
        let at = self.shared.read().settles_at()?;
        Some(Duration::from_millis(at.saturating_sub(now_ms()).clamp(1, 60_000)))
    }

    fn handle(&mut self, messages: &mut Vec<Message>) -> Option<oneshot::Sender<()>> {
        let now = now_ms();
        let mut requests: VecDeque<Request> = self.due(now).collect();
        let mut closer = None;
        let mut compactions = Vec::new();
        for message in messages.drain(..) {
            match message {
                Message::Txn(request) => requests.push_back(request),
                Message::Compact(before, reply) => compactions.push((before, reply)),
                Message::Close(reply) => {
                    closer = Some(reply);
                    break;
                }
            }
        }
        while !requests.is_empty() {
            self.commit(&mut requests, now);
        }
        for (before, reply) in compactions {
            self.shared.write().compact(before);
            // Ignored: whoever asked may no longer care.
            reply.send(()).ok();
        }
        if self.shared.read().settles_at().is_some_and(|at| at <= now) {
            self.shared.write().forget_settled(now);
        }
        self.snapshot_when_due();
        closer
    }

    /// Deletions of keys whose time has come, at most one batch's worth.
    fn due(&mut self, now: u64) -> impl Iterator<Item = Request> + use<> {
        let mut due = Vec::new();
        while due.len() < MAX_BATCH / 2
            && let Some(Reverse((at, ..))) = self.expiries.peek()
            && *at <= now
        {
            let Some(Reverse((_, key, revision))) = self.expiries.pop() else { break };
            due.push(Request { key, guard: Guard::ModRevision(revision), op: Op::Delete, reply: None });
        }
        due.into_iter()
    }

    /// Takes one batch off the front of `requests` and sees it through.
    fn commit(&mut self, requests: &mut VecDeque<Request>, now: u64) {
        let mut answers = Vec::new();
        let changes = {
            let index = self.shared.read();
            let mut batch = Batch::new(&index);
            while answers.len() < MAX_BATCH
                && batch.bytes() < MAX_BATCH_BYTES
                && let Some(request) = requests.pop_front()
            {
                let held = index.live_bytes() + batch.bytes() as u64;
                let outcome = match self.over_quota(&index, held, &request) {
                    Some(error) => Err(error),
                    None => Ok(batch.decide(&request.key, request.guard, request.op, now)),
                };
                answers.push((request.reply, outcome));
            }
            batch.into_changes()
        };
        let written = if changes.is_empty() { Ok(()) } else { self.log.append(&changes) };
        match &written {
            Ok(()) => self.publish(&changes, now),
            Err(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "a batch could not be written");
                if matches!(error, StoreError::Poisoned { .. }) {
                    // Ignored: the first failure is the one to tell.
                    self.shared.broken.set(error.clone()).ok();
                }
                // Expiries of the failed batch must be tried again.
                self.retry_expiries(&changes, now);
            }
        }
        for (reply, outcome) in answers {
            let Some(reply) = reply else { continue };
            // Ignored: a caller that no longer waits does not need the answer.
            reply.send(written.clone().and(outcome)).ok();
        }
    }

    /// Why a request would make the store hold more than it may; what makes it hold less, or hardly more, may pass.
    fn over_quota(&self, index: &Index, held: u64, request: &Request) -> Option<StoreError> {
        let Op::Put { value, .. } = &request.op else { return None };
        let quota = self.bounds.quota_bytes;
        if held + value.len() as u64 <= quota {
            return None;
        }
        let before = index.get(&request.key).map(|entry| entry.kv.value.len());
        let small = before.is_some_and(|before| value.len() <= before + GROWTH);
        (!small).then_some(StoreError::Quota { held, quota })
    }

    fn publish(&mut self, changes: &[Change], now: u64) {
        if changes.is_empty() {
            return;
        }
        let revision = {
            let mut index = self.shared.write();
            changes.iter().for_each(|change| index.apply(change, now));
            index.revision()
        };
        self.shared.announce(revision);
        for change in changes {
            if change.tag == Tag::Put && change.expires_ms != 0 {
                self.expiries.push(Reverse((change.expires_ms, change.key.clone(), change.revision)));
            }
        }
    }

    fn retry_expiries(&mut self, changes: &[Change], now: u64) {
        let index = self.shared.read();
        for change in changes.iter().filter(|change| change.tag == Tag::Delete) {
            if let Some(entry) = index.get(&change.key)
                && entry.expires_ms != 0
            {
                let again = now.saturating_add(1_000).max(entry.expires_ms);
                self.expiries.push(Reverse((again, change.key.clone(), entry.kv.mod_revision)));
            }
        }
    }

    /// Starts a snapshot once the log outweighs the live keys, so that the cost per write stays the
    /// same however many keys there are.
    fn snapshot_when_due(&mut self) {
        if let Some(running) = &self.snapshotting {
            if !running.thread.is_finished() {
                return;
            }
            self.snapshot_ended();
        }
        let (live, revision) = {
            let index = self.shared.read();
            (index.live_bytes(), index.revision())
        };
        if self.log.len() < self.bounds.snapshot_log_bytes.max(2 * live).max(self.snapshot_not_before) {
            return;
        }
        self.snapshot_not_before = self.log.len() + self.bounds.snapshot_log_bytes;
        if let Err(error) = self.log.rotate(revision) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "log not rotated; will retry as it grows"
            );
            return;
        }
        self.snapshot_not_before = 0;
        let (shared, dir, stop) = (self.shared.clone(), self.dir.clone(), Arc::new(AtomicBool::new(false)));
        let header = Header { segment: self.log.segment(), revision };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("store-snapshot".into())
            .spawn(move || snapshot::write(&shared, &dir, header, &stopped));
        match thread {
            Ok(thread) => self.snapshotting = Some(Snapshotting { thread, stop }),
            Err(error) => tracing::warn!(%error, "no snapshot thread; will retry as the log grows"),
        }
    }

    fn snapshot_ended(&mut self) {
        let Some(Snapshotting { thread, .. }) = self.snapshotting.take() else { return };
        match thread.join() {
            Ok(Ok(())) => tracing::debug!(segment = self.log.segment(), "snapshot written"),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "snapshot failed; the log keeps growing"
                );
            }
            Err(_) => tracing::error!("the snapshot thread panicked; the log keeps growing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::Retention;
    use super::super::{Embedded, Inner, Progress};
    use super::*;
    use crate::Store;
    use std::sync::{OnceLock, RwLock};
    use tokio::sync::watch;

    #[tokio::test]
    async fn a_store_whose_log_is_in_doubt_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::new(Retention::of(10, 1000, 1000));
        let (published, _) = watch::channel(Progress { revision: 0, closed: false });
        let shared = Arc::new(Shared { index: RwLock::new(index), published, broken: OnceLock::new() });
        // Nothing can be written to it, and what was cannot be taken back either.
        let device = std::path::PathBuf::from("/dev/full");
        let file = std::fs::OpenOptions::new().write(true).open(&device).unwrap();
        let log = Log::at(dir.path(), device, file, 1, 0);
        let (sender, inbox) = mpsc::channel(4);
        let bounds = Bounds { snapshot_log_bytes: 1 << 20, quota_bytes: 1 << 20 };
        let lock = DirLock::take(dir.path()).unwrap();
        let writer = Writer::new(shared.clone(), dir.path().into(), lock, log, inbox, bounds);
        let thread = std::thread::Builder::new().spawn(move || writer.run()).unwrap();
        let inner = Inner { shared, sender: Some(sender), thread: Some(thread) };
        let store = Embedded { inner: Arc::new(inner) };
        assert!(store.health().await.is_ok());
        let put = Op::Put { value: "x".into(), ttl: None };
        let refused = store.txn("/k", Guard::Any, put).await;
        assert!(matches!(refused, Err(StoreError::Poisoned { .. })), "{refused:?}");
        assert!(matches!(store.health().await, Err(StoreError::Poisoned { .. })));
        assert!(store.revision().await.is_ok(), "reads go on");
    }
}
