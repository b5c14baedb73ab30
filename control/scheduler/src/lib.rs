//! Decides which node runs a pod: queue, filters, scores, bind.
//!
//! Everything that decides is pure and lives in `cache`, `claims`, `queue`, `filter`, `score`, `cycle`, `preempt`, over values
//! read once from the objects (`pod`, `node`). `run` owns that state in one task, fed by watches; `report`
//! writes bindings, conditions and events. Event driven: nothing is polled.

mod cache;
mod claims;
mod cycle;
mod filter;
mod node;
mod pod;
mod preempt;
mod queue;
mod report;
mod resources;
mod run;
mod score;
#[cfg(test)]
mod testing;

pub use run::{Config, Error, Scheduler};
