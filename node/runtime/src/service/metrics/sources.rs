//! Where the values come from: cgroup counters and files, processes, links, file systems.

use std::{fs, path::Path};

use podwire_image::ImageStore;
use podwire_linux::cgroup::{self, Stats};
use podwire_wire::cri;

use super::Sheet;
use crate::model::{Container, Sandbox};

const NANOS: u64 = 1_000_000_000;

/// Counters of the container's cgroup.
pub(super) fn usage(stats: &Stats, sheet: &mut Sheet) {
    let memory = &stats.memory;
    for (name, value) in [
        ("container_cpu_cfs_periods_total", stats.cpu_periods),
        ("container_cpu_cfs_throttled_periods_total", stats.cpu_throttled_periods),
        ("container_cpu_cfs_throttled_seconds_total", stats.cpu_throttled_ns / NANOS),
        ("container_cpu_system_seconds_total", stats.cpu_system_ns / NANOS),
        ("container_cpu_user_seconds_total", stats.cpu_user_ns / NANOS),
        ("container_memory_cache", memory.cache),
        ("container_memory_mapped_file", memory.mapped_file),
        ("container_memory_rss", memory.rss),
        ("container_memory_swap", memory.swap),
        ("container_memory_usage_bytes", memory.usage),
        ("container_memory_working_set_bytes", memory.working_set),
        ("container_oom_events_total", memory.oom_kills),
        ("container_threads", stats.pids_current),
        ("container_threads_max", stats.pids_limit.unwrap_or(0)),
    ] {
        sheet.put(name, &[], value);
    }
    sheet.put("container_cpu_usage_seconds_total", &["total"], stats.cpu_usage_ns / NANOS);
    sheet.put("container_memory_failures_total", &["pgfault", "container"], memory.page_faults);
    sheet.put("container_memory_failures_total", &["pgmajfault", "container"], memory.major_page_faults);
    for (name, value) in [
        ("container_fs_reads_bytes_total", stats.io.read_bytes),
        ("container_fs_reads_total", stats.io.reads),
        ("container_fs_writes_bytes_total", stats.io.write_bytes),
        ("container_fs_writes_total", stats.io.writes),
    ] {
        sheet.put(name, &[""], value);
    }
    sheet.put("container_blkio_device_usage_total", &["", "Read"], stats.io.read_bytes);
    sheet.put("container_blkio_device_usage_total", &["", "Write"], stats.io.write_bytes);
}

/// What the container was given.
pub(super) fn limits(requested: &cri::LinuxContainerResources, stats: &Stats, sheet: &mut Sheet) {
    let number = |value: i64| u64::try_from(value).unwrap_or_default();
    let period = if requested.cpu_period > 0 { number(requested.cpu_period) } else { 100_000 };
    sheet.put("container_spec_cpu_period", &[], period);
    if requested.cpu_quota > 0 {
        sheet.put("container_spec_cpu_quota", &[], number(requested.cpu_quota));
    }
    sheet.put(
        "container_spec_cpu_shares",
        &[],
        if requested.cpu_shares > 0 { number(requested.cpu_shares) } else { 1024 },
    );
    let limit = stats.memory.limit.unwrap_or(0);
    sheet.put("container_spec_memory_limit_bytes", &[], limit);
    let swap = number(requested.memory_swap_limit_in_bytes);
    sheet.put("container_spec_memory_swap_limit_bytes", &[], if swap > 0 { swap } else { limit });
    sheet.put("container_spec_memory_reservation_limit_bytes", &[], 0);
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The first number in a file of `name value` lines.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Counters that only the files themselves tell, and the processes in the cgroup.
pub(super) fn cgroup_files(path: &str, sheet: &mut Sheet) {
    let Ok(group) = cgroup::group(path) else { return };
    if let Some(folder) = group.folder("memory") {
        let failed =
            number(&folder.join("memory.failcnt")).or_else(|| field(&folder.join("memory.events"), "max "));
        let peak =
            number(&folder.join("memory.max_usage_in_bytes")).or_else(|| number(&folder.join("memory.peak")));
        let kernel = number(&folder.join("memory.kmem.usage_in_bytes"));
        let kernel = kernel.or_else(|| field(&folder.join("memory.stat"), "kernel "));
        sheet.put("container_memory_failcnt", &[], failed.unwrap_or(0));
        sheet.put("container_memory_max_usage_bytes", &[], peak.unwrap_or(0));
        sheet.put("container_memory_kernel_usage", &[], kernel.unwrap_or(0));
    }
    let pids = group.processes().unwrap_or_default();
    let (mut open, mut sockets, mut limit) = (0, 0, None);
    for pid in &pids {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for entry in entries.flatten() {
            open += 1;
            let target = fs::read_link(entry.path()).unwrap_or_default();
            sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
        }
        limit = limit.or_else(|| open_files_limit(*pid));
    }
    sheet.put("container_processes", &[], pids.len() as u64);
    sheet.put("container_file_descriptors", &[], open);
    sheet.put("container_sockets", &[], sockets);
    if let Some(limit) = limit {
        sheet.put("container_ulimits_soft", &["max_open_files"], limit);
    }
}

fn open_files_limit(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The writable layer and the file system it is on.
pub(super) fn file_system(images: &ImageStore, container: &Container, sheet: &mut Sheet) {
    let (bytes, _) = images.snapshot_usage(container.id()).unwrap_or_default();
    sheet.put("container_fs_usage_bytes", &[""], bytes);
    if let Ok(known) = rustix::fs::statvfs(Path::new(&container.row.upper)) {
        sheet.put("container_fs_limit_bytes", &[""], known.f_blocks.saturating_mul(known.f_frsize));
        sheet.put("container_fs_inodes_total", &[""], known.f_files);
        sheet.put("container_fs_inodes_free", &[""], known.f_ffree);
    }
}

/// The pod's links.
pub(super) fn links(sandbox: &Sandbox, sheet: &mut Sheet) {
    let Some(netns) = sandbox.netns() else { return };
    let Ok(netns) = podwire_linux::netns::Netns::open(&netns) else { return };
    let Ok(Ok(text)) = netns.run(|| fs::read_to_string("/proc/thread-self/net/dev")) else { return };
    for line in text.lines() {
        let Some((name, counters)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = counters.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        let name = name.trim();
        if name == "lo" || numbers.len() < 16 {
            continue;
        }
        for (metric, at) in [
            ("container_network_receive_bytes_total", 0),
            ("container_network_receive_packets_total", 1),
            ("container_network_receive_errors_total", 2),
            ("container_network_receive_packets_dropped_total", 3),
            ("container_network_transmit_bytes_total", 8),
            ("container_network_transmit_packets_total", 9),
            ("container_network_transmit_errors_total", 10),
            ("container_network_transmit_packets_dropped_total", 11),
        ] {
            sheet.put(metric, &[name], numbers[at]);
        }
    }
}
