//! All nodes, their pods and what else decisions depend on, with pods counted as soon as their node is chosen. Pure.
//!
//! One task owns it and decides on it: there is no snapshot to be taken, and every change is made where it happened.

pub(crate) mod devices;
pub(crate) mod index;
pub(crate) mod nominations;
pub(crate) mod storage;
pub(crate) mod topology;
pub(crate) mod workloads;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use devices::Devices;
use index::{Count, Index, Namespaces, Who};
use nominations::Nominations;
use storage::Storage;
use topology::{KeyId, NODE, Scope};
use workloads::Workloads;

use crate::node::{Labels, NodeFacts, NodeId, NodeInfo};
use crate::pod::{PodInfo, Spread, Template, Templates};

/// What changed, for the pods that wait for a change.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A node came.
    NodeAdded(NodeId),
    /// A node changed; this is what it was.
    NodeChanged(NodeId, Box<NodeFacts>),
    /// A node went; this is what it was.
    NodeGone(Box<NodeFacts>),
    /// A pod was placed.
    PodPlaced(Arc<PodInfo>),
    /// A placed pod is gone, or room promised to one that is not placed is free again.
    PodGone(Arc<PodInfo>),
    /// A placed pod changed its labels, asks for less or begins to leave.
    PodChanged {
        /// What it was.
        old: Arc<PodInfo>,
        /// What it is.
        new: Arc<PodInfo>,
    },
    /// A namespace's labels changed.
    NamespaceChanged,
    /// Something about volumes changed.
    StorageChanged(storage::Changed),
    /// Something about claims to devices, or about devices, changed.
    DevicesChanged(devices::Changed),
}

/// The cluster as the scheduler believes it to be.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    nodes: Vec<NodeInfo>,
    by_name: HashMap<Arc<str>, NodeId>,
    free: Vec<NodeId>,
    /// Nodes that really exist, in the order in which they are looked at: zones take turns.
    order: Vec<NodeId>,
    order_is_stale: bool,
    /// Where each counted pod is.
    places: HashMap<Arc<str>, NodeId>,
    /// Pods whose node was chosen here and not yet confirmed.
    assumed: HashSet<Arc<str>>,
    namespaces: Namespaces,
    /// How many nodes have an image name.
    image_spread: HashMap<String, usize>,
    pub(crate) index: Index,
    pub(crate) nominations: Nominations,
    pub(crate) storage: Storage,
    pub(crate) devices: Devices,
    pub(crate) workloads: Workloads,
    pub(crate) templates: Templates,
    /// Moves on with every change.
    generation: u64,
}

