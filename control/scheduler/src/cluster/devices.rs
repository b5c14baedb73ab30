//! Claims to devices, the devices that drivers offer, and what is taken of them. Pure.
//!
//! What is taken follows each claim that comes, changes or goes; no decision counts it anew. An allocation that was decided
//! here counts from then on: until the API shows the claim with one, or shows it later than it was written without one, or
//! nothing was written. So no device is thought free in between.

pub(crate) mod answers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::serde::de::DeserializeOwned;
use podwire_api::owner;
use serde_json::Value;

use answers::Answers;

use super::workloads::Key;
use crate::allocator::{Classes, Inventory, PoolId, Selectors, Slice, Taken};
use crate::plugins::dynamic_resources::extended;

/// Selectors that are kept compiled.
const SELECTORS: usize = 1024;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Changed {
    /// A claim.
    Claim {
        /// Which one.
        key: Key,
        /// It is new, or what is allocated or reserved changed.
        matters: bool,
        /// It gave devices back.
        freed: bool,
    },
    /// A device class came or changed.
    Class {
        /// Its name.
        name: String,
        /// The extended resource that it stands for by its own word, if that is news.
        resource: Option<String>,
        /// It was not there before.
        is_new: bool,
    },
    /// A slice came or changed.
    Slice,
}

/// A claim to devices.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) object: ResourceClaim,
    /// How new it is.
    version: u64,
}

/// The number in a resource version: later ones are higher.
pub(crate) fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Claim {
    /// Keeps a claim.
    pub(crate) fn new(object: ResourceClaim) -> Self {
        let meta = &object.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let version = version(meta.resource_version.as_deref());
        Self { key: (text(&meta.namespace), text(&meta.name)), version, object }
    }

    /// `namespace/name`.
    pub(crate) fn reference(&self) -> String {
        format!("{}/{}", self.key.0, self.key.1)
    }

    pub(crate) fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// What it has been given, as the API says.
    pub(crate) fn allocation(&self) -> Option<&AllocationResult> {
        self.object.status.as_ref()?.allocation.as_ref()
    }

    /// The uids of those who may use it.
    pub(crate) fn users(&self) -> impl Iterator<Item = &str> {
        let status = self.object.status.iter();
        status.flat_map(|status| status.reserved_for.iter().flatten()).map(|one| one.uid.as_str())
    }

    /// Whether the pod of this uid may use it.
    pub(crate) fn is_reserved_for(&self, pod: &str) -> bool {
        self.users().any(|user| user == pod)
    }

    /// The uid of the pod for whose extended resources it was made.
    pub(crate) fn resources_of(&self) -> Option<&str> {
        let marks = self.object.metadata.annotations.as_ref()?;
        marks.get(extended::ANNOTATION).filter(|mark| *mark == "true")?;
        let owners = self.object.metadata.owner_references.iter().flatten();
        owner::controller(owners).map(|one| one.uid.as_str())
    }

    /// Whether the pod of this uid controls it.
    pub(crate) fn is_of(&self, pod: &str) -> bool {
        let owners = self.object.metadata.owner_references.iter().flatten();
        owner::is_controlled_by(owners, pod)
    }
}

/// An allocation that was decided here.
#[derive(Debug)]
struct Pending {
    allocation: Arc<AllocationResult>,
    /// The version of the claim that has it, once it was written.
    written: Option<u64>,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Devices {
    claims: HashMap<Key, Arc<Claim>>,
    /// By the uid of the claim.
    pending: HashMap<String, Pending>,
    /// Claims for extended resources by the uid of their pod.
    for_resources: HashMap<String, Key>,
    /// Claims that were made with an allocation that is pending under this made-up uid until they are seen.
    awaited: HashMap<Key, String>,
    /// The class that stands for an extended resource.
    by_resource: HashMap<String, String>,
    pub(crate) classes: Classes,
    pub(crate) inventory: Inventory,
    pub(crate) taken: Taken,
    pub(crate) selectors: Selectors,
    answers: Mutex<Answers>,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            claims: HashMap::new(),
            pending: HashMap::new(),
            for_resources: HashMap::new(),
            awaited: HashMap::new(),
            by_resource: HashMap::new(),
            classes: Classes::new(),
            inventory: Inventory::default(),
            taken: Taken::default(),
            selectors: Selectors::new(SELECTORS),
            answers: Mutex::default(),
        }
    }
}

