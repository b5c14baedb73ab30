//! The gRPC protocols between participants: our own definitions, generated code, unix transport.
//!
//! Definitions are in `proto/` (names and numbers are facts of the wire), generated code in `src/gen/`,
//! committed so that no `protoc` is needed to build; a test regenerates and compares.

pub mod accept;
pub mod authority;
pub mod ids;
pub mod tls;
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

/// How plugins of the node register with the kubelet, v1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/plugin_registration.rs"]
pub mod plugin_registration;

/// What the kubelet asks of a DRA driver, v1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/dra_v1.rs"]
pub mod dra_v1;

/// What the kubelet asks of a DRA driver that knows no newer version, v1beta1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/dra_v1beta1.rs"]
pub mod dra_v1beta1;

/// The health of a DRA driver's devices, v1alpha1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/dra_health.rs"]
pub mod dra_health;

/// Device plugins, v1beta1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/device_plugin.rs"]
pub mod device_plugin;

/// PodResources, v1: what the pods of a node hold.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/pod_resources.rs"]
pub mod pod_resources;

/// etcd's API v3, as its clients use it.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/etcd.rs"]
pub mod etcd;

/// gRPC's own health protocol, version 1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::ref_option)]
#[rustfmt::skip]
#[path = "gen/grpc_health.rs"]
pub mod grpc_health;

pub mod ttrpc;
