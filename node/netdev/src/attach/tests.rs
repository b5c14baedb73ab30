//! Devices into a pod and home again, in namespaces of the test's own.

use super::*;
use crate::child::{Child, ChildError, ChildKind, make, unmake};
use podwire_linux::rtnl::{Bridge, Peer, Veth};

/// The node's namespace with a pair of devices, one of which has everything a device can have; and a pod's.
fn node_and_pod() -> (Netns, Netns) {
    let (node, pod) = (netns::create().unwrap(), netns::create().unwrap());
    node.run(|| {
        let mut socket = Socket::route().unwrap();
        let mut batch = Batch::new();
        let peer = Peer { name: "far0", netns: None, mac: None };
        let mac = Some("02:00:00:00:00:07".parse().unwrap());
        batch.add_veth(&Veth { name: "near0", up: true, master: None, mtu: Some(1400), mac, peer });
        batch.set_link(LinkRef::Name("far0"), &LinkChange { up: Some(true), ..LinkChange::default() });
        socket.exchange(&mut batch).unwrap();
        let link = socket.link(LinkRef::Name("near0")).unwrap().unwrap().index;
        let mut batch = Batch::new();
        batch.add_altname(link, "near0-other");
        batch.set_link(
            LinkRef::Index(link),
            &LinkChange { alias: Some("uplink of rack 7"), tx_queue: Some(77), ..LinkChange::default() },
        );
        for net in ["192.0.2.7/24", "2001:db8::7/64"] {
            batch.add_address(&NewAddress { link, net: net.parse().unwrap(), no_dad: true, broadcast: true });
        }
        for (to, by) in [("198.51.100.0/24", "192.0.2.1"), ("2001:db8:1::/64", "2001:db8::1")] {
            let route = rtnl::Route::by_gateway(to.parse().unwrap(), by.parse().unwrap(), link);
            batch.add_route(&rtnl::Route { priority: Some(7), ..route });
        }
        let neighbour = rtnl::Neighbour {
            link,
            ip: "192.0.2.1".parse().unwrap(),
            mac: "02:00:00:00:00:01".parse().unwrap(),
        };
        batch.set_neighbour(&neighbour);
        socket.exchange(&mut batch).unwrap();
    })
    .unwrap();
    (node, pod)
}

fn snapshot(ns: &Netns, name: &str) -> Option<Snapshot> {
    ns.run(|| Snapshot::take(&mut Socket::route().unwrap(), LinkRef::Name(name)).unwrap()).unwrap()
}

fn inside() -> Inside {
    Inside {
        name: "net1".to_owned(),
        mtu: Some(1300),
        mac: Some("02:00:00:00:00:42".to_owned()),
        settings: vec![("net/ipv4/conf/{}/arp_ignore".to_owned(), "1".to_owned())],
        addresses: vec!["10.1.0.7/24".parse().unwrap()],
        routes: vec![Route {
            destination: "10.2.0.0/16".parse().unwrap(),
            gateway: Some("10.1.0.1".parse().unwrap()),
            source: None,
            table: Some(100),
            priority: None,
            scope: None,
            mtu: None,
            advmss: None,
            protocol: 3,
            onlink: false,
        }],
        rules: vec![Rule { priority: 100, from: Some("10.1.0.7/32".parse().unwrap()), to: None, table: 100 }],
        neighbours: vec![Neighbour { ip: "10.1.0.1".parse().unwrap(), mac: "02:00:00:00:00:02".to_owned() }],
        ..Inside::default()
    }
}

