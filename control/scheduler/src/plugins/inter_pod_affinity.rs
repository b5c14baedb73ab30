//! InterPodAffinity: near pods it needs, far from pods it shuns, and they from it; and what either would like.

use std::sync::Arc;

use crate::cluster::index::{Bond, Owned, Tally};
use crate::cluster::topology::{KeyId, domain};
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, MAX_SCORE, Name, Plugin, PreFilter, Refusal, Score, Seat};
use crate::node::NodeInfo;
use crate::pod::{PodInfo, PodTerm};

/// The plugin.
pub(crate) struct InterPodAffinity {
    /// What a required affinity of a placed pod adds for a pod that it means.
    pub(crate) hard_weight: i64,
    /// Whether only pods with preferences of their own are scored.
    pub(crate) ignore_preferences_of_others: bool,
}

impl Default for InterPodAffinity {
    fn default() -> Self {
        Self { hard_weight: 1, ignore_preferences_of_others: false }
    }
}

/// Whether all terms mean a pod.
fn all_mean(terms: &[Arc<PodTerm>], pod: &PodInfo, cluster: &Cluster) -> bool {
    let labels = cluster.namespace(&pod.namespace);
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, labels))
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> Name {
        Name::InterPodAffinity
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        let wanted = |other: &PodInfo| all_mean(&pod.near, other, cluster);
        let shunned = |other: &PodInfo| {
            let theirs = cluster.namespace(&other.namespace);
            let own = cluster.namespace(&pod.namespace);
            pod.far.iter().any(|term| term.matches(other, theirs))
                || other.far.iter().any(|term| term.matches(pod, own))
        };
        match event {
            Event::PodPlaced(other) => wanted(other),
            // The last of a group that is gone lets a new first one begin anywhere.
            Event::PodGone(other) => shunned(other) || wanted(other),
            Event::PodChanged { old, new } => wanted(old) != wanted(new) || shunned(old) && !shunned(new),
            Event::NodeAdded(_) | Event::NodeGone(_) | Event::NamespaceChanged => true,
            Event::NodeChanged(id, old) => {
                cluster.node(*id).facts.as_ref().is_some_and(|new| new.labels != old.labels)
            }
            Event::StorageChanged(_) | Event::DevicesChanged(_) => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let (pod, index) = (cycle.pod, &cycle.cluster.index);
        let shunning = index.meaning(pod, cycle.cluster.namespaces(), |bond| bond == Bond::Far);
        let shunning: Vec<&Owned> = shunning.filter(|owned| owned.placed > 0).collect();
        if shunning.is_empty() && pod.near.is_empty() && pod.far.is_empty() {
            return PreFilter::Skip;
        }
        let near = pod
            .near
            .iter()
            .filter_map(|term| Company::new(term, index.tally(&index.near(pod, term))?, cycle));
        let far =
            pod.far.iter().filter_map(|term| Company::new(term, index.tally(&index.meant(term))?, cycle));
        let (near, far): (Vec<_>, Vec<_>) = (near.collect(), far.collect());
        if near.len() != pod.near.len() || far.len() != pod.far.len() {
            // Every tally was made ready; should one be missing, no node is safe.
            let reason = "node(s) didn't match pod affinity rules";
            return PreFilter::Nowhere(Refusal::never(Name::InterPodAffinity, reason));
        }
        let anywhere = near.iter().map(|one| one.tally.total).sum();
        let own = all_mean(&pod.near, pod, cycle.cluster);
        PreFilter::Each(Box::new(Neighbours {
            near,
            far,
            shunning,
            supposed: Vec::new(),
            anywhere,
            own,
            cycle,
        }))
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, _: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        let (pod, index) = (cycle.pod, &cycle.cluster.index);
        let own = !pod.near_preferred.is_empty() || !pod.far_preferred.is_empty();
        if self.ignore_preferences_of_others && !own {
            return None;
        }
        let of = |terms: &'a [Arc<PodTerm>], sign: i64| {
            let found = terms.iter().filter_map(move |term| Some((term, index.tally(&index.meant(term))?)));
            found.filter(|(_, tally)| tally.total > 0).map(move |(term, tally)| (tally, sign * term.weight))
        };
        let wished: Vec<_> = of(&pod.near_preferred, 1).chain(of(&pod.far_preferred, -1)).collect();
        let wanted = |bond| bond != Bond::Far && (bond != Bond::Near || self.hard_weight > 0);
        let others = index.meaning(pod, cycle.cluster.namespaces(), wanted).filter(|owned| owned.placed > 0);
        let others: Vec<_> = others
            .map(|owned| match owned.bond {
                Bond::Near => (owned, self.hard_weight),
                Bond::NearPreferred => (owned, owned.term.weight),
                Bond::FarPreferred | Bond::Far => (owned, -owned.term.weight),
            })
            .collect();
        (!wished.is_empty() || !others.is_empty())
            .then(|| Box::new(Wishes { wished, others }) as Box<dyn Score>)
    }
}

/// A term of the pod with the pods that it means.
struct Company<'a> {
    term: &'a PodTerm,
    key: KeyId,
    tally: &'a Tally,
    /// What is thought otherwise in the domain of the node that is asked about.
    delta: i64,
}

impl<'a> Company<'a> {
    fn new(term: &'a PodTerm, tally: &'a Tally, cycle: Cycle) -> Option<Self> {
        Some(Self { term, key: cycle.cluster.index.keys.get(&term.topology_key)?, tally, delta: 0 })
    }

