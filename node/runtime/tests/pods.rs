//! A real CRI daemon with real pods, as root, with busybox as their only program.
//!
//! Each test has a daemon of its own (the example `cri_daemon`, which `cargo test` builds) in a network namespace of its
//! own, and ends by looking for what it may have left behind.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "pods/crash.rs"]
mod crash;
#[path = "pods/features.rs"]
mod features;
#[path = "pods/hostile.rs"]
mod hostile;
#[path = "pods/life.rs"]
mod life;
#[path = "pods/plugins.rs"]
mod plugins;
#[path = "pods/speed.rs"]
mod speed;
#[path = "pods/world.rs"]
mod world;
