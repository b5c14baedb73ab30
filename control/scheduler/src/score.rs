//! Which of the possible nodes is best: named scores from 0 to 100, weighted and added up. Pure.

mod interpod;
mod spread;

use podwire_api::selector::lookup;
use podwire_api::toleration::tolerated;

use crate::cache::Cache;
use crate::node::{NodeFacts, NodeInfo};
use crate::pod::PodInfo;

/// The best score of one plugin on one node.
pub(crate) const MAX: i64 = 100;

/// A node that passed the filters.
pub(crate) type Candidate<'a> = (&'a NodeInfo, &'a NodeFacts);

const MIN_IMAGE: i64 = 23 << 20;
const MAX_IMAGE: i64 = 1000 << 20;

type Plugin = fn(&PodInfo, &Cache, &[Candidate]) -> Option<Vec<i64>>;

/// Name, weight and score of every plugin; `None` means it has no opinion on this pod.
const PLUGINS: [(&str, i64, Plugin); 7] = [
    ("TaintToleration", 3, taint_toleration),
    ("NodeAffinity", 2, node_affinity),
    ("NodeResourcesFit", 1, least_allocated),
    ("PodTopologySpread", 2, spread::score),
    ("InterPodAffinity", 2, interpod::score),
    ("NodeResourcesBalancedAllocation", 1, balanced_allocation),
    ("ImageLocality", 1, image_locality),
];

/// The weighted sum of all scores for each candidate, in their order.
pub(crate) fn total(pod: &PodInfo, cache: &Cache, nodes: &[Candidate]) -> Vec<i64> {
    let mut sums = vec![0; nodes.len()];
    for (name, weight, plugin) in PLUGINS {
        let Some(scores) = plugin(pod, cache, nodes) else { continue };
        tracing::trace!(plugin = name, ?scores, "scored");
        sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += weight * score);
    }
    sums
}

/// Scales so that the highest raw score becomes 100, or 0 when `reverse`.
fn normalize(mut raw: Vec<i64>, reverse: bool) -> Vec<i64> {
    let highest = raw.iter().copied().max().unwrap_or(0);
    for score in &mut raw {
        let scaled = if highest == 0 { 0 } else { MAX * *score / highest };
        *score = if reverse { MAX - scaled } else { scaled };
    }
    raw
}

fn taint_toleration(pod: &PodInfo, _: &Cache, nodes: &[Candidate]) -> Option<Vec<i64>> {
    let disliked = |(_, facts): &Candidate| {
        let soft = facts.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        let count = soft.filter(|taint| !tolerated(*taint, &pod.tolerations)).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    Some(normalize(nodes.iter().map(disliked).collect(), true))
}

fn node_affinity(pod: &PodInfo, _: &Cache, nodes: &[Candidate]) -> Option<Vec<i64>> {
    if pod.preferred_nodes.0.is_empty() {
        return None;
    }
    let liked = |(node, facts): &Candidate| pod.preferred_nodes.score(&node.name, lookup(&facts.labels));
    Some(normalize(nodes.iter().map(liked).collect(), false))
}

fn least_allocated(pod: &PodInfo, _: &Cache, nodes: &[Candidate]) -> Option<Vec<i64>> {
    let free = |(node, facts): &Candidate| {
        let share = |wanted: i64, total: i64| {
            if total == 0 || wanted > total { 0 } else { (total - wanted) * MAX / total }
        };
        let mut shares = Vec::new();
        let (have, used) = (&facts.allocatable, &node.nonzero);
        for (used, asked, total) in [
            (used.milli_cpu, pod.nonzero.milli_cpu, have.milli_cpu),
            (used.memory, pod.nonzero.memory, have.memory),
        ] {
            if total > 0 {
                shares.push(share(used + asked, total));
            }
        }
        let count = i64::try_from(shares.len()).unwrap_or(1);
        if count == 0 { 0 } else { shares.into_iter().sum::<i64>() / count }
    };
    Some(nodes.iter().map(free).collect())
}

fn balanced_allocation(pod: &PodInfo, _: &Cache, nodes: &[Candidate]) -> Option<Vec<i64>> {
    if pod.best_effort {
        return None;
    }
    let balance = |(node, facts): &Candidate| {
        let (have, used) = (&facts.allocatable, &node.requested);
        let without = evenness(used.milli_cpu, used.memory, have.milli_cpu, have.memory);
        let (cpu, memory) = (used.milli_cpu + pod.requests.milli_cpu, used.memory + pod.requests.memory);
        let with = evenness(cpu, memory, have.milli_cpu, have.memory);
        50 + (50 + with - without) / 2
    };
    Some(nodes.iter().map(balance).collect())
}

/// 100 when CPU and memory are used to the same share, 50 when one is full and the other unused.
///
/// Upstream computes this in floating point and truncates; so it is done here, for equal scores.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a share lies between 0 and 1"
)]
fn evenness(cpu: i64, memory: i64, all_cpu: i64, all_memory: i64) -> i64 {
    let share = |used: i64, all: i64| (used as f64 / all as f64).min(1.0);
    if all_cpu == 0 || all_memory == 0 {
        return MAX;
    }
    let deviation = (share(cpu, all_cpu) - share(memory, all_memory)).abs() / 2.0;
    ((1.0 - deviation) * MAX as f64) as i64
}

