//! Finds the set of NUMA nodes that suits the hints of every resource best.
//!
//! Each way to take one hint of each resource gives a candidate: the nodes that all of the taken hints name. Their number
//! grows with the power of the resources, but what a candidate is worth depends only on its nodes and on whether all hints
//! were preferred and the same. So the candidates are kept as a set of those, which 2^(nodes + 1) bounds.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use super::{machine::Machine, mask::NodeMask};

/// A set of NUMA nodes that could serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The nodes; `None` where it does not matter.
    pub nodes: Option<NodeMask>,
    /// Whether this is as good as the resource can be served.
    pub preferred: bool,
}

/// What is said of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hints {
    /// It does not matter where it comes from.
    Indifferent,
    /// These could serve; none of them: nothing could.
    Of(Vec<Hint>),
}

impl Hints {
    /// The hints to merge, of which there is at least one.
    fn listed(&self) -> Vec<Hint> {
        match self {
            Hints::Indifferent => vec![Hint { nodes: None, preferred: true }],
            Hints::Of(none) if none.is_empty() => vec![Hint { nodes: None, preferred: false }],
            Hints::Of(some) => some.clone(),
        }
    }
}

/// The hints of every resource of every provider; a provider without any resource is indifferent as a whole, which changes
/// nothing.
pub(super) fn listed(providers: &[BTreeMap<String, Hints>]) -> Vec<Vec<Hint>> {
    providers.iter().flat_map(|provider| provider.values().map(Hints::listed)).collect()
}

/// Which of two sets of as many nodes is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nearness {
    /// The one with the lower nodes.
    Lowest,
    /// The one whose nodes are closer to each other.
    Closest,
}

/// A way to take one hint of each resource, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    /// All were preferred and, where they name nodes, named these.
    Alike(Option<NodeMask>),
    /// They have these in common.
    Mixed(NodeMask),
}

/// The best candidate; all nodes and not preferred where there is none.
pub(super) fn merge(resources: &[Vec<Hint>], machine: &Machine, nearness: Nearness) -> Hint {
    let mut taken = BTreeSet::from([Taken::Alike(None)]);
    for hints in resources {
        taken =
            taken.iter().flat_map(|so_far| hints.iter().map(|hint| so_far.with(*hint, machine))).collect();
    }
    let order = Order { machine, nearness, enough: enough(resources) };
    let candidates = taken.into_iter().map(|one| one.candidate(machine));
    let best = candidates.filter(|(nodes, _)| !nodes.is_empty()).min_by(|a, b| order.compare(*a, *b));
    let (nodes, preferred) = best.unwrap_or((machine.mask(), false));
    Hint { nodes: Some(nodes), preferred }
}

impl Taken {
    fn with(self, hint: Hint, machine: &Machine) -> Taken {
        match (self, hint) {
            (Taken::Alike(nodes), Hint { nodes: None, preferred: true }) => Taken::Alike(nodes),
            (Taken::Alike(None), Hint { nodes: Some(nodes), preferred: true }) => Taken::Alike(Some(nodes)),
            (Taken::Alike(Some(nodes)), Hint { nodes: Some(other), preferred: true }) if nodes == other => {
                self
            }
            (_, Hint { nodes, .. }) => {
                let (mine, _) = self.candidate(machine);
                Taken::Mixed(nodes.map_or(mine, |other| mine.and(other)))
            }
        }
    }

    fn candidate(self, machine: &Machine) -> (NodeMask, bool) {
        match self {
            Taken::Alike(nodes) => (nodes.map_or(machine.mask(), |nodes| nodes.and(machine.mask())), true),
            Taken::Mixed(nodes) => (nodes, false),
        }
    }
}

/// How many nodes the resource needs that needs the most.
fn enough(resources: &[Vec<Hint>]) -> u32 {
    let least = |hints: &Vec<Hint>| hints.iter().filter_map(|hint| hint.nodes).map(NodeMask::count).min();
    resources.iter().filter_map(least).max().unwrap_or_default()
}

/// What makes a candidate better than another.
struct Order<'a> {
    machine: &'a Machine,
    nearness: Nearness,
    enough: u32,
}

impl Order<'_> {
    /// The better one is the lesser.
    fn compare(&self, (a, a_preferred): (NodeMask, bool), (b, b_preferred): (NodeMask, bool)) -> Ordering {
        b_preferred
            .cmp(&a_preferred)
            .then_with(|| if a_preferred { Ordering::Equal } else { self.fit(a).cmp(&self.fit(b)) })
            .then_with(|| a.count().cmp(&b.count()))
            .then_with(|| match self.nearness {
                Nearness::Lowest => Ordering::Equal,
                Nearness::Closest => self.machine.distance(a).cmp(&self.machine.distance(b)),
            })
            .then_with(|| a.cmp(&b))
    }

    /// How far a candidate that is not preferred is from the nodes that are needed: too few, the more the better, come
    /// before too many.
    fn fit(&self, nodes: NodeMask) -> (bool, u32) {
        let count = nodes.count();
        (count > self.enough, count.abs_diff(self.enough))
    }
}
