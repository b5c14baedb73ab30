//! Which nodes a slice or a device is for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelector;
use podwire_api::selector::{NodeSelectorTerm, lookup};

/// A node that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// A node selector that no node can be held against, which no server accepts.
#[derive(Debug)]
pub(super) struct Unreadable;

/// `nodeName`, `allNodes` and `nodeSelector` of a slice or a device.
#[derive(Debug)]
pub(super) struct Placement {
    /// Kept also if it is empty: results ask whether there is one.
    pub(super) node_name: Option<String>,
    pub(super) all_nodes: bool,
    /// As it was written, for results.
    pub(super) selector: Option<NodeSelector>,
    terms: Vec<NodeSelectorTerm>,
}

impl Placement {
    pub(super) fn read(
        node_name: Option<&String>,
        all_nodes: Option<bool>,
        selector: Option<&NodeSelector>,
    ) -> Placement {
        let terms = selector.into_iter().flat_map(|selector| &selector.node_selector_terms);
        Placement {
            node_name: node_name.cloned(),
            all_nodes: all_nodes.unwrap_or_default(),
            selector: selector.cloned(),
            terms: terms.map(NodeSelectorTerm::from).collect(),
        }
    }

    /// The one node that is meant, if it is one by its name.
    pub(super) fn one_node(&self) -> Option<&str> {
        self.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether anything is said.
    pub(super) fn is_set(&self) -> bool {
        self.one_node().is_some() || self.all_nodes || self.selector.is_some()
    }

    pub(super) fn matches(&self, node: &Node<'_>) -> Result<bool, Unreadable> {
        if let Some(name) = self.one_node() {
            return Ok(name == node.name);
        }
        if self.all_nodes {
            return Ok(true);
        }
        if self.terms.iter().any(|term| !term.is_readable()) {
            return Err(Unreadable);
        }
        Ok(self.terms.iter().any(|term| term.matches(node.name, lookup(node.labels))))
    }
}