fn image_locality(pod: &PodInfo, cache: &Cache, nodes: &[Candidate]) -> Option<Vec<i64>> {
    let all = i64::try_from(cache.nodes().count()).unwrap_or(i64::MAX).max(1);
    let highest = MAX_IMAGE * i64::try_from(pod.images.len()).unwrap_or(1).max(1);
    let present = |(_, facts): &Candidate| {
        let sum: i64 = pod
            .images
            .iter()
            .filter_map(|image| {
                let spread = i64::try_from(cache.nodes_with_image(image)).unwrap_or(all);
                Some(
                    i64::try_from(
                        i128::from(*facts.images.get(image)?) * i128::from(spread) / i128::from(all),
                    )
                    .unwrap_or(i64::MAX),
                )
            })
            .sum();
        MAX * (sum.clamp(MIN_IMAGE, highest) - MIN_IMAGE) / (highest - MIN_IMAGE)
    };
    Some(nodes.iter().map(present).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cpu_pod, node, pod};
    use serde_json::{Value, json};

    fn cluster(nodes: &[(&str, Value)]) -> Cache {
        let mut cache = Cache::default();
        for (name, over) in nodes {
            cache.set_node(name, node(over.clone()));
        }
        cache
    }

    fn scores(plugin: Plugin, pod: &PodInfo, cache: &Cache) -> Vec<i64> {
        plugin(pod, cache, &cache.nodes().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let mut cache = cluster(&[("n1", json!({})), ("n2", json!({}))]);
        cache.assume(&cpu_pod("busy", "2"), "n1");
        // n1: cpu (4000-2000-1000)/4000 = 25; memory (8192-400)/8192 = 95 -> 60. n2: 75 and 97 -> 86.
        assert_eq!(scores(least_allocated, &cpu_pod("new", "1"), &cache), [60, 86]);
    }

    #[test]
    fn balance_counts_relative_to_what_was_there() {
        let cache = cluster(&[("n1", json!({}))]);
        // Alone: cpu 1/4, memory 0: deviation 0.125 -> 87; before: 100. 50 + (50 - 13) / 2.
        assert_eq!(scores(balanced_allocation, &cpu_pod("new", "1"), &cache), [68]);
        assert_eq!(balanced_allocation(&pod(json!({})), &cache, &[]), None);
    }

    #[test]
    fn preferences_and_dislikes_are_normalized() {
        let soft = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
        let cache = cluster(&[("n1", soft), ("n2", json!({"metadata": {"labels": {"disk": "ssd"}}}))]);
        assert_eq!(scores(taint_toleration, &pod(json!({})), &cache), [0, 100]);
        let picky = pod(json!({"spec": {"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference":
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]}}}}));
        assert_eq!(scores(node_affinity, &picky, &cache), [0, 100]);
    }

    #[test]
    fn a_large_image_already_present_draws_the_pod() {
        let images = json!({"status": {"images": [{"names": ["i:latest"], "sizeBytes": 600 << 20}]}});
        let cache = cluster(&[("n1", images), ("n2", json!({}))]);
        // 600 MiB on one node of two counts 300 MiB; (300 - 23) / (1000 - 23).
        assert_eq!(scores(image_locality, &pod(json!({})), &cache), [28, 0]);
    }
}
