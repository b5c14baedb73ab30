//! How long decisions took: a count for each of a few hundred spans, of which neighbours differ by an eighth. Pure.

use std::time::Duration;

/// Spans up to 16 microseconds have a count each; above, eight share an octave.
const EXACT: usize = 16;
const PER_OCTAVE: usize = 8;
/// The last one ends beyond twelve days.
const SPANS: usize = EXACT + 36 * PER_OCTAVE;

/// The counts.
#[derive(Debug)]
pub(crate) struct Pace {
    counts: Vec<u64>,
    all: u64,
    longest: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { counts: vec![0; SPANS], all: 0, longest: 0 }
    }
}

fn span_of(micros: u64) -> usize {
    let exact = usize::try_from(micros).unwrap_or(usize::MAX);
    if exact < EXACT {
        return exact;
    }
    let octave = usize::try_from(micros.ilog2()).unwrap_or(0);
    let within = usize::try_from(micros >> (octave - 3)).unwrap_or(0) % PER_OCTAVE;
    (EXACT + (octave - 4) * PER_OCTAVE + within).min(SPANS - 1)
}

/// The longest time that is counted there.
fn end_of(span: usize) -> u64 {
    let Some(above) = span.checked_sub(EXACT) else { return span as u64 };
    let (octave, within) = (above / PER_OCTAVE + 4, above % PER_OCTAVE);
    ((PER_OCTAVE + within + 1) as u64) << (octave - 3)
}

impl Pace {
    /// Counts a decision.
    pub(crate) fn took(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[span_of(micros)] += 1;
        self.all += 1;
        self.longest = self.longest.max(micros);
    }

    /// How many were counted.
    pub(crate) fn decisions(&self) -> u64 {
        self.all
    }

    /// Microseconds in which so many percent were done, an eighth too much at most.
    pub(crate) fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.all * percent).div_ceil(100);
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        self.counts.iter().position(reached).map_or(0, |span| end_of(span).min(self.longest))
    }

    /// Microseconds of the longest.
    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_near_the_truth_and_never_below_it() {
        let mut pace = Pace::default();
        for micros in 1..=100_000 {
            pace.took(Duration::from_micros(micros));
        }
        for (percent, truth) in [(1, 1_000), (50, 50_000), (99, 99_000), (100, 100_000)] {
            let told = pace.percentile(percent);
            assert!(told >= truth && told <= truth + truth / 8 + 1, "{percent} %: {told}");
        }
        assert_eq!((pace.decisions(), pace.longest()), (100_000, 100_000));
        pace.took(Duration::MAX);
        assert_eq!(pace.percentile(50), Pace::percentile(&pace, 50));
    }

    #[test]
    fn nothing_counted_is_nothing() {
        let pace = Pace::default();
        assert_eq!((pace.percentile(99), pace.longest()), (0, 0));
    }
}
