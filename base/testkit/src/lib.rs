//! Test-only harness: a node of its own in a network namespace of its own, and the scan for what it left behind.
//!
//! Used by `tests/`, `bench/` and `xtask demo`; never by the product.
#![allow(clippy::disallowed_methods, clippy::print_stderr)]

pub mod cgroup_root;
pub mod claims;
pub mod critest;
pub mod eventually;
pub mod images;
pub mod isolate;
pub mod mermaid;
pub mod node;
pub mod operators;
pub mod parts;
pub mod registry;
pub mod residue;
pub mod runtimes;
pub mod small_disk;
pub mod stack;
pub mod upstream;

pub use self::{eventually::eventually, isolate::isolate, node::Node, small_disk::SmallDisk};
