//! The least an executed program can do to attach a pod to a bridge: start, send the kernel the same messages as the
//! bridge plugin, end. No configuration is read, no address chosen, nothing written, nothing answered.
//!
//! `make bench WHAT=cni` shows what it takes beside the plugins: below it no plugin can be. From the environment:
//! `CNI_COMMAND`, `CNI_NETNS`, `FLOOR_BRIDGE` (an index) and `FLOOR_ADDRESS` (with its prefix length).

#![allow(clippy::disallowed_methods, reason = "a program reads its own environment")]

use std::error::Error;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use ipnet::IpNet;
use podwire_linux::netns::Netns;
use podwire_linux::rtnl::{Batch, Link, LinkChange, LinkRef, NewAddress, Peer, Route, Socket, Veth};

fn main() -> Result<(), Box<dyn Error>> {
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    let netns = Netns::open(Path::new(&std::env::var("CNI_NETNS")?))?;
    if std::env::var("CNI_COMMAND")? == "DEL" {
        return netns
            .run(|| {
                let mut batch = Batch::new();
                batch.del_link(LinkRef::Name("eth0"));
                Socket::route()?.exchange(&mut batch)?;
                Ok::<_, podwire_linux::rtnl::Error>(())
            })?
            .map_err(Into::into);
    }
    let bridge = std::env::var("FLOOR_BRIDGE")?.parse()?;
    let net: IpNet = std::env::var("FLOOR_ADDRESS")?.parse()?;
    let name = format!("floor{}", std::process::id());
    let mut batch = Batch::new();
    let peer = Peer { name: "eth0", netns: Some(netns.as_fd()), mac: None };
    batch.add_veth(&Veth { name: &name, up: true, master: Some(bridge), mtu: None, mac: None, peer });
    let replies = Socket::route()?.exchange(&mut batch)?;
    let link = replies.iter().find_map(Link::parse).and_then(|link| link.peer).ok_or("no peer")?;
    netns.run(|| configure(link, net))??;
    Ok(())
}

fn configure(link: u32, net: IpNet) -> Result<(), podwire_linux::rtnl::Error> {
    let mut batch = Batch::new();
    let change = |announce, up| LinkChange { announce, up, ..LinkChange::default() };
    batch.set_link(LinkRef::Index(link), &change(Some(true), None));
    batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: true });
    batch.set_link(LinkRef::Index(link), &change(None, Some(true)));
    batch.add_route(&Route { gateway: net.hosts().next(), ..Route::by_link(IpNet::default(), link) });
    Socket::route()?.exchange(&mut batch).map(|_| ())
}
