//! What the claims of one pod come to: whether they can be used at all, and what they get on a node.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest, ResourceClaim};
use podwire_api::selector::{NodeSelectorTerm, lookup};
use tokio::time::Instant;

use super::extended::{self, Mapping};
use super::readiness::{self, Readiness};
use super::{PlannedClaim, being_allocated, claims_of};
use crate::allocator::{Allocator, Bounds, Error, NearestMiss, Node, Wanted};
use crate::cluster::Cluster;
use crate::cluster::devices::answers::Shape;
use crate::cluster::devices::{Claim, Devices};
use crate::framework::{Filter, Name, Refusal, Score, Seat};
use crate::node::NodeFacts;
use crate::plugins::normalize;
use crate::pod::PodInfo;

/// A claim that has devices cannot be used on the node.
pub(super) const UNAVAILABLE: &str = "resourceclaim not available on the node";
/// The node has not the devices.
pub(super) const CANNOT_ALLOCATE: &str = "cannot allocate all claims";
/// A claim for extended resources is in the way.
const STALE: &str = "cannot schedule extended resource claim";
/// The most alternatives of a request; the first one is worth as much.
const MOST_ALTERNATIVES: usize = 8;

/// A claim of the pod.
struct Wish<'a> {
    claim: &'a Arc<Claim>,
    /// Where it can be used, if it has devices and not all nodes will do.
    nodes: Option<Vec<NodeSelectorTerm>>,
    /// Why its devices cannot be used anywhere.
    failed: Option<String>,
}

/// The claims of a pod, made ready to be asked about nodes.
pub(super) struct Wishes<'a> {
    devices: &'a Devices,
    claims: Vec<Wish<'a>>,
    /// The claims that have no devices yet.
    unallocated: Vec<&'a ResourceClaim>,
    wanted: Option<Wanted<'a>>,
    pod: &'a PodInfo,
    /// What the claims that have no devices yet ask for.
    shape: Option<Shape>,
    /// Whether a class stands for a resource that the pod asks for.
    extended: bool,
    /// A claim for those that an earlier attempt left.
    stale: Option<&'a Arc<Claim>>,
    allocator: Allocator<'a>,
    patience: Duration,
}

fn never(reason: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::never(Name::DynamicResources, reason)
}

fn broken(reason: String) -> Refusal {
    Refusal::broken(Name::DynamicResources, reason)
}

impl<'a> Wishes<'a> {
    /// Reads a pod's claims; an error is why it can run nowhere.
    pub(super) fn new(
        pod: &'a PodInfo,
        cluster: &'a Cluster,
        now: jiff::Timestamp,
        binding_timeout: Duration,
        patience: Duration,
    ) -> Result<Self, Refusal> {
        let devices = &cluster.devices;
        let mut claims = Vec::new();
        let mut unallocated: Vec<&'a ResourceClaim> = Vec::new();
        for claim in claims_of(pod, cluster).map_err(never)? {
            let mut wish = Wish { claim, nodes: None, failed: None };
            match claim.allocation() {
                Some(allocation) => {
                    wish.nodes = nodes(allocation)?;
                    wish.failed = failure(&claim.object, now, binding_timeout)
                        .or_else(|| contested(devices, allocation));
                }
                None if devices.is_pending(claim) => return Err(never(being_allocated(claim))),
                None => {
                    requests(&claim.object).try_for_each(|one| check_classes(devices, claim, one))?;
                    unallocated.push(&claim.object);
                }
            }
            claims.push(wish);
        }
        let wanted = (!unallocated.is_empty())
            .then(|| Wanted::read(&unallocated, &devices.classes, &devices.selectors));
        // Nobody's own but these claims' texts decide what a node answers.
        let text = || serde_json::to_string(&unallocated.iter().map(|one| &one.spec).collect::<Vec<_>>());
        let shape = text().ok().map(|text| devices.answers().shape(&text));
        let extended = extended::concerns(pod, devices);
        let stale = if extended { devices.for_resources(&pod.uid) } else { None };
        let allocator = Allocator::new(&devices.taken);
        Ok(Self { devices, claims, unallocated, wanted, pod, shape, extended, stale, allocator, patience })
    }

    /// How many claims there are.
    pub(super) fn count(&self) -> usize {
        self.claims.len() + usize::from(self.extended)
    }

