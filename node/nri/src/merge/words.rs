//! What plugins want, in one line for people. Pure.

use podwire_wire::nri::{
    ContainerAdjustment, ContainerEviction, ContainerUpdate, LinuxContainerAdjustment, LinuxResources,
};

/// Everything a plugin wants changed; empty if nothing.
pub(crate) fn requested(
    adjust: Option<&ContainerAdjustment>,
    updates: &[ContainerUpdate],
    evictions: &[ContainerEviction],
) -> String {
    let mut words = adjust.map(adjustment).unwrap_or_default();
    for update in updates {
        let limits = update.linux.as_ref().and_then(|linux| linux.resources.as_ref()).map(limits);
        words.push(format!(
            "update {} ({})",
            short(&update.container_id),
            limits.unwrap_or_default().join(" ")
        ));
    }
    words.extend(evictions.iter().map(|one| format!("evict {} ({})", short(&one.container_id), one.reason)));
    words.join("; ")
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// `what a, b` if there is anything.
fn named<'a>(words: &mut Vec<String>, what: &str, names: impl Iterator<Item = &'a str>) {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    if !names.is_empty() {
        words.push(format!("{what} {}", names.join(", ")));
    }
}

fn adjustment(wanted: &ContainerAdjustment) -> Vec<String> {
    let mut words = Vec::new();
    named(&mut words, "env", wanted.env.iter().map(|one| one.key.as_str()));
    if !wanted.args.is_empty() {
        words.push(format!("args {}", wanted.args.join(" ")));
    }
    named(&mut words, "annotations", wanted.annotations.keys().map(String::as_str));
    named(&mut words, "mounts", wanted.mounts.iter().map(|one| one.destination.as_str()));
    named(&mut words, "rlimits", wanted.rlimits.iter().map(|one| one.r#type.as_str()));
    named(&mut words, "CDI devices", wanted.cdi_devices.iter().map(|one| one.name.as_str()));
    if let Some(hooks) = &wanted.hooks {
        let lists = [
            &hooks.prestart,
            &hooks.create_runtime,
            &hooks.create_container,
            &hooks.start_container,
            &hooks.poststart,
            &hooks.poststop,
        ];
        named(&mut words, "hooks", lists.into_iter().flatten().map(|one| one.path.as_str()));
    }
    if let Some(linux) = &wanted.linux {
        self::linux(&mut words, linux);
    }
    words
}

fn linux(words: &mut Vec<String>, wanted: &LinuxContainerAdjustment) {
    named(words, "devices", wanted.devices.iter().map(|one| one.path.as_str()));
    named(words, "network devices", wanted.net_devices.keys().map(String::as_str));
    named(words, "namespaces", wanted.namespaces.iter().map(|one| one.r#type.as_str()));
    named(words, "sysctls", wanted.sysctl.keys().map(String::as_str));
    if let Some(resources) = &wanted.resources {
        words.extend(Some(limits(resources).join(" ")).filter(|text| !text.is_empty()));
    }
    if !wanted.cgroups_path.is_empty() {
        words.push(format!("cgroup {}", wanted.cgroups_path));
    }
    if let Some(score) = &wanted.oom_score_adj {
        words.push(format!("oom score {}", score.value));
    }
    for (what, set) in [
        ("I/O priority", wanted.io_priority.is_some()),
        ("seccomp policy", wanted.seccomp_policy.is_some()),
        ("scheduler", wanted.scheduler.is_some()),
        ("RDT", wanted.rdt.is_some()),
        ("memory policy", wanted.memory_policy.is_some()),
    ] {
        if set {
            words.push(what.to_owned());
        }
    }
}

fn limits(wanted: &LinuxResources) -> Vec<String> {
    let mut words = Vec::new();
    let mut set = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name}={value}")));
    };
    if let Some(cpu) = &wanted.cpu {
        set("cpu.shares", cpu.shares.as_ref().map(|one| one.value.to_string()));
        set("cpu.quota", cpu.quota.as_ref().map(|one| one.value.to_string()));
        set("cpu.period", cpu.period.as_ref().map(|one| one.value.to_string()));
        set("cpus", Some(cpu.cpus.clone()).filter(|text| !text.is_empty()));
        set("mems", Some(cpu.mems.clone()).filter(|text| !text.is_empty()));
    }
    if let Some(memory) = &wanted.memory {
        set("memory.limit", memory.limit.as_ref().map(|one| one.value.to_string()));
        set("memory.reservation", memory.reservation.as_ref().map(|one| one.value.to_string()));
        set("memory.swap", memory.swap.as_ref().map(|one| one.value.to_string()));
    }
    set("pids", wanted.pids.as_ref().map(|one| one.limit.to_string()));
    set("blockio", wanted.blockio_class.as_ref().map(|one| one.value.clone()));
    set("rdt", wanted.rdt_class.as_ref().map(|one| one.value.clone()));
    for one in &wanted.hugepage_limits {
        set(&format!("hugepages.{}", one.page_size), Some(one.limit.to_string()));
    }
    for (key, value) in &wanted.unified {
        set(key, Some(value.clone()));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_wire::nri::{KeyValue, LinuxCpu, Mount, OptionalUInt64};

    #[test]
    fn what_is_requested_is_told_in_one_line() {
        let cpu = LinuxCpu { shares: Some(OptionalUInt64 { value: 7 }), ..LinuxCpu::default() };
        let resources = LinuxResources { cpu: Some(cpu), ..LinuxResources::default() };
        let adjust = ContainerAdjustment {
            env: vec![
                KeyValue { key: "B".into(), ..KeyValue::default() },
                KeyValue { key: "-A".into(), ..KeyValue::default() },
            ],
            mounts: vec![Mount { destination: "/x".into(), ..Mount::default() }],
            linux: Some(LinuxContainerAdjustment {
                resources: Some(resources),
                ..LinuxContainerAdjustment::default()
            }),
            ..ContainerAdjustment::default()
        };
        let evict = ContainerEviction { container_id: "c".into(), reason: "noisy".into() };
        assert_eq!(
            requested(Some(&adjust), &[], &[evict]),
            "env -A, B; mounts /x; cpu.shares=7; evict c (noisy)"
        );
        assert_eq!(requested(Some(&ContainerAdjustment::default()), &[], &[]), "");
    }
}
