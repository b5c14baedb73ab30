//! What the claim controller has seen, and who has to do with whom. Pure.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use serde_json::Value;

use super::view::{ClaimView, From, Place, PodView, Pool, SliceView, Tainted};

/// Pods that are remembered to have gone.
const REMEMBERED: usize = 500;

/// What has to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Look {
    /// Whether a pod has its claims.
    Pod(Place),
    /// Whether a claim is used.
    Claim(Place),
    /// Whether a pod must leave.
    Taint(Place),
}

/// A claim that was made and that no watch has shown yet.
#[derive(Debug)]
struct Made {
    name: String,
    version: u64,
    /// In which list of claims it was made.
    list: u64,
}

#[derive(Debug, Default)]
struct PoolView {
    slices: HashMap<String, SliceView>,
    /// Of the newest generation.
    tainted: Tainted,
}

/// Everything seen.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pods: HashMap<Place, PodView>,
    claims: HashMap<Place, ClaimView>,
    templates: HashMap<Place, Arc<Value>>,
    /// Pods by the claims that they name, and by the templates.
    users: HashMap<Place, BTreeSet<String>>,
    by_template: HashMap<Place, BTreeSet<String>>,
    /// Claims by the uid of the pod that they were made for.
    owned: HashMap<String, BTreeSet<Place>>,
    made: HashMap<String, HashMap<String, Made>>,
    /// The newest version of a claim that a watch has shown.
    newest: u64,
    lists: u64,
    gone: HashSet<String>,
    gone_order: VecDeque<String>,
    pools: HashMap<Pool, PoolView>,
    /// Where each slice is.
    pool_of: HashMap<String, Pool>,
    /// Claims with devices of a pool.
    given: HashMap<Pool, HashSet<Place>>,
}

fn put<K: Hash + Eq, V: Ord>(index: &mut HashMap<K, BTreeSet<V>>, key: K, value: V) {
    index.entry(key).or_default().insert(value);
}

fn take<K: Hash + Eq, V: Ord>(index: &mut HashMap<K, BTreeSet<V>>, key: K, value: &V) {
    if let Entry::Occupied(mut all) = index.entry(key) {
        all.get_mut().remove(value);
        if all.get().is_empty() {
            all.remove();
        }
    }
}

impl Book {
    pub(crate) fn pod(&self, place: &Place) -> Option<&PodView> {
        self.pods.get(place)
    }

    pub(crate) fn claim(&self, place: &Place) -> Option<&ClaimView> {
        self.claims.get(place)
    }

    /// The specification of a template.
    pub(crate) fn template(&self, place: &Place) -> Option<Arc<Value>> {
        self.templates.get(place).cloned()
    }

    /// Whether the pod with this uid was there and has gone.
    pub(crate) fn has_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// Whether there is a claim of this name that was made for this pod.
    pub(crate) fn is_made_for(&self, place: &Place, pod: &str) -> bool {
        match self.claims.get(place) {
            Some(claim) => claim.controller == pod,
            None => self.unseen(pod).any(|(_, made)| made.name == place.name),
        }
    }

    /// The name of a claim that was made for this claim of the pod, whether or not the pod's status says so.
    pub(crate) fn made_for(&self, place: &Place, pod: &str, pod_claim: &str) -> Option<String> {
        let owned = self.owned.get(pod).into_iter().flatten().filter(|at| at.namespace == place.namespace);
        let seen = owned.filter(|at| {
            self.claims.get(at).is_some_and(|claim| claim.pod_claim.as_deref() == Some(pod_claim))
        });
        let seen = seen.map(|at| at.name.clone()).next();
        seen.or_else(|| {
            let mut unseen = self.unseen(pod);
            unseen.find(|(of, _)| *of == pod_claim).map(|(_, made)| made.name.clone())
        })
    }

