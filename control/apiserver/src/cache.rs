//! The watch cache: every object's bytes and the latest events of each resource, shared by all readers.
//!
//! One task ([`Caches::run`]) follows the store and is the only writer. Watchers are cursors into a ring
//! of shared events: a slow one costs nobody else, and is cut off when the ring has moved past it.

mod entry;
mod resource;
mod words;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podwire_api::Kind;
use podwire_store::{Event, KeyValue, Revision, Store, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub(crate) use entry::{ChangeKind, Entry, Told};
pub(crate) use entry::{json_frame, partial_frame};
pub(crate) use resource::{ResourceCache, Scope};

use crate::status::{ApiError, Result};

/// Everything that lies in the store starts with this.
const ROOT: &str = "/registry/";
/// How often the caches give back what only a burst needs, while there is something.
const SETTLE_PAUSE: Duration = Duration::from_secs(2);
/// How long a reader waits for a revision that has not been seen yet.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// The caches of all resources.
pub(crate) struct Caches {
    by_prefix: BTreeMap<&'static str, Arc<ResourceCache>>,
    applied: watch::Sender<Revision>,
}

impl Caches {
    /// Reads everything that is stored; events after that arrive through [`Self::run`].
    pub(crate) async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let listing = store.list(ROOT, None, None, None).await?;
        let mut by_prefix = BTreeMap::new();
        for kind in podwire_api::kinds().iter().filter(|kind| !kind.storage_prefix.is_empty()) {
            by_prefix
                .entry(kind.storage_prefix)
                .or_insert_with(|| Arc::new(ResourceCache::new(kind, listing.revision)));
        }
        let caches = Self { by_prefix, applied: watch::Sender::new(listing.revision) };
        for kv in &listing.items {
            if let Some(cache) = caches.of_key(&kv.key) {
                cache.load(kv);
            }
        }
        Ok(caches)
    }

    /// The cache of one kind.
    pub(crate) fn of(&self, kind: &Kind) -> &Arc<ResourceCache> {
        self.by_prefix.get(kind.storage_prefix).expect("every kind of the table has a cache")
    }

    /// The newest revision all caches have seen.
    pub(crate) fn applied(&self) -> Revision {
        *self.applied.borrow()
    }

    fn of_key(&self, key: &str) -> Option<&Arc<ResourceCache>> {
        let (prefix, cache) =
            self.by_prefix.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        key.starts_with(prefix).then_some(cache)
    }

    /// Waits until the caches have seen `revision`; too long a wait is a client's error. Cancel safe.
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<()> {
        if self.applied() >= revision {
            return Ok(());
        }
        let mut seen = self.applied.subscribe();
        let reached = seen.wait_for(|applied| *applied >= revision);
        match tokio::time::timeout(FRESHNESS_WAIT, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ApiError::version_too_large(revision, self.applied())),
        }
    }

    fn apply(&self, events: &[Arc<Event>]) {
        let mut touched: Vec<&Arc<ResourceCache>> = Vec::new();
        for event in events {
            if let Some(cache) = self.of_key(&event.kv.key) {
                cache.apply(event);
                if !touched.iter().any(|other| Arc::ptr_eq(other, cache)) {
                    touched.push(cache);
                }
            }
        }
        if let Some(last) = events.last() {
            self.applied.send_replace(last.revision());
        }
        for cache in touched {
            cache.wake();
        }
    }

    /// Follows the store until `shutdown`; cancel safe between batches.
    pub(crate) async fn run(&self, store: &dyn Store, shutdown: CancellationToken) {
        loop {
            let opened = store.watch(ROOT, self.applied()).await;
            let result = match opened {
                Ok(stream) => self.follow(stream, &shutdown).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => return,
                Err(StoreError::Closed) => return,
                Err(StoreError::Compacted { .. }) => {
                    tracing::warn!(
                        "the store has forgotten what the cache has not heard yet; reading all again"
                    );
                    if let Err(error) = self.reload(store).await {
                        tracing::error!(error = %crate::error_chain(&error), "the stored objects could not be read");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
                Err(error) => {
                    tracing::error!(error = %crate::error_chain(&error), "the watch on the store ended; trying again");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Starts over from what is stored now; all watchers have to as well.
    async fn reload(&self, store: &dyn Store) -> Result<(), StoreError> {
        let listing = store.list(ROOT, None, None, None).await?;
        let mut of_each: BTreeMap<&'static str, Vec<&KeyValue>> = BTreeMap::new();
        for kv in &listing.items {
            if let Some(cache) = self.of_key(&kv.key) {
                of_each.entry(cache.kind().storage_prefix).or_default().push(kv);
            }
        }
        for (prefix, cache) in &self.by_prefix {
            cache.replace(of_each.get(prefix).map(Vec::as_slice).unwrap_or_default(), listing.revision);
        }
        self.applied.send_replace(listing.revision);
        for cache in self.by_prefix.values() {
            cache.wake();
        }
        Ok(())
    }

    async fn follow(
        &self,
        mut stream: podwire_store::WatchStream,
        shutdown: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut next = None;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => next = self.settle(),
                batch = stream.next() => match batch {
                    Some(Ok(events)) => {
                        self.apply(&events);
                        // It may wait for something that is due long after this.
                        let soon = Instant::now() + SETTLE_PAUSE;
                        next = Some(next.map_or(soon, |next| next.min(soon)));
                    }
                    Some(Err(error)) => return Err(error),
                    None => return Err(StoreError::Closed),
                },
            }
        }
    }

    /// Lets every cache give back what it needs no more; when to do it again.
    fn settle(&self) -> Option<Instant> {
        let now = Instant::now();
        let due = self.by_prefix.values().filter_map(|cache| cache.settle(now)).min()?;
        Some(due.max(now + SETTLE_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use podwire_store::EventKind;
    use serde_json::json;

    use super::*;

    fn put(revision: Revision) -> Arc<Event> {
        let object =
            json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"key": "x".repeat(10_000)}});
        let kv = KeyValue {
            key: "/registry/configmaps/default/a".into(),
            value: crate::codec::encode(&object),
            create_revision: 1,
            mod_revision: revision,
        };
        Arc::new(Event { kind: EventKind::Put, kv, previous: None })
    }

    #[tokio::test(start_paused = true)]
    async fn each_burst_is_settled_soon_after_it() {
        let kind = crate::core::kind("", "v1", "configmaps");
        let cache = Arc::new(ResourceCache::new(kind, 0));
        let by_prefix = [(kind.storage_prefix, cache.clone())].into();
        let caches = Caches { by_prefix, applied: watch::Sender::new(0) };
        let (tell, heard) = tokio::sync::mpsc::channel(1);
        let stream = futures::stream::unfold(heard, |mut heard| async { Some((heard.recv().await?, heard)) });
        let shutdown = CancellationToken::new();
        let bursts = async {
            // The second one comes while the first waits to become old.
            for burst in 0..2 {
                let events: Vec<_> = (1..=400).map(|number| put(burst * 400 + number)).collect();
                tell.send(Ok(events)).await.unwrap();
                caches.wait_for(burst * 400 + 400).await.unwrap();
                assert!(cache.cursor_after(burst * 400 + 1).is_ok(), "all of it is there at first");
                tokio::time::sleep(Duration::from_secs(8)).await;
                assert!(cache.cursor_after(burst * 400 + 1).is_err(), "burst {burst} was given back");
            }
            shutdown.cancel();
        };
        let (followed, ()) = tokio::join!(caches.follow(stream.boxed(), &shutdown), bursts);
        followed.unwrap();
    }
}
