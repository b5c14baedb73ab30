//! Decides one batch of transactions, in order, against the newest state. Pure.
//!
//! A later transaction of the batch sees the earlier ones; nothing is visible outside before the
//! whole batch is durable.

use std::collections::HashMap;
use std::sync::Arc;

use super::index::{Entry, Index};
use super::record::{Change, Tag};
use crate::{Guard, KeyValue, Op, Outcome, Revision};

/// The changes decided so far.
pub(crate) struct Batch<'a> {
    index: &'a Index,
    pending: HashMap<Arc<str>, Option<Entry>>,
    changes: Vec<Change>,
    bytes: usize,
    revision: Revision,
}

impl<'a> Batch<'a> {
    /// An empty batch on top of `index`.
    pub(crate) fn new(index: &'a Index) -> Self {
        let revision = index.revision();
        Self { index, pending: HashMap::new(), changes: Vec::new(), bytes: 0, revision }
    }

    /// Bytes the batch will add to the log.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The decided changes, in revision order.
    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// Decides one transaction; its outcome holds once the batch is durable.
    pub(crate) fn decide(&mut self, key: &Arc<str>, guard: Guard, op: Op, now_ms: u64) -> Outcome {
        let current = self.current(key);
        let holds = match (guard, &current) {
            (Guard::Any, _) | (Guard::Absent, None) => true,
            (Guard::ModRevision(wanted), Some(kv)) => kv.mod_revision == wanted,
            (Guard::Absent, Some(_)) | (Guard::ModRevision(_), None) => false,
        };
        if !holds || (current.is_none() && op == Op::Delete) {
            return Outcome::Conflict { current };
        }
        self.revision += 1;
        let revision = self.revision;
        let change = match op {
            Op::Put { value, ttl } => Change {
                tag: Tag::Put,
                revision,
                create_revision: current.as_ref().map_or(revision, |kv| kv.create_revision),
                expires_ms: ttl.map_or(0, |ttl| {
                    let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                    now_ms.saturating_add(ttl).max(1)
                }),
                key: key.clone(),
                value,
            },
            Op::Delete => Change { key: key.clone(), ..Change::marker(Tag::Delete, revision, 0) },
        };
        let entry = (change.tag == Tag::Put).then(|| Entry {
            kv: KeyValue {
                key: change.key.clone(),
                value: change.value.clone(),
                create_revision: change.create_revision,
                mod_revision: revision,
            },
            expires_ms: change.expires_ms,
        });
        self.bytes += change.encoded_len();
        self.pending.insert(key.clone(), entry);
        self.changes.push(change);
        Outcome::Committed { revision, previous: current }
    }

    fn current(&self, key: &str) -> Option<KeyValue> {
        let entry = match self.pending.get(key) {
            Some(entry) => entry.as_ref(),
            None => self.index.get(key),
        };
        entry.map(|entry| entry.kv.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::Retention;
    use super::*;
    use bytes::Bytes;
    use std::time::Duration;

    fn put(value: &'static str) -> Op {
        Op::Put { value: Bytes::from_static(value.as_bytes()), ttl: None }
    }

    #[test]
    fn later_transactions_of_a_batch_see_earlier_ones() {
        let index = Index::new(Retention::of(9, 999, 1));
        let mut batch = Batch::new(&index);
        let key: Arc<str> = "/k".into();
        assert!(matches!(
            batch.decide(&key, Guard::Absent, put("a"), 0),
            Outcome::Committed { revision: 1, previous: None }
        ));
        assert!(matches!(
            batch.decide(&key, Guard::Absent, put("b"), 0),
            Outcome::Conflict { current: Some(kv) } if kv.mod_revision == 1
        ));
        let outcome = batch.decide(&key, Guard::ModRevision(1), put("c"), 0);
        assert!(matches!(outcome, Outcome::Committed { revision: 2, previous: Some(_) }));
        let outcome = batch.decide(&key, Guard::Any, Op::Delete, 0);
        assert!(
            matches!(outcome, Outcome::Committed { revision: 3, previous: Some(kv) } if kv.create_revision == 1)
        );
        assert_eq!(batch.decide(&key, Guard::Any, Op::Delete, 0), Outcome::Conflict { current: None });
        assert_eq!(batch.into_changes().iter().map(|change| change.revision).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_time_to_live_becomes_a_point_in_time() {
        let index = Index::new(Retention::of(9, 999, 1));
        let mut batch = Batch::new(&index);
        let op = Op::Put { value: Bytes::new(), ttl: Some(Duration::from_secs(2)) };
        batch.decide(&"/k".into(), Guard::Any, op, 1_000);
        assert_eq!(batch.into_changes()[0].expires_ms, 3_000);
    }
}
