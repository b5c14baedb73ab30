//! Step 3: the search, depth first, claim by claim, request by request, device by device.
//!
//! The first solution is taken; alternatives of a request are tried in their order, devices in that of their pools. Within a
//! request the search goes on behind the device it chose last: combinations, not permutations. Whatever is tried is undone in
//! reverse order.

use std::sync::Arc;

use podwire_api::quantity::Quantity;

use super::capacity;
use super::constraint::{Constraint, Spot};
use super::counters::{CountersLeft, Left};
use super::error::Error;
use super::miss::{Miss, Misses};
use super::node::Node;
use super::pools::{Fault, Pool};
use super::request::{Mode, Request, Want, Wanted, WantedClaim};
use super::slice::{Device, DeviceId};
use super::taken::{Taken, TakenDevice, TakenPool};
use super::try_device::Given;

/// The most devices of a claim.
pub(super) const MOST_DEVICES: i64 = 32;
/// After so many steps it is asked whether to go on.
const STEPS_BETWEEN_QUESTIONS: u64 = 256;

/// How long a search may take.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// The most steps.
    pub steps: u64,
    /// Asked now and then whether to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// The place of a device: pool, and device in it.
pub(super) type Place = (usize, usize);

/// Which device of which request is sought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Goal {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    /// How many devices of the request were chosen before.
    pub(super) device: usize,
}

/// Why a search turns back further than to the device before.
pub(super) enum Stop {
    /// With what was chosen so far it would be more devices than a claim can have.
    TooMany,
    /// There is no point in searching.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// What an alternative needs.
#[derive(Debug, Default)]
struct Need {
    count: i64,
    /// The devices, if it is all of them.
    all: Vec<Place>,
}

/// What is known of a device before anything is tried, and what was found out since.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Unknown,
    Yes,
    No,
}

pub(super) struct Search<'s> {
    pub(super) node: &'s Node<'s>,
    pub(super) wanted: &'s Wanted<'s>,
    pub(super) pools: &'s [Arc<Pool>],
    pub(super) taken: &'s Taken,
    taken_pools: Vec<Option<&'s TakenPool>>,
    /// The number of the first device of each pool, if all are counted.
    offsets: Vec<usize>,
    devices: usize,
    /// For each alternative, which devices its selectors mean.
    selectable: Vec<Vec<Known>>,
    needs: Vec<Need>,
    pub(super) constraints: Vec<Vec<Constraint<'s>>>,
    /// The devices that were chosen, each with its claim, but for those that can be shared.
    pub(super) chosen: Vec<(Place, usize)>,
    /// The shares that were chosen.
    pub(super) shares: Vec<(Place, capacity::Amounts)>,
    counters_left: &'s CountersLeft,
    left: Vec<Option<Left>>,
    /// What was chosen takes of the counters of each pool.
    pub(super) charged: Vec<Vec<Quantity>>,
    /// What each claim gets.
    pub(super) given: Vec<Vec<Given>>,
    /// Which alternative of each request was taken.
    pub(super) alternatives: Vec<Vec<usize>>,
    bounds: Bounds<'s>,
    steps: u64,
    pub(super) misses: Option<Misses>,
}

