//! Which nodes can take a pod: named filters in upstream's order; the first one to object decides. Pure.

mod interpod;
mod spread;

use std::collections::BTreeSet;

use podwire_api::selector::lookup;
use podwire_api::toleration::{Taint, tolerated};

use crate::cache::{Change, View};
use crate::node::{NodeFacts, NodeInfo};
use crate::pod::PodInfo;

pub(crate) use interpod::Neighbours;
pub(crate) use spread::SpreadState;

/// How the spread constraints count pods; the score counts in the same way.
pub(crate) mod spread_counting {
    pub(crate) use super::spread::{considered, matching};
}

/// Why a node cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) plugin: Plugin,
    pub(crate) reasons: Vec<String>,
    /// Whether the node would do if pods were removed from it.
    pub(crate) resolvable: bool,
}

/// The filters by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plugin {
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    PodTopologySpread,
    InterPodAffinity,
    /// Asked once per pod, not per node.
    VolumeBinding,
    /// Asked once per pod, not per node.
    DynamicResources,
}

/// The order in which filters are asked.
const ORDER: [Plugin; 8] = [
    Plugin::NodeUnschedulable,
    Plugin::NodeName,
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodePorts,
    Plugin::NodeResourcesFit,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
];

impl Plugin {
    /// Whether `change` may make this filter think differently.
    pub(crate) fn cares_about(self, change: Change) -> bool {
        let interesting: &[Change] = match self {
            Self::NodeName => &[],
            Self::NodeUnschedulable | Self::TaintToleration => &[Change::NodeTaints],
            Self::NodeAffinity => &[Change::NodeLabels],
            Self::NodePorts => &[Change::PodGone],
            Self::NodeResourcesFit => &[Change::NodeAllocatable, Change::PodGone, Change::PodShrunk],
            Self::PodTopologySpread => &[
                Change::NodeLabels,
                Change::NodeTaints,
                Change::NodeGone,
                Change::PodGone,
                Change::PodPlaced,
                Change::PodLabels,
            ],
            Self::InterPodAffinity => &[
                Change::NodeLabels,
                Change::PodGone,
                Change::PodPlaced,
                Change::PodLabels,
                Change::Namespaces,
            ],
            // No node can cure these.
            Self::VolumeBinding => return change == Change::Claims,
            Self::DynamicResources => return false,
        };
        change == Change::NodeAdded || interesting.contains(&change)
    }
}

/// What is worked out once per pod and then asked for every node.
pub(crate) struct Prepared<'a> {
    pod: &'a PodInfo,
    spread: SpreadState,
    neighbours: Neighbours,
}

impl<'a> Prepared<'a> {
    /// Looks at the whole cluster once.
    pub(crate) fn new(pod: &'a PodInfo, view: View) -> Self {
        Self { pod, spread: SpreadState::new(pod, view), neighbours: Neighbours::new(pod, view) }
    }

    /// The first objection to putting the pod on the node.
    pub(crate) fn objection(&self, node: &NodeInfo, facts: &NodeFacts) -> Option<Rejection> {
        ORDER.into_iter().find_map(|plugin| self.ask(plugin, node, facts))
    }

    fn ask(&self, plugin: Plugin, node: &NodeInfo, facts: &NodeFacts) -> Option<Rejection> {
        let pod = self.pod;
        let never = |reason: &str| Rejection { plugin, reasons: vec![reason.to_owned()], resolvable: false };
        let not_now = |reason: &str| Rejection { plugin, reasons: vec![reason.to_owned()], resolvable: true };
        match plugin {
            Plugin::NodeUnschedulable => (facts.unschedulable && !tolerates_unschedulable(pod))
                .then(|| never("node(s) were unschedulable")),
            Plugin::NodeName => pod
                .node
                .as_ref()
                .is_some_and(|wanted| *wanted != node.name)
                .then(|| never("node(s) didn't match the requested node name")),
            Plugin::TaintToleration => {
                untolerated(pod, facts).then(|| never("node(s) had untolerated taint(s)"))
            }
            Plugin::NodeAffinity => (!matches_node_affinity(pod, &node.name, facts))
                .then(|| never("node(s) didn't match Pod's node affinity/selector")),
            Plugin::NodePorts => ports_taken(pod, node)
                .then(|| not_now("node(s) didn't have free ports for the requested pod ports")),
            Plugin::NodeResourcesFit => insufficient(pod, node, facts),
            Plugin::PodTopologySpread => self.spread.objection(pod, facts),
            Plugin::InterPodAffinity => self.neighbours.objection(pod, facts),
            Plugin::VolumeBinding | Plugin::DynamicResources => None,
        }
    }
}

fn tolerates_unschedulable(pod: &PodInfo) -> bool {
    let taint = Taint { key: "node.kubernetes.io/unschedulable", value: "", effect: "NoSchedule" };
    tolerated(taint, &pod.tolerations)
}

/// Whether a taint keeps new pods like this one away.
pub(crate) fn untolerated(pod: &PodInfo, facts: &NodeFacts) -> bool {
    facts
        .taints
        .iter()
        .filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute")
        .any(|taint| !tolerated(taint, &pod.tolerations))
}

/// Whether the node is one the pod asked for, by node selector and required node affinity.
pub(crate) fn matches_node_affinity(pod: &PodInfo, name: &str, facts: &NodeFacts) -> bool {
    pod.required_nodes.matches(name, lookup(&facts.labels))
}

