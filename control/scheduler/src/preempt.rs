//! Making room: which pods of lower priority would have to go for a pod that fits nowhere. Pure.
//!
//! Disruption budgets are not looked at yet.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::cache::Cache;
use crate::cycle::{Diagnosis, availability};
use crate::filter::{Plugin, Prepared};
use crate::node::{NodeFacts, NodeInfo};
use crate::pod::PodInfo;

/// What upstream says first in the aftermath of a pod without device claims.
const NO_CLAIMS: &str = "no new claims to deallocate";

/// How room can be made.
#[derive(Debug)]
pub(crate) enum Preemption {
    /// Remove these pods from this node.
    Victims { node: String, pods: Vec<Arc<PodInfo>> },
    /// It cannot; the text ends the pod's message.
    None(String),
}

/// Looks for the node where making room hurts least.
pub(crate) fn preempt(pod: &PodInfo, cache: &Cache, diagnosis: &Diagnosis) -> Preemption {
    if let Some(reason) = ineligible(pod, cache) {
        return Preemption::None(format!("{NO_CLAIMS}, preemption: {reason}"));
    }
    let mut best: Option<(Cost, &NodeInfo, Vec<Arc<PodInfo>>)> = None;
    let mut reasons = Vec::new();
    for (node, facts) in cache.nodes() {
        let Some(rejection) = diagnosis.everywhere.as_ref().or_else(|| diagnosis.rejections.get(&node.name))
        else {
            continue;
        };
        if !rejection.resolvable {
            reasons.push("Preemption is not helpful for scheduling".to_owned());
            continue;
        }
        match victims(pod, cache, node, facts, rejection.plugin) {
            Ok(victims) => {
                let cost = cost(&victims);
                if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                    best = Some((cost, node, victims));
                }
            }
            Err(why) => reasons.extend(why),
        }
    }
    match best {
        Some((_, node, pods)) => Preemption::Victims { node: node.name.clone(), pods },
        None => {
            let text = availability(diagnosis.nodes, reasons.iter().map(String::as_str));
            Preemption::None(format!("{NO_CLAIMS}, preemption: {text}"))
        }
    }
}

fn ineligible(pod: &PodInfo, cache: &Cache) -> Option<&'static str> {
    if pod.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // Someone is already leaving for this pod's sake: wait for that.
    let (node, _) = cache.node(pod.nominated.as_deref()?)?;
    node.pods
        .values()
        .any(|other| other.deleting && other.priority < pod.priority)
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The fewest pods to remove from the node, or the reasons why that does not help.
fn victims(
    pod: &PodInfo,
    cache: &Cache,
    node: &NodeInfo,
    facts: &NodeFacts,
    rejected_by: Plugin,
) -> Result<Vec<Arc<PodInfo>>, Vec<String>> {
    let mut lower: Vec<_> =
        node.pods.values().filter(|other| other.priority < pod.priority).cloned().collect();
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".to_owned()]);
    }
    let mut emptied = node.clone();
    lower.iter().for_each(|other| drop(emptied.remove(&other.uid)));
    // Where other pods matter to the filters, the whole cluster is looked at again without the victims.
    let depends_on_pods = !(pod.spread.is_empty() && pod.near.is_empty() && pod.far.is_empty())
        || rejected_by == Plugin::InterPodAffinity;
    let as_is = Prepared::new(pod, cache.view());
    let objection = |thought: &NodeInfo| {
        if depends_on_pods {
            Prepared::new(pod, cache.view_with(thought)).objection(thought, facts)
        } else {
            as_is.objection(thought, facts)
        }
    };
    if let Some(rejection) = objection(&emptied) {
        return Err(rejection.reasons);
    }
    // The most important and longest running are spared first.
    lower.sort_by_key(|other| (Reverse(other.priority), other.started));
    let mut gone = Vec::new();
    for other in lower {
        emptied.add(other.clone());
        if objection(&emptied).is_some() {
            emptied.remove(&other.uid);
            gone.push(other);
        }
    }
    Ok(gone)
}

