//! Limits of a group: from values to files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{DeviceRule, Error, Group, Version, devices, write};

/// Limits in the OCI's units. What is `None` or empty stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Relative weight, 2 to 262144.
    pub cpu_shares: Option<u64>,
    /// Microseconds per period; negative is without limit.
    pub cpu_quota: Option<i64>,
    /// Microseconds.
    pub cpu_period: Option<u64>,
    /// Microseconds that may be saved up.
    pub cpu_burst: Option<u64>,
    /// 1 makes it a `SCHED_IDLE` group.
    pub cpu_idle: Option<i64>,
    /// List of CPUs.
    pub cpuset_cpus: Option<String>,
    /// List of memory nodes.
    pub cpuset_mems: Option<String>,
    /// Bytes; negative is without limit.
    pub memory_limit: Option<i64>,
    /// Bytes under pressure; negative is without limit.
    pub memory_reservation: Option<i64>,
    /// Bytes of memory and swap together; negative is without limit.
    pub memory_swap: Option<i64>,
    /// 0 to 100, v1 only.
    pub memory_swappiness: Option<u64>,
    /// Processes and threads; not above zero is without limit.
    pub pids_limit: Option<i64>,
    /// Weight of block I/O, 10 to 1000.
    pub blkio_weight: Option<u16>,
    /// Page size (`2MB`) and bytes; negative is without limit.
    pub hugepages: Vec<(String, i64)>,
    /// Device rules in order; empty leaves them alone.
    pub devices: Vec<DeviceRule>,
    /// Files of the unified hierarchy and their values.
    pub unified: BTreeMap<String, String>,
}

/// One value for one file, still to be written.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    controller: &'static str,
    file: String,
    value: String,
    /// The kernel may lack the file (an option it was built without).
    optional: bool,
}

fn must(controller: &'static str, file: impl Into<String>, value: impl ToString) -> Write {
    Write { controller, file: file.into(), value: value.to_string(), optional: false }
}

fn may(controller: &'static str, file: impl Into<String>, value: impl ToString) -> Write {
    Write { optional: true, ..must(controller, file, value) }
}

pub(super) fn apply(group: &Group, resources: &Resources) -> Result<(), Error> {
    for (controller, version) in [
        ("cpu", version(group, "cpu")),
        ("cpuset", version(group, "cpuset")),
        ("memory", version(group, "memory")),
        ("pids", version(group, "pids")),
        ("blkio", version(group, "blkio")),
        ("io", version(group, "io")),
    ] {
        let writes = match version {
            Some(Version::One) => v1(controller, resources),
            Some(Version::Two) => v2(controller, resources),
            None => continue,
        };
        run(group, &writes)?;
    }
    hugepages(group, resources)?;
    if !resources.devices.is_empty() {
        devices::apply(group, &resources.devices)?;
    }
    if let Some(folder) = group.unified() {
        for (file, value) in &resources.unified {
            if file.contains('/') {
                return Err(Error::BadPath { path: file.clone() });
            }
            write(&folder.join(file), value)?;
        }
    }
    Ok(())
}

fn version(group: &Group, controller: &str) -> Option<Version> {
    group.hierarchies.of(controller).map(|h| h.version)
}

/// Writes in order; when one is refused, the rest first and then that one once more. Pairs like
/// limit and limit-with-swap, or period and quota, bound each other, so the right order depends
/// on what was there before.
fn run(group: &Group, writes: &[Write]) -> Result<(), Error> {
    let mut again = Vec::new();
    for item in writes {
        match carry_out(group, item) {
            Ok(()) => {}
            Err(Error::Refused { ref source, .. })
                if matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EBUSY)) && writes.len() > 1 =>
            {
                again.push(item);
            }
            Err(error) => return Err(error),
        }
    }
    again.into_iter().try_for_each(|item| carry_out(group, item))
}

