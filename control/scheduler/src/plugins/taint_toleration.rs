//! TaintToleration: taints keep pods away, or make a node less welcome.

use podwire_api::toleration::tolerated;

use super::normalize;
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Score, Seat};
use crate::node::Taint;
use crate::pod::{PodInfo, Toleration};

/// The plugin.
pub(crate) struct TaintToleration;

struct Tolerations<'a>(&'a [Toleration]);

/// The first taint that keeps new pods with these tolerations away.
pub(crate) fn untolerated<'a>(tolerations: &[Toleration], taints: &'a [Taint]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute")
        .find(|taint| !tolerated(*taint, tolerations))
}

impl Plugin for TaintToleration {
    fn name(&self) -> Name {
        Name::TaintToleration
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        let keeps_away = |taints: &[Taint]| untolerated(&pod.tolerations, taints).is_some();
        let welcome = |id| cluster.node(id).facts.as_ref().is_some_and(|new| !keeps_away(&new.taints));
        match event {
            Event::NodeAdded(id) => welcome(*id),
            Event::NodeChanged(id, old) => keeps_away(&old.taints) && welcome(*id),
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        PreFilter::Each(Box::new(Tolerations(&cycle.pod.tolerations)))
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, _: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        Some(Box::new(Tolerations(&cycle.pod.tolerations)))
    }
}

impl Filter for Tolerations<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        untolerated(self.0, &seat.facts.taints)
            .map(|_| Refusal::never(Name::TaintToleration, "node(s) had untolerated taint(s)"))
    }

    fn details(&self, seat: &Seat) -> Vec<String> {
        let taint = untolerated(self.0, &seat.facts.taints);
        taint.map(|taint| format!("the pod does not tolerate {taint}")).into_iter().collect()
    }
}

impl Score for Tolerations<'_> {
    fn score(&self, seat: &Seat) -> i64 {
        let soft = seat.facts.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        i64::try_from(soft.filter(|taint| !tolerated(*taint, self.0)).count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, true);
    }
}
