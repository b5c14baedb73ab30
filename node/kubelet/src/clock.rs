//! The wall clock at the rim; everything inside takes time as an argument.

use jiff::Timestamp;
use tokio::time::Instant;

/// Now.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Now in whole seconds, as Kubernetes writes times.
pub(crate) fn now_seconds() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default()
}

/// The instant at which the wall clock will show `at`.
pub(crate) fn instant(at: Timestamp) -> Instant {
    let left = at.duration_since(now());
    Instant::now() + std::time::Duration::try_from(left).unwrap_or_default()
}
