//! What the store knows in memory: every key with its versions, and the order of the changes. Pure; time is an argument.
//!
//! Changes are entered above the published revision, where readers do not look, and become visible with
//! [`Index::publish`] or go with [`Index::take_back`]. The newest version of a key is in memory; older ones are while their
//! change is recent, and are on disk afterwards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::disk::{DataFile, Found};
use super::key::{Key, Kv, Place, Span, Version};
use super::leases::Leases;
use super::record::{Change, Tag};
use crate::{Revision, StoreError};

/// The number of files whose changes cannot be read alone: what is there stays in memory.
pub(crate) const NO_FILE: u32 = 0;

/// Entries of the history that are looked at under one lock.
const SCAN: usize = 8192;

/// How many recent changes are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    pub(crate) age_ms: u64,
    /// What is older than this counts as settled,
    pub(crate) settles_ms: u64,
    /// and is kept only while there is not more than this.
    pub(crate) settled_bytes: usize,
    /// What becomes of a change that is no longer recent.
    pub(crate) then: Then,
}

/// What becomes of a change that is no longer recent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is forgotten: nobody can ask for what is older.
    Forgotten,
    /// It is on disk, until somebody compacts it.
    OnDisk,
}

/// One committed change as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) key: Key,
    pub(crate) main: Revision,
    /// Absent: the key was deleted.
    pub(crate) kv: Option<Arc<Kv>>,
    /// What the key held before.
    pub(crate) previous: Option<Arc<Kv>>,
}

/// An event that may still be on disk.
#[derive(Debug)]
pub(crate) enum Told {
    Ready(Arc<Event>),
    Stored { key: Key, main: Revision, kv: Option<Found>, previous: Option<Found> },
}

struct Past {
    event: Arc<Event>,
    at_ms: u64,
}

/// Keys in a range as they were at a revision.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) found: Vec<Found>,
    /// Keys in the range, whatever the limit.
    pub(crate) count: usize,
}

/// All keys, their versions, and the leases.
pub(crate) struct Index {
    keys: BTreeMap<Key, Vec<Version>>,
    /// Every change that can be watched, in order.
    order: VecDeque<(Revision, Key)>,
    /// The published changes after `recent_floor`.
    recent: VecDeque<Past>,
    recent_bytes: usize,
    recent_floor: Revision,
    unpublished: Vec<Arc<Event>>,
    live_bytes: u64,
    held_bytes: u64,
    decided: Revision,
    published: Revision,
    compacted: Option<Revision>,
    retention: Retention,
    files: HashMap<u32, Arc<DataFile>>,
    pub(crate) leases: Leases,
}

