//! NodeAffinity: which nodes a pod may run on by their labels and names, and which it would rather run on.

use std::collections::BTreeSet;

use podwire_api::selector::{NodePreferences, RequiredNodeAffinity, lookup};

use super::normalize;
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Score, Seat};
use crate::pod::PodInfo;

/// The plugin, with what the configuration asks of every pod.
#[derive(Default)]
pub(crate) struct NodeAffinity {
    pub(crate) added_required: Option<RequiredNodeAffinity>,
    pub(crate) added_preferred: NodePreferences,
}

struct Required<'a> {
    added: Option<&'a RequiredNodeAffinity>,
    own: &'a RequiredNodeAffinity,
}

struct Preferred<'a>(&'a NodePreferences, &'a NodePreferences);

/// The nodes that the terms name, if each of them names some.
fn names(required: &RequiredNodeAffinity) -> Option<BTreeSet<String>> {
    let terms = required.terms.as_ref().filter(|terms| !terms.is_empty())?;
    terms.iter().map(|term| term.only_name().map(str::to_owned)).collect()
}

impl Plugin for NodeAffinity {
    fn name(&self) -> Name {
        Name::NodeAffinity
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        let (id, old) = match event {
            Event::NodeAdded(id) => (*id, None),
            Event::NodeChanged(id, old) => (*id, Some(old)),
            _ => return false,
        };
        let node = cluster.node(id);
        let matches = |labels| {
            let label = lookup(labels);
            pod.required_nodes.matches(&node.name, &label)
                && self.added_required.as_ref().is_none_or(|added| added.matches(&node.name, &label))
        };
        node.facts.as_ref().is_some_and(|new| matches(&new.labels))
            && old.is_none_or(|old| !matches(&old.labels))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let own = &cycle.pod.required_nodes;
        if own.is_empty() && self.added_required.is_none() {
            return PreFilter::Skip;
        }
        let filter = Box::new(Required { added: self.added_required.as_ref(), own });
        match names(own) {
            None => PreFilter::Each(filter),
            Some(mut names) => {
                // A term that asks for two names at once names none.
                names.remove("");
                if names.is_empty() {
                    return PreFilter::Nowhere(Refusal::never(
                        Name::NodeAffinity,
                        "pod affinity terms conflict",
                    ));
                }
                PreFilter::Only(names, filter)
            }
        }
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, _: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        let own = &cycle.pod.preferred_nodes;
        (!own.0.is_empty() || !self.added_preferred.0.is_empty())
            .then(|| Box::new(Preferred(own, &self.added_preferred)) as Box<dyn Score>)
    }
}

impl Filter for Required<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        let matches = |one: &RequiredNodeAffinity| one.matches(&seat.node.name, lookup(&seat.facts.labels));
        if self.added.is_some_and(|added| !matches(added)) {
            let reason = "node(s) didn't match scheduler-enforced node affinity";
            return Some(Refusal::never(Name::NodeAffinity, reason));
        }
        (!matches(self.own))
            .then(|| Refusal::never(Name::NodeAffinity, "node(s) didn't match Pod's node affinity/selector"))
    }

    fn details(&self, seat: &Seat) -> Vec<String> {
        let wrong = self.own.labels.iter().filter(|(key, value)| seat.facts.labels.get(key) != Some(value));
        wrong
            .map(|(key, value)| match seat.facts.labels.get(key) {
                Some(has) => format!("nodeSelector wants {key}={value}, the node has {key}={has}"),
                None => format!("nodeSelector wants {key}={value}, the node has no label {key}"),
            })
            .collect()
    }
}

impl Score for Preferred<'_> {
    fn score(&self, seat: &Seat) -> i64 {
        let of = |one: &NodePreferences| one.score(&seat.node.name, lookup(&seat.facts.labels));
        of(self.0) + of(self.1)
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, false);
    }
}
