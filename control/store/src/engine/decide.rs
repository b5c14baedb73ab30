//! Decides requests, in order, and enters what they change into the index, above what readers see. Pure; time is an argument.
//!
//! A request sees everything that was decided before it, also in the same batch. Nothing is published before the batch is
//! durable; a batch that is not is taken back as a whole.

use std::sync::Arc;

use bytes::Bytes;
use podwire_wire::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use podwire_wire::etcd::request_op::Request as Op;
use podwire_wire::etcd::response_op::Response;
use podwire_wire::etcd::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RequestOp, ResponseOp,
    TxnRequest, TxnResponse,
};

use super::index::Index;
use super::key::{Key, Kv, Place, Span};
use super::leases::{Lease, MAX_TTL};
use super::read;
use super::record::{Change, FRAME_HEADER, Tag};
use super::refused::Refused;
use crate::{Guard, KeyValue, Op as KeyOp, Outcome, Revision, StoreError};

/// The changes decided so far, and where they will lie.
pub(crate) struct Batch {
    pub(crate) changes: Vec<Change>,
    /// Leases that were revoked, to be put back if the batch fails.
    revoked: Vec<(i64, Lease)>,
    granted: Vec<i64>,
    /// Why the batch must not be kept: a transaction of it failed in the middle.
    pub(crate) broken: Option<StoreError>,
    compacted: Option<Revision>,
    file: u32,
    offset: u64,
    bytes: usize,
}

impl Batch {
    /// An empty batch whose frame will lie at `offset` of a file.
    pub(crate) fn new(file: u32, offset: u64) -> Self {
        let (changes, revoked, granted) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            changes,
            revoked,
            granted,
            broken: None,
            compacted: None,
            file,
            offset: offset + FRAME_HEADER,
            bytes: 0,
        }
    }

    /// Bytes the batch will add to the log.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a change and enters it.
    pub(crate) fn write(&mut self, index: &mut Index, change: Change) {
        let len = u32::try_from(change.encoded_len()).expect("a request is bounded well below 4 GiB");
        index.enter(&change, Place { file: self.file, offset: self.offset, len });
        self.offset += u64::from(len);
        self.bytes += len as usize;
        self.changes.push(change);
    }

    /// What the batch compacts.
    pub(crate) fn compacted(&self) -> Option<Revision> {
        self.compacted
    }

    /// Undoes the batch; returns what it would have changed.
    pub(crate) fn take_back(self, index: &mut Index) -> Vec<Change> {
        // Keys are tied to leases again, so these come first.
        for (id, lease) in self.revoked {
            index.leases.restore(id, lease);
        }
        index.take_back();
        for id in self.granted {
            index.leases.remove(id);
        }
        self.changes
    }
}

/// One request on its way: all it changes has one revision.
pub(crate) struct Decision<'a> {
    index: &'a mut Index,
    batch: &'a mut Batch,
    begin: Revision,
    sub: u32,
}

impl<'a> Decision<'a> {
    /// Begins after everything that was decided.
    pub(crate) fn begin(index: &'a mut Index, batch: &'a mut Batch) -> Self {
        let begin = index.decided();
        Self { index, batch, begin, sub: 0 }
    }

    /// The revision of what is seen now.
    fn now(&self) -> Revision {
        if self.sub == 0 { self.begin } else { self.begin + 1 }
    }

    /// The newest revision before this request.
    pub(crate) fn newest(&self) -> Revision {
        self.begin
    }

    fn write(&mut self, tag: Tag, kv: Kv) {
        self.batch.write(self.index, Change::of(tag, self.sub, kv));
        self.sub += 1;
    }

    fn store(&mut self, key: Key, value: Bytes, lease: i64, expires_ms: u64, previous: Option<&Kv>) {
        let main = self.begin + 1;
        let (create, version) = previous.map_or((main, 1), |kv| (kv.create, kv.version + 1));
        let key = previous.map_or(key, |kv| kv.key.clone());
        self.write(Tag::Put, Kv { key, value, create, main, version, lease, expires_ms });
    }

    fn delete(&mut self, key: Key) {
        let main = self.begin + 1;
        self.write(Tag::Delete, Kv { key, ..Kv::nothing(main) });
    }

