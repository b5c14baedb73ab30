//! VolumeZone: a volume that is labelled with zones can be used there only.

use crate::cluster::storage::Changed;
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Seat};
use crate::plugins::volume_restrictions::concerns;
use crate::pod::PodInfo;

const KEYS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// The plugin.
pub(crate) struct VolumeZone;

/// A label that a node must have, under its old or its new name, and its possible values.
struct Zones<'a>(Vec<(&'a str, &'a str, Vec<&'a str>)>);

impl Plugin for VolumeZone {
    fn name(&self) -> Name {
        Name::VolumeZone
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::NodeChanged(id, old) => {
                cluster.node(*id).facts.as_ref().is_some_and(|new| new.labels != old.labels)
            }
            Event::StorageChanged(Changed::Claim(key)) => concerns(pod, key),
            Event::StorageChanged(Changed::Volume | Changed::Class) => true,
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let (pod, storage) = (cycle.pod, &cycle.cluster.storage);
        let nowhere = |reason: String| PreFilter::Nowhere(Refusal::never(Name::VolumeZone, reason));
        let mut zones = Vec::new();
        for needed in &pod.volume_claims {
            let Some(claim) = storage.claim(pod, needed) else {
                return nowhere(format!("persistentvolumeclaim \"{}\" not found", needed.name(&pod.name)));
            };
            if claim.volume.is_empty() {
                if claim.class.is_empty() {
                    return nowhere("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
                }
                match storage.class(&claim.class).map(|class| class.waits) {
                    None => {
                        return nowhere(format!("storageclass.storage.k8s.io \"{}\" not found", claim.class));
                    }
                    Some(None) => {
                        return nowhere(format!(
                            "VolumeBindingMode not set for StorageClass \"{}\"",
                            claim.class
                        ));
                    }
                    Some(Some(true)) => continue,
                    Some(Some(false)) => return nowhere("PersistentVolume had no name".to_owned()),
                }
            }
            let Some(volume) = storage.volume(&claim.volume) else {
                return nowhere(format!("persistentvolume \"{}\" not found", claim.volume));
            };
            for (key, stable) in KEYS {
                if let Some(values) = volume.labels.get(key) {
                    zones.push((key, stable, values.split("__").collect()));
                }
            }
        }
        if zones.is_empty() { PreFilter::Skip } else { PreFilter::Each(Box::new(Zones(zones))) }
    }
}

impl Filter for Zones<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        let labels = &seat.facts.labels;
        if !KEYS.iter().any(|(key, _)| labels.contains_key(*key)) {
            return None;
        }
        let suits = |(key, stable, values): &(&str, &str, Vec<&str>)| {
            labels
                .get(*key)
                .or_else(|| labels.get(*stable))
                .is_some_and(|value| values.contains(&value.as_str()))
        };
        (!self.0.iter().all(suits))
            .then(|| Refusal::never(Name::VolumeZone, "node(s) had no available volume zone"))
    }
}
