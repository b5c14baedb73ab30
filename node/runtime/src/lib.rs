//! The CRI server: sandboxes and containers as journalled state machines.
//!
//! A request becomes an operation (`service`) that outlives its caller; operations on a sandbox are in `sandbox`, on a
//! container in `container`, bytes of exec, attach and port-forward in `stream`, NRI's call points in `plugins`; `recovery`
//! holds the journal of what was begun and makes node and journal agree after a start. Processes belong to the supervisor
//! (`podwire-container`), not to this process.

mod config;
mod container;
mod context;
mod error;
mod host;
#[doc(hidden)]
pub mod hostile;
mod joins;
mod model;
mod net_devices;
mod plugins;
mod recovery;
mod sandbox;
mod service;
pub mod stream;
mod supervision;

pub use config::{Config, Handler, Runtime, Settings};
pub use container::apparmor::DEFAULT as APPARMOR_PROFILE;
pub use error::Error;
