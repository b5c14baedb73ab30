//! The host's side of the bridge plugin: the bridge, its address, its ports, masquerading.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use podwire_linux::rtnl::{
    Batch, Bridge, Link, LinkChange, LinkRef, Mac, NewAddress, Peer, Socket, Veth, VlanRange,
};

use super::conf::Conf;
use crate::plugins::iface;
use crate::spec::error::{CniError, code};
use crate::spec::result::CniResult;

/// The bridge, made when it is absent.
pub fn ensure_bridge(socket: &mut Socket, conf: &Conf) -> Result<Link, CniError> {
    let name = &conf.bridge;
    let filtering = conf.vlan > 0 || !conf.vlan_trunk.is_empty();
    let mut link = socket.link(LinkRef::Name(name))?;
    if link.is_none() {
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name, mtu: conf.mtu, mac: None, vlan_filtering: filtering });
        match socket.exchange(&mut batch) {
            // Another ADD may have been faster.
            Err(error) if error.is_present() => {}
            Err(error) if filtering && error.errno() == Some(rustix::io::Errno::OPNOTSUPP) => {
                return Err(CniError::internal(format!(
                    "could not add {name:?}: the kernel lacks VLAN filtering of bridges (CONFIG_BRIDGE_VLAN_FILTERING)"
                )));
            }
            Err(error) => return Err(CniError::because(format!("could not add {name:?}"), &error)),
            Ok(_) => iface::set_if_present(&format!("net/ipv6/conf/{name}/accept_ra"), "0")?,
        }
        link = socket.link(LinkRef::Name(name))?;
    }
    let link = link.ok_or_else(|| CniError::internal(format!("could not lookup {name:?}: not found")))?;
    if link.kind.as_deref() != Some("bridge") {
        return Err(CniError::internal(format!("{name:?} already exists but is not a bridge")));
    }
    let mut batch = Batch::new();
    if !link.is_up() || (conf.promisc && link.promiscuity == 0) {
        let promisc = conf.promisc.then_some(true);
        batch.set_link(
            LinkRef::Index(link.index),
            &LinkChange { up: Some(true), promisc, ..LinkChange::default() },
        );
    }
    if filtering && !link.vlan_filtering {
        batch.filter_vlans(link.index);
    }
    socket.exchange(&mut batch)?;
    Ok(link)
}

/// Refuses a name that something other than a bridge has.
pub fn check_bridge_name(name: &str) -> Result<(), CniError> {
    let link = Socket::route()?.link(LinkRef::Name(name))?;
    match link {
        Some(link) if link.kind.as_deref() != Some("bridge") => {
            Err(CniError::new(code::UNAVAILABLE, format!("{name:?} already exists but is not a bridge")))
        }
        _ => Ok(()),
    }
}

/// Sets hairpin, isolation and VLANs of a port.
pub fn set_port(socket: &mut Socket, conf: &Conf, port: u32) -> Result<(), CniError> {
    let mut batch = Batch::new();
    let change = conf.port();
    if change.hairpin.is_some() || change.isolated.is_some() {
        batch.set_port(port, change);
    }
    socket.exchange(&mut batch)?;
    if conf.vlan > 0 || !conf.vlan_trunk.is_empty() {
        set_vlans(socket, conf, port, &conf.vlan_trunk)?;
    }
    Ok(())
}

/// Puts a port into the configured VLAN, and into tagged ones.
fn set_vlans(socket: &mut Socket, conf: &Conf, port: u32, tagged: &[VlanRange]) -> Result<(), CniError> {
    let mut batch = Batch::new();
    if !conf.preserve_default_vlan {
        for vlan in socket.vlans(port)? {
            batch.del_vlan(port, vlan);
        }
    }
    if conf.vlan > 0 {
        batch.add_vlan(port, VlanRange { first: conf.vlan, last: conf.vlan, pvid: true, untagged: true });
    }
    for vlan in tagged {
        batch.add_vlan(port, *vlan);
    }
    socket.exchange(&mut batch)?;
    Ok(())
}

/// The interface of the host in the pods' VLAN: one end of a veth pair whose other end is a port of the bridge.
pub fn ensure_vlan_gateway(
    socket: &mut Socket,
    conf: &Conf,
    bridge: &Link,
    name: &str,
) -> Result<Link, CniError> {
    if socket.link(LinkRef::Name(name))?.is_none() {
        let port = crate::names::random_veth();
        let mut batch = Batch::new();
        batch.add_veth(&Veth {
            name: &port,
            up: true,
            master: Some(bridge.index),
            mtu: Some(bridge.mtu),
            mac: None,
            peer: Peer { name, netns: None, mac: None },
        });
        match socket.exchange(&mut batch) {
            // Another ADD may have been faster.
            Err(error) if error.is_present() => {}
            Err(error) => return Err(CniError::because(format!("could not add {name:?}"), &error)),
            Ok(replies) => {
                let port = socket
                    .made(&replies, &port)?
                    .ok_or_else(|| CniError::internal("the kernel did not describe the new veth"))?;
                set_vlans(socket, conf, port.index, &[])?;
            }
        }
    }
    let link = socket
        .link(LinkRef::Name(name))?
        .ok_or_else(|| CniError::internal(format!("could not lookup {name:?}: not found")))?;
    if !link.is_up() {
        let mut batch = Batch::new();
        batch.set_link(LinkRef::Index(link.index), &LinkChange { up: Some(true), ..LinkChange::default() });
        socket.exchange(&mut batch)?;
    }
    Ok(link)
}

