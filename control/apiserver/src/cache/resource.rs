//! The cache of one resource: its objects in key order, an index of pods by node, a ring of changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use podwire_api::Kind;
use podwire_store::{Event, EventKind, KeyValue};
use tokio::sync::watch;
use tokio::time::Instant;

use super::entry::{Change, ChangeKind, Entry, Told};
use crate::extract::Wanted;
use crate::traced;

/// Changes are kept at least this long, as far as the limits below allow.
const KEEP: Duration = Duration::from_secs(75);
/// So many are kept however old they are, as far as their bytes allow.
const KEEP_ALWAYS: usize = 100;
/// No more changes than this are kept.
const KEEP_COUNT: usize = 50_000;
/// Their bytes together stay under this.
const KEEP_BYTES: usize = 32 << 20;
/// Who watches has heard of what is older than this: it costs no more than it has to from then on.
const SETTLES: Duration = Duration::from_secs(3);
/// Bytes together of changes of which some have settled: the memory of a burst is given back when it is over. Who comes
/// back later and asks for more is told to list again.
const SETTLED_BYTES: usize = 1 << 20;
/// A watcher takes no more than this at a time.
const BATCH_BYTES: usize = 64 << 10;

/// The ring has moved past a cursor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CursorLost {
    /// The oldest revision that can still be watched from.
    pub(crate) oldest: u64,
}

/// Which objects a reader may see at all.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// Every key starts with this: the resource's prefix and perhaps a namespace.
    pub(crate) prefix: String,
    /// Only objects of this node, when the selector says so.
    pub(crate) node: Option<String>,
    /// Only this object, when the selector names it.
    pub(crate) key: Option<String>,
}

/// All objects of one resource.
pub(crate) struct ResourceCache {
    kind: Arc<Kind>,
    /// What happened up to this revision was read and is not heard of again.
    loaded: u64,
    wanted: Wanted,
    state: RwLock<State>,
    /// The cursor behind the newest change, to be read without the lock.
    end: AtomicU64,
    /// The kind is no longer served.
    closed: AtomicBool,
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Arc<str>, Arc<Entry>>,
    by_node: HashMap<String, BTreeMap<Arc<str>, Arc<Entry>>>,
    ring: VecDeque<Slot>,
    ring_bytes: usize,
    /// Changes before this one have settled: their encodings are gone.
    settled: u64,
    /// Sequence number of the first change in the ring.
    first: u64,
    /// Revision of the last change that was dropped, or of the load.
    floor: u64,
    /// Revision of the newest change.
    newest: u64,
}

/// A change in the ring.
enum Slot {
    /// Watchers are hearing of it.
    Fresh(Arc<Told>),
    /// They have: what was encoded for them is gone, and who is late has it encoded again.
    Settled(Change),
}

impl Slot {
    fn change(&self) -> &Change {
        match self {
            Slot::Fresh(told) => told,
            Slot::Settled(change) => change,
        }
    }

    fn told(&self) -> Arc<Told> {
        match self {
            Slot::Fresh(told) => told.clone(),
            Slot::Settled(change) => Told::new(change.clone()),
        }
    }

    fn settle(&mut self) {
        if let Slot::Fresh(told) = self {
            *self = Slot::Settled(Change::clone(told));
        }
    }
}

/// A consistent view of a scope.
pub(crate) struct Snapshot {
    /// The objects in key order.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// The cursor from which changes follow on.
    pub(crate) cursor: u64,
    /// Revision of the newest change of this resource that the view contains.
    pub(crate) newest: u64,
}

/// What of an object the cache wants to know.
pub(crate) fn wanted(kind: &Kind) -> Wanted {
    let base = ["metadata.labels", "metadata.name", "metadata.namespace"];
    let traced = traced::is_traced(kind).then_some("metadata.uid");
    let selected = kind.strategy.field_sources(kind);
    Wanted::new(base.into_iter().chain(traced).chain(selected))
}

