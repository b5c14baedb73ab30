//! NodeUnschedulable: a cordoned node takes only pods that tolerate that.

use podwire_api::toleration::{Taint, tolerated};

use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Seat};
use crate::pod::PodInfo;

/// The plugin.
pub(crate) struct NodeUnschedulable;

struct Cordons;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> Name {
        Name::NodeUnschedulable
    }

    fn may_help(&self, event: &Event, _: &PodInfo, cluster: &Cluster) -> bool {
        let usable = |id| cluster.node(id).facts.as_ref().is_some_and(|facts| !facts.unschedulable);
        match event {
            Event::NodeAdded(id) => usable(*id),
            Event::NodeChanged(id, old) => old.unschedulable && usable(*id),
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let taint = Taint { key: "node.kubernetes.io/unschedulable", value: "", effect: "NoSchedule" };
        if tolerated(taint, &cycle.pod.tolerations) {
            return PreFilter::Skip;
        }
        PreFilter::Each(Box::new(Cordons))
    }
}

impl Filter for Cordons {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        seat.facts
            .unschedulable
            .then(|| Refusal::never(Name::NodeUnschedulable, "node(s) were unschedulable"))
    }

    fn details(&self, _: &Seat) -> Vec<String> {
        vec!["spec.unschedulable is true; the pod does not tolerate node.kubernetes.io/unschedulable:NoSchedule".to_owned()]
    }
}
