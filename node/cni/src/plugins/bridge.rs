//! bridge: a veth pair whose host end is a port of a bridge.
//!
//! The pair is made straight into the pod's namespace in one request; addresses and routes follow in one batch. A failed
//! ADD takes back all it made; DEL does its work with the namespace, the interface or earlier results gone.

pub mod conf;
pub mod host;
pub mod spoof;

use podwire_linux::netns::Netns;
use podwire_linux::rtnl::{Batch, Link, LinkRef, PortChange, Socket};
use serde_json::Value;

use self::conf::Conf;
use super::{iface, masquerade, veth};
use crate::ipam::delegate;
use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};
use crate::spec::result::{CniResult, Interface};

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    match request.command {
        Command::Add => add(&conf, request)?.to_value(request.version()?).map(Some),
        Command::Del => del(&conf, request).map(|()| None),
        Command::Check => check(&conf, request).map(|()| None),
        Command::Gc => gc(&conf, request).map(|()| None),
        Command::Status => status(&conf, request).map(|()| None),
        Command::Version => Ok(None),
    }
}

fn attachment<'a>(conf: &'a Conf, request: &'a Request) -> masquerade::Attachment<'a> {
    masquerade::Attachment {
        network: &conf.network,
        ifname: &request.ifname,
        container: &request.container_id,
    }
}

fn add(conf: &Conf, request: &Request) -> Result<CniResult, CniError> {
    let netns = Netns::open(std::path::Path::new(&request.netns))?;
    let mut socket = Socket::route()?;
    let bridge = host::ensure_bridge(&mut socket, conf)?;
    let new = veth::New { master: Some(bridge.index), mtu: conf.mtu, mac: conf.mac, network: &conf.network };
    let host_end = veth::create(&mut socket, request, &netns, &new)?;
    match configure(conf, request, &netns, &mut socket, &bridge, &host_end) {
        Ok(result) => Ok(result),
        Err(error) => Err(undo(conf, request, &mut socket, &host_end, error)),
    }
}

/// Takes back a half-made attachment; keeps the first error and what the clean-up said.
fn undo(
    conf: &Conf,
    request: &Request,
    socket: &mut Socket,
    host_end: &Link,
    mut first: CniError,
) -> CniError {
    let mut say = |what: &str, error: CniError| {
        if !first.details.is_empty() {
            first.details.push_str("; ");
        }
        first.details.push_str(&format!("clean-up of {what} failed: {error}"));
    };
    if let Some(masquerade) = &conf.masquerade
        && let Err(error) = masquerade.del(attachment(conf, request))
    {
        say("masquerading", error);
    }
    if conf.mac_spoof_check
        && let Err(error) = spoof::del(&spoof::id(&request.container_id, &request.ifname))
    {
        say("rules against spoofing", error);
    }
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Index(host_end.index));
    match socket.exchange(&mut batch) {
        Err(error) if !error.is_absent() => say("veth", error.into()),
        _ => {}
    }
    if let Some(kind) = &conf.ipam
        && let Err(error) = delegate::del(kind, request)
    {
        say("addresses", error);
    }
    first
}