    /// Claims made for a pod that no watch has shown yet.
    fn unseen<'a>(&'a self, pod: &str) -> impl Iterator<Item = (&'a String, &'a Made)> {
        self.made.get(pod).into_iter().flatten().filter(|(_, made)| made.version > self.newest)
    }

    /// A claim was made for a pod.
    pub(crate) fn made(&mut self, pod: &str, pod_claim: &str, name: String, version: u64) {
        if version > self.newest {
            let made = Made { name, version, list: self.lists };
            self.made.entry(pod.to_owned()).or_default().insert(pod_claim.to_owned(), made);
        }
    }

    /// A list of all claims begins; its end shows whatever was made before.
    pub(crate) fn claims_listed_from_here(&mut self) {
        self.lists += 1;
    }

    /// The list of claims is complete.
    pub(crate) fn claims_listed(&mut self) {
        let lists = self.lists;
        self.made.retain(|_, of| {
            of.retain(|_, made| made.list >= lists);
            !of.is_empty()
        });
    }

    /// Takes in a pod; what has to be looked at now.
    pub(crate) fn pod_seen(&mut self, place: Place, pod: PodView) -> Vec<Look> {
        let mut looks = Vec::new();
        match self.pods.get(&place) {
            Some(old) if *old == pod => return looks,
            Some(old) if old.uid != pod.uid => looks = self.pod_gone(&place),
            Some(_) => self.unlink(&place),
            None => {}
        }
        let concerned = !pod.claims.is_empty() || pod.extended.is_some();
        if concerned {
            if pod.is_done() {
                looks.extend(pod.claim_names().map(|name| Look::Claim(place.beside(name))));
            }
            looks.extend([Look::Pod(place.clone()), Look::Taint(place.clone())]);
        }
        self.link(&place, &pod);
        self.pods.insert(place, pod);
        looks
    }

    /// Forgets a pod; what has to be looked at now.
    pub(crate) fn pod_gone(&mut self, place: &Place) -> Vec<Look> {
        self.unlink(place);
        let Some(pod) = self.pods.remove(place) else { return Vec::new() };
        self.made.remove(&pod.uid);
        if pod.claims.is_empty() && pod.extended.is_none() {
            return Vec::new();
        }
        let mut looks: Vec<Look> = pod.claim_names().map(|name| Look::Claim(place.beside(name))).collect();
        looks.push(Look::Taint(place.clone()));
        if self.gone.insert(pod.uid.clone()) {
            self.gone_order.push_back(pod.uid);
        }
        if self.gone_order.len() > REMEMBERED {
            self.gone_order.pop_front().map(|oldest| self.gone.remove(&oldest));
        }
        looks
    }

    fn link(&mut self, place: &Place, pod: &PodView) {
        for claim in &pod.claims {
            if let Some((name, _)) = claim.claim() {
                put(&mut self.users, place.beside(name), place.name.clone());
            }
            if let From::Template(template) = &claim.from {
                put(&mut self.by_template, place.beside(template), place.name.clone());
            }
        }
    }

    fn unlink(&mut self, place: &Place) {
        let Some(pod) = self.pods.get(place) else { return };
        for claim in &pod.claims {
            if let Some((name, _)) = claim.claim() {
                take(&mut self.users, place.beside(name), &place.name);
            }
            if let From::Template(template) = &claim.from {
                take(&mut self.by_template, place.beside(template), &place.name);
            }
        }
    }

    /// Takes in a claim; what has to be looked at now.
    pub(crate) fn claim_seen(&mut self, place: Place, claim: ClaimView) -> Vec<Look> {
        self.newest = self.newest.max(claim.version.parse().unwrap_or(0));
        let mut looks = self.users_of(&place);
        looks.push(Look::Claim(place.clone()));
        looks.extend(self.consumers(&place, &claim));
        looks.extend(self.forget(&place));
        if let Some((_, uid)) = &claim.owner {
            put(&mut self.owned, uid.clone(), place.clone());
        }
        for given in claim.allocation.iter().flatten() {
            self.given.entry(given.pool.clone()).or_default().insert(place.clone());
        }
        self.claims.insert(place, claim);
        looks
    }

    /// Forgets a claim as of a version; what has to be looked at now.
    pub(crate) fn claim_gone(&mut self, place: &Place, version: &str) -> Vec<Look> {
        self.newest = self.newest.max(version.parse().unwrap_or(0));
        let mut looks = self.forget(place);
        looks.extend(self.users_of(place));
        looks
    }

    fn forget(&mut self, place: &Place) -> Vec<Look> {
        let Some(old) = self.claims.remove(place) else { return Vec::new() };
        if let Some((_, uid)) = &old.owner {
            take(&mut self.owned, uid.clone(), place);
        }
        for given in old.allocation.iter().flatten() {
            if let Entry::Occupied(mut all) = self.given.entry(given.pool.clone()) {
                all.get_mut().remove(place);
                if all.get().is_empty() {
                    all.remove();
                }
            }
        }
        self.consumers(place, &old)
    }

    /// The pods that name a claim.
    fn users_of(&self, place: &Place) -> Vec<Look> {
        self.users.get(place).into_iter().flatten().map(|name| Look::Pod(place.beside(name))).collect()
    }

    /// The pods that may use a claim with devices.
    fn consumers(&self, place: &Place, claim: &ClaimView) -> Vec<Look> {
        let known = claim.pods().map(|(name, _)| place.beside(name)).filter(|at| self.pods.contains_key(at));
        known.map(Look::Taint).collect()
    }

    /// The places of all claims, and of all pods.
    pub(crate) fn claim_places(&self) -> Vec<Place> {
        self.claims.keys().cloned().collect()
    }

    pub(crate) fn pod_places(&self) -> Vec<Place> {
        self.pods.keys().cloned().collect()
    }

    /// Takes in a template; what has to be looked at now.
    pub(crate) fn template_seen(&mut self, place: Place, spec: Value) -> Vec<Look> {
        let users = self.by_template.get(&place).into_iter().flatten();
        let looks = users.map(|name| Look::Pod(place.beside(name))).collect();
        self.templates.insert(place, Arc::new(spec));
        looks
    }

    pub(crate) fn template_gone(&mut self, place: &Place) {
        self.templates.remove(place);
    }

    pub(crate) fn template_places(&self) -> Vec<Place> {
        self.templates.keys().cloned().collect()
    }

    /// Takes in a slice; what has to be looked at now.
    pub(crate) fn slice_seen(&mut self, name: String, slice: SliceView) -> Vec<Look> {
        let mut looks = match self.pool_of.get(&name) {
            Some(pool) if *pool != slice.pool => self.slice_gone(&name),
            _ => Vec::new(),
        };
        let pool = slice.pool.clone();
        self.pool_of.insert(name.clone(), pool.clone());
        self.pools.entry(pool.clone()).or_default().slices.insert(name, slice);
        looks.extend(self.weigh(&pool));
        looks
    }

    /// Forgets a slice; what has to be looked at now.
    pub(crate) fn slice_gone(&mut self, name: &str) -> Vec<Look> {
        let Some(pool) = self.pool_of.remove(name) else { return Vec::new() };
        if let Some(view) = self.pools.get_mut(&pool) {
            view.slices.remove(name);
        }
        let looks = self.weigh(&pool);
        if self.pools.get(&pool).is_some_and(|view| view.slices.is_empty()) {
            self.pools.remove(&pool);
        }
        looks
    }

    pub(crate) fn slice_names(&self) -> Vec<String> {
        self.pool_of.keys().cloned().collect()
    }

    /// Finds a pool's taints anew; who uses a device of it if they changed.
    fn weigh(&mut self, pool: &Pool) -> Vec<Look> {
        let Some(view) = self.pools.get_mut(pool) else { return Vec::new() };
        let newest = view.slices.values().map(|slice| slice.generation).max();
        let mut tainted = Tainted::new();
        for slice in view.slices.values().filter(|slice| Some(slice.generation) == newest) {
            tainted.extend(slice.tainted.iter().map(|(device, taints)| (device.clone(), taints.clone())));
        }
        if view.tainted == tainted {
            return Vec::new();
        }
        view.tainted = tainted;
        let places: Vec<Place> = self.given.get(pool).into_iter().flatten().cloned().collect();
        let claims = places.iter().filter_map(|place| Some((place, self.claims.get(place)?)));
        claims.flat_map(|(place, claim)| self.consumers(place, claim)).collect()
    }

    /// The taints of a device that drive pods out.
    pub(crate) fn taints<'a>(&'a self, pool: &Pool, device: &str) -> impl Iterator<Item = &'a Value> {
        self.pools.get(pool).and_then(|view| view.tainted.get(device)).into_iter().flatten()
    }
}
