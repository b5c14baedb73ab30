//! Addresses: which ones a pool has, which are taken and by whom; and the call of an IPAM plugin by an interface plugin.

pub mod delegate;
pub mod index;
pub mod ranges;
pub mod store;

pub use ranges::{Range, RangeSet};
pub use store::{Owner, Store};
