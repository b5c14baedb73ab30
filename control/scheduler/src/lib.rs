//! Decides which node runs a pod: queue, filters, scores, bind.
//!
//! `framework` names the points at which plugins take part; each file of `plugins` is one. `cluster` is what decisions
//! depend on, with counts kept up to date so that no decision looks at all pods; `cycle` is one decision, `queue` who is
//! next. All that is pure, over values read once from the objects (`pod`, `node`). `run` owns that state in one task, fed
//! by watches; `report` writes bindings, conditions and events. Event driven: nothing is polled.

pub mod allocator;
mod cluster;
mod config;
#[doc(hidden)]
pub mod cost;
mod cycle;
pub mod explain;
mod framework;
mod gates;
mod lease;
mod node;
mod pace;
mod plugins;
mod pod;
mod profile;
mod queue;
mod report;
mod resources;
mod run;
#[cfg(test)]
mod testing;
mod watches;

pub use config::{Configuration, ConfigurationError, Election};
pub use lease::{Elector, identity};
pub use run::{Config, Scheduler};
