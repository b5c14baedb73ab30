//! Numbers for topology keys and their values, and which nodes a constraint looks at. Pure.

use std::collections::HashMap;

use podwire_api::selector::{RequiredNodeAffinity, lookup};

use crate::node::{NodeFacts, NodeInfo};
use crate::plugins::taint_toleration::untolerated;
use crate::pod::{Spread, Template, Toleration};

/// A node is in no domain of a key that it has no label for.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The number of a topology key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyId(pub(crate) u32);

/// Stands for the node itself: each node is a domain of its own, whatever it is labelled.
pub(crate) const NODE: KeyId = KeyId(0);

/// The number of a set of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FieldId(pub(crate) u32);

/// All nodes.
pub(crate) const EVERYWHERE: FieldId = FieldId(0);

/// Topology keys that anybody asked about.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    ids: HashMap<String, KeyId>,
    values: Vec<HashMap<String, u32>>,
    /// How many values there are in all.
    pub(crate) size: usize,
}

impl Keys {
    /// The number of a key, if anybody asked about it.
    pub(crate) fn get(&self, name: &str) -> Option<KeyId> {
        self.ids.get(name).copied()
    }

    /// The number of a key, and whether it is new.
    pub(crate) fn number(&mut self, name: &str) -> (KeyId, bool) {
        if let Some(id) = self.get(name) {
            return (id, false);
        }
        // Number 0 is the node itself.
        let id = KeyId(u32::try_from(self.values.len() + 1).unwrap_or(u32::MAX));
        self.ids.insert(name.to_owned(), id);
        self.values.push(HashMap::new());
        (id, true)
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    fn value(&mut self, id: KeyId, value: &str) -> u32 {
        let Some(values) = (id.0 as usize).checked_sub(1).and_then(|at| self.values.get_mut(at)) else {
            return NOWHERE;
        };
        if let Some(known) = values.get(value) {
            return *known;
        }
        let number = u32::try_from(values.len()).unwrap_or(NOWHERE);
        values.insert(value.to_owned(), number);
        self.size += 1;
        number
    }

    /// Says where the node is for every key.
    pub(crate) fn locate(&mut self, node: &mut NodeInfo) {
        let mut domains = vec![NOWHERE; self.values.len() + 1];
        domains[0] = node.id.0;
        if let Some(facts) = &node.facts {
            for (name, id) in self.ids.clone() {
                if let Some(value) = facts.labels.get(&name) {
                    domains[id.0 as usize] = self.value(id, value);
                }
            }
        }
        node.domains = domains;
    }

    /// Says where the nodes are for a new key.
    pub(crate) fn locate_all(&mut self, name: &str, id: KeyId, nodes: &mut [NodeInfo]) {
        for node in nodes {
            let value = node.facts.as_ref().and_then(|facts| facts.labels.get(name));
            let domain = value.map_or(NOWHERE, |value| self.value(id, value));
            if node.domains.is_empty() {
                node.domains.push(node.id.0);
            }
            node.domains.resize(id.0 as usize, NOWHERE);
            node.domains.push(domain);
        }
    }
}

/// Where a node is for a key.
pub(crate) fn domain(node: &NodeInfo, key: KeyId) -> Option<usize> {
    node.domains.get(key.0 as usize).filter(|domain| **domain != NOWHERE).map(|domain| *domain as usize)
}

/// Which nodes a constraint looks at: those with all its keys, and those that its pod could run on if it asks for that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub(crate) keys: Vec<KeyId>,
    pub(crate) affinity: Option<RequiredNodeAffinity>,
    pub(crate) taints: Option<Vec<Toleration>>,
}

impl Scope {
    /// The scope of one of a pod's constraints; `keys` are those that a node must have.
    pub(crate) fn new(pod: &Template, spread: &Spread, keys: Vec<KeyId>) -> Self {
        let affinity = spread.honor_affinity && !pod.required_nodes.is_empty();
        Self {
            keys,
            affinity: affinity.then(|| pod.required_nodes.clone()),
            taints: spread.honor_taints.then(|| pod.tolerations.clone()),
        }
    }

    /// Whether it is all nodes.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.keys.is_empty() && self.affinity.is_none() && self.taints.is_none()
    }

    fn covers(&self, node: &NodeInfo, facts: &NodeFacts) -> bool {
        self.keys.iter().all(|key| domain(node, *key).is_some())
            && self.affinity.as_ref().is_none_or(|one| one.matches(&node.name, lookup(&facts.labels)))
            && self
                .taints
                .as_ref()
                .is_none_or(|tolerations| untolerated(tolerations, &facts.taints).is_none())
    }
}

/// A set of nodes, and how many of them are in each domain of the keys that matter.
#[derive(Debug)]
pub(crate) struct Field {
    scope: Option<Scope>,
    members: Vec<bool>,
    counts: Vec<(KeyId, Vec<i32>)>,
}

impl Field {
    /// The nodes that a scope covers; without one, all of them.
    pub(crate) fn new(scope: Option<Scope>, keys: &[KeyId], nodes: &[NodeInfo]) -> Self {
        let counts = keys.iter().map(|key| (*key, Vec::new())).collect();
        let mut field = Self { scope, members: Vec::new(), counts };
        nodes.iter().for_each(|node| field.join(node));
        field
    }

    /// Whether a node is in the set.
    pub(crate) fn has(&self, node: &NodeInfo) -> bool {
        self.members.get(node.id.at()).copied().unwrap_or_default()
    }

    /// How many nodes of the set are in each domain of a key.
    pub(crate) fn domains(&self, key: KeyId) -> &[i32] {
        self.counts.iter().find(|(id, _)| *id == key).map(|(_, counts)| counts.as_slice()).unwrap_or_default()
    }

    /// Takes a node in, if it belongs.
    pub(crate) fn join(&mut self, node: &NodeInfo) {
        let belongs = node
            .facts
            .as_ref()
            .is_some_and(|facts| self.scope.as_ref().is_none_or(|scope| scope.covers(node, facts)));
        if !belongs || self.has(node) {
            return;
        }
        if self.members.len() <= node.id.at() {
            self.members.resize(node.id.at() + 1, false);
        }
        self.members[node.id.at()] = true;
        self.bump(node, 1);
    }

    /// Lets a node go.
    pub(crate) fn leave(&mut self, node: &NodeInfo) {
        if self.has(node) {
            self.members[node.id.at()] = false;
            self.bump(node, -1);
        }
    }

    fn bump(&mut self, node: &NodeInfo, sign: i32) {
        for (key, counts) in &mut self.counts {
            if let Some(domain) = domain(node, *key) {
                bump(counts, domain, sign);
            }
        }
    }
}

/// Changes a count that may not have been needed before.
pub(crate) fn bump(counts: &mut Vec<i32>, at: usize, by: i32) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] += by;
}
