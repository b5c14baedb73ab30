//! PodTopologySpread as a score: the emptier a node's domains, the better. Pure.

use std::collections::HashMap;

use super::{Candidate, MAX};
use crate::cache::Cache;
use crate::filter::spread_counting::{considered, matching};
use crate::pod::{PodInfo, Spread};

/// Scores by the soft constraints of the pod; `None` when it has none.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "upstream weighs domains in floating point and rounds; counts of pods are small"
)]
pub(super) fn score(pod: &PodInfo, cache: &Cache, nodes: &[Candidate]) -> Option<Vec<i64>> {
    let soft: Vec<&Spread> = pod.spread.iter().filter(|spread| !spread.hard).collect();
    if soft.is_empty() {
        return None;
    }
    let eligible =
        |(_, facts): &Candidate| soft.iter().all(|one| facts.labels.contains_key(&one.topology_key));
    let counts: Vec<_> =
        soft.iter().map(|spread| domain_counts(spread, pod, cache, nodes, &eligible)).collect();
    let raw: Vec<Option<i64>> = nodes
        .iter()
        .map(|candidate| {
            eligible(candidate).then(|| {
                let cost = soft.iter().zip(&counts).map(|(spread, counts)| {
                    let count = counts.get(&candidate.1.labels[&spread.topology_key]).copied().unwrap_or(0);
                    count as f64 * ((counts.len() + 2) as f64).ln() + (spread.max_skew - 1) as f64
                });
                cost.sum::<f64>().round() as i64
            })
        })
        .collect();
    let costs = || raw.iter().flatten().copied();
    let (lowest, highest) = (costs().min().unwrap_or(0), costs().max().unwrap_or(0));
    let scale = |cost: i64| if highest == 0 { MAX } else { MAX * (highest + lowest - cost) / highest };
    Some(raw.into_iter().map(|cost| cost.map_or(0, scale)).collect())
}

/// Matching pods in each domain that a candidate is in, counted over all nodes.
fn domain_counts(
    spread: &Spread,
    pod: &PodInfo,
    cache: &Cache,
    nodes: &[Candidate],
    eligible: &impl Fn(&Candidate) -> bool,
) -> HashMap<String, i64> {
    let domains =
        nodes.iter().filter(|one| eligible(one)).map(|(_, facts)| facts.labels[&spread.topology_key].clone());
    let mut counts: HashMap<String, i64> = domains.map(|domain| (domain, 0)).collect();
    for (node, facts) in cache.nodes() {
        if let Some(domain) = facts.labels.get(&spread.topology_key)
            && considered(spread, pod, node, facts)
            && let Some(count) = counts.get_mut(domain)
        {
            *count += matching(spread, pod, node);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn the_emptier_zone_is_preferred_and_nodes_without_the_key_come_last() {
        let mut cache = Cache::default();
        for (name, zone) in [("n1", "a"), ("n2", "b")] {
            cache.set_node(name, node(json!({"metadata": {"labels": {"zone": zone}}})));
        }
        cache.set_node("n3", node(json!({})));
        let web = |name: &str| {
            pod(
                json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }]}}),
            )
        };
        cache.assume(&web("one"), "n1");
        let nodes: Vec<_> = cache.nodes().collect();
        assert_eq!(score(&web("two"), &cache, &nodes), Some(vec![0, 100, 0]));
    }
}