impl Cluster {
    /// Nodes that really exist, in the order in which they are looked at; up to date after `tidy`.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeInfo> + Clone {
        self.order.iter().map(|id| &self.nodes[id.at()])
    }

    /// The nodes' places in that order.
    pub(crate) fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// A node by its place.
    pub(crate) fn node(&self, id: NodeId) -> &NodeInfo {
        &self.nodes[id.at()]
    }

    /// A node that really exists, by name.
    pub(crate) fn named(&self, name: &str) -> Option<&NodeInfo> {
        let node = &self.nodes[self.by_name.get(name)?.at()];
        node.facts.is_some().then_some(node)
    }

    /// All namespaces' labels.
    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Labels of a namespace.
    pub(crate) fn namespace(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    /// How many nodes have the image.
    pub(crate) fn nodes_with_image(&self, name: &str) -> usize {
        self.image_spread.get(name).copied().unwrap_or_default()
    }

    /// Whether the pod counts as placed, confirmed or not.
    pub(crate) fn is_placed(&self, uid: &str) -> bool {
        self.places.contains_key(uid)
    }

    /// A number that is another one after every change.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Notes a change that is made elsewhere.
    pub(crate) fn touch(&mut self) {
        self.generation += 1;
    }

    /// Takes in a node; says what changed for waiting pods.
    pub(crate) fn set_node(&mut self, name: &str, facts: NodeFacts) -> Option<Event> {
        let id = self.node_of(name);
        let node = &mut self.nodes[id.at()];
        if node.facts.as_ref() == Some(&facts) {
            return None;
        }
        self.generation += 1;
        self.devices.node_changed(name);
        let topology = node.facts.as_ref().is_none_or(|old| {
            old.labels != facts.labels
                || old.taints != facts.taints
                || old.unschedulable != facts.unschedulable
        });
        self.order_is_stale |= node.facts.as_ref().is_none_or(|old| old.zone() != facts.zone());
        if topology && node.facts.is_some() {
            self.index.leave(node);
        }
        let images = node.facts.as_ref().map(|old| &old.images) != Some(&facts.images);
        let old = node.facts.replace(facts);
        if topology {
            self.index.join(node, &self.namespaces);
        }
        if images {
            let added: Vec<_> = node.facts.iter().flat_map(|new| new.images.keys().cloned()).collect();
            self.count_images(old.iter().flat_map(|old| old.images.keys()), added);
        }
        Some(match old {
            None => Event::NodeAdded(id),
            Some(old) => Event::NodeChanged(id, Box::new(old)),
        })
    }

    fn node_of(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id =
            self.free.pop().unwrap_or_else(|| NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)));
        let node = NodeInfo::new(id, name.clone());
        if id.at() == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[id.at()] = node;
        }
        self.by_name.insert(name, id);
        id
    }

    fn count_images<'a>(&mut self, gone: impl Iterator<Item = &'a String>, added: Vec<String>) {
        for name in gone {
            if let Some(count) = self.image_spread.get_mut(name) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.image_spread.remove(name);
                }
            }
        }
        for name in added {
            *self.image_spread.entry(name).or_default() += 1;
        }
    }

    /// Forgets a node; its pods are forgotten when they go.
    pub(crate) fn remove_node(&mut self, name: &str) -> Option<Event> {
        let id = *self.by_name.get(name)?;
        let node = &mut self.nodes[id.at()];
        node.facts.as_ref()?;
        self.index.leave(node);
        let old = node.facts.take()?;
        self.devices.node_changed(name);
        self.generation += 1;
        self.order_is_stale = true;
        self.count_images(old.images.keys(), Vec::new());
        self.drop_if_empty(id);
        Some(Event::NodeGone(Box::new(old)))
    }

    fn drop_if_empty(&mut self, id: NodeId) {
        let node = &self.nodes[id.at()];
        if node.facts.is_none() && node.pods.is_empty() {
            self.by_name.remove(&node.name);
            self.free.push(id);
        }
    }

    /// Forgets every node that is not in `names`.
    pub(crate) fn retain_nodes(&mut self, names: &HashSet<String>) -> Vec<Event> {
        let gone: Vec<_> = self.by_name.keys().filter(|name| !names.contains(&***name)).cloned().collect();
        gone.iter().filter_map(|name| self.remove_node(name)).collect()
    }

    /// Counts a pod on a node before the API confirms it; says what that is for waiting pods.
    pub(crate) fn assume(&mut self, pod: &PodInfo, node: &str) -> Option<Event> {
        let uid = pod.uid.clone();
        let (_, unused) = self.place(PodInfo { node: Some(node.into()), reported: None, ..pod.clone() });
        self.assumed.insert(uid);
        unused
    }

    /// Takes an assumption back; says what that is for waiting pods.
    pub(crate) fn forget(&mut self, uid: &str) -> Option<Event> {
        if self.assumed.remove(uid) { self.unplace(uid).map(Event::PodGone) } else { None }
    }

    /// Counts a pod that the API says is on a node; says what changed for waiting pods.
    pub(crate) fn confirm(&mut self, pod: PodInfo) -> Vec<Event> {
        let was_assumed = self.assumed.remove(&pod.uid);
        let old = self.placed(&pod.uid).cloned();
        let moved = old.as_ref().is_some_and(|old| old.node != pod.node);
        let (new, unused) = self.place(pod);
        let mut events = match old {
            None => vec![Event::PodPlaced(new)],
            Some(old) if moved => vec![Event::PodGone(old), Event::PodPlaced(new)],
            Some(_) if was_assumed => vec![Event::PodPlaced(new)],
            Some(old)
                if old.labels != new.labels
                    || old.deleting != new.deleting
                    || new.requests.is_less_than(&old.requests) =>
            {
                vec![Event::PodChanged { old, new }]
            }
            Some(_) => Vec::new(),
        };
        events.extend(unused);
        events
    }

    /// The placed pod of this uid.
    pub(crate) fn placed(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.nodes[self.places.get(uid)?.at()].pod(uid)
    }

    /// Forgets a pod that is gone or finished; says what that is for waiting pods.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> Option<Event> {
        self.assumed.remove(uid);
        let promised = self.nominations.remove(uid);
        self.generation += u64::from(promised.is_some());
        self.unplace(uid).or(promised).map(Event::PodGone)
    }

    /// The pods counted, for comparison with a fresh list.
    pub(crate) fn placed_uids(&self) -> Vec<Arc<str>> {
        self.places.keys().cloned().collect()
    }

    /// Counts a pod on its node; room that it was promised elsewhere is free again.
    fn place(&mut self, pod: PodInfo) -> (Arc<PodInfo>, Option<Event>) {
        let pod = Arc::new(pod);
        let Some(name) = pod.node.clone() else { return (pod, None) };
        self.generation += 1;
        let promised = self.nominations.remove(&pod.uid);
        let unused = promised.filter(|one| one.nominated.as_deref() != Some(&*name)).map(Event::PodGone);
        self.unplace(&pod.uid);
        self.number_keys(&pod, &[]);
        let id = self.node_of(&name);
        self.places.insert(pod.uid.clone(), id);
        self.storage.used(&pod, 1);
        let node = &mut self.nodes[id.at()];
        if node.facts.is_some() {
            self.index.place(node, &pod, &self.namespaces);
        }
        node.add(pod.clone());
        (pod, unused)
    }

    fn unplace(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let id = self.places.remove(uid)?;
        self.generation += 1;
        let node = &mut self.nodes[id.at()];
        let pod = node.remove(uid)?;
        self.storage.used(&pod, -1);
        if node.facts.is_some() {
            self.index.unplace(node, &pod);
        }
        self.drop_if_empty(id);
        Some(pod)
    }

    /// Takes in a namespace's labels; says whether they changed.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Labels) -> Option<Event> {
        let old = self.namespaces.insert(name.to_owned(), labels.clone());
        if old.is_some_and(|old| old == labels) {
            return None;
        }
        self.index.namespaces_changed();
        self.generation += 1;
        Some(Event::NamespaceChanged)
    }

    /// Forgets a namespace.
    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.index.namespaces_changed();
        self.generation += 1;
    }

    fn number_keys(&mut self, pod: &Template, spread: &[Arc<Spread>]) {
        self.index.number_keys(pod, spread, &mut self.nodes);
    }

    /// Makes ready what a decision on the pod will ask for: the order of the nodes, and its counts.
    pub(crate) fn prepare(&mut self, pod: &Template, spread: &Constraints) {
        self.tidy();
        self.index.begin();
        self.number_keys(pod, &spread.all);
        let mut wanted: Vec<Count> = pod.near.iter().map(|term| self.index.near(pod, term)).collect();
        let terms = pod.far.iter().chain(&pod.near_preferred).chain(&pod.far_preferred);
        wanted.extend(terms.map(|term| self.index.meant(term)));
        for one in &spread.all {
            let scope = spread.scope(one, pod, &self.index);
            if !scope.is_everywhere() {
                let keys = scope.keys.clone();
                self.index.make_field(scope, &keys, &self.nodes);
            }
            wanted.push(spread.count(one, pod, &self.index));
        }
        for count in wanted {
            self.index.make_tally(count, &self.nodes, &self.namespaces);
        }
    }

    /// Brings the order of the nodes up to date.
    pub(crate) fn tidy(&mut self) {
        if self.index.is_bloated(self.nodes.len()) {
            self.index = Index::default();
            for at in 0..self.nodes.len() {
                for pod in self.nodes[at].pods.clone() {
                    self.number_keys(&pod, &[]);
                }
            }
            for node in self.nodes.iter_mut().filter(|node| node.facts.is_some()) {
                self.index.join(node, &self.namespaces);
            }
            self.index.settle();
        }
        if !std::mem::take(&mut self.order_is_stale) {
            return;
        }
        let mut zones: Vec<(&str, &str)> = Vec::new();
        let mut by_zone: HashMap<(&str, &str), Vec<NodeId>> = HashMap::new();
        for node in &self.nodes {
            if let Some(facts) = &node.facts {
                let zone = facts.zone();
                by_zone.entry(zone).or_insert_with(|| {
                    zones.push(zone);
                    Vec::new()
                });
                by_zone.entry(zone).or_default().push(node.id);
            }
        }
        let deepest = by_zone.values().map(Vec::len).max().unwrap_or(0);
        let turns = (0..deepest).flat_map(|at| {
            zones.iter().filter_map(|zone| by_zone[zone].get(at)).copied().collect::<Vec<_>>()
        });
        self.order = turns.collect();
    }
}