/// Puts the gateways' addresses on the bridge, or on its interface in a VLAN; returns its hardware address.
pub fn set_gateways(
    socket: &mut Socket,
    conf: &Conf,
    bridge: &Link,
    result: &CniResult,
) -> Result<Option<Mac>, CniError> {
    let mut added = false;
    let found = socket.addresses(bridge.index)?;
    for ip in &result.ips {
        let Some(gateway) = ip.gateway else { continue };
        let net = IpNet::new(gateway, ip.address.prefix_len())
            .map_err(|_| CniError::internal("a gateway of another family"))?;
        if found.iter().any(|address| address.net == net) {
            continue;
        }
        let mut batch = Batch::new();
        for other in found.iter().filter(|address| conflicts(address.net, net)) {
            if !conf.force_address {
                return Err(CniError::internal(format!(
                    "{:?} already has an IP address different from {net}",
                    bridge.name
                )));
            }
            batch.del_address(bridge.index, other.net);
        }
        batch.add_address(&NewAddress { link: bridge.index, net, no_dad: true, broadcast: true });
        match socket.exchange(&mut batch) {
            // Another ADD may have been faster.
            Err(error) if error.is_present() => {}
            Err(error) => {
                return Err(CniError::because(
                    format!("could not add IP address to {:?}", bridge.name),
                    &error,
                ));
            }
            Ok(_) => added = true,
        }
    }
    let Some(now) = socket.link(LinkRef::Index(bridge.index))? else { return Ok(bridge.mac) };
    if let (true, Some(mac)) = (added, now.mac) {
        // A bridge follows the lowest address of its ports until it is told its own.
        let mut batch = Batch::new();
        batch.set_link(LinkRef::Index(bridge.index), &LinkChange { mac: Some(mac), ..LinkChange::default() });
        socket.exchange(&mut batch)?;
    }
    Ok(now.mac)
}

/// Any other IPv4 address, or an IPv6 address of the same network; link-local ones are the kernel's own.
fn conflicts(found: IpNet, wanted: IpNet) -> bool {
    match (found, wanted) {
        (IpNet::V4(_), IpNet::V4(_)) => true,
        (IpNet::V6(found), IpNet::V6(wanted)) => {
            !found.addr().is_unicast_link_local()
                && (found.contains(&wanted.network()) || wanted.contains(&found.network()))
        }
        _ => false,
    }
}

/// Waits until the bridge forwards to the new port.
pub fn wait_port(socket: &mut Socket, conf: &Conf, port: &Link) -> Result<(), CniError> {
    const UP: u8 = 6;
    const UNKNOWN: u8 = 0;
    if conf.disable_container_interface {
        return Ok(());
    }
    let deadline = Instant::now() + Duration::from_millis(2500);
    loop {
        match socket.link(LinkRef::Index(port.index))? {
            Some(link) if matches!(link.oper_state, UP | UNKNOWN) => return Ok(()),
            Some(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            Some(link) => {
                return Err(CniError::internal(format!("bridge port in error state: {}", link.oper_state)));
            }
            None => return Err(CniError::internal(format!("host interface {} has vanished", port.name))),
        }
    }
}

/// Compares the bridge and the host's end with a result.
pub fn check(conf: &Conf, result: &CniResult, pod_end: &Link) -> Result<(), CniError> {
    let mut socket = Socket::route()?;
    let bridge = socket
        .link(LinkRef::Name(&conf.bridge))?
        .ok_or_else(|| CniError::internal(format!("bridge {} not found", conf.bridge)))?;
    if bridge.kind.as_deref() != Some("bridge") {
        return Err(CniError::internal(format!("{} is not a bridge", conf.bridge)));
    }
    let host_end = result
        .interfaces
        .iter()
        .filter(|interface| interface.sandbox.is_empty() && interface.name != conf.bridge)
        .find_map(|interface| socket.link(LinkRef::Name(&interface.name)).ok().flatten())
        .ok_or_else(|| CniError::internal("host veth not found"))?;
    if host_end.peer != Some(pod_end.index) || pod_end.peer != Some(host_end.index) {
        return Err(CniError::internal(format!(
            "{} and {} are not two ends of one veth",
            host_end.name, pod_end.name
        )));
    }
    if host_end.master != Some(bridge.index) {
        return Err(CniError::internal(format!("{} is not a port of {}", host_end.name, conf.bridge)));
    }
    if conf.hairpin && !host_end.hairpin {
        return Err(CniError::internal(format!("{} is not in hairpin mode", host_end.name)));
    }
    if conf.port_isolation && !host_end.isolated {
        return Err(CniError::internal(format!("{} is not isolated", host_end.name)));
    }
    check_gateways(&mut socket, conf, &bridge, result)
}

fn check_gateways(
    socket: &mut Socket,
    conf: &Conf,
    bridge: &Link,
    result: &CniResult,
) -> Result<(), CniError> {
    if !conf.is_gateway {
        return Ok(());
    }
    let (mut name, mut index) = (conf.bridge.clone(), bridge.index);
    if let Some(vlan) = conf.vlan_gateway() {
        let link = socket.link(LinkRef::Name(&vlan))?;
        index = link.ok_or_else(|| CniError::internal(format!("gateway {vlan} not found")))?.index;
        name = vlan;
    }
    let found = socket.addresses(index)?;
    for ip in &result.ips {
        if let Some(gateway) =
            ip.gateway.filter(|gateway| !found.iter().any(|address| address.net.addr() == *gateway))
        {
            return Err(CniError::internal(format!("bridge {name} lacks the gateway's address {gateway}")));
        }
    }
    Ok(())
}
