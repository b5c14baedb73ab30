//! The controllers against the real API server, in process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims;
mod garbage;
mod life;
mod policies;
mod quotas;
mod roles;
mod support;