    /// A claim for extended resources that an earlier attempt left: it must go before the next one.
    pub(super) fn stale(&self) -> Option<&'a Arc<Claim>> {
        self.stale
    }

    /// The claim for extended resources that the pod needs on a node.
    fn special(&self, facts: &NodeFacts) -> Result<Option<(ResourceClaim, Vec<Mapping>)>, Refusal> {
        if !self.extended {
            return Ok(None);
        }
        if self.stale.is_some() {
            return Err(never(STALE));
        }
        let mut missing = BTreeMap::new();
        for (name, _) in extended::wanted(self.pod) {
            let has = facts.allocatable.scalar.get(name);
            match self.devices.class_for(name) {
                Some(class) if has.is_none_or(|has| *has == 0) => drop(missing.insert(name, class)),
                None if has.is_none() => return Err(never("cannot fit resource")),
                _ => {}
            }
        }
        Ok((!missing.is_empty()).then(|| extended::claim(self.pod, &missing)))
    }

    /// Whether one alternative may be better than another.
    pub(super) fn has_preferences(&self) -> bool {
        let all = self.claims.iter().flat_map(|one| requests(&one.claim.object));
        let to_allocate = self.wanted.is_some() || self.extended;
        to_allocate && all.into_iter().any(|one| one.first_available.is_some())
    }

    /// What the claims without devices get on a node, in their order; the one for extended resources comes last.
    fn allocate(
        &self,
        name: &str,
        facts: &NodeFacts,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<Vec<AllocationResult>, Refusal> {
        match self.special(facts)? {
            Some((claim, _)) => {
                let mut all = self.unallocated.clone();
                all.push(&claim);
                let wanted = Wanted::read(&all, &self.devices.classes, &self.devices.selectors);
                self.allocate_all(&wanted, name, facts, share_id)
            }
            None => match &self.wanted {
                Some(wanted) => self.allocate_all(wanted, name, facts, share_id),
                None => Ok(Vec::new()),
            },
        }
    }

    fn allocate_all(
        &self,
        wanted: &Wanted,
        name: &str,
        facts: &NodeFacts,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<Vec<AllocationResult>, Refusal> {
        let node = Node { name, labels: &facts.labels };
        let begun = Instant::now();
        let late = || !self.patience.is_zero() && begun.elapsed() > self.patience;
        let bounds = Bounds { steps: u64::MAX, stop: &late };
        let pools = self.devices.inventory.gather(&node);
        let done = pools.and_then(|pools| self.allocator.allocate(&node, &pools, wanted, bounds, share_id));
        match done {
            Ok(done) => done.results.ok_or_else(|| never(CANNOT_ALLOCATE)),
            Err(error) if error.is_about_this_node() => Err(never(chain(&error))),
            Err(Error::Aborted) => Err(broken(format!("node {name}: timed out trying to allocate devices"))),
            Err(error) => Err(broken(chain(&error))),
        }
    }

    /// The claims whose devices cannot be used on a node.
    pub(super) fn unavailable<'s>(&'s self, seat: &'s Seat) -> impl Iterator<Item = &'a Arc<Claim>> + 's {
        let reaches = |terms: &Vec<NodeSelectorTerm>| {
            terms.iter().any(|term| term.matches(&seat.node.name, lookup(&seat.facts.labels)))
        };
        let all = self.claims.iter();
        all.filter(move |one| !one.nodes.as_ref().is_none_or(reaches) || one.failed.is_some())
            .map(|one| one.claim)
    }

    /// What becomes of the claims if the pod goes to a node.
    pub(super) fn plan(&self, node: &str, facts: &NodeFacts) -> Result<Vec<PlannedClaim>, Refusal> {
        let mut results = self.allocate(node, facts, &mut share_id)?.into_iter();
        let plan = self.claims.iter().map(|one| {
            let given = if one.claim.allocation().is_none() { results.next() } else { None };
            PlannedClaim::new(one.claim, given)
        });
        let mut plan: Vec<_> = plan.collect();
        if let (Some((claim, mappings)), Some(given)) = (self.special(facts)?, results.next()) {
            plan.push(PlannedClaim::special(claim, mappings, given));
        }
        Ok(plan)
    }

    /// What came closest for each request on a node where devices are missing.
    fn misses(&self, seat: &Seat) -> Vec<NearestMiss> {
        let special = self.special(seat.facts).ok().flatten().map(|(claim, _)| claim);
        let mut all = self.unallocated.clone();
        all.extend(&special);
        let wanted = &Wanted::read(&all, &self.devices.classes, &self.devices.selectors);
        let node = Node { name: &seat.node.name, labels: &seat.facts.labels };
        let begun = Instant::now();
        let late = || begun.elapsed() > Duration::from_secs(1);
        let bounds = Bounds { steps: u64::MAX, stop: &late };
        let pools = self.devices.inventory.gather(&node);
        pools.map_or_else(|_| Vec::new(), |pools| self.allocator.explain(&node, &pools, wanted, bounds))
    }

    /// What came closest on any of the nodes.
    pub(super) fn nearest<'s>(&self, seats: impl Iterator<Item = Seat<'s>>) -> Option<NearestMiss> {
        let mut nearest: Option<NearestMiss> = None;
        for miss in seats.flat_map(|seat| self.misses(&seat)) {
            if nearest.as_ref().is_none_or(|known| miss.miss.rank() > known.miss.rank()) {
                nearest = Some(miss);
            }
        }
        nearest
    }
}

