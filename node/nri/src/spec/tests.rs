//! Every kind of adjustment, on a spec, and back in NRI's words.

use super::*;
use podwire_wire::nri::{
    CdiDevice, KeyValue, LinuxCpu, LinuxIoPriority, LinuxMemory, LinuxMemoryPolicy, LinuxNamespace,
    LinuxNetDevice, LinuxPids, LinuxRdt, LinuxSyscall, Mount, OptionalInt, OptionalInt64, OptionalString,
    OptionalUInt64, PosixRlimit,
};

fn spec() -> Spec {
    serde_json::from_value(json!({
        "ociVersion": "1.1.0",
        "process": {"cwd": "/", "user": {"uid": 0, "gid": 0}, "args": ["old"], "env": ["PATH=/bin", "GONE=1"]},
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "annotations": {"keep": "1", "drop": "1"},
        "linux": {
            "namespaces": [{"type": "mount"}, {"type": "network", "path": "/run/ns"}],
            "resources": {"cpu": {"shares": 2}, "memory": {"limit": 100}},
        },
    }))
    .unwrap()
}

fn mount(destination: &str) -> Mount {
    Mount {
        destination: destination.into(),
        r#type: "bind".into(),
        source: "/src".into(),
        options: vec!["ro".into()],
    }
}