/// Reads an object; one that cannot be read is of a server that nobody knows.
fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object)
        .inspect_err(
            |error| tracing::error!(%error, name = %object["metadata"]["name"], "object not understood"),
        )
        .ok()
}

impl Devices {
    /// A claim by namespace and name.
    pub(crate) fn claim(&self, key: &Key) -> Option<&Arc<Claim>> {
        self.claims.get(key)
    }

    /// Whether a claim is being allocated.
    pub(crate) fn is_pending(&self, claim: &Claim) -> bool {
        self.pending.contains_key(claim.uid())
    }

    /// Takes in a claim; says what changed.
    pub(crate) fn set_claim(&mut self, object: &Value) -> Option<Changed> {
        Some(self.take_in(Claim::new(read(object)?)))
    }

    /// The same of one that was read.
    pub(crate) fn take_in(&mut self, new: Claim) -> Changed {
        let new = Arc::new(new);
        let old = self.claims.insert(new.key.clone(), new.clone());
        let mut freed = false;
        let mut matters = true;
        if let Some(old) = &old {
            let same = old.uid() == new.uid();
            matters = !same || old.object.status != new.object.status;
            freed = old.allocation().is_some() && !(same && new.allocation().is_some());
            if matters && let Some(before) = old.allocation() {
                self.give_back(before);
            }
            if !same {
                freed |= self.drop_pending(old.uid());
            }
        }
        if let Some(pod) = new.resources_of() {
            self.for_resources.insert(pod.to_owned(), new.key.clone());
        }
        if let Some(made_up) = self.awaited.get(&new.key).cloned()
            && self.pending.get(&made_up).is_none_or(|one| one.written.is_none_or(|at| new.version >= at))
        {
            self.awaited.remove(&new.key);
            freed |= self.drop_pending(&made_up) && new.allocation().is_none();
        }
        let shown = new.allocation();
        let seen = |pending: &Pending| pending.written.is_some_and(|written| new.version >= written);
        if self.pending.get(new.uid()).is_some_and(|pending| shown.is_some() || seen(pending)) {
            freed |= self.drop_pending(new.uid()) && shown.is_none();
        }
        if matters && let Some(shown) = shown {
            self.take(shown);
        }
        Changed::Claim { key: new.key.clone(), matters, freed }
    }

    /// Forgets a claim.
    pub(crate) fn remove_claim(&mut self, key: &Key) -> Option<Changed> {
        let old = self.claims.remove(key)?;
        let mut freed = self.drop_pending(old.uid());
        if let Some(made_up) = self.awaited.remove(key) {
            freed |= self.drop_pending(&made_up);
        }
        if let Some(pod) = old.resources_of() {
            self.for_resources.remove(pod);
        }
        if let Some(before) = old.allocation() {
            self.give_back(before);
            freed = true;
        }
        Some(Changed::Claim { key: key.clone(), matters: false, freed })
    }

    fn drop_pending(&mut self, uid: &str) -> bool {
        let Some(pending) = self.pending.remove(uid) else { return false };
        self.give_back(&pending.allocation);
        true
    }

    /// What nodes have answered.
    pub(crate) fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that a node says of itself changed.
    pub(crate) fn node_changed(&self, name: &str) {
        self.answers().forget(name);
    }

    fn pool_changed(&self, pool: &PoolId) {
        let mut answers = self.answers();
        match self.inventory.nodes_of(pool) {
            Some(nodes) => nodes.into_iter().for_each(|node| answers.forget(node)),
            None => answers.forget_all(),
        }
    }

    fn take(&mut self, allocation: &AllocationResult) {
        self.taken.add(allocation);
        self.pools_of(allocation).iter().for_each(|pool| self.pool_changed(pool));
    }

    fn give_back(&mut self, allocation: &AllocationResult) {
        self.taken.remove(allocation);
        self.pools_of(allocation).iter().for_each(|pool| self.pool_changed(pool));
    }

    fn pools_of(&self, allocation: &AllocationResult) -> Vec<PoolId> {
        let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        results.map(|one| PoolId::new(&one.driver, &one.pool)).collect()
    }

