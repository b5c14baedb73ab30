//! NodeName: a pod that names its node can run there only.

use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Seat};
use crate::pod::PodInfo;

/// The plugin.
pub(crate) struct NodeName;

struct Wanted<'a>(&'a str);

impl Plugin for NodeName {
    fn name(&self) -> Name {
        Name::NodeName
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        matches!(event, Event::NodeAdded(id) if pod.node.as_ref() == Some(&cluster.node(*id).name))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        match &cycle.pod.node {
            Some(name) => PreFilter::Each(Box::new(Wanted(name))),
            None => PreFilter::Skip,
        }
    }
}

impl Filter for Wanted<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        (*seat.node.name != *self.0)
            .then(|| Refusal::never(Name::NodeName, "node(s) didn't match the requested node name"))
    }
}
