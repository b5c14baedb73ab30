//! What the store knows in memory: every live key, and the recent events. Pure; time is an argument.
//!
//! The history holds every event with a revision greater than `floor`. A list at an older revision is
//! the live keys with the younger events taken back; below the floor it is `Compacted`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::record::{Change, Tag};
use crate::{Event, EventKind, KeyValue, Listing, Revision, StoreError};

/// How much history is kept for watchers and `continue` pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    pub(crate) age_ms: u64,
    /// What is older than this counts as settled,
    pub(crate) settles_ms: u64,
    /// and is kept only while there is not more than this.
    pub(crate) settled_bytes: usize,
}

#[cfg(test)]
impl Retention {
    /// Bounds without a rule for what has settled.
    pub(crate) fn of(events: usize, bytes: usize, age_ms: u64) -> Self {
        Self { events, bytes, age_ms, settles_ms: u64::MAX, settled_bytes: usize::MAX }
    }
}

/// A live key.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) kv: KeyValue,
    /// Unix milliseconds; 0 means never.
    pub(crate) expires_ms: u64,
}

struct Past {
    event: Arc<Event>,
    at_ms: u64,
}

/// All live keys and the retained history.
pub(crate) struct Index {
    keys: BTreeMap<Arc<str>, Entry>,
    history: VecDeque<Past>,
    history_bytes: usize,
    live_bytes: u64,
    revision: Revision,
    floor: Revision,
    retention: Retention,
}

impl Index {
    /// An empty store at revision 0.
    pub(crate) fn new(retention: Retention) -> Self {
        Self {
            keys: BTreeMap::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            live_bytes: 0,
            revision: 0,
            floor: 0,
            retention,
        }
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision that can be listed or watched from.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// Bytes of all live keys and values.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The live key, if there is one.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// The live keys behind `after`, for whoever copies them in pieces.
    pub(crate) fn entries_after(&self, after: Option<&str>) -> impl Iterator<Item = &Entry> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.keys.range::<str, _>((from, Bound::Unbounded)).map(|(_, entry)| entry)
    }

    /// Carries out a committed change and remembers its event.
    pub(crate) fn apply(&mut self, change: &Change, now_ms: u64) {
        let previous = self.change_keys(change);
        self.revision = self.revision.max(change.revision);
        let event = match change.tag {
            Tag::Put => Event { kind: EventKind::Put, kv: stored(change), previous },
            Tag::Delete => {
                let Some(last) = previous else { return };
                let kv = KeyValue { mod_revision: change.revision, ..last.clone() };
                Event { kind: EventKind::Delete, kv, previous: Some(last) }
            }
            Tag::Advance | Tag::End => return,
        };
        self.history_bytes += weight(&event);
        self.history.push_back(Past { event: Arc::new(event), at_ms: now_ms });
        self.trim(now_ms);
    }

    /// Carries out a change that the keys may already include (replay onto a snapshot that was taken
    /// while writes went on), without history.
    pub(crate) fn restore(&mut self, change: &Change) {
        let newer = self.keys.get(&change.key).is_some_and(|entry| entry.kv.mod_revision >= change.revision);
        if !newer {
            self.change_keys(change);
        }
        self.revision = self.revision.max(change.revision);
        self.floor = self.revision;
    }

    /// Takes the keys as they are for the state at `revision`: nothing older can be listed or watched, and no revision
    /// up to it is given out again, even if the newest changes were deletions that left no key behind.
    pub(crate) fn settle(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
        self.floor = self.floor.max(revision);
    }

    fn change_keys(&mut self, change: &Change) -> Option<KeyValue> {
        let previous = match change.tag {
            Tag::Put => {
                self.live_bytes += (change.key.len() + change.value.len()) as u64;
                let entry = Entry { kv: stored(change), expires_ms: change.expires_ms };
                self.keys.insert(entry.kv.key.clone(), entry)
            }
            Tag::Delete => self.keys.remove(&change.key),
            Tag::Advance | Tag::End => None,
        };
        previous.map(|entry| {
            self.live_bytes -= (entry.kv.key.len() + entry.kv.value.len()) as u64;
            entry.kv
        })
    }

    /// Forgets events up to and including `before`.
    pub(crate) fn compact(&mut self, before: Revision) {
        let before = before.min(self.revision);
        while self.history.front().is_some_and(|past| past.event.revision() <= before) {
            self.drop_oldest();
        }
        self.floor = self.floor.max(before);
    }

    fn trim(&mut self, now_ms: u64) {
        let Retention { events, bytes, age_ms, settles_ms, settled_bytes } = self.retention;
        while self.history.front().is_some_and(|past| {
            let age = now_ms.saturating_sub(past.at_ms);
            self.history.len() > events
                || self.history_bytes > bytes
                || age > age_ms
                || age > settles_ms && self.history_bytes > settled_bytes
        }) {
            self.drop_oldest();
        }
        if self.history.capacity() > 1024 && self.history.capacity() / 4 > self.history.len() {
            self.history.shrink_to(self.history.len() * 2);
        }
    }