/// Highest priority among the victims, sum of priorities, number, then the later start is the lesser loss.
type Cost = (i32, i64, usize, Reverse<i64>);

fn cost(victims: &[Arc<PodInfo>]) -> Cost {
    let highest = victims.iter().map(|pod| pod.priority).max().unwrap_or(i32::MIN);
    // Shifted to be positive, so that more pods are never cheaper.
    let sum = victims.iter().map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1).sum();
    let earliest = victims.iter().filter(|pod| pod.priority == highest).map(|pod| pod.started).min();
    (highest, sum, victims.len(), Reverse(earliest.unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::{Decision, decide};
    use crate::testing::{cpu_pod, node, pod};
    use serde_json::json;

    fn with_priority(pod: PodInfo, priority: i32) -> PodInfo {
        PodInfo { priority, ..pod }
    }

    fn outcome(pod: &PodInfo, cache: &Cache) -> Preemption {
        match decide(pod, cache, 0) {
            Decision::Node { name, .. } => panic!("it fits on {name}"),
            Decision::None(diagnosis) => preempt(pod, cache, &diagnosis),
        }
    }

    #[test]
    fn the_least_important_and_fewest_pods_go() {
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({})));
        cache.set_node("n2", node(json!({})));
        cache.assume(&with_priority(cpu_pod("a", "2"), 5), "n1");
        cache.assume(&with_priority(cpu_pod("b", "2"), 1), "n1");
        cache.assume(&with_priority(cpu_pod("c", "4"), 5), "n2");
        match outcome(&with_priority(cpu_pod("new", "2"), 10), &cache) {
            Preemption::Victims { node, pods } => {
                assert_eq!(node, "n1");
                assert_eq!(pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["b"]);
            }
            Preemption::None(text) => panic!("{text}"),
        }
    }

    #[test]
    fn equals_are_never_removed_and_the_text_is_kubernetes_own() {
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({})));
        cache.assume(&cpu_pod("a", "4"), "n1");
        let new = cpu_pod("new", "1");
        let Decision::None(diagnosis) = decide(&new, &cache, 0) else { panic!("full") };
        let Preemption::None(text) = preempt(&new, &cache, &diagnosis) else { panic!("equal priority") };
        assert_eq!(
            diagnosis.message(&text),
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
             0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
        let huge = with_priority(cpu_pod("huge", "64"), 9);
        let Preemption::None(text) = outcome(&huge, &cache) else { panic!("hopeless") };
        assert!(text.ends_with("1 Preemption is not helpful for scheduling."), "{text}");
        let meek = PodInfo { never_preempts: true, ..with_priority(cpu_pod("meek", "1"), 9) };
        let Preemption::None(text) = outcome(&meek, &cache) else { panic!("forbidden") };
        assert!(text.ends_with("not eligible due to preemptionPolicy=Never."), "{text}");
    }

    #[test]
    fn a_pod_that_is_shunned_can_remove_who_shuns_it() {
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({"metadata": {"labels": {"zone": "a"}}})));
        let terms = json!([{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}]);
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        cache.assume(&pod(json!({"metadata": {"name": "loner"}, "spec": {"affinity": affinity}})), "n1");
        let new = pod(json!({"metadata": {"name": "new", "labels": {"app": "x"}}, "spec": {"priority": 1}}));
        assert!(matches!(outcome(&new, &cache), Preemption::Victims { pods, .. } if pods.len() == 1));
    }

    #[test]
    fn promised_room_is_not_given_to_lesser_pods() {
        let mut cache = Cache::default();
        cache.set_node("n1", node(json!({})));
        cache.nominate(Arc::new(with_priority(cpu_pod("big", "4"), 9)), "n1");
        assert!(matches!(decide(&cpu_pod("small", "1"), &cache, 0), Decision::None(_)));
        let greater = with_priority(cpu_pod("greater", "1"), 10);
        assert!(matches!(decide(&greater, &cache, 0), Decision::Node { .. }));
        assert!(matches!(decide(&with_priority(cpu_pod("big", "4"), 9), &cache, 0), Decision::Node { .. }));
    }
}
