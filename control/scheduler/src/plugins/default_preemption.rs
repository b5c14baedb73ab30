//! DefaultPreemption: which pods of lower priority would have to go for a pod that fits nowhere.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::cluster::workloads::{Budget, Budgets};
use crate::cycle::{Diagnosis, availability};
use crate::framework::{Cycle, Filters, Name, Plugin, PostFilter, Refusal, Seat};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::resources::Resources;

/// The plugin: how many nodes are tried.
pub(crate) struct DefaultPreemption {
    pub(crate) min_percentage: usize,
    pub(crate) min_absolute: usize,
}

impl Default for DefaultPreemption {
    fn default() -> Self {
        Self { min_percentage: 10, min_absolute: 100 }
    }
}

/// Room that could be made on a node.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// Where.
    pub(crate) node: Arc<str>,
    /// Who must go, the most important first.
    pub(crate) victims: Vec<Arc<PodInfo>>,
    /// How many of them their disruption budgets would keep.
    pub(crate) violations: usize,
}

/// What trying nodes came to.
#[derive(Debug, Default)]
pub(crate) struct DryRun {
    pub(crate) candidates: Vec<Candidate>,
    /// Nodes where nothing helps.
    pub(crate) unhelped: Vec<(Arc<str>, Refusal)>,
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> Name {
        Name::DefaultPreemption
    }

    fn post_filter(
        &self,
        cycle: Cycle,
        filters: &mut Filters,
        diagnosis: &Diagnosis,
        dice: u64,
    ) -> PostFilter {
        if let Some(reason) = ineligible(cycle, diagnosis) {
            let text = format!("preemption: {reason}");
            return PostFilter::Unhelped { text, clear: false, deallocate: None };
        }
        let nodes = potential(cycle, diagnosis);
        let wanted = (nodes.len() * self.min_percentage / 100).max(self.min_absolute).min(nodes.len());
        let start =
            if nodes.is_empty() { 0 } else { usize::try_from(dice % nodes.len() as u64).unwrap_or(0) };
        let tried = nodes[start..].iter().chain(&nodes[..start]);
        let run = dry_run(cycle, filters, tried.copied(), wanted);
        match run.candidates.into_iter().min_by_key(cost) {
            Some(best) => PostFilter::Victims { node: best.node.to_string(), pods: best.victims },
            None => {
                let absent = diagnosis.nodes - run.unhelped.len();
                let unhelpful = std::iter::repeat_n("Preemption is not helpful for scheduling", absent);
                let reasons = run.unhelped.iter().flat_map(|(_, refusal)| refusal.reasons());
                let text = availability(diagnosis.nodes, reasons.chain(unhelpful));
                PostFilter::Unhelped { text: format!("preemption: {text}"), clear: true, deallocate: None }
            }
        }
    }
}

/// Why the pod must not remove others.
pub(crate) fn ineligible(cycle: Cycle, diagnosis: &Diagnosis) -> Option<&'static str> {
    let pod = cycle.pod;
    if pod.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // Someone is already leaving for this pod's sake: wait for that, unless the node will not do any more.
    let node = cycle.cluster.named(pod.nominated.as_deref()?)?;
    if diagnosis.refusal(node.id).is_none_or(|refusal| !refusal.resolvable) {
        return None;
    }
    node.pods
        .iter()
        .any(|other| other.preempted && other.priority < pod.priority)
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The nodes that would do if pods were removed from them.
pub(crate) fn potential<'a>(cycle: Cycle<'a>, diagnosis: &Diagnosis) -> Vec<&'a NodeInfo> {
    if diagnosis.everywhere.is_some() {
        return Vec::new();
    }
    let resolvable = |node: &&NodeInfo| diagnosis.refusal(node.id).is_some_and(|one| one.resolvable);
    cycle.cluster.nodes().filter(resolvable).collect()
}

/// Tries nodes until there are enough candidates, of which one at least spares all budgets.
pub(crate) fn dry_run<'a>(
    cycle: Cycle<'a>,
    filters: &mut Filters,
    nodes: impl Iterator<Item = &'a NodeInfo>,
    wanted: usize,
) -> DryRun {
    let mut run = DryRun::default();
    let mut sparing = false;
    for node in nodes {
        match victims(cycle, filters, node) {
            Ok((victims, violations)) => {
                sparing |= violations == 0;
                run.candidates.push(Candidate { node: node.name.clone(), victims, violations });
            }
            Err(refusal) => run.unhelped.push((node.name.clone(), refusal)),
        }
        filters.forget();
        if sparing && run.candidates.len() >= wanted {
            break;
        }
    }
    run
}

