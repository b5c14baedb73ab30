//! What containers write into their logs and answer to probes, read with any contents, for fuzzing and for tests.

use crate::{probes, server};

/// What a client is told of a log that comes in these pieces, with at most `limit` bytes of it. Must never panic.
pub fn log(pieces: &[&[u8]], timestamps: bool, limit: Option<u64>) -> Vec<u8> {
    server::picked(pieces, timestamps, limit)
}

/// The status in the body of a health check's answer; 0 is unknown, 1 is good. Must never panic.
pub fn health(body: &[u8]) -> i32 {
    probes::health_status(body)
}
