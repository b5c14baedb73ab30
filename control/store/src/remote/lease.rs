//! Leases for keys with an end, shared by keys that end at about the same time: a lease each would be a burden to etcd.
//!
//! As upstream's API server does it: a lease lasts a twentieth longer than asked, a minute at most, and for that long further keys join it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use podwire_wire::etcd::LeaseGrantRequest;
use tokio::time::Instant;

use super::connect::Members;
use super::failure::Attempt;
use crate::StoreError;

/// Most keys of one lease.
const MOST_KEYS: usize = 1_000;
/// The longest that a key may outlive what was asked.
const MOST_WINDOW: u64 = 60;

/// A lease that others may join.
struct Shared {
    id: i64,
    /// Who comes later needs another.
    until: Instant,
    keys: usize,
}

/// The leases that can be joined, by the seconds that were asked for.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<u64, Shared>>);

/// The seconds that were asked for, and those that are granted beyond them.
fn seconds(ttl: Duration) -> (u64, u64) {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    (whole.max(1), (whole / 20).min(MOST_WINDOW))
}

impl Leases {
    /// A lease that lasts at least `ttl`.
    pub(super) async fn lease(&self, members: &Members, ttl: Duration) -> Result<i64, StoreError> {
        let (asked, window) = seconds(ttl);
        if let Some(id) = self.join(asked, Instant::now()) {
            return Ok(id);
        }
        // Counted from before the request: it is granted later than that.
        let begun = Instant::now();
        let request = LeaseGrantRequest { ttl: i64::try_from(asked + window).unwrap_or(i64::MAX), id: 0 };
        // One that is granted and never used ends by itself.
        let granted =
            members.call(Attempt::Read, |members| async move { members.lease().lease_grant(request).await });
        let id = granted.await?.id;
        let shared = Shared { id, until: begun + Duration::from_secs(window), keys: 1 };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(asked, shared);
        Ok(id)
    }

    fn join(&self, asked: u64, now: Instant) -> Option<i64> {
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        leases.retain(|_, shared| shared.until > now && shared.keys < MOST_KEYS);
        let shared = leases.get_mut(&asked)?;
        shared.keys += 1;
        Some(shared.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_share_a_lease_for_its_window_and_no_more_than_it_bears() {
        assert_eq!(seconds(Duration::from_secs(3600)), (3600, 60));
        assert_eq!(seconds(Duration::from_secs(100)), (100, 5));
        assert_eq!(seconds(Duration::from_millis(1500)), (2, 0));
        let leases = Leases::default();
        let now = Instant::now();
        let put = |keys| {
            let shared = Shared { id: 7, until: now + Duration::from_secs(60), keys };
            leases.0.lock().unwrap().insert(3600, shared);
        };
        put(1);
        assert_eq!(leases.join(3600, now), Some(7));
        assert_eq!(leases.join(60, now), None);
        assert_eq!(leases.join(3600, now + Duration::from_secs(60)), None);
        put(MOST_KEYS);
        assert_eq!(leases.join(3600, now), None);
    }
}
