//! The plugins, a file each, in upstream's default order.

pub(crate) mod scheduling_gates;

pub(crate) mod node_unschedulable;

pub(crate) mod node_name;

pub(crate) mod taint_toleration;

pub(crate) mod node_affinity;

pub(crate) mod node_ports;

pub(crate) mod node_resources_fit;

pub(crate) mod volume_restrictions;

pub(crate) mod node_volume_limits;

pub(crate) mod volume_binding;

pub(crate) mod volume_zone;

pub(crate) mod pod_topology_spread;

pub(crate) mod inter_pod_affinity;

pub(crate) mod dynamic_resources;

pub(crate) mod default_preemption;

pub(crate) mod node_resources_balanced_allocation;

pub(crate) mod image_locality;

pub(crate) mod default_binder;

use crate::framework::MAX_SCORE;

/// Scales so that the highest raw score becomes 100, or 0 when `reverse`.
pub(crate) fn normalize(scores: &mut [i64], reverse: bool) {
    let highest = scores.iter().copied().max().unwrap_or(0).max(0);
    for score in scores {
        let scaled = if highest == 0 { 0 } else { MAX_SCORE * *score / highest };
        *score = if reverse { MAX_SCORE - scaled } else { scaled };
    }
}
