//! Who is in which selector: one set of addresses for each distinct selector, shared by all policies that say the same.
//!
//! A pod is looked up by its labels, not by trying every selector: one that asks for a label with a value is found by that
//! pair, and only the others are tried each time. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::tables::{Family, Key, Kind, Tables};
use super::{Labels, name_of};
use crate::policy::{Namespaces, Pods};

/// The set of addresses of a selector of that name.
pub(crate) fn peer_set(family: Family, name: &str) -> String {
    format!("p{}-{name}", family.digit())
}

/// A pod as others see it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Endpoint {
    pub(super) namespace: String,
    pub(super) labels: Labels,
    pub(super) addresses: Vec<IpAddr>,
    /// Name, protocol, number.
    pub(super) ports: Vec<(String, u8, u16)>,
}

/// Which selector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct PeerId(usize);

/// A named port of the pods of a selector, of one protocol or any.
type NamedPort = (String, Option<u8>);

struct PeerSet {
    pods: Pods,
    /// What the names of its sets end with.
    name: String,
    users: usize,
    named: BTreeMap<NamedPort, usize>,
}

impl PeerSet {
    fn takes(&self, endpoint: &Endpoint, namespace_labels: Option<&Labels>) -> bool {
        let there = match &self.pods.namespaces {
            Namespaces::Named(name) => *name == endpoint.namespace,
            // The labels of a namespace that is not known are not known to match.
            Namespaces::Selected(selector) => namespace_labels.is_some_and(|labels| selector.matches(labels)),
        };
        there && self.pods.pods.matches(&endpoint.labels)
    }

    fn addresses(&self, family: Family) -> String {
        peer_set(family, &self.name)
    }

    fn services(&self, family: Family, (port, protocol): &NamedPort) -> String {
        let name = name_of(&[&self.name, port, &protocol.map_or(String::new(), |number| number.to_string())]);
        format!("n{}-{name}", family.digit())
    }
}

/// All selectors in use.
#[derive(Default)]
pub(super) struct Peers {
    families: Vec<Family>,
    sets: HashMap<PeerId, PeerSet>,
    next: usize,
    by_pods: HashMap<Pods, PeerId>,
    by_pair: HashMap<(String, String), BTreeSet<PeerId>>,
    others: BTreeSet<PeerId>,
}

impl Peers {
    pub(super) fn new(families: Vec<Family>) -> Peers {
        Peers { families, ..Peers::default() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// One more uses a selector; tells whether it is new and so to be filled.
    pub(super) fn acquire(&mut self, pods: &Pods, tables: &mut Tables) -> (PeerId, bool) {
        if let Some(id) = self.by_pods.get(pods).copied() {
            if let Some(set) = self.sets.get_mut(&id) {
                set.users += 1;
            }
            return (id, false);
        }
        let id = PeerId(self.next);
        self.next += 1;
        let name = name_of(&[&pods.to_string()]);
        let set = PeerSet { pods: pods.clone(), name, users: 1, named: BTreeMap::new() };
        for family in &self.families {
            tables.make_set(&set.addresses(*family), *family, Kind::Peers, Vec::new());
        }
        match pods.pods.pair() {
            Some((key, value)) => {
                self.by_pair.entry((key.to_owned(), value.to_owned())).or_default().insert(id);
            }
            None => {
                self.others.insert(id);
            }
        }
        self.by_pods.insert(pods.clone(), id);
        self.sets.insert(id, set);
        (id, true)
    }

    /// One fewer uses a selector; the last takes its sets away.
    pub(super) fn release(&mut self, id: PeerId, tables: &mut Tables) -> bool {
        let Some(set) = self.sets.get_mut(&id) else { return false };
        set.users -= 1;
        if set.users > 0 {
            return false;
        }
        let Some(set) = self.sets.remove(&id) else { return false };
        for family in &self.families {
            tables.drop_set(&set.addresses(*family));
        }
        self.by_pods.remove(&set.pods);
        self.others.remove(&id);
        if let Some((key, value)) = set.pods.pods.pair() {
            let pair = (key.to_owned(), value.to_owned());
            if let Some(ids) = self.by_pair.get_mut(&pair) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_pair.remove(&pair);
                }
            }
        }
        true
    }

