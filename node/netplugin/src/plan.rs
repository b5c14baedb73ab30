//! What the kernel's table is to hold, from policies, namespaces, pods and the sandboxes of this node.
//!
//! Pure and incremental: each word from outside changes what differs and nothing else, and [`Planner::take`] is the
//! difference. A pod that comes or goes is an element in the set of each selector it is in; a sandbox of this node also
//! says which group of policies governs it; a policy is its chains and the groups of those it governs.
//!
//! Deliberately not here: what every table has (`table::frame`), and when a change may be carried out (`keeper`).

mod blocks;
mod compile;
pub mod evaluate;
mod groups;
pub mod inside;
mod nodes;
mod peers;
mod rules;
pub mod tables;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use self::compile::Use;
use self::groups::Groups;
use self::nodes::Nodes;
use self::peers::{Endpoint, PeerId, Peers};
use self::tables::{Change, Family, Found, Key, Kind, Tables};
use crate::cluster_policy::{Action, ClusterPolicy, ClusterRule};
use crate::policy::{ObjectKey, Policy};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// What the API server tells of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pod {
    /// Its uid.
    pub uid: String,
    /// Its labels.
    pub labels: Labels,
    /// The node it is bound to.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// It is on the node's network.
    pub host_network: bool,
    /// It has ended: its addresses are no longer its own.
    pub ended: bool,
    /// It stands for a pod from a file of its node, whose uid is another one.
    pub mirror: bool,
    /// Its ports that have names: name, protocol, number.
    pub ports: Vec<(String, u8, u16)>,
}

/// A pod's sandbox on this node, as the runtime tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// The pod.
    pub pod: ObjectKey,
    /// The pod's uid.
    pub uid: String,
    /// The pod's labels when the sandbox was made.
    pub labels: Labels,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A short name of fixed length for a text of any; no two texts that somebody could write share one.
pub(crate) fn name_of(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part);
    }
    hex::encode(&hasher.finalize()[..12])
}

pub use self::nodes::Node;

pub(crate) use self::groups::maps_of;
pub(crate) use self::peers::peer_set;

/// The set of addresses whose rules stand.
pub fn known(family: Family) -> String {
    format!("known{}", family.digit())
}

struct HeldPolicy {
    policy: Policy,
    uses: Vec<Use>,
    chains: Vec<String>,
}

struct HeldClusterPolicy {
    policy: ClusterPolicy,
    uses: Vec<Use>,
    /// Rules of both directions, resolved.
    rules: compile::ClusterRules,
}

/// A pod with the selectors it is in.
struct Placed {
    endpoint: Endpoint,
    peers: Vec<PeerId>,
}

/// What is known and what follows from it.
pub struct Planner {
    node: String,
    families: Vec<Family>,
    namespaces: HashMap<String, Labels>,
    pods: HashMap<ObjectKey, Pod>,
    sandboxes: HashMap<String, Sandbox>,
    sandboxes_of: HashMap<ObjectKey, BTreeSet<String>>,
    placed: HashMap<ObjectKey, Placed>,
    in_namespace: HashMap<String, HashSet<ObjectKey>>,
    policies: BTreeMap<ObjectKey, HeldPolicy>,
    cluster: BTreeMap<String, HeldClusterPolicy>,
    block_users: HashMap<String, usize>,
    peers: Peers,
    nodes: Nodes,
    groups: Groups,
    tables: Tables,
}

impl Planner {
    /// Nothing is known yet. `node` is the name of this node.
    pub fn new(node: &str, families: &[Family]) -> Planner {
        let mut tables = Tables::sparse();
        for family in families {
            tables.make_set(&known(*family), *family, Kind::Addresses, Vec::new());
            for map in groups::maps(*family) {
                tables.make_set(&map, *family, Kind::Ways, Vec::new());
            }
        }
        Planner {
            node: node.to_owned(),
            families: families.to_vec(),
            namespaces: HashMap::new(),
            pods: HashMap::new(),
            sandboxes: HashMap::new(),
            sandboxes_of: HashMap::new(),
            placed: HashMap::new(),
            in_namespace: HashMap::new(),
            policies: BTreeMap::new(),
            cluster: BTreeMap::new(),
            block_users: HashMap::new(),
            peers: Peers::new(families.to_vec()),
            nodes: Nodes::new(families.to_vec()),
            groups: Groups::default(),
            tables,
        }
    }

    /// The verdict maps of a family.
    pub fn maps(family: Family) -> Vec<String> {
        groups::maps(family)
    }

    /// What has changed since the last time.
    pub fn take(&mut self) -> Change {
        self.tables.take()
    }

    /// What differs from what was found in the kernel.
    pub fn against(&mut self, found: &Found) -> Change {
        self.tables.against(found)
    }