fn configure(
    conf: &Conf,
    request: &Request,
    netns: &Netns,
    socket: &mut Socket,
    bridge: &Link,
    host_end: &Link,
) -> Result<CniResult, CniError> {
    host::set_port(socket, conf, host_end.index)?;
    let peer = host_end.peer.ok_or_else(|| CniError::internal("the veth has no other end"))?;
    let mut result = match &conf.ipam {
        Some(kind) => {
            let mut result = delegate::add(kind, request)?;
            if result.ips.is_empty() {
                return Err(CniError::internal("IPAM plugin returned missing IP config"));
            }
            conf.complete(&mut result);
            result
        }
        None => CniResult::default(),
    };
    let plan = iface::plan(&request.ifname, &result, conf.enable_dad);
    let pod_end = netns.run(|| {
        let mut inside = Socket::route()?;
        if conf.disable_container_interface {
            return inside
                .link(LinkRef::Index(peer))?
                .ok_or_else(|| CniError::internal("the new link has vanished"));
        }
        iface::apply(&plan, peer, &mut inside)
    })??;
    if let (true, Some(mac)) = (conf.mac_spoof_check, pod_end.mac) {
        spoof::add(&spoof::id(&request.container_id, &request.ifname), &host_end.name, mac)?;
    }
    let (mut bridge_mac, mut vlan_gateway) = (bridge.mac, None);
    if conf.is_gateway {
        iface::enable_forwarding(&result)?;
        match conf.vlan_gateway() {
            None => bridge_mac = host::set_gateways(socket, conf, bridge, &result)?,
            Some(name) => {
                let gateway = host::ensure_vlan_gateway(socket, conf, bridge, &name)?;
                host::set_gateways(socket, conf, &gateway, &result)?;
                vlan_gateway = Some(gateway);
            }
        }
    }
    if let Some(masquerade) = &conf.masquerade {
        let nets: Vec<_> = result.ips.iter().map(|ip| ip.address).collect();
        masquerade.add(attachment(conf, request), &nets)?;
    }
    host::wait_port(socket, conf, host_end)?;
    for ip in &mut result.ips {
        ip.interface = Some(2);
    }
    let text = |mac: Option<podwire_linux::rtnl::Mac>| mac.map(|mac| mac.to_string()).unwrap_or_default();
    result.interfaces = vec![
        Interface { name: bridge.name.clone(), mac: text(bridge_mac), ..Interface::default() },
        Interface { name: host_end.name.clone(), mac: text(host_end.mac), ..Interface::default() },
        Interface {
            name: request.ifname.clone(),
            mac: text(pod_end.mac),
            sandbox: request.netns.clone(),
            ..Interface::default()
        },
    ];
    if let Some(gateway) = vlan_gateway {
        let mac = text(gateway.mac);
        result.interfaces.push(Interface { name: gateway.name, mac, ..Interface::default() });
    }
    if !conf.dns.is_empty() {
        result.dns = conf.dns.clone();
    }
    Ok(result)
}

fn del(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let mut first = None;
    let mut note = |result: Result<(), CniError>| {
        if let Err(error) = result {
            first.get_or_insert(error);
        }
    };
    if let Some(masquerade) = &conf.masquerade {
        note(masquerade.del(attachment(conf, request)));
    }
    if conf.mac_spoof_check {
        note(spoof::del(&spoof::id(&request.container_id, &request.ifname)));
    }
    note(veth::release(request, conf.ipam.as_deref()));
    match first {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

fn check(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let result = request.required_prev_result()?;
    if let Some(kind) = &conf.ipam {
        delegate::forward(kind, request)?;
    }
    let wanted = result
        .container_interface(&request.ifname)
        .ok_or_else(|| CniError::internal(format!("prevResult has no interface {}", request.ifname)))?;
    if wanted.sandbox != request.netns {
        return Err(CniError::internal(format!(
            "sandbox in prevResult {} is not {}",
            wanted.sandbox, request.netns
        )));
    }
    let netns = Netns::open(std::path::Path::new(&request.netns))?;
    let pod_end = netns.run(|| {
        if conf.disable_container_interface {
            let link = Socket::route()?.link(LinkRef::Name(&request.ifname))?;
            return link.ok_or_else(|| {
                CniError::internal(format!("container interface {} not found", request.ifname))
            });
        }
        iface::check(&request.ifname, &result)
    })??;
    iface::check_mac(&pod_end, &result)?;
    host::check(conf, &result, &pod_end)?;
    if conf.mac_spoof_check {
        spoof::check(&spoof::id(&request.container_id, &request.ifname))?;
    }
    if let Some(masquerade) = &conf.masquerade {
        masquerade.check(attachment(conf, request), result.ips_of(&request.ifname).map(|ip| ip.address))?;
    }
    Ok(())
}

fn gc(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let keep = request.valid_attachments()?;
    let mut first = None;
    let mut note = |result: Result<(), CniError>| {
        if let Err(error) = result {
            first.get_or_insert(error);
        }
    };
    if let Some(kind) = &conf.ipam {
        note(delegate::forward(kind, request));
    }
    if let Some(masquerade) = &conf.masquerade {
        note(masquerade.gc(&conf.network, &keep));
    }
    note(veth::gc(&conf.network, &keep));
    match first {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

fn status(conf: &Conf, request: &Request) -> Result<(), CniError> {
    host::check_bridge_name(&conf.bridge)?;
    match &conf.ipam {
        Some(kind) => delegate::forward(kind, request),
        None => Ok(()),
    }
}

impl Conf {
    /// What a port of the bridge is set to.
    fn port(&self) -> PortChange {
        PortChange { hairpin: self.hairpin.then_some(true), isolated: self.port_isolation.then_some(true) }
    }
}
