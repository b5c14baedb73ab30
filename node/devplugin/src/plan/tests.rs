//! Plans over inventories that are written down.

use super::*;
use crate::inventory::FoundRdma;

fn config(text: &str) -> Config {
    Config::parse(text).unwrap()
}

fn character(path: &str, minor: u32) -> Node {
    Node { path: path.into(), identity: Identity::Character(10, minor) }
}

fn found(named: &str, real: &str, minor: u32) -> FoundNode {
    FoundNode {
        named: named.into(),
        node: character(real, minor),
        serial: None,
        partition: false,
        numa: None,
    }
}

fn ids(offer: &Offer) -> Vec<&str> {
    offer.devices.iter().map(|device| device.id.as_str()).collect()
}

/// `count` devices `d0`, `d1`, ... each for `share` containers, on the NUMA nodes given in turn.
fn offer_of(count: u32, share: u32, numa: &[Option<u16>]) -> Offer {
    let text = format!(
        "pools: [{{resource: podwire.dev/d, share: {share}, select: [{{kind: node, path: '/dev/d*'}}]}}]"
    );
    let mut inventory = Inventory::default();
    for (number, node) in (0..count).zip(numa.iter().cycle()) {
        let path = format!("/dev/d{number}");
        inventory.nodes.push(FoundNode { numa: *node, ..found(&path, &path, number) });
    }
    plan(&config(&text), &inventory).offers.remove(0)
}

fn all_ids(offer: &Offer) -> Vec<String> {
    offer.told().into_iter().map(|device| device.id).collect()
}