    /// Forgets what has grown too old while nobody wrote.
    pub(crate) fn forget_settled(&mut self, now_ms: u64) {
        self.trim(now_ms);
    }

    /// When there is something to settle, in milliseconds since 1970.
    pub(crate) fn settles_at(&self) -> Option<u64> {
        let oldest = self.history.front().filter(|_| self.history_bytes > self.retention.settled_bytes)?;
        Some(oldest.at_ms.saturating_add(self.retention.settles_ms).saturating_add(1))
    }

    fn drop_oldest(&mut self) {
        if let Some(past) = self.history.pop_front() {
            self.history_bytes -= weight(&past.event);
            self.floor = self.floor.max(past.event.revision());
        }
    }

    /// At most `most` events under `prefix` after `cursor`, and how far they reach.
    pub(crate) fn events_after(
        &self,
        prefix: &str,
        cursor: Revision,
        most: usize,
    ) -> Result<(Vec<Arc<Event>>, Revision), StoreError> {
        if cursor < self.floor {
            return Err(StoreError::Compacted { oldest: self.floor });
        }
        let start = self.history.partition_point(|past| past.event.revision() <= cursor);
        let mut events = Vec::new();
        for past in self.history.range(start..) {
            if past.event.kv.key.starts_with(prefix) {
                events.push(past.event.clone());
                if events.len() == most {
                    return Ok((events, past.event.revision()));
                }
            }
        }
        Ok((events, self.revision))
    }

    /// One page of `prefix` as it was at `at`.
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> Result<Listing, StoreError> {
        let revision = at.unwrap_or(self.revision);
        if revision > self.revision {
            return Err(StoreError::FutureRevision { requested: revision, current: self.revision });
        }
        if revision < self.floor {
            return Err(StoreError::Compacted { oldest: self.floor });
        }
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let taken_back = self.taken_back(prefix, revision);
        let live = self
            .keys
            .range::<str, _>((from, Bound::Unbounded))
            .map(|(_, entry)| &entry.kv)
            .take_while(|kv| kv.key.starts_with(prefix));
        if taken_back.is_empty() {
            return Ok(page(live, limit, revision));
        }
        let old = taken_back
            .range::<str, _>((from, Bound::Unbounded))
            .filter_map(|(_, kv)| *kv)
            .collect::<Vec<_>>();
        let live = live.filter(|kv| !taken_back.contains_key(&*kv.key));
        Ok(page(merge(live, old.into_iter()), limit, revision))
    }

    /// What the keys changed after `revision` held at `revision`.
    fn taken_back(&self, prefix: &str, revision: Revision) -> BTreeMap<&str, Option<&KeyValue>> {
        let start = self.history.partition_point(|past| past.event.revision() <= revision);
        let mut old = BTreeMap::new();
        for past in self.history.range(start..) {
            if past.event.kv.key.starts_with(prefix) {
                // The first event after `revision` knows the value at `revision`; later ones do not.
                old.entry(&*past.event.kv.key).or_insert(past.event.previous.as_ref());
            }
        }
        old
    }
}

fn stored(change: &Change) -> KeyValue {
    KeyValue {
        key: change.key.clone(),
        value: change.value.clone(),
        create_revision: change.create_revision,
        mod_revision: change.revision,
    }
}

fn weight(event: &Event) -> usize {
    // The previous value is shared with the event before it; the constant stands for the nodes around.
    200 + event.kv.key.len() + event.kv.value.len()
}

fn merge<'a>(
    a: impl Iterator<Item = &'a KeyValue>,
    b: impl Iterator<Item = &'a KeyValue>,
) -> impl Iterator<Item = &'a KeyValue> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if y.key < x.key => b.next(),
        (Some(_), _) => a.next(),
        (None, _) => b.next(),
    })
}