/// More important first, then longer running.
fn importance(pod: &PodInfo) -> (Reverse<i32>, i64) {
    (Reverse(pod.priority), pod.started)
}

/// The fewest pods to remove from the node and how many budgets that violates, or why it does not help.
fn victims<'a>(
    cycle: Cycle<'a>,
    filters: &mut Filters,
    node: &'a NodeInfo,
) -> Result<(Vec<Arc<PodInfo>>, usize), Refusal> {
    let unhelpful =
        || Refusal::never(Name::DefaultPreemption, "No preemption victims found for incoming pod");
    let mut lower: Vec<&Arc<PodInfo>> =
        node.pods.iter().filter(|other| other.priority < cycle.pod.priority).collect();
    let (Some(facts), false) = (&node.facts, lower.is_empty()) else { return Err(unhelpful()) };
    let mut usage = node.usage.clone();
    for other in &lower {
        usage.remove(other);
        filters.suppose(other, node, -1);
    }
    if let Some(refusal) = filters.refusal_with_promises(cycle, &Seat { node, facts, usage: &usage }) {
        return Err(refusal);
    }
    // The most important and longest running are spared first, those with a budget before all others.
    lower.sort_by_key(|other| importance(other));
    let (kept, free): (Vec<_>, Vec<_>) = by_budget(&lower, &cycle.cluster.workloads.budgets);
    let mut gone: Vec<Arc<PodInfo>> = Vec::new();
    let mut violations = 0;
    // What there was no room for. Who asks for as much need not be tried: there will only be less, of what more are spared.
    let mut too_much: Vec<&Resources> = Vec::new();
    for (other, budgeted) in kept.iter().map(|one| (one, true)).chain(free.iter().map(|one| (one, false))) {
        if too_much.iter().all(|least| other.requests.is_less_than(least)) {
            usage.add(other);
            filters.suppose(other, node, 1);
            match filters.refusal_with_promises(cycle, &Seat { node, facts, usage: &usage }) {
                None => continue,
                Some(refusal) if refusal.plugin == Name::NodeResourcesFit => too_much.push(&other.requests),
                Some(_) => {}
            }
            usage.remove(other);
            filters.suppose(other, node, -1);
        }
        gone.push(Arc::clone(other));
        violations += usize::from(budgeted);
    }
    gone.sort_by_key(|other| importance(other));
    if gone.is_empty() {
        // The pod would fit as things are; a filter that changes its mind must not cost anybody their life.
        return Err(unhelpful());
    }
    Ok((gone, violations))
}

/// Those whose removal a budget forbids, and the others.
fn by_budget<'a>(
    pods: &[&'a Arc<PodInfo>],
    budgets: &Budgets,
) -> (Vec<&'a Arc<PodInfo>>, Vec<&'a Arc<PodInfo>>) {
    if budgets.is_empty() {
        return (Vec::new(), pods.to_vec());
    }
    let mut left: HashMap<*const Budget, i64> = HashMap::new();
    pods.iter().copied().partition(|pod| {
        for budget in budgets.of(pod) {
            let left = left.entry(std::ptr::from_ref(budget)).or_insert(budget.allowed);
            *left -= 1;
            if *left < 0 {
                return true;
            }
        }
        false
    })
}

/// Budgets violated, highest priority among the victims, sum of priorities, number, then the later start is the lesser
/// loss.
pub(crate) type Cost = (usize, i32, i64, usize, Reverse<i64>);

/// What a candidate costs.
pub(crate) fn cost(candidate: &Candidate) -> Cost {
    let victims = &candidate.victims;
    let highest = victims.iter().map(|pod| pod.priority).max().unwrap_or(i32::MIN);
    // Shifted to be positive, so that more pods are never cheaper.
    let sum = victims.iter().map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1).sum();
    let earliest = victims.iter().filter(|pod| pod.priority == highest).map(|pod| pod.started).min();
    (candidate.violations, highest, sum, victims.len(), Reverse(earliest.unwrap_or(i64::MAX)))
}
