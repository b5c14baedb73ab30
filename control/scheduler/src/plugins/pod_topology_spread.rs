//! PodTopologySpread: no domain may be ahead of the emptiest one by more than the skew, and emptier domains are better.

use std::collections::HashSet;
use std::sync::Arc;

use podwire_api::selector::lookup;

use crate::cluster::index::Tally;
use crate::cluster::topology::{FieldId, KeyId, domain};
use crate::cluster::{Cluster, Constraints, Event};
use crate::framework::{Cycle, Filter, MAX_SCORE, Name, Plugin, PreFilter, Refusal, Score, Seat};
use crate::node::{NodeFacts, NodeInfo};
use crate::pod::{PodInfo, Spread};

const HOSTNAME: &str = "kubernetes.io/hostname";
const MISMATCH: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
/// A node that takes no part in the score.
const IGNORED: i64 = -1;

/// The plugin: what applies to pods that say nothing themselves.
pub(crate) struct PodTopologySpread {
    pub(crate) defaults: Vec<Spread>,
    /// Whether they are the system's.
    pub(crate) system: bool,
}

impl Default for PodTopologySpread {
    fn default() -> Self {
        let soft = |key: &str, max_skew| Spread {
            max_skew,
            topology_key: key.to_owned(),
            hard: false,
            selector: None,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        };
        Self { defaults: vec![soft(HOSTNAME, 3), soft("topology.kubernetes.io/zone", 5)], system: true }
    }
}

impl PodTopologySpread {
    /// The constraints of a pod: its own, or the default ones if it is one of several that belong together.
    pub(crate) fn constraints(&self, pod: &PodInfo, cluster: &Cluster) -> Constraints {
        if !pod.spread.is_empty() {
            return Constraints { all: pod.spread.clone(), lenient: false };
        }
        let selector = (!self.defaults.is_empty()).then(|| cluster.workloads.selector(pod)).flatten();
        let Some(selector) = selector else { return Constraints::default() };
        let with = |one: &Spread| Arc::new(Spread { selector: Some(selector.clone()), ..one.clone() });
        Constraints { all: self.defaults.iter().map(with).collect(), lenient: self.system }
    }
}

/// Whether a constraint's selector means a pod; unlike for counting, an empty one means every pod.
fn means(spread: &Spread, pod: &PodInfo) -> bool {
    spread.selector.as_ref().is_some_and(|one| one.matches_with(lookup(&pod.labels)))
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> Name {
        Name::PodTopologySpread
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        let constraints = self.constraints(pod, cluster);
        let counted = |other: &PodInfo| {
            !other.deleting
                && other.namespace == pod.namespace
                && constraints.of(true).any(|one| means(one, other))
        };
        let takes_part =
            |facts: &NodeFacts| constraints.of(true).all(|one| facts.labels.contains_key(&one.topology_key));
        match event {
            Event::PodPlaced(other) | Event::PodGone(other) => counted(other),
            Event::PodChanged { old, new } => counted(old) != counted(new),
            Event::NodeAdded(id) => cluster.node(*id).facts.as_ref().is_some_and(takes_part),
            Event::NodeGone(old) => takes_part(old),
            Event::NodeChanged(id, old) => cluster.node(*id).facts.as_ref().is_some_and(|new| {
                (takes_part(old) || takes_part(new))
                    && (old.labels != new.labels
                        || old.taints != new.taints && constraints.of(true).any(|one| one.honor_taints))
            }),
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let all: Vec<_> = cycle.constraints.of(true).filter_map(|one| Hard::new(one, cycle)).collect();
        if all.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Each(Box::new(HardConstraints { all, cycle }))
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, fit: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        let soft: Vec<_> = cycle.constraints.of(false).collect();
        if soft.is_empty() {
            return None;
        }
        let strict = !cycle.constraints.lenient;
        let keys: Vec<KeyId> =
            soft.iter().filter_map(|one| cycle.cluster.index.keys.get(&one.topology_key)).collect();
        let takes_part = |seat: &Seat| !strict || keys.iter().all(|key| domain(seat.node, *key).is_some());
        let mut all = Vec::new();
        for (one, key) in soft.iter().zip(&keys) {
            let what = cycle.constraints.count(one, cycle.pod, &cycle.cluster.index);
            let there = fit.iter().filter(|seat| takes_part(seat));
            let domains = if one.topology_key == HOSTNAME {
                there.count()
            } else {
                there.map(|seat| domain(seat.node, *key)).collect::<HashSet<_>>().len()
            };
            let tally = cycle.cluster.index.tally(&what)?;
            all.push(Soft { key: *key, tally, weight: weight(domains), slack: one.max_skew - 1 });
        }
        Some(Box::new(SoftConstraints { all, strict }))
    }
}

#[allow(clippy::cast_precision_loss, reason = "numbers of domains are small")]
fn weight(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

struct Hard<'a> {
    spread: &'a Spread,
    key: KeyId,
    field: FieldId,
    tally: &'a Tally,
    /// The domains that count.
    domains: &'a [i32],
    /// The emptiest domain, whether it is the only one that is so empty, and the next.
    lowest: i64,
    single: bool,
    second: i64,
    count: i64,
    own: i64,
    /// What is thought otherwise in the domain of the node that is asked about.
    delta: i64,
}

impl<'a> Hard<'a> {
    fn new(spread: &'a Spread, cycle: Cycle<'a>) -> Option<Self> {
        let index = &cycle.cluster.index;
        let what = cycle.constraints.count(spread, cycle.pod, index);
        let tally = index.tally(&what)?;
        let domains = index.domains(what.field, what.key);
        let (mut lowest, mut times, mut second, mut count) = (i64::MAX, 0, i64::MAX, 0);
        for (at, _) in domains.iter().enumerate().filter(|(_, nodes)| **nodes > 0) {
            let pods = i64::from(tally.counts.get(at).copied().unwrap_or_default());
            count += 1;
            match pods.cmp(&lowest) {
                std::cmp::Ordering::Less => (second, lowest, times) = (lowest, pods, 1),
                std::cmp::Ordering::Equal => times += 1,
                std::cmp::Ordering::Greater => second = second.min(pods),
            }
        }
        Some(Self {
            spread,
            key: what.key,
            field: what.field,
            tally,
            domains,
            lowest,
            single: times == 1,
            second,
            count,
            own: i64::from(means(spread, cycle.pod)),
            delta: 0,
        })
    }

    /// Pods in the node's domain and in the emptiest one.
    fn counts(&self, node: &NodeInfo) -> Option<(i64, i64)> {
        let at = domain(node, self.key)?;
        let before = i64::from(self.tally.counts.get(at).copied().unwrap_or_default());
        let here = before + self.delta;
        let mut lowest = self.lowest;
        if self.domains.get(at).is_some_and(|nodes| *nodes > 0) {
            let others = if before == self.lowest && self.single { self.second } else { self.lowest };
            lowest = others.min(here);
        }
        if self.count < self.spread.min_domains {
            lowest = 0;
        }
        Some((here, lowest))
    }
}

struct HardConstraints<'a> {
    all: Vec<Hard<'a>>,
    cycle: Cycle<'a>,
}

