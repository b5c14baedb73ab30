//! The NRI network plugin: NetworkPolicy and ClusterNetworkPolicy in place before a pod's first packet.
//!
//! `plan` decides what the kernel's table is to hold, `table` is the kernel's side of it, `keeper` the one thread that owns
//! both, `source` what the API server tells, `hooks` what the runtime tells. A pod's rules are loaded in one transaction
//! inside RunPodSandbox, before its answer; a floor keeps every address of the node's pod range closed that no pod has
//! whose rules stand, and it stays when this process does not.
//!
//! A link whose packets never pass this machine's forward path is governed in the pod's own namespace (`inside`).

pub mod cluster_policy;
mod denials;
pub mod explain;
mod hooks;
mod inside;
mod keeper;
mod links;
mod metrics;
mod notices;
pub mod plan;
mod plugin;
pub mod pod_network;
pub mod policy;
mod source;
pub mod table;

pub use self::hooks::NAME;
pub use self::inside::TABLE as INSIDE_TABLE;
pub use self::plugin::{Config, Error, NetPlugin};
