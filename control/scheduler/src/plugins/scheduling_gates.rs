//! SchedulingGates: a pod with gates is not looked at until they are gone.

use crate::cluster::Cluster;
use crate::framework::{Name, Plugin, Refusal};
use crate::pod::PodInfo;

/// The plugin.
pub(crate) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> Name {
        Name::SchedulingGates
    }

    fn pre_enqueue(&self, pod: &PodInfo, _: &Cluster) -> Option<Refusal> {
        let text = || format!("waiting for scheduling gates: {:?}", pod.gates);
        (!pod.gates.is_empty()).then(|| Refusal::never(Name::SchedulingGates, text()))
    }
}
