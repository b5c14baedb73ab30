//! Every kubectl command that a cluster of one node can answer, by the real kubectl: its words and its exit codes.
#![cfg(feature = "interop")]

#[path = "interop_commands/life.rs"]
mod life;
#[path = "interop_commands/look.rs"]
mod look;
#[path = "interop_commands/nodes.rs"]
mod nodes;
#[path = "interop_commands/streams.rs"]
mod streams;
#[path = "interop_commands/write.rs"]
mod write;

use podwire_tests::world;