impl ResourceCache {
    /// An empty cache that knows nothing from before `revision`.
    pub(crate) fn new(kind: &Arc<Kind>, revision: u64) -> Self {
        let wanted = wanted(kind);
        let state = RwLock::new(State { floor: revision, ..State::default() });
        let (end, closed, news) = (AtomicU64::new(0), AtomicBool::new(false), watch::Sender::new(0));
        Self { kind: kind.clone(), loaded: revision, wanted, state, end, closed, news }
    }

    /// Takes in an object that was stored before the start.
    pub(crate) fn load(&self, kv: &KeyValue) {
        if let Some(entry) = Entry::read(&self.kind, &self.wanted, kv) {
            self.write().insert(entry);
        }
    }

    /// Starts over with these objects, in one step; nothing from before `revision` can be watched any more.
    pub(crate) fn replace(&self, objects: &[&KeyValue], revision: u64) {
        let mut fresh = State { floor: revision, newest: revision, ..State::default() };
        for entry in objects.iter().filter_map(|kv| Entry::read(&self.kind, &self.wanted, kv)) {
            fresh.insert(entry);
        }
        let mut state = self.write();
        fresh.first = state.first + state.ring.len() as u64 + 1;
        fresh.settled = fresh.first;
        self.end.store(fresh.first, Ordering::Release);
        *state = fresh;
    }

    /// The cursor behind the newest change: who stands there has heard all.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The kind of the objects.
    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// Reads stored bytes that may be of any age, without keeping them.
    pub(crate) fn read_entry(&self, kv: &KeyValue) -> Option<Arc<Entry>> {
        Entry::read(&self.kind, &self.wanted, kv)
    }

    /// Takes in an event; [`Self::wake`] tells the watchers.
    pub(crate) fn apply(&self, event: &Event) {
        if event.revision() <= self.loaded {
            return;
        }
        let Some(entry) = Entry::read(&self.kind, &self.wanted, &event.kv) else { return };
        let mut state = self.write();
        let previous = state.remove(&event.kv.key);
        let kind = match (event.kind, &previous) {
            (EventKind::Delete, _) => ChangeKind::Deleted,
            (EventKind::Put, None) => ChangeKind::Added,
            (EventKind::Put, Some(_)) => ChangeKind::Modified,
        };
        if event.kind == EventKind::Put {
            state.insert(entry.clone());
        }
        state.push(Change::new(kind, entry, previous));
        self.end.store(state.first + state.ring.len() as u64, Ordering::Release);
    }

    /// Gives back what only a burst needs, once it is over; when there is more to give back.
    pub(crate) fn settle(&self, now: Instant) -> Option<Instant> {
        let mut state = self.write();
        state.settle(now);
        state.next_to_settle()
    }

    /// Ends all watches: the kind is no longer served.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the kind is no longer served.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Wakes everybody who waits for news.
    pub(crate) fn wake(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// A receiver that changes with every batch of events.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The object under a key.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.read().objects.get(key).cloned()
    }

    /// The objects of a scope.
    pub(crate) fn snapshot(&self, scope: &Scope) -> Snapshot {
        let state = self.read();
        let (cursor, newest) = (state.first + state.ring.len() as u64, state.newest);
        if let Some(key) = &scope.key {
            let entries = state.objects.get(key.as_str()).cloned().into_iter().collect();
            return Snapshot { entries, cursor, newest };
        }
        let none = BTreeMap::new();
        let map = match &scope.node {
            Some(node) => state.by_node.get(node).unwrap_or(&none),
            None => &state.objects,
        };
        let from = (Bound::Included(scope.prefix.as_str()), Bound::Unbounded);
        let entries = map
            .range::<str, _>(from)
            .take_while(|(key, _)| key.starts_with(&scope.prefix))
            .map(|(_, entry)| entry.clone())
            .collect();
        Snapshot { entries, cursor, newest }
    }

    /// The cursor of the first change after `revision`.
    pub(crate) fn cursor_after(&self, revision: u64) -> Result<u64, CursorLost> {
        let state = self.read();
        if revision < state.floor {
            return Err(CursorLost { oldest: state.floor });
        }
        let passed = state.ring.partition_point(|slot| slot.change().entry.revision <= revision);
        Ok(state.first + passed as u64)
    }

