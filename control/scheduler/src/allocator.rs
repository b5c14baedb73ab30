//! Structured allocation: which devices the claims of a pod get on a node. Pure.
//!
//! The steps are files: `slice` reads what drivers publish, `pools` gathers what a node can have of it, `request` reads what claims
//! ask for, `search` tries devices depth first (`try_device` one of them, `constraint`, `counters` and `capacity` what may stand
//! against it), `result` is what is written into the claims. `miss` says what came closest when nothing was found. `taken` is what
//! other claims have, `selectors` the compiled selectors; both live longer than a question.
//!
//! The devices and their order are those of `k8s.io/dynamic-resource-allocation/structured` 0.36 with the features that
//! Kubernetes 1.36 has by default; tests/allocator compares them.
//!
//! What is the same for all nodes is worked out once: slices when they come, [`Wanted`] for a pod, counters for an [`Allocator`],
//! which is made for each attempt to schedule a pod.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

mod capacity;
mod constraint;
mod counters;
mod error;
mod miss;
mod node;
mod pools;
mod request;
mod result;
mod search;
mod selectors;
mod slice;
mod taken;
#[cfg(test)]
mod tests;
mod try_device;

use k8s_openapi::api::resource::v1::AllocationResult;

pub use capacity::Shortage;
pub use constraint::Rule;
pub use error::{At, Error, NotFound, Origin};
pub use miss::{Miss, NearestMiss};
pub use node::Node;
pub use pools::{Fault, Inventory, Pool, Pools};
pub use request::{Classes, Wanted};
pub use search::Bounds;
pub use selectors::{Compiled, Selectors};
pub use slice::{DeviceId, PoolId, Slice};
pub use taken::Taken;

use counters::CountersLeft;
use miss::Misses;
use search::Search;

/// Answers for one state of the cluster's claims, for any number of nodes. Shared between threads.
#[derive(Debug)]
pub struct Allocator<'a> {
    taken: &'a Taken,
    counters: CountersLeft,
}

/// What a search came to.
#[derive(Debug)]
pub struct Allocation {
    /// What each claim gets, in the order of the claims; `None` if they cannot be allocated on this node.
    pub results: Option<Vec<AllocationResult>>,
    /// How many steps the search took.
    pub steps: u64,
}

impl<'a> Allocator<'a> {
    /// An allocator that gives nothing of what is taken.
    pub fn new(taken: &'a Taken) -> Allocator<'a> {
        Allocator { taken, counters: CountersLeft::default() }
    }

    /// Allocates claims on a node, of whose pools `pools` are; `share_id` makes up a name for each share of a device.
    pub fn allocate(
        &self,
        node: &Node<'_>,
        pools: &Pools,
        wanted: &Wanted<'_>,
        bounds: Bounds<'_>,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<Allocation, Error> {
        let mut search = Search::new(node, wanted, &pools.0, self.taken, &self.counters, bounds);
        let done = search.run()?;
        if !done && pools.0.iter().any(|pool| matches!(pool.fault, Some(Fault::Invalid(_)))) {
            return Err(Error::InvalidPools);
        }
        let results = if done { Some(result::results(&search, share_id)?) } else { None };
        Ok(Allocation { results, steps: search.steps() })
    }

    /// What came closest for each request that was tried and not satisfied, if claims cannot be allocated on a node.
    pub fn explain(
        &self,
        node: &Node<'_>,
        pools: &Pools,
        wanted: &Wanted<'_>,
        bounds: Bounds<'_>,
    ) -> Vec<NearestMiss> {
        let mut search = Search::new(node, wanted, &pools.0, self.taken, &self.counters, bounds);
        search.misses = Some(Misses::default());
        if matches!(search.run(), Ok(true)) {
            return Vec::new();
        }
        let misses = search.misses.take().unwrap_or_default().0;
        let wants = wanted.claims.iter().flat_map(|claim| {
            claim.requests.iter().flat_map(|request| &request.alternatives).map(move |want| (claim, want))
        });
        wants
            .filter_map(|(claim, want)| {
                let miss = misses.get(&want.slot)?.clone();
                Some(NearestMiss { claim: claim.name.clone(), request: want.full_name.clone(), miss })
            })
            .collect()
    }
}