#[test]
fn a_device_comes_home_with_everything_it_had() {
    let (node, pod) = node_and_pod();
    let before = snapshot(&node, "near0").unwrap();
    assert_eq!((before.addresses.len(), before.routes.len(), before.neighbours.len()), (2, 2, 1));
    assert_eq!((before.altnames.as_slice(), before.tx_queue), (["near0-other".to_owned()].as_slice(), 77));
    let attached = node.run(|| attach(&pod, &before, &inside())).unwrap().unwrap();
    assert_eq!(attached.mac.as_deref(), Some("02:00:00:00:00:42"));
    assert_eq!(snapshot(&node, "near0"), None);
    let there = snapshot(&pod, "net1").unwrap();
    assert_eq!((there.mtu, there.up), (1300, true));
    assert_eq!((&there.addresses, &there.neighbours), (&inside().addresses, &inside().neighbours));
    assert_eq!((there.routes.len(), there.routes[0].table), (1, Some(100)));
    let rules = pod.run(|| Socket::route().unwrap().rules(false).unwrap()).unwrap();
    assert!(rules.iter().any(|rule| rule.priority == 100 && rule.table == 100));
    let ignored = pod.run(|| sysctl::read("net/ipv4/conf/net1/arp_ignore").unwrap()).unwrap();
    assert_eq!(ignored.trim(), "1");
    // As whoever may do so in the pod would: renamed, with a decoy under its name, other names and another queue.
    pod.run(|| {
        let mut socket = Socket::route().unwrap();
        let mut batch = Batch::new();
        let at = LinkRef::Index(attached.index);
        let down = LinkChange { up: Some(false), name: Some("hidden"), ..LinkChange::default() };
        batch.set_link(at, &down);
        batch.set_link(at, &LinkChange { tx_queue: Some(5), alias: Some("mine"), ..LinkChange::default() });
        batch.add_altname(attached.index, "mine");
        batch.add_bridge(&Bridge { name: "net1", ..Bridge::default() });
        socket.exchange(&mut batch).unwrap();
    })
    .unwrap();
    let home =
        || node.run(|| bring_home(Some(&pod), &before, &inside(), Some(attached.index))).unwrap().unwrap();
    assert_eq!(home(), Found::InPod(attached.index));
    assert_eq!(snapshot(&node, "near0"), Some(before.clone()));
    assert!(snapshot(&pod, "net1").is_some(), "the decoy stays");
    // Once more does nothing: it is home.
    assert!(matches!(home(), Found::OnNode(_)));
    assert_eq!(snapshot(&node, "near0"), Some(before.clone()));
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), before);
}

#[test]
fn a_router_that_the_kernel_cannot_make_is_refused_with_the_reason_and_one_that_it_can_goes_again() {
    let (node, pod) = node_and_pod();
    let before = snapshot(&node, "near0").unwrap();
    let vrf = Some(crate::vrf::Vrf { name: "red".to_owned(), table: 7 });
    let inside = Inside { vrf, routes: Vec::new(), rules: Vec::new(), ..inside() };
    match node.run(|| attach(&pod, &before, &inside)).unwrap() {
        Err(lacks) => assert_eq!(lacks.to_string(), "this kernel cannot make network devices of kind vrf"),
        Ok(attached) => {
            assert!(snapshot(&pod, "red").is_some());
            node.run(|| bring_home(Some(&pod), &before, &inside, Some(attached.index))).unwrap().unwrap();
        }
    }
    assert_eq!(snapshot(&node, "near0"), Some(before));
    assert_eq!(pod.run(|| Socket::route().unwrap().links().unwrap().len()).unwrap(), 1);
}

#[test]
fn features_are_what_the_pod_wants_and_at_home_what_they_were() {
    use podwire_linux::ethtool::{Ethtool, Switches};
    let (node, pod) = node_and_pod();
    let is_on = |ns: &Netns, name: &str, link: u32| {
        ns.run(|| Ethtool::open().unwrap().unwrap().named(Switches::Features, link).unwrap()[name].on)
            .unwrap()
    };
    let before = snapshot(&node, "near0").unwrap();
    let features = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "rx-gro"];
    let was = features.map(|name| is_on(&node, name, before.index));
    assert_eq!(was, [true, true, false], "as a wire is made");
    let mut inside = inside();
    inside.switched.features = [("tso".to_owned(), false), ("rx-gro".to_owned(), true)].into();
    let attached = node.run(|| attach(&pod, &before, &inside)).unwrap().unwrap();
    assert_eq!(features.map(|name| is_on(&pod, name, attached.index)), [false, false, true]);
    // As whoever may do so in the pod would.
    let more = [("scatter-gather", "tx-scatter-gather")];
    pod.run(|| {
        let all = more.map(|(_, name)| (name.to_owned(), false)).into();
        Ethtool::open().unwrap().unwrap().set_named(Switches::Features, attached.index, &all).unwrap();
    })
    .unwrap();
    assert!(!is_on(&pod, more[0].1, attached.index));
    node.run(|| bring_home(Some(&pod), &before, &inside, Some(attached.index))).unwrap().unwrap();
    assert_eq!(snapshot(&node, "near0"), Some(before.clone()));
    assert_eq!(features.map(|name| is_on(&node, name, before.index)), was);
    for (wrong, why) in [("warp", "none of the name"), ("rx-lro", "cannot change it")] {
        inside.switched.features = [(wrong.to_owned(), true)].into();
        let refused = node.run(|| attach(&pod, &before, &inside)).unwrap().unwrap_err().to_string();
        assert!(refused.contains(wrong) && refused.contains(why), "{refused}");
        assert_eq!(snapshot(&node, "near0"), Some(before.clone()));
    }
    inside.switched =
        crate::Switched { private_flags: [("fast".to_owned(), true)].into(), ..Default::default() };
    let refused = node.run(|| attach(&pod, &before, &inside)).unwrap().unwrap_err().to_string();
    assert!(refused.contains("fast"), "{refused}");
}

