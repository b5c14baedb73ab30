//! PodTopologySpread as a filter: no domain may be ahead of the emptiest one by more than the skew. Pure.

use std::collections::HashMap;

use podwire_api::selector::lookup;

use super::{Plugin, Rejection, matches_node_affinity, untolerated};
use crate::cache::View;
use crate::node::{NodeFacts, NodeInfo};
use crate::pod::{PodInfo, Spread};

/// Matching pods per domain, for each hard constraint of the pod, in its order.
pub(crate) struct SpreadState {
    counts: Vec<HashMap<String, i64>>,
}

impl SpreadState {
    /// Counts matching pods over all nodes that the constraints look at.
    pub(crate) fn new(pod: &PodInfo, view: View) -> Self {
        let hard: Vec<&Spread> = pod.spread.iter().filter(|spread| spread.hard).collect();
        let mut counts = vec![HashMap::new(); hard.len()];
        if hard.is_empty() {
            return Self { counts };
        }
        for (node, facts) in view.nodes() {
            // A node without one of the keys takes no part in any constraint.
            if !hard.iter().all(|spread| facts.labels.contains_key(&spread.topology_key)) {
                continue;
            }
            for (spread, counts) in hard.iter().zip(&mut counts) {
                if considered(spread, pod, node, facts) {
                    let domain = facts.labels[&spread.topology_key].clone();
                    *counts.entry(domain).or_default() += matching(spread, pod, node);
                }
            }
        }
        Self { counts }
    }

    /// Whether the pod would make its domain run ahead.
    pub(crate) fn objection(&self, pod: &PodInfo, facts: &NodeFacts) -> Option<Rejection> {
        let text = "node(s) didn't match pod topology spread constraints";
        let reject = |reason: String, resolvable| {
            Some(Rejection { plugin: Plugin::PodTopologySpread, reasons: vec![reason], resolvable })
        };
        for (spread, counts) in pod.spread.iter().filter(|spread| spread.hard).zip(&self.counts) {
            let Some(domain) = facts.labels.get(&spread.topology_key) else {
                return reject(format!("{text} (missing required label)"), false);
            };
            let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
            let emptiest =
                if domains < spread.min_domains { 0 } else { counts.values().copied().min().unwrap_or(0) };
            let own =
                i64::from(spread.selector.as_ref().is_some_and(|s| s.matches_with(lookup(&pod.labels))));
            let here = counts.get(domain).copied().unwrap_or(0);
            if here + own - emptiest > spread.max_skew {
                return reject(text.to_owned(), true);
            }
        }
        None
    }
}

/// Whether a constraint counts pods on the node at all.
pub(crate) fn considered(spread: &Spread, pod: &PodInfo, node: &NodeInfo, facts: &NodeFacts) -> bool {
    (!spread.honor_affinity || matches_node_affinity(pod, &node.name, facts))
        && (!spread.honor_taints || !untolerated(pod, facts))
}

/// How many pods on the node a constraint counts.
pub(crate) fn matching(spread: &Spread, pod: &PodInfo, node: &NodeInfo) -> i64 {
    let Some(selector) = &spread.selector else { return 0 };
    let counted = node.pods.values().filter(|other| {
        other.namespace == pod.namespace && !other.deleting && selector.matches_with(lookup(&other.labels))
    });
    i64::try_from(counted.count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::Prepared;
    use super::*;
    use crate::cache::Cache;
    use crate::testing::{node, pod};
    use serde_json::json;

    fn spread_pod(name: &str) -> PodInfo {
        pod(
            json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }]}}),
        )
    }

    #[test]
    fn the_fuller_zone_is_refused_until_the_other_catches_up() {
        let mut cache = Cache::default();
        for (name, zone) in [("n1", "a"), ("n2", "b")] {
            cache.set_node(name, node(json!({"metadata": {"labels": {"zone": zone}}})));
        }
        cache.set_node("n3", node(json!({})));
        cache.assume(&spread_pod("one"), "n1");
        let two = spread_pod("two");
        let ask = |cache: &Cache, name: &str| {
            let (node, facts) = cache.node(name).unwrap();
            Prepared::new(&two, cache.view()).objection(node, facts)
        };
        assert!(ask(&cache, "n1").unwrap().resolvable);
        assert_eq!(ask(&cache, "n2"), None);
        assert!(ask(&cache, "n3").unwrap().reasons[0].ends_with("(missing required label)"));
        cache.assume(&spread_pod("three"), "n2");
        assert_eq!(ask(&cache, "n1"), None);
    }
}
