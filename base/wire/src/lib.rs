//! The gRPC protocols between participants: our own definitions, generated code, unix transport.
//!
//! Definitions are in `proto/` (names and numbers are facts of the wire), generated code in `src/gen/`,
//! committed so that no `protoc` is needed to build; a test regenerates and compares.

pub mod accept;
pub mod unix;

/// The Container Runtime Interface, v1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/cri.rs"]
pub mod cri;

/// Largest message either side of CRI accepts: what the kubelet sets, and containerd serves.
pub const CRI_MESSAGE_LIMIT: usize = 16 * 1024 * 1024;

/// The Node Resource Interface, v1alpha1; its services travel over [`ttrpc`].
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/nri.rs"]
pub mod nri;

pub mod ttrpc;
