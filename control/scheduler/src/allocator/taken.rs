//! What other claims have: devices of their own, shares of devices, and what those take.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use podwire_api::quantity::Quantity;

use super::slice::PoolId;

/// The devices that claims have, as their allocations say. It follows each allocation that comes or goes.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    pools: HashMap<PoolId, TakenPool>,
}

/// What is taken of one pool, by the names of devices.
pub(super) type TakenPool = HashMap<String, TakenDevice>;

/// What is taken of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct TakenDevice {
    /// How many claims have it for themselves: more than one if somebody made a mistake.
    exclusive: usize,
    /// How many claims have a share of it.
    shares: usize,
    /// How many shares say what they take, and what that comes to.
    consumers: usize,
    consumed: BTreeMap<String, Quantity>,
}

impl TakenDevice {
    /// Whether a claim has it for itself.
    pub(super) fn is_exclusive(&self) -> bool {
        self.exclusive > 0
    }

    /// Whether claims share it and say what they take of it.
    pub(super) fn is_consumed(&self) -> bool {
        self.consumers > 0
    }

    pub(super) fn consumed(&self, capacity: &str) -> Quantity {
        self.consumed.get(capacity).copied().unwrap_or(Quantity::ZERO)
    }

    fn is_free(&self) -> bool {
        self.exclusive == 0 && self.shares == 0
    }

    /// Whether claims have it that cannot have it together.
    fn is_contested(&self) -> bool {
        self.exclusive > 1 || (self.exclusive > 0 && self.shares > 0)
    }
}

impl Taken {
    /// A claim was allocated. Devices with admin access are nobody's.
    pub fn add(&mut self, allocation: &AllocationResult) {
        for (result, pool) in of(allocation) {
            let device = self.pools.entry(pool).or_default().entry(result.device.clone()).or_default();
            if result.share_id.is_none() {
                device.exclusive += 1;
                continue;
            }
            device.shares += 1;
            device.consumers += usize::from(result.consumed_capacity.is_some());
            for (name, amount) in result.consumed_capacity.iter().flatten() {
                let sum = device.consumed.entry(name.clone()).or_insert(Quantity::ZERO);
                *sum = sum.plus(&amount.into());
            }
        }
    }

    /// A claim gave back what it had been allocated.
    pub fn remove(&mut self, allocation: &AllocationResult) {
        for (result, id) in of(allocation) {
            let Some(pool) = self.pools.get_mut(&id) else { continue };
            let Some(device) = pool.get_mut(&result.device) else { continue };
            if result.share_id.is_none() {
                device.exclusive = device.exclusive.saturating_sub(1);
            } else {
                device.shares = device.shares.saturating_sub(1);
                let consumes = usize::from(result.consumed_capacity.is_some());
                device.consumers = device.consumers.saturating_sub(consumes);
                for (name, amount) in result.consumed_capacity.iter().flatten() {
                    let sum = device.consumed.entry(name.clone()).or_insert(Quantity::ZERO);
                    *sum = sum.minus(&amount.into());
                }
            }
            if device.is_free() {
                pool.remove(&result.device);
            }
            if pool.is_empty() {
                self.pools.remove(&id);
            }
        }
    }

    /// The first device of a claim's allocation that another claim has as well although it is for one alone.
    pub(crate) fn contested<'a>(&self, allocation: &'a AllocationResult) -> Option<&'a str> {
        let device = |result: &DeviceRequestAllocationResult, pool: &PoolId| {
            self.pools.get(pool).and_then(|pool| pool.get(&result.device))
        };
        of(allocation)
            .find(|(result, pool)| device(result, pool).is_some_and(TakenDevice::is_contested))
            .map(|(result, _)| result.device.as_str())
    }

    /// Whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    pub(super) fn of_pool(&self, pool: &PoolId) -> Option<&TakenPool> {
        self.pools.get(pool)
    }
}

fn of(
    allocation: &AllocationResult,
) -> impl Iterator<Item = (&DeviceRequestAllocationResult, PoolId)> + use<'_> {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results
        .filter(|result| result.admin_access != Some(true))
        .map(|result| (result, PoolId::new(&result.driver, &result.pool)))
}
