//! A scheduler as a process of its own, and what it says of its decisions.

use std::{
    fmt, fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use podwire_testkit::{
    node::{bin_dir, peer},
    upstream::Peer,
};

use crate::{api::client::Endpoint, measure::Processes};

/// Whose scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// `podwire scheduler`.
    Ours,
    /// kube-scheduler.
    Upstream,
}

impl Which {
    /// One word for names.
    pub fn word(self) -> &'static str {
        match self {
            Which::Ours => "ours",
            Which::Upstream => "upstream",
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Where kube-scheduler serves its metrics.
const METRICS: &str = "127.0.0.1:10259";

/// How long decisions took, in milliseconds. Upstream's are upper ends of the buckets of its histogram.
#[derive(Debug, Clone, Copy, Default)]
pub struct Decisions {
    pub p50: f64,
    pub p99: f64,
}

/// One that runs.
pub struct Process {
    which: Which,
    peer: Peer,
    begun: Instant,
    folder: tempfile::TempDir,
}

impl Process {
    /// Starts one for the API server that `kubeconfig` names; it need not be ready.
    pub fn start(kubeconfig: &Path, which: Which) -> Result<Process> {
        let folder = tempfile::Builder::new().prefix("podwire-bench-").tempdir()?;
        let mut command = match which {
            Which::Ours => {
                let mut command = Command::new(bin_dir().join("podwire"));
                command
                    .args(["scheduler", "--leader-elect=false", "--kubeconfig"])
                    .arg(kubeconfig)
                    .env("PODWIRE_TRACE_DIR", folder.path().join("trace"));
                command
            }
            Which::Upstream => {
                let config = folder.path().join("config.yaml");
                // Its default of 50 requests per second would be measured, not it.
                let text = format!(
                    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                     leaderElection: {{leaderElect: false}}\n\
                     clientConnection: {{kubeconfig: \"{}\", qps: 5000, burst: 5000}}\n",
                    kubeconfig.display()
                );
                fs::write(&config, text)?;
                let mut command = Command::new(peer("kube-scheduler")?);
                command.arg(format!("--config={}", config.display())).args([
                    "--authentication-tolerate-lookup-failure=true",
                    "--authorization-always-allow-paths=/healthz,/metrics",
                    "--bind-address=127.0.0.1",
                ]);
                command
            }
        };
        let begun = Instant::now();
        let peer = Peer::start("scheduler", folder.path(), &mut command)?;
        Ok(Process { which, peer, begun, folder })
    }

    /// When it was started.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    fn processes(&self) -> Processes {
        Processes::of_pids(&[self.peer.pid()])
    }

    /// Its CPU so far.
    pub fn cpu(&self) -> Result<Duration> {
        self.processes().cpu()
    }

    /// Its memory, in megabytes.
    pub fn pss(&self) -> Result<f64> {
        Ok(self.processes().own_pss_bytes()? as f64 / 1e6)
    }

    /// Ends it; how long its decisions took.
    pub async fn end(self) -> Result<Decisions> {
        let Process { which, peer, folder, .. } = self;
        match which {
            Which::Ours => {
                drop(peer);
                of_log(&fs::read_to_string(folder.path().join("scheduler.log"))?)
            }
            Which::Upstream => {
                let endpoint = Endpoint::anonymous(METRICS.parse()?)?;
                let mut connection = endpoint.connect().await?;
                connection.ask(&endpoint.get_as("/metrics", "text/plain")).await?;
                let metrics = String::from_utf8_lossy(connection.answer()).into_owned();
                drop(peer);
                Ok(of_histogram(&metrics, "scheduler_scheduling_algorithm_duration_seconds_bucket"))
            }
        }
    }
}

/// What ours says when it ends.
fn of_log(log: &str) -> Result<Decisions> {
    let line =
        log.lines().rfind(|line| line.contains("p99_us=")).with_context(|| format!("it said: {log}"))?;
    let value = |name: &str| -> Result<f64> {
        let text = line.split(name).nth(1).and_then(|rest| rest.split_whitespace().next());
        Ok(text.with_context(|| format!("no {name} in {line}"))?.parse::<f64>()? / 1e3)
    };
    Ok(Decisions { p50: value("p50_us=")?, p99: value("p99_us=")? })
}

/// Percentiles of a histogram of seconds, as upper ends of its buckets.
fn of_histogram(metrics: &str, name: &str) -> Decisions {
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for line in metrics.lines().filter(|line| line.starts_with(name)) {
        let end = line.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
        let end = end.and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::INFINITY);
        let count = line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        match buckets.iter_mut().find(|(known, _)| *known == end) {
            Some((_, sum)) => *sum += count,
            None => buckets.push((end, count)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    let at = |share: f64| {
        buckets.iter().find(|(_, count)| *count >= all * share).map_or(0.0, |(end, _)| end * 1e3)
    };
    Decisions { p50: at(0.5), p99: at(0.99) }
}
