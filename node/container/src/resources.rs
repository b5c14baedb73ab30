//! OCI resources as limits of a cgroup.

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, LinuxResources};
use podwire_linux::cgroup::{DeviceKind, DeviceRule, Resources};

/// The limits in `oci`.
pub fn from_oci(oci: &LinuxResources) -> Resources {
    let cpu = oci.cpu().as_ref();
    let memory = oci.memory().as_ref();
    let hugepages = oci.hugepage_limits().iter().flatten();
    Resources {
        cpu_shares: cpu.and_then(|c| c.shares()),
        cpu_quota: cpu.and_then(|c| c.quota()),
        cpu_period: cpu.and_then(|c| c.period()),
        cpu_burst: cpu.and_then(|c| c.burst()),
        cpu_idle: cpu.and_then(|c| c.idle()),
        cpuset_cpus: cpu.and_then(|c| c.cpus().clone()),
        cpuset_mems: cpu.and_then(|c| c.mems().clone()),
        memory_limit: memory.and_then(|m| m.limit()),
        memory_reservation: memory.and_then(|m| m.reservation()),
        memory_swap: memory.and_then(|m| m.swap()),
        memory_swappiness: memory.and_then(|m| m.swappiness()),
        pids_limit: oci.pids().as_ref().map(|p| p.limit()),
        blkio_weight: oci.block_io().as_ref().and_then(|b| b.weight()),
        hugepages: hugepages.map(|h| (h.page_size().clone(), h.limit())).collect(),
        devices: devices(oci.devices().as_deref().unwrap_or_default()),
        unified: oci.unified().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
    }
}

/// What every container may use besides its own list: making nodes, the standard ones, terminals.
const ALWAYS: [(Option<u32>, Option<u32>, &str); 10] = [
    (None, None, "m"),
    (Some(1), Some(3), "rwm"),
    (Some(1), Some(5), "rwm"),
    (Some(1), Some(7), "rwm"),
    (Some(1), Some(8), "rwm"),
    (Some(1), Some(9), "rwm"),
    (Some(5), Some(0), "rwm"),
    (Some(5), Some(1), "rwm"),
    (Some(5), Some(2), "rwm"),
    (Some(136), None, "rwm"),
];

fn devices(given: &[LinuxDeviceCgroup]) -> Vec<DeviceRule> {
    let mut rules: Vec<_> = given.iter().map(rule).collect();
    let denies = rules.iter().any(|rule| !rule.allow);
    if denies {
        for (major, minor, access) in &ALWAYS {
            let access = (*access).to_owned();
            rules.push(DeviceRule {
                allow: true,
                kind: DeviceKind::Char,
                major: *major,
                minor: *minor,
                access,
            });
        }
        let access = "m".to_owned();
        rules.push(DeviceRule { allow: true, kind: DeviceKind::Block, major: None, minor: None, access });
    }
    rules
}

fn rule(given: &LinuxDeviceCgroup) -> DeviceRule {
    let number = |n: Option<i64>| n.and_then(|n| u32::try_from(n).ok());
    DeviceRule {
        allow: given.allow(),
        kind: match given.typ() {
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => DeviceKind::Char,
            Some(LinuxDeviceType::B) => DeviceKind::Block,
            _ => DeviceKind::All,
        },
        major: number(given.major()),
        minor: number(given.minor()),
        access: given.access().clone().filter(|a| !a.is_empty()).unwrap_or_else(|| "rwm".to_owned()),
    }
}
