//! Objects that make objects: service accounts, namespaces, garbage, node lifecycle, aggregated roles, quotas,
//! types of policies, claims of devices.
//!
//! Each controller is one task that owns what it has seen, fed by watches and timers; what it decides is
//! in pure functions (`plan.rs`), what it writes goes out as POST, PATCH, DELETE or a subresource.

mod claims;
mod config;
mod events;
mod garbage;
mod namespaces;
mod nodes;
mod policies;
mod quotas;
mod roles;
mod watching;

pub use config::{Config, Controllers, Error};

/// Who is recorded as the manager of the fields written here.
const FIELD_MANAGER: &str = "kube-controller-manager";
