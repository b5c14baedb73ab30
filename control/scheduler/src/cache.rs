//! All nodes, their pods and the namespaces' labels, with pods counted as soon as their node is chosen. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::claims::Claims;
use crate::node::{Labels, NodeFacts, NodeInfo};
use crate::pod::PodInfo;

/// What changed, for the pods that wait for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    NodeAdded,
    NodeAllocatable,
    NodeLabels,
    NodeTaints,
    NodeGone,
    PodGone,
    PodPlaced,
    /// A placed pod carries other labels.
    PodLabels,
    /// A placed pod asks for less than before.
    PodShrunk,
    Namespaces,
    /// A volume claim came, went or changed.
    Claims,
}

/// The cluster as the scheduler believes it to be.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    nodes: BTreeMap<String, NodeInfo>,
    /// Where each counted pod is.
    places: HashMap<Arc<str>, String>,
    /// Pods whose node was chosen here and not yet confirmed.
    assumed: HashSet<Arc<str>>,
    namespaces: HashMap<String, Labels>,
    claims: Claims,
    /// How many nodes have an image name.
    image_spread: HashMap<String, usize>,
    /// Pods for which room is being made on a node.
    nominated: HashMap<Arc<str>, (String, Arc<PodInfo>)>,
}

/// The cluster, with one node thought different from what it is.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    cache: &'a Cache,
    instead: Option<&'a NodeInfo>,
}

impl<'a> View<'a> {
    /// Nodes that really exist.
    pub(crate) fn nodes(self) -> impl Iterator<Item = (&'a NodeInfo, &'a NodeFacts)> {
        self.cache.nodes().map(move |(node, facts)| match self.instead {
            Some(other) if other.name == node.name => (other, facts),
            _ => (node, facts),
        })
    }

    /// Labels of a namespace.
    pub(crate) fn namespace(self, name: &str) -> Option<&'a Labels> {
        self.cache.namespace(name)
    }
}

