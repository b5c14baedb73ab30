//! CNI: the runtime side, IPAM and the plugins as a library.
//!
//! [`Networks`] is what a container runtime calls: it loads the network configuration, runs the chain of plugins, keeps
//! a journal of every attachment and cleans up whatever happens. [`plugins`] holds our own plugins; the same code runs
//! inside the runtime and behind the `podwire-cni` binary. [`spec`] is the vocabulary of the CNI specification 1.1.0.
//!
//! Synchronous on purpose: a network namespace belongs to a thread, and the plugin binary must start in a millisecond.

pub mod conformance;
pub mod hostile;
pub mod ipam;
pub mod names;
pub mod networks;
pub mod plugins;
pub mod spec;
pub mod tool;
mod traced;

pub use networks::default::{
    DefaultNetwork, open_forwarding, remove_default_network, uplink_mtu, write_default_conflist,
};
pub use networks::{AddResult, Attachment, Error, Networks, Pending, RuntimeConfig};
pub use spec::error::CniError;