    /// What the kernel is to hold.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        Counts {
            policies: self.policies.len(),
            cluster_policies: self.cluster.len(),
            pods: self.pods.len(),
            sandboxes: self.sandboxes.len(),
            selectors: self.peers.len() + self.nodes.len(),
            elements: self.tables.elements(),
        }
    }

    /// Whether a namespace is known.
    pub fn knows_namespace(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    /// Whether somebody who becomes a peer can lose what was allowed, and not only win.
    pub fn denies(&self) -> bool {
        let denies = |rule: &ClusterRule| rule.action != Action::Accept;
        self.cluster.values().any(|held| held.policy.rules.iter().any(denies))
    }

    /// The sandboxes of this node.
    pub fn sandboxes(&self) -> impl Iterator<Item = &Sandbox> {
        self.sandboxes.values()
    }

    /// The pod other than this sandbox's that has an address, here or elsewhere.
    pub fn owner_of(&self, ip: IpAddr, asks: &Sandbox) -> Option<ObjectKey> {
        let here = self.sandboxes.values().filter(|one| one.id != asks.id && one.addresses.contains(&ip));
        let elsewhere =
            self.pods.iter().filter(|(key, pod)| **key != asks.pod && pod.addresses.contains(&ip));
        here.map(|one| one.pod.clone()).next().or_else(|| elsewhere.map(|(key, _)| key.clone()).next())
    }

    /// Whether a policy is as it was, so that nothing needs to be said about it.
    pub fn is_held(&self, policy: &Policy) -> bool {
        self.policies.get(&policy.key).is_some_and(|held| held.policy == *policy)
    }

    /// A namespace came or changed.
    pub fn namespace(&mut self, name: &str, labels: Labels) {
        if self.namespaces.get(name) == Some(&labels) {
            return;
        }
        self.namespaces.insert(name.to_owned(), labels);
        self.again_in(name);
    }

    /// A namespace went.
    pub fn namespace_gone(&mut self, name: &str) {
        if self.namespaces.remove(name).is_some() {
            self.again_in(name);
        }
    }

    fn again_in(&mut self, namespace: &str) {
        let keys: Vec<ObjectKey> = self.in_namespace.get(namespace).into_iter().flatten().cloned().collect();
        for key in keys {
            self.place(&key);
        }
        self.govern_namespace(namespace);
    }

    /// A pod came or changed.
    pub fn pod(&mut self, key: ObjectKey, pod: Pod) {
        if self.pods.get(&key) == Some(&pod) {
            return;
        }
        self.pods.insert(key.clone(), pod);
        self.refresh(&key);
    }

    /// A pod went.
    pub fn pod_gone(&mut self, key: &ObjectKey) {
        if self.pods.remove(key).is_some() {
            self.refresh(key);
        }
    }

    /// A sandbox came or changed.
    pub fn sandbox(&mut self, sandbox: Sandbox) {
        if self.sandboxes.get(&sandbox.id) == Some(&sandbox) {
            return;
        }
        self.sandbox_gone(&sandbox.id);
        // An address has one owner: one who still seems to have it was not told of its end.
        let shares = |other: &&Sandbox| other.addresses.iter().any(|ip| sandbox.addresses.contains(ip));
        let stale: Vec<String> =
            self.sandboxes.values().filter(shares).map(|other| other.id.clone()).collect();
        for id in stale {
            self.sandbox_gone(&id);
        }
        for ip in &sandbox.addresses {
            self.tables.hold(&known(Family::of(*ip)), Key::Address(*ip));
        }
        let key = sandbox.pod.clone();
        self.sandboxes_of.entry(key.clone()).or_default().insert(sandbox.id.clone());
        self.sandboxes.insert(sandbox.id.clone(), sandbox);
        self.refresh(&key);
    }

    /// A sandbox went; the addresses that it had.
    pub fn sandbox_gone(&mut self, id: &str) -> Vec<IpAddr> {
        let Some(sandbox) = self.sandboxes.remove(id) else { return Vec::new() };
        for ip in &sandbox.addresses {
            self.tables.release(&known(Family::of(*ip)), Key::Address(*ip));
        }
        self.ungovern(&sandbox);
        if let Some(ids) = self.sandboxes_of.get_mut(&sandbox.pod) {
            ids.remove(id);
            if ids.is_empty() {
                self.sandboxes_of.remove(&sandbox.pod);
            }
        }
        self.refresh(&sandbox.pod);
        sandbox.addresses
    }

    fn refresh(&mut self, key: &ObjectKey) {
        self.place(key);
        for id in self.sandboxes_of.get(key).cloned().unwrap_or_default() {
            self.govern(&id);
        }
    }

    /// The labels that count for a sandbox: those the API server tells, if it tells of this very pod.
    fn labels_of<'a>(&'a self, sandbox: &'a Sandbox) -> &'a Labels {
        match self.pods.get(&sandbox.pod) {
            Some(pod) if pod.mirror || pod.uid == sandbox.uid => &pod.labels,
            _ => &sandbox.labels,
        }
    }

    /// A pod as others see it; `None` when it is nobody's peer.
    fn endpoint(&self, key: &ObjectKey) -> Option<Endpoint> {
        let pod = self.pods.get(key);
        if pod.is_some_and(|pod| pod.host_network || pod.ended) {
            return None;
        }
        let ids = self.sandboxes_of.get(key).into_iter().flatten();
        let sandboxes: Vec<&Sandbox> = ids.filter_map(|id| self.sandboxes.get(id)).collect();
        let (labels, addresses) = match (sandboxes.last(), pod) {
            // The runtime knows before the API server does, and also when an address is no longer the pod's.
            (Some(last), _) => (
                self.labels_of(last).clone(),
                sandboxes.iter().flat_map(|one| one.addresses.clone()).collect(),
            ),
            (None, Some(pod)) if pod.node != self.node => (pod.labels.clone(), pod.addresses.clone()),
            _ => return None,
        };
        let ports = pod.map(|pod| pod.ports.clone()).unwrap_or_default();
        Some(Endpoint { namespace: key.namespace.clone(), labels, addresses, ports })
    }

    /// Puts a pod into the sets that it belongs into and takes it out of all others.
    fn place(&mut self, key: &ObjectKey) {
        let endpoint = self.endpoint(key);
        let namespace = self.namespaces.get(&key.namespace);
        let peers = endpoint.as_ref().map(|one| self.peers.of(one, namespace)).unwrap_or_default();
        let before = self.placed.remove(key);
        if let Some(before) = &before {
            if endpoint.as_ref() == Some(&before.endpoint) && peers == before.peers {
                self.placed.extend([(key.clone(), Placed { endpoint: before.endpoint.clone(), peers })]);
                return;
            }
            for id in &before.peers {
                self.peers.leave(*id, &before.endpoint, &mut self.tables);
            }
        }
        let Some(endpoint) = endpoint else {
            if before.is_some()
                && let Some(keys) = self.in_namespace.get_mut(&key.namespace)
            {
                keys.remove(key);
            }
            return;
        };
        for id in &peers {
            self.peers.enter(*id, &endpoint, &mut self.tables);
        }
        self.in_namespace.entry(key.namespace.clone()).or_default().insert(key.clone());
        self.placed.insert(key.clone(), Placed { endpoint, peers });
    }

    /// Of a list that is complete: whatever policy is not in it is gone.
    pub fn keep_policies(&mut self, listed: &HashSet<ObjectKey>) {
        for key in absent(self.policies.keys(), listed) {
            self.policy_gone(&key);
        }
    }

    /// The policies of one namespace, all of them.
    pub fn keep_policies_of(&mut self, namespace: &str, listed: &HashSet<ObjectKey>) {
        let own = self.policies.keys().filter(|key| key.namespace == namespace);
        for key in absent(own, listed) {
            self.policy_gone(&key);
        }
    }

    /// Of a list that is complete: whatever cluster policy is not in it is gone.
    pub fn keep_cluster_policies(&mut self, listed: &HashSet<String>) {
        for name in absent(self.cluster.keys(), listed) {
            self.cluster_policy_gone(&name);
        }
    }

    /// Of a list that is complete: whatever namespace is not in it is gone.
    pub fn keep_namespaces(&mut self, listed: &HashSet<String>) {
        for name in absent(self.namespaces.keys(), listed) {
            self.namespace_gone(&name);
        }
    }

    /// Of a list that is complete: whatever pod is not in it is gone.
    pub fn keep_pods(&mut self, listed: &HashSet<ObjectKey>) {
        for key in absent(self.pods.keys(), listed) {
            self.pod_gone(&key);
        }
    }

    /// The sandboxes of this node, all of them; the addresses of those that are gone.
    pub fn keep_sandboxes(&mut self, listed: &HashSet<String>) -> Vec<IpAddr> {
        let gone = absent(self.sandboxes.keys(), listed);
        gone.iter().flat_map(|id| self.sandbox_gone(id)).collect()
    }
}

fn absent<'a, K: Clone + Eq + std::hash::Hash + 'a>(
    known: impl Iterator<Item = &'a K>,
    listed: &HashSet<K>,
) -> Vec<K> {
    known.filter(|key| !listed.contains(*key)).cloned().collect()
}

/// How much there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// NetworkPolicies.
    pub policies: usize,
    /// ClusterNetworkPolicies.
    pub cluster_policies: usize,
    /// Pods of the cluster.
    pub pods: usize,
    /// Sandboxes of this node.
    pub sandboxes: usize,
    /// Distinct selectors.
    pub selectors: usize,
    /// Elements of all sets.
    pub elements: usize,
}

#[cfg(test)]
mod tests;
