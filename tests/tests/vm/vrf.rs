//! Virtual routers of pods, which not every kernel has: a pod's device is routed by a table of its own, two devices share one, and
//! it goes with the last.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{Batch, LinkRef, Route, Socket, Upper, UpperKind},
};
use podwire_netdev::{
    AttachError, Child, ChildError, ChildKind, Inside, Snapshot, Vrf, attach, bring_home, make, unmake,
};
use podwire_testkit::isolate;

use super::netdriver::{add_address, answers, make_world, route};

fn snapshot() -> Result<Snapshot> {
    Snapshot::take(&mut Socket::route()?, LinkRef::Name("eth1"))?.context("the node has eth1")
}

#[test]
fn netdriver_routes_a_device_by_the_table_of_its_virtual_router() -> Result<()> {
    isolate()?;
    make_world()?;
    add_address("eth1", "192.0.2.7/24")?;
    let (before, pod) = (snapshot()?, netns::create()?);
    let inside = Inside {
        name: "net1".to_owned(),
        vrf: Some(Vrf { name: "red".to_owned(), table: 1596 }),
        addresses: vec!["10.1.0.7/24".parse()?],
        routes: vec![route("10.1.0.1", 1596)?],
        ..Inside::default()
    };
    let attached = attach(&pod, &before, &inside)?;
    let (device, router, routes, by_default) = pod.run(|| -> Result<_> {
        let mut socket = Socket::route()?;
        let device = socket.link(LinkRef::Name("net1"))?.context("the device is not in the pod")?;
        let router = socket.link(LinkRef::Name("red"))?.context("the router is not in the pod")?;
        let routes = socket.routes(Some(device.index), false)?;
        Ok((device, router, routes, socket.route_to("10.1.0.1".parse()?)?))
    })??;
    println!("{router:?}: {routes:?}");
    ensure!((router.vrf_table, router.is_up()) == (Some(1596), true), "{router:?}");
    ensure!(device.master == Some(router.index), "{device:?}");
    ensure!(routes.iter().all(|route: &Route| route.table == Some(1596)), "{routes:?}");
    for wanted in ["10.1.0.0/24", "10.2.0.0/16"] {
        ensure!(routes.iter().any(|route| route.destination.to_string() == wanted), "{wanted}: {routes:?}");
    }
    ensure!(by_default.is_none(), "only who asks for the router is routed by it");
    answers(&pod, &["-I", "red", "10.1.0.1"])?;
    let accepts = pod.run(|| Command::new("cat").arg("/proc/sys/net/ipv4/tcp_l3mdev_accept").output())??;
    ensure!(accepts.stdout == b"1\n", "{accepts:?}");
    bring_home(Some(&pod), &before, &inside, Some(attached.index))?;
    ensure!(snapshot()? == before, "{:?} instead of {before:?}", snapshot()?);
    ensure!(names(&pod)? == ["lo"], "{:?}", names(&pod)?);
    Ok(())
}

fn names(pod: &Netns) -> Result<Vec<String>> {
    let links = pod.run(|| Socket::route()?.links())??;
    let mut names: Vec<String> = links.into_iter().map(|link| link.name).collect();
    names.sort();
    Ok(names)
}

#[test]
fn netdriver_shares_a_virtual_router_between_devices_and_ends_it_with_the_last() -> Result<()> {
    isolate()?;
    let pod = netns::create()?;
    let child = Child { kind: ChildKind::Dummy, parent: None, node_end: None };
    let within = |name: &str, router: &str, table: u32| Inside {
        name: name.to_owned(),
        vrf: Some(Vrf { name: router.to_owned(), table }),
        addresses: vec!["10.1.0.7/24".parse().expect("an address")],
        ..Inside::default()
    };
    let red = [within("net1", "red", 7), within("net2", "red", 7)];
    for one in &red {
        make(&pod, &child, one)?;
    }
    ensure!(names(&pod)? == ["lo", "net1", "net2", "red"], "{:?}", names(&pod)?);
    for (wrong, other) in [(within("net3", "red", 8), true), (within("net3", "lo", 7), false)] {
        let refused = make(&pod, &child, &wrong).expect_err("it is taken");
        println!("{refused}");
        let fits = match refused {
            ChildError::Attach(AttachError::OtherTable { .. }) => other,
            ChildError::Attach(AttachError::Taken { .. }) => !other,
            _ => false,
        };
        ensure!(fits && !names(&pod)?.contains(&"net3".to_owned()), "{:?}", names(&pod)?);
    }
    unmake(Some(&pod), &child, &red[0], None)?;
    ensure!(names(&pod)?.contains(&"red".to_owned()), "one device is left in it");
    unmake(Some(&pod), &child, &red[1], None)?;
    ensure!(names(&pod)? == ["lo"], "{:?}", names(&pod)?);
    // One that the pod has made itself is joined, and stays.
    let kind = UpperKind::Vrf { table: 9 };
    let own = Upper { name: "own", kind, parent: None, mtu: None, mac: None, netns: None };
    let mut batch = Batch::new();
    batch.add_upper(&own);
    pod.run(|| Socket::route()?.exchange(&mut batch).map(drop))??;
    let joined = within("net1", "own", 9);
    make(&pod, &child, &joined)?;
    unmake(Some(&pod), &child, &joined, None)?;
    ensure!(names(&pod)? == ["lo", "own"], "{:?}", names(&pod)?);
    Ok(())
}