fn page<'a>(items: impl Iterator<Item = &'a KeyValue>, limit: Option<usize>, revision: Revision) -> Listing {
    let limit = limit.unwrap_or(usize::MAX);
    let mut items = items;
    let page: Vec<_> = items.by_ref().take(limit).cloned().collect();
    let remaining = items.count() as u64;
    Listing { items: page, revision, more: remaining > 0, remaining }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn change(tag: Tag, revision: Revision, key: &str, value: &str) -> Change {
        Change {
            tag,
            revision,
            create_revision: revision,
            expires_ms: 0,
            key: key.into(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        }
    }

    fn index() -> Index {
        Index::new(Retention::of(1000, 1 << 20, 60_000))
    }

    fn shown(listing: &Listing) -> Vec<String> {
        let text = |kv: &KeyValue| format!("{}={}", kv.key, String::from_utf8_lossy(&kv.value));
        listing.items.iter().map(text).collect()
    }

    #[test]
    fn pages_of_an_old_revision_do_not_move_when_keys_come_and_go() {
        let mut index = index();
        for (n, key) in ["/p/a", "/p/c", "/p/e"].into_iter().enumerate() {
            index.apply(&change(Tag::Put, n as u64 + 1, key, "old"), 0);
        }
        index.apply(&change(Tag::Put, 4, "/p/b", "new"), 0);
        index.apply(&change(Tag::Delete, 5, "/p/c", ""), 0);
        index.apply(&change(Tag::Put, 6, "/p/e", "new"), 0);
        let first = index.list("/p/", None, Some(1), Some(3)).unwrap();
        assert_eq!((shown(&first), first.remaining, first.more), (vec!["/p/a=old".into()], 2, true));
        let rest = index.list("/p/", Some("/p/a"), None, Some(3)).unwrap();
        assert_eq!(shown(&rest), ["/p/c=old", "/p/e=old"]);
        assert_eq!(
            shown(&index.list("/p/", None, None, None).unwrap()),
            ["/p/a=old", "/p/b=new", "/p/e=new"]
        );
    }

    #[test]
    fn history_beyond_the_retention_is_compacted_not_wrong() {
        let mut index = Index::new(Retention::of(2, 1 << 20, 60_000));
        for revision in 1..=4 {
            index.apply(&change(Tag::Put, revision, "/k", "v"), 0);
        }
        assert!(matches!(index.list("/", None, None, Some(1)), Err(StoreError::Compacted { oldest: 2 })));
        assert!(matches!(index.events_after("/", 1, 9), Err(StoreError::Compacted { oldest: 2 })));
        assert_eq!(index.events_after("/", 2, 9).unwrap().0.len(), 2);
    }

    #[test]
    fn events_age_out() {
        let mut index = index();
        index.apply(&change(Tag::Put, 1, "/k", "v"), 1_000);
        index.apply(&change(Tag::Put, 2, "/k", "v"), 61_001);
        assert_eq!(index.floor(), 1);
    }

    #[test]
    fn a_replay_onto_newer_keys_changes_nothing() {
        let mut index = index();
        index.restore(&change(Tag::Put, 5, "/k", "newest"));
        index.restore(&change(Tag::Put, 3, "/k", "older"));
        index.restore(&change(Tag::Delete, 4, "/k", ""));
        assert_eq!(index.get("/k").map(|entry| entry.kv.value.clone()), Some(Bytes::from_static(b"newest")));
        assert_eq!((index.revision(), index.floor()), (5, 5));
        assert_eq!(index.live_bytes(), 8);
    }

    #[test]
    fn keys_settled_at_a_revision_answer_for_nothing_older() {
        let mut index = index();
        index.restore(&change(Tag::Put, 5, "/k", "newest"));
        index.settle(9);
        assert_eq!((index.revision(), index.floor()), (9, 9));
        assert!(matches!(index.list("/", None, None, Some(8)), Err(StoreError::Compacted { oldest: 9 })));
    }

    #[test]
    fn a_burst_is_forgotten_once_it_has_settled_and_the_newest_of_it_stays() {
        let retention =
            Retention { settles_ms: 1000, settled_bytes: 700, ..Retention::of(1000, 1 << 20, 60_000) };
        let mut index = Index::new(retention);
        for revision in 1..=10 {
            index.apply(&change(Tag::Put, revision, "/k", &"x".repeat(100)), 5_000);
        }
        assert_eq!(index.history.len(), 10, "all of it is kept while it is new");
        assert_eq!(index.settles_at(), Some(6_001));
        index.forget_settled(5_900);
        assert_eq!(index.history.len(), 10);
        index.forget_settled(6_001);
        assert!(!index.history.is_empty() && index.history_bytes <= 700, "{}", index.history_bytes);
        assert_eq!(index.settles_at(), None, "nothing is left to do");
    }

    #[test]
    fn a_prefix_is_not_left_by_its_cursor() {
        let mut index = index();
        for (n, key) in ["/a/1", "/b/1", "/c/1"].into_iter().enumerate() {
            index.apply(&change(Tag::Put, n as u64 + 1, key, ""), 0);
        }
        assert_eq!(shown(&index.list("/b/", Some("/a/9"), None, None).unwrap()), ["/b/1="]);
        assert!(index.list("/b/", Some("/b/1"), None, None).unwrap().items.is_empty());
        assert!(matches!(index.list("/", None, None, Some(9)), Err(StoreError::FutureRevision { .. })));
    }
}
