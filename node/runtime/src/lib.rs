//! The CRI server: sandboxes and containers as journalled state machines.
//!
//! A request becomes an operation (`service`, `image_service`) that outlives its caller; operations on a sandbox
//! are in `sandbox`, on a container in `creation` and `container`; `journal` remembers what was begun, `recovery` makes
//! node and journal agree after a start. Processes belong to the supervisor (`podwire-container`), not to this process.

mod apparmor;
mod arrow;
mod backend;
mod cdi;
mod config;
mod container;
mod core;
mod creation;
mod error;
mod events;
mod exec;
mod exits;
mod fdio;
mod foreign;
mod hooks;
mod host;
#[doc(hidden)]
pub mod hostile;
mod image_service;
mod image_volume;
mod info;
mod joins;
mod journal;
mod launch;
mod layered;
mod metrics;
mod model;
mod net_devices;
mod network;
mod plugins;
mod pod_files;
mod port_forward;
mod reaper;
mod records;
mod recovery;
mod sandbox;
mod serve;
mod service;
mod signal;
mod spec;
mod stats;
pub mod stream;
pub mod streaming_backend;
mod sysctls;
mod view;

pub use apparmor::DEFAULT as APPARMOR_PROFILE;
pub use config::{Config, Handler, Runtime};
pub use error::Error;
