//! The topology of devices: hints for a request, and the choice of devices by the nodes that came of it.
//!
//! The device manager keeps who has what; here it is only asked which devices fit.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    machine::Machine,
    mask::NodeMask,
    merge::{Hint, Hints},
};

/// The NUMA nodes of each device of a resource, healthy or not, by its ID: as the plugin lists them, `None` for a device
/// whose plugin says nothing of its topology.
pub type Devices = BTreeMap<String, Option<Vec<i64>>>;

/// More nodes with devices are not combined with each other, as there would be too many sets.
const MOST_COMBINED: u32 = 12;

/// The number of no node, by which some plugins say that a device has none.
const NO_NODE: i64 = -1;

/// A request for devices of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Every device of the resource.
    pub devices: &'a Devices,
    /// Those that are healthy and nobody's.
    pub available: &'a BTreeSet<&'a str>,
    /// Those of the pod's init containers that may be used again; nothing when a whole pod is aligned.
    pub reusable: &'a BTreeSet<&'a str>,
    /// Those that the container (or the pod, when it is aligned as a whole) has already, as after a restart of the kubelet.
    pub held: &'a BTreeSet<&'a str>,
    /// How many are wanted.
    pub count: usize,
}

/// Devices by the nodes they are on.
struct Tally(BTreeMap<NodeMask, usize>);

impl Tally {
    fn of<'a>(devices: &Devices, ids: impl IntoIterator<Item = &'a str>) -> Tally {
        let mut tally = BTreeMap::new();
        for id in ids {
            *tally.entry(mask(devices, id)).or_default() += 1;
        }
        Tally(tally)
    }

    /// How many are on a node of `nodes`.
    fn within(&self, nodes: NodeMask) -> usize {
        self.0.iter().filter(|(mask, _)| mask.meets(nodes)).map(|(_, count)| count).sum()
    }

    /// Every node that one is on.
    fn nodes(&self) -> NodeMask {
        self.0.keys().fold(NodeMask::EMPTY, |all, mask| all.or(*mask))
    }
}

fn told<'a>(devices: &'a Devices, id: &str) -> Option<&'a [i64]> {
    devices.get(id)?.as_deref()
}

fn mask(devices: &Devices, id: &str) -> NodeMask {
    NodeMask::of(told(devices, id).unwrap_or_default().iter().copied())
}

/// Whether any device says where it is; where none does, it does not matter.
fn aligned(devices: &Devices) -> bool {
    devices.values().flatten().any(|nodes| !nodes.is_empty())
}

/// Which sets of nodes could serve the request.
pub fn hints(request: &Request<'_>, machine: &Machine) -> Hints {
    let nothing = BTreeSet::new();
    if !aligned(request.devices) {
        return Hints::Indifferent;
    }
    let (available, reusable) = if request.held.is_empty() {
        (request.available, request.reusable)
    } else if request.held.len() == request.count {
        (request.held, &nothing)
    } else {
        return Hints::Of(Vec::new());
    };
    if available.union(reusable).count() < request.count {
        return Hints::Of(Vec::new());
    }
    let all = Tally::of(request.devices, request.devices.keys().map(String::as_str));
    let free = Tally::of(request.devices, available.iter().copied());
    // One that says nothing of its topology fits everywhere but does not count.
    let again = reusable.iter().copied().filter(|id| told(request.devices, id).is_some());
    let again = Tally::of(request.devices, again);
    let mut nodes = all.nodes().and(machine.mask());
    if nodes.is_empty() {
        nodes = machine.mask();
    }
    let masks = masks(nodes);
    let enough = masks.iter().filter(|mask| all.within(**mask) >= request.count).map(|mask| mask.count());
    let least = enough.min().unwrap_or(nodes.count());
    let serving = masks.into_iter().filter(|mask| {
        let kept = again.within(*mask);
        kept == again.0.values().sum::<usize>() && kept + free.within(*mask) >= request.count
    });
    Hints::Of(serving.map(|mask| Hint { nodes: Some(mask), preferred: mask.count() == least }).collect())
}

/// The sets of nodes to look at: every one, or on machines with devices on very many nodes each by itself and all of them.
fn masks(nodes: NodeMask) -> Vec<NodeMask> {
    if nodes.count() <= MOST_COMBINED {
        return nodes.subsets();
    }
    nodes.nodes().map(|id| NodeMask::of([i64::from(id)])).chain([nodes]).collect()
}

/// Too few devices are free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
)]
pub struct Unavailable {
    /// The resource.
    pub resource: String,
    /// How many are wanted beside those that are used again.
    pub requested: usize,
    /// How many there are.
    pub available: usize,
}

/// What is asked of a plugin that prefers some devices to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Devices to choose from.
    pub available: BTreeSet<&'a str>,
    /// Those of them that are chosen already.
    pub must_include: BTreeSet<&'a str>,
    /// How many are chosen in the end.
    pub size: usize,
}

/// A choice of devices for a container.
///
/// Devices on the nodes that the pod is aligned to come first, and the plugin may prefer some of those that are left to
/// choose from: ask it [`question`](Self::question), if there is one, and [`finish`](Self::finish) with what it says.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    chosen: BTreeSet<&'a str>,
    size: usize,
    /// Where the plugin's preference counts.
    candidates: BTreeSet<&'a str>,
    /// What is taken where it has none, in this order.
    rest: Vec<&'a str>,
}