    /// Changes from `cursor` on: at most `limit` of them, and no more than about [`BATCH_BYTES`] but for the first.
    ///
    /// A watcher holds what it has taken until its client has read it, so this bounds what a slow one costs.
    pub(crate) fn changes(&self, cursor: u64, limit: usize) -> Result<Vec<Arc<Told>>, CursorLost> {
        let state = self.read();
        let Some(skip) = cursor.checked_sub(state.first) else {
            return Err(CursorLost { oldest: state.floor });
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(state.ring.len());
        let mut bytes = 0;
        let fits = |slot: &&Slot| {
            let first = bytes == 0;
            bytes += slot.change().entry.len();
            first || bytes <= BATCH_BYTES
        };
        Ok(state.ring.range(skip..).take(limit).take_while(fits).map(Slot::told).collect())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, entry: Arc<Entry>) {
        if let Some(node) = entry.field("spec.nodeName").filter(|node| !node.is_empty()) {
            self.by_node.entry(node.to_owned()).or_default().insert(entry.key.clone(), entry.clone());
        }
        self.objects.insert(entry.key.clone(), entry);
    }

    fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let entry = self.objects.remove(key)?;
        if let Some(node) = entry.field("spec.nodeName")
            && let Some(map) = self.by_node.get_mut(node)
        {
            map.remove(key);
            if map.is_empty() {
                self.by_node.remove(node);
            }
        }
        Some(entry)
    }

    fn push(&mut self, change: Change) {
        let now = change.heard;
        self.newest = change.entry.revision;
        self.ring_bytes += change.entry.len();
        self.ring.push_back(Slot::Fresh(Told::new(change)));
        self.trim(now, KEEP_BYTES);
    }

    /// Drops the oldest changes as far as the limits say; the newest stays in any case. Those that have settled may have
    /// `settled_bytes` with the rest.
    fn trim(&mut self, now: Instant, settled_bytes: usize) {
        while self.ring.len() > 1
            && let Some(oldest) = self.ring.front().map(Slot::change)
        {
            let age = now.duration_since(oldest.heard);
            let over = self.ring.len() > KEEP_COUNT || self.ring_bytes > KEEP_BYTES;
            let stale = self.ring.len() > KEEP_ALWAYS && age > KEEP;
            let settled = self.ring_bytes > settled_bytes && age > SETTLES;
            if !(over || stale || settled) {
                break;
            }
            self.floor = oldest.entry.revision;
            self.ring_bytes -= oldest.entry.len();
            self.first += 1;
            self.ring.pop_front();
        }
    }

    /// Drops what has settled and is too much, and the encodings of the rest of it.
    fn settle(&mut self, now: Instant) {
        self.trim(now, SETTLED_BYTES);
        self.settled = self.settled.max(self.first);
        let from = usize::try_from(self.settled - self.first).unwrap_or(usize::MAX).min(self.ring.len());
        for slot in self.ring.range_mut(from..) {
            if now.duration_since(slot.change().heard) <= SETTLES {
                break;
            }
            slot.settle();
            self.settled += 1;
        }
        if self.ring.capacity() > 4 * self.ring.len().max(KEEP_ALWAYS) {
            self.ring.shrink_to_fit();
        }
    }

    /// When [`Self::settle`] has something to do.
    fn next_to_settle(&self) -> Option<Instant> {
        let unsettled = usize::try_from(self.settled - self.first).ok().and_then(|skip| self.ring.get(skip));
        let soon = unsettled.map(|slot| slot.change().heard + SETTLES);
        let stale = self
            .ring
            .front()
            .filter(|_| self.ring.len() > KEEP_ALWAYS)
            .map(|oldest| oldest.change().heard + KEEP);
        soon.into_iter().chain(stale).min()
    }
}

#[cfg(test)]
mod tests {
    use podwire_api::builtin;
    use podwire_store::Revision;

    use super::*;
    use crate::codec;

    fn pods() -> ResourceCache {
        ResourceCache::new(builtin::pods(), 0)
    }