fn ports_taken(pod: &PodInfo, node: &NodeInfo) -> bool {
    !pod.ports.is_empty()
        && node
            .pods
            .values()
            .flat_map(|other| &other.ports)
            .any(|taken| pod.ports.iter().any(|wanted| wanted.conflicts(taken)))
}

fn insufficient(pod: &PodInfo, node: &NodeInfo, facts: &NodeFacts) -> Option<Rejection> {
    let mut short = BTreeSet::new();
    let mut hopeless = false;
    let have = &facts.allocatable;
    let mut check = |name: &str, wanted: i64, used: i64, total: i64| {
        if wanted > 0 && wanted > total.saturating_sub(used) {
            short.insert(format!("Insufficient {name}"));
            hopeless |= wanted > total;
        }
    };
    check("cpu", pod.requests.milli_cpu, node.requested.milli_cpu, have.milli_cpu);
    check("memory", pod.requests.memory, node.requested.memory, have.memory);
    check(
        "ephemeral-storage",
        pod.requests.ephemeral_storage,
        node.requested.ephemeral_storage,
        have.ephemeral_storage,
    );
    for (name, wanted) in &pod.requests.scalar {
        let of = |list: &crate::resources::Resources| list.scalar.get(name).copied().unwrap_or_default();
        check(name, *wanted, of(&node.requested), of(have));
    }
    let mut reasons: Vec<String> = short.into_iter().collect();
    let count = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    if count.saturating_add(1) > facts.max_pods {
        reasons.insert(0, "Too many pods".to_owned());
    }
    (!reasons.is_empty()).then_some(Rejection {
        plugin: Plugin::NodeResourcesFit,
        reasons,
        resolvable: !hopeless,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::testing::{cpu_pod, node, pod};
    use serde_json::json;

    fn objection(cache: &Cache, pod: &PodInfo, name: &str) -> Option<Rejection> {
        let (node, facts) = cache.node(name).unwrap();
        Prepared::new(pod, cache.view()).objection(node, facts)
    }

    fn cluster(facts: NodeFacts) -> Cache {
        let mut cache = Cache::default();
        cache.set_node("n1", facts);
        cache
    }

    #[test]
    fn a_node_that_is_too_small_is_hopeless_a_busy_one_is_not() {
        let mut cache = cluster(node(json!({})));
        assert_eq!(objection(&cache, &cpu_pod("a", "4"), "n1"), None);
        let found = objection(&cache, &cpu_pod("a", "4001m"), "n1").unwrap();
        assert_eq!((found.reasons, found.resolvable), (vec!["Insufficient cpu".to_owned()], false));
        cache.assume(&cpu_pod("b", "1"), "n1");
        let found = objection(&cache, &cpu_pod("a", "4"), "n1").unwrap();
        assert_eq!((found.reasons, found.resolvable), (vec!["Insufficient cpu".to_owned()], true));
    }

    #[test]
    fn extended_resources_and_the_number_of_pods_are_counted() {
        let cache = cluster(node(json!({"status": {"allocatable": {"pods": "0", "example.com/nic": "1"}}})));
        let containers = json!([{"name": "c", "resources": {"requests": {"example.com/nic": "2"}}}]);
        let found = objection(&cache, &pod(json!({"spec": {"containers": containers}})), "n1").unwrap();
        assert_eq!(found.reasons, ["Too many pods", "Insufficient example.com/nic"]);
    }

    #[test]
    fn a_cordoned_node_takes_only_pods_that_tolerate_it() {
        let cache = cluster(node(json!({"spec": {"unschedulable": true}})));
        assert_eq!(objection(&cache, &pod(json!({})), "n1").unwrap().reasons, ["node(s) were unschedulable"]);
        let tolerant = pod(json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
        assert_eq!(objection(&cache, &tolerant, "n1"), None);
    }

    #[test]
    fn taints_selectors_and_ports_object_in_their_own_words() {
        let mut cache = cluster(node(json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})));
        assert_eq!(
            objection(&cache, &pod(json!({})), "n1").unwrap().reasons,
            ["node(s) had untolerated taint(s)"]
        );
        cache.set_node("n1", node(json!({"metadata": {"labels": {"disk": "hdd"}}})));
        let picky = pod(json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
        assert_eq!(
            objection(&cache, &picky, "n1").unwrap().reasons,
            ["node(s) didn't match Pod's node affinity/selector"]
        );
        let web = |name: &str| {
            let containers = json!([{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]);
            pod(json!({"metadata": {"name": name}, "spec": {"containers": containers}}))
        };
        cache.assume(&web("one"), "n1");
        let found = objection(&cache, &web("two"), "n1").unwrap();
        assert_eq!(found.reasons, ["node(s) didn't have free ports for the requested pod ports"]);
        assert!(found.resolvable);
    }

    #[test]
    fn each_filter_waits_for_what_can_change_its_mind() {
        assert!(Plugin::NodeResourcesFit.cares_about(Change::PodGone));
        assert!(Plugin::NodeResourcesFit.cares_about(Change::PodShrunk));
        assert!(Plugin::InterPodAffinity.cares_about(Change::PodLabels));
        assert!(Plugin::PodTopologySpread.cares_about(Change::PodLabels));
        assert!(!Plugin::NodeResourcesFit.cares_about(Change::PodLabels));
        assert!(Plugin::VolumeBinding.cares_about(Change::Claims));
        assert!(!Plugin::NodeAffinity.cares_about(Change::PodGone));
        assert!(ORDER.into_iter().all(|plugin| plugin.cares_about(Change::NodeAdded)));
    }
}
