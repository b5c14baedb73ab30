//! InterPodAffinity as a filter: near pods it needs, far from pods it shuns, and they from it. Pure.

use std::collections::HashSet;

use super::{Plugin, Rejection};
use crate::cache::View;
use crate::node::NodeFacts;
use crate::pod::{PodInfo, PodTerm};

/// A value of a node label.
type Domain = (String, String);

/// Where the pod's neighbours are.
pub(crate) struct Neighbours {
    /// Domains in which a pod that must be far from this one runs.
    shunned: HashSet<Domain>,
    /// Domains in which a pod runs that this one must be far from.
    avoided: HashSet<Domain>,
    /// For each required affinity term the domains in which a matching pod runs.
    wanted: Vec<HashSet<String>>,
    /// No pod anywhere matches, but this pod matches its own terms: it may be the first.
    first_of_its_kind: bool,
}

impl Neighbours {
    /// Looks at every placed pod once.
    pub(crate) fn new(pod: &PodInfo, view: View) -> Self {
        let own_namespace = view.namespace(&pod.namespace);
        let mut out = Self {
            shunned: HashSet::new(),
            avoided: HashSet::new(),
            wanted: vec![HashSet::new(); pod.near.len()],
            first_of_its_kind: false,
        };
        for (node, facts) in view.nodes() {
            let domain = |term: &PodTerm| facts.labels.get(&term.topology_key).cloned();
            for other in node.pods.values() {
                for term in &other.far {
                    if let Some(value) = domain(term)
                        && term.matches(pod, own_namespace)
                    {
                        out.shunned.insert((term.topology_key.clone(), value));
                    }
                }
                if pod.far.is_empty() && pod.near.is_empty() {
                    continue;
                }
                let namespace = view.namespace(&other.namespace);
                for term in pod.far.iter().filter(|term| term.matches(other, namespace)) {
                    out.avoided.extend(domain(term).map(|value| (term.topology_key.clone(), value)));
                }
                // A pod counts as wanted only if it matches every term, as upstream has it.
                if !pod.near.is_empty() && pod.near.iter().all(|term| term.matches(other, namespace)) {
                    for (term, wanted) in pod.near.iter().zip(&mut out.wanted) {
                        wanted.extend(domain(term));
                    }
                }
            }
        }
        out.first_of_its_kind = out.wanted.iter().all(HashSet::is_empty)
            && pod.near.iter().all(|term| term.matches(pod, own_namespace));
        out
    }

    /// Whether the node's domains suit.
    pub(crate) fn objection(&self, pod: &PodInfo, facts: &NodeFacts) -> Option<Rejection> {
        let reject = |reason: &str, resolvable| {
            let reasons = vec![reason.to_owned()];
            Some(Rejection { plugin: Plugin::InterPodAffinity, reasons, resolvable })
        };
        let near = pod.near.iter().zip(&self.wanted).all(|(term, wanted)| {
            facts
                .labels
                .get(&term.topology_key)
                .is_some_and(|value| wanted.contains(value) || self.first_of_its_kind)
        });
        if !near {
            return reject("node(s) didn't match pod affinity rules", false);
        }
        let here = |domains: &HashSet<Domain>| {
            domains.iter().any(|(key, value)| facts.labels.get(key) == Some(value))
        };
        if here(&self.avoided) {
            return reject("node(s) didn't match pod anti-affinity rules", true);
        }
        if here(&self.shunned) {
            return reject("node(s) didn't satisfy existing pods anti-affinity rules", true);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::Prepared;
    use super::*;
    use crate::cache::Cache;
    use crate::testing::{node, pod};
    use serde_json::{Value, json};

    fn cluster() -> Cache {
        let mut cache = Cache::default();
        for (name, zone) in [("n1", "a"), ("n2", "b")] {
            cache.set_node(name, node(json!({"metadata": {"labels": {"zone": zone}}})));
        }
        cache
    }

    fn with_affinity(name: &str, kind: &str) -> PodInfo {
        let mut affinity = serde_json::Map::new();
        affinity.insert(
            kind.to_owned(),
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"},
            ]}),
        );
        pod(
            json!({"metadata": {"name": name, "labels": {"app": "db"}}, "spec": {"affinity": Value::Object(affinity)}}),
        )
    }

    fn reason(cache: &Cache, pod: &PodInfo, name: &str) -> Option<String> {
        let (node, facts) = cache.node(name).unwrap();
        Prepared::new(pod, cache.view()).objection(node, facts).map(|found| found.reasons[0].clone())
    }

    #[test]
    fn the_first_of_a_group_may_start_anywhere_the_second_must_follow() {
        let mut cache = cluster();
        let one = with_affinity("one", "podAffinity");
        assert_eq!(reason(&cache, &one, "n2"), None);
        cache.assume(&one, "n1");
        let two = with_affinity("two", "podAffinity");
        assert_eq!(reason(&cache, &two, "n1"), None);
        assert_eq!(reason(&cache, &two, "n2").unwrap(), "node(s) didn't match pod affinity rules");
    }

    #[test]
    fn anti_affinity_holds_in_both_directions() {
        let mut cache = cluster();
        cache.assume(&with_affinity("one", "podAntiAffinity"), "n1");
        let two = with_affinity("two", "podAntiAffinity");
        assert_eq!(reason(&cache, &two, "n1").unwrap(), "node(s) didn't match pod anti-affinity rules");
        assert_eq!(reason(&cache, &two, "n2"), None);
        let plain = pod(json!({"metadata": {"name": "three", "labels": {"app": "db"}}}));
        assert_eq!(
            reason(&cache, &plain, "n1").unwrap(),
            "node(s) didn't satisfy existing pods anti-affinity rules"
        );
    }
}
