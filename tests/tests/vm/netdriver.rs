//! Network devices of kinds that not every kernel has: made in a pod's namespace, seen to carry packets, and gone without a trace.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{Batch, Link, LinkChange, LinkRef, NewAddress, Peer, Socket, Upper, UpperKind, Veth},
};
use podwire_netdev::{Child, ChildKind, Inside, Route, Rule, make, unmake};
use podwire_testkit::{eventually, isolate};

/// The end of the node's wire that stands for the world; it answers on the wire itself and in VLAN 100.
const WORLD: &str = "eth1x";

fn change(fill: impl FnOnce(&mut Batch)) -> Result<()> {
    let mut batch = Batch::new();
    fill(&mut batch);
    Socket::route()?.exchange(&mut batch)?;
    Ok(())
}

pub(crate) fn add_address(name: &str, address: &str) -> Result<()> {
    let (link, net) = (index(name)?, address.parse()?);
    change(|batch| batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: true }))
}

fn index(name: &str) -> Result<u32> {
    Ok(Socket::route()?.link(LinkRef::Name(name))?.with_context(|| format!("there is no {name}"))?.index)
}

pub(crate) fn set_up(name: &str) -> Result<()> {
    let up = LinkChange { up: Some(true), ..LinkChange::default() };
    change(|batch| batch.set_link(LinkRef::Name(name), &up))
}

/// The node's `eth1` with the world at its other end.
pub(crate) fn make_world() -> Result<()> {
    let peer = Peer { name: WORLD, netns: None, mac: None };
    change(|batch| {
        batch.add_veth(&Veth { name: "eth1", up: true, master: None, mtu: None, mac: None, peer });
    })?;
    set_up(WORLD)?;
    let parent = Some(index(WORLD)?);
    let kind = UpperKind::Vlan { id: 100 };
    change(|batch| {
        batch.add_upper(&Upper { name: "world.100", kind, parent, mtu: None, mac: None, netns: None });
    })?;
    set_up("world.100")?;
    add_address(WORLD, "10.1.0.1/24")?;
    add_address("world.100", "10.100.0.1/24")
}

/// What there is on the node, but for what changes by itself.
fn host() -> Result<Vec<String>> {
    let mut socket = Socket::route()?;
    let mut all = Vec::new();
    for link in socket.links()? {
        let own = socket.addresses(link.index)?;
        let own: Vec<_> = own.iter().filter(|one| one.scope == 0).map(|one| one.net).collect();
        let Link { name, kind, mtu, mac, .. } = &link;
        all.push(format!("{name} {kind:?} {mtu} {mac:?} {} {own:?}", link.is_up()));
    }
    all.sort();
    Ok(all)
}

/// Waits until the pod gets an answer, by whatever words of ping.
pub(crate) fn answers(pod: &Netns, words: &[&str]) -> Result<()> {
    eventually(&format!("ping {words:?} is answered"), Duration::from_secs(120), || {
        let ping = || Command::new("ping").args(["-c", "1", "-W", "2"]).args(words).output();
        let done = pod.run(ping).map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stdout).into_owned()) }
    })
}

/// A device that is made, where it is, and who answers there.
struct Case {
    kind: ChildKind,
    address: &'static str,
    gateway: &'static str,
    /// A hardware address of its own.
    mac: Option<&'static str>,
    /// Who answers.
    ping: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        kind: ChildKind::Vlan { id: 100 },
        address: "10.100.0.7/24",
        gateway: "10.100.0.1",
        mac: Some("02:00:00:00:00:42"),
        ping: "10.100.0.1",
    },
    Case {
        kind: ChildKind::Ipvlan,
        address: "10.1.0.7/24",
        gateway: "10.1.0.1",
        mac: None,
        ping: "10.1.0.1",
    },
    Case {
        kind: ChildKind::Dummy,
        address: "10.9.0.7/24",
        gateway: "10.9.0.1",
        mac: Some("02:00:00:00:00:43"),
        // It goes nowhere: only its own address answers.
        ping: "10.9.0.7",
    },
];

/// A route to where nobody is, by a next hop.
pub(crate) fn route(gateway: &str, table: u32) -> Result<Route> {
    Ok(Route {
        destination: "10.2.0.0/16".parse()?,
        gateway: Some(gateway.parse()?),
        source: None,
        table: Some(table),
        priority: None,
        scope: None,
        mtu: None,
        advmss: None,
        protocol: 4,
        onlink: false,
    })
}

impl Case {
    fn inside(&self) -> Result<Inside> {
        let own = format!("{}/32", self.address.trim_end_matches("/24"));
        Ok(Inside {
            name: "net1".to_owned(),
            mtu: Some(1300),
            mac: self.mac.map(str::to_owned),
            addresses: vec![self.address.parse()?],
            routes: vec![route(self.gateway, 77)?],
            rules: vec![Rule { priority: 70, from: Some(own.parse()?), to: None, table: 77 }],
            ..Inside::default()
        })
    }

    fn check(&self, pod: &Netns) -> Result<()> {
        let (link, addresses, routes, rules) = pod.run(|| -> Result<_> {
            set_up("lo")?;
            let mut socket = Socket::route()?;
            let link = socket.link(LinkRef::Name("net1"))?.context("it is not in the pod")?;
            let addresses = socket.addresses(link.index)?;
            let routes = socket.routes(Some(link.index), false)?;
            Ok((link, addresses, routes, socket.rules(false)?))
        })??;
        println!("{link:?}");
        ensure!(link.kind.as_deref() == Some(self.kind.name()) && link.mtu == 1300 && link.is_up());
        let mac = link.mac.map(|mac| mac.to_string());
        ensure!(self.mac.is_none() || mac.as_deref() == self.mac, "{mac:?}");
        ensure!(addresses.iter().any(|one| one.net.to_string() == self.address), "{addresses:?}");
        let is_route = |found: &podwire_linux::rtnl::Route| {
            found.table == Some(77) && found.gateway.is_some_and(|by| by.to_string() == self.gateway)
        };
        ensure!(routes.iter().any(is_route), "{routes:?}");
        ensure!(rules.iter().any(|rule| (rule.priority, rule.table) == (70, 77)), "{rules:?}");
        answers(pod, &[self.ping])
    }
}

#[test]
fn netdriver_makes_devices_of_each_kind_that_carry_packets_and_leave_nothing() -> Result<()> {
    isolate()?;
    make_world()?;
    let before = host()?;
    for case in &CASES {
        let pod = netns::create()?;
        let parent = (case.kind != ChildKind::Dummy).then(|| "eth1".to_owned());
        let child = Child { kind: case.kind, parent, node_end: None };
        let inside = case.inside()?;
        let made = make(&pod, &child, &inside)?;
        case.check(&pod).with_context(|| case.kind.name())?;
        unmake(Some(&pod), &child, &inside, Some(made.index))?;
        let left = pod.run(|| Socket::route()?.links())??;
        ensure!(left.len() == 1, "{}: {left:?}", case.kind.name());
        ensure!(host()? == before, "{}: {:?}", case.kind.name(), host()?);
    }
    Ok(())
}
