//! An OCI spec in NRI's words.

mod parts;

use oci_spec::runtime::{LinuxResources as OciResources, Spec};
use podwire_wire::nri::{
    Container, HugepageLimit, LinuxContainer, LinuxCpu, LinuxDevice, LinuxMemory, LinuxNamespace,
    LinuxNetDevice, LinuxPids, LinuxResources, Mount, OptionalBool, OptionalFileMode, OptionalInt,
    OptionalInt64, OptionalUInt32, OptionalUInt64, PosixRlimit, User,
};

pub use self::parts::seccomp;

/// What plugins are told of a container's spec, but for its seccomp filter; identity, labels and state are the runtime's to add.
pub fn describe(spec: &Spec) -> Container {
    let process = spec.process().as_ref();
    let mounts = spec.mounts().iter().flatten().map(|mount| Mount {
        destination: mount.destination().to_string_lossy().into_owned(),
        r#type: mount.typ().clone().unwrap_or_default(),
        source: mount.source().as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
        options: mount.options().clone().unwrap_or_default(),
    });
    Container {
        args: process.and_then(|process| process.args().clone()).unwrap_or_default(),
        env: process.and_then(|process| process.env().clone()).unwrap_or_default(),
        mounts: mounts.collect(),
        annotations: spec.annotations().clone().unwrap_or_default().into_iter().collect(),
        rlimits: process
            .and_then(|process| process.rlimits().as_ref())
            .into_iter()
            .flatten()
            .map(|limit| PosixRlimit {
                r#type: name_of(&limit.typ()),
                hard: limit.hard(),
                soft: limit.soft(),
            })
            .collect(),
        user: process.map(|process| User {
            uid: process.user().uid(),
            gid: process.user().gid(),
            additional_gids: process.user().additional_gids().clone().unwrap_or_default(),
        }),
        hooks: parts::hooks(spec),
        linux: Some(linux(spec)),
        ..Container::default()
    }
}

/// The name an enum of the specification has in JSON.
fn name_of(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn linux(spec: &Spec) -> LinuxContainer {
    let Some(linux) = spec.linux() else { return LinuxContainer::default() };
    let path = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
    let namespaces = linux.namespaces().iter().flatten().map(|one| LinuxNamespace {
        r#type: name_of(&one.typ()),
        path: one.path().as_ref().map(path).unwrap_or_default(),
    });
    let devices = linux.devices().iter().flatten().map(|one| LinuxDevice {
        path: path(one.path()),
        r#type: name_of(&one.typ()),
        major: one.major(),
        minor: one.minor(),
        file_mode: one.file_mode().map(|value| OptionalFileMode { value }),
        uid: one.uid().map(|value| OptionalUInt32 { value }),
        gid: one.gid().map(|value| OptionalUInt32 { value }),
    });
    let score = spec.process().as_ref().and_then(|process| process.oom_score_adj());
    LinuxContainer {
        namespaces: namespaces.collect(),
        devices: devices.collect(),
        resources: linux.resources().as_ref().map(resources_from_oci),
        oom_score_adj: score.map(|score| OptionalInt { value: i64::from(score) }),
        cgroups_path: linux.cgroups_path().as_ref().map(path).unwrap_or_default(),
        sysctl: linux.sysctl().clone().unwrap_or_default(),
        net_devices: linux
            .net_devices()
            .iter()
            .flatten()
            .map(|(key, device)| {
                (key.clone(), LinuxNetDevice { name: device.name().clone().unwrap_or_default() })
            })
            .collect(),
        io_priority: parts::io_priority(spec),
        scheduler: parts::scheduler(spec),
        rdt: parts::rdt(spec),
        ..LinuxContainer::default()
    }
}

/// Limits in NRI's words.
pub fn resources_from_oci(resources: &OciResources) -> LinuxResources {
    let int = |value: Option<i64>| value.map(|value| OptionalInt64 { value });
    let unsigned = |value: Option<u64>| value.map(|value| OptionalUInt64 { value });
    let memory = resources.memory().as_ref().map(|memory| LinuxMemory {
        limit: int(memory.limit()),
        reservation: int(memory.reservation()),
        swap: int(memory.swap()),
        kernel_tcp: int(memory.kernel_tcp()),
        swappiness: unsigned(memory.swappiness()),
        disable_oom_killer: memory.disable_oom_killer().map(|value| OptionalBool { value }),
        use_hierarchy: memory.use_hierarchy().map(|value| OptionalBool { value }),
        ..LinuxMemory::default()
    });
    let cpu = resources.cpu().as_ref().map(|cpu| LinuxCpu {
        shares: unsigned(cpu.shares()),
        quota: int(cpu.quota()),
        period: unsigned(cpu.period()),
        realtime_runtime: int(cpu.realtime_runtime()),
        realtime_period: unsigned(cpu.realtime_period()),
        cpus: cpu.cpus().clone().unwrap_or_default(),
        mems: cpu.mems().clone().unwrap_or_default(),
    });
    let pages = resources.hugepage_limits().iter().flatten().map(|limit| HugepageLimit {
        page_size: limit.page_size().clone(),
        limit: u64::try_from(limit.limit()).unwrap_or_default(),
    });
    LinuxResources {
        memory,
        cpu,
        hugepage_limits: pages.collect(),
        unified: resources.unified().clone().unwrap_or_default(),
        pids: resources
            .pids()
            .as_ref()
            .and_then(|pids| serde_json::to_value(pids).ok()?["limit"].as_i64())
            .map(|limit| LinuxPids { limit }),
        devices: parts::device_rules(resources),
        ..LinuxResources::default()
    }
}
