//! The store on an etcd cluster: the trait over etcd's API v3, as kube-apiserver uses it.
//!
//! `connect` finds a member that answers, `failure` says what went wrong, `lease` gives keys an end, `watch` follows the
//! prefix, `compaction` forgets history together with other API servers. It starts no task: a watch is driven by its reader and
//! compaction by whoever awaits [`Remote::run`]. Values are kept as they are given: who wants upstream's encoding puts it in front.

mod compaction;
mod connect;
mod failure;
mod lease;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use podwire_wire::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use podwire_wire::etcd::request_op::Request as Wanted;
use podwire_wire::etcd::response_op::Response as Given;
use podwire_wire::etcd::{
    self, CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp,
    ResponseHeader, TxnRequest, TxnResponse,
};

pub use self::connect::ClientTls;
use self::connect::Members;
use self::failure::Attempt;
use self::lease::Leases;
use crate::engine::read::signed;
use crate::{Guard, KeyValue, Listing, Op, Outcome, Revision, Store, StoreError, WatchStream};

/// What the API server's keys begin with, whatever they begin with in the cluster.
const ROOT: &str = "/registry";
/// Keys asked for at once when all are wanted: each answer stays far below what gRPC bears.
const PAGE: usize = 2_000;
/// The largest request etcd takes unless it is told otherwise.
const MOST_REQUEST: usize = 3 << 19;
/// How long a member may take to say that it is well.
const HEALTH_WAIT: Duration = Duration::from_secs(2);

/// How to use a cluster.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// The members' client URLs.
    pub servers: Vec<String>,
    /// What https is spoken with.
    pub tls: ClientTls,
    /// What all keys begin with in the cluster.
    pub prefix: String,
    /// How often history is compacted; zero leaves that to others.
    pub compaction_interval: Duration,
    /// How long the first member may take to show up.
    pub start_wait: Duration,
}

impl RemoteConfig {
    /// The usual settings.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            tls: ClientTls::default(),
            prefix: ROOT.into(),
            compaction_interval: Duration::from_secs(300),
            start_wait: Duration::from_secs(20),
        }
    }

    /// Connects, and makes sure that the cluster is one whose promises can be relied on.
    pub async fn connect(self) -> Result<Remote, StoreError> {
        let members = Members::new(&self.servers, &self.tls)?;
        members.check_versions(self.start_wait).await?;
        let prefix = format!("/{}", self.prefix.trim_matches('/'));
        let (sought, leases) = (tokio::sync::watch::Sender::new(0), Leases::default());
        let interval = self.compaction_interval;
        Ok(Remote { inner: Arc::new(Inner { members, prefix, sought, leases, interval }) })
    }
}

/// A store in an etcd cluster; cheap to clone.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    members: Members,
    prefix: String,
    /// The newest revision that somebody wants to have heard of.
    sought: tokio::sync::watch::Sender<Revision>,
    leases: Leases,
    interval: Duration,
}

/// A revision that came over the wire; what cannot be one is none.
fn unsigned(revision: i64) -> Revision {
    u64::try_from(revision).unwrap_or(0)
}

/// A snapshot on its way.
pub(crate) struct Pieces(tonic::Streaming<etcd::SnapshotResponse>);

impl Pieces {
    /// The next piece of the file.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let answer = self.0.message().await;
        let answer = answer.map_err(|status| failure::translate(Attempt::Read, &status))?;
        Ok(answer.map(|answer| answer.blob))
    }
}

impl Remote {
    /// A snapshot of all that the cluster holds, also outside of the prefix, in the cluster's own form.
    pub(crate) async fn snapshot(&self) -> Result<Pieces, StoreError> {
        let asked = self.inner.members.call(Attempt::Read, |member| async move {
            member.maintenance().snapshot(etcd::SnapshotRequest {}).await
        });
        asked.await.map(Pieces)
    }
}

fn revision_of(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(0, |header| unsigned(header.revision))
}