impl Index {
    /// An empty store at revision 0.
    pub(crate) fn new(retention: Retention) -> Self {
        Self {
            keys: BTreeMap::new(),
            order: VecDeque::new(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            recent_floor: 0,
            unpublished: Vec::new(),
            live_bytes: 0,
            held_bytes: 0,
            decided: 0,
            published: 0,
            compacted: None,
            retention,
            files: HashMap::new(),
            leases: Leases::default(),
        }
    }

    /// The newest revision that readers see.
    pub(crate) fn revision(&self) -> Revision {
        self.published
    }

    /// The newest revision that was given out.
    pub(crate) fn decided(&self) -> Revision {
        self.decided
    }

    /// What was compacted last: older revisions are refused.
    pub(crate) fn compacted(&self) -> Option<Revision> {
        self.compacted
    }

    /// Changes after this are in memory.
    pub(crate) fn recent_floor(&self) -> Revision {
        self.recent_floor
    }

    /// The oldest revision that can be listed.
    pub(crate) fn floor(&self) -> Revision {
        self.compacted.unwrap_or(0)
    }

    /// What becomes of changes that are no longer recent.
    pub(crate) fn then(&self) -> Then {
        self.retention.then
    }

    /// Bytes of all live keys and values.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes on disk of everything that can still be asked for.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// How many keys there are or were.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Makes a file known from which versions can be read.
    pub(crate) fn add_file(&mut self, file: Arc<DataFile>) -> u32 {
        let number = (1..).find(|number| !self.files.contains_key(number)).unwrap_or(u32::MAX);
        self.files.insert(number, file);
        number
    }

    /// Forgets files to which no version refers any more.
    pub(crate) fn drop_files(&mut self, gone: impl Fn(&DataFile) -> bool) {
        self.files.retain(|_, file| !gone(file));
    }

    /// What the key holds now, decided or published.
    pub(crate) fn current(&self, key: &[u8]) -> Option<&Arc<Kv>> {
        self.keys.get(key).and_then(|versions| versions.last()).and_then(|newest| newest.kv.as_ref())
    }

    /// What the key held at `revision`.
    pub(crate) fn get(&self, key: &[u8], revision: Revision) -> Option<Found> {
        self.found(at(self.keys.get(key)?, revision)?)
    }

    fn found(&self, version: &Version) -> Option<Found> {
        if version.gone {
            return None;
        }
        Some(match &version.kv {
            Some(kv) => Found::Memory(kv.clone()),
            None => Found::Disk(self.files.get(&version.place.file)?.clone(), version.place),
        })
    }

    /// The keys of a span as they were at `revision`, at most `limit` of them, and how many there are.
    pub(crate) fn range(&self, span: &Span, revision: Revision, limit: usize) -> Page {
        let mut page = Page { found: Vec::new(), count: 0 };
        let mut take = |version: &Version| {
            if version.gone {
                return;
            }
            page.count += 1;
            if page.found.len() < limit {
                page.found.extend(self.found(version));
            }
        };
        match span {
            Span::One(key) => {
                let version = self.keys.get(key.as_ref()).and_then(|versions| at(versions, revision));
                version.into_iter().for_each(&mut take);
            }
            span if span.is_empty() => {}
            span => self.versions(span, revision).for_each(take),
        }
        page
    }

    /// The keys of a span that hold something now, decided or published.
    pub(crate) fn live(&self, span: &Span) -> Vec<Arc<Kv>> {
        match span {
            Span::One(key) => self.current(key).cloned().into_iter().collect(),
            span if span.is_empty() => Vec::new(),
            span => self.versions(span, Revision::MAX).filter_map(|version| version.kv.clone()).collect(),
        }
    }

    fn versions(&self, span: &Span, revision: Revision) -> impl Iterator<Item = &Version> {
        let end = match span {
            Span::Until(_, end) => Bound::Excluded(end.as_ref()),
            Span::One(_) | Span::From(_) => Bound::Unbounded,
        };
        self.keys
            .range::<[u8], _>((Bound::Included(span.start().as_ref()), end))
            .filter_map(move |(_, versions)| at(versions, revision))
    }

    /// One page of a prefix behind a key, for the trait: items and how many follow them.
    pub(crate) fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        revision: Revision,
    ) -> (Vec<Found>, u64) {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(prefix.as_bytes()),
        };
        let mut found = self
            .keys
            .range::<[u8], _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
            .filter_map(|(_, versions)| at(versions, revision).filter(|version| !version.gone));
        let items = found.by_ref().take(limit).filter_map(|version| self.found(version)).collect();
        let remaining = found.count() as u64;
        (items, remaining)
    }

    /// Enters a decided change; it is seen once it is published.
    pub(crate) fn enter(&mut self, change: &Change, place: Place) {
        let kv = &change.kv;
        let put = match change.tag {
            Tag::Put => Some(kv.clone()),
            Tag::Delete => None,
            _ => return,
        };
        self.decided = self.decided.max(kv.main);
        let versions = match self.keys.get_mut(kv.key.as_bytes()) {
            Some(versions) => versions,
            None => self.keys.entry(kv.key.clone()).or_insert_with(|| Vec::with_capacity(1)),
        };
        let previous = versions.last().and_then(|newest| newest.kv.clone());
        if let Some(old) = &previous {
            self.live_bytes -= old.size();
            self.leases.detach(old.lease, &old.key);
        } else if put.is_none() {
            // A deletion of nothing changes nothing.
            return;
        }
        if let Some(new) = &put {
            self.live_bytes += new.size();
            self.leases.attach(new.lease, &new.key);
        }
        self.held_bytes += u64::from(place.len);
        versions.push(Version {
            main: kv.main,
            place,
            kv: put.clone(),
            sub: change.sub,
            gone: put.is_none(),
        });
        let key = previous.as_ref().map_or_else(|| kv.key.clone(), |old| old.key.clone());
        self.order.push_back((kv.main, key.clone()));
        self.unpublished.push(Arc::new(Event { key, main: kv.main, kv: put, previous }));
    }

    /// Undoes everything that was entered and not published.
    pub(crate) fn take_back(&mut self) {
        for event in std::mem::take(&mut self.unpublished).into_iter().rev() {
            self.order.pop_back();
            let Some(versions) = self.keys.get_mut(event.key.as_bytes()) else { continue };
            if let Some(version) = versions.pop() {
                self.held_bytes -= u64::from(version.place.len);
            }
            if versions.is_empty() {
                self.keys.remove(event.key.as_bytes());
            }
            if let Some(kv) = &event.kv {
                self.live_bytes -= kv.size();
                self.leases.detach(kv.lease, &kv.key);
            }
            if let Some(old) = &event.previous {
                self.live_bytes += old.size();
                self.leases.attach(old.lease, &old.key);
            }
        }
        self.decided = self.published;
    }

    /// Shows everything that was entered.
    pub(crate) fn publish(&mut self, now_ms: u64) {
        self.published = self.decided;
        for event in std::mem::take(&mut self.unpublished) {
            self.recent_bytes += weight(&event);
            self.recent.push_back(Past { event, at_ms: now_ms });
        }
        self.trim(now_ms);
    }

    /// Takes the keys as they are for the state at `revision`: no revision up to it is given out again, and nothing before
    /// it is recent.
    pub(crate) fn settle(&mut self, revision: Revision) {
        self.decided = self.decided.max(revision);
        self.published = self.decided;
        self.recent_floor = self.recent_floor.max(revision);
    }

    /// Uses revisions up to `revision` up, without a change.
    pub(crate) fn settle_unused(&mut self, revision: Revision) {
        self.decided = self.decided.max(revision);
        self.published = self.decided;
    }

    /// Refuses what is older than `before` from now on; [`Index::forget`] does the work.
    pub(crate) fn compact(&mut self, before: Revision) {
        if self.compacted.is_none_or(|compacted| compacted < before) {
            self.compacted = Some(before);
        }
    }

    /// Forgets at most `most` versions that were compacted; whether there are more.
    pub(crate) fn forget(&mut self, most: usize) -> bool {
        let Some(compacted) = self.compacted else { return false };
        for _ in 0..most {
            match self.order.front() {
                Some((main, _)) if *main < compacted => {
                    if let Some((_, key)) = self.order.pop_front() {
                        self.forget_of(&key, compacted);
                    }
                }
                _ => {
                    // The changes of the very revision stay, and what they replaced goes.
                    let same = self.order.iter().take_while(|(main, _)| *main == compacted);
                    for key in same.map(|(_, key)| key.clone()).collect::<Vec<_>>() {
                        self.forget_of(&key, compacted);
                    }
                    return false;
                }
            }
        }
        true
    }

    fn forget_of(&mut self, key: &Key, compacted: Revision) {
        let Some(versions) = self.keys.get_mut(key.as_bytes()) else { return };
        let mut keep = versions.partition_point(|version| version.main <= compacted).saturating_sub(1);
        if versions.get(keep).is_some_and(|version| version.gone && version.main < compacted) {
            keep += 1;
        }
        for version in versions.drain(..keep) {
            self.held_bytes -= u64::from(version.place.len);
        }
        if versions.is_empty() {
            self.keys.remove(key.as_bytes());
        } else if versions.capacity() > 8 && versions.capacity() / 4 > versions.len() {
            versions.shrink_to(versions.len() * 2);
        }
        if self.order.capacity() > 1024 && self.order.capacity() / 4 > self.order.len() {
            self.order.shrink_to(self.order.len() * 2);
        }
    }

    fn trim(&mut self, now_ms: u64) {
        let Retention { events, bytes, age_ms, settles_ms, settled_bytes, .. } = self.retention;
        while self.recent.front().is_some_and(|past| {
            let age = now_ms.saturating_sub(past.at_ms);
            self.recent.len() > events
                || self.recent_bytes > bytes
                || age > age_ms
                || age > settles_ms && self.recent_bytes > settled_bytes
        }) {
            self.drop_oldest();
        }
        if self.recent.capacity() > 1024 && self.recent.capacity() / 4 > self.recent.len() {
            self.recent.shrink_to(self.recent.len() * 2);
        }
    }

    /// Lets go of what has grown too old while nobody wrote.
    pub(crate) fn let_settle(&mut self, now_ms: u64) {
        self.trim(now_ms);
    }

    /// When there is something to settle, in milliseconds since 1970.
    pub(crate) fn settles_at(&self) -> Option<u64> {
        let oldest = self.recent.front().filter(|_| self.recent_bytes > self.retention.settled_bytes)?;
        Some(oldest.at_ms.saturating_add(self.retention.settles_ms).saturating_add(1))
    }

    fn drop_oldest(&mut self) {
        let Some(Past { event, .. }) = self.recent.pop_front() else { return };
        self.recent_bytes -= weight(&event);
        self.recent_floor = self.recent_floor.max(event.main);
        match self.retention.then {
            Then::Forgotten => {
                self.compact(event.main);
                self.forget(usize::MAX);
            }
            Then::OnDisk => {
                let Some(previous) = &event.previous else { return };
                let Some(versions) = self.keys.get_mut(event.key.as_bytes()) else { return };
                if let Ok(found) = versions.binary_search_by_key(&previous.main, |version| version.main)
                    && versions[found].place.file != NO_FILE
                {
                    versions[found].kv = None;
                }
            }
        }
    }

    /// Events of a span after `cursor`, about `most` of them and never half a revision, and how far they reach.
    pub(crate) fn events_after(
        &self,
        matches: impl Fn(&[u8]) -> bool,
        cursor: Revision,
        most: usize,
    ) -> Result<(Vec<Told>, Revision), StoreError> {
        if let Some(compacted) = self.compacted.filter(|compacted| cursor + 1 < *compacted) {
            return Err(StoreError::Compacted { oldest: compacted });
        }
        let mut told = Vec::new();
        let mut reached = cursor;
        if cursor >= self.recent_floor {
            let start = self.recent.partition_point(|past| past.event.main <= cursor);
            for past in self.recent.range(start..) {
                if told.len() >= most && past.event.main > reached {
                    return Ok((told, reached));
                }
                reached = past.event.main;
                if matches(past.event.key.as_bytes()) {
                    told.push(Told::Ready(past.event.clone()));
                }
            }
            return Ok((told, self.published));
        }
        let start = self.order.partition_point(|(main, _)| *main <= cursor);
        for (seen, (main, key)) in self.order.range(start..).enumerate() {
            if *main > self.published {
                break;
            }
            if (told.len() >= most || seen >= SCAN) && *main > reached {
                return Ok((told, reached));
            }
            reached = *main;
            if matches(key.as_bytes()) {
                told.extend(self.told(key, *main));
            }
        }
        Ok((told, self.published))
    }

    fn told(&self, key: &Key, main: Revision) -> Option<Told> {
        let versions = self.keys.get(key.as_bytes())?;
        let at = versions.binary_search_by_key(&main, |version| version.main).ok()?;
        let previous = at.checked_sub(1).and_then(|before| self.found(&versions[before]));
        Some(Told::Stored { key: key.clone(), main, kv: self.found(&versions[at]), previous })
    }

    /// The kept versions behind a key that are not newer than `revision`, whole keys, about `bytes` of them; with `newest` only the
    /// newest of each key that holds something then. Also the last key that was looked at.
    pub(crate) fn versions_after(
        &self,
        after: Option<&Key>,
        revision: Revision,
        newest: bool,
        bytes: u64,
    ) -> (Vec<(Key, Version)>, Option<Key>) {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_bytes()));
        let (mut found, mut size, mut last) = (Vec::new(), 0, None);
        for (seen, (key, versions)) in self.keys.range::<[u8], _>((from, Bound::Unbounded)).enumerate() {
            if size >= bytes || seen >= SCAN {
                break;
            }
            last = Some(key.clone());
            let known = &versions[..versions.partition_point(|version| version.main <= revision)];
            let wanted = if newest { &known[known.len().saturating_sub(1)..] } else { known };
            for version in wanted.iter().filter(|version| !(newest && version.gone)) {
                size += u64::from(version.place.len);
                found.push((key.clone(), version.clone()));
            }
        }
        (found, last)
    }

    /// The live keys that end at some time.
    pub(crate) fn expiring(&self) -> impl Iterator<Item = &Arc<Kv>> {
        self.keys.values().filter_map(|versions| versions.last()?.kv.as_ref()).filter(|kv| kv.expires_ms != 0)
    }

    /// The file a place is in.
    pub(crate) fn file(&self, place: Place) -> Option<Arc<DataFile>> {
        self.files.get(&place.file).cloned()
    }

    /// Says where versions lie from now on.
    pub(crate) fn relocate(&mut self, moved: &[(Key, Revision, Place)]) {
        for (key, main, place) in moved {
            let Some(versions) = self.keys.get_mut(key.as_bytes()) else { continue };
            if let Ok(at) = versions.binary_search_by_key(main, |version| version.main) {
                self.held_bytes = self.held_bytes - u64::from(versions[at].place.len) + u64::from(place.len);
                versions[at].place = *place;
            }
        }
    }

    /// Takes in a version of a snapshot; false if it is not newer than the one of its key before it.
    pub(crate) fn load(&mut self, change: &Change, place: Place) -> bool {
        let (kv, gone) = (&change.kv, change.tag == Tag::Delete);
        let versions = self.keys.entry(kv.key.clone()).or_insert_with(|| Vec::with_capacity(1));
        if let Some(older) = versions.last_mut() {
            if older.main >= kv.main {
                return false;
            }
            self.live_bytes -= older.kv.as_ref().map_or(0, |kv| kv.size());
            if place.file != NO_FILE {
                older.kv = None;
            }
        }
        self.live_bytes += if gone { 0 } else { kv.size() };
        self.held_bytes += u64::from(place.len);
        versions.push(Version {
            main: kv.main,
            place,
            kv: (!gone).then(|| kv.clone()),
            sub: change.sub,
            gone,
        });
        true
    }

    /// Takes in a change of a log that the keys may already include: a snapshot of version 1 was taken while writes went on.
    pub(crate) fn load_over(&mut self, change: &Change) {
        let key = change.kv.key.as_bytes();
        if self.current(key).is_some_and(|kv| kv.main >= change.kv.main) {
            return;
        }
        if let Some(old) = self.keys.remove(key).and_then(|versions| versions.last()?.kv.clone()) {
            self.live_bytes -= old.size();
        }
        if change.tag == Tag::Put {
            self.load(change, Place { offset: 0, len: 0, file: NO_FILE });
        }
    }

    /// Orders what snapshots held, once all of it was taken in.
    pub(crate) fn put_in_order(&mut self) {
        let mut order: Vec<(Revision, u32, Key)> = Vec::new();
        let floor = self.compacted.unwrap_or(0);
        for (key, versions) in &self.keys {
            for version in versions.iter().filter(|version| version.main >= floor) {
                order.push((version.main, version.sub, key.clone()));
            }
        }
        order.sort_unstable_by_key(|(main, sub, _)| (*main, *sub));
        self.order = order.into_iter().map(|(main, _, key)| (main, key)).collect();
    }

    /// Ties live keys to their leases, once both were taken in.
    pub(crate) fn attach_leases(&mut self) {
        let leases = &mut self.leases;
        let live = self.keys.values().filter_map(|versions| versions.last()?.kv.as_ref());
        live.filter(|kv| kv.lease != 0).for_each(|kv| leases.attach(kv.lease, &kv.key));
    }
}

