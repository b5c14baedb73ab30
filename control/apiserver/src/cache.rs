//! The watch cache: every object's bytes and the latest events of each resource, shared by all readers.
//!
//! One task ([`Caches::run`]) follows the store and is the only writer. Watchers are cursors into a ring
//! of shared events: a slow one costs nobody else, and is cut off when the ring has moved past it.
//! Kinds come and go while it runs: the same task takes in what is stored of a new one ([`Caches::add`]).

mod entry;
mod resource;
mod words;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use podwire_api::{Kind, Registry, Text};
use podwire_store::{Event, KeyValue, News, Revision, Store, StoreError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub(crate) use entry::{ChangeKind, Entry, Told};
pub(crate) use entry::{binary_frame, json_frame, partial_frame};
pub(crate) use resource::{ResourceCache, Scope, wanted};

use crate::encryption;
use crate::status::{ApiError, Result};

/// Everything that lies in the store starts with this.
const ROOT: &str = "/registry/";
/// How often the caches give back what only a burst needs, while there is something.
const SETTLE_PAUSE: Duration = Duration::from_secs(2);
/// How long a reader waits for a revision that has not been seen yet.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

type ByPrefix = BTreeMap<Text, Arc<ResourceCache>>;

/// The caches of all resources.
pub(crate) struct Caches {
    by_prefix: ArcSwap<ByPrefix>,
    applied: watch::Sender<Revision>,
    ask: mpsc::Sender<NewKind>,
}

/// The kinds that are to be cached as well, for the task that follows the store.
pub(crate) type NewKinds = mpsc::Receiver<NewKind>;

/// A kind whose objects are to be cached, and who waits for that.
pub(crate) struct NewKind {
    kind: Arc<Kind>,
    /// Whether a cache that is there already is given up for a new one.
    anew: bool,
    read: oneshot::Sender<Result<Revision, StoreError>>,
}

impl Caches {
    /// Reads everything that is stored of these kinds; events after that arrive through [`Self::run`].
    pub(crate) async fn load(store: &dyn Store, kinds: &Registry) -> Result<(Self, NewKinds), StoreError> {
        let listing = store.list(ROOT, None, None, None).await?;
        let mut by_prefix = ByPrefix::new();
        for kind in kinds.kinds().iter().filter(|kind| kind.is_stored()) {
            by_prefix
                .entry(kind.storage_prefix.clone())
                .or_insert_with(|| Arc::new(ResourceCache::new(kind, listing.revision)));
        }
        for kv in &listing.items {
            // Not left out as what is unreadable is: it would look as if there were no such objects.
            encryption::refuse(&kv.key, &kv.value)?;
            if let Some(cache) = of_key(&by_prefix, &kv.key) {
                cache.load(kv);
            }
        }
        Ok(Self::new(by_prefix, listing.revision))
    }

    fn new(by_prefix: ByPrefix, applied: Revision) -> (Self, NewKinds) {
        let (ask, asked) = mpsc::channel(1);
        let by_prefix = ArcSwap::from_pointee(by_prefix);
        (Self { by_prefix, applied: watch::Sender::new(applied), ask }, asked)
    }

    /// The cache of one kind. That of a kind that was withdrawn meanwhile is closed and empty.
    pub(crate) fn of(&self, kind: &Kind) -> Arc<ResourceCache> {
        let known = self.by_prefix.load().get(&kind.storage_prefix).cloned();
        known.unwrap_or_else(|| {
            let gone = ResourceCache::new(&Arc::new(kind.clone()), self.applied());
            gone.close();
            Arc::new(gone)
        })
    }

    /// Caches the objects of one kind more; when this returns, all that was stored of it before can be read. With
    /// `anew` a cache that is there already is given up for a new one, and whoever watches it has to come back.
    pub(crate) async fn add(&self, kind: &Arc<Kind>, anew: bool) -> Result<()> {
        if !kind.is_stored() || (!anew && self.by_prefix.load().contains_key(&kind.storage_prefix)) {
            return Ok(());
        }
        let (read, revision) = oneshot::channel();
        let ended = || ApiError::internal("the watch cache has ended");
        self.ask.send(NewKind { kind: kind.clone(), anew, read }).await.map_err(|_| ended())?;
        self.wait_for(revision.await.map_err(|_| ended())??).await
    }

    /// Forgets the objects under a prefix; whoever watches them is told that there is no more.
    pub(crate) fn remove(&self, prefix: &str) {
        let removed = self.by_prefix.rcu(|now| {
            let mut without = ByPrefix::clone(now);
            without.remove(prefix);
            without
        });
        if let Some(cache) = removed.get(prefix) {
            cache.close();
        }
    }

    /// Reads what is stored of a new kind. Only the writer does this, so no event falls between the reading and the first
    /// that the new cache hears of; those that it has read already it leaves out.
    async fn take_in(&self, store: &dyn Store, new: NewKind) {
        let read = self.read_new(store, &new.kind, new.anew).await;
        // Ignored: who asked may have gone away since.
        new.read.send(read).ok();
    }

    async fn read_new(
        &self,
        store: &dyn Store,
        kind: &Arc<Kind>,
        anew: bool,
    ) -> Result<Revision, StoreError> {
        let listing = store.list(&kind.storage_prefix, None, None, None).await?;
        let cache = Arc::new(ResourceCache::new(kind, listing.revision));
        listing.items.iter().for_each(|kv| cache.load(kv));
        let before = self.by_prefix.rcu(|now| {
            let mut with = ByPrefix::clone(now);
            if anew {
                with.insert(kind.storage_prefix.clone(), cache.clone());
            } else {
                with.entry(kind.storage_prefix.clone()).or_insert_with(|| cache.clone());
            }
            with
        });
        if let Some(old) = before.get(&kind.storage_prefix).filter(|_| anew) {
            old.close();
        }
        Ok(listing.revision)
    }

    /// The newest revision all caches have seen.
    pub(crate) fn applied(&self) -> Revision {
        *self.applied.borrow()
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
        let by_prefix = self.by_prefix.load();
        let mut touched: Vec<&Arc<ResourceCache>> = Vec::new();
        for event in events {
            if let Some(cache) = of_key(&by_prefix, &event.kv.key) {
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
    pub(crate) async fn run(&self, store: &dyn Store, mut asked: NewKinds, shutdown: CancellationToken) {
        loop {
            let opened = store.watch(ROOT, self.applied()).await;
            let result = match opened {
                Ok(stream) => self.follow(store, stream, &mut asked, &shutdown).await,
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
        let by_prefix = self.by_prefix.load_full();
        let mut of_each: BTreeMap<&str, Vec<&KeyValue>> = BTreeMap::new();
        for kv in &listing.items {
            if let Some(cache) = of_key(&by_prefix, &kv.key) {
                of_each.entry(&cache.kind().storage_prefix).or_default().push(kv);
            }
        }
        for (prefix, cache) in by_prefix.iter() {
            cache.replace(
                of_each.get(prefix.as_ref()).map(Vec::as_slice).unwrap_or_default(),
                listing.revision,
            );
        }
        self.applied.send_replace(listing.revision);
        for cache in by_prefix.values() {
            cache.wake();
        }
        Ok(())
    }

    async fn follow(
        &self,
        store: &dyn Store,
        mut stream: podwire_store::WatchStream,
        asked: &mut NewKinds,
        shutdown: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut next = None;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => next = self.settle(),
                Some(new) = asked.recv() => self.take_in(store, new).await,
                batch = stream.next() => match batch {
                    Some(Ok(News::Progress(revision))) => {
                        self.applied.send_if_modified(|applied| {
                            let further = revision > *applied;
                            *applied = revision.max(*applied);
                            further
                        });
                    }
                    Some(Ok(News::Events(events))) => {
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
        let due = self.by_prefix.load().values().filter_map(|cache| cache.settle(now)).min()?;
        Some(due.max(now + SETTLE_PAUSE))
    }
}

/// The cache that a key belongs to.
fn of_key<'a>(by_prefix: &'a ByPrefix, key: &str) -> Option<&'a Arc<ResourceCache>> {
    let (prefix, cache) = by_prefix.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
    key.starts_with(prefix.as_ref()).then_some(cache)
}

#[cfg(test)]
mod tests {
    use podwire_api::builtin;
    use podwire_store::EventKind;
    use serde_json::json;

    use super::*;

    fn put(revision: Revision) -> Arc<Event> {
        let object =
            json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"key": "x".repeat(10_000)}});
        let kv = KeyValue {
            key: "/registry/configmaps/default/a".into(),
            value: crate::codec::encode(&object, None),
            create_revision: 1,
            mod_revision: revision,
        };
        Arc::new(Event { kind: EventKind::Put, kv, previous: None })
    }

    #[tokio::test(start_paused = true)]
    async fn each_burst_is_settled_soon_after_it() {
        let kind = builtin::config_maps();
        let cache = Arc::new(ResourceCache::new(kind, 0));
        let (caches, mut asked) = Caches::new([(kind.storage_prefix.clone(), cache.clone())].into(), 0);
        let dir = tempfile::tempdir().unwrap();
        let store = podwire_store::EmbeddedConfig::new(dir.path().to_owned()).open().unwrap();
        let (tell, heard) = tokio::sync::mpsc::channel(1);
        let stream = futures::stream::unfold(heard, |mut heard| async { Some((heard.recv().await?, heard)) });
        let shutdown = CancellationToken::new();
        let bursts = async {
            // The second one comes while the first waits to become old.
            for burst in 0..2 {
                let events: Vec<_> = (1..=400).map(|number| put(burst * 400 + number)).collect();
                tell.send(Ok(News::Events(events))).await.unwrap();
                caches.wait_for(burst * 400 + 400).await.unwrap();
                assert!(cache.cursor_after(burst * 400 + 1).is_ok(), "all of it is there at first");
                tokio::time::sleep(Duration::from_secs(8)).await;
                assert!(cache.cursor_after(burst * 400 + 1).is_err(), "burst {burst} was given back");
            }
            shutdown.cancel();
        };
        let (followed, ()) =
            tokio::join!(caches.follow(&store, stream.boxed(), &mut asked, &shutdown), bursts);
        followed.unwrap();
    }

    /// Objects of a kind that nobody serves yet, as another server of the same store would write them.
    async fn write(store: &dyn Store, kind: &Kind, count: usize) {
        for number in 0..count {
            let object = json!({"metadata": {"name": format!("g{number}"), "namespace": "default"}});
            let op = podwire_store::Op::Put { value: crate::codec::encode(&object, None), ttl: None };
            let key = format!("{}default/g{number:04}", kind.storage_prefix);
            store.txn(&key, podwire_store::Guard::Absent, op).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_kind_that_comes_while_its_objects_are_written_misses_none_and_hears_of_none_twice() {
        const COUNT: usize = 400;
        let dir = tempfile::tempdir().unwrap();
        let store = podwire_store::EmbeddedConfig::new(dir.path().to_owned()).open().unwrap();
        let (caches, asked) = Caches::load(&store, Registry::builtin()).await.unwrap();
        let model = Kind::clone(builtin::config_maps());
        let kind = Arc::new(Kind { storage_prefix: "/registry/example.com/gadgets/".into(), ..model });
        let shutdown = CancellationToken::new();
        let work = async {
            let adding = async {
                // Some are there already, and some are on their way to a cache that lags behind.
                while store.revision().await.unwrap() < COUNT as u64 / 2 {
                    tokio::task::yield_now().await;
                }
                caches.add(&kind, false).await.unwrap();
            };
            tokio::join!(write(&store, &kind, COUNT), adding);
            caches.wait_for(store.revision().await.unwrap()).await.unwrap();
            shutdown.cancel();
        };
        tokio::join!(caches.run(&store, asked, shutdown.clone()), work);
        let cache = caches.of(&kind);
        let scope = Scope { prefix: kind.storage_prefix.to_string(), node: None, key: None };
        assert_eq!(cache.snapshot(&scope).entries.len(), COUNT);
        let mut cursor = 0;
        let mut heard = Vec::new();
        while let Some(changes) = cache.changes(cursor, usize::MAX).ok().filter(|changes| !changes.is_empty())
        {
            cursor += changes.len() as u64;
            heard.extend(changes);
        }
        assert!(!heard.is_empty() && heard.len() < COUNT, "{} came after the reading", heard.len());
        assert!(heard.iter().all(|told| told.kind == ChangeKind::Added), "each is new when it is heard of");
        store.close().await;
    }
}