    /// Counts an allocation that was decided; `false` if another one was decided before.
    pub(crate) fn reserve(&mut self, claim: &Claim, allocation: &Arc<AllocationResult>) -> bool {
        if self.pending.contains_key(claim.uid()) {
            return false;
        }
        self.take(allocation);
        let pending = Pending { allocation: Arc::clone(allocation), written: None };
        self.pending.insert(claim.uid().to_owned(), pending);
        true
    }

    /// An allocation was not written: its devices are free again.
    pub(crate) fn release(&mut self, claim: &Claim, allocation: &Arc<AllocationResult>) -> Option<Changed> {
        let own = |pending: &Pending| Arc::ptr_eq(&pending.allocation, allocation);
        if !self.pending.get(claim.uid()).is_some_and(own) {
            return None;
        }
        self.drop_pending(claim.uid());
        Some(Changed::Claim { key: claim.key.clone(), matters: true, freed: true })
    }

    /// An allocation was written into this version of the claim; it counts on until that is seen.
    pub(crate) fn written(
        &mut self,
        claim: &Claim,
        allocation: &Arc<AllocationResult>,
        version: u64,
    ) -> Option<Changed> {
        let pending = self.pending.get_mut(claim.uid())?;
        if !Arc::ptr_eq(&pending.allocation, allocation) {
            return None;
        }
        pending.written = Some(version);
        // What is later was seen already, without an allocation: it was taken back meanwhile.
        let seen = self.claims.get(&claim.key).is_some_and(|known| known.version >= version);
        if seen { self.release(claim, allocation) } else { None }
    }

    /// The same of a claim that was thought of, and then made under this name.
    pub(crate) fn written_as(
        &mut self,
        claim: &Claim,
        allocation: &Arc<AllocationResult>,
        key: &Key,
        version: u64,
    ) -> Option<Changed> {
        let pending = self.pending.get_mut(claim.uid())?;
        pending.written = Some(version);
        if self.claims.get(key).is_some_and(|known| known.version >= version) {
            return self.release(claim, allocation);
        }
        self.awaited.insert(key.clone(), claim.uid().to_owned());
        None
    }

    /// The claim that was made for a pod's extended resources.
    pub(crate) fn for_resources(&self, pod: &str) -> Option<&Arc<Claim>> {
        self.claims.get(self.for_resources.get(pod)?)
    }

    /// The class that stands for an extended resource.
    pub(crate) fn class_for(&self, resource: &str) -> Option<&str> {
        self.by_resource.get(resource).map(String::as_str)
    }

    /// Of several classes that stand for one resource, the youngest does, of equally old ones the first by name.
    fn map_resources(&mut self) {
        let rank = |class: &DeviceClass| {
            let born = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (born, std::cmp::Reverse(class.metadata.name.clone()))
        };
        let mut chosen: HashMap<String, &Arc<DeviceClass>> = HashMap::new();
        for (name, class) in &self.classes {
            chosen.insert(extended::of_class(name), class);
            if let Some(resource) = &class.spec.extended_resource_name {
                let best = chosen.entry(resource.clone()).or_insert(class);
                if rank(class) > rank(best) {
                    *best = class;
                }
            }
        }
        let name = |class: &DeviceClass| class.metadata.name.clone().unwrap_or_default();
        self.by_resource = chosen.into_iter().map(|(resource, class)| (resource, name(class))).collect();
    }

    /// Takes in a device class.
    pub(crate) fn set_class(&mut self, object: &Value) -> Option<Changed> {
        let new: DeviceClass = read(object)?;
        let name = new.metadata.name.clone().unwrap_or_default();
        let resource = new.spec.extended_resource_name.clone();
        let old = self.classes.insert(name.clone(), Arc::new(new));
        self.map_resources();
        self.answers().forget_all();
        let is_news = old.as_ref().is_none_or(|old| old.spec.extended_resource_name != resource);
        Some(Changed::Class { name, resource: resource.filter(|_| is_news), is_new: old.is_none() })
    }

