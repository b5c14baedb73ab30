//! How plugins have behaved: counters and times per plugin and operation, which outlive its connections.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::link::CallError;

/// Upper bounds of the buckets of a call's time, in microseconds.
const BUCKETS: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000];
/// The newest times kept for percentiles.
const RECENT: usize = 512;
/// Plugins remembered; what connects under ever new names is forgotten again.
const REMEMBERED: usize = 128;

/// How a call ended, as metrics name it.
const STATUSES: [&str; 5] = ["ok", "refused", "timeout", "closed", "malformed"];

fn status_of(result: Result<(), &CallError>) -> usize {
    match result {
        Ok(()) => 0,
        Err(CallError::Refused { .. } | CallError::TooLarge { .. }) => 1,
        Err(CallError::Timeout(_)) => 2,
        Err(CallError::Closed) => 3,
        Err(CallError::Malformed) => 4,
    }
}

#[derive(Debug, Default, Clone)]
struct Operation {
    statuses: [u64; STATUSES.len()],
    buckets: [u64; BUCKETS.len()],
    total: Duration,
    adjustments: u64,
}

impl Operation {
    fn calls(&self) -> u64 {
        self.statuses.iter().sum()
    }
}

#[derive(Debug, Default)]
struct Inner {
    operations: BTreeMap<&'static str, Operation>,
    recent: VecDeque<Duration>,
    slowest: Duration,
    last_error: Option<String>,
    connects: u64,
}

/// What is known of one plugin, by its label.
#[derive(Debug, Default)]
pub(super) struct Stats(Mutex<Inner>);

/// Numbers for people.
#[derive(Debug, Default, Clone)]
pub(super) struct Figures {
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) connects: u64,
    pub(super) total: Duration,
    pub(super) slowest: Duration,
    pub(super) median: Duration,
    pub(super) p99: Duration,
    pub(super) last_error: Option<String>,
}

impl Stats {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call.
    pub(super) fn called(&self, operation: &'static str, took: Duration, result: Result<(), &CallError>) {
        let mut inner = self.inner();
        let entry = inner.operations.entry(operation).or_default();
        entry.statuses[status_of(result)] += 1;
        entry.total += took;
        let micros = super::log::micros(took);
        if let Some(bucket) = BUCKETS.iter().position(|bound| micros <= *bound) {
            entry.buckets[bucket] += 1;
        }
        inner.slowest = inner.slowest.max(took);
        if inner.recent.len() == RECENT {
            inner.recent.pop_front();
        }
        inner.recent.push_back(took);
        if let Err(error) = result {
            inner.last_error = Some(format!("{operation}: {error}"));
        }
    }

    /// Notes a failure that is not an answer.
    pub(super) fn failed(&self, what: String) {
        self.inner().last_error = Some(what);
    }

    /// Counts a connection.
    pub(super) fn connected(&self) {
        self.inner().connects += 1;
    }

    /// Counts an answer that wants something changed.
    pub(super) fn adjusted(&self, operation: &'static str) {
        self.inner().operations.entry(operation).or_default().adjustments += 1;
    }

    /// The numbers.
    pub(super) fn figures(&self) -> Figures {
        let inner = self.inner();
        let mut recent: Vec<Duration> = inner.recent.iter().copied().collect();
        recent.sort_unstable();
        let at = |percent: usize| {
            recent.get((recent.len() * percent / 100).min(recent.len().saturating_sub(1))).copied()
        };
        let calls = inner.operations.values().map(Operation::calls).sum();
        let well: u64 = inner.operations.values().map(|one| one.statuses[0]).sum();
        Figures {
            calls,
            errors: calls - well,
            connects: inner.connects,
            total: inner.operations.values().map(|one| one.total).sum(),
            slowest: inner.slowest,
            median: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
            last_error: inner.last_error.clone(),
        }
    }
}

/// Everybody's numbers.
#[derive(Debug, Default)]
pub(super) struct Book(Mutex<BTreeMap<String, Arc<Stats>>>);

impl Book {
    /// The page of a plugin, new or from its last connection.
    pub(super) fn page(&self, label: &str) -> Arc<Stats> {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !book.contains_key(label) && book.len() >= REMEMBERED {
            // A page that only the book holds belongs to a plugin that is gone.
            let gone = book.iter().find(|(_, page)| Arc::strong_count(page) == 1);
            if let Some(label) = gone.map(|(label, _)| label.clone()) {
                book.remove(&label);
            }
        }
        book.entry(label.to_owned()).or_default().clone()
    }