impl Cache {
    /// Nodes that really exist.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&NodeInfo, &NodeFacts)> + Clone {
        self.nodes.values().filter_map(|node| Some((node, node.facts.as_ref()?)))
    }

    /// Nodes that really exist, by name.
    pub(crate) fn node(&self, name: &str) -> Option<(&NodeInfo, &NodeFacts)> {
        let node = self.nodes.get(name)?;
        Some((node, node.facts.as_ref()?))
    }

    /// The cluster as it is.
    pub(crate) fn view(&self) -> View<'_> {
        View { cache: self, instead: None }
    }

    /// The cluster as it would be if a node were `instead`.
    pub(crate) fn view_with<'a>(&'a self, instead: &'a NodeInfo) -> View<'a> {
        View { cache: self, instead: Some(instead) }
    }

    /// Notes that room is being made for `pod` on a node.
    pub(crate) fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.nominated.insert(pod.uid.clone(), (node.to_owned(), pod));
    }

    /// The node as pods of the given priority must see it, if room on it is promised to others.
    pub(crate) fn with_promises(&self, node: &NodeInfo, pod: &PodInfo) -> Option<NodeInfo> {
        let promised = self.nominated.values().filter(|(name, other)| {
            *name == node.name && other.priority >= pod.priority && other.uid != pod.uid
        });
        let mut promised = promised.peekable();
        promised.peek()?;
        let mut fuller = node.clone();
        promised.for_each(|(_, other)| fuller.add(other.clone()));
        Some(fuller)
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

    /// Takes in a node; says what changed for waiting pods.
    pub(crate) fn set_node(&mut self, name: &str, facts: NodeFacts) -> Vec<Change> {
        let node = self.nodes.entry(name.to_owned()).or_insert_with(|| NodeInfo::new(name));
        let changes = match &node.facts {
            None => vec![Change::NodeAdded],
            Some(old) => [
                (
                    Change::NodeAllocatable,
                    old.allocatable != facts.allocatable || old.max_pods != facts.max_pods,
                ),
                (Change::NodeLabels, old.labels != facts.labels),
                (Change::NodeTaints, old.taints != facts.taints || old.unschedulable != facts.unschedulable),
            ]
            .into_iter()
            .filter_map(|(change, happened)| happened.then_some(change))
            .collect(),
        };
        let old = node.facts.replace(facts);
        if node.facts.as_ref().map(|new| &new.images) != old.as_ref().map(|old| &old.images) {
            let added: Vec<_> = node.facts.iter().flat_map(|new| new.images.keys().cloned()).collect();
            self.count_images(old.iter().flat_map(|old| old.images.keys()), added);
        }
        changes
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

    /// Forgets a node; its pods are forgotten when they go. Says whether there was one.
    pub(crate) fn remove_node(&mut self, name: &str) -> bool {
        let Some(node) = self.nodes.get_mut(name) else { return false };
        let old = node.facts.take();
        if node.pods.is_empty() {
            self.nodes.remove(name);
        }
        self.count_images(old.iter().flat_map(|old| old.images.keys()), Vec::new());
        old.is_some()
    }

    /// Forgets every node that is not in `names`; says whether there was one.
    pub(crate) fn retain_nodes(&mut self, names: &HashSet<String>) -> bool {
        let gone: Vec<_> = self.nodes.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().filter(|name| self.remove_node(name)).count() > 0
    }

    /// Counts a pod on a node before the API confirms it.
    pub(crate) fn assume(&mut self, pod: &PodInfo, node: &str) {
        let uid = pod.uid.clone();
        self.place(PodInfo { node: Some(node.to_owned()), ..pod.clone() });
        self.assumed.insert(uid);
    }

    /// Takes an assumption back.
    pub(crate) fn forget(&mut self, uid: &str) {
        if self.assumed.remove(uid) {
            self.unplace(uid);
        }
    }

    /// Counts a pod that the API says is on a node; says what changed for waiting pods.
    pub(crate) fn confirm(&mut self, pod: PodInfo) -> Vec<Change> {
        self.assumed.remove(&pod.uid);
        let changes = match self.placed(&pod.uid) {
            None => vec![Change::PodPlaced],
            Some(old) if old.node != pod.node => vec![Change::PodGone, Change::PodPlaced],
            Some(old) => [
                (Change::PodLabels, old.labels != pod.labels),
                (Change::PodShrunk, pod.requests.is_less_than(&old.requests)),
            ]
            .into_iter()
            .filter_map(|(change, happened)| happened.then_some(change))
            .collect(),
        };
        self.place(pod);
        changes
    }

    fn placed(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.nodes.get(self.places.get(uid)?)?.pods.get(uid)
    }

    /// Forgets a pod that is gone or finished; says whether it had counted, or room was promised to it.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> bool {
        self.assumed.remove(uid);
        let promised = self.nominated.remove(uid).is_some();
        self.unplace(uid) || promised
    }

    /// The pods counted, for comparison with a fresh list.
    pub(crate) fn placed_uids(&self) -> Vec<Arc<str>> {
        self.places.keys().cloned().collect()
    }

    fn place(&mut self, pod: PodInfo) {
        let Some(name) = pod.node.clone() else { return };
        self.nominated.remove(&pod.uid);
        if self.places.get(&pod.uid).is_some_and(|old| *old != name) {
            self.unplace(&pod.uid);
        }
        self.places.insert(pod.uid.clone(), name.clone());
        self.nodes.entry(name.clone()).or_insert_with(|| NodeInfo::new(&name)).add(Arc::new(pod));
    }

    fn unplace(&mut self, uid: &str) -> bool {
        let Some(name) = self.places.remove(uid) else { return false };
        if let Some(node) = self.nodes.get_mut(&name) {
            node.remove(uid);
            if node.facts.is_none() && node.pods.is_empty() {
                self.nodes.remove(&name);
            }
        }
        true
    }

    /// Takes in a namespace's labels; says whether they changed.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Labels) -> bool {
        self.namespaces.insert(name.to_owned(), labels.clone()).is_none_or(|old| old != labels)
    }

    /// The volume claims.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The volume claims, to be brought up to date.
    pub(crate) fn claims_mut(&mut self) -> &mut Claims {
        &mut self.claims
    }

    /// Forgets a namespace.
    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn an_assumed_pod_counts_until_it_is_forgotten() {
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({"status": {"allocatable": {"cpu": "2"}}})));
        let pod =
            pod(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}));
        cache.assume(&pod, "n1");
        assert_eq!(cache.node("n1").unwrap().0.requested.milli_cpu, 1000);
        cache.forget(&pod.uid);
        assert_eq!(cache.node("n1").unwrap().0.requested.milli_cpu, 0);
        cache.assume(&pod, "n1");
        assert_eq!(cache.confirm(PodInfo { node: Some("n1".into()), ..pod.clone() }), [], "no news");
        cache.forget(&pod.uid);
        assert_eq!(cache.node("n1").unwrap().0.requested.milli_cpu, 1000, "a confirmed pod stays");
        assert!(cache.remove_pod(&pod.uid));
        assert_eq!(cache.node("n1").unwrap().0.requested.milli_cpu, 0);
    }

    #[test]
    fn a_node_says_what_changed() {
        let mut cache = Cache::default();
        assert_eq!(cache.set_node("n1", node(json!({}))), [Change::NodeAdded]);
        assert_eq!(cache.set_node("n1", node(json!({}))), []);
        let relabelled = node(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": true}}));
        assert_eq!(cache.set_node("n1", relabelled), [Change::NodeLabels, Change::NodeTaints]);
    }

    #[test]
    fn a_placed_pod_says_what_changed_for_those_that_wait() {
        let placed = |labels, cpu: &str| {
            let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
            pod(json!({"metadata": {"labels": labels}, "spec": {"nodeName": "n1", "containers": containers}}))
        };
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({})));
        assert_eq!(cache.confirm(placed(json!({}), "2")), [Change::PodPlaced]);
        assert_eq!(cache.confirm(placed(json!({"app": "web"}), "2")), [Change::PodLabels]);
        assert_eq!(cache.confirm(placed(json!({"app": "web"}), "1")), [Change::PodShrunk]);
        assert_eq!(cache.confirm(placed(json!({"app": "web"}), "3")), [], "growth makes no room");
        assert!(cache.remove_node("n1"));
        assert!(!cache.remove_node("n1"), "a node goes once");
    }

    #[test]
    fn room_promised_to_a_pod_that_goes_is_news() {
        let mut cache = Cache::default();
        cache.nominate(Arc::new(pod(json!({}))), "n1");
        assert!(cache.remove_pod("p"));
        assert!(!cache.remove_pod("p"));
    }

    #[test]
    fn pods_of_an_unknown_node_wait_for_it_without_making_it_a_candidate() {
        let mut cache = Cache::default();
        let pod = pod(json!({"spec": {"nodeName": "ghost", "containers": []}}));
        assert_eq!(cache.confirm(pod.clone()), [Change::PodPlaced]);
        assert_eq!(cache.nodes().count(), 0);
        cache.remove_pod(&pod.uid);
        assert!(cache.nodes.is_empty());
    }
}
