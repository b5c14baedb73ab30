//! Addresses: which ones a pool has, which are taken and by whom; and the call of an IPAM plugin by an interface plugin.

pub mod boot;
pub mod delegate;
pub mod free_addresses;
pub mod index;
mod lock;
pub mod owners;
pub mod ranges;
pub mod store;

pub use owners::Owner;
pub use ranges::{Range, RangeSet};
pub use store::Store;