impl Filter for HardConstraints<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        for one in &self.all {
            let Some((here, lowest)) = one.counts(seat.node) else {
                return Some(Refusal::never(Name::PodTopologySpread, NO_LABEL));
            };
            if here + one.own - lowest > one.spread.max_skew {
                return Some(Refusal::not_now(Name::PodTopologySpread, MISMATCH));
            }
        }
        None
    }

    fn suppose(&mut self, pod: &PodInfo, node: &NodeInfo, sign: i64) {
        if pod.namespace != self.cycle.pod.namespace {
            return;
        }
        for one in &mut self.all {
            if means(one.spread, pod) && self.cycle.cluster.index.covers(one.field, node) {
                one.delta += sign;
            }
        }
    }

    fn forget(&mut self) {
        self.all.iter_mut().for_each(|one| one.delta = 0);
    }

    fn details(&self, seat: &Seat) -> Vec<String> {
        let line = |one: &Hard| {
            let key = &one.spread.topology_key;
            let Some((here, lowest)) = one.counts(seat.node) else {
                return Some(format!("the node has no label {key}"));
            };
            let skew = here + one.own - lowest;
            (skew > one.spread.max_skew).then(|| {
                let value = seat.facts.labels.get(key).map(String::as_str).unwrap_or_default();
                let max = one.spread.max_skew;
                format!(
                    "{key}={value} has {here} such pods, the emptiest domain {lowest}: skew {skew} > {max}"
                )
            })
        };
        self.all.iter().filter_map(line).collect()
    }
}

struct Soft<'a> {
    key: KeyId,
    tally: &'a Tally,
    weight: f64,
    slack: i64,
}

struct SoftConstraints<'a> {
    all: Vec<Soft<'a>>,
    strict: bool,
}

impl Score for SoftConstraints<'_> {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "upstream weighs domains in floating point and rounds; counts of pods are small"
    )]
    fn score(&self, seat: &Seat) -> i64 {
        let mut sum = 0.0;
        for one in &self.all {
            if domain(seat.node, one.key).is_none() {
                if self.strict {
                    return IGNORED;
                }
                continue;
            }
            let count = one.tally.at(seat.node).unwrap_or_default();
            sum += count as f64 * one.weight + one.slack as f64;
        }
        sum.round() as i64
    }

    fn normalize(&self, scores: &mut [i64]) {
        let costs = || scores.iter().copied().filter(|score| *score != IGNORED);
        let (lowest, highest) = (costs().min().unwrap_or(0), costs().max().unwrap_or(0).max(0));
        for score in scores.iter_mut() {
            *score = match *score {
                IGNORED => 0,
                _ if highest == 0 => MAX_SCORE,
                cost => MAX_SCORE * (highest + lowest - cost) / highest,
            };
        }
    }
}