/// The first key behind all that begin with `prefix`.
fn end_of(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|byte| *byte != u8::MAX) else {
        return Bytes::from_static(&[0]);
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

impl Inner {
    /// A key as the cluster has it.
    fn outer(&self, key: &str) -> Bytes {
        match key.strip_prefix(ROOT) {
            Some(rest) if self.prefix != ROOT && rest.starts_with('/') => {
                format!("{}{rest}", self.prefix).into()
            }
            _ => Bytes::copy_from_slice(key.as_bytes()),
        }
    }

    /// The keys that begin with a prefix: the first there can be, and the first behind them.
    fn span(&self, prefix: &str) -> (Bytes, Bytes) {
        let start = self.outer(prefix);
        let end = end_of(&start);
        // An empty key is none.
        (if start.is_empty() { Bytes::from_static(&[0]) } else { start }, end)
    }

    /// A key as the API server has it; none if it is no text, which no API server writes.
    fn inner(&self, key: &[u8]) -> Option<Arc<str>> {
        let key = std::str::from_utf8(key).ok()?;
        match key.strip_prefix(self.prefix.as_str()) {
            Some(rest) if self.prefix != ROOT && rest.starts_with('/') => {
                Some(format!("{ROOT}{rest}").into())
            }
            _ => Some(key.into()),
        }
    }

    fn key_value(&self, kv: etcd::KeyValue) -> Option<KeyValue> {
        let Some(key) = self.inner(&kv.key) else {
            tracing::warn!(key = %kv.key.escape_ascii(), "a key that is no text was left out");
            return None;
        };
        let (create_revision, mod_revision) = (unsigned(kv.create_revision), unsigned(kv.mod_revision));
        Some(KeyValue { key, value: kv.value, create_revision, mod_revision })
    }

    async fn range(&self, request: RangeRequest) -> Result<etcd::RangeResponse, StoreError> {
        let answer = self.members.call(Attempt::Read, |members| {
            let request = request.clone();
            async move { members.kv().range(request).await }
        });
        let (asked, answer) = (request.revision, answer.await);
        answer.map_err(|error| match error {
            StoreError::FutureRevision { current, .. } => {
                StoreError::FutureRevision { requested: unsigned(asked), current }
            }
            other => other,
        })
    }

    async fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> Result<Listing, StoreError> {
        let (prefix, end) = self.span(prefix);
        let behind = |key: &[u8]| Bytes::from([key, &[0]].concat());
        // A key before the prefix is no reason to read what is not asked for.
        let mut key = after.map_or(prefix.clone(), |after| behind(&self.outer(after)).max(prefix.clone()));
        let (mut items, mut revision) = (Vec::new(), at.filter(|at| *at != 0));
        loop {
            let wanted = limit.map_or(PAGE, |limit| limit - items.len());
            let request = RangeRequest {
                key: key.clone(),
                range_end: end.clone(),
                limit: i64::try_from(wanted).unwrap_or(i64::MAX),
                revision: revision.map_or(0, signed),
                count_only: limit == Some(0),
                ..RangeRequest::default()
            };
            let answer = self.range(request).await?;
            let read_at = *revision.get_or_insert(revision_of(answer.header.as_ref()));
            let (told, count) = (answer.kvs.len(), unsigned(answer.count));
            if let Some(last) = answer.kvs.last() {
                key = behind(&last.key);
            }
            items.extend(answer.kvs.into_iter().filter_map(|kv| self.key_value(kv)));
            let remaining = count.saturating_sub(told as u64);
            if remaining == 0 || told == 0 || limit.is_some() {
                return Ok(Listing { items, revision: read_at, more: remaining > 0, remaining });
            }
        }
    }

    async fn newest(&self) -> Result<Revision, StoreError> {
        let key = Bytes::from(format!("{}/health", self.prefix));
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        Ok(revision_of(self.range(request).await?.header.as_ref()))
    }

    async fn commit(&self, key: &str, guard: Guard, op: Op) -> Result<Outcome, StoreError> {
        let key = self.outer(key);
        let size = key.len() + if let Op::Put { value, .. } = &op { value.len() } else { 0 };
        if size > MOST_REQUEST {
            return Err(StoreError::TooLarge { size, limit: MOST_REQUEST });
        }
        let lease = match &op {
            Op::Put { ttl: Some(ttl), .. } => self.leases.lease(&self.members, *ttl).await?,
            _ => 0,
        };
        let request = transaction(&key, guard, op, lease);
        let answer = self.members.call(Attempt::Write, |members| {
            let request = request.clone();
            async move { members.kv().txn(request).await }
        });
        self.outcome(answer.await?)
    }

    /// What became of a transaction of [`transaction`].
    fn outcome(&self, answer: TxnResponse) -> Result<Outcome, StoreError> {
        let revision = revision_of(answer.header.as_ref());
        let given = answer.responses.into_iter().next().and_then(|one| one.response);
        let read = |kv: Option<etcd::KeyValue>| kv.and_then(|kv| self.key_value(kv));
        match given {
            Some(Given::ResponsePut(put)) if answer.succeeded => {
                Ok(Outcome::Committed { revision, previous: read(put.prev_kv) })
            }
            Some(Given::ResponseDeleteRange(gone)) if answer.succeeded && gone.deleted == 0 => {
                Ok(Outcome::Conflict { current: None })
            }
            Some(Given::ResponseDeleteRange(gone)) if answer.succeeded => {
                Ok(Outcome::Committed { revision, previous: read(gone.prev_kvs.into_iter().next()) })
            }
            Some(Given::ResponseRange(found)) if !answer.succeeded => {
                Ok(Outcome::Conflict { current: read(found.kvs.into_iter().next()) })
            }
            _ => {
                Err(StoreError::Refused { reason: "etcd answered a transaction with something else".into() })
            }
        }
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        let revision = signed(before.min(self.newest().await?));
        let request = CompactionRequest { revision, physical: false };
        let done =
            self.members.call(Attempt::Read, |members| async move { members.kv().compact(request).await });
        match done.await {
            // What is gone already is gone.
            Ok(_) | Err(StoreError::Compacted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// One key, one guard, one operation; what the key holds if the guard does not hold.
fn transaction(key: &Bytes, guard: Guard, op: Op, lease: i64) -> TxnRequest {
    let mod_revision = match guard {
        Guard::Any => None,
        Guard::Absent => Some(0),
        Guard::ModRevision(revision) => Some(signed(revision)),
    };
    let compare = mod_revision.map(|revision| Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone(),
        range_end: Bytes::new(),
        target_union: Some(TargetUnion::ModRevision(revision)),
    });
    let wanted = match op {
        Op::Put { value, .. } => {
            // Of a key that is not there nothing is told.
            let prev_kv = guard != Guard::Absent;
            Wanted::RequestPut(PutRequest {
                key: key.clone(),
                value,
                lease,
                prev_kv,
                ..PutRequest::default()
            })
        }
        Op::Delete => {
            let (key, range_end) = (key.clone(), Bytes::new());
            Wanted::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: true })
        }
    };
    let otherwise = Wanted::RequestRange(RangeRequest { key: key.clone(), ..RangeRequest::default() });
    let only = |request| vec![RequestOp { request: Some(request) }];
    TxnRequest { compare: compare.into_iter().collect(), success: only(wanted), failure: only(otherwise) }
}

impl Store for Remote {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        async move {
            let request = RangeRequest { key: self.inner.outer(key), ..RangeRequest::default() };
            let found = self.inner.range(request).await?.kvs.into_iter().next();
            Ok(found.and_then(|kv| self.inner.key_value(kv)))
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
        self.inner.page(prefix, after, limit, at).boxed()
    }

    fn txn<'a>(&'a self, key: &'a str, guard: Guard, op: Op) -> BoxFuture<'a, Result<Outcome, StoreError>> {
        self.inner.commit(key, guard, op).boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        watch::open(self.inner.clone(), prefix, after).boxed()
    }

    /// The newest committed revision. Watches hear of it soon, also if nothing of theirs has changed.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            let newest = self.inner.newest().await?;
            self.inner.sought.send_if_modified(|sought| {
                let further = newest > *sought;
                *sought = newest.max(*sought);
                further
            });
            Ok(newest)
        }
        .boxed()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let asked = tokio::time::timeout(HEALTH_WAIT, self.inner.newest()).await;
            let late = || StoreError::TimedOut { reason: format!("no answer in {HEALTH_WAIT:?}") };
            asked.unwrap_or_else(|_| Err(late())).map(|_| ())
        }
        .boxed()
    }

    fn compact<'a>(&'a self, before: Revision) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.compact(before).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_first_key_that_has_it_not() {
        assert_eq!(end_of(b"/a/"), "/a0");
        assert_eq!(end_of(b"a\xff"), "b");
        assert_eq!(end_of(b"\xff\xff"), Bytes::from_static(&[0]));
        assert_eq!(end_of(b""), Bytes::from_static(&[0]));
    }

    #[tokio::test]
    async fn keys_have_the_prefix_of_the_cluster_there_and_ours_here() {
        let inner = |prefix: &str| Inner {
            members: Members::new(&["http://127.0.0.1:1".into()], &ClientTls::default()).unwrap(),
            prefix: prefix.into(),
            sought: tokio::sync::watch::Sender::new(0),
            leases: Leases::default(),
            interval: Duration::ZERO,
        };
        let (same, other) = (inner(ROOT), inner("/a/b"));
        assert_eq!(same.outer("/registry/pods/x"), "/registry/pods/x");
        assert_eq!(other.outer("/registry/pods/x"), "/a/b/pods/x");
        assert_eq!(other.inner(b"/a/b/pods/x").as_deref(), Some("/registry/pods/x"));
        assert_eq!(same.inner(b"/registry/\xff"), None);
    }

    #[test]
    fn a_transaction_asks_for_what_stood_in_its_way() {
        let key = Bytes::from_static(b"/k");
        let request = transaction(&key, Guard::ModRevision(7), Op::Delete, 0);
        assert_eq!(request.compare[0].target_union, Some(TargetUnion::ModRevision(7)));
        assert!(matches!(&request.failure[0].request, Some(Wanted::RequestRange(range)) if range.key == key));
        let any = transaction(&key, Guard::Any, Op::Put { value: "v".into(), ttl: None }, 9);
        assert!(any.compare.is_empty());
        assert!(
            matches!(&any.success[0].request, Some(Wanted::RequestPut(put)) if put.lease == 9 && put.prev_kv)
        );
    }
}
