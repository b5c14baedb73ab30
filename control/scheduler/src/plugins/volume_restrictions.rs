//! VolumeRestrictions: disks that one pod at a time may use, and claims that only one pod may use at all.

use crate::cluster::storage::Changed;
use crate::cluster::workloads::Key;
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Seat};
use crate::node::NodeInfo;
use crate::pod::{Disk, PodInfo, VolumeClaim};

const DISK: &str = "node(s) had no available disk";
const EXCLUSIVE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The plugin.
pub(crate) struct VolumeRestrictions;

struct Restrictions<'a> {
    disks: &'a [Disk],
    /// The claims that only one pod may use.
    exclusive: Vec<Key>,
    users: i64,
    delta: i64,
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> Name {
        Name::VolumeRestrictions
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, _: &Cluster) -> bool {
        let shares = |other: &PodInfo| {
            let same = |one: &VolumeClaim| {
                other.volume_claims.iter().any(|two| two.name(&other.name) == one.name(&pod.name))
            };
            pod.disks.iter().any(|one| other.disks.iter().any(|two| one.id == two.id))
                || other.namespace == pod.namespace && pod.volume_claims.iter().any(same)
        };
        match event {
            Event::NodeAdded(_) => true,
            Event::PodGone(other) => shares(other),
            Event::StorageChanged(Changed::Claim(key)) => concerns(pod, key),
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let (pod, storage) = (cycle.pod, &cycle.cluster.storage);
        let mut exclusive = Vec::new();
        for needed in pod.volume_claims.iter().filter(|one| matches!(one, VolumeClaim::Named(_))) {
            let name = needed.name(&pod.name);
            let Some(claim) = storage.claim(pod, needed) else {
                let reason = format!("persistentvolumeclaim \"{name}\" not found");
                return PreFilter::Nowhere(Refusal::never(Name::VolumeRestrictions, reason));
            };
            if claim.is_exclusive() {
                exclusive.push((pod.namespace.clone(), name));
            }
        }
        let users = exclusive.iter().filter(|key| storage.users(key) > 0).count();
        if pod.disks.is_empty() && users == 0 {
            return PreFilter::Skip;
        }
        let users = i64::try_from(users).unwrap_or(i64::MAX);
        PreFilter::Each(Box::new(Restrictions { disks: &pod.disks, exclusive, users, delta: 0 }))
    }
}

/// Whether a claim is one of the pod's.
pub(crate) fn concerns(pod: &PodInfo, key: &Key) -> bool {
    pod.namespace == key.0 && pod.volume_claims.iter().any(|one| one.name(&pod.name) == key.1)
}

impl Filter for Restrictions<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        let conflict = |disk: &Disk| seat.usage.disks.iter().any(|other| disk.conflicts(other));
        if self.disks.iter().any(conflict) {
            return Some(Refusal::not_now(Name::VolumeRestrictions, DISK));
        }
        (self.users + self.delta > 0).then(|| Refusal::not_now(Name::VolumeRestrictions, EXCLUSIVE))
    }

    fn suppose(&mut self, pod: &PodInfo, _: &NodeInfo, sign: i64) {
        // As upstream has it, the namespace is not looked at here.
        let same = |one: &VolumeClaim| matches!(one, VolumeClaim::Named(name) if self.exclusive.iter().any(|(_, other)| other == name));
        let shared = pod.volume_claims.iter().filter(|one| same(one)).count();
        self.delta += sign * i64::try_from(shared).unwrap_or(0);
    }

    fn forget(&mut self) {
        self.delta = 0;
    }
}