    fn put(cache: &ResourceCache, revision: Revision, padding: usize) {
        let object = serde_json::json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "labels": {"app": "web", "tier": "front"}},
            "spec": {"nodeName": "one"},
            "padding": "x".repeat(padding),
        });
        let kv = KeyValue {
            key: "/registry/pods/default/a".into(),
            value: codec::encode(&object, None),
            create_revision: 1,
            mod_revision: revision,
        };
        cache.apply(&Event { kind: EventKind::Put, kv, previous: None });
    }

    #[test]
    fn an_entry_says_what_selectors_ask_for() {
        let cache = pods();
        put(&cache, 1, 0);
        let entry = cache.get("/registry/pods/default/a").unwrap();
        assert_eq!(entry.uid(), Some("u"));
        assert_eq!(entry.field("spec.nodeName"), Some("one"));
        assert_eq!(entry.field("status.phase"), Some(""));
        assert_eq!(entry.field("spec.containers"), None);
        assert_eq!(entry.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "front")]);
        let chosen = |text| {
            let selector = podwire_api::selector::LabelSelector::parse(text).unwrap();
            entry.matches(Some(&selector), None)
        };
        assert!(chosen("tier=front,app"));
        assert!(!chosen("front"), "a value is no key");
    }

    #[tokio::test(start_paused = true)]
    async fn encodings_are_dropped_once_a_change_has_settled_and_made_again_for_who_is_late() {
        let cache = pods();
        put(&cache, 1, 0);
        let told = |cache: &ResourceCache| cache.changes(0, 1).unwrap().remove(0);
        let early = told(&cache);
        let frame = early.frame(cache.kind(), ChangeKind::Added);
        assert!(Arc::ptr_eq(&early, &told(&cache)), "all share what is encoded once");
        assert!(cache.settle(Instant::now()).is_some(), "there is something to settle");
        assert!(Arc::ptr_eq(&early, &told(&cache)));
        tokio::time::advance(SETTLES + Duration::from_millis(1)).await;
        assert_eq!(cache.settle(Instant::now()), None, "all has settled");
        assert_eq!(Arc::strong_count(&early), 1, "only who holds it keeps it");
        assert_eq!(told(&cache).frame(cache.kind(), ChangeKind::Added), frame);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_gives_its_memory_back_without_another_change() {
        let cache = pods();
        let bytes = |cache: &ResourceCache| {
            cache.read().ring.iter().map(|slot| slot.change().entry.len()).sum::<usize>()
        };
        for revision in 1..=400 {
            put(&cache, revision, 10_000);
        }
        let end = cache.end();
        assert!(bytes(&cache) > 3 * SETTLED_BYTES);
        tokio::time::advance(SETTLES + Duration::from_millis(1)).await;
        let next = cache.settle(Instant::now());
        assert!(bytes(&cache) <= SETTLED_BYTES);
        assert_eq!(cache.end(), end, "cursors mean what they meant");
        let oldest = cache.cursor_after(1).unwrap_err().oldest;
        assert_eq!(
            cache.changes(cache.cursor_after(oldest).unwrap(), 1).unwrap()[0].entry.revision,
            oldest + 1
        );
        assert_eq!(
            next,
            (cache.read().ring.len() > KEEP_ALWAYS)
                .then(|| Instant::now() + KEEP - SETTLES - Duration::from_millis(1))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn old_changes_go_without_another_change() {
        let cache = pods();
        for revision in 1..=KEEP_ALWAYS as u64 + 50 {
            put(&cache, revision, 0);
        }
        let heard = Instant::now();
        tokio::time::advance(SETTLES + Duration::from_millis(1)).await;
        assert_eq!(cache.settle(Instant::now()), Some(heard + KEEP));
        assert_eq!(cache.read().ring.len(), KEEP_ALWAYS + 50);
        tokio::time::advance(KEEP).await;
        assert_eq!(cache.settle(Instant::now()), None);
        assert_eq!(cache.read().ring.len(), KEEP_ALWAYS);
    }
}