impl Wishes<'_> {
    /// What the alternatives are worth that the claims without devices get on a node. What is known is not asked again.
    fn ask(&self, seat: &Seat) -> Result<i64, Refusal> {
        let name = &*seat.node.name;
        let shape = self.shape.filter(|_| !self.extended);
        match shape.and_then(|shape| self.devices.answers().get(name, shape)) {
            Some(Some(worth)) => return Ok(worth),
            Some(None) => return Err(never(CANNOT_ALLOCATE)),
            None => {}
        }
        let answer = self.allocate(name, seat.facts, &mut String::new).map(|results| {
            let claims = self.unallocated.iter().zip(&results);
            claims.map(|(claim, allocation)| worth(claim, allocation)).sum()
        });
        let known = match &answer {
            Ok(worth) => Some(Some(*worth)),
            Err(refusal) => refusal.reasons().eq([CANNOT_ALLOCATE]).then_some(None),
        };
        if let (Some(shape), Some(known)) = (shape, known) {
            self.devices.answers().put(name, shape, known);
        }
        answer
    }
}

impl Filter for Wishes<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        match self.ask(seat) {
            Err(refusal) => Some(refusal),
            Ok(_) => self.unavailable(seat).next().map(|_| never(UNAVAILABLE)),
        }
    }

    fn details(&self, seat: &Seat) -> Vec<String> {
        let unavailable: Vec<_> = self.unavailable(seat).collect();
        let held = self.claims.iter().filter(|one| unavailable.iter().any(|it| Arc::ptr_eq(it, one.claim)));
        let held = held.map(|one| match &one.failed {
            Some(why) => format!("claim {}: {why}", one.claim.reference()),
            None => format!("claim {} has devices of other nodes", one.claim.reference()),
        });
        held.chain(self.misses(seat).iter().map(ToString::to_string)).collect()
    }
}

/// Scores nodes by the alternatives that the requests get there: the earlier the better.
pub(super) struct Ranks<'a>(pub(super) Wishes<'a>);

impl Score for Ranks<'_> {
    fn score(&self, seat: &Seat) -> i64 {
        let Ok(new) = self.0.ask(seat) else { return 0 };
        let worth = |one: &Wish| Some(worth(&one.claim.object, one.claim.allocation()?));
        new + self.0.claims.iter().filter_map(worth).sum::<i64>()
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, false);
    }
}

fn worth(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let results = || allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let mut sum = 0;
    for request in requests(claim) {
        for (at, alternative) in request.first_available.iter().flatten().enumerate() {
            let given = |full: &str| {
                full.split_once('/').is_some_and(|(a, b)| a == request.name && b == alternative.name)
            };
            if results().any(|one| given(&one.request)) {
                sum += i64::try_from(MOST_ALTERNATIVES.saturating_sub(at)).unwrap_or_default();
            }
        }
    }
    sum
}

fn requests(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequest> {
    claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten())
}

/// Where an allocation can be used; `None`: everywhere.
fn nodes(allocation: &AllocationResult) -> Result<Option<Vec<NodeSelectorTerm>>, Refusal> {
    let Some(selector) = &allocation.node_selector else { return Ok(None) };
    let terms: Vec<_> = selector.node_selector_terms.iter().map(NodeSelectorTerm::from).collect();
    match terms.iter().all(NodeSelectorTerm::is_readable) {
        true => Ok(Some(terms)),
        false => Err(broken("failed to parse node selector".to_owned())),
    }
}

/// Why the devices of a claim will not be made ready any more.
fn failure(claim: &ResourceClaim, now: jiff::Timestamp, timeout: Duration) -> Option<String> {
    match readiness::of(claim) {
        Readiness::Ready => None,
        Readiness::Failed(why) => Some(why),
        Readiness::Waiting => {
            let late = readiness::patience(claim, now, timeout).is_none();
            late.then(|| "its devices were not made ready in time".to_owned())
        }
    }
}

/// Why a claim cannot keep what it has: a scheduler that ended may have written its last allocation after the next one looked.
/// Who is bound first keeps the device; the other claim is given back, if nobody else uses it, and allocated anew.
fn contested(devices: &Devices, allocation: &AllocationResult) -> Option<String> {
    let device = devices.taken.contested(allocation)?;
    Some(format!("its device {device} is another claim's as well"))
}

/// Whether the classes that a request names are there.
fn check_classes(devices: &Devices, claim: &Claim, request: &DeviceRequest) -> Result<(), Refusal> {
    let check = |class: &str, name: &str| {
        if class.is_empty() {
            return Err(broken(format!("request {name}: unsupported request type")));
        }
        match devices.classes.contains_key(class) {
            true => Ok(()),
            false => Err(never(format!("request {name}: device class {class} does not exist"))),
        }
    };
    if let Some(exactly) = &request.exactly {
        return check(&exactly.device_class_name, &request.name);
    }
    match request.first_available.as_deref().unwrap_or_default() {
        [] => {
            let (claim, request) = (claim.reference(), &request.name);
            Err(never(format!("resource claim {claim}, request {request}: unknown request type")))
        }
        list => list
            .iter()
            .try_for_each(|one| check(&one.device_class_name, &format!("{}/{}", request.name, one.name))),
    }
}

/// An error with its causes.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// A name for a share of a device: a UUID by chance, as upstream's are.
fn share_id() -> String {
    let chance = |salt: u64| std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), salt);
    let (high, low) = (chance(1), chance(2));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff
    )
}
