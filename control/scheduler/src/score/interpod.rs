//! InterPodAffinity as a score: preferred company, of this pod and of the pods already placed. Pure.

use std::collections::HashMap;

use super::{Candidate, MAX};
use crate::cache::Cache;
use crate::pod::{PodInfo, PodTerm};

/// What a required affinity of a placed pod adds for a pod that matches it.
const HARD_WEIGHT: i64 = 1;

/// Scores by preferred terms in both directions; `None` when nobody has a preference.
pub(super) fn score(pod: &PodInfo, cache: &Cache, nodes: &[Candidate]) -> Option<Vec<i64>> {
    let mut worth: HashMap<(&str, &str), i64> = HashMap::new();
    let own_namespace = cache.namespace(&pod.namespace);
    for (node, facts) in cache.nodes() {
        for other in node.pods.values() {
            let namespace = cache.namespace(&other.namespace);
            let mut add = |term: &'_ PodTerm, amount: i64, matches: bool| {
                if matches
                    && amount != 0
                    && let Some((key, value)) = facts.labels.get_key_value(&term.topology_key)
                {
                    *worth.entry((key, value)).or_default() += amount;
                }
            };
            for term in &pod.near_preferred {
                add(term, term.weight, term.matches(other, namespace));
            }
            for term in &pod.far_preferred {
                add(term, -term.weight, term.matches(other, namespace));
            }
            for term in &other.near {
                add(term, HARD_WEIGHT, term.matches(pod, own_namespace));
            }
            for term in &other.near_preferred {
                add(term, term.weight, term.matches(pod, own_namespace));
            }
            for term in &other.far_preferred {
                add(term, -term.weight, term.matches(pod, own_namespace));
            }
        }
    }
    if worth.is_empty() {
        return None;
    }
    let sum = |(_, facts): &Candidate| -> i64 {
        let own = facts.labels.iter().filter_map(|(key, value)| worth.get(&(key.as_str(), value.as_str())));
        own.sum()
    };
    let raw: Vec<i64> = nodes.iter().map(sum).collect();
    let (lowest, highest) = (raw.iter().min().copied()?, raw.iter().max().copied()?);
    let scale = |score: i64| if highest == lowest { 0 } else { MAX * (score - lowest) / (highest - lowest) };
    Some(raw.into_iter().map(scale).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn preferred_company_draws_and_unwanted_company_repels() {
        let mut cache = Cache::default();
        for (name, zone) in [("n1", "a"), ("n2", "b")] {
            cache.set_node(name, node(json!({"metadata": {"labels": {"zone": zone}}})));
        }
        cache.assume(&pod(json!({"metadata": {"name": "db", "labels": {"app": "db"}}})), "n1");
        let terms = json!([{"weight": 10, "podAffinityTerm":
            {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}}]);
        let with = |kind: &str| {
            let mut affinity = json!({});
            affinity[kind] = json!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
            pod(json!({"metadata": {"name": "web"}, "spec": {"affinity": affinity}}))
        };
        let nodes: Vec<_> = cache.nodes().collect();
        assert_eq!(score(&with("podAffinity"), &cache, &nodes), Some(vec![100, 0]));
        assert_eq!(score(&with("podAntiAffinity"), &cache, &nodes), Some(vec![0, 100]));
        assert_eq!(score(&pod(json!({})), &cache, &nodes), None);
    }
}