type Mistake = (&'static str, fn(&mut Inside));

#[test]
fn what_cannot_be_done_whole_is_undone() {
    let (node, pod) = node_and_pod();
    let before = snapshot(&node, "near0").unwrap();
    let wrong: [Mistake; 5] = [
        ("a name that the pod has", |inside| inside.name = "lo".to_owned()),
        ("a packet that is too small", |inside| inside.mtu = Some(1)),
        ("a group's hardware address", |inside| inside.mac = Some("01:00:00:00:00:01".to_owned())),
        ("no such setting", |inside| inside.settings[0].0.push_str("_not")),
        ("a next hop that is nowhere", |inside| {
            inside.routes[0].gateway = Some("203.0.113.1".parse().unwrap())
        }),
    ];
    for (what, change) in wrong {
        let mut inside = inside();
        change(&mut inside);
        node.run(|| attach(&pod, &before, &inside)).unwrap().expect_err(what);
        assert_eq!(snapshot(&node, "near0").as_ref(), Some(&before), "{what}");
        let left = pod.run(|| Socket::route().unwrap().links().unwrap().len()).unwrap();
        assert_eq!(left, 1, "{what}: nothing is left in the pod");
    }
}

#[test]
fn a_device_whose_name_was_taken_meanwhile_comes_home_under_another() {
    let (node, pod) = node_and_pod();
    let before = snapshot(&node, "near0").unwrap();
    let attached = node.run(|| attach(&pod, &before, &inside())).unwrap().unwrap();
    node.run(|| {
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name: "near0", ..Bridge::default() });
        Socket::route().unwrap().exchange(&mut batch).unwrap();
    })
    .unwrap();
    node.run(|| bring_home(Some(&pod), &before, &inside(), Some(attached.index))).unwrap().unwrap_err();
    let names: Vec<String> = node
        .run(|| Socket::route().unwrap().links().unwrap().into_iter().map(|link| link.name).collect())
        .unwrap();
    assert!(names.contains(&format!("home{}", before.index)), "{names:?}");
}

#[test]
fn devices_are_made_on_a_parent_and_go_with_the_pod() {
    let (node, pod) = node_and_pod();
    node.run(|| {
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name: "br0", ..Bridge::default() });
        Socket::route().unwrap().exchange(&mut batch).unwrap();
    })
    .unwrap();
    let children = [
        Child { kind: ChildKind::Macvlan, parent: Some("near0".to_owned()), node_end: None },
        Child { kind: ChildKind::Veth, parent: Some("br0".to_owned()), node_end: Some("end0".to_owned()) },
    ];
    for child in children {
        let made = node.run(|| make(&pod, &child, &inside())).unwrap().unwrap();
        let there = snapshot(&pod, "net1").unwrap();
        assert_eq!(
            (there.index, there.mtu, there.mac.as_deref()),
            (made.index, 1300, Some("02:00:00:00:00:42"))
        );
        assert_eq!(there.addresses, inside().addresses);
        node.run(|| unmake(Some(&pod), &child, &inside(), Some(made.index))).unwrap().unwrap();
        assert_eq!((snapshot(&pod, "net1"), snapshot(&node, "end0")), (None, None));
        node.run(|| unmake(Some(&pod), &child, &inside(), Some(made.index))).unwrap().unwrap();
        let wrong = Inside { mac: Some("01:00:00:00:00:01".to_owned()), ..inside() };
        node.run(|| make(&pod, &child, &wrong)).unwrap().unwrap_err();
        assert_eq!((snapshot(&pod, "net1"), snapshot(&node, "end0")), (None, None));
    }
    let child = Child { kind: ChildKind::Macvlan, parent: Some("none0".to_owned()), node_end: None };
    let error = node.run(|| make(&pod, &child, &inside())).unwrap().unwrap_err();
    assert!(matches!(error, ChildError::NoParent { .. }), "{error}");
}
