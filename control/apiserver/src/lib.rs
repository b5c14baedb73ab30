//! The Kubernetes API server: HTTP requests to authenticated, admitted, validated transactions.
//!
//! A request passes separate layers: `request` (what is asked), authentication, `authz`, the handler
//! of its verb with `admission`, and the store. One handler path serves all kinds of the registry.
//! The same service answers a TLS socket and clients in this process ([`ApiServer::client`]).
//!
//! Tasks: one follows the store into the watch cache, one turns definitions into kinds, one accepts connections (each connection is a task
//! of its own), one renews the serving certificate. All end with [`ApiServer::run`].

mod admission;
mod advertise;
mod authn;
mod authz;
mod body;
mod cache;
mod callout;
mod codec;
mod coded;
mod config;
mod context;
mod conversion;
mod definitions;
mod encryption;
mod endpoints;
mod extract;
mod handler;
pub mod hostile;
mod identity;
mod impersonate;
mod kinds;
mod limits;
pub mod migrate;
mod negotiate;
pub mod pki;
mod query;
mod request;
mod rules;
mod server;
mod service;
mod status;
mod token;
mod traced;
mod upstream;

pub use advertise::Advertise;
pub use body::{Body, BoxError};
pub use codec::CodecError;
pub use config::{Config, Error, Given};
pub use encryption::{Encrypted, Encryption, EncryptionError};
pub use identity::Identity;
pub use limits::Limits;
pub use server::ApiServer;
pub use service::ApiService;
pub use upstream::Transcoded;

pub(crate) use podwire_trace::chain as error_chain;
