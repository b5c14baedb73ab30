//! From an OCI spec to NRI's words, and from what plugins want back to the spec. Pure.
//!
//! Changes are made on the spec's JSON form, whose names the OCI specification fixes. CDI devices and block I/O
//! classes need knowledge of the node: they are handed back to the runtime.

mod describe;

use std::collections::HashMap;

use oci_spec::runtime::{LinuxResources as OciResources, Spec};
use podwire_wire::nri::{
    ContainerAdjustment, Hook, Hooks, IoPrioClass, LinuxContainerAdjustment, LinuxDevice, LinuxResources,
    LinuxScheduler, LinuxSchedulerFlag, LinuxSchedulerPolicy, LinuxSeccomp, MpolFlag, MpolMode,
};
use serde_json::{Map, Value, json};

pub use self::describe::{describe, resources_from_oci, seccomp as describe_seccomp};

/// Why a spec could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("what NRI plugins want does not fit the container's spec")]
pub struct ApplyError(#[from] serde_json::Error);

/// What is left for the runtime to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// CDI devices to inject, by full name.
    pub cdi_devices: Vec<String>,
    /// A class of block I/O limits to look up.
    pub blockio_class: Option<String>,
}

/// Changes a spec as plugins want it.
pub fn apply(adjust: &ContainerAdjustment, spec: &mut Spec) -> Result<Applied, ApplyError> {
    let cdi_devices = adjust.cdi_devices.iter().map(|device| device.name.clone()).collect();
    let resources = adjust.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    let blockio_class =
        resources.and_then(|wanted| wanted.blockio_class.as_ref()).map(|class| class.value.clone());
    let applied = Applied { cdi_devices, blockio_class };
    let plain = ContainerAdjustment { cdi_devices: Vec::new(), ..adjust.clone() };
    if plain == ContainerAdjustment::default() {
        return Ok(applied);
    }
    let mut value = serde_json::to_value(&*spec)?;
    if !adjust.annotations.is_empty() {
        map(&mut value["annotations"], &adjust.annotations, |text| json!(text));
    }
    let mounts = adjust.mounts.iter().map(|mount| {
        let body = json!({
            "destination": mount.destination, "type": text(&mount.r#type), "source": text(&mount.source),
            "options": mount.options,
        });
        (mount.destination.as_str(), body)
    });
    list(&mut value["mounts"], "destination", mounts);
    process(&mut value["process"], adjust);
    if let Some(hooks) = &adjust.hooks {
        self::hooks(&mut value["hooks"], hooks);
    }
    if let Some(linux) = &adjust.linux {
        self::linux(&mut value, linux);
    }
    *spec = serde_json::from_value(without_nulls(value))?;
    Ok(applied)
}

/// Lays limits that plugins want over those of a container.
pub fn apply_resources(wanted: &LinuxResources, resources: &mut OciResources) -> Result<(), ApplyError> {
    let mut value = serde_json::to_value(&*resources)?;
    limits(&mut value, wanted);
    *resources = serde_json::from_value(without_nulls(value))?;
    Ok(())
}

/// An absent text is no text.
fn text(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { json!(text) }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was just made an object")
}

fn array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it was just made an array")
}

/// Removes keys marked with a dash, then sets the others.
fn map<V>(target: &mut Value, wanted: &HashMap<String, V>, body: impl Fn(&V) -> Value) {
    let target = object(target);
    for key in wanted.keys().filter_map(|key| key.strip_prefix('-')) {
        target.remove(key);
    }
    for (key, value) in wanted.iter().filter(|(key, _)| !key.starts_with('-')) {
        target.insert(key.clone(), body(value));
    }
}

/// Removes entries marked with a dash, and replaces or adds the others.
fn list<'a>(target: &mut Value, key: &str, wanted: impl Iterator<Item = (&'a str, Value)>) {
    for (name, body) in wanted {
        let plain = name.strip_prefix('-').unwrap_or(name);
        let target = array(target);
        target.retain(|old| old[key] != plain);
        if plain == name {
            target.push(body);
        }
    }
}

