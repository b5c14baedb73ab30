//! VolumeBinding: a pod's volumes must be bound, or bindable where it will run; then they are bound before it is.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::storage::{Changed, Claim, Storage, Volume};
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, Journey, Name, Plugin, PreFilter, Refusal, Reservation, Seat, Step};
use crate::node::NodeFacts;
use crate::plugins::volume_restrictions::concerns;
use crate::pod::PodInfo;
use crate::report;

const CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const NOTHING_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "node(s) did not have enough free storage";
const GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The plugin: how long volumes may take to be bound.
pub(crate) struct VolumeBinding {
    pub(crate) timeout: Duration,
}

impl Default for VolumeBinding {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(600) }
    }
}

/// How a pod's volumes come about on its node.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumePlan {
    /// Volumes that are there, for the claims that get them.
    pub(crate) taken: Vec<(Arc<Claim>, Arc<Volume>)>,
    /// Claims for which volumes are to be made.
    pub(crate) made: Vec<Arc<Claim>>,
}

struct Claims<'a> {
    storage: &'a Storage,
    bound: Vec<&'a Arc<Claim>>,
    waiting: Vec<&'a Arc<Claim>>,
}

impl<'a> Claims<'a> {
    /// Sorts a pod's claims; an error is what is wrong with one of them.
    fn new(pod: &PodInfo, storage: &'a Storage) -> Result<Self, String> {
        let mut out = Self { storage, bound: Vec::new(), waiting: Vec::new() };
        let mut immediate = false;
        for needed in &pod.volume_claims {
            if let Some(complaint) = storage.complaint(pod, needed) {
                return Err(complaint);
            }
        }
        for claim in pod.volume_claims.iter().filter_map(|needed| storage.claim(pod, needed)) {
            if claim.bound {
                out.bound.push(claim);
                continue;
            }
            let waits = storage.class(&claim.class).is_some_and(|class| class.waits == Some(true));
            if waits && claim.volume.is_empty() {
                out.waiting.push(claim);
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        Ok(out)
    }

    /// How the volumes come about on a node, or why they cannot.
    fn plan(&self, node: &str, facts: &NodeFacts) -> Result<VolumePlan, Refusal> {
        let never = |reason| Refusal::never(Name::VolumeBinding, reason);
        let mut refusal: Option<Refusal> = None;
        for claim in &self.bound {
            match self.storage.volume(&claim.volume) {
                None => {
                    refusal = Some(never(GONE));
                    break;
                }
                Some(volume) if !volume.is_reachable_from(facts) => {
                    refusal = Some(never(CONFLICT));
                    break;
                }
                Some(_) => {}
            }
        }
        // Upstream names a conflict first and a volume that is gone last.
        let gone = refusal.take_if(|one| one.reasons().any(|reason| reason == GONE));
        let add = |refusal: Option<Refusal>, reason| {
            Some(refusal.map_or_else(|| never(reason), |one| one.and(reason)))
        };
        let plan = match self.bindable(node, facts) {
            Ok(plan) => Some(plan),
            Err(reason) => {
                refusal = add(refusal, reason);
                None
            }
        };
        if gone.is_some() {
            refusal = add(refusal, GONE);
        }
        match (refusal, plan) {
            (None, Some(plan)) => Ok(plan),
            (Some(refusal), _) => Err(refusal),
            (None, None) => Err(never(NOTHING_TO_BIND)),
        }
    }

    fn bindable(&self, node: &str, facts: &NodeFacts) -> Result<VolumePlan, &'static str> {
        let mut plan = VolumePlan::default();
        let mut searching = Vec::new();
        for claim in &self.waiting {
            match self.storage.selected_node(claim) {
                Some(selected) if selected != node => return Err(NOTHING_TO_BIND),
                Some(_) => plan.made.push(Arc::clone(claim)),
                None => searching.push(*claim),
            }
        }
        searching.sort_by_key(|claim| claim.size.unwrap_or_default());
        let mut chosen = Vec::new();
        for claim in searching {
            match self.storage.matching(claim, facts, &chosen) {
                Some(volume) => {
                    chosen.push(volume.clone());
                    plan.taken.push((Arc::clone(claim), volume.clone()));
                }
                None => plan.made.push(Arc::clone(claim)),
            }
        }
        for claim in &plan.made {
            let Some(class) = self.storage.class(&claim.class).filter(|class| class.provisions()) else {
                return Err(NOTHING_TO_BIND);
            };
            if !class.allows(facts) {
                return Err(NOTHING_TO_BIND);
            }
            if !self.storage.has_room(claim, class, facts) {
                return Err(NO_SPACE);
            }
        }
        Ok(plan)
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> Name {
        Name::VolumeBinding
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::NodeChanged(id, old) => {
                cluster.node(*id).facts.as_ref().is_some_and(|new| new.labels != old.labels)
            }
            Event::StorageChanged(Changed::Claim(key)) => concerns(pod, key),
            Event::StorageChanged(_) => true,
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        if cycle.pod.volume_claims.is_empty() {
            return PreFilter::Skip;
        }
        match Claims::new(cycle.pod, &cycle.cluster.storage) {
            Ok(claims) => PreFilter::Each(Box::new(claims)),
            Err(reason) => PreFilter::Nowhere(Refusal::never(Name::VolumeBinding, reason)),
        }
    }

    fn reserve(
        &self,
        cluster: &mut Cluster,
        pod: &PodInfo,
        node: &str,
        out: &mut Reservation,
    ) -> Result<(), Refusal> {
        if pod.volume_claims.is_empty() {
            return Ok(());
        }
        let never = |reason: String| Refusal::never(Name::VolumeBinding, reason);
        let facts = cluster.named(node).and_then(|node| node.facts.as_ref());
        let facts = facts.ok_or_else(|| never(format!("node {node} is gone")))?;
        let plan = Claims::new(pod, &cluster.storage).map_err(never)?.plan(node, facts)?;
        cluster.storage.assume(&plan.taken, &plan.made, node);
        out.volumes = Some(plan);
        Ok(())
    }

    fn unreserve(&self, cluster: &mut Cluster, _: &PodInfo, reservation: &Reservation) -> Vec<Event> {
        if let Some(plan) = &reservation.volumes {
            cluster.storage.forget(&plan.taken, &plan.made);
        }
        Vec::new()
    }

    fn pre_bind(&self, journey: &Journey) -> Option<Step> {
        let plan = journey.reservation.volumes.clone()?;
        if plan.taken.is_empty() && plan.made.is_empty() {
            return None;
        }
        let (journey, timeout) = (journey.clone(), self.timeout);
        Some(Box::pin(async move { report::bind_volumes(journey, plan, timeout).await }))
    }
}

impl Filter for Claims<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        self.plan(&seat.node.name, seat.facts).err()
    }
}
