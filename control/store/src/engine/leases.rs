//! Leases: who must show up until when, and which keys go with them. Pure; time is an argument.
//!
//! Time is monotonic, in milliseconds since the store was opened: a step of the wall clock revokes nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::key::Key;

/// The longest a lease may last, in seconds.
pub(crate) const MAX_TTL: i64 = 9_000_000_000;

/// One lease.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    /// Seconds that were granted.
    pub(crate) ttl: i64,
    /// When it ends.
    pub(crate) deadline_ms: u64,
    /// What is deleted with it.
    pub(crate) keys: BTreeSet<Key>,
}

impl Lease {
    /// Whole seconds that are left.
    pub(crate) fn remaining(&self, now_ms: u64) -> i64 {
        i64::try_from(self.deadline_ms.saturating_sub(now_ms) / 1000).unwrap_or(i64::MAX)
    }
}

/// All leases.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    by_id: BTreeMap<i64, Lease>,
    /// When to look at which lease; one that was renewed meanwhile is put back.
    due: BinaryHeap<Reverse<(u64, i64)>>,
}

fn deadline(ttl: i64, now_ms: u64) -> u64 {
    now_ms.saturating_add(u64::try_from(ttl).unwrap_or(0).saturating_mul(1000))
}

impl Leases {
    /// The lease, if there is one.
    pub(crate) fn get(&self, id: i64) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    /// Every lease, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Lease)> {
        self.by_id.iter().map(|(id, lease)| (*id, lease))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Grants a lease; one of that number begins anew.
    pub(crate) fn grant(&mut self, id: i64, ttl: i64, now_ms: u64) {
        let deadline_ms = deadline(ttl, now_ms);
        let lease = self.by_id.entry(id).or_insert_with(|| Lease { ttl, deadline_ms, keys: BTreeSet::new() });
        (lease.ttl, lease.deadline_ms) = (ttl, deadline_ms);
        self.due.push(Reverse((deadline_ms, id)));
    }

    /// Forgets a lease.
    pub(crate) fn remove(&mut self, id: i64) -> Option<Lease> {
        self.by_id.remove(&id)
    }

    /// Puts a lease back that was forgotten too early.
    pub(crate) fn restore(&mut self, id: i64, lease: Lease) {
        self.due.push(Reverse((lease.deadline_ms, id)));
        self.by_id.insert(id, lease);
    }

    /// Lets a lease last its full time from now; the seconds it has then, or `None` if there is none.
    pub(crate) fn renew(&mut self, id: i64, now_ms: u64) -> Option<i64> {
        let lease = self.by_id.get_mut(&id)?;
        lease.deadline_ms = deadline(lease.ttl, now_ms);
        Some(lease.ttl)
    }

    /// Ties a key to a lease; 0 is none.
    pub(crate) fn attach(&mut self, id: i64, key: &Key) {
        if id != 0
            && let Some(lease) = self.by_id.get_mut(&id)
        {
            lease.keys.insert(key.clone());
        }
    }

    /// Unties a key.
    pub(crate) fn detach(&mut self, id: i64, key: &Key) {
        if id != 0
            && let Some(lease) = self.by_id.get_mut(&id)
        {
            lease.keys.remove(key);
        }
    }

    /// When the next lease may end.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// At most `most` leases whose time has come; they stay until they are removed, and are told again after a second.
    pub(crate) fn due(&mut self, now_ms: u64, most: usize) -> Vec<i64> {
        let mut ended = Vec::new();
        while ended.len() < most
            && let Some(Reverse((at, id))) = self.due.peek().copied()
            && at <= now_ms
        {
            self.due.pop();
            let Some(lease) = self.by_id.get(&id) else { continue };
            if lease.deadline_ms > now_ms {
                self.due.push(Reverse((lease.deadline_ms, id)));
            } else {
                self.due.push(Reverse((now_ms + 1000, id)));
                ended.push(id);
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_lease_ends_later_and_a_forgotten_one_never() {
        let mut leases = Leases::default();
        leases.grant(7, 10, 0);
        leases.grant(8, 10, 0);
        leases.grant(9, 10, 0);
        assert_eq!(leases.renew(7, 6_000), Some(10));
        leases.remove(9);
        assert_eq!(leases.due(9_999, 9), []);
        assert_eq!(leases.due(10_000, 9), [8]);
        assert_eq!(leases.due(10_500, 9), [], "told a moment ago");
        assert_eq!(leases.due(11_000, 9), [8], "it is still there");
        leases.remove(8);
        assert_eq!(leases.get(7).map(|lease| lease.remaining(11_000)), Some(5));
        assert_eq!(leases.due(16_000, 9), [7]);
        assert_eq!(leases.renew(9, 0), None);
    }
}
