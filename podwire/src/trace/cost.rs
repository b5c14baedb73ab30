//! What tracing costs: reports arrows the way participants do and times them.

use std::time::Instant;

/// Nanoseconds that one reported arrow takes from its caller's thread, with a full ring.
#[allow(clippy::disallowed_methods)] // A measurement of the real clock.
pub fn nanos_per_arrow() -> u64 {
    const ROUNDS: u64 = 40_000;
    let mut spent = 0;
    // The first half fills the ring and warms everything up.
    for half in 0..2 {
        let begun = Instant::now();
        for number in 0..ROUNDS {
            let (what, reply) = (format!("CreateContainer {half}"), format!("container {number}"));
            tracing::debug!(
                target: super::TARGET,
                uid = %format_args!("3a1f5c1e-7f2d-4b0c-9a57-{number:012}"),
                pod = %format_args!("default/{}", "a-pod-with-a-name"),
                from = "Kubelet",
                to = "ContainerRuntime",
                what,
                reply,
                micros = number,
                side = "server",
            );
        }
        spent = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
    spent / ROUNDS
}
