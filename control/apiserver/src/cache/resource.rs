//! The cache of one resource: its objects in key order, an index of pods by node, a ring of changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use podwire_api::Kind;
use podwire_store::{Event, EventKind, KeyValue};
use tokio::sync::watch;

use super::entry::{Change, ChangeKind, Entry};
use crate::arrows;
use crate::extract::Wanted;

/// Changes are kept at least this long, as far as the limits below allow.
const KEEP: Duration = Duration::from_secs(75);
/// No more changes than this are kept.
const KEEP_COUNT: usize = 50_000;
/// Their bytes together stay under this.
const KEEP_BYTES: usize = 32 << 20;
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
    kind: &'static Kind,
    wanted: Wanted,
    state: RwLock<State>,
    /// The cursor behind the newest change, to be read without the lock.
    end: AtomicU64,
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Arc<str>, Arc<Entry>>,
    by_node: HashMap<String, BTreeMap<Arc<str>, Arc<Entry>>>,
    ring: VecDeque<Arc<Change>>,
    ring_bytes: usize,
    /// Sequence number of the first change in the ring.
    first: u64,
    /// Revision of the last change that was dropped, or of the load.
    floor: u64,
    /// Revision of the newest change.
    newest: u64,
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

impl ResourceCache {
    /// An empty cache that knows nothing from before `revision`.
    pub(crate) fn new(kind: &'static Kind, revision: u64) -> Self {
        let base = ["metadata.labels", "metadata.name", "metadata.namespace"];
        let traced = arrows::is_traced(kind).then_some("metadata.uid");
        let selected = podwire_api::fields::source_paths(kind).iter().copied();
        let wanted = Wanted::new(base.into_iter().chain(traced).chain(selected));
        let state = RwLock::new(State { floor: revision, ..State::default() });
        Self { kind, wanted, state, end: AtomicU64::new(0), news: watch::Sender::new(0) }
    }

    /// Takes in an object that was stored before the start.
    pub(crate) fn load(&self, kv: &KeyValue) {
        if let Some(entry) = Entry::read(self.kind, &self.wanted, kv) {
            self.write().insert(entry);
        }
    }

    /// Starts over with these objects, in one step; nothing from before `revision` can be watched any more.
    pub(crate) fn replace(&self, objects: &[&KeyValue], revision: u64) {
        let mut fresh = State { floor: revision, newest: revision, ..State::default() };
        for entry in objects.iter().filter_map(|kv| Entry::read(self.kind, &self.wanted, kv)) {
            fresh.insert(entry);
        }
        let mut state = self.write();
        fresh.first = state.first + state.ring.len() as u64 + 1;
        self.end.store(fresh.first, Ordering::Release);
        *state = fresh;
    }

    /// The cursor behind the newest change: who stands there has heard all.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The kind of the objects.
    pub(crate) fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Reads stored bytes that may be of any age, without keeping them.
    pub(crate) fn read_entry(&self, kv: &KeyValue) -> Option<Arc<Entry>> {
        Entry::read(self.kind, &self.wanted, kv)
    }

    /// Takes in an event; [`Self::wake`] tells the watchers.
    pub(crate) fn apply(&self, event: &Event) {
        let Some(entry) = Entry::read(self.kind, &self.wanted, &event.kv) else { return };
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
        state.push(Arc::new(Change::new(kind, entry, previous)));
        self.end.store(state.first + state.ring.len() as u64, Ordering::Release);
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
        let passed = state.ring.partition_point(|change| change.entry.revision <= revision);
        Ok(state.first + passed as u64)
    }

    /// Changes from `cursor` on: at most `limit` of them, and no more than about [`BATCH_BYTES`] but for the first.
    ///
    /// A watcher holds what it has taken until its client has read it, so this bounds what a slow one costs.
    pub(crate) fn changes(&self, cursor: u64, limit: usize) -> Result<Vec<Arc<Change>>, CursorLost> {
        let state = self.read();
        let Some(skip) = cursor.checked_sub(state.first) else {
            return Err(CursorLost { oldest: state.floor });
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(state.ring.len());
        let mut bytes = 0;
        let fits = |change: &&Arc<Change>| {
            let first = bytes == 0;
            bytes += change.entry.len();
            first || bytes <= BATCH_BYTES
        };
        Ok(state.ring.range(skip..).take(limit).take_while(fits).cloned().collect())
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

    fn push(&mut self, change: Arc<Change>) {
        let now = change.heard;
        self.newest = change.entry.revision;
        self.ring_bytes += change.entry.len();
        self.ring.push_back(change);
        while let Some(oldest) = self.ring.front() {
            let over = self.ring.len() > KEEP_COUNT || self.ring_bytes > KEEP_BYTES;
            let stale = self.ring.len() > 100 && now.duration_since(oldest.heard) > KEEP;
            if self.ring.len() == 1 || !(over || stale) {
                break;
            }
            self.floor = oldest.entry.revision;
            self.ring_bytes -= oldest.entry.len();
            self.first += 1;
            self.ring.pop_front();
        }
    }
}
