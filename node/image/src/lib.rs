//! From a registry or archive to unpacked layers and overlay snapshots.
//!
//! [`StoreConfig::open`] gives an [`ImageStore`]; [`ImageStore::import`] and [`ImageStore::pull`] fill
//! it; [`ImageStore::prepare`] gives a container its overlay directories. It mounts nothing: that is
//! the container creator's job.

mod archive;
pub mod build;
mod compress;
mod digest;
mod durable;
mod error;
#[doc(hidden)]
pub mod hostile;
mod index;
mod layer;
mod layout;
pub mod manifest;
mod pipe;
pub mod pull;
mod record;
mod reference;
mod snapshot;
mod store;
mod sweep;
pub mod tar;
pub mod unpack;

pub use archive::ExportFormat;
pub use compress::Limits;
pub use digest::{Digest, Hasher};
pub use error::Error;
pub use pull::{Auth, OnProgress, Progress, PullError, RegistryConfig};
pub use record::Image;
pub use reference::Reference;
pub use snapshot::Snapshot;
pub use store::{ImageStore, StoreConfig, Usage};
pub use unpack::{DevicePolicy, UnpackOptions};
