//! Several plugins on one container: who wins, who conflicts, what the next one sees.

use super::*;
use podwire_wire::nri::{KeyValue, LinuxCpu, LinuxDevice, LinuxNetDevice, Mount, OptionalUInt64};

fn container() -> Container {
    Container {
        id: "c".into(),
        env: vec!["PATH=/bin".into(), "A=old".into()],
        mounts: vec![Mount { destination: "/old".into(), ..Mount::default() }],
        ..Container::default()
    }
}

fn answer(adjust: ContainerAdjustment) -> CreateContainerResponse {
    CreateContainerResponse { adjust: Some(adjust), ..CreateContainerResponse::default() }
}

fn env(key: &str, value: &str) -> ContainerAdjustment {
    let env = vec![KeyValue { key: key.into(), value: value.into() }];
    ContainerAdjustment { env, ..ContainerAdjustment::default() }
}

fn mount(destination: &str) -> ContainerAdjustment {
    let mounts = vec![Mount { destination: destination.into(), ..Mount::default() }];
    ContainerAdjustment { mounts, ..ContainerAdjustment::default() }
}

fn linux(linux: LinuxContainerAdjustment) -> ContainerAdjustment {
    ContainerAdjustment { linux: Some(linux), ..ContainerAdjustment::default() }
}

fn shares(value: u64) -> LinuxResources {
    let cpu = LinuxCpu { shares: Some(OptionalUInt64 { value }), ..LinuxCpu::default() };
    LinuxResources { cpu: Some(cpu), ..LinuxResources::default() }
}

#[test]
fn the_next_plugin_sees_what_the_one_before_did() {
    let mut merged = Merged::creating(container());
    merged.created("one", answer(env("A", "new"))).unwrap();
    assert_eq!(merged.container.env, ["PATH=/bin", "A=new"]);
    merged.created("two", answer(mount("/new"))).unwrap();
    assert_eq!(merged.container.mounts.len(), 2);
    assert_eq!((merged.adjust.env.len(), merged.adjust.mounts.len()), (1, 1));
}