impl<'s> Search<'s> {
    pub(super) fn new(
        node: &'s Node<'s>,
        wanted: &'s Wanted<'s>,
        pools: &'s [Arc<Pool>],
        taken: &'s Taken,
        counters_left: &'s CountersLeft,
        bounds: Bounds<'s>,
    ) -> Search<'s> {
        let mut devices = 0;
        let offsets = pools.iter().map(|pool| {
            devices += pool.devices.len();
            devices - pool.devices.len()
        });
        let offsets = offsets.collect();
        let of_claims = |claim: &WantedClaim<'_>| vec![0; claim.requests.len()];
        Search {
            node,
            wanted,
            pools,
            taken,
            taken_pools: pools.iter().map(|pool| taken.of_pool(&pool.id)).collect(),
            offsets,
            devices,
            selectable: vec![Vec::new(); wanted.slots],
            needs: (0..wanted.slots).map(|_| Need::default()).collect(),
            constraints: Vec::with_capacity(wanted.claims.len()),
            chosen: Vec::new(),
            shares: Vec::new(),
            counters_left,
            left: vec![None; pools.len()],
            charged: vec![Vec::new(); pools.len()],
            given: vec![Vec::new(); wanted.claims.len()],
            alternatives: wanted.claims.iter().map(of_claims).collect(),
            bounds,
            steps: 0,
            misses: None,
        }
    }

    /// How many steps were taken.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether everything could be allocated.
    pub(super) fn run(&mut self) -> Result<bool, Error> {
        self.prepare()?;
        match self.next(Goal::default(), false, (0, 0)) {
            Ok(done) => Ok(done),
            Err(Stop::TooMany) => Err(Error::ResultsExceeded),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Works out how many devices are needed, and which ones if it is all.
    fn prepare(&mut self) -> Result<(), Error> {
        let wanted = self.wanted;
        for claim in &wanted.claims {
            let mut least: i64 = 0;
            for request in &claim.requests {
                let mut least_of_request = i64::MAX;
                for want in &request.alternatives {
                    self.needs[want.slot] = self.need(claim, want)?;
                    least_of_request = least_of_request.min(self.needs[want.slot].count);
                }
                least = least.wrapping_add(least_of_request);
            }
            if least > MOST_DEVICES {
                let claim = claim.name.clone();
                return Err(Error::TooMany { claim, count: least, most: MOST_DEVICES });
            }
            self.constraints.push(claim.constraints.clone()?);
        }
        Ok(())
    }

    fn need(&mut self, claim: &WantedClaim<'_>, want: &Want<'_>) -> Result<Need, Error> {
        if let Some(error) = &want.refused {
            return Err(error.clone());
        }
        let mut all = Vec::new();
        if let Mode::Exact(count) = want.mode {
            return Ok(Need { count, all });
        }
        let pools = self.pools;
        for (number, pool) in pools.iter().enumerate() {
            let (at, id) = (|| claim.at(want), || pool.id.clone());
            match &pool.fault {
                Some(Fault::Incomplete) => return Err(Error::PoolUpdated { at: at(), pool: id() }),
                Some(Fault::Invalid(_)) => return Err(Error::PoolInvalid { at: at(), pool: id() }),
                None => {}
            }
            for place in (0..pool.devices.len()).map(|device| (number, device)) {
                if self.is_selectable(claim, want, place)? && self.has_capacity(want, place) {
                    all.push(place);
                }
            }
        }
        Ok(Need { count: i64::try_from(all.len()).unwrap_or(i64::MAX), all })
    }

    /// Goes on to the next device, request or claim; whether all that is left could be allocated. `within` says that an
    /// alternative of the request was settled upon, `from` where the devices begin that are tried.
    fn next(&mut self, mut goal: Goal, within: bool, from: Place) -> Result<bool, Stop> {
        self.steps += 1;
        let ask = self.steps.is_multiple_of(STEPS_BETWEEN_QUESTIONS);
        if self.steps > self.bounds.steps || (ask && (self.bounds.stop)()) {
            return Err(Error::Aborted.into());
        }
        let wanted = self.wanted;
        let Some(claim) = wanted.claims.get(goal.claim) else { return Ok(true) };
        let Some(request) = claim.requests.get(goal.request) else {
            let next = Goal { claim: goal.claim + 1, ..Goal::default() };
            return match self.next(next, false, (0, 0)) {
                // Another choice for this claim may leave room for a smaller alternative of the next one.
                Err(Stop::TooMany) => Ok(false),
                other => other,
            };
        };
        if request.is_list && !within {
            return self.first_available(request, goal);
        }
        let want = &request.alternatives[goal.alternative];
        if want.mode == Mode::All && self.needs[want.slot].all.is_empty() {
            self.note_pools(want);
            return Ok(false);
        }
        let (chosen, count) = (as_count(goal.device), self.needs[want.slot].count);
        if chosen >= count {
            let next = Goal { claim: goal.claim, request: goal.request + 1, ..Goal::default() };
            return self.next(next, false, (0, 0));
        }
        let sum = as_count(self.given[goal.claim].len()).wrapping_add(count).wrapping_sub(chosen);
        if sum > MOST_DEVICES {
            self.note(want, || Miss::TooMany);
            return Err(Stop::TooMany);
        }
        if want.mode == Mode::All {
            let place = self.needs[want.slot].all[goal.device];
            if !self.choose(goal, place, true)? {
                return Ok(false);
            }
            goal.device += 1;
            return self.go_on(goal, place, within, (0, 0));
        }
        self.each_device(goal, within, from)
    }

    /// Tries the alternatives of a request in their order.
    fn first_available(&mut self, request: &Request<'_>, goal: Goal) -> Result<bool, Stop> {
        let mut too_many = true;
        for alternative in 0..request.alternatives.len() {
            match self.next(Goal { alternative, ..goal }, true, (0, 0)) {
                // The next one may need fewer devices.
                Err(Stop::TooMany) => continue,
                Err(other) => return Err(other),
                Ok(true) => {
                    self.alternatives[goal.claim][goal.request] = alternative;
                    return Ok(true);
                }
                Ok(false) => too_many = false,
            }
        }
        if too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// Tries the devices from a place on.
    fn each_device(&mut self, goal: Goal, within: bool, from: Place) -> Result<bool, Stop> {
        let (wanted, pools) = (self.wanted, self.pools);
        let claim = &wanted.claims[goal.claim];
        let want = &claim.requests[goal.request].alternatives[goal.alternative];
        self.note_pools(want);
        for (number, pool) in pools.iter().enumerate().skip(from.0) {
            // Other pools may do.
            if pool.fault.is_some() {
                continue;
            }
            let first = if number == from.0 { from.1 } else { 0 };
            for place in (first..pool.devices.len()).map(|device| (number, device)) {
                if self.is_barred(want, goal.claim, place) {
                    self.note_in_use(claim, want, place);
                    continue;
                }
                if !self.is_selectable(claim, want, place)?
                    || !self.has_capacity(want, place)
                    || !self.choose(goal, place, false)?
                {
                    continue;
                }
                let next = Goal { device: goal.device + 1, ..goal };
                if self.go_on(next, place, within, (place.0, place.1 + 1))? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Goes on with the device that was chosen last, and puts it back if that leads nowhere.
    fn go_on(&mut self, goal: Goal, chosen: Place, within: bool, from: Place) -> Result<bool, Stop> {
        let done = self.next(goal, within, from);
        if !matches!(done, Ok(true)) {
            let claim = &self.wanted.claims[goal.claim];
            let want = &claim.requests[goal.request].alternatives[goal.alternative];
            self.note(want, || Miss::TooFew { found: goal.device });
            self.put_back(goal, chosen);
        }
        done
    }

    /// Whether the selectors of a request and of its class mean a device, and the device is for this node.
    fn is_selectable(
        &mut self,
        claim: &WantedClaim<'_>,
        want: &Want<'_>,
        place: Place,
    ) -> Result<bool, Error> {
        let number = self.offsets[place.0] + place.1;
        let known = &mut self.selectable[want.slot];
        if known.is_empty() {
            known.resize(self.devices, Known::Unknown);
        }
        match known[number] {
            Known::Unknown => {}
            known => return Ok(known == Known::Yes),
        }
        let selectable = self.select(claim, want, place)?;
        self.selectable[want.slot][number] = if selectable { Known::Yes } else { Known::No };
        Ok(selectable)
    }

    fn select(&mut self, claim: &WantedClaim<'_>, want: &Want<'_>, place: Place) -> Result<bool, Error> {
        let (slice, device) = self.device(place);
        for selector in &want.selectors {
            let (origin, index) = (|| claim.origin(want, selector), selector.index);
            let compiled = match &selector.compiled.selector {
                Ok(compiled) => compiled,
                Err(source) => {
                    return Err(Error::Compile { origin: origin(), index, source: Arc::clone(source) });
                }
            };
            let matches = compiled.matches_read(&device.read).matches;
            if !matches.map_err(|source| Error::Evaluate { origin: origin(), index, source })? {
                let text = selector.compiled.text.to_string();
                let device = self.id(place);
                self.note(want, || Miss::Selector { device, origin: origin(), index, text });
                return Ok(false);
            }
        }
        if !slice.per_device {
            return Ok(true);
        }
        let refused = |_| Error::WantedDeviceNodes { device: self.id(place) };
        let here = device.placement.matches(self.node).map_err(refused)?;
        if !here {
            let device = self.id(place);
            self.note(want, || Miss::OtherNode { device });
        }
        Ok(here)
    }

    /// Whether a device has enough left of what a request asks of it.
    pub(super) fn has_capacity(&mut self, want: &Want<'_>, place: Place) -> bool {
        let taken = self.taken_of(place);
        let sum = |name: &str| {
            let before = taken.map_or(Quantity::ZERO, |taken| taken.consumed(name));
            let shares = self.shares.iter().filter(|(other, _)| *other == place);
            let amounts = shares.filter_map(|(_, amounts)| amounts.get(name));
            amounts.fold(before, |sum, amount| sum.plus(&amount.value))
        };
        let checked = capacity::check(self.device(place).1, &want.capacity, sum);
        let Err(shortage) = checked else { return true };
        let device = self.id(place);
        self.note(want, || Miss::Capacity { device, shortage });
        false
    }

    /// Whether a device cannot be had whatever is asked of it.
    pub(super) fn is_barred(&self, want: &Want<'_>, claim: usize, place: Place) -> bool {
        if want.admin_access {
            return self.chosen.contains(&(place, claim));
        }
        self.taken_of(place).is_some_and(TakenDevice::is_exclusive)
            || self.chosen.iter().any(|(other, _)| *other == place)
    }

    pub(super) fn device(&self, place: Place) -> (&'s super::slice::Slice, &'s Device) {
        self.pools[place.0].device(place.1)
    }

    pub(super) fn taken_of(&self, place: Place) -> Option<&'s TakenDevice> {
        let taken = self.taken_pools[place.0]?;
        taken.get(&*self.device(place).1.name)
    }

    /// What is left of the counters of a pool if nothing of what is tried is taken.
    pub(super) fn left(&mut self, pool: usize) -> Left {
        let (pools, counters, taken) = (self.pools, self.counters_left, self.taken);
        Arc::clone(self.left[pool].get_or_insert_with(|| counters.of(&pools[pool], taken)))
    }

    pub(super) fn id(&self, place: Place) -> DeviceId {
        let pool = self.pools[place.0].id.clone();
        DeviceId { pool, device: Arc::clone(&self.device(place).1.name) }
    }

    pub(super) fn spot(&self, goal: Goal) -> Spot<'s> {
        let request = &self.wanted.claims[goal.claim].requests[goal.request];
        let want = &request.alternatives[goal.alternative];
        Spot { request: request.name, subrequest: request.is_list.then_some(want.full_name.as_str()) }
    }

    pub(super) fn note(&mut self, want: &Want<'_>, miss: impl FnOnce() -> Miss) {
        if let Some(misses) = &mut self.misses {
            misses.note(want.slot, miss());
        }
    }

    /// A device that others have is a near miss only if it would have been taken otherwise.
    fn note_in_use(&mut self, claim: &WantedClaim<'_>, want: &Want<'_>, place: Place) {
        if self.misses.is_some() && matches!(self.is_selectable(claim, want, place), Ok(true)) {
            let device = self.id(place);
            self.note(want, || Miss::InUse { device });
        }
    }

    fn note_pools(&mut self, want: &Want<'_>) {
        if self.misses.is_none() {
            return;
        }
        self.note(want, || Miss::NoDevice);
        for pool in self.pools {
            match &pool.fault {
                Some(Fault::Incomplete) => {
                    self.note(want, || Miss::PoolIncomplete { pool: pool.id.clone() });
                }
                Some(Fault::Invalid(reason)) => {
                    let (pool, reason) = (pool.id.clone(), reason.clone());
                    self.note(want, || Miss::PoolInvalid { pool, reason });
                }
                None => {}
            }
        }
    }
}

fn as_count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
