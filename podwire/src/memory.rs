//! Gives memory back when a burst is over: an allocator keeps what it was given, and a node that was busy once would look
//! busy for ever.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How often it is looked whether there was a burst and whether it is over.
const LOOK: Duration = Duration::from_secs(2);
/// Less work than this between two looks is quiet.
const QUIET: Duration = Duration::from_millis(150);

/// At which quiet looks after a busy one the heap is trimmed: the store forgets a burst's history some seconds after it.
const TRIMS: [u32; 2] = [1, 3];

/// Whether the heap is to be trimmed, from the processor time used between two looks.
struct Burst {
    /// Quiet looks since the last busy one.
    quiet: u32,
}

impl Burst {
    fn is_over(&mut self, used: Duration) -> bool {
        self.quiet = if used > QUIET { 0 } else { self.quiet.saturating_add(1) };
        TRIMS.contains(&self.quiet)
    }
}

fn used() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

/// Watches this process until `shutdown`.
pub async fn give_back_after_bursts(shutdown: CancellationToken) {
    let (mut burst, mut before) = (Burst { quiet: 0 }, used());
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let now = used();
        if burst.is_over(now.saturating_sub(before)) {
            // Ignored: whether there was something to give back changes nothing.
            tokio::task::spawn_blocking(podwire_linux::memory::give_back).await.ok();
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_after_each_burst_and_not_while_it_is_quiet() {
        let (busy, idle) = (Duration::from_secs(1), Duration::from_millis(5));
        let mut burst = Burst { quiet: 100 };
        let looks = [idle, busy, busy, idle, idle, idle, idle, idle, busy, idle];
        let trims = looks.map(|used| burst.is_over(used));
        assert_eq!(trims, [false, false, false, true, false, true, false, false, false, true]);
    }
}
