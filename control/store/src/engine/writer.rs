//! The one thread that changes the store: decide a batch, make it durable, publish it, answer.
//!
//! Inputs: messages from every handle, and the clock (keys and leases that reached the end of their life).
//! Outputs: the shared index, the revision that watchers wait for, one answer per message. It starts
//! at most one snapshot thread at a time and joins it before it ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podwire_wire::etcd::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    TxnRequest, TxnResponse,
};
use tokio::sync::{mpsc, oneshot};

use super::decide::{Batch, Decision};
use super::files::DirLock;
use super::index::{Index, Then};
use super::key::Key;
use super::read;
use super::record::{Header, Tag};
use super::recover::{MAX_BATCH, Recovered};
use super::refused::Refused;
use super::{Shared, snapshot};
use crate::{Guard, Op, Outcome, Revision, StoreError};

/// What an existing value may grow by in a full store, so that it can be marked and unmarked on its way out.
const GROWTH: usize = 4096;
/// A batch is closed once it holds this much.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// A segment of the log is closed once it is this large.
const MAX_SEGMENT: u64 = 64 << 20;
/// Versions that are forgotten between two batches.
const FORGET: usize = 2000;

/// What a handle asks of the writer.
pub(crate) enum Message {
    /// Carry out a request.
    Do(Request),
    /// Stop; the answer comes when the directory is free again.
    Close(oneshot::Sender<()>),
}

/// One request and who waits for it; nobody waits for an expiry.
pub(crate) struct Request {
    pub(crate) work: Work,
    pub(crate) reply: Option<Reply>,
}

/// Who waits for an answer.
pub(crate) type Reply = oneshot::Sender<Result<Answer, Refused>>;

/// What can be asked for.
pub(crate) enum Work {
    /// The trait's transaction.
    Guarded(Arc<str>, Guard, Op),
    Put(PutRequest),
    DeleteRange(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    /// The trait's compaction: what is gone already is no failure.
    CompactTo(Revision),
    /// A lease of this number for so many seconds.
    Grant(i64, i64),
    Revoke(i64),
}

/// What is answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Guarded(Outcome),
    Put(PutResponse),
    DeleteRange(DeleteRangeResponse),
    Txn(TxnResponse),
    Compact(CompactionResponse),
    /// The newest revision after it was done.
    Done(Revision),
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
    /// All live keys and values; as an etcd everything that can still be asked for.
    pub(crate) quota_bytes: u64,
}

/// Time that only grows, in milliseconds since the store was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Begins at 0.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since it began.
    pub(crate) fn now_ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

struct Snapshotting {
    thread: JoinHandle<Result<Option<u64>, StoreError>>,
    stop: Arc<AtomicBool>,
}

/// The state only the writer thread touches.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    dir: PathBuf,
    lock: DirLock,
    log: super::log::Log,
    /// The number of the log's file in the index.
    file: u32,
    /// Bytes of the log since the last snapshot, without the open segment's.
    log_bytes: u64,
    inbox: mpsc::Receiver<Message>,
    expiries: BinaryHeap<Reverse<(u64, Key, Revision)>>,
    bounds: Bounds,
    snapshotting: Option<Snapshotting>,
    /// A failed snapshot is tried again only when the log has grown to this.
    snapshot_not_before: u64,
    /// Whether there are compacted versions to forget,
    forgetting: bool,
    /// and who waits for that.
    forgotten: Vec<(Reply, Answer)>,
}

