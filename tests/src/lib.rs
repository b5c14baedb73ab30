//! What the whole-binary tests in tests/tests share.

pub mod dra;
pub mod drill;
pub mod programs;
pub mod suite;
pub mod world;
