//! What is offered of what was seen.

use super::*;

fn link(index: u32, name: &str, kind: Option<&str>) -> SeenLink {
    let mac = Some("02:00:00:00:00:07".parse().unwrap());
    let link = Link {
        index,
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        mac,
        mtu: 1500,
        hardware: 1,
        oper_state: 6,
        ..Link::default()
    };
    SeenLink { link, ..SeenLink::default() }
}

fn names(seen: &Seen, offers: &[Offer], skip: &[&str]) -> Vec<String> {
    let skip: Vec<String> = skip.iter().map(|name| (*name).to_owned()).collect();
    devices(seen, offers, &skip).into_iter().map(|device| device.name).collect()
}

#[test]
fn names_and_attributes_are_those_that_selectors_know() {
    let mut nic = link(2, "enp138s0", None);
    nic.link.parent_device = Some(("pci".to_owned(), "0000:8a:00.0".to_owned()));
    nic.link.alias = Some("x".repeat(100));
    nic.addresses = vec!["192.0.2.9/24".parse().unwrap(), "2001:db8::9/64".parse().unwrap()];
    nic.pci = Some(Pci {
        address: "0000:8a:00.0".to_owned(),
        root: Some("pci0000:80".to_owned()),
        numa: Some(1),
        functions: Some((8, 2)),
        rdma: vec!["mlx5_0".to_owned()],
        verbs: vec!["uverbs0".to_owned()],
        ..Pci::default()
    });
    let seen = Seen { links: vec![nic, link(3, "Dummy0", Some("dummy"))], uplinks: BTreeSet::new() };
    let found = devices(&seen, &[], &[]);
    assert_eq!(found[1].name, "pci-0000-8a-00-0");
    assert_eq!(found[0].name, "net-ir2w23lzga", "base 32 of what is no label");
    let files = ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"].map(PathBuf::from);
    assert_eq!((found[1].files.as_slice(), found[0].files.len()), (files.as_slice(), 0));
    let published = found[1].published();
    for (name, value) in [
        ("dra.net/ifName", json!({"string": "enp138s0"})),
        ("dra.net/mac", json!({"string": "02:00:00:00:00:07"})),
        ("dra.net/mtu", json!({"int": 1500})),
        ("dra.net/encapsulation", json!({"string": "ether"})),
        ("dra.net/state", json!({"string": "up"})),
        ("dra.net/type", json!({"string": "device"})),
        ("dra.net/ipv4", json!({"string": "192.0.2.9/24"})),
        ("dra.net/ipv6", json!({"string": "2001:db8::9/64"})),
        ("dra.net/virtual", json!({"bool": false})),
        ("dra.net/sriov", json!({"bool": true})),
        ("dra.net/sriovVfs", json!({"int": 2})),
        ("dra.net/rdma", json!({"bool": true})),
        ("dra.net/rdmaDevice", json!({"string": "mlx5_0"})),
        ("dra.net/numaNode", json!({"int": 1})),
        ("resource.kubernetes.io/pcieRoot", json!({"string": "pci0000:80"})),
        ("resource.kubernetes.io/pciBusID", json!({"string": "0000:8a:00.0"})),
    ] {
        assert_eq!(published["attributes"][name], value, "{name}");
    }
    assert_eq!(
        published["attributes"]["dra.net/alias"]["string"].as_str().unwrap().len(),
        64,
        "what is too long is cut"
    );
    assert_eq!(found[0].published()["attributes"]["dra.net/type"], json!({"string": "dummy"}));
}

#[test]
fn what_the_node_or_a_pod_needs_is_not_offered() {
    let mut port = link(4, "eth1", None);
    port.link.master = Some(3);
    let mut vlan = link(5, "eth2.7", Some("vlan"));
    vlan.link.peer = Some(6);
    let mut pod = link(7, "veth7", Some("veth"));
    (pod.link.peer, pod.link.peer_netns) = (Some(2), Some(1));
    let mut lo = link(1, "lo", None);
    lo.link.flags = 0x8;
    let mut of_bridge = link(10, "veth10", Some("veth"));
    of_bridge.link.master = Some(9);
    let links = vec![
        lo,
        link(2, "docker0", Some("bridge")),
        link(3, "bond0", Some("bond")),
        port,
        vlan,
        link(6, "eth2", None),
        pod,
        link(8, "eth3", None),
        link(9, "pods0", Some("bridge")),
        of_bridge,
    ];
    let seen = Seen { links, uplinks: BTreeSet::from([3, 5]) };
    assert_eq!(names(&seen, &[], &["pods0"]), ["eth3"]);
    let without = Seen { uplinks: BTreeSet::new(), ..seen };
    assert_eq!(names(&without, &[], &["pods0"]), ["bond0", "eth1", "eth2", "eth3", "net-mv2gqmrog4"]);
}

#[test]
fn devices_are_offered_on_a_parent_that_stays() {
    let seen = Seen {
        links: vec![link(2, "eth1", None), link(3, "br0", Some("bridge"))],
        uplinks: BTreeSet::from([2]),
    };
    let mut offers = Offer::parse("macvlan:eth1:2").unwrap();
    offers.extend(Offer::parse("veth:br0").unwrap());
    offers.extend(Offer::parse("vlan:eth1:100-101").unwrap());
    offers.extend(Offer::parse("dummy::1").unwrap());
    offers.extend(Offer::parse("macvlan:none0:2").unwrap());
    let wanted =
        ["br0-veth-0", "dummy-0", "eth1-macvlan-0", "eth1-macvlan-1", "eth1-vlan-100", "eth1-vlan-101"];
    assert_eq!(names(&seen, &offers, &[]), wanted);
    for wrong in [
        "macvlan",
        "macvlan:eth1:0",
        "vlan:eth1:0",
        "vlan:eth1:9-4095",
        "vlan:eth1:9-8",
        "veth:eth1:1-2",
        "dummy:eth1",
        "macvlan::1",
        "gre:eth1",
        "macvlan:e th:1",
        "macvlan:eth1:-1",
        "a:b:c:d",
        "vlan:eth1:7:1G",
        "macvlan:eth1:16:1M",
        "macvlan:eth1:2:fast",
        "macvlan:eth1:2:1G:1",
    ] {
        Offer::parse(wrong).expect_err(wrong);
    }
}

#[test]
fn what_many_share_is_one_device_with_a_capacity() {
    let seen = Seen { links: vec![link(2, "eth1", None)], uplinks: BTreeSet::new() };
    let offers = Offer::parse("macvlan:eth1:16:10G").unwrap();
    let found = devices(&seen, &offers, &[]);
    assert_eq!((found.len(), found[0].name.as_str()), (1, "eth1-macvlan"));
    let published = found[0].published();
    assert_eq!(published["allowMultipleAllocations"], true);
    let bandwidth = &published["capacity"]["dra.net/bandwidth"];
    assert_eq!(bandwidth["value"], "10G");
    assert_eq!(bandwidth["requestPolicy"], json!({"default": "625M", "validRange": {"min": "1M"}}));
    assert_eq!(published["capacity"]["dra.net/devices"]["value"], "16");
    assert_eq!(
        [bits("1.5G"), bits("1Ki"), bits("0"), bits("-1"), bits("x")],
        [Some(1_500_000_000), Some(1024), None, None, None]
    );
}
