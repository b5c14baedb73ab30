//! A device plugin of the kubelet: device files, network interfaces, virtual functions and RDMA devices as resources of a node.
//!
//! # Layout
//! - `config` what was asked for: pools of devices, read from YAML;
//! - `tree` `/dev` and `/sys` below a root that tests choose; `inventory` what is there;
//! - `plan` what each pool offers, whom it prefers and what a container is given, without any I/O;
//! - `events` the kernel's word that something changed; `plugin` the life of the plugin; `endpoint` the socket of one resource.
//!
//! It knows no kubelet: they meet at v1beta1 of the device plugin API, so that it serves upstream's as it serves ours.
//! <https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/>

mod config;
mod endpoint;
mod events;
mod glob;
mod inventory;
mod plan;
mod plugin;
mod report;
mod tree;

pub use config::{Config, ConfigError};
pub use plugin::{Plugin, Settings, StartError};
pub use report::{Checked, check};
