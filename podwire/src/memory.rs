//! The allocator, and how a burst's memory goes back to the kernel.
//!
//! A burst of pods leaves a few thousand small things behind (events, the history of watches) among what it needed for a
//! moment. jemalloc with one arena and small caches per thread puts them close together, and a thread of its own gives the
//! rest back after half a second; see ADR 6 for what was measured. Its settings are those of `.cargo/config.toml`.
//! Without the feature `jemalloc`, as in the demo, it is the system's allocator.

/// Lets jemalloc's own thread give memory back. Not for the supervisor, which has to stay single-threaded, nor for verbs
/// that end at once.
pub fn give_back_after_bursts() {
    #[cfg(feature = "jemalloc")]
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(%error, "memory of a burst is given back late: jemalloc has no thread for it");
    }
}

#[cfg(feature = "jemalloc")]
#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn memory_of_a_burst_is_given_back_although_some_of_it_is_kept() {
        assert_eq!(
            tikv_jemalloc_ctl::opt::narenas::read().unwrap(),
            1,
            "the settings of .cargo/config.toml were not built in"
        );
        super::give_back_after_bursts();
        let before = resident();
        let mut burst: Vec<Vec<u8>> =
            (0..100_000_usize).map(|number| vec![1; 200 + number % 2_000]).collect();
        let most = resident();
        assert!(most > before + (80 << 20), "{before} {most}");
        // Every hundredth piece outlives the burst.
        let mut number = 0;
        burst.retain(|_| {
            number += 1;
            number % 100 == 0
        });
        burst.shrink_to_fit();
        let until = Instant::now() + Duration::from_secs(20);
        while resident() > before + (40 << 20) {
            assert!(Instant::now() < until, "{before} before, {most} at most, {} now", resident());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(burst.len(), 1000);
    }
}