fn carry_out(group: &Group, item: &Write) -> Result<(), Error> {
    let Some(folder) = group.folder(item.controller) else { return Ok(()) };
    match write(&folder.join(&item.file), &item.value) {
        Err(Error::Refused { ref source, .. })
            if item.optional && matches!(source.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn v1(controller: &str, r: &Resources) -> Vec<Write> {
    let mut writes = Vec::new();
    match controller {
        "cpu" => {
            writes.extend(r.cpu_shares.filter(|s| *s > 0).map(|s| must("cpu", "cpu.shares", s)));
            writes.extend(r.cpu_period.filter(|p| *p > 0).map(|p| must("cpu", "cpu.cfs_period_us", p)));
            writes
                .extend(r.cpu_quota.filter(|q| *q != 0).map(|q| must("cpu", "cpu.cfs_quota_us", q.max(-1))));
            writes.extend(r.cpu_burst.map(|b| may("cpu", "cpu.cfs_burst_us", b)));
            writes.extend(r.cpu_idle.map(|i| may("cpu", "cpu.idle", i)));
        }
        "cpuset" => {
            writes.extend(filled(r.cpuset_cpus.as_ref()).map(|c| must("cpuset", "cpuset.cpus", c)));
            writes.extend(filled(r.cpuset_mems.as_ref()).map(|m| must("cpuset", "cpuset.mems", m)));
        }
        "memory" => {
            let bytes = |v: i64| v.max(-1);
            let limit = r.memory_limit.filter(|l| *l != 0);
            writes.extend(limit.map(|l| must("memory", "memory.limit_in_bytes", bytes(l))));
            let swap = r.memory_swap.filter(|s| *s != 0);
            writes.extend(swap.map(|s| may("memory", "memory.memsw.limit_in_bytes", bytes(s))));
            let soft = r.memory_reservation.filter(|s| *s != 0);
            writes.extend(soft.map(|s| may("memory", "memory.soft_limit_in_bytes", bytes(s))));
            writes.extend(r.memory_swappiness.map(|s| may("memory", "memory.swappiness", s)));
        }
        "pids" => writes.extend(r.pids_limit.map(|l| must("pids", "pids.max", or_max(l, 1)))),
        "blkio" => {
            let weight = r.blkio_weight.filter(|w| *w > 0);
            writes.extend(weight.map(|w| may("blkio", "blkio.weight", w)));
        }
        _ => {}
    }
    writes
}

fn v2(controller: &str, r: &Resources) -> Vec<Write> {
    let mut writes = Vec::new();
    match controller {
        "cpu" => {
            writes.extend(r.cpu_idle.map(|i| may("cpu", "cpu.idle", i)));
            let shares = r.cpu_shares.filter(|s| *s > 0 && r.cpu_idle != Some(1));
            writes.extend(shares.map(|s| must("cpu", "cpu.weight", weight(s))));
            if r.cpu_quota.is_some() || r.cpu_period.is_some() {
                let quota = or_max(r.cpu_quota.unwrap_or(-1), 1);
                let period = r.cpu_period.filter(|p| *p > 0).unwrap_or(100_000);
                writes.push(must("cpu", "cpu.max", format!("{quota} {period}")));
            }
            writes.extend(r.cpu_burst.map(|b| may("cpu", "cpu.max.burst", b)));
        }
        "cpuset" => {
            writes.extend(filled(r.cpuset_cpus.as_ref()).map(|c| must("cpuset", "cpuset.cpus", c)));
            writes.extend(filled(r.cpuset_mems.as_ref()).map(|m| must("cpuset", "cpuset.mems", m)));
        }
        "memory" => {
            if let Some(swap) = swap_only(r.memory_swap, r.memory_limit) {
                writes.push(may("memory", "memory.swap.max", swap));
            }
            let limit = r.memory_limit.filter(|l| *l != 0);
            writes.extend(limit.map(|l| must("memory", "memory.max", or_max(l, 0))));
            let soft = r.memory_reservation.filter(|s| *s != 0);
            writes.extend(soft.map(|s| must("memory", "memory.low", or_max(s, 0))));
        }
        "pids" => writes.extend(r.pids_limit.map(|l| must("pids", "pids.max", or_max(l, 1)))),
        "io" => {
            let weight = r.blkio_weight.filter(|w| *w > 0);
            // 10..1000 becomes 1..10000.
            writes.extend(weight.map(|w| may("io", "io.bfq.weight", 1 + (u64::from(w) - 10) * 9999 / 990)));
        }
        _ => {}
    }
    writes
}

fn filled(text: Option<&String>) -> Option<&String> {
    text.filter(|t| !t.is_empty())
}

fn or_max(value: i64, least: i64) -> String {
    if value < least { "max".to_owned() } else { value.to_string() }
}

/// The OCI counts memory and swap together, v2 swap alone.
fn swap_only(swap: Option<i64>, limit: Option<i64>) -> Option<String> {
    match (swap?, limit) {
        (0, _) => None,
        (swap, _) if swap < 0 => Some("max".to_owned()),
        (swap, Some(limit)) if limit > 0 && swap >= limit => Some((swap - limit).to_string()),
        _ => None,
    }
}

/// Shares (2..262144, 1024 is one) as a v2 weight (1..10000, 100 is one). The curve through
/// those three points is the one Kubernetes and the OCI runtimes have agreed on.
fn weight(shares: u64) -> u64 {
    if shares <= 2 {
        return 1;
    }
    if shares >= 262_144 {
        return 10_000;
    }
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    {
        let l = (shares as f64).log2();
        let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
        10_f64.powf(exponent).ceil() as u64
    }
}

fn hugepages(group: &Group, r: &Resources) -> Result<(), Error> {
    let Some(hierarchy) = group.hierarchies.of("hugetlb") else { return Ok(()) };
    if r.hugepages.is_empty() {
        return Ok(());
    }
    let folder: PathBuf = hierarchy.mount.join(&group.path);
    if hierarchy.hybrid && !folder.join("hugetlb.2MB.max").exists() {
        // The one controller that hybrid machines keep on cgroup2 is handed down only when used.
        let mut above = hierarchy.mount.clone();
        for part in group.path.split('/') {
            // Ignored: a group with processes keeps what it has, and the write below says so.
            write(&above.join("cgroup.subtree_control"), "+hugetlb").ok();
            above.push(part);
        }
    }
    for (size, limit) in &r.hugepages {
        let (file, value) = match hierarchy.version {
            Version::One => (format!("hugetlb.{size}.limit_in_bytes"), limit.max(&-1).to_string()),
            Version::Two => (format!("hugetlb.{size}.max"), or_max(*limit, 0)),
        };
        match write(&folder.join(file), &value) {
            Err(Error::Refused { ref source, .. })
                if source.raw_os_error() == Some(libc::ENOENT) && *limit <= 0 => {}
            other => other?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights_through_the_agreed_points() {
        assert_eq!([weight(2), weight(1024), weight(262_144), weight(0)], [1, 100, 10_000, 1]);
    }

    #[test]
    fn swap_on_v2_is_what_exceeds_the_limit() {
        assert_eq!(swap_only(Some(300), Some(100)).as_deref(), Some("200"));
        assert_eq!(swap_only(Some(100), Some(100)).as_deref(), Some("0"));
        assert_eq!(swap_only(Some(-1), Some(100)).as_deref(), Some("max"));
        assert_eq!(swap_only(None, Some(100)), None);
    }

    #[test]
    fn a_quota_on_v2_carries_its_period() {
        let r = Resources { cpu_quota: Some(50_000), cpu_period: Some(200_000), ..Resources::default() };
        assert_eq!(v2("cpu", &r), [must("cpu", "cpu.max", "50000 200000")]);
        let none = Resources { cpu_quota: Some(-1), ..Resources::default() };
        assert_eq!(v2("cpu", &none), [must("cpu", "cpu.max", "max 100000")]);
    }
}