/// How a pod is to be spread: its own constraints, or the default ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Constraints {
    pub(crate) all: Vec<Arc<Spread>>,
    /// Whether nodes without one of the keys take part, as they do when the system's defaults apply.
    pub(crate) lenient: bool,
}

impl Constraints {
    /// Those that forbid nodes, or those that rank them.
    pub(crate) fn of(&self, hard: bool) -> impl Iterator<Item = &Arc<Spread>> {
        self.all.iter().filter(move |one| one.hard == hard)
    }

    /// Which nodes a constraint looks at.
    pub(crate) fn scope(&self, one: &Spread, pod: &Template, index: &Index) -> Scope {
        let keys: Vec<KeyId> = if self.lenient {
            Vec::new()
        } else {
            self.of(one.hard).filter_map(|one| index.keys.get(&one.topology_key)).collect()
        };
        Scope::new(pod, one, keys)
    }

    /// What a constraint counts; a score by host names counts on each node for itself.
    pub(crate) fn count(&self, one: &Spread, pod: &Template, index: &Index) -> Count {
        let scope = self.scope(one, pod, index);
        let by_node = !one.hard && one.topology_key == "kubernetes.io/hostname";
        let key = if by_node { NODE } else { index.keys.get(&one.topology_key).unwrap_or(NODE) };
        let field = if by_node { topology::EVERYWHERE } else { index.field(&scope) };
        let selector = one.selector.clone().unwrap_or_else(podwire_api::selector::LabelSelector::nothing);
        Count { who: Who::Spread { namespace: pod.namespace.clone(), selector }, key, field }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cpu_pod, node, pod};
    use serde_json::json;

