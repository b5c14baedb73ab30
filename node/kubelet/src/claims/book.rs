//! Which claims are prepared on this node and for whom. Pure.
//!
//! A claim stays in the book from before its drivers are first asked to prepare it until the last of them has said that it
//! is undone. Whoever asks drivers about a claim has it marked busy, so that nobody else does at the same time.

use std::collections::{BTreeMap, BTreeSet};

use podwire_wire::ids::PodUid;

/// Namespace and name of a claim.
pub(crate) type Key = (String, String);

/// A device as its driver prepared it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) share: Option<String>,
    /// Requests of the claim that it answers; none: all of them.
    pub(crate) requests: Vec<String>,
    pub(crate) cdi_ids: Vec<String>,
}

/// A device that is allocated to one claim alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Exclusive {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
}

/// A claim that a pod may use, as it is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) drivers: BTreeSet<String>,
    pub(crate) exclusive: BTreeSet<Exclusive>,
}

/// A claim on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) uid: String,
    pub(crate) pods: BTreeSet<PodUid>,
    /// Drivers that may have something to undo, with what they prepared.
    pub(crate) drivers: BTreeMap<String, Vec<Device>>,
    pub(crate) exclusive: BTreeSet<Exclusive>,
    /// Whether all of its drivers have prepared it since this kubelet began.
    pub(crate) prepared: bool,
    /// Whether its drivers are being asked right now.
    pub(crate) busy: bool,
}

/// A claim that drivers are to be asked about. It is busy until [`Book::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Todo {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) drivers: Vec<String>,
}

/// Why a pod cannot have its claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BookError {
    /// The claim of an earlier pod has not been unprepared.
    #[error(
        "old ResourceClaim with same name {name} and different UID {uid} still exists (previous pod force-deleted?!)"
    )]
    OtherUid { name: String, uid: String },
    /// The device has not been given back.
    #[error(
        "device {} in pool {} of DRA driver {} is still prepared for ResourceClaim {}/{} ({uid})",
        .device.device, .device.pool, .device.driver, .holder.0, .holder.1
    )]
    Held { device: Box<Exclusive>, holder: Box<Key>, uid: String },
}

/// What is to be done for a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Somebody else has drivers at work on one of its claims.
    Wait,
    /// These are to be asked for; `changed`: the book has to be written first.
    Go { changed: bool, todo: Vec<Todo> },
}

/// All claims on this node.
#[derive(Debug, Default)]
pub(crate) struct Book {
    claims: BTreeMap<Key, Entry>,
    /// Pods that no longer wait until their claims are unprepared.
    left: BTreeSet<PodUid>,
}

impl Book {
    /// What an earlier kubelet has written down.
    pub(crate) fn recovered(claims: BTreeMap<Key, Entry>) -> Book {
        Book { claims, left: BTreeSet::new() }
    }

    pub(crate) fn claims(&self) -> &BTreeMap<Key, Entry> {
        &self.claims
    }

    /// The claim if it was prepared for the pod.
    pub(crate) fn held(&self, key: &Key, pod: &str) -> Option<&Entry> {
        self.claims.get(key).filter(|entry| entry.pods.contains(pod))
    }

