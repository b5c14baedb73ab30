//! What the whole-binary tests in tests/tests share.

pub mod programs;
pub mod suite;
pub mod world;