    /// How many are in the node's domain; `None` if it is in none.
    fn at(&self, node: &NodeInfo) -> Option<i64> {
        domain(node, self.key)?;
        Some(self.tally.at(node)? + self.delta)
    }
}

struct Neighbours<'a> {
    near: Vec<Company<'a>>,
    far: Vec<Company<'a>>,
    /// Terms of placed pods that mean this one.
    shunning: Vec<&'a Owned>,
    /// What is thought otherwise about them, by key, in the domain of the node that is asked about.
    supposed: Vec<(KeyId, i64)>,
    /// Pods anywhere that all terms mean.
    anywhere: i64,
    /// Whether they mean the pod itself: if there are none, it may be the first.
    own: bool,
    cycle: Cycle<'a>,
}

impl Neighbours<'_> {
    fn has_company(&self, node: &NodeInfo) -> bool {
        let mut there = true;
        for one in &self.near {
            match one.at(node) {
                None => return false,
                Some(count) => there &= count > 0,
            }
        }
        let supposed: i64 = self.near.iter().map(|one| one.delta).sum();
        there || self.anywhere + supposed == 0 && self.own
    }

    fn is_shunned(&self, node: &NodeInfo) -> bool {
        if self.supposed.is_empty() {
            return self.shunning.iter().any(|owned| owned.at(node) > 0);
        }
        let of_key = |key: KeyId| {
            let placed = self.shunning.iter().filter(|owned| owned.key == key).map(|owned| owned.at(node));
            let supposed = self.supposed.iter().filter(|(other, _)| *other == key).map(|(_, delta)| *delta);
            placed.chain(supposed).sum::<i64>()
        };
        let keys =
            self.shunning.iter().map(|owned| owned.key).chain(self.supposed.iter().map(|(key, _)| *key));
        keys.into_iter().any(|key| of_key(key) > 0)
    }
}

impl Filter for Neighbours<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        let name = Name::InterPodAffinity;
        if !self.near.is_empty() && !self.has_company(seat.node) {
            return Some(Refusal::never(name, "node(s) didn't match pod affinity rules"));
        }
        if self.far.iter().any(|one| one.at(seat.node).is_some_and(|count| count > 0)) {
            return Some(Refusal::not_now(name, "node(s) didn't match pod anti-affinity rules"));
        }
        if self.is_shunned(seat.node) {
            return Some(Refusal::not_now(name, "node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        None
    }

    fn suppose(&mut self, pod: &PodInfo, node: &NodeInfo, sign: i64) {
        let cluster = self.cycle.cluster;
        let own = cluster.namespace(&self.cycle.pod.namespace);
        for term in pod.far.iter().filter(|term| term.matches(self.cycle.pod, own)) {
            if let Some(key) = cluster.index.keys.get(&term.topology_key)
                && domain(node, key).is_some()
            {
                match self.supposed.iter_mut().find(|(other, _)| *other == key) {
                    Some((_, delta)) => *delta += sign,
                    None => self.supposed.push((key, sign)),
                }
            }
        }
        if all_mean(&self.cycle.pod.near, pod, cluster) {
            for one in self.near.iter_mut().filter(|one| domain(node, one.key).is_some()) {
                one.delta += sign;
            }
        }
        let theirs = cluster.namespace(&pod.namespace);
        for one in self.far.iter_mut().filter(|one| domain(node, one.key).is_some()) {
            if one.term.matches(pod, theirs) {
                one.delta += sign;
            }
        }
    }

    fn forget(&mut self) {
        self.supposed.clear();
        self.near.iter_mut().chain(&mut self.far).for_each(|one| one.delta = 0);
    }

    fn details(&self, seat: &Seat) -> Vec<String> {
        let place = |key: &str| match seat.facts.labels.get(key) {
            Some(value) => format!("{key}={value}"),
            None => format!("no {key}"),
        };
        let near = self.near.iter().filter(|one| one.at(seat.node).is_none_or(|count| count <= 0));
        let near = near.map(|one| {
            format!(
                "{}: none of the {} pods it must be near to",
                place(&one.term.topology_key),
                one.tally.total
            )
        });
        let far =
            self.far.iter().filter_map(|one| Some((one, one.at(seat.node).filter(|count| *count > 0)?)));
        let far = far.map(|(one, count)| {
            format!("{}: {count} pods it must be far from", place(&one.term.topology_key))
        });
        let shunning = self.shunning.iter().filter(|one| one.at(seat.node) > 0);
        let shunning = shunning.map(|one| {
            format!("{}: {} pods that must be far from it", place(&one.term.topology_key), one.at(seat.node))
        });
        near.chain(far).chain(shunning).collect()
    }
}

struct Wishes<'a> {
    wished: Vec<(&'a Tally, i64)>,
    others: Vec<(&'a Owned, i64)>,
}

impl Score for Wishes<'_> {
    fn score(&self, seat: &Seat) -> i64 {
        let own = self.wished.iter().map(|(tally, weight)| weight * tally.at(seat.node).unwrap_or_default());
        let others = self.others.iter().map(|(owned, weight)| weight * owned.at(seat.node));
        own.chain(others).sum()
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "upstream scales in floating point and truncates"
    )]
    fn normalize(&self, scores: &mut [i64]) {
        let (lowest, highest) =
            (scores.iter().min().copied().unwrap_or(0), scores.iter().max().copied().unwrap_or(0));
        let range = (highest - lowest) as f64;
        for score in scores {
            *score = if highest == lowest {
                0
            } else {
                (MAX_SCORE as f64 * ((*score - lowest) as f64 / range)) as i64
            };
        }
    }
}
