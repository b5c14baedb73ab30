//! The rarer parts of a spec in NRI's words: hooks, priorities, cache classes, filters, device rules.

use oci_spec::runtime::{Hook as OciHook, LinuxResources as OciResources, Spec};
use podwire_wire::nri::{
    Hook, Hooks, IoPrioClass, LinuxDeviceCgroup, LinuxIoPriority, LinuxRdt, LinuxScheduler,
    LinuxSchedulerFlag, LinuxSchedulerPolicy, LinuxSeccomp, LinuxSeccompArg, LinuxSyscall, OptionalBool,
    OptionalInt, OptionalInt64, OptionalRepeatedString, OptionalString, OptionalUInt32,
};
use serde_json::Value;

use super::name_of;

pub(super) fn hooks(spec: &Spec) -> Option<Hooks> {
    let all = spec.hooks().as_ref()?;
    let list = |hooks: Option<&Vec<OciHook>>| hooks.into_iter().flatten().map(hook).collect();
    Some(Hooks {
        prestart: json_hooks(all, "prestart"),
        create_runtime: list(all.create_runtime().as_ref()),
        create_container: list(all.create_container().as_ref()),
        start_container: list(all.start_container().as_ref()),
        poststart: list(all.poststart().as_ref()),
        poststop: list(all.poststop().as_ref()),
    })
}

/// Hooks of a kind that the specification calls outdated, and the crate with it.
fn json_hooks(all: &oci_spec::runtime::Hooks, kind: &str) -> Vec<Hook> {
    let found = serde_json::to_value(all).ok().map(|all| all[kind].clone()).unwrap_or_default();
    let hooks: Vec<OciHook> = serde_json::from_value(found).unwrap_or_default();
    hooks.iter().map(hook).collect()
}

fn hook(one: &OciHook) -> Hook {
    Hook {
        path: one.path().to_string_lossy().into_owned(),
        args: one.args().clone().unwrap_or_default(),
        env: one.env().clone().unwrap_or_default(),
        timeout: one.timeout().map(|value| OptionalInt { value }),
    }
}

pub(super) fn io_priority(spec: &Spec) -> Option<LinuxIoPriority> {
    let priority = spec.process().as_ref()?.io_priority().as_ref()?;
    let class = IoPrioClass::from_str_name(&name_of(&priority.class())).unwrap_or_default();
    let level = i32::try_from(priority.priority()).unwrap_or_default();
    Some(LinuxIoPriority { class: class as i32, priority: level })
}

pub(super) fn scheduler(spec: &Spec) -> Option<LinuxScheduler> {
    let known = spec.process().as_ref()?.scheduler().as_ref()?;
    let policy = LinuxSchedulerPolicy::from_str_name(&name_of(known.policy())).unwrap_or_default();
    let flag = |flag| LinuxSchedulerFlag::from_str_name(&name_of(flag)).unwrap_or_default() as i32;
    Some(LinuxScheduler {
        policy: policy as i32,
        nice: known.nice().unwrap_or_default(),
        priority: known.priority().unwrap_or_default(),
        flags: known.flags().iter().flatten().map(flag).collect(),
        runtime: known.runtime().unwrap_or_default(),
        deadline: known.deadline().unwrap_or_default(),
        period: known.period().unwrap_or_default(),
    })
}

pub(super) fn rdt(spec: &Spec) -> Option<LinuxRdt> {
    let known = spec.linux().as_ref()?.intel_rdt().as_ref()?;
    let json = serde_json::to_value(known).ok()?;
    Some(LinuxRdt {
        clos_id: known.clos_id().clone().map(|value| OptionalString { value }),
        schemata: known.schemata().clone().map(|value| OptionalRepeatedString { value }),
        enable_monitoring: json["enableMonitoring"].as_bool().map(|value| OptionalBool { value }),
        remove: false,
    })
}

pub(super) fn device_rules(resources: &OciResources) -> Vec<LinuxDeviceCgroup> {
    let number = |value: Option<i64>| value.map(|value| OptionalInt64 { value });
    let rule = |one: &oci_spec::runtime::LinuxDeviceCgroup| LinuxDeviceCgroup {
        allow: one.allow(),
        r#type: one.typ().as_ref().map(name_of).unwrap_or_default(),
        major: number(one.major()),
        minor: number(one.minor()),
        access: one.access().clone().unwrap_or_default(),
    };
    resources.devices().iter().flatten().map(rule).collect()
}

/// The filter of a spec in NRI's words; apart from the rest, because runtimes have large ones of their own.
pub fn seccomp(spec: &Spec) -> Option<LinuxSeccomp> {
    let policy = serde_json::to_value(spec.linux().as_ref()?.seccomp().as_ref()?).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let errno = |value: &Value| {
        value.as_u64().and_then(|value| u32::try_from(value).ok()).map(|value| OptionalUInt32 { value })
    };
    let argument = |arg: &Value| LinuxSeccompArg {
        index: arg["index"].as_u64().and_then(|index| u32::try_from(index).ok()).unwrap_or_default(),
        value: arg["value"].as_u64().unwrap_or_default(),
        value_two: arg["valueTwo"].as_u64().unwrap_or_default(),
        op: text(&arg["op"]),
    };
    let call = |call: &Value| LinuxSyscall {
        names: texts(&call["names"]),
        action: text(&call["action"]),
        errno_ret: errno(&call["errnoRet"]),
        args: call["args"].as_array().into_iter().flatten().map(argument).collect(),
    };
    Some(LinuxSeccomp {
        default_action: text(&policy["defaultAction"]),
        default_errno: errno(&policy["defaultErrnoRet"]),
        architectures: texts(&policy["architectures"]),
        flags: texts(&policy["flags"]),
        listener_path: text(&policy["listenerPath"]),
        listener_metadata: text(&policy["listenerMetadata"]),
        syscalls: policy["syscalls"].as_array().into_iter().flatten().map(call).collect(),
    })
}
