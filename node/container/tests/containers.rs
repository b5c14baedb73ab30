//! Real containers, as root, with busybox as their only program.

#![allow(clippy::unwrap_used)]

#[path = "containers/bombs.rs"]
mod bombs;
#[path = "containers/exec.rs"]
mod exec;
#[path = "containers/hostile.rs"]
mod hostile;
#[path = "containers/isolation.rs"]
mod isolation;
#[path = "containers/layers.rs"]
mod layers;
#[path = "containers/lifecycle.rs"]
mod lifecycle;
#[path = "containers/logs.rs"]
mod logs;
#[path = "containers/speed.rs"]
mod speed;
#[path = "containers/takeover.rs"]
mod takeover;
#[path = "containers/userns.rs"]
mod userns;
#[path = "containers/world.rs"]
mod world;
