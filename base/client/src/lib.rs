//! The client of the Kubernetes API that every participant uses: over a socket, or straight into the API server of this process.
//!
//! Names and meanings are those of the crate `kube`, whose values (parameters, resources, requests) it takes from `kube-core`;
//! docs/adr/0020 says why it is not `kube` itself. An object is always read from text and by one function for each kind
//! (`objects`): a decoder is a hundred kilobytes of code, and each way to read more is another one.
//!
//! It does no caching, and it never writes back an object that it has read into a type.

pub mod api;
mod body;
mod client;
mod credentials;
pub mod discovery;
mod events;
mod exec;
mod kubeconfig;
mod objects;
mod transport;
pub mod watcher;

pub use self::api::Api;
pub use self::body::{Body, BoxError};
pub use self::client::{Client, Error, Result};
pub use self::events::Lines;
pub use self::exec::{Ended, Process};
pub use self::kubeconfig::{Config, ConfigError};
pub use self::objects::{DynamicObject, Meta, Object};
pub use kube_core::{Resource, ResourceExt};
