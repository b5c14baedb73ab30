//! Memory and CPU of a node's processes, and percentiles.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use podwire_testkit::Node;

/// The daemons of a node: what runs besides the pods' own processes.
pub struct Processes(Vec<u32>);

impl Processes {
    /// The daemon and the supervisor of a podwire node.
    pub fn of_node(node: &Node) -> Result<Processes> {
        let daemon = node.pid().context("the node is not running")?;
        let mut pids = vec![daemon];
        let marker = node.names()?.run_dir.display().to_string();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().display().to_string().parse::<u32>() else { continue };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if pid != daemon && line.contains(" supervisor ") && line.contains(&marker) {
                pids.push(pid);
            }
        }
        Ok(Processes(pids))
    }

    /// Daemons by process id; shims that they started count too.
    pub fn of_pids(pids: &[u32]) -> Processes {
        Processes(pids.to_vec())
    }

    /// The daemons and, for containerd, every shim of its own that runs now.
    fn all(&self) -> Vec<u32> {
        let mut all = self.0.clone();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().display().to_string().parse::<u32>() else { continue };
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if name.starts_with("containerd-shim") && !all.contains(&pid) {
                all.push(pid);
            }
        }
        all
    }

    /// Proportional set size of all of them.
    pub fn pss_bytes(&self) -> Result<u64> {
        pss(&self.all())
    }

    /// Proportional set size of exactly these processes.
    pub fn own_pss_bytes(&self) -> Result<u64> {
        pss(&self.0)
    }

    /// CPU time so far, with that of the children they waited for.
    pub fn cpu(&self) -> Result<Duration> {
        let mut ticks = 0;
        for pid in &self.0 {
            let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
            // The command may hold spaces; the numbers follow the last parenthesis.
            let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            for field in fields.iter().skip(11).take(4) {
                ticks += field.parse::<u64>()?;
            }
        }
        // USER_HZ is 100 on every Linux that matters here.
        Ok(Duration::from_millis(ticks * 10))
    }
}

fn pss(pids: &[u32]) -> Result<u64> {
    let mut sum = 0;
    for pid in pids {
        // A shim may have ended since it was listed.
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
        let line = text.lines().find(|line| line.starts_with("Pss:")).context("no Pss")?;
        sum += line.split_whitespace().nth(1).context("no number")?.parse::<u64>()? * 1024;
    }
    Ok(sum)
}

/// The value below which `percent` of the samples lie.
pub fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}