impl<'a> Choice<'a> {
    /// What is decided without the plugin: `nodes` is what [`Topology::align`](super::Topology::align) said. A request of
    /// a container that holds its devices already is not made.
    pub fn begin(
        resource: &str,
        request: &Request<'a>,
        nodes: Option<NodeMask>,
    ) -> Result<Choice<'a>, Unavailable> {
        let size = request.count;
        let chosen: BTreeSet<&str> = request.reusable.iter().copied().take(size).collect();
        let mut choice = Choice { chosen, size, candidates: BTreeSet::new(), rest: Vec::new() };
        let needed = choice.needed();
        if needed == 0 {
            return Ok(choice);
        }
        let available: BTreeSet<&str> = request.available.difference(&choice.chosen).copied().collect();
        if available.len() < needed {
            let resource = resource.to_owned();
            return Err(Unavailable { resource, requested: needed, available: available.len() });
        }
        let places = Places::of(request.devices, &available, nodes);
        if needed < places.aligned.len() {
            choice.candidates = places.aligned.iter().copied().collect();
            choice.rest = places.aligned;
            return Ok(choice);
        }
        choice.chosen.extend(places.aligned);
        choice.candidates = available.difference(&choice.chosen).copied().collect();
        choice.rest = places.elsewhere;
        choice.rest.extend(places.nowhere);
        Ok(choice)
    }

    fn needed(&self) -> usize {
        self.size.saturating_sub(self.chosen.len())
    }

    /// What to ask the plugin, if there is anything left to choose.
    pub fn question(&self) -> Option<Question<'a>> {
        (self.needed() > 0).then(|| Question {
            available: self.candidates.union(&self.chosen).copied().collect(),
            must_include: self.chosen.clone(),
            size: self.size,
        })
    }

    /// The devices, with those that the plugin prefers; it may prefer none, too few, too many, or devices that are not there.
    pub fn finish<'p>(mut self, preferred: impl IntoIterator<Item = &'p str>) -> BTreeSet<&'a str> {
        for id in preferred {
            if self.needed() > 0
                && let Some(id) = self.candidates.get(id)
            {
                self.chosen.insert(id);
            }
        }
        for id in std::mem::take(&mut self.rest) {
            if self.needed() > 0 {
                self.chosen.insert(id);
            }
        }
        self.chosen
    }
}

/// Devices by how they lie to the nodes that are wanted.
#[derive(Default)]
struct Places<'a> {
    aligned: Vec<&'a str>,
    elsewhere: Vec<&'a str>,
    nowhere: Vec<&'a str>,
}

impl<'a> Places<'a> {
    fn of(devices: &Devices, available: &BTreeSet<&'a str>, nodes: Option<NodeMask>) -> Places<'a> {
        let Some(nodes) = nodes.filter(|_| aligned(devices)) else {
            return Places { nowhere: available.iter().copied().collect(), ..Places::default() };
        };
        let mut places = Places::default();
        for id in available {
            let own = told(devices, id).unwrap_or_default();
            let place = if mask(devices, id).meets(nodes) {
                &mut places.aligned
            } else if own.iter().any(|node| *node != NO_NODE) {
                &mut places.elsewhere
            } else {
                &mut places.nowhere
            };
            place.push(id);
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::super::NumaNode;
    use super::*;

    fn devices(list: &[(&str, &[i64])]) -> Devices {
        list.iter().map(|(id, nodes)| ((*id).to_owned(), Some(nodes.to_vec()))).collect()
    }

    fn machine(count: u32) -> Machine {
        Machine::new((0..count).map(|id| NumaNode { id, distances: Vec::new() }).collect()).unwrap()
    }

    #[test]
    fn devices_on_very_many_nodes_are_not_combined_but_still_served() {
        let all: Devices = (0..40).map(|node| (format!("device-{node}"), Some(vec![node]))).collect();
        let (available, none) = (all.keys().map(String::as_str).collect(), BTreeSet::new());
        let request =
            Request { devices: &all, available: &available, reusable: &none, held: &none, count: 2 };
        let Hints::Of(found) = hints(&request, &machine(64)) else { panic!("there are nodes") };
        let all = NodeMask::of(0..40);
        assert_eq!(found, [Hint { nodes: Some(all), preferred: true }]);
    }

    #[test]
    fn a_plugin_may_prefer_nonsense() {
        let all = devices(&[("a", &[0]), ("b", &[0]), ("c", &[0]), ("d", &[1])]);
        let (available, none) = (all.keys().map(String::as_str).collect(), BTreeSet::new());
        let request =
            Request { devices: &all, available: &available, reusable: &none, held: &none, count: 2 };
        let choose = |preferred: &[&str]| {
            let choice = Choice::begin("example.com/a", &request, Some(NodeMask::of([0]))).unwrap();
            let question = choice.question().unwrap();
            assert_eq!(question.available, BTreeSet::from(["a", "b", "c"]));
            choice.finish(preferred.iter().copied())
        };
        assert_eq!(choose(&["c", "b"]), BTreeSet::from(["b", "c"]));
        assert_eq!(choose(&[]), BTreeSet::from(["a", "b"]));
        assert_eq!(choose(&["c"]), BTreeSet::from(["a", "c"]));
        assert_eq!(choose(&["d", "nowhere", "c", "c", "b", "a"]), BTreeSet::from(["b", "c"]));
    }

    #[test]
    fn ten_thousand_devices_are_looked_at_once_for_each_set_of_nodes_they_are_on() {
        let all: Devices =
            (0..10_000).map(|at| (format!("device-{at:05}"), Some(vec![i64::from(at % 8)]))).collect();
        let (available, none) = (all.keys().map(String::as_str).collect(), BTreeSet::new());
        let request =
            Request { devices: &all, available: &available, reusable: &none, held: &none, count: 1251 };
        let Hints::Of(found) = hints(&request, &machine(8)) else { panic!("there are nodes") };
        assert_eq!(found.len(), 255 - 8);
        assert!(found.iter().all(|hint| hint.preferred == (hint.nodes.unwrap().count() == 2)));
    }
}
