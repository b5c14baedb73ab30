//! Shared counters of partitionable devices: what is left of them before anything is tried.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use podwire_api::quantity::Quantity;

use super::pools::Pool;
use super::slice::PoolId;
use super::taken::Taken;

/// What is left of the counters of a pool, by their places; negative if more is taken than there is.
pub(super) type Left = Arc<Vec<Quantity>>;

/// What is left of the counters of each pool: worked out once, for all nodes.
#[derive(Debug, Default)]
pub(super) struct CountersLeft {
    by_pool: Mutex<HashMap<(PoolId, i64), Left>>,
}

impl CountersLeft {
    pub(super) fn of(&self, pool: &Pool, taken: &Taken) -> Left {
        let lock = || self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (pool.id.clone(), pool.generation);
        if let Some(found) = lock().get(&key) {
            return Arc::clone(found);
        }
        let left = Arc::new(left(pool, taken));
        lock().insert(key, Arc::clone(&left));
        left
    }
}

fn left(pool: &Pool, taken: &Taken) -> Vec<Quantity> {
    let mut left = pool.amounts.clone();
    let Some(taken) = taken.of_pool(&pool.id) else { return left };
    let devices = pool.slices.iter().chain(&pool.elsewhere).flat_map(|slice| &slice.devices);
    for device in devices.filter(|device| taken.contains_key(&*device.name)) {
        for (place, amount) in pool.charges(device) {
            left[place] = left[place].minus(&amount);
        }
    }
    left
}
