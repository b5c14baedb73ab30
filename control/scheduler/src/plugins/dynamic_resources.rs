//! DynamicResources: devices by claim. They are chosen with the node, set aside, written into the claims, and then the pod is
//! bound.
//!
//! `wishes` is what one pod's claims come to on a node, `extended` the claim that a pod without one needs for extended resources,
//! `readiness` whether drivers have made ready what was allocated. What other pods have is counted in [`crate::cluster::devices`]. The choice on a node is the same whenever it is asked for the
//! same state, so that nothing of a decision need be kept but the node.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

pub(crate) mod extended;
pub(crate) mod readiness;
mod wishes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

use crate::cluster::devices::{Changed, Claim};
use crate::cluster::workloads::Key;
use crate::cluster::{Cluster, Event};
use crate::cycle::Diagnosis;
use crate::framework::{
    Cycle, Filters, Journey, Name, Plugin, PostFilter, PreFilter, Refusal, Reservation, Score, Seat, Step,
};
use crate::pod::PodInfo;
use crate::report;
use extended::Mapping;
use wishes::{Ranks, Wishes};

/// How many nodes are asked for the nearest miss that is told in the pod's condition.
const NODES_FOR_NEAREST: usize = 8;

/// The plugin.
pub(crate) struct DynamicResources {
    /// How long devices may be sought for on one node; zero: as long as it takes.
    pub(crate) filter_timeout: Duration,
    /// How long drivers may take to make devices ready.
    pub(crate) binding_timeout: Duration,
}

impl Default for DynamicResources {
    fn default() -> Self {
        Self { filter_timeout: Duration::from_secs(10), binding_timeout: Duration::from_secs(600) }
    }
}

/// A claim of a pod that was given a node.
#[derive(Debug)]
pub(crate) struct PlannedClaim {
    /// As it was.
    pub(crate) claim: Arc<Claim>,
    /// What it is given, unless it had it already.
    pub(crate) allocation: Option<Arc<AllocationResult>>,
    /// The version of the claim in which that is written, once it is.
    pub(crate) written: OnceLock<u64>,
    /// Whether the pod was written among its users.
    pub(crate) reserved: AtomicBool,
    /// It is only thought of, and is made for the pod's extended resources.
    pub(crate) special: Option<Special>,
}

/// A claim for extended resources.
#[derive(Debug)]
pub(crate) struct Special {
    /// Who uses which of its requests.
    pub(crate) mappings: Vec<Mapping>,
    /// Namespace, name and uid of the claim, once it is made.
    pub(crate) made: OnceLock<(Key, String)>,
}

impl PlannedClaim {
    /// What the claim has.
    pub(crate) fn devices(&self) -> Option<&AllocationResult> {
        self.allocation.as_deref().or_else(|| self.claim.allocation())
    }
}

/// What becomes of a pod's claims.
#[derive(Debug)]
pub(crate) struct ClaimPlan {
    pub(crate) claims: Vec<PlannedClaim>,
}

impl ClaimPlan {
    /// Ends the thinking ahead: what was written counts on until it is seen, what was not is free again.
    fn settle(&self, cluster: &mut Cluster) -> Vec<Event> {
        let settled = self.claims.iter().filter_map(|one| {
            let allocation = one.allocation.as_ref()?;
            let made = one.special.as_ref().and_then(|special| special.made.get());
            match (one.written.get(), made) {
                (Some(version), Some((key, _))) => {
                    cluster.devices.written_as(&one.claim, allocation, key, *version)
                }
                (Some(version), None) => cluster.devices.written(&one.claim, allocation, *version),
                (None, _) => cluster.devices.release(&one.claim, allocation),
            }
        });
        settled.map(Event::DevicesChanged).collect()
    }
}

/// The claims of a pod, each once; an error is what is wrong with one of them, in upstream's words.
pub(crate) fn claims_of<'a>(pod: &PodInfo, cluster: &'a Cluster) -> Result<Vec<&'a Arc<Claim>>, String> {
    let mut out: Vec<&Arc<Claim>> = Vec::with_capacity(pod.device_claims.len());
    for entry in &pod.device_claims {
        let made = || pod.made_claims.iter().find(|(name, _)| *name == entry.entry);
        let name = match (&entry.named, entry.generated) {
            (Some(name), _) => name,
            (None, true) => match made() {
                None => return Err(format!("pod {:?}: ResourceClaim not created yet", pod.reference())),
                // None was needed.
                Some((_, None)) => continue,
                Some((_, Some(name))) => name,
            },
            (None, false) => {
                let (pod, entry) = (pod.reference(), &entry.entry);
                return Err(format!(
                    "pod {pod:?}, spec.resourceClaim {entry:?}: none of the supported fields are set"
                ));
            }
        };
        let key = (pod.namespace.clone(), name.clone());
        let missing = || format!("could not find ResourceClaim \"{}/{}\"", pod.namespace, name);
        let claim = cluster.devices.claim(&key).ok_or_else(missing)?;
        if claim.is_deleting() {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        if entry.named.is_none() && !claim.is_of(&pod.uid) {
            let (claim, pod) = (claim.reference(), pod.reference());
            return Err(format!("ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)"));
        }
        if !out.iter().any(|other| other.key == claim.key) {
            out.push(claim);
        }
    }
    Ok(out)
}