    #[test]
    fn an_assumed_pod_counts_until_it_is_forgotten() {
        let mut cluster = Cluster::default();
        cluster.set_node("n1", node(json!({})));
        let used = |cluster: &Cluster| cluster.named("n1").map(|node| node.usage.requested.milli_cpu);
        let pod = cpu_pod("p", "1");
        cluster.assume(&pod, "n1");
        assert_eq!(used(&cluster), Some(1000));
        assert!(cluster.forget(&pod.uid).is_some());
        assert_eq!(used(&cluster), Some(0));
        cluster.assume(&pod, "n1");
        cluster.confirm(PodInfo { node: Some("n1".into()), ..pod.clone() });
        assert!(cluster.forget(&pod.uid).is_none(), "a confirmed pod stays");
        assert_eq!(used(&cluster), Some(1000));
        assert!(cluster.remove_pod(&pod.uid).is_some());
        assert_eq!(used(&cluster), Some(0));
    }

    #[test]
    fn only_what_changed_is_news() {
        let mut cluster = Cluster::default();
        assert!(matches!(cluster.set_node("n1", node(json!({}))), Some(Event::NodeAdded(_))));
        assert!(cluster.set_node("n1", node(json!({}))).is_none());
        let generation = cluster.generation();
        let relabelled = node(json!({"metadata": {"labels": {"a": "b"}}}));
        assert!(matches!(cluster.set_node("n1", relabelled), Some(Event::NodeChanged(..))));
        assert_ne!(cluster.generation(), generation);
        assert!(cluster.remove_node("n1").is_some());
        assert!(cluster.remove_node("n1").is_none(), "a node goes once");
    }

    #[test]
    fn room_promised_to_a_pod_that_goes_is_news() {
        let mut cluster = Cluster::default();
        cluster.nominations.promise(&Arc::new(pod(json!({}))), "n1");
        assert!(cluster.remove_pod("p").is_some());
        assert!(cluster.remove_pod("p").is_none());
    }

    #[test]
    fn pods_of_an_unknown_node_wait_for_it_without_making_it_a_candidate() {
        let mut cluster = Cluster::default();
        let pod = pod(json!({"spec": {"nodeName": "ghost", "containers": []}}));
        assert_eq!(cluster.confirm(pod.clone()).len(), 1);
        cluster.tidy();
        assert_eq!(cluster.nodes().count(), 0);
        cluster.remove_pod(&pod.uid);
        assert!(cluster.by_name.is_empty());
    }

    #[test]
    fn pods_that_are_gone_leave_nothing_behind_in_the_index() {
        let mut cluster = Cluster::default();
        cluster.set_node("n1", node(json!({"metadata": {"labels": {"zone": "a"}}})));
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}});
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let loner = pod(json!({"metadata": {"labels": {"app": "x"}}, "spec": {"affinity": affinity}}));
        cluster.assume(&loner, "n1");
        cluster.prepare(&loner, &Constraints::default());
        assert_eq!(cluster.index.sizes(), (1, 1, 1));
        cluster.remove_pod(&loner.uid);
        assert_eq!(cluster.index.sizes(), (0, 1, 0), "what was asked for is kept for the next who asks");
    }

    #[test]
    fn zones_take_turns() {
        let mut cluster = Cluster::default();
        for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "c")] {
            cluster
                .set_node(name, node(json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})));
        }
        cluster.tidy();
        let names: Vec<_> = cluster.nodes().map(|node| node.name.to_string()).collect();
        assert_eq!(names, ["n1", "n3", "n4", "n2"]);
    }
}