    /// Writes a key.
    pub(crate) fn put(&mut self, request: PutRequest) -> Result<PutResponse, Refused> {
        // Alone its lease is looked at first, in a transaction last: so upstream words it.
        self.check_lease(&request)?;
        self.check_put(&request)?;
        let previous = self.index.current(&request.key).cloned();
        let old = previous.as_deref();
        // What is kept of the old value shares it; what is new must not keep the buffer that it came in.
        let value = match old {
            Some(old) if request.ignore_value => old.value.clone(),
            _ => Bytes::copy_from_slice(&request.value),
        };
        let lease = old.filter(|_| request.ignore_lease).map_or(request.lease, |old| old.lease);
        self.store(Key::copy(&request.key), value, lease, 0, old);
        let prev_kv = previous.filter(|_| request.prev_kv).map(|kv| read::message(&kv));
        Ok(PutResponse { header: read::header(self.now()), prev_kv })
    }

    fn check_put(&self, request: &PutRequest) -> Result<(), Refused> {
        if (request.ignore_value || request.ignore_lease) && self.index.current(&request.key).is_none() {
            return Err(Refused::KeyNotFound);
        }
        self.check_lease(request)
    }

    fn check_lease(&self, request: &PutRequest) -> Result<(), Refused> {
        if request.lease != 0 && self.index.leases.get(request.lease).is_none() {
            return Err(Refused::LeaseNotFound);
        }
        Ok(())
    }

    /// Deletes the keys of a range.
    pub(crate) fn delete_range(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let old = self.index.live(&Span::new(&request.key, &request.range_end));
        for kv in &old {
            self.delete(kv.key.clone());
        }
        let deleted = i64::try_from(old.len()).unwrap_or(i64::MAX);
        let prev_kvs =
            if request.prev_kv { old.iter().map(|kv| read::message(kv)).collect() } else { Vec::new() };
        DeleteRangeResponse { header: read::header(self.now()), deleted, prev_kvs }
    }

    /// Compares and carries out one branch. What is compared and checked, also in transactions inside, is what was there before
    /// the transaction began.
    pub(crate) fn txn(&mut self, request: TxnRequest) -> Result<TxnResponse, Refused> {
        let path = self.path(&request)?;
        self.check(&request, &path)?;
        let mut answer = match self.carry_out(request, path) {
            Err(Refused::Store(error)) => {
                self.batch.broken = Some(error.clone());
                return Err(error.into());
            }
            other => other?,
        };
        answer.header = read::header(self.now());
        Ok(answer)
    }

    fn path(&self, request: &TxnRequest) -> Result<Path, Refused> {
        let mut succeeded = true;
        for compare in &request.compare {
            succeeded = succeeded && self.compare(compare)?;
        }
        let ops = if succeeded { &request.success } else { &request.failure };
        let mut inside = Vec::new();
        for op in ops {
            if let Some(Op::RequestTxn(request)) = &op.request {
                inside.push(self.path(request)?);
            }
        }
        Ok(Path { succeeded, inside })
    }

    fn compare(&self, compare: &Compare) -> Result<bool, Refused> {
        let span = Span::new(&compare.key, &compare.range_end);
        let found = self.index.live(&span);
        if found.is_empty() {
            // A value that is not there compares with nothing; numbers of a key that is not there are 0.
            return Ok(compare.target() != CompareTarget::Value && holds(compare, &Kv::nothing(0)));
        }
        Ok(found.iter().all(|kv| holds(compare, kv)))
    }

