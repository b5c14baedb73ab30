//! One decision: the best node for a pod, or the reasons why there is none. Pure; chance is an argument.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::Cache;
use crate::filter::{Plugin, Prepared, Rejection};
use crate::node::{NodeFacts, NodeInfo};
use crate::pod::PodInfo;
use crate::score;

/// The longest text a condition or event carries.
const MAX_MESSAGE: usize = 1024;

/// What one cycle found.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Put the pod on this node.
    Node {
        /// Its name.
        name: String,
        /// How many nodes were found that fit.
        fit: usize,
    },
    /// No node can take it.
    None(Diagnosis),
}

/// Why no node can take a pod.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    /// How many nodes there are.
    pub(crate) nodes: usize,
    /// Each node's objection.
    pub(crate) rejections: BTreeMap<String, Rejection>,
    /// What the pod lacks wherever it may run; no node was asked then.
    pub(crate) everywhere: Option<Rejection>,
}

impl Diagnosis {
    /// The filters that objected anywhere.
    pub(crate) fn plugins(&self) -> BTreeSet<Plugin> {
        self.rejections.values().chain(&self.everywhere).map(|rejection| rejection.plugin).collect()
    }

    /// Kubernetes' sentence about it; `aftermath` says what preemption came to.
    pub(crate) fn message(&self, aftermath: &str) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let reasons = self.rejections.values().flat_map(|rejection| &rejection.reasons);
        let mut text = match &self.everywhere {
            Some(rejection) => {
                format!("0/{} nodes are available: {}.", self.nodes, rejection.reasons.join(", "))
            }
            None => availability(self.nodes, reasons.map(String::as_str)),
        };
        if !aftermath.is_empty() {
            text.push(' ');
            text.push_str(aftermath);
        }
        if text.len() > MAX_MESSAGE {
            let cut = (0..=MAX_MESSAGE - 3).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(cut);
            text.push_str("...");
        }
        text
    }
}

/// `0/N nodes are available: 1 this, 2 that.`
pub(crate) fn availability<'a>(nodes: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    reasons.for_each(|reason| *counts.entry(reason).or_default() += 1);
    let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort_unstable();
    let mut text = format!("0/{nodes} nodes are available:");
    if !parts.is_empty() {
        text.push(' ');
        text.push_str(&parts.join(", "));
        text.push('.');
    }
    text
}

/// How many possible nodes are enough to choose from.
fn enough(nodes: usize) -> usize {
    if nodes < 100 {
        return nodes;
    }
    let percent = (50_usize.saturating_sub(nodes / 125)).max(5);
    (nodes * percent / 100).max(100)
}

/// Decides for one pod. `turn` moves on with every decision: it spreads the nodes looked at first and
/// breaks ties between equally good ones.
pub(crate) fn decide(pod: &PodInfo, cache: &Cache, turn: u64) -> Decision {
    let nodes: Vec<_> = cache.nodes().collect();
    let mut diagnosis = Diagnosis { nodes: nodes.len(), ..Diagnosis::default() };
    if nodes.is_empty() {
        return Decision::None(diagnosis);
    }
    diagnosis.everywhere = cache.claims().objection(pod);
    if diagnosis.everywhere.is_some() {
        return Decision::None(diagnosis);
    }
    let prepared = Prepared::new(pod, cache.view());
    // Room that is being made for others counts as taken, and what they bring must not be relied on.
    let objection = |node: &NodeInfo, facts: &NodeFacts| {
        let promised = cache.with_promises(node, pod);
        promised
            .and_then(|fuller| prepared.objection(&fuller, facts))
            .or_else(|| prepared.objection(node, facts))
    };
    if let Some((node, facts)) = pod.nominated.as_deref().and_then(|name| cache.node(name))
        && objection(node, facts).is_none()
    {
        return Decision::Node { name: node.name.clone(), fit: 1 };
    }
    let start = usize::try_from(turn % nodes.len() as u64).unwrap_or(0);
    let wanted = enough(nodes.len());
    let mut candidates = Vec::new();
    for (node, facts) in nodes[start..].iter().chain(&nodes[..start]) {
        match objection(node, facts) {
            None => candidates.push((*node, *facts)),
            Some(rejection) => {
                diagnosis.rejections.insert(node.name.clone(), rejection);
            }
        }
        if candidates.len() >= wanted {
            break;
        }
    }
    match candidates.as_slice() {
        [] => Decision::None(diagnosis),
        [(only, _)] => Decision::Node { name: only.name.clone(), fit: 1 },
        _ => {
            let scores = score::total(pod, cache, &candidates);
            let best = scores.iter().copied().max().unwrap_or(0);
            let tied: Vec<_> = candidates
                .iter()
                .zip(scores)
                .filter(|(_, score)| *score == best)
                .map(|(one, _)| one)
                .collect();
            // The list is already rotated by `turn`; a plain remainder would undo that.
            let dice = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            let chosen = usize::try_from(dice % tied.len() as u64).unwrap_or(0);
            Decision::Node { name: tied[chosen].0.name.clone(), fit: candidates.len() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cpu_pod, node, pod};
    use serde_json::json;

    #[test]
    fn the_emptiest_node_is_chosen() {
        let mut cache = Cache::default();
        for name in ["n1", "n2", "n3"] {
            cache.set_node(name, node(json!({})));
        }
        cache.assume(&cpu_pod("a", "2"), "n1");
        cache.assume(&cpu_pod("b", "1"), "n3");
        for turn in 0..6 {
            assert!(
                matches!(decide(&cpu_pod("c", "1"), &cache, turn), Decision::Node { name, .. } if name == "n2")
            );
        }
    }

    #[test]
    fn equal_nodes_take_turns() {
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({})));
        cache.set_node("n2", node(json!({})));
        let chosen: BTreeSet<_> = (0..32)
            .map(|turn| match decide(&pod(json!({})), &cache, turn) {
                Decision::Node { name, .. } => name,
                Decision::None(diagnosis) => panic!("{}", diagnosis.message("")),
            })
            .collect();
        assert_eq!(chosen.len(), 2);
    }

    #[test]
    fn the_sentence_is_kubernetes_own() {
        let mut cache = Cache::default();
        assert!(
            matches!(decide(&pod(json!({})), &cache, 0), Decision::None(found) if found.message("") == "no nodes available to schedule pods")
        );
        cache.set_node("n1", node(json!({"spec": {"unschedulable": true}})));
        cache.set_node("n2", node(json!({"status": {"allocatable": {"cpu": "1"}}})));
        cache.set_node("n3", node(json!({"status": {"allocatable": {"cpu": "1", "memory": "1"}}})));
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]);
        let Decision::None(diagnosis) = decide(&pod(json!({"spec": {"containers": containers}})), &cache, 0)
        else {
            panic!("nothing fits")
        };
        assert_eq!(
            diagnosis.message(""),
            "0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu."
        );
    }

    #[test]
    fn a_pod_with_claims_waits_whatever_the_nodes_are() {
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({})));
        let claimant =
            json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
        let Decision::None(diagnosis) = decide(&pod(claimant), &cache, 0) else { panic!("it has no volume") };
        assert_eq!(
            diagnosis.message("preemption: no."),
            "0/1 nodes are available: persistentvolumeclaim \"data\" not found. preemption: no."
        );
        assert_eq!(diagnosis.plugins(), BTreeSet::from([Plugin::VolumeBinding]));
    }

    #[test]
    fn large_clusters_are_sampled() {
        assert_eq!([enough(99), enough(100), enough(1000), enough(5000)], [99, 100, 420, 500]);
    }
}