#[test]
fn two_plugins_on_one_key_are_a_conflict_that_names_both() {
    let mut merged = Merged::creating(container());
    merged.created("one", answer(env("A", "1"))).unwrap();
    let error = merged.created("two", answer(env("A", "2"))).unwrap_err();
    assert_eq!(error.to_string(), r#"plugins "two" and "one" both tried to set Env A of container c"#);
    merged.created("three", answer(env("B", "3"))).expect("another key is free");
}

#[test]
fn what_is_taken_away_first_may_be_set_anew() {
    let mut merged = Merged::creating(container());
    merged.created("one", answer(mount("/x"))).unwrap();
    let mut swap = mount("-/x");
    swap.mounts.extend(mount("/x").mounts);
    merged.created("two", answer(swap)).unwrap();
    let destinations: Vec<_> = merged.adjust.mounts.iter().map(|one| one.destination.as_str()).collect();
    assert_eq!(destinations, ["-/x", "/x"]);
    merged.created("three", answer(mount("-/old"))).unwrap();
    assert_eq!(
        merged.container.mounts.iter().map(|one| one.destination.as_str()).collect::<Vec<_>>(),
        ["/x"]
    );
}

#[test]
fn annotations_and_net_devices_have_keys_of_their_own() {
    let mut merged = Merged::creating(container());
    let annotate = |key: &str| ContainerAdjustment {
        annotations: [(key.to_owned(), "v".to_owned())].into(),
        ..ContainerAdjustment::default()
    };
    merged.created("one", answer(annotate("a"))).unwrap();
    merged.created("two", answer(annotate("b"))).unwrap();
    assert!(merged.created("three", answer(annotate("a"))).is_err());
    let nic = |key: &str| {
        let net_devices = [(key.to_owned(), LinuxNetDevice { name: "net1".into() })].into();
        linux(LinuxContainerAdjustment { net_devices, ..LinuxContainerAdjustment::default() })
    };
    merged.created("one", answer(nic("eth9"))).unwrap();
    let error = merged.created("two", answer(nic("eth9"))).unwrap_err();
    assert!(error.to_string().contains("LinuxNetDevices eth9"), "{error}");
}

#[test]
fn limits_are_owned_one_by_one() {
    let mut merged = Merged::creating(container());
    let with = |resources| {
        linux(LinuxContainerAdjustment { resources: Some(resources), ..LinuxContainerAdjustment::default() })
    };
    merged.created("one", answer(with(shares(7)))).unwrap();
    let cpus = LinuxCpu { cpus: "0-1".into(), ..LinuxCpu::default() };
    merged
        .created("two", answer(with(LinuxResources { cpu: Some(cpus), ..LinuxResources::default() })))
        .unwrap();
    let cpu = merged.adjust.linux.as_ref().unwrap().resources.as_ref().unwrap().cpu.as_ref().unwrap();
    assert_eq!((cpu.shares, cpu.cpus.as_str()), (Some(OptionalUInt64 { value: 7 }), "0-1"));
    assert!(merged.created("three", answer(with(shares(8)))).is_err());
}

#[test]
fn hooks_add_up_and_devices_do_not() {
    let mut merged = Merged::creating(container());
    let hooks = Hooks { poststop: vec![podwire_wire::nri::Hook::default()], ..Hooks::default() };
    let hooked = ContainerAdjustment { hooks: Some(hooks), ..ContainerAdjustment::default() };
    merged.created("one", answer(hooked.clone())).unwrap();
    merged.created("two", answer(hooked)).unwrap();
    assert_eq!(merged.adjust.hooks.as_ref().unwrap().poststop.len(), 2);
    assert_eq!(merged.owners().owners["c"].simple[&(Field::OciHooks as i32)], "one,two");
    let device = linux(LinuxContainerAdjustment {
        devices: vec![LinuxDevice { path: "/dev/x".into(), ..LinuxDevice::default() }],
        ..LinuxContainerAdjustment::default()
    });
    merged.created("one", answer(device.clone())).unwrap();
    assert!(merged.created("two", answer(device)).is_err());
}

#[test]
fn arguments_are_replaced_whole_and_only_after_being_cleared() {
    let mut merged = Merged::creating(container());
    let args = |list: &[&str]| ContainerAdjustment {
        args: list.iter().map(|one| (*one).to_owned()).collect(),
        ..ContainerAdjustment::default()
    };
    merged.created("one", answer(args(&["a"]))).unwrap();
    assert!(merged.created("two", answer(args(&["b"]))).is_err());
    let mut merged = Merged::creating(container());
    merged.created("one", answer(args(&["a"]))).unwrap();
    merged.created("two", answer(args(&["", "b"]))).unwrap();
    assert_eq!(merged.adjust.args, ["b"]);
}

#[test]
fn updates_of_others_are_merged_and_a_failure_may_be_ignored() {
    let update = |ignore_failure| ContainerUpdate {
        container_id: "other".into(),
        linux: Some(LinuxContainerUpdate { resources: Some(shares(5)) }),
        ignore_failure,
    };
    let mut merged = Merged::creating(container());
    merged.update("one", vec![update(false)]).unwrap();
    merged.update("two", vec![update(true)]).expect("ignored");
    assert!(merged.update("three", vec![update(false)]).is_err());
    assert_eq!(merged.updates.len(), 1);
    let own = ContainerUpdate { container_id: "c".into(), ..update(false) };
    assert!(matches!(merged.update("one", vec![own.clone()]), Err(Conflict::SelfUpdate { .. })));
    let mut updating = Merged::updating(container(), shares(1));
    updating.update("one", vec![own]).unwrap();
    assert_eq!(updating.resources, shares(5));
}
