//! Waiting for something that will become true, with a deadline and the last reason why not.

use std::time::{Duration, Instant};

/// Calls `probe` until it answers Ok or `within` has passed; then fails with the last reason.
pub fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl FnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_millis(2);
    loop {
        let reason = match probe() {
            Ok(value) => return Ok(value),
            Err(reason) => reason,
        };
        if Instant::now() >= deadline {
            anyhow::bail!("{what}: not within {within:?}: {reason}");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