/// Whether a pod has anything to do with claims.
fn asks(pod: &PodInfo, cluster: &Cluster) -> bool {
    !pod.device_claims.is_empty() || extended::concerns(pod, &cluster.devices)
}

/// The names of the claims that a pod waits for, as far as they are known.
pub(crate) fn claim_names(pod: &PodInfo) -> impl Iterator<Item = &str> {
    let made = |entry: &str| pod.made_claims.iter().find(|(name, _)| name == entry)?.1.as_deref();
    pod.device_claims.iter().filter_map(move |one| one.named.as_deref().or_else(|| made(&one.entry)))
}

impl DynamicResources {
    fn wishes<'a>(&self, pod: &'a PodInfo, cluster: &'a Cluster) -> Result<Wishes<'a>, Refusal> {
        let now = jiff::Timestamp::now();
        Wishes::new(pod, cluster, now, self.binding_timeout, self.filter_timeout)
    }

    /// A claim that nobody else uses and that keeps the pod from a node.
    fn in_the_way(
        &self,
        cycle: Cycle,
        wishes: &Wishes,
        diagnosis: &Diagnosis,
        dice: u64,
    ) -> Option<Arc<Claim>> {
        let refused = refused_seats(cycle, diagnosis, wishes::UNAVAILABLE);
        let mut all: Vec<&Arc<Claim>> = Vec::new();
        for seat in refused {
            for claim in wishes.unavailable(&seat) {
                if !all.iter().any(|other| Arc::ptr_eq(other, claim)) {
                    all.push(claim);
                }
            }
            if all.len() == wishes.count() {
                break;
            }
        }
        all.retain(|claim| {
            let mut users = claim.users();
            users.next().is_none_or(|first| first == &*cycle.pod.uid) && users.next().is_none()
        });
        let at = usize::try_from(dice % (all.len().max(1) as u64)).unwrap_or(0);
        all.get(at).map(|claim| Arc::clone(claim))
    }
}

/// The nodes that this plugin refused for a reason.
fn refused_seats<'a>(
    cycle: Cycle<'a>,
    diagnosis: &'a Diagnosis,
    reason: &'static str,
) -> impl Iterator<Item = Seat<'a>> + use<'a> {
    let refused = move |seat: &Seat| {
        let refusal = diagnosis.refusal(seat.node.id);
        refusal
            .is_some_and(|one| one.plugin == Name::DynamicResources && one.reasons().any(|it| it == reason))
    };
    cycle.cluster.nodes().filter_map(Seat::new).filter(refused)
}

impl Plugin for DynamicResources {
    fn name(&self) -> Name {
        Name::DynamicResources
    }