/// What a key was at a revision.
fn at(versions: &[Version], revision: Revision) -> Option<&Version> {
    match versions.last() {
        Some(newest) if newest.main <= revision => Some(newest),
        _ => {
            let later = versions.partition_point(|version| version.main <= revision);
            later.checked_sub(1).and_then(|at| versions.get(at))
        }
    }
}

fn weight(event: &Event) -> usize {
    // The previous value is shared with the event before it; the constant stands for the nodes around.
    200 + event.key.len() + event.kv.as_ref().or(event.previous.as_ref()).map_or(0, |kv| kv.value.len())
}

#[cfg(test)]
mod tests {
    use super::super::tests::retention;
    use super::*;

    fn change(index: &mut Index, key: &str, value: Option<&str>) {
        let main = index.decided() + 1;
        let kv = Kv {
            key: key.into(),
            value: value.unwrap_or_default().to_owned().into(),
            create: main,
            ..Kv::nothing(main)
        };
        let tag = if value.is_some() { Tag::Put } else { Tag::Delete };
        index.enter(&Change::of(tag, 0, kv), Place { offset: main, len: 10, file: NO_FILE });
    }

    fn write(index: &mut Index, key: &str, value: Option<&str>, now_ms: u64) {
        change(index, key, value);
        index.publish(now_ms);
    }

