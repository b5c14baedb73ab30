//! Step 1: the pools that a node can have devices of.
//!
//! Of each pool only the newest generation counts. A pool whose slices are not all there is incomplete, one whose slices
//! contradict each other invalid; nothing is given out of either. Pools come in the order of their names, those with binding
//! conditions last, slices in the order of theirs: drivers rely on being tried in this order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use podwire_api::quantity::Quantity;

use super::error::Error;
use super::node::Node;
use super::slice::{Device, PoolId, Slice};

/// All slices of the cluster, by node and by pool.
#[derive(Debug, Default)]
pub struct Inventory {
    slices: HashMap<String, Arc<Slice>>,
    /// Slices of one node each, by its name, in the order of their names.
    on_node: HashMap<String, BTreeMap<String, Arc<Slice>>>,
    /// Slices that are for several nodes, and those with counters.
    shared: BTreeMap<String, Arc<Slice>>,
    pools: HashMap<PoolId, Entry>,
    revision: u64,
}

/// The slices of a pool, whatever their generation.
#[derive(Debug, Default)]
struct Entry {
    slices: BTreeMap<String, Arc<Slice>>,
    /// The pool as a node sees it that all of its slices are for: made once.
    whole: OnceLock<Arc<Pool>>,
}

/// Why nothing is given out of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Slices are missing.
    Incomplete,
    /// Slices contradict each other.
    Invalid(String),
}

/// A pool, as far as a node can have devices of it.
#[derive(Debug)]
pub struct Pool {
    pub(super) id: PoolId,
    pub(super) generation: i64,
    pub(super) fault: Option<Fault>,
    /// Slices with devices that the node may have.
    pub(super) slices: Vec<Arc<Slice>>,
    /// The devices of these, in the order in which they are tried: places of slice and device.
    pub(super) devices: Vec<(usize, usize)>,
    /// Slices for other nodes, whose devices take of the same counters.
    pub(super) elsewhere: Vec<Arc<Slice>>,
    /// The counters, by set and name, and what there is of them if nothing is taken.
    pub(super) counters: BTreeMap<String, BTreeMap<String, usize>>,
    pub(super) amounts: Vec<Quantity>,
}

impl Pool {
    fn faulty(id: &PoolId, generation: i64, fault: Fault) -> Pool {
        Pool {
            id: id.clone(),
            generation,
            fault: Some(fault),
            slices: Vec::new(),
            devices: Vec::new(),
            elsewhere: Vec::new(),
            counters: BTreeMap::new(),
            amounts: Vec::new(),
        }
    }

    /// The device at a place.
    pub(super) fn device(&self, at: usize) -> (&Slice, &Device) {
        let (slice, device) = self.devices[at];
        (&self.slices[slice], &self.slices[slice].devices[device])
    }

    /// What a device takes of the counters, by their places. One that is not there was refused before.
    pub(super) fn charges<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = (usize, Quantity)> + 'a {
        device.consumes.iter().flat_map(|(set, counters)| {
            let places = self.counters.get(set);
            counters.iter().filter_map(move |(name, amount)| Some((*places?.get(name)?, *amount)))
        })
    }

    fn has_binding_conditions(&self) -> bool {
        self.slices.iter().flat_map(|slice| &slice.devices).any(|device| device.binding_conditions.is_some())
    }
}

/// The pools of a node, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Pools(pub(super) Vec<Arc<Pool>>);

impl Inventory {
    /// A slice came or changed.
    pub fn insert(&mut self, slice: Slice) {
        self.remove(&slice.name);
        let slice = Arc::new(slice);
        let place = match slice.one_node() {
            Some(node) => self.on_node.entry(node.to_owned()).or_default(),
            None => &mut self.shared,
        };
        place.insert(slice.name.clone(), Arc::clone(&slice));
        let entry = self.pools.entry(slice.pool.clone()).or_default();
        entry.slices.insert(slice.name.clone(), Arc::clone(&slice));
        entry.whole = OnceLock::new();
        self.slices.insert(slice.name.clone(), slice);
    }

    /// A slice is gone.
    pub fn remove(&mut self, name: &str) {
        self.revision += 1;
        let Some(slice) = self.slices.remove(name) else { return };
        self.shared.remove(name);
        if let Some(node) = slice.one_node()
            && let Some(slices) = self.on_node.get_mut(node)
        {
            slices.remove(name);
            if slices.is_empty() {
                self.on_node.remove(node);
            }
        }
        if let Some(entry) = self.pools.get_mut(&slice.pool) {
            entry.slices.remove(name);
            entry.whole = OnceLock::new();
            if entry.slices.is_empty() {
                self.pools.remove(&slice.pool);
            }
        }
    }

    /// Another one whenever a slice came, changed or went: the pools of a node are what they were as long as it is the same and
    /// the node's labels are.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The pool of a slice.
    pub fn pool_of(&self, slice: &str) -> Option<&PoolId> {
        Some(&self.slices.get(slice)?.pool)
    }

    /// The nodes that can have devices of a pool; `None` if that may be any.
    pub fn nodes_of(&self, pool: &PoolId) -> Option<Vec<&str>> {
        let slices = self.pools.get(pool).into_iter().flat_map(|entry| entry.slices.values());
        slices.map(|slice| slice.one_node()).collect()
    }

