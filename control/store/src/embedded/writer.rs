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
use super::log::Log;
use super::plan::Batch;
use super::record::{Change, Header, Tag};
use super::recover::MAX_BATCH;
use super::{Shared, snapshot};
use crate::{Guard, Op, Outcome, Revision, StoreError};

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
    snapshot_log_bytes: u64,
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
        snapshot_log_bytes: u64,
    ) -> Self {
        let expiries = shared
            .read()
            .entries_after(None)
            .filter(|entry| entry.expires_ms != 0)
            .map(|entry| Reverse((entry.expires_ms, entry.kv.key.clone(), entry.kv.mod_revision)))
            .collect();
        let (snapshotting, snapshot_not_before) = (None, 0);
        Self {
            shared,
            dir,
            lock,
            log,
            inbox,
            expiries,
            snapshot_log_bytes,
            snapshotting,
            snapshot_not_before,
        }
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
            let wait = self.until_next_expiry();
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
                let outcome = batch.decide(&request.key, request.guard, request.op, now);
                answers.push((request.reply, outcome));
            }
            batch.into_changes()
        };
        let written = if changes.is_empty() { Ok(()) } else { self.log.append(&changes) };
        match &written {
            Ok(()) => self.publish(&changes, now),
            Err(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "a batch could not be written");
                // Expiries of the failed batch must be tried again.
                self.retry_expiries(&changes, now);
            }
        }
        for (reply, outcome) in answers {
            let Some(reply) = reply else { continue };
            // Ignored: a caller that no longer waits does not need the answer.
            reply.send(written.clone().map(|()| outcome)).ok();
        }
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
        if self.log.len() < self.snapshot_log_bytes.max(2 * live).max(self.snapshot_not_before) {
            return;
        }
        self.snapshot_not_before = self.log.len() + self.snapshot_log_bytes;
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