fn strings(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn a_device_of_two_names_is_offered_once_by_the_first() {
    let config = config(
        "pools: [{resource: podwire.dev/a, select: [{kind: node, path: '/dev/by/*'}, {kind: node, path: '/dev/t*'}]}]",
    );
    let nodes = vec![
        found("/dev/by/x", "/dev/t1", 1),
        found("/dev/t1", "/dev/t1", 1),
        found("/dev/t2", "/dev/t2", 2),
    ];
    let plan = plan(&config, &Inventory { nodes, ..Inventory::default() });
    assert_eq!(ids(&plan.offers[0]), ["by/x", "t2"]);
    assert_eq!(plan.offers[0].devices[0].files, [Path::new("/dev/t1")], "the file behind the link is given");
    assert!(plan.conflicts.is_empty());
}

#[test]
fn a_device_in_two_pools_is_an_error_that_names_both() {
    let config = config(
        "pools: [{resource: podwire.dev/a, select: [{kind: node, path: '/dev/by/*'}]}, {resource: podwire.dev/b, select: [{kind: node, path: '/dev/t1'}]}]",
    );
    let nodes = vec![found("/dev/by/x", "/dev/t1", 1), found("/dev/t1", "/dev/t1", 1)];
    let plan = plan(&config, &Inventory { nodes, ..Inventory::default() });
    assert_eq!((ids(&plan.offers[0]), plan.offers[1].devices.len()), (vec!["by/x"], 0));
    let said = plan.conflicts[0].to_string();
    assert!(said.contains("podwire.dev/a and podwire.dev/b") && said.contains("10:1"), "{said}");
}

#[test]
fn the_files_of_a_virtual_function_belong_to_its_pool() {
    let config = config(
        "pools: [{resource: podwire.dev/vf, select: [{kind: vf, pf: ['eth*'], rdma: true}]}, {resource: podwire.dev/ib, select: [{kind: rdma, name: '*'}]}]",
    );
    let vf = FoundVf {
        address: "0000:3b:02.0".to_owned(),
        pf: vec!["eth0".to_owned()],
        rdma: vec!["mlx5_1".to_owned()],
        ..FoundVf::default()
    };
    let rdma = |name: &str, minor| FoundRdma {
        name: name.to_owned(),
        driver: None,
        verbs: vec![character(&format!("/dev/infiniband/uverbs{minor}"), minor)],
        mad: vec![character(&format!("/dev/infiniband/umad{minor}"), minor + 100)],
        numa: None,
    };
    let inventory = Inventory {
        vfs: vec![vf],
        rdma: vec![rdma("mlx5_0", 0), rdma("mlx5_1", 1)],
        rdma_cm: Some(character("/dev/infiniband/rdma_cm", 50)),
        ..Inventory::default()
    };
    let plan = plan(&config, &inventory);
    let files = &plan.offers[0].devices[0].files;
    assert_eq!(files, &[Path::new("/dev/infiniband/uverbs1"), Path::new("/dev/infiniband/rdma_cm")]);
    assert_eq!(ids(&plan.offers[1]), ["mlx5_0"], "the other is the virtual function's");
    assert!(plan.conflicts[0].to_string().contains("mlx5_1"), "{:?}", plan.conflicts);
}

#[test]
fn a_pool_that_is_too_large_says_so() {
    let config =
        config("pools: [{resource: podwire.dev/d, share: 10000, select: [{kind: node, path: '/dev/d*'}]}]");
    let nodes =
        (0..2).map(|number| found(&format!("/dev/d{number}"), &format!("/dev/d{number}"), number)).collect();
    let plan = plan(&config, &Inventory { nodes, ..Inventory::default() });
    assert!(matches!(plan.conflicts[..], [Conflict::TooMany { devices: 2, share: 10_000, .. }]));
    assert_eq!(plan.offers[0].devices.len(), 1);
}

#[test]
fn what_is_gone_stays_and_is_unhealthy_until_it_is_back() {
    let before = offer_of(2, 1, &[None]);
    let now = carried(&before, offer_of(1, 1, &[None]));
    let health = |offer: &Offer| offer.told().into_iter().map(|device| device.health).collect::<Vec<_>>();
    assert_eq!(health(&now), ["Healthy", "Unhealthy"]);
    assert_eq!(health(&carried(&now, offer_of(2, 1, &[None]))), ["Healthy", "Healthy"]);
}

#[test]
fn shares_are_ids_of_their_own_and_lead_to_one_device() {
    let offer = offer_of(1, 3, &[Some(1)]);
    assert_eq!(all_ids(&offer), ["d0#0", "d0#1", "d0#2"]);
    assert_eq!(offer.told()[0].topology.as_ref().unwrap().nodes[0].id, 1);
    for id in ["d0#2", "d0#0"] {
        assert_eq!(offer.device(id).unwrap().id, "d0");
    }
    for id in ["d0", "d0#3", "d0#01", "d0#+1", "d0#", "#0", "d1#0", ""] {
        assert!(offer.device(id).is_none(), "{id}");
    }
}

#[test]
fn a_container_is_given_each_device_once_and_told_so() {
    let given = allocate(&offer_of(2, 2, &[None]), &strings(&["d1#0", "d1#1", "d0#0"])).unwrap();
    let files: Vec<_> = given
        .devices
        .iter()
        .map(|file| (file.host_path.as_str(), file.container_path.as_str(), file.permissions.as_str()))
        .collect();
    assert_eq!(files, [("/dev/d1", "/dev/d1", "rw"), ("/dev/d0", "/dev/d0", "rw")]);
    assert_eq!(given.envs["PODWIRE_DEVICE_PODWIRE_DEV_D"], "/dev/d1,/dev/d0");
    assert_eq!(given.envs.len(), 1);
}

#[test]
fn unknown_and_unhealthy_devices_are_refused_by_name() {
    let mut offer = offer_of(2, 1, &[None]);
    offer.devices[1].trouble = Some("it is gone".to_owned());
    let refused = |id: &str| allocate(&offer, &strings(&[id])).unwrap_err().to_string();
    assert_eq!(refused("d7"), "podwire.dev/d has no device \"d7\"");
    assert_eq!(refused("d1"), "device \"d1\" of podwire.dev/d cannot be used: it is gone");
    assert!(refused(&"x".repeat(1_000_000)).len() < 1000);
}

#[test]
fn files_are_put_where_the_pool_says_and_never_over_each_other() {
    let mut offer = offer_of(2, 1, &[None]);
    let with = |path: &str| Arc::new(Pool { container_path: Some(path.to_owned()), ..(*offer.pool).clone() });
    let (indexed, named, fixed) = (with("/dev/port{index}"), with("/dev/x/{name}"), with("/dev/port"));
    let mut paths = |pool: Arc<Pool>, ids: &[&str]| {
        offer.pool = pool;
        allocate(&offer, &strings(ids))
            .map(|given| given.devices.into_iter().map(|file| file.container_path).collect::<Vec<_>>())
    };
    assert_eq!(paths(indexed, &["d1", "d0"]).unwrap(), ["/dev/port0", "/dev/port1"]);
    assert_eq!(paths(named, &["d1"]).unwrap(), ["/dev/x/d1"]);
    assert_eq!(paths(fixed.clone(), &["d1"]).unwrap(), ["/dev/port"]);
    assert!(matches!(paths(fixed, &["d1", "d0"]), Err(Refusal::SamePath { .. })));
}

#[test]
fn virtual_functions_are_named_as_network_plugins_expect_and_cdi_can_stand_alone() {
    let config = config(
        "pools: [{resource: podwire.dev/vf, env: VFS, cdi: {kind: podwire.dev/net, only: true}, select: [{kind: vf, driver: [vfio-pci]}]}]",
    );
    let vf = FoundVf {
        address: "0000:3b:02.0".to_owned(),
        driver: Some("vfio-pci".to_owned()),
        group: Some(Ok(character("/dev/vfio/7", 7))),
        ..FoundVf::default()
    };
    let inventory =
        Inventory { vfs: vec![vf], vfio: Some(character("/dev/vfio/vfio", 1)), ..Inventory::default() };
    let offer = plan(&config, &inventory).offers.remove(0);
    assert_eq!(offer.devices[0].files, [Path::new("/dev/vfio/vfio"), Path::new("/dev/vfio/7")]);
    let given = allocate(&offer, &strings(&["0000:3b:02.0"])).unwrap();
    assert_eq!(given.cdi_devices[0].name, "podwire.dev/net=0000:3b:02.0");
    assert!(given.devices.is_empty());
    assert_eq!(
        (given.envs["VFS"].as_str(), given.envs["PCIDEVICE_PODWIRE_DEV_VF"].as_str()),
        ("0000:3b:02.0", "0000:3b:02.0")
    );
}

#[test]
fn devices_that_cdi_cannot_tell_apart_are_not_mixed_up() {
    let config = config(
        "pools: [{resource: podwire.dev/d, cdi: {kind: a.b/c}, select: [{kind: node, path: '/dev/*'}, {kind: node, path: '/dev/x/*'}]}]",
    );
    let nodes = vec![found("/dev/x-y", "/dev/x-y", 1), found("/dev/x/y", "/dev/x/y", 2)];
    let offer = plan(&config, &Inventory { nodes, ..Inventory::default() }).offers.remove(0);
    assert_eq!(offer.devices[0].trouble, None);
    assert!(offer.devices[1].trouble.as_ref().unwrap().contains("x-y"));
}

#[test]
fn preferred_are_devices_of_one_numa_node_that_has_enough_and_least_to_spare() {
    let offer = offer_of(6, 1, &[Some(0), Some(1), Some(1)]);
    // Node 0: d0 d3; node 1: d1 d2 d4 d5.
    let of = |must: &[&str], size| prefer(&offer, &all_ids(&offer), &strings(must), size).unwrap();
    assert_eq!(of(&[], 2), ["d0", "d3"]);
    assert_eq!(of(&[], 3), ["d1", "d2", "d4"]);
    assert_eq!(of(&["d5"], 2), ["d5", "d1"], "near the one that must be there");
    assert_eq!(of(&[], 5).len(), 5, "across nodes if one is not enough");
}

#[test]
fn preferred_are_shares_of_different_devices_and_of_the_least_used() {
    let offer = offer_of(2, 3, &[None]);
    let of = |available: &[&str], size| prefer(&offer, &strings(available), &[], size).unwrap();
    assert_eq!(of(&["d0#0", "d0#1", "d0#2", "d1#0", "d1#1", "d1#2"], 2), ["d0#0", "d1#0"]);
    assert_eq!(of(&["d0#2", "d1#0", "d1#1", "d1#2"], 1), ["d1#0"], "most of it is free");
    assert_eq!(of(&["d0#2", "d1#0", "d1#1"], 3).len(), 3);
}

#[test]
fn a_choice_that_cannot_be_is_refused() {
    let offer = offer_of(2, 1, &[None]);
    let refused = |available: &[&str], must: &[&str], size| {
        prefer(&offer, &strings(available), &strings(must), size).unwrap_err().to_string()
    };
    assert!(refused(&["d0"], &[], 2).contains("1 are free"));
    assert!(refused(&["d0"], &["d1"], 1).contains("\"d1\""));
    assert!(refused(&["d0", "d1"], &["d0", "d1"], 1).contains("2 must be"));
    assert!(refused(&["d0", "d9"], &[], 1).contains("no device \"d9\""));
}

#[test]
fn ten_thousand_devices_are_chosen_from_soon() {
    let offer = offer_of(10_000, 1, &[Some(0), Some(1)]);
    let ids = all_ids(&offer);
    assert_eq!(prefer(&offer, &ids, &[], 16).unwrap().len(), 16);
}