    /// All claims of a pod.
    pub(crate) fn of<'a>(&'a self, pod: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.claims.values().filter(move |entry| entry.pods.contains(pod))
    }

    /// Whether the pod's end has to wait for its claims.
    pub(crate) fn holds(&self, pod: &str) -> bool {
        !self.left.contains(pod) && self.of(pod).next().is_some()
    }

    /// A pod wants its claims prepared: all of them, or none is touched.
    pub(crate) fn take(&mut self, pod: &PodUid, wanted: &[Wanted]) -> Result<Turn, BookError> {
        for want in wanted {
            self.check(want)?;
        }
        if wanted.iter().any(|want| self.claims.get(&want.key).is_some_and(|entry| entry.busy)) {
            return Ok(Turn::Wait);
        }
        let mut changed = self.left.remove(pod);
        let mut todo = Vec::new();
        for want in wanted {
            let entry = self.claims.entry(want.key.clone()).or_default();
            entry.uid.clone_from(&want.uid);
            changed |= entry.pods.insert(pod.clone());
            if entry.prepared {
                continue;
            }
            entry.exclusive.extend(want.exclusive.iter().cloned());
            for driver in &want.drivers {
                changed |= !entry.drivers.contains_key(driver);
                entry.drivers.entry(driver.clone()).or_default();
            }
            entry.busy = true;
            let drivers = want.drivers.iter().cloned().collect();
            todo.push(Todo { key: want.key.clone(), uid: want.uid.clone(), drivers });
        }
        Ok(Turn::Go { changed, todo })
    }

    /// No device is given to a claim while another one has it, whatever the scheduler believes.
    fn check(&self, want: &Wanted) -> Result<(), BookError> {
        if let Some(old) = self.claims.get(&want.key).filter(|old| old.uid != want.uid) {
            return Err(BookError::OtherUid { name: want.key.1.clone(), uid: old.uid.clone() });
        }
        for (key, other) in self.claims.iter().filter(|(key, _)| **key != want.key) {
            if let Some(device) = want.exclusive.iter().find(|one| other.exclusive.contains(one)) {
                return Err(BookError::Held {
                    device: Box::new(device.clone()),
                    holder: Box::new(key.clone()),
                    uid: other.uid.clone(),
                });
            }
        }
        Ok(())
    }

    /// A driver has prepared a claim; what it said before counts no more.
    pub(crate) fn prepared_by(&mut self, key: &Key, driver: &str, devices: Vec<Device>) {
        if let Some(entry) = self.claims.get_mut(key) {
            entry.drivers.insert(driver.to_owned(), devices);
        }
    }

    /// All drivers have prepared a claim.
    pub(crate) fn prepared(&mut self, key: &Key) {
        if let Some(entry) = self.claims.get_mut(key) {
            entry.prepared = true;
        }
    }

    /// That a claim is prepared could not be written down: its drivers are asked again.
    pub(crate) fn doubted(&mut self, key: &Key) {
        if let Some(entry) = self.claims.get_mut(key) {
            entry.prepared = false;
        }
    }

    /// Nothing of the pod runs any more: claims that others use lose it, the rest is to be unprepared.
    pub(crate) fn leave(&mut self, pod: &str) -> Turn {
        if self.left.contains(pod) {
            return Turn::Go { changed: false, todo: Vec::new() };
        }
        let left = &self.left;
        let (mut changed, mut todo) = (false, Vec::new());
        let last = |entry: &Entry| !entry.pods.iter().any(|other| *other != *pod && !left.contains(other));
        let own = |entry: &Entry| entry.pods.contains(pod);
        if self.claims.values().any(|entry| own(entry) && entry.busy) {
            return Turn::Wait;
        }
        for (key, entry) in self.claims.iter_mut().filter(|(_, entry)| own(entry)) {
            if last(entry) {
                todo.push(entry.undo(key));
            } else {
                changed |= entry.pods.remove(pod);
            }
        }
        Turn::Go { changed, todo }
    }

    /// Claims that nobody who exists uses any more are to be unprepared; those that go are no longer users of others.
    pub(crate) fn forsaken(&mut self, exists: impl Fn(&PodUid) -> bool) -> (bool, Vec<Todo>) {
        let left = &self.left;
        let (mut changed, mut todo) = (false, Vec::new());
        for (key, entry) in self.claims.iter_mut().filter(|(_, entry)| !entry.busy) {
            let uses = |pod: &PodUid| exists(pod) && !left.contains(pod);
            if !entry.pods.iter().any(uses) {
                todo.push(entry.undo(key));
                continue;
            }
            let before = entry.pods.len();
            entry.pods.retain(uses);
            changed |= entry.pods.len() != before;
        }
        (changed, todo)
    }

    /// A driver has undone what it did for a claim; the last one takes it out of the book.
    pub(crate) fn unprepared_by(&mut self, key: &Key, driver: &str) {
        if let Some(entry) = self.claims.get_mut(key) {
            entry.drivers.remove(driver);
        }
    }

    /// Nobody asks drivers about these any more.
    pub(crate) fn release<'a>(&mut self, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            if let Some(entry) = self.claims.get_mut(key) {
                entry.busy = false;
            }
        }
    }

    /// No driver has anything of this claim any more.
    pub(crate) fn settle(&mut self, key: &Key) {
        if self.claims.get(key).is_some_and(|entry| entry.drivers.is_empty()) {
            self.claims.remove(key);
            self.left.retain(|pod| self.claims.values().any(|entry| entry.pods.contains(pod)));
        }
    }

    /// The pod ends though drivers have not undone what they did for it.
    pub(crate) fn give_up(&mut self, pod: &PodUid) {
        if self.of(pod).next().is_some() {
            self.left.insert(pod.clone());
        }
    }
}

impl Entry {
    fn undo(&mut self, key: &Key) -> Todo {
        self.busy = true;
        self.prepared = false;
        Todo { key: key.clone(), uid: self.uid.clone(), drivers: self.drivers.keys().cloned().collect() }
    }

    /// Ids of the devices that answer a request; of all when it has no name.
    pub(crate) fn cdi_ids<'a>(&'a self, request: &'a str) -> impl Iterator<Item = &'a str> {
        let devices = self.drivers.values().flatten();
        let fits = move |device: &&Device| device.answers(request);
        devices.filter(fits).flat_map(|device| device.cdi_ids.iter().map(String::as_str))
    }
}

impl Device {
    /// Whether it answers a request of the claim.
    pub(crate) fn answers(&self, request: &str) -> bool {
        // A request may be met by one of several alternatives, which drivers do not name.
        let base = request.split('/').next().unwrap_or_default();
        request.is_empty() || self.requests.is_empty() || self.requests.iter().any(|name| name == base)
    }
}

#[cfg(test)]
mod tests;
