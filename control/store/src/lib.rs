//! A revisioned key-value store with watch: one trait, an embedded engine, later an etcd engine.
//!
//! The store is opaque: it neither reads nor changes the values it keeps. Every committed write gets
//! the next [`Revision`] of one global sequence; watchers see the writes in exactly that order.

mod embedded;
mod error;
mod store;

#[doc(hidden)]
pub use embedded::hostile;
pub use embedded::{Embedded, EmbeddedConfig};
pub use error::StoreError;
pub use store::{Event, EventKind, Guard, KeyValue, Listing, Op, Outcome, Revision, Store, WatchStream};
