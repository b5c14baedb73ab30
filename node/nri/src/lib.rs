//! NRI, both sides: the runtime's adaptation and the plugin's stub.
//!
//! The runtime's side ([`Config`], [`Adaptation`], [`Nri`]) accepts and starts plugins, tells them what happens to
//! pods and containers, and merges what they want. Required plugins fail closed: without them no pod starts. The
//! plugin's side is [`stub`], with [`adjust`] and [`pod`] for what plugins often need. [`spec`] turns OCI specs into NRI's words and back.
//!
//! It knows nothing of CRI; the runtime describes itself through [`Host`].

mod adaptation;
pub mod adjust;
mod link;
mod merge;
pub mod mux;
pub mod pod;
pub mod spec;
pub mod stub;
mod timeout;

pub use adaptation::{
    Adaptation, Config, Creation, Entry, Error, EventError, Host, Nri, PluginInfo, Toleration, Updating,
};
pub use link::CallError;
pub use merge::Conflict;
pub use podwire_wire::nri as api;

/// The version of the protocol this crate speaks.
pub const NRI_VERSION: &str = "v0.12.5";

/// Keeps the page for plugin writers compiling.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
