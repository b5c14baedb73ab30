//! The nodes of the world as destinations: the first is this machine under the address of its bridge, the others are behind a
//! wire each. Programs that listen there end with it.

use std::{
    net::IpAddr,
    os::fd::AsFd,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{Batch, LinkChange, LinkRef, NewAddress, Peer, Route, Socket, Veth},
};
use podwire_testkit::node::{bin_dir, pod_app};

use super::cases::{Host, World};

/// This machine's ends of the wires: what follows the last dot or colon of a node's address is 1 there.
const PREFIXES: [u8; 2] = [24, 64];

/// Nodes that answer.
pub(crate) struct Hosts {
    listening: Vec<Child>,
    /// Held, as a namespace that nobody holds is gone.
    _behind: Vec<Netns>,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in &mut self.listening {
            // Ignored: it may have ended already.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Hosts {
    /// Makes them; each listens on these ports, written as `TCP/80`.
    pub(crate) fn start(world: &World, ports: &[String]) -> Result<Hosts> {
        let mut hosts = Hosts { listening: Vec::new(), _behind: Vec::new() };
        for (at, node) in world.nodes.iter().enumerate() {
            let listen = || {
                let mut command = Command::new(pod_app(&bin_dir())?);
                command.arg("listen").args(ports).stdin(Stdio::null()).stdout(Stdio::null());
                command.spawn().with_context(|| format!("listen as {}", node.name))
            };
            if at == 0 {
                hosts.listening.push(listen()?);
                continue;
            }
            let behind = netns::create()?;
            wire(&behind, at, node)?;
            hosts.listening.push(behind.run(listen)??);
            hosts._behind.push(behind);
        }
        Ok(hosts)
    }
}

/// The address with 1 as its last part.
fn gateway(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            [a, b, c, 1].into()
        }
        IpAddr::V6(ip) => {
            let mut parts = ip.segments();
            parts[7] = 1;
            parts.into()
        }
    }
}

fn wire(behind: &Netns, at: usize, node: &Host) -> Result<()> {
    let addresses: Vec<IpAddr> =
        node.addresses.iter().map(|text| text.parse().context("an address")).collect::<Result<_>>()?;
    let name = format!("wire{at}");
    let mut socket = Socket::route()?;
    let mut batch = Batch::new();
    let peer = Peer { name: "eth0", netns: Some(behind.as_fd()), mac: None };
    batch.add_veth(&Veth { name: &name, up: true, master: None, mtu: None, mac: None, peer });
    socket.exchange(&mut batch)?;
    address(&mut socket, &name, &addresses.iter().map(|ip| gateway(*ip)).collect::<Vec<_>>())?;
    behind.run(|| -> Result<()> {
        let mut socket = Socket::route()?;
        let mut batch = Batch::new();
        for name in ["lo", "eth0"] {
            batch.set_link(LinkRef::Name(name), &LinkChange { up: Some(true), ..LinkChange::default() });
        }
        socket.exchange(&mut batch)?;
        let link = address(&mut socket, "eth0", &addresses)?;
        let mut batch = Batch::new();
        for ip in &addresses {
            let all = if ip.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            batch.add_route(&Route::by_gateway(all.parse()?, gateway(*ip), link));
        }
        socket.exchange(&mut batch)?;
        Ok(())
    })?
}

/// Gives a link addresses; its number.
fn address(socket: &mut Socket, name: &str, addresses: &[IpAddr]) -> Result<u32> {
    let link = socket.link(LinkRef::Name(name))?.with_context(|| format!("no link {name}"))?.index;
    ensure!(addresses.len() == PREFIXES.len(), "an address of each family");
    let mut batch = Batch::new();
    for (ip, prefix) in addresses.iter().zip(PREFIXES) {
        let net = format!("{ip}/{prefix}").parse()?;
        batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: ip.is_ipv4() });
    }
    socket.exchange(&mut batch)?;
    Ok(link)
}