    fn pre_enqueue(&self, pod: &PodInfo, cluster: &Cluster) -> Option<Refusal> {
        claims_of(pod, cluster).err().map(|reason| Refusal::never(Name::DynamicResources, reason))
    }

    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::NodeChanged(id, old) => {
                let new = cluster.node(*id).facts.as_ref();
                new.is_some_and(|new| new.labels != old.labels || new.allocatable != old.allocatable)
            }
            Event::DevicesChanged(Changed::Class { .. } | Changed::Slice) => true,
            Event::DevicesChanged(Changed::Claim { key, matters, freed }) => {
                let own = || *matters && key.0 == pod.namespace && claim_names(pod).any(|name| name == key.1);
                (*freed || own()) && claims_of(pod, cluster).is_ok()
            }
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        if !asks(cycle.pod, cycle.cluster) {
            return PreFilter::Skip;
        }
        match self.wishes(cycle.pod, cycle.cluster) {
            Ok(wishes) if wishes.count() == 0 => PreFilter::Skip,
            Ok(wishes) => PreFilter::Each(Box::new(wishes)),
            Err(refusal) => PreFilter::Nowhere(refusal),
        }
    }

    fn post_filter(&self, cycle: Cycle, _: &mut Filters, diagnosis: &Diagnosis, dice: u64) -> PostFilter {
        let unhelped =
            |text: &str| PostFilter::Unhelped { text: text.to_owned(), clear: false, deallocate: None };
        if !asks(cycle.pod, cycle.cluster) {
            return unhelped("no new claims to deallocate");
        }
        let wishes = match self.wishes(cycle.pod, cycle.cluster) {
            Ok(wishes) if wishes.count() > 0 && diagnosis.everywhere.is_none() => wishes,
            _ => return unhelped("no new claims to deallocate"),
        };
        if let Some(claim) = self.in_the_way(cycle, &wishes, diagnosis, dice) {
            let text = "deallocation of ResourceClaim completed".to_owned();
            return PostFilter::Unhelped { text, clear: false, deallocate: Some(claim) };
        }
        if let Some(claim) = wishes.stale() {
            let text = "deletion of ResourceClaim completed".to_owned();
            return PostFilter::Unhelped { text, clear: false, deallocate: Some(Arc::clone(claim)) };
        }
        let seats = refused_seats(cycle, diagnosis, wishes::CANNOT_ALLOCATE).take(NODES_FOR_NEAREST);
        match wishes.nearest(seats) {
            Some(miss) => unhelped(&format!("still not schedulable (nearest miss: {miss})")),
            None => unhelped("still not schedulable"),
        }
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, _: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        if cycle.pod.device_claims.is_empty() {
            return None;
        }
        let wishes = self.wishes(cycle.pod, cycle.cluster).ok()?;
        wishes.has_preferences().then(|| Box::new(Ranks(wishes)) as Box<dyn Score>)
    }

    fn reserve(
        &self,
        cluster: &mut Cluster,
        pod: &PodInfo,
        node: &str,
        out: &mut Reservation,
    ) -> Result<(), Refusal> {
        if !asks(pod, cluster) {
            return Ok(());
        }
        let never = |reason: String| Refusal::never(Name::DynamicResources, reason);
        let facts = cluster.named(node).and_then(|node| node.facts.as_ref());
        let facts = facts.ok_or_else(|| never(format!("node {node} is gone")))?;
        let plan = Arc::new(ClaimPlan { claims: self.wishes(pod, cluster)?.plan(node, facts)? });
        // What is set aside now is given back by `unreserve`, whatever comes next.
        out.claims = Some(Arc::clone(&plan));
        for one in &plan.claims {
            if let Some(allocation) = &one.allocation
                && !cluster.devices.reserve(&one.claim, allocation)
            {
                return Err(never(being_allocated(&one.claim)));
            }
        }
        if plan.claims.iter().filter_map(PlannedClaim::devices).any(readiness::is_waited_for) {
            let text = format!("waiting for binding conditions for device on node {node}");
            out.news = Some(("BindingConditionsPending", text));
        }
        Ok(())
    }

    fn unreserve(&self, cluster: &mut Cluster, _: &PodInfo, reservation: &Reservation) -> Vec<Event> {
        reservation.claims.iter().flat_map(|plan| plan.settle(cluster)).collect()
    }

    fn pre_bind(&self, journey: &Journey) -> Option<Step> {
        let plan = Arc::clone(journey.reservation.claims.as_ref()?);
        let (journey, timeout) = (journey.clone(), self.binding_timeout);
        Some(Box::pin(async move { report::claims::write(&journey, &plan, timeout).await }))
    }

    fn undo(&self, journey: &Journey) -> Option<BoxFuture<'static, ()>> {
        let plan = Arc::clone(journey.reservation.claims.as_ref()?);
        let journey = journey.clone();
        Some(Box::pin(async move { report::claims::unreserve(&journey, &plan).await }))
    }

    fn post_bind(&self, cluster: &mut Cluster, _: &PodInfo, reservation: &Reservation) -> Vec<Event> {
        reservation.claims.iter().flat_map(|plan| plan.settle(cluster)).collect()
    }
}

fn being_allocated(claim: &Claim) -> String {
    format!("resource claim {} is in the process of being allocated", claim.reference())
}

impl PlannedClaim {
    /// A claim that is given something, or has it already.
    fn new(claim: &Arc<Claim>, allocation: Option<AllocationResult>) -> Self {
        let allocation = allocation.map(Arc::new);
        let reserved = AtomicBool::new(false);
        Self { claim: Arc::clone(claim), allocation, written: OnceLock::new(), reserved, special: None }
    }

    /// A claim that is to be made.
    fn special(object: ResourceClaim, mappings: Vec<Mapping>, allocation: AllocationResult) -> Self {
        let special = Some(Special { mappings, made: OnceLock::new() });
        Self { special, ..Self::new(&Arc::new(Claim::new(object)), Some(allocation)) }
    }

    /// Whether the pod is, or may be, among the users of the claim in the API.
    pub(crate) fn is_used_by(&self, pod: &str) -> bool {
        self.reserved.load(Ordering::Relaxed) || self.claim.is_reserved_for(pod)
    }
}
