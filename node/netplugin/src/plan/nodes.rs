//! Which addresses the nodes of a selector have: one set for each distinct selector, shared by all policies that say the same.
//!
//! What a node has are the addresses in its status, so that pods on a node's network are met under them. A node that comes,
//! goes, or changes its labels or addresses is elements of sets and nothing else. Pure.
//!
//! <https://network-policy-api.sigs.k8s.io/>

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::tables::{Family, Key, Kind, Tables};
use super::{Labels, Planner, absent, name_of, peer_set};
use crate::policy::Selector;

/// What counts of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// Its labels.
    pub labels: Labels,
    /// Its addresses, inner and outer ones.
    pub addresses: Vec<IpAddr>,
}

struct NodeSet {
    selector: Selector,
    users: usize,
}

/// All nodes, and all selectors in use.
#[derive(Default)]
pub(super) struct Nodes {
    families: Vec<Family>,
    known: HashMap<String, Node>,
    /// By what the names of their sets end with.
    sets: HashMap<String, NodeSet>,
}

impl Nodes {
    pub(super) fn new(families: Vec<Family>) -> Nodes {
        Nodes { families, ..Nodes::default() }
    }

    /// How many selectors there are.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// One more uses a selector; what the names of its sets end with.
    pub(super) fn acquire(&mut self, selector: &Selector, tables: &mut Tables) -> String {
        // In two parts, as no selector of pods is written.
        let name = name_of(&["nodes", &selector.to_string()]);
        if let Some(set) = self.sets.get_mut(&name) {
            set.users += 1;
            return name;
        }
        for family in &self.families {
            tables.make_set(&peer_set(*family, &name), *family, Kind::Peers, Vec::new());
        }
        for node in self.known.values().filter(|node| selector.matches(&node.labels)) {
            self.each_set(&name, node, |set, key| tables.hold(set, key));
        }
        self.sets.insert(name.clone(), NodeSet { selector: selector.clone(), users: 1 });
        name
    }

    /// One fewer uses a selector; the last takes its sets away.
    pub(super) fn release(&mut self, name: &str, tables: &mut Tables) {
        let Some(set) = self.sets.get_mut(name) else { return };
        set.users -= 1;
        if set.users == 0 {
            self.sets.remove(name);
            for family in &self.families {
                tables.drop_set(&peer_set(*family, name));
            }
        }
    }

    /// A node is like this now, or is gone.
    fn put(&mut self, name: &str, now: Option<Node>, tables: &mut Tables) {
        if self.known.get(name) == now.as_ref() {
            return;
        }
        let before = match &now {
            Some(node) => self.known.insert(name.to_owned(), node.clone()),
            None => self.known.remove(name),
        };
        for (name, set) in &self.sets {
            let within = |node: &&Node| set.selector.matches(&node.labels);
            // First what comes, so that what stays is held all the time.
            if let Some(node) = now.as_ref().filter(within) {
                self.each_set(name, node, |set, key| tables.hold(set, key));
            }
            if let Some(node) = before.as_ref().filter(within) {
                self.each_set(name, node, |set, key| tables.release(set, key));
            }
        }
    }

    fn each_set(&self, name: &str, node: &Node, mut visit: impl FnMut(&str, Key)) {
        for ip in &node.addresses {
            let family = Family::of(*ip);
            if self.families.contains(&family) {
                visit(&peer_set(family, name), Key::Address(*ip));
            }
        }
    }
}

impl Planner {
    /// A node came or changed.
    pub fn node(&mut self, name: &str, node: Node) {
        self.nodes.put(name, Some(node), &mut self.tables);
    }

    /// A node went.
    pub fn node_gone(&mut self, name: &str) {
        self.nodes.put(name, None, &mut self.tables);
    }

    /// Of a list that is complete: whatever node is not in it is gone.
    pub fn keep_nodes(&mut self, listed: &HashSet<String>) {
        for name in absent(self.nodes.known.keys(), listed) {
            self.node_gone(&name);
        }
    }
}