    fn check(&self, request: &TxnRequest, path: &Path) -> Result<(), Refused> {
        let mut inside = path.inside.iter();
        for op in path.ops(request) {
            match &op.request {
                Some(Op::RequestRange(request)) => {
                    // Alone a revision below 0 is the newest; here it is one that is gone.
                    let oldest = self.index.compacted().map_or(-1, read::signed);
                    if request.revision != 0 && request.revision < oldest {
                        return Err(Refused::Compacted);
                    }
                    read::revision(self.index, request.revision, self.begin)?;
                }
                Some(Op::RequestPut(request)) => self.check_put(request)?,
                Some(Op::RequestTxn(request)) => {
                    inside.next().map_or(Ok(()), |path| self.check(request, path))?;
                }
                Some(Op::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, request: TxnRequest, path: Path) -> Result<TxnResponse, Refused> {
        let mut inside = path.inside.into_iter();
        let ops = if path.succeeded { request.success } else { request.failure };
        let mut responses = Vec::with_capacity(ops.len());
        for op in ops {
            let response = match op.request {
                Some(Op::RequestRange(request)) => {
                    let gathered = read::gather(self.index, &request, self.now())?;
                    Some(Response::ResponseRange(read::answer(gathered, &request)?))
                }
                Some(Op::RequestPut(request)) => Some(Response::ResponsePut(self.put(request)?)),
                Some(Op::RequestDeleteRange(request)) => {
                    Some(Response::ResponseDeleteRange(self.delete_range(&request)))
                }
                Some(Op::RequestTxn(request)) => match inside.next() {
                    Some(path) => Some(Response::ResponseTxn(self.carry_out(request, path)?)),
                    None => None,
                },
                None => None,
            };
            responses.push(ResponseOp { response });
        }
        let header = Some(podwire_wire::etcd::ResponseHeader::default());
        Ok(TxnResponse { header, succeeded: path.succeeded, responses })
    }

    /// Grants a lease.
    pub(crate) fn grant(&mut self, id: i64, ttl: i64, now_ms: u64) -> Result<Revision, Refused> {
        if ttl > MAX_TTL {
            return Err(Refused::LeaseTtlTooLarge);
        }
        if self.index.leases.get(id).is_some() {
            return Err(Refused::LeaseExists);
        }
        self.index.leases.grant(id, ttl, now_ms);
        self.batch.granted.push(id);
        self.batch.write(self.index, Change::grant(id, ttl));
        Ok(self.begin)
    }

    /// Ends a lease and deletes its keys, at one revision.
    pub(crate) fn revoke(&mut self, id: i64) -> Result<Revision, Refused> {
        let Some(lease) = self.index.leases.get(id) else { return Err(Refused::LeaseNotFound) };
        let keys: Vec<Key> = lease.keys.iter().cloned().collect();
        for key in keys {
            self.delete(key);
        }
        if let Some(lease) = self.index.leases.remove(id) {
            self.batch.revoked.push((id, lease));
        }
        self.batch.write(self.index, Change::revoke(id));
        Ok(self.now())
    }

    /// Forgets what is older than a revision.
    pub(crate) fn compact(&mut self, before: i64) -> Result<Revision, Refused> {
        let before = u64::try_from(before).unwrap_or(0);
        if self.index.compacted().max(self.batch.compacted).is_some_and(|compacted| before <= compacted) {
            return Err(Refused::Compacted);
        }
        if before > self.index.decided() {
            return Err(Refused::FutureRevision);
        }
        self.batch.write(self.index, Change::marker(Tag::Compact, before));
        self.batch.compacted = Some(before);
        Ok(self.begin)
    }

    /// The trait's transaction: one key, one guard.
    pub(crate) fn guarded(&mut self, key: &Arc<str>, guard: Guard, op: KeyOp, now_ms: u64) -> Outcome {
        let current = self.index.current(key.as_bytes()).cloned();
        let holds = match (guard, &current) {
            (Guard::Any, _) | (Guard::Absent, None) => true,
            (Guard::ModRevision(wanted), Some(kv)) => kv.main == wanted,
            (Guard::Absent, Some(_)) | (Guard::ModRevision(_), None) => false,
        };
        if !holds || (current.is_none() && op == KeyOp::Delete) {
            return Outcome::Conflict { current: current.as_deref().map(KeyValue::from) };
        }
        match op {
            KeyOp::Put { value, ttl } => {
                let expires_ms = ttl.map_or(0, |ttl| {
                    let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                    now_ms.saturating_add(ttl).max(1)
                });
                self.store(Key::Text(key.clone()), value, 0, expires_ms, current.as_deref());
            }
            KeyOp::Delete => self.delete(Key::Text(key.clone())),
        }
        Outcome::Committed { revision: self.now(), previous: current.as_deref().map(KeyValue::from) }
    }
}

/// Which way a transaction goes, and those inside it, in order.
struct Path {
    succeeded: bool,
    inside: Vec<Path>,
}

impl Path {
    fn ops<'r>(&self, request: &'r TxnRequest) -> &'r [RequestOp] {
        if self.succeeded { &request.success } else { &request.failure }
    }
}

/// Whether one key compares as asked.
fn holds(compare: &Compare, kv: &Kv) -> bool {
    let union = compare.target_union.as_ref();
    let ordering = match compare.target() {
        CompareTarget::Value => {
            let wanted = match union {
                Some(TargetUnion::Value(value)) => value.as_ref(),
                _ => &[],
            };
            kv.value.as_ref().cmp(wanted)
        }
        CompareTarget::Create => read::signed(kv.create).cmp(&match union {
            Some(TargetUnion::CreateRevision(wanted)) => *wanted,
            _ => 0,
        }),
        CompareTarget::Mod => read::signed(kv.main).cmp(&match union {
            Some(TargetUnion::ModRevision(wanted)) => *wanted,
            _ => 0,
        }),
        CompareTarget::Version => read::signed(kv.version).cmp(&match union {
            Some(TargetUnion::Version(wanted)) => *wanted,
            _ => 0,
        }),
        CompareTarget::Lease => kv.lease.cmp(&match union {
            Some(TargetUnion::Lease(wanted)) => *wanted,
            _ => 0,
        }),
    };
    match compare.result() {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::NotEqual => ordering.is_ne(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
    }
}
