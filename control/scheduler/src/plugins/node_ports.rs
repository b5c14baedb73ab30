//! NodePorts: a port of the node is for one pod only.

use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Seat};
use crate::pod::{HostPort, PodInfo};

/// The plugin.
pub(crate) struct NodePorts;

struct Wanted<'a>(&'a [HostPort]);

fn conflict<'a>(wanted: &[HostPort], taken: &'a [HostPort]) -> Option<&'a HostPort> {
    taken.iter().find(|taken| wanted.iter().any(|wanted| wanted.conflicts(taken)))
}

impl Plugin for NodePorts {
    fn name(&self) -> Name {
        Name::NodePorts
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, _: &Cluster) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodGone(gone) => conflict(&pod.ports, &gone.ports).is_some(),
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        if cycle.pod.ports.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Each(Box::new(Wanted(&cycle.pod.ports)))
    }
}

impl Filter for Wanted<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        conflict(self.0, &seat.usage.ports).map(|_| {
            Refusal::not_now(Name::NodePorts, "node(s) didn't have free ports for the requested pod ports")
        })
    }

    fn details(&self, seat: &Seat) -> Vec<String> {
        let taken = conflict(self.0, &seat.usage.ports);
        taken.map(|one| format!("{} {}:{} is taken", one.protocol, one.ip, one.port)).into_iter().collect()
    }
}
