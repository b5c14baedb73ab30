//! The Kubernetes network driver: network devices as resources, moved into the pod that has the claim and given back unharmed.
//!
//! A participant of four protocols, of which it knows nobody's Rust types: it publishes ResourceSlices and tells of claims at
//! the Kubernetes API, prepares claims for the kubelet over DRA (`door`), and attaches devices when the runtime says over NRI
//! that a sandbox runs (`hooks`). `plan` decides, `keeper` is the one thread that owns what is prepared (`book`), writes it down
//! before anything is touched (`record`) and touches devices (`podwire_netdev`); `inventory` looks at the node, `publisher` and
//! `teller` write to the API server.
//!
//! It fails closed: a claim is written down before the kubelet is answered, a device that cannot be attached whole refuses the
//! sandbox, and what cannot be read of an earlier run keeps the driver from starting.

mod book;
mod cdi;
mod door;
mod driver;
mod figures;
mod filter;
mod health;
mod hooks;
mod inventory;
mod keeper;
mod plan;
mod publications;
mod publisher;
mod record;
mod teller;

pub use self::driver::{Config, Driver, Error, give_all_back};
pub use self::filter::DEFAULT as DEFAULT_FILTER;
pub use self::plan::devices::Offer;

/// The driver's name unless it is told another one: DRANET's.
pub const NAME: &str = "dra.net";