    /// The pools that a node can have devices of.
    pub fn gather(&self, node: &Node<'_>) -> Result<Pools, Error> {
        let mut relevant: BTreeMap<&PoolId, Vec<&Arc<Slice>>> = BTreeMap::new();
        let own = self.on_node.get(node.name).into_iter().flat_map(BTreeMap::values);
        for slice in own.chain(self.shared.values()) {
            if is_relevant(slice, node)? {
                relevant.entry(&slice.pool).or_default().push(slice);
            }
        }
        let mut pools = Vec::with_capacity(relevant.len());
        let mut last = Vec::new();
        for (id, slices) in relevant {
            if let Some(pool) = self.pool(id, slices) {
                if pool.has_binding_conditions() { &mut last } else { &mut pools }.push(pool);
            }
        }
        pools.append(&mut last);
        Ok(Pools(pools))
    }

    /// A pool of which a node sees `relevant` slices; `None` if they are of an old generation.
    fn pool(&self, id: &PoolId, mut relevant: Vec<&Arc<Slice>>) -> Option<Arc<Pool>> {
        let newest = relevant.iter().map(|slice| slice.generation).max()?;
        relevant.retain(|slice| slice.generation == newest);
        let count = relevant.first()?.count;
        let counts = |slices: usize| i64::try_from(slices).is_ok_and(|slices| slices == count);
        let entry = self.pools.get(id)?;
        if counts(relevant.len()) {
            let make = || Arc::new(build(id, newest, &relevant, &[]));
            return Some(match relevant.len() == entry.slices.len() {
                true => Arc::clone(entry.whole.get_or_init(make)),
                false => make(),
            });
        }
        // What is for other nodes says whether all of the pool is there, and whether this generation is the last one.
        if entry.slices.values().any(|slice| slice.generation > newest) {
            return None;
        }
        let all = || entry.slices.values().filter(|slice| slice.generation == newest);
        if !counts(all().count()) {
            return Some(Arc::new(Pool::faulty(id, newest, Fault::Incomplete)));
        }
        let here: BTreeSet<&str> = relevant.iter().map(|slice| slice.name.as_str()).collect();
        let elsewhere: Vec<_> = all().filter(|slice| !here.contains(slice.name.as_str())).collect();
        Some(Arc::new(build(id, newest, &relevant, &elsewhere)))
    }
}

fn is_relevant(slice: &Slice, node: &Node<'_>) -> Result<bool, Error> {
    if !slice.counter_sets.is_empty() {
        return Ok(true);
    }
    if slice.placement.is_set() {
        let refused = |_| Error::SliceNodes { slice: slice.name.clone() };
        return slice.placement.matches(node).map_err(refused);
    }
    for device in slice.devices.iter().filter(|_| slice.per_device) {
        let refused = |_| Error::DeviceNodes { slice: slice.name.clone(), device: device.name.to_string() };
        if device.placement.matches(node).map_err(refused)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A pool of which all slices are there, `here` for the node and `elsewhere` not.
fn build(id: &PoolId, generation: i64, here: &[&Arc<Slice>], elsewhere: &[&Arc<Slice>]) -> Pool {
    let mut here = here.to_vec();
    here.sort_by(|a, b| a.name.cmp(&b.name));
    match checked(id, generation, &here, elsewhere) {
        Ok(pool) => pool,
        Err(reason) => Pool::faulty(id, generation, Fault::Invalid(reason)),
    }
}

fn checked(
    id: &PoolId,
    generation: i64,
    here: &[&Arc<Slice>],
    elsewhere: &[&Arc<Slice>],
) -> Result<Pool, String> {
    if let Some(reason) = here.iter().chain(elsewhere).find_map(|slice| slice.unreadable.as_ref()) {
        return Err(reason.clone());
    }
    let with_devices = || here.iter().filter(|slice| slice.counter_sets.is_empty());
    let slices: Vec<Arc<Slice>> = with_devices().map(|slice| Arc::clone(slice)).collect();
    let mut names = BTreeSet::new();
    let mut devices = Vec::new();
    for (at, slice) in slices.iter().enumerate() {
        for (place, device) in slice.devices.iter().enumerate() {
            if !names.insert(&*device.name) {
                return Err(format!("duplicate device name {}", device.name));
            }
            devices.push((at, place));
        }
    }
    let mut counters: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let mut amounts = Vec::new();
    for (set, values) in here.iter().flat_map(|slice| &slice.counter_sets) {
        let mut places = BTreeMap::new();
        for (name, amount) in values {
            places.insert(name.clone(), amounts.len());
            amounts.push(*amount);
        }
        if counters.insert(set.clone(), places).is_some() {
            return Err(format!("duplicate counter set name {set}"));
        }
    }
    for device in here.iter().chain(elsewhere).flat_map(|slice| &slice.devices) {
        for (set, taken) in &device.consumes {
            let places = counters.get(set).ok_or_else(|| format!("counter set {set} not found"))?;
            if let Some(name) = taken.keys().find(|name| !places.contains_key(*name)) {
                return Err(format!("counter {name} not found in counter set {set}"));
            }
        }
    }
    let elsewhere = elsewhere.iter().map(|slice| Arc::clone(slice)).collect();
    Ok(Pool { id: id.clone(), generation, fault: None, slices, devices, elsewhere, counters, amounts })
}
