//! How often the driver was asked, what came of it and how long it took, under DRANET's names.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Upper bounds of the classes of latencies, in milliseconds: those that Prometheus' own libraries have.
const BOUNDS: [u32; 11] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000];

/// Whose calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// The kubelet's.
    Dra,
    /// The runtime's.
    Nri,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Came {
    Success,
    Failed,
    /// There was nothing to do.
    Noop,
}

#[derive(Clone, Debug, Default)]
struct Calls {
    count: u64,
    took: Duration,
    classes: [u64; BOUNDS.len()],
}

#[derive(Debug, Default)]
struct All {
    calls: BTreeMap<(Door, &'static str, Came), Calls>,
    /// Devices of claims that are prepared, and of those the ones that are in their pods.
    devices: (usize, usize),
    /// When slices were last written, in seconds.
    published: Option<i64>,
}

/// Counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Arc<Mutex<All>>);

impl Figures {
    fn with<T>(&self, change: impl FnOnce(&mut All) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a call.
    pub(crate) fn call(&self, door: Door, method: &'static str, came: Came, took: Duration) {
        self.with(|all| {
            let calls = all.calls.entry((door, method, came)).or_default();
            calls.count += 1;
            calls.took += took;
            for (class, bound) in calls.classes.iter_mut().zip(BOUNDS) {
                *class += u64::from(took <= Duration::from_millis(bound.into()));
            }
        });
    }

    /// So many devices are prepared, and so many of them are in their pods.
    pub(crate) fn devices(&self, prepared: usize, ready: usize) {
        self.with(|all| all.devices = (prepared, ready));
    }

    /// Slices were written.
    pub(crate) fn published(&self, now: i64) {
        self.with(|all| all.published = Some(now));
    }

    /// In the text form that Prometheus reads; `published` devices are offered.
    pub(crate) fn text(&self, published: usize) -> String {
        self.with(|all| {
            let mut text = String::new();
            for (door, name) in [(Door::Dra, "dra"), (Door::Nri, "nri")] {
                counters(&mut text, all, door, name);
                latencies(&mut text, all, door, name);
            }
            gauge(&mut text, "published_devices_total", "{feature=\"total\"}", published);
            gauge(&mut text, "claim_devices_allocated", "", all.devices.0);
            gauge(&mut text, "claim_devices_ready", "", all.devices.1);
            if let Some(at) = all.published {
                gauge(&mut text, "last_published_time_seconds", "", at);
            }
            text
        })
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Ignored: writing to a text cannot fail.
    writeln!(text, "{line}").ok();
}

fn gauge(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    line(text, format_args!("# TYPE dranet_driver_{name} gauge"));
    line(text, format_args!("dranet_driver_{name}{labels} {value}"));
}

fn counters(text: &mut String, all: &All, door: Door, name: &str) {
    let name = format!("dranet_driver_{name}_plugin_requests_total");
    line(text, format_args!("# TYPE {name} counter"));
    for ((_, method, came), calls) in all.calls.iter().filter(|((of, ..), _)| *of == door) {
        line(text, format_args!("{name}{{method=\"{method}\",status=\"{}\"}} {}", came.word(), calls.count));
    }
}

/// The kubelet's are told by method, the runtime's also by what came of them.
fn latencies(text: &mut String, all: &All, door: Door, name: &str) {
    let mut by_labels: BTreeMap<String, Calls> = BTreeMap::new();
    for ((_, method, came), calls) in all.calls.iter().filter(|((of, ..), _)| *of == door) {
        let labels = match door {
            Door::Dra => format!("method=\"{method}\""),
            Door::Nri => format!("method=\"{method}\",status=\"{}\"", came.word()),
        };
        let sum = by_labels.entry(labels).or_default();
        sum.count += calls.count;
        sum.took += calls.took;
        for (class, more) in sum.classes.iter_mut().zip(calls.classes) {
            *class += more;
        }
    }
    let name = format!("dranet_driver_{name}_plugin_requests_latency_seconds");
    line(text, format_args!("# TYPE {name} histogram"));
    for (labels, calls) in by_labels {
        for (class, bound) in calls.classes.iter().zip(BOUNDS) {
            let le = f64::from(bound) / 1000.0;
            line(text, format_args!("{name}_bucket{{{labels},le=\"{le}\"}} {class}"));
        }
        line(text, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", calls.count));
        line(text, format_args!("{name}_sum{{{labels}}} {}", calls.took.as_secs_f64()));
        line(text, format_args!("{name}_count{{{labels}}} {}", calls.count));
    }
}

impl Came {
    /// As a result says.
    pub(crate) fn of<T, E>(result: &Result<T, E>) -> Came {
        if result.is_ok() { Came::Success } else { Came::Failed }
    }

    fn word(self) -> &'static str {
        match self {
            Came::Success => "success",
            Came::Failed => "failed",
            Came::Noop => "noop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_under_the_names_that_others_read() {
        let figures = Figures::default();
        figures.call(Door::Dra, "PrepareResourceClaims", Came::Success, Duration::from_millis(2));
        figures.call(Door::Dra, "PrepareResourceClaims", Came::Failed, Duration::from_millis(30));
        figures.call(Door::Nri, "RunPodSandbox", Came::Noop, Duration::from_micros(10));
        figures.devices(3, 2);
        figures.published(7);
        let text = figures.text(5);
        for wanted in [
            "dranet_driver_dra_plugin_requests_total{method=\"PrepareResourceClaims\",status=\"failed\"} 1",
            "dranet_driver_dra_plugin_requests_latency_seconds_bucket{method=\"PrepareResourceClaims\",le=\"0.005\"} 1",
            "dranet_driver_dra_plugin_requests_latency_seconds_bucket{method=\"PrepareResourceClaims\",le=\"0.05\"} 2",
            "dranet_driver_dra_plugin_requests_latency_seconds_count{method=\"PrepareResourceClaims\"} 2",
            "dranet_driver_nri_plugin_requests_total{method=\"RunPodSandbox\",status=\"noop\"} 1",
            "dranet_driver_nri_plugin_requests_latency_seconds_count{method=\"RunPodSandbox\",status=\"noop\"} 1",
            "dranet_driver_published_devices_total{feature=\"total\"} 5",
            "dranet_driver_claim_devices_allocated 3",
            "dranet_driver_claim_devices_ready 2",
            "dranet_driver_last_published_time_seconds 7",
        ] {
            assert!(text.lines().any(|line| line == wanted), "{wanted} is not in\n{text}");
        }
    }
}