    /// All pages, by label.
    pub(super) fn pages(&self) -> BTreeMap<String, Arc<Stats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The numbers in Prometheus' text form.
    pub(super) fn metrics(&self, active: usize) -> String {
        let mut out = String::new();
        let head = |out: &mut String, name: &str, kind: &str, help: &str| {
            // Ignored: writing to a string cannot fail.
            write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n").ok();
        };
        let pages = self.pages();
        head(&mut out, ACTIVE, "gauge", "Plugins that are connected and synchronized");
        writeln!(out, "{ACTIVE} {active}").ok();
        head(&mut out, CALLS, "counter", "Calls to plugins, by how they ended");
        each(&pages, |labels, one| {
            for (status, count) in STATUSES.iter().zip(one.statuses).filter(|(_, count)| *count > 0) {
                writeln!(out, "{CALLS}{{{labels},status=\"{status}\"}} {count}").ok();
            }
        });
        head(&mut out, ADJUSTMENTS, "counter", "Answers of plugins that want something changed");
        each(&pages, |labels, one| {
            if one.adjustments > 0 {
                writeln!(out, "{ADJUSTMENTS}{{{labels}}} {}", one.adjustments).ok();
            }
        });
        head(&mut out, LATENCY, "histogram", "How long plugins took to answer");
        each(&pages, |labels, one| {
            let mut sum = 0;
            for (bound, count) in BUCKETS.iter().zip(one.buckets) {
                sum += count;
                let bound = Duration::from_micros(*bound).as_secs_f64();
                writeln!(out, "{LATENCY}_bucket{{{labels},le=\"{bound}\"}} {sum}").ok();
            }
            writeln!(out, "{LATENCY}_bucket{{{labels},le=\"+Inf\"}} {}", one.calls()).ok();
            writeln!(out, "{LATENCY}_sum{{{labels}}} {}", one.total.as_secs_f64()).ok();
            writeln!(out, "{LATENCY}_count{{{labels}}} {}", one.calls()).ok();
        });
        out
    }
}

const ACTIVE: &str = "podwire_nri_active_plugins";
const CALLS: &str = "podwire_nri_plugin_invocations_total";
const ADJUSTMENTS: &str = "podwire_nri_plugin_adjustments_total";
const LATENCY: &str = "podwire_nri_plugin_latency_seconds";

fn each(pages: &BTreeMap<String, Arc<Stats>>, mut show: impl FnMut(&str, &Operation)) {
    for (label, page) in pages {
        for (operation, one) in &page.inner().operations {
            show(&format!("plugin=\"{label}\",operation=\"{operation}\""), one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_how_they_ended_and_how_long_they_took() {
        let book = Book::default();
        let page = book.page("10-net");
        page.called("RunPodSandbox", Duration::from_micros(300), Ok(()));
        page.called(
            "RunPodSandbox",
            Duration::from_secs(2),
            Err(&CallError::Timeout(Duration::from_secs(2))),
        );
        page.adjusted("CreateContainer");
        let text = book.metrics(1);
        let labels = "plugin=\"10-net\",operation=\"RunPodSandbox\"";
        for line in [
            format!("podwire_nri_plugin_invocations_total{{{labels},status=\"ok\"}} 1"),
            format!("podwire_nri_plugin_invocations_total{{{labels},status=\"timeout\"}} 1"),
            format!("podwire_nri_plugin_latency_seconds_bucket{{{labels},le=\"0.00025\"}} 0"),
            format!("podwire_nri_plugin_latency_seconds_bucket{{{labels},le=\"0.0005\"}} 1"),
            format!("podwire_nri_plugin_latency_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            "podwire_nri_active_plugins 1".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        let figures = page.figures();
        assert_eq!((figures.calls, figures.errors), (2, 1));
        assert_eq!(figures.last_error.unwrap(), "RunPodSandbox: no answer within 2s");
    }

    #[test]
    fn plugins_under_ever_new_names_are_forgotten_but_living_ones_are_not() {
        let book = Book::default();
        let kept = book.page("00-kept");
        kept.connected();
        (0..1000).for_each(|n| drop(book.page(&format!("10-{n}"))));
        assert!(book.pages().len() <= REMEMBERED);
        assert_eq!(book.page("00-kept").figures().connects, 1);
    }
}