fn process(target: &mut Value, adjust: &ContainerAdjustment) {
    let env = array(&mut target["env"]);
    for variable in &adjust.env {
        let plain = variable.key.strip_prefix('-').unwrap_or(&variable.key);
        let same = |old: &Value| old.as_str().is_some_and(|old| old.split('=').next() == Some(plain));
        env.retain(|old| !same(old));
        if plain == variable.key {
            env.push(json!(format!("{plain}={}", variable.value)));
        }
    }
    if !adjust.args.is_empty() {
        target["args"] = json!(adjust.args);
    }
    let limits = adjust.rlimits.iter().map(|limit| {
        (limit.r#type.as_str(), json!({"type": limit.r#type, "hard": limit.hard, "soft": limit.soft}))
    });
    list(&mut target["rlimits"], "type", limits);
}

fn hooks(target: &mut Value, hooks: &Hooks) {
    let body = |hook: &Hook| {
        json!({
            "path": hook.path, "args": hook.args, "env": hook.env,
            "timeout": hook.timeout.as_ref().map(|timeout| timeout.value),
        })
    };
    for (name, list) in [
        ("prestart", &hooks.prestart),
        ("createRuntime", &hooks.create_runtime),
        ("createContainer", &hooks.create_container),
        ("startContainer", &hooks.start_container),
        ("poststart", &hooks.poststart),
        ("poststop", &hooks.poststop),
    ] {
        if !list.is_empty() {
            array(&mut target[name]).extend(list.iter().map(body));
        }
    }
}

fn linux(spec: &mut Value, wanted: &LinuxContainerAdjustment) {
    if let Some(score) = &wanted.oom_score_adj {
        spec["process"]["oomScoreAdj"] = json!(score.value);
    }
    if let Some(priority) = &wanted.io_priority {
        let class = IoPrioClass::try_from(priority.class).unwrap_or_default().as_str_name();
        spec["process"]["ioPriority"] = json!({"class": class, "priority": priority.priority});
    }
    if let Some(scheduler) = &wanted.scheduler {
        spec["process"]["scheduler"] = self::scheduler(scheduler);
    }
    let linux = &mut spec["linux"];
    list(&mut linux["devices"], "path", wanted.devices.iter().map(|one| (one.path.as_str(), device(one))));
    for one in wanted.devices.iter().filter(|one| !one.path.starts_with('-')) {
        // Upstream's rule: block devices may also be made anew.
        let access = if one.r#type == "b" { "rwm" } else { "rw" };
        array(&mut linux["resources"]["devices"]).push(json!({
            "allow": true, "type": one.r#type, "major": one.major, "minor": one.minor, "access": access,
        }));
    }
    if let Some(resources) = &wanted.resources {
        limits(&mut linux["resources"], resources);
        if let Some(class) = &resources.rdt_class {
            linux["intelRdt"]["closID"] = json!(class.value);
        }
    }
    if !wanted.cgroups_path.is_empty() {
        linux["cgroupsPath"] = json!(wanted.cgroups_path);
    }
    let namespaces = wanted
        .namespaces
        .iter()
        .map(|one| (one.r#type.as_str(), json!({"type": one.r#type, "path": text(&one.path)})));
    list(&mut linux["namespaces"], "type", namespaces);
    if !wanted.sysctl.is_empty() {
        map(&mut linux["sysctl"], &wanted.sysctl, |value| json!(value));
    }
    if !wanted.net_devices.is_empty() {
        map(&mut linux["netDevices"], &wanted.net_devices, |device| json!({"name": text(&device.name)}));
    }
    if let Some(policy) = &wanted.seccomp_policy {
        linux["seccomp"] = seccomp(policy);
    }
    if let Some(rdt) = &wanted.rdt {
        if rdt.remove {
            linux["intelRdt"] = Value::Null;
        }
        for (name, value) in [
            ("closID", rdt.clos_id.as_ref().map(|one| json!(one.value))),
            ("schemata", rdt.schemata.as_ref().map(|one| json!(one.value))),
            ("enableMonitoring", rdt.enable_monitoring.as_ref().map(|one| json!(one.value))),
        ] {
            if let Some(value) = value {
                linux["intelRdt"][name] = value;
            }
        }
    }
    if let Some(policy) = &wanted.memory_policy {
        let mode = MpolMode::try_from(policy.mode).unwrap_or_default().as_str_name();
        let flag = |flag: &i32| MpolFlag::try_from(*flag).unwrap_or_default().as_str_name();
        let flags: Vec<_> = policy.flags.iter().map(flag).collect();
        linux["memoryPolicy"] = json!({"mode": mode, "nodes": text(&policy.nodes), "flags": flags});
    }
}

fn device(one: &LinuxDevice) -> Value {
    json!({
        "path": one.path, "type": one.r#type, "major": one.major, "minor": one.minor,
        "fileMode": one.file_mode.as_ref().map(|mode| mode.value),
        "uid": one.uid.as_ref().map(|uid| uid.value),
        "gid": one.gid.as_ref().map(|gid| gid.value),
    })
}

fn scheduler(wanted: &LinuxScheduler) -> Value {
    let flag = |flag: &i32| LinuxSchedulerFlag::try_from(*flag).unwrap_or_default().as_str_name();
    json!({
        "policy": LinuxSchedulerPolicy::try_from(wanted.policy).unwrap_or_default().as_str_name(),
        "nice": wanted.nice, "priority": wanted.priority,
        "flags": wanted.flags.iter().map(flag).collect::<Vec<_>>(),
        "runtime": wanted.runtime, "deadline": wanted.deadline, "period": wanted.period,
    })
}

fn seccomp(policy: &LinuxSeccomp) -> Value {
    let syscalls = policy.syscalls.iter().map(|call| {
        let args = call.args.iter().map(|arg| {
            json!({"index": arg.index, "value": arg.value, "valueTwo": arg.value_two, "op": arg.op})
        });
        json!({
            "names": call.names, "action": call.action, "errnoRet": call.errno_ret.as_ref().map(|errno| errno.value),
            "args": args.collect::<Vec<_>>(),
        })
    });
    json!({
        "defaultAction": policy.default_action,
        "defaultErrnoRet": policy.default_errno.as_ref().map(|errno| errno.value),
        "architectures": policy.architectures, "flags": policy.flags,
        "listenerPath": text(&policy.listener_path), "listenerMetadata": text(&policy.listener_metadata),
        "syscalls": syscalls.collect::<Vec<_>>(),
    })
}

/// Lays limits over limits.
fn limits(target: &mut Value, wanted: &LinuxResources) {
    let mut set = |group: &str, name: &str, value: Option<Value>| {
        if let Some(value) = value {
            target[group][name] = value;
        }
    };
    if let Some(memory) = &wanted.memory {
        set("memory", "limit", memory.limit.as_ref().map(|one| json!(one.value)));
        set("memory", "reservation", memory.reservation.as_ref().map(|one| json!(one.value)));
        // Without a word about swap, a memory limit allows none; the old one may be below the new limit.
        let swap = memory.swap.as_ref().or(memory.limit.as_ref());
        set("memory", "swap", swap.map(|one| json!(one.value)));
        set("memory", "kernel", memory.kernel.as_ref().map(|one| json!(one.value)));
        set("memory", "kernelTCP", memory.kernel_tcp.as_ref().map(|one| json!(one.value)));
        set("memory", "swappiness", memory.swappiness.as_ref().map(|one| json!(one.value)));
        set("memory", "disableOOMKiller", memory.disable_oom_killer.as_ref().map(|one| json!(one.value)));
        set("memory", "useHierarchy", memory.use_hierarchy.as_ref().map(|one| json!(one.value)));
    }
    if let Some(cpu) = &wanted.cpu {
        let given = |text: &str| (!text.is_empty()).then(|| json!(text));
        set("cpu", "shares", cpu.shares.as_ref().map(|one| json!(one.value)));
        set("cpu", "quota", cpu.quota.as_ref().map(|one| json!(one.value)));
        set("cpu", "period", cpu.period.as_ref().map(|one| json!(one.value)));
        set("cpu", "realtimeRuntime", cpu.realtime_runtime.as_ref().map(|one| json!(one.value)));
        set("cpu", "realtimePeriod", cpu.realtime_period.as_ref().map(|one| json!(one.value)));
        set("cpu", "cpus", given(&cpu.cpus));
        set("cpu", "mems", given(&cpu.mems));
    }
    set("pids", "limit", wanted.pids.as_ref().map(|pids| json!(pids.limit)));
    let pages = wanted
        .hugepage_limits
        .iter()
        .map(|limit| (limit.page_size.as_str(), json!({"pageSize": limit.page_size, "limit": limit.limit})));
    if !wanted.hugepage_limits.is_empty() {
        list(&mut target["hugepageLimits"], "pageSize", pages);
    }
    if !wanted.unified.is_empty() {
        map(&mut target["unified"], &wanted.unified, |value| json!(value));
    }
    for rule in &wanted.devices {
        array(&mut target["devices"]).push(json!({
            "allow": rule.allow, "type": text(&rule.r#type), "access": text(&rule.access),
            "major": rule.major.as_ref().map(|one| one.value), "minor": rule.minor.as_ref().map(|one| one.value),
        }));
    }
}

#[cfg(test)]
#[path = "spec/tests.rs"]
mod tests;
