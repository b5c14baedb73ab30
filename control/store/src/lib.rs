//! A revisioned key-value store with watch: one engine with two doors, the API server's trait and etcd's API v3; and the trait
//! over somebody else's etcd.
//!
//! The store is opaque: it neither reads nor changes the values it keeps. Every committed write gets
//! the next [`Revision`] of one global sequence; watchers see the writes in exactly that order.

pub mod backup;
mod embedded;
mod engine;
mod error;
mod etcd;
#[doc(hidden)]
pub mod hostile;
mod remote;
mod store;

pub use embedded::{Embedded, EmbeddedConfig};
pub use error::StoreError;
pub use etcd::{AutoCompaction, Door, ETCD_VERSION, Etcd, EtcdConfig, TlsError, TlsFiles, self_signed};
pub use remote::{ClientTls, Remote, RemoteConfig};
pub use store::{
    Event, EventKind, Guard, KeyValue, Listing, News, Op, Outcome, Revision, Store, WatchStream,
};