    /// One more uses a named port of a selector's pods; tells whether it is new and so to be filled.
    pub(super) fn acquire_port(&mut self, id: PeerId, port: &NamedPort, tables: &mut Tables) -> bool {
        let Some(set) = self.sets.get_mut(&id) else { return false };
        let users = set.named.entry(port.clone()).or_insert(0);
        *users += 1;
        if *users > 1 {
            return false;
        }
        for family in &self.families {
            tables.make_set(&set.services(*family, port), *family, Kind::Services, Vec::new());
        }
        true
    }

    /// One fewer uses a named port.
    pub(super) fn release_port(&mut self, id: PeerId, port: &NamedPort, tables: &mut Tables) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        let Some(users) = set.named.get_mut(port) else { return };
        *users -= 1;
        if *users == 0 {
            set.named.remove(port);
            for family in &self.families {
                tables.drop_set(&set.services(*family, port));
            }
        }
    }

    /// The set of a selector's addresses.
    pub(super) fn addresses(&self, id: PeerId, family: Family) -> Option<String> {
        self.sets.get(&id).map(|set| set.addresses(family))
    }

    /// The set of a named port.
    pub(super) fn services(&self, id: PeerId, family: Family, port: &NamedPort) -> Option<String> {
        self.sets.get(&id).map(|set| set.services(family, port))
    }

    /// The selectors that a pod is in.
    pub(super) fn of(&self, endpoint: &Endpoint, namespace_labels: Option<&Labels>) -> Vec<PeerId> {
        let by_pair = endpoint.labels.iter().filter_map(|(key, value)| {
            // Borrowed pairs cannot be looked up by owned ones; most pods have a handful of labels.
            self.by_pair.get(&(key.clone(), value.clone()))
        });
        let candidates = by_pair.flatten().chain(&self.others);
        let mut ids: Vec<PeerId> =
            candidates.copied().filter(|id| self.takes(*id, endpoint, namespace_labels)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Whether a pod is in a selector.
    pub(super) fn takes(&self, id: PeerId, endpoint: &Endpoint, namespace_labels: Option<&Labels>) -> bool {
        self.sets.get(&id).is_some_and(|set| set.takes(endpoint, namespace_labels))
    }

    /// The namespace whose pods alone can be in a selector, if it is one.
    pub(super) fn namespace(&self, id: PeerId) -> Option<&str> {
        match &self.sets.get(&id)?.pods.namespaces {
            Namespaces::Named(name) => Some(name),
            Namespaces::Selected(_) => None,
        }
    }

    /// Puts a pod into the sets of a selector.
    pub(super) fn enter(&self, id: PeerId, endpoint: &Endpoint, tables: &mut Tables) {
        let Some(set) = self.sets.get(&id) else { return };
        self.each_address(endpoint, |family, ip| tables.hold(&set.addresses(family), Key::Address(ip)));
        for port in set.named.keys() {
            self.enter_port(id, port, endpoint, tables);
        }
    }

    /// Takes a pod out of the sets of a selector.
    pub(super) fn leave(&self, id: PeerId, endpoint: &Endpoint, tables: &mut Tables) {
        let Some(set) = self.sets.get(&id) else { return };
        self.each_address(endpoint, |family, ip| tables.release(&set.addresses(family), Key::Address(ip)));
        for named in set.named.keys() {
            for (family, key) in self.keys(endpoint, named) {
                tables.release(&set.services(family, named), key);
            }
        }
    }

    /// Puts a pod's port into the set of that name.
    pub(super) fn enter_port(&self, id: PeerId, port: &NamedPort, endpoint: &Endpoint, tables: &mut Tables) {
        let Some(set) = self.sets.get(&id) else { return };
        for (family, key) in self.keys(endpoint, port) {
            tables.hold(&set.services(family, port), key);
        }
    }

    fn each_address(&self, endpoint: &Endpoint, mut visit: impl FnMut(Family, IpAddr)) {
        for ip in &endpoint.addresses {
            let family = Family::of(*ip);
            if self.families.contains(&family) {
                visit(family, *ip);
            }
        }
    }

    fn keys(&self, endpoint: &Endpoint, (name, protocol): &NamedPort) -> Vec<(Family, Key)> {
        let fits =
            |port: &&(String, u8, u16)| port.0 == *name && protocol.is_none_or(|number| number == port.1);
        let mut keys = Vec::new();
        for (_, number, port) in endpoint.ports.iter().filter(fits) {
            self.each_address(endpoint, |family, ip| keys.push((family, Key::Service(ip, *number, *port))));
        }
        keys
    }
}