impl Writer {
    /// A writer for a recovered store.
    pub(crate) fn new(
        shared: Arc<Shared>,
        dir: PathBuf,
        lock: DirLock,
        recovered: Recovered,
        inbox: mpsc::Receiver<Message>,
        bounds: Bounds,
    ) -> Self {
        let expiries =
            shared.read().expiring().map(|kv| Reverse((kv.expires_ms, kv.key.clone(), kv.main))).collect();
        let Recovered { log, file, log_bytes } = recovered;
        let (snapshotting, snapshot_not_before) = (None, 0);
        let (forgetting, forgotten) = (false, Vec::new());
        Self {
            shared,
            dir,
            lock,
            log,
            file,
            log_bytes,
            inbox,
            expiries,
            bounds,
            snapshotting,
            snapshot_not_before,
            forgetting,
            forgotten,
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
            let wait = self.wait();
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

    /// How long nothing has to be done unless somebody asks.
    fn wait(&self) -> Option<Duration> {
        if self.forgetting {
            return Some(Duration::ZERO);
        }
        let (settles, lease) = {
            let index = self.shared.read();
            (index.settles_at(), index.leases.next_due())
        };
        // Looked at again at least once a minute, because the wall clock may be set.
        let until = |at: u64, now: u64| Duration::from_millis(at.saturating_sub(now).clamp(1, 60_000));
        let expiry = self.expiries.peek().map(|Reverse((at, ..))| *at);
        let wall = expiry.into_iter().chain(settles).map(|at| until(at, now_ms()));
        wall.chain(lease.map(|at| until(at, self.shared.clock.now_ms()))).min()
    }

    fn handle(&mut self, messages: &mut Vec<Message>) -> Option<oneshot::Sender<()>> {
        let now = now_ms();
        let mut requests: VecDeque<Request> = self.due(now);
        let mut closer = None;
        for message in messages.drain(..) {
            match message {
                Message::Do(request) => requests.push_back(request),
                Message::Close(reply) => {
                    closer = Some(reply);
                    break;
                }
            }
        }
        while !requests.is_empty() {
            self.commit(&mut requests, now);
        }
        if self.shared.read().settles_at().is_some_and(|at| at <= now) {
            self.shared.write().let_settle(now);
        }
        self.forget();
        self.snapshot_when_due();
        closer
    }

    /// Forgets some of what was compacted.
    fn forget(&mut self) {
        if self.forgetting {
            self.forgetting = self.shared.write().forget(FORGET);
        }
        if !self.forgetting {
            for (reply, answer) in self.forgotten.drain(..) {
                // Ignored: a caller that no longer waits does not need the answer.
                reply.send(Ok(answer)).ok();
            }
        }
    }

    /// What the clock asks for, at most one batch's worth: keys and leases whose time has come.
    fn due(&mut self, now: u64) -> VecDeque<Request> {
        let mut due = VecDeque::new();
        while due.len() < MAX_BATCH / 4
            && let Some(Reverse((at, ..))) = self.expiries.peek()
            && *at <= now
        {
            let Some(Reverse((_, key, revision))) = self.expiries.pop() else { break };
            let work = Work::Guarded(key.text(), Guard::ModRevision(revision), Op::Delete);
            due.push_back(Request { work, reply: None });
        }
        let clock = self.shared.clock.now_ms();
        let ended = self.shared.read().leases.next_due().is_some_and(|at| at <= clock);
        if ended {
            let ended = self.shared.write().leases.due(clock, MAX_BATCH / 4);
            due.extend(ended.into_iter().map(|id| Request { work: Work::Revoke(id), reply: None }));
        }
        due
    }

    /// Takes one batch off the front of `requests` and sees it through.
    fn commit(&mut self, requests: &mut VecDeque<Request>, now: u64) {
        let mut answers = Vec::new();
        let batch = {
            let mut index = self.shared.write();
            let mut batch = Batch::new(self.file, self.log.len());
            while answers.len() < MAX_BATCH
                && batch.bytes() < MAX_BATCH_BYTES
                && batch.broken.is_none()
                && let Some(request) = requests.pop_front()
            {
                let waits = matches!(&request.work, Work::Compact(request) if request.physical);
                let answer = self.decide(&mut index, &mut batch, request.work, now);
                answers.push((request.reply, waits, answer));
            }
            batch
        };
        let written = match &batch.broken {
            Some(error) => Err(error.clone()),
            None if batch.changes.is_empty() => Ok(()),
            None => self.log.append(&batch.changes),
        };
        match &written {
            Ok(()) => self.publish(&batch, now),
            Err(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "a batch could not be written");
                if matches!(error, StoreError::Poisoned { .. }) {
                    // Ignored: the first failure is the one to tell.
                    self.shared.broken.set(error.clone()).ok();
                }
                let changes = batch.take_back(&mut self.shared.write());
                // Expiries of the failed batch must be tried again.
                self.retry_expiries(&changes, now);
            }
        }
        for (reply, waits, answer) in answers {
            let Some(reply) = reply else { continue };
            let answer = match (&written, answer) {
                (Err(error), _) => Err(error.clone().into()),
                (Ok(()), Ok(answer)) if waits => {
                    self.forgotten.push((reply, answer));
                    continue;
                }
                (Ok(()), answer) => answer,
            };
            // Ignored: a caller that no longer waits does not need the answer.
            reply.send(answer).ok();
        }
    }

    fn decide(&self, index: &mut Index, batch: &mut Batch, work: Work, now: u64) -> Result<Answer, Refused> {
        self.check_room(index, batch, &work)?;
        let mut decision = Decision::begin(index, batch);
        Ok(match work {
            Work::Guarded(key, guard, op) => Answer::Guarded(decision.guarded(&key, guard, op, now)),
            Work::Put(request) => Answer::Put(decision.put(request)?),
            Work::DeleteRange(request) => Answer::DeleteRange(decision.delete_range(&request)),
            Work::Txn(request) => Answer::Txn(decision.txn(request)?),
            Work::Compact(request) => {
                let revision = decision.compact(request.revision)?;
                Answer::Compact(CompactionResponse { header: read::header(revision) })
            }
            Work::CompactTo(before) => {
                // Ignored: what is gone already is gone.
                decision.compact(read::signed(before.min(decision.newest()))).ok();
                Answer::Done(before)
            }
            Work::Grant(id, ttl) => Answer::Done(decision.grant(id, ttl, self.shared.clock.now_ms())?),
            Work::Revoke(id) => Answer::Done(decision.revoke(id)?),
        })
    }

    /// Refuses what would make the store hold more than it may; what makes it hold less, or hardly more, may pass.
    fn check_room(&self, index: &Index, batch: &Batch, work: &Work) -> Result<(), Refused> {
        let quota = self.bounds.quota_bytes;
        match work {
            Work::Guarded(key, _, Op::Put { value, .. }) => {
                // What the batch adds is in the index already.
                let held = index.live_bytes();
                if held + value.len() as u64 <= quota {
                    return Ok(());
                }
                let before = index.current(key.as_bytes()).map(|kv| kv.value.len());
                let small = before.is_some_and(|before| value.len() <= before + GROWTH);
                if small { Ok(()) } else { Err(StoreError::Quota { held, quota }.into()) }
            }
            Work::Put(_) | Work::Txn(_) | Work::Grant(..) if index.then() == Then::OnDisk => {
                if index.held_bytes() + batch.bytes() as u64 > quota {
                    self.shared.alarm.store(true, Ordering::Relaxed);
                }
                let writes = !matches!(work, Work::Txn(request) if !super::check::puts(request));
                if writes && self.shared.alarm.load(Ordering::Relaxed) {
                    Err(Refused::NoSpace)
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    fn publish(&mut self, batch: &Batch, now: u64) {
        if batch.changes.is_empty() {
            return;
        }
        let revision = {
            let mut index = self.shared.write();
            index.publish(now);
            if let Some(compacted) = batch.compacted() {
                index.compact(compacted);
                self.forgetting = true;
            }
            index.revision()
        };
        self.shared.announce(revision);
        for change in &batch.changes {
            if change.tag == Tag::Put && change.kv.expires_ms != 0 {
                self.expiries.push(Reverse((change.kv.expires_ms, change.kv.key.clone(), change.kv.main)));
            }
        }
    }

    fn retry_expiries(&mut self, changes: &[super::record::Change], now: u64) {
        let index = self.shared.read();
        for change in changes.iter().filter(|change| change.tag == Tag::Delete) {
            if let Some(kv) = index.current(change.kv.key.as_bytes())
                && kv.expires_ms != 0
            {
                let again = now.saturating_add(1_000).max(kv.expires_ms);
                self.expiries.push(Reverse((again, kv.key.clone(), kv.main)));
            }
        }
    }

    /// Starts a snapshot once the log outweighs what must be kept, so that the cost per write stays the
    /// same however many keys there are.
    fn snapshot_when_due(&mut self) {
        if let Some(running) = &self.snapshotting {
            if !running.thread.is_finished() {
                self.rotate_when_large();
                return;
            }
            self.snapshot_ended();
        }
        let (kept, revision) = {
            let index = self.shared.read();
            let kept = if index.then() == Then::OnDisk { index.held_bytes() } else { index.live_bytes() };
            (kept, index.revision())
        };
        let log_bytes = self.log_bytes + self.log.len();
        if log_bytes < self.bounds.snapshot_log_bytes.max(2 * kept).max(self.snapshot_not_before) {
            self.rotate_when_large();
            return;
        }
        self.snapshot_not_before = log_bytes + self.bounds.snapshot_log_bytes;
        if !self.rotate() {
            return;
        }
        self.snapshot_not_before = 0;
        self.log_bytes = 0;
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

    fn rotate_when_large(&mut self) {
        if self.log.len() >= MAX_SEGMENT {
            self.rotate();
        }
    }

    /// Goes on in a new segment; whether it could.
    fn rotate(&mut self) -> bool {
        let (revision, length) = (self.shared.read().revision(), self.log.len());
        let rotated = self.log.rotate(revision).and_then(|()| self.log.reader());
        match rotated {
            Ok(reader) => {
                self.log_bytes += length;
                self.file = self.shared.write().add_file(reader);
                true
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "log not rotated; will retry as it grows"
                );
                false
            }
        }
    }

    fn snapshot_ended(&mut self) {
        let Some(Snapshotting { thread, .. }) = self.snapshotting.take() else { return };
        match thread.join() {
            Ok(Ok(_)) => tracing::debug!(segment = self.log.segment(), "snapshot written"),
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
    use super::super::log::Log;
    use super::super::{Engine, Inner};
    use super::*;

    #[tokio::test]
    async fn a_store_whose_log_is_in_doubt_says_so_and_keeps_nothing_of_the_batch() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = Index::new(super::super::tests::retention());
        // Nothing can be written to it, and what was cannot be taken back either.
        let device = std::path::PathBuf::from("/dev/full");
        let file = std::fs::OpenOptions::new().write(true).open(&device).unwrap();
        let log = Log::at(dir.path(), device, file, 1, 0);
        let file = index.add_file(log.reader().unwrap());
        let shared = Arc::new(Shared::new(index));
        let (sender, inbox) = mpsc::channel(4);
        let bounds = Bounds { snapshot_log_bytes: 1 << 20, quota_bytes: 1 << 20 };
        let lock = DirLock::take(dir.path()).unwrap();
        let recovered = Recovered { log, file, log_bytes: 0 };
        let writer = Writer::new(shared.clone(), dir.path().into(), lock, recovered, inbox, bounds);
        let thread = std::thread::Builder::new().spawn(move || writer.run()).unwrap();
        let engine = Engine { inner: Arc::new(Inner { shared, sender: Some(sender), thread: Some(thread) }) };
        assert!(engine.health().is_ok());
        let put = PutRequest { key: "k".into(), value: "x".into(), ..PutRequest::default() };
        let refused = engine.submit(Work::Put(put)).await;
        assert!(matches!(refused, Err(Refused::Store(StoreError::Poisoned { .. }))), "{refused:?}");
        assert!(matches!(engine.health(), Err(StoreError::Poisoned { .. })));
        let index = engine.read();
        assert_eq!(
            (index.decided(), index.key_count(), index.live_bytes(), index.held_bytes()),
            (0, 0, 0, 0)
        );
    }
}
