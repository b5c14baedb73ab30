//! What pods and containers use, from their cgroups and network namespaces.

use std::path::Path;

use podwire_image::ImageStore;
use podwire_linux::cgroup::{self, PressureStats, Stats};
use podwire_wire::cri;

use crate::{
    context::Context,
    host,
    model::{Container, Sandbox},
    recovery::records::{ContainerPhase, SandboxPhase},
};

fn value(value: u64) -> Option<cri::UInt64Value> {
    Some(cri::UInt64Value { value })
}

/// The counters of a cgroup; all zero when it is gone.
pub(crate) fn read(path: &str) -> Stats {
    match cgroup::group(path) {
        Ok(group) => group.stats(),
        Err(_) => Stats::default(),
    }
}

fn psi(pressure: Option<&PressureStats>) -> Option<cri::PsiStats> {
    // The kernel gives two decimals, kept as hundredths.
    let share = |hundredths: u64| f64::from(u32::try_from(hundredths).unwrap_or(u32::MAX)) / 100.0;
    let data = |line: &([u64; 3], u64)| cri::PsiData {
        total: line.1,
        avg10: share(line.0[0]),
        avg60: share(line.0[1]),
        avg300: share(line.0[2]),
    };
    pressure
        .map(|pressure| cri::PsiStats { full: Some(data(&pressure.full)), some: Some(data(&pressure.some)) })
}

fn cpu(stats: &Stats, timestamp: i64) -> cri::CpuUsage {
    cri::CpuUsage {
        timestamp,
        usage_core_nano_seconds: value(stats.cpu_usage_ns),
        usage_nano_cores: None,
        psi: psi(stats.cpu_pressure.as_ref()),
    }
}

fn memory(stats: &Stats, timestamp: i64) -> cri::MemoryUsage {
    let memory = &stats.memory;
    cri::MemoryUsage {
        timestamp,
        working_set_bytes: value(memory.working_set),
        available_bytes: memory
            .limit
            .map(|limit| cri::UInt64Value { value: limit.saturating_sub(memory.working_set) }),
        usage_bytes: value(memory.usage),
        rss_bytes: value(memory.rss),
        page_faults: value(memory.page_faults),
        major_page_faults: value(memory.major_page_faults),
        psi: psi(stats.memory_pressure.as_ref()),
    }
}

fn io(stats: &Stats, timestamp: i64) -> Option<cri::IoUsage> {
    stats.io_pressure.as_ref().map(|pressure| cri::IoUsage { timestamp, psi: psi(Some(pressure)) })
}

/// One container's use. Blocks.
pub(crate) fn container(images: &ImageStore, container: &Container) -> cri::ContainerStats {
    let timestamp = host::now();
    let attributes = Some(cri::ContainerAttributes {
        id: container.id().to_string(),
        metadata: container.config.metadata.clone(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
    });
    let writable_layer =
        images.snapshot_usage(container.id()).ok().map(|(bytes, inodes)| cri::FilesystemUsage {
            timestamp,
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: parent(&container.row.upper) }),
            used_bytes: value(bytes),
            inodes_used: value(inodes),
        });
    if container.phase() != ContainerPhase::Running {
        return cri::ContainerStats { attributes, writable_layer, ..Default::default() };
    }
    let stats = read(&container.cgroup());
    let swap =
        cri::SwapUsage { timestamp, swap_available_bytes: None, swap_usage_bytes: value(stats.memory.swap) };
    cri::ContainerStats {
        attributes,
        cpu: Some(cpu(&stats, timestamp)),
        memory: Some(memory(&stats, timestamp)),
        writable_layer,
        swap: Some(swap),
        io: io(&stats, timestamp),
    }
}

fn parent(path: &str) -> String {
    Path::new(path).parent().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

/// One pod's use with that of its containers. Blocks.
pub(crate) fn sandbox(ctx: &Context, sandbox: &Sandbox) -> cri::PodSandboxStats {
    let timestamp = host::now();
    let attributes = Some(cri::PodSandboxAttributes {
        id: sandbox.id.to_string(),
        metadata: sandbox.config.metadata.clone(),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
    });
    let members = ctx.registry.containers_of(&sandbox.id);
    let running = members.iter().filter(|member| member.phase() == ContainerPhase::Running);
    let containers: Vec<_> = running.map(|member| container(&ctx.images, member)).collect();
    let stats = read(&ctx.cgroup_parent(&sandbox.config));
    let linux = cri::LinuxPodSandboxStats {
        cpu: Some(cpu(&stats, timestamp)),
        memory: Some(memory(&stats, timestamp)),
        network: network(sandbox, timestamp),
        process: Some(cri::ProcessUsage { timestamp, process_count: value(stats.pids_current) }),
        containers,
        io: io(&stats, timestamp),
    };
    cri::PodSandboxStats { attributes, linux: Some(linux) }
}

/// Counters of the pod's links, read inside its namespace.
fn network(sandbox: &Sandbox, timestamp: i64) -> Option<cri::NetworkUsage> {
    if sandbox.phase() != SandboxPhase::Ready {
        return None;
    }
    let links = links(sandbox)?;
    let default_interface = links.iter().find(|link| link.name == "eth0").cloned();
    let interfaces = links.into_iter().filter(|link| link.name != "eth0" && link.name != "lo").collect();
    Some(cri::NetworkUsage { timestamp, default_interface, interfaces })
}

/// All links of the pod with their counters.
pub(crate) fn links(sandbox: &Sandbox) -> Option<Vec<cri::NetworkInterfaceUsage>> {
    let netns = podwire_linux::netns::Netns::open(&sandbox.netns()?).ok()?;
    let text = netns.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).ok()?.ok()?;
    Some(text.lines().filter_map(link).collect())
}

/// One line of /proc/net/dev.
fn link(line: &str) -> Option<cri::NetworkInterfaceUsage> {
    let (name, counters) = line.split_once(':')?;
    let numbers: Vec<u64> = counters.split_whitespace().filter_map(|text| text.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).map(|value| cri::UInt64Value { value: *value });
    Some(cri::NetworkInterfaceUsage {
        name: name.trim().to_owned(),
        rx_bytes: at(0),
        rx_errors: at(2),
        tx_bytes: at(8),
        tx_errors: at(10),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_net_dev_is_read() {
        let line = "  eth0:     100       2    3    0    0     0          0         0      200       4    5    0    0     0       0          0";
        let usage = link(line).unwrap();
        let numbers = [usage.rx_bytes, usage.rx_errors, usage.tx_bytes, usage.tx_errors]
            .map(|value| value.unwrap().value);
        assert_eq!((usage.name.as_str(), numbers), ("eth0", [100, 3, 200, 5]));
        assert!(link("Inter-|   Receive  |  Transmit").is_none());
    }
}
