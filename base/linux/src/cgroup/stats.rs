//! What a group has used.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Group, Version};

/// Use of one group, with everything below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nanoseconds of CPU time.
    pub cpu_usage_ns: u64,
    /// Part of it in user mode.
    pub cpu_user_ns: u64,
    /// Part of it in the kernel.
    pub cpu_system_ns: u64,
    /// Periods with a quota.
    pub cpu_periods: u64,
    /// Of these, throttled.
    pub cpu_throttled_periods: u64,
    /// Nanoseconds spent throttled.
    pub cpu_throttled_ns: u64,
    /// Memory.
    pub memory: MemoryStats,
    /// Processes and threads.
    pub pids_current: u64,
    /// Their limit; `None` is without.
    pub pids_limit: Option<u64>,
    /// Block I/O.
    pub io: IoStats,
    /// Pressure on CPU, where the kernel measures it.
    pub cpu_pressure: Option<PressureStats>,
    /// Pressure on memory.
    pub memory_pressure: Option<PressureStats>,
    /// Pressure on I/O.
    pub io_pressure: Option<PressureStats>,
}

/// Memory of one group in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Everything charged.
    pub usage: u64,
    /// Usage without file pages that nobody has used lately: what eviction looks at.
    pub working_set: u64,
    /// The limit; `None` is without.
    pub limit: Option<u64>,
    /// Anonymous memory.
    pub rss: u64,
    /// File pages.
    pub cache: u64,
    /// File pages that are mapped.
    pub mapped_file: u64,
    /// Swap.
    pub swap: u64,
    /// Page faults.
    pub page_faults: u64,
    /// Of these, with I/O.
    pub major_page_faults: u64,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
}

/// Block I/O over all devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Pressure stall information: averages in hundredths of a percent, totals in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PressureStats {
    /// Some task waited: averages over 10, 60, 300 s, and the total.
    pub some: ([u64; 3], u64),
    /// All tasks waited.
    pub full: ([u64; 3], u64),
}

pub(super) fn read_stats(group: &Group) -> Stats {
    let mut stats = match group.hierarchies.v1("memory") {
        Some(_) => v1(group),
        None => v2(group),
    };
    stats.memory.oom_kills = oom_kills(group);
    if let Some(folder) = group.folder("pids") {
        stats.pids_current = number(&folder.join("pids.current")).unwrap_or(0);
        stats.pids_limit = number(&folder.join("pids.max"));
    }
    if let Some(folder) = group.unified() {
        stats.cpu_pressure = pressure(&folder.join("cpu.pressure"));
        stats.memory_pressure = pressure(&folder.join("memory.pressure"));
        stats.io_pressure = pressure(&folder.join("io.pressure"));
    }
    stats
}

pub(super) fn oom_kills(group: &Group) -> u64 {
    let Some(hierarchy) = group.hierarchies.of("memory") else { return 0 };
    let folder = hierarchy.mount.join(&group.path);
    let file = match hierarchy.version {
        Version::One => "memory.oom_control",
        Version::Two => "memory.events",
    };
    pairs(&folder.join(file)).get("oom_kill").copied().unwrap_or(0)
}

fn v1(group: &Group) -> Stats {
    let file = |controller: &str, name: &str| {
        group.folder(controller).map_or_else(|| PathBuf::from("/nonexistent"), |folder| folder.join(name))
    };
    let usage = number(&file("cpuacct", "cpuacct.usage")).unwrap_or(0);
    // Ticks of USER_HZ, which is 100 on every architecture we run on.
    let ticks = pairs(&file("cpuacct", "cpuacct.stat"));
    let cpu = pairs(&file("cpu", "cpu.stat"));
    let memory = pairs(&file("memory", "memory.stat"));
    let get = |map: &HashMap<String, u64>, key: &str| map.get(key).copied().unwrap_or(0);
    let used = number(&file("memory", "memory.usage_in_bytes")).unwrap_or(0);
    // No limit shows as the largest multiple of a page.
    let limit = number(&file("memory", "memory.limit_in_bytes")).filter(|l| *l < 1 << 62);
    let (read_bytes, write_bytes) = blkio(&file("blkio", "blkio.throttle.io_service_bytes_recursive"));
    let (reads, writes) = blkio(&file("blkio", "blkio.throttle.io_serviced_recursive"));
    Stats {
        cpu_usage_ns: usage,
        cpu_user_ns: get(&ticks, "user") * 10_000_000,
        cpu_system_ns: get(&ticks, "system") * 10_000_000,
        cpu_periods: get(&cpu, "nr_periods"),
        cpu_throttled_periods: get(&cpu, "nr_throttled"),
        cpu_throttled_ns: get(&cpu, "throttled_time"),
        memory: MemoryStats {
            usage: used,
            working_set: used.saturating_sub(get(&memory, "total_inactive_file")),
            limit,
            rss: get(&memory, "total_rss"),
            cache: get(&memory, "total_cache"),
            mapped_file: get(&memory, "total_mapped_file"),
            swap: get(&memory, "total_swap"),
            page_faults: get(&memory, "total_pgfault"),
            major_page_faults: get(&memory, "total_pgmajfault"),
            oom_kills: 0,
        },
        io: IoStats { read_bytes, write_bytes, reads, writes },
        ..Stats::default()
    }
}