#[test]
fn every_kind_of_adjustment_reaches_the_spec() {
    let cpu = LinuxCpu { quota: Some(OptionalInt64 { value: 5 }), cpus: "0".into(), ..LinuxCpu::default() };
    let resources = LinuxResources {
        cpu: Some(cpu),
        memory: Some(LinuxMemory { swap: Some(OptionalInt64 { value: 7 }), ..LinuxMemory::default() }),
        pids: Some(LinuxPids { limit: 9 }),
        unified: [("memory.high".to_owned(), "1".to_owned())].into(),
        ..LinuxResources::default()
    };
    let linux = LinuxContainerAdjustment {
        devices: vec![LinuxDevice {
            path: "/dev/nic".into(),
            r#type: "c".into(),
            major: 1,
            minor: 2,
            ..LinuxDevice::default()
        }],
        resources: Some(resources),
        cgroups_path: "/pod/x".into(),
        oom_score_adj: Some(OptionalInt { value: -5 }),
        io_priority: Some(LinuxIoPriority { class: IoPrioClass::IoprioClassBe as i32, priority: 3 }),
        seccomp_policy: Some(LinuxSeccomp {
            default_action: "SCMP_ACT_ALLOW".into(),
            syscalls: vec![LinuxSyscall {
                names: vec!["reboot".into()],
                action: "SCMP_ACT_ERRNO".into(),
                ..LinuxSyscall::default()
            }],
            ..LinuxSeccomp::default()
        }),
        namespaces: vec![
            LinuxNamespace { r#type: "-network".into(), ..LinuxNamespace::default() },
            LinuxNamespace { r#type: "ipc".into(), path: "/run/ipc".into() },
        ],
        sysctl: [("net.core.somaxconn".to_owned(), "1".to_owned())].into(),
        net_devices: [("eth9".to_owned(), LinuxNetDevice { name: "net1".into() })].into(),
        rdt: Some(LinuxRdt { clos_id: Some(OptionalString { value: "gold".into() }), ..LinuxRdt::default() }),
        memory_policy: Some(LinuxMemoryPolicy {
            mode: MpolMode::MpolBind as i32,
            nodes: "0".into(),
            flags: vec![],
        }),
        ..LinuxContainerAdjustment::default()
    };
    let adjust = ContainerAdjustment {
        annotations: [("-drop".to_owned(), String::new()), ("new".to_owned(), "v".to_owned())].into(),
        mounts: vec![mount("/data"), Mount { destination: "-/proc".into(), ..Mount::default() }],
        env: vec![
            KeyValue { key: "A".into(), value: "b".into() },
            KeyValue { key: "-GONE".into(), value: String::new() },
        ],
        args: vec!["new".into(), "arg".into()],
        hooks: Some(Hooks {
            poststop: vec![Hook { path: "/bin/h".into(), ..Hook::default() }],
            ..Hooks::default()
        }),
        rlimits: vec![PosixRlimit { r#type: "RLIMIT_NOFILE".into(), hard: 9, soft: 8 }],
        cdi_devices: vec![CdiDevice { name: "example.com/nic=0".into() }],
        linux: Some(linux),
    };
    let mut spec = spec();
    let applied = apply(&adjust, &mut spec).unwrap();
    assert_eq!(applied.cdi_devices, ["example.com/nic=0"]);
    let value = serde_json::to_value(&spec).unwrap();
    for (pointer, expected) in [
        ("/annotations", json!({"keep": "1", "new": "v"})),
        ("/mounts/0/destination", json!("/data")),
        ("/process/args", json!(["new", "arg"])),
        ("/process/env", json!(["PATH=/bin", "A=b"])),
        ("/process/rlimits/0/soft", json!(8)),
        ("/process/oomScoreAdj", json!(-5)),
        ("/process/ioPriority/class", json!("IOPRIO_CLASS_BE")),
        ("/hooks/poststop/0/path", json!("/bin/h")),
        ("/linux/devices/0/path", json!("/dev/nic")),
        ("/linux/resources/devices/0/access", json!("rw")),
        ("/linux/resources/cpu/shares", json!(2)),
        ("/linux/resources/cpu/quota", json!(5)),
        ("/linux/resources/cpu/cpus", json!("0")),
        ("/linux/resources/memory/limit", json!(100)),
        ("/linux/resources/memory/swap", json!(7)),
        ("/linux/resources/pids/limit", json!(9)),
        ("/linux/resources/unified/memory.high", json!("1")),
        ("/linux/cgroupsPath", json!("/pod/x")),
        ("/linux/namespaces/1/type", json!("ipc")),
        ("/linux/sysctl/net.core.somaxconn", json!("1")),
        ("/linux/netDevices/eth9/name", json!("net1")),
        ("/linux/seccomp/syscalls/0/names/0", json!("reboot")),
        ("/linux/intelRdt/closID", json!("gold")),
        ("/linux/memoryPolicy/mode", json!("MPOL_BIND")),
    ] {
        assert_eq!(value.pointer(pointer), Some(&expected), "{pointer} in {value:#}");
    }
    assert_eq!(value["mounts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_spec_is_described_in_nri_words() {
    let described = describe(&spec());
    assert_eq!((described.args, described.env.len()), (vec!["old".to_owned()], 2));
    assert_eq!(described.mounts[0].r#type, "proc");
    let linux = described.linux.unwrap();
    assert_eq!(
        (linux.namespaces[1].r#type.as_str(), linux.namespaces[1].path.as_str()),
        ("network", "/run/ns")
    );
    assert_eq!(linux.resources.unwrap().cpu.unwrap().shares, Some(OptionalUInt64 { value: 2 }));
}

#[test]
fn limits_laid_over_limits_keep_the_rest() {
    let mut resources = spec().linux().as_ref().unwrap().resources().clone().unwrap();
    let memory = LinuxMemory { limit: Some(OptionalInt64 { value: 50 }), ..LinuxMemory::default() };
    apply_resources(&LinuxResources { memory: Some(memory), ..LinuxResources::default() }, &mut resources)
        .unwrap();
    let back = resources_from_oci(&resources);
    assert_eq!(back.memory.unwrap().limit, Some(OptionalInt64 { value: 50 }));
    assert_eq!(back.cpu.unwrap().shares, Some(OptionalUInt64 { value: 2 }));
}

#[test]
fn nothing_wanted_changes_nothing() {
    let mut changed = spec();
    apply(&ContainerAdjustment::default(), &mut changed).unwrap();
    assert_eq!(changed, spec());
}