    fn shown(index: &Index, after: Option<&str>, limit: usize, revision: Revision) -> (Vec<String>, u64) {
        let (found, remaining) = index.page("/p/", after, limit, revision);
        let text = |kv: &Kv| format!("{}={}", kv.key.text(), String::from_utf8_lossy(&kv.value));
        (found.into_iter().map(|one| text(&one.read().unwrap())).collect(), remaining)
    }

    #[test]
    fn pages_of_an_old_revision_do_not_move_when_keys_come_and_go() {
        let mut index = Index::new(retention());
        for key in ["/p/a", "/p/c", "/p/e"] {
            write(&mut index, key, Some("old"), 0);
        }
        write(&mut index, "/p/b", Some("new"), 0);
        write(&mut index, "/p/c", None, 0);
        write(&mut index, "/p/e", Some("new"), 0);
        assert_eq!(shown(&index, None, 1, 3), (vec!["/p/a=old".into()], 2));
        assert_eq!(shown(&index, Some("/p/a"), 9, 3).0, ["/p/c=old", "/p/e=old"]);
        assert_eq!(shown(&index, None, 9, 6).0, ["/p/a=old", "/p/b=new", "/p/e=new"]);
    }

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        let mut index = Index::new(retention());
        write(&mut index, "/p/a", Some("old"), 0);
        let before = (index.live_bytes(), index.held_bytes(), index.key_count());
        change(&mut index, "/p/a", Some("longer than before"));
        change(&mut index, "/p/b", Some("new"));
        change(&mut index, "/p/a", None);
        assert_eq!((index.decided(), index.revision()), (4, 1));
        assert_eq!(shown(&index, None, 9, 1).0, ["/p/a=old"], "nothing is seen before it is published");
        index.take_back();
        assert_eq!((index.live_bytes(), index.held_bytes(), index.key_count()), before);
        assert_eq!((index.decided(), shown(&index, None, 9, 1).0), (1, vec!["/p/a=old".to_owned()]));
        write(&mut index, "/p/b", Some("again"), 0);
        let (events, reached) = index.events_after(|_| true, 1, 9).unwrap();
        assert_eq!((events.len(), reached), (1, 2));
    }

    #[test]
    fn history_beyond_the_retention_is_compacted_not_wrong() {
        let mut index = Index::new(Retention { events: 2, ..retention() });
        for _ in 0..4 {
            write(&mut index, "/p/k", Some("v"), 0);
        }
        assert_eq!(index.floor(), 2);
        assert!(matches!(index.events_after(|_| true, 0, 9), Err(StoreError::Compacted { oldest: 2 })));
        assert_eq!(index.events_after(|_| true, 2, 9).unwrap().0.len(), 2);
        assert_eq!(index.held_bytes(), 30, "three versions are left: at 2, 3 and 4");
    }

    #[test]
    fn a_compaction_keeps_what_was_there_then_and_the_deletion_of_that_very_revision() {
        let mut index = Index::new(Retention { then: Then::OnDisk, ..retention() });
        write(&mut index, "/p/a", Some("1"), 0);
        write(&mut index, "/p/a", Some("2"), 0);
        write(&mut index, "/p/b", Some("3"), 0);
        write(&mut index, "/p/b", None, 0);
        write(&mut index, "/p/a", Some("5"), 0);
        index.compact(4);
        assert!(index.forget(1), "there is more to forget");
        while index.forget(1) {}
        assert_eq!(shown(&index, None, 9, 4).0, ["/p/a=2"]);
        let (events, _) = index.events_after(|_| true, 3, 9).unwrap();
        assert_eq!(events.len(), 2, "the deletion at 4 and the write at 5");
        assert_eq!(index.key_count(), 2);
        index.compact(5);
        while index.forget(1) {}
        assert_eq!((index.key_count(), index.held_bytes()), (1, 10));
    }

    #[test]
    fn a_burst_is_let_go_once_it_has_settled_and_the_newest_of_it_stays() {
        let mut index = Index::new(Retention { settles_ms: 1000, settled_bytes: 700, ..retention() });
        for _ in 0..10 {
            write(&mut index, "/p/k", Some(&"x".repeat(100)), 5_000);
        }
        assert_eq!(index.settles_at(), Some(6_001));
        index.let_settle(5_900);
        assert_eq!(index.recent.len(), 10, "all of it is kept while it is new");
        index.let_settle(6_001);
        assert!(!index.recent.is_empty() && index.recent_bytes <= 700, "{}", index.recent_bytes);
        assert_eq!(index.settles_at(), None, "nothing is left to do");
    }
}
