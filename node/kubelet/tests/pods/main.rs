//! The kubelet between a real API server and a runtime that does as it is told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod claims;
mod cluster;
mod device_restarts;
mod devices;
mod driver;
mod faults;
mod lifecycle;
mod plugin;
mod pressure;
mod probes;
mod resize;
mod runtime;
mod server;
mod sources;
mod statics;
mod users;
