//! NodeVolumeLimits: a node can attach only so many volumes of a driver.
//!
//! Volumes that were written inline for drivers of the past are not counted, nor attachments without a pod.

use std::collections::{HashMap, HashSet};

use crate::cluster::storage::{Changed, Storage};
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Name, Plugin, PreFilter, Refusal, Seat};
use crate::node::NodeInfo;
use crate::plugins::volume_restrictions::concerns;
use crate::pod::PodInfo;

/// The plugin.
pub(crate) struct NodeVolumeLimits;

/// What is attached: its driver, and its handle or the claim that it will be made for.
type Attached = (String, String);

struct Limits<'a> {
    storage: &'a Storage,
    wanted: HashSet<Attached>,
    /// Pods that are thought away (or present) on the node that is asked about.
    away: Vec<(String, HashSet<Attached>, i64)>,
}

/// What a pod attaches.
fn attached(pod: &PodInfo, storage: &Storage) -> HashSet<Attached> {
    let of = |needed| {
        let claim = storage.claim(pod, needed)?;
        if let Some(volume) = storage.volume(&claim.volume) {
            return volume.csi.clone();
        }
        let class = storage.class(&claim.class)?;
        let handle = format!("{}/{}", claim.namespace, claim.name);
        class.provisions().then(|| (class.provisioner.clone(), handle))
    };
    pod.volume_claims.iter().filter_map(of).collect()
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> Name {
        Name::NodeVolumeLimits
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, _: &Cluster) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodGone(other) => !other.volume_claims.is_empty(),
            Event::StorageChanged(Changed::Claim(key)) => concerns(pod, key),
            Event::StorageChanged(Changed::Capacity) => true,
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let storage = &cycle.cluster.storage;
        let wanted = attached(cycle.pod, storage);
        if wanted.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Each(Box::new(Limits { storage, wanted, away: Vec::new() }))
    }
}

impl Filter for Limits<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        let limits = self.storage.limits(&seat.node.name)?;
        let thought = |uid: &str| {
            self.away.iter().filter(|(other, ..)| other == uid).map(|(.., sign)| sign).sum::<i64>()
        };
        let here =
            seat.node.pods.iter().filter(|pod| !pod.volume_claims.is_empty() && thought(&pod.uid) >= 0);
        let mut there: HashSet<Attached> = here.flat_map(|pod| attached(pod, self.storage)).collect();
        let present = self.away.iter().filter(|(uid, ..)| thought(uid) > 0);
        there.extend(present.flat_map(|(_, volumes, _)| volumes.iter().cloned()));
        let mut counts: HashMap<&str, i64> = HashMap::new();
        there.iter().for_each(|(driver, _)| *counts.entry(driver).or_default() += 1);
        let mut new: HashMap<&str, i64> = HashMap::new();
        for (driver, _) in self.wanted.difference(&there) {
            *new.entry(driver).or_default() += 1;
        }
        let too_many = new.iter().any(|(driver, count)| {
            let limit = limits.get(*driver);
            limit.is_some_and(|limit| counts.get(driver).copied().unwrap_or_default() + count > *limit)
        });
        too_many.then(|| Refusal::not_now(Name::NodeVolumeLimits, "node(s) exceed max volume count"))
    }

    fn suppose(&mut self, pod: &PodInfo, _: &NodeInfo, sign: i64) {
        if !pod.volume_claims.is_empty() {
            self.away.push((pod.uid.to_string(), attached(pod, self.storage), sign));
        }
    }

    fn forget(&mut self) {
        self.away.clear();
    }
}