    /// Forgets a device class.
    pub(crate) fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
        self.map_resources();
        self.answers().forget_all();
    }

    /// Takes in a slice.
    pub(crate) fn set_slice(&mut self, object: &Value) -> Option<Changed> {
        let slice: ResourceSlice = read(object)?;
        self.remove_slice(slice.metadata.name.as_deref().unwrap_or_default());
        self.inventory.insert(Slice::read(&slice));
        self.pool_changed(&PoolId::new(&slice.spec.driver, &slice.spec.pool.name));
        Some(Changed::Slice)
    }

    /// Forgets a slice.
    pub(crate) fn remove_slice(&mut self, name: &str) {
        // While it is there, so that its own nodes are among those that are told.
        if let Some(pool) = self.inventory.pool_of(name).cloned() {
            self.pool_changed(&pool);
        }
        self.inventory.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn allocation(device: &str) -> Value {
        json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": device}]}})
    }

    fn claim(uid: &str, version: u64, allocation: Option<Value>) -> Value {
        json!({"metadata": {"namespace": "n", "name": "c", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {}, "status": {"allocation": allocation}})
    }

    fn decided(devices: &mut Devices) -> (Arc<Claim>, Arc<AllocationResult>) {
        devices.set_claim(&claim("u", 1, None));
        let known = devices.claim(&("n".to_owned(), "c".to_owned())).unwrap().clone();
        let allocation = Arc::new(serde_json::from_value(allocation("d0")).unwrap());
        assert!(devices.reserve(&known, &allocation));
        assert!(!devices.reserve(&known, &allocation), "one at a time");
        (known, allocation)
    }

    #[test]
    fn what_is_allocated_is_taken_as_long_as_the_claim_has_it() {
        let mut devices = Devices::default();
        let came = devices.set_claim(&claim("u", 1, Some(allocation("d0"))));
        let key = ("n".to_owned(), "c".to_owned());
        assert_eq!(came, Some(Changed::Claim { key: key.clone(), matters: true, freed: false }));
        let again = devices.set_claim(&claim("u", 2, Some(allocation("d0"))));
        assert_eq!(again, Some(Changed::Claim { key: key.clone(), matters: false, freed: false }));
        assert!(!devices.taken.is_empty());
        let freed = devices.set_claim(&claim("u", 3, None));
        assert_eq!(freed, Some(Changed::Claim { key: key.clone(), matters: true, freed: true }));
        assert!(devices.taken.is_empty());
        devices.set_claim(&claim("u", 4, Some(allocation("d1"))));
        let another = devices.set_claim(&claim("v", 5, None));
        assert!(matches!(another, Some(Changed::Claim { freed: true, .. })), "another claim of that name");
        assert!(devices.taken.is_empty());
        devices.set_claim(&claim("v", 6, Some(allocation("d1"))));
        assert!(matches!(devices.remove_claim(&key), Some(Changed::Claim { freed: true, .. })));
        assert!(devices.taken.is_empty());
    }

    #[test]
    fn an_allocation_that_was_decided_counts_once_until_it_is_seen() {
        let mut devices = Devices::default();
        let (known, decided) = decided(&mut devices);
        devices.set_claim(&claim("u", 2, None));
        assert!(devices.is_pending(&known) && !devices.taken.is_empty(), "the finalizer was seen");
        assert_eq!(devices.written(&known, &decided, 3), None);
        assert!(devices.is_pending(&known), "it was written, not seen");
        devices.set_claim(&claim("u", 3, Some(allocation("d0"))));
        assert!(!devices.is_pending(&known) && !devices.taken.is_empty());
        devices.set_claim(&claim("u", 4, None));
        assert!(devices.taken.is_empty(), "it was counted once");
    }

    #[test]
    fn an_allocation_that_was_not_written_is_given_back() {
        let mut devices = Devices::default();
        let (known, decided) = decided(&mut devices);
        assert!(matches!(devices.release(&known, &decided), Some(Changed::Claim { freed: true, .. })));
        assert!(devices.taken.is_empty() && devices.release(&known, &decided).is_none());
    }

    #[test]
    fn an_allocation_that_came_and_went_unseen_is_no_longer_counted() {
        for told_first in [true, false] {
            let mut devices = Devices::default();
            let (known, decided) = decided(&mut devices);
            if told_first {
                devices.written(&known, &decided, 3);
                devices.set_claim(&claim("u", 5, None));
            } else {
                devices.set_claim(&claim("u", 5, None));
                assert!(devices.is_pending(&known));
                assert!(devices.written(&known, &decided, 3).is_some());
            }
            assert!(!devices.is_pending(&known) && devices.taken.is_empty());
        }
    }
}