fn v2(group: &Group) -> Stats {
    let Some(folder) = group.unified() else { return Stats::default() };
    let cpu = pairs(&folder.join("cpu.stat"));
    let memory = pairs(&folder.join("memory.stat"));
    let get = |map: &HashMap<String, u64>, key: &str| map.get(key).copied().unwrap_or(0);
    let used = number(&folder.join("memory.current")).unwrap_or(0);
    Stats {
        cpu_usage_ns: get(&cpu, "usage_usec") * 1000,
        cpu_user_ns: get(&cpu, "user_usec") * 1000,
        cpu_system_ns: get(&cpu, "system_usec") * 1000,
        cpu_periods: get(&cpu, "nr_periods"),
        cpu_throttled_periods: get(&cpu, "nr_throttled"),
        cpu_throttled_ns: get(&cpu, "throttled_usec") * 1000,
        memory: MemoryStats {
            usage: used,
            working_set: used.saturating_sub(get(&memory, "inactive_file")),
            limit: number(&folder.join("memory.max")),
            rss: get(&memory, "anon"),
            cache: get(&memory, "file"),
            mapped_file: get(&memory, "file_mapped"),
            swap: number(&folder.join("memory.swap.current")).unwrap_or(0),
            page_faults: get(&memory, "pgfault"),
            major_page_faults: get(&memory, "pgmajfault"),
            oom_kills: 0,
        },
        io: io_stat(&folder.join("io.stat")),
        ..Stats::default()
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Lines of `key value`.
fn pairs(path: &Path) -> HashMap<String, u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let pair = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        Some((key.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Lines of `major:minor Operation value`: bytes (or operations) read and written.
fn blkio(path: &Path) -> (u64, u64) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let (mut read, mut written) = (0, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(1);
        let (operation, value) =
            (words.next(), words.next().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0));
        match operation {
            Some("Read") => read += value,
            Some("Write") => written += value,
            _ => {}
        }
    }
    (read, written)
}

/// Lines of `major:minor rbytes=1 wbytes=2 rios=3 wios=4`.
fn io_stat(path: &Path) -> IoStats {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut stats = IoStats::default();
    for word in text.split_whitespace() {
        let Some((key, value)) = word.split_once('=') else { continue };
        let value = value.parse::<u64>().unwrap_or(0);
        match key {
            "rbytes" => stats.read_bytes += value,
            "wbytes" => stats.write_bytes += value,
            "rios" => stats.reads += value,
            "wios" => stats.writes += value,
            _ => {}
        }
    }
    stats
}

fn pressure(path: &Path) -> Option<PressureStats> {
    let text = fs::read_to_string(path).ok()?;
    let mut stats = PressureStats::default();
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ')?;
        let mut averages = [0; 3];
        let mut total = 0;
        for (at, word) in rest.split_whitespace().enumerate() {
            let (key, value) = word.split_once('=')?;
            if key == "total" {
                total = value.parse().ok()?;
            } else if let Some(slot) = averages.get_mut(at) {
                // Two decimals, so dropping the point gives hundredths.
                *slot = value.replace('.', "").parse().ok()?;
            }
        }
        match kind {
            "some" => stats.some = (averages, total),
            "full" => stats.full = (averages, total),
            _ => {}
        }
    }
    Some(stats)
}
