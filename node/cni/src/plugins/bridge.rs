//! bridge: a veth pair whose host end is a port of a bridge.
//!
//! The pair is made straight into the pod's namespace in one request; addresses and routes follow in one batch. A failed
//! ADD takes back all it made; DEL does its work with the namespace, the interface or earlier results gone.

pub mod conf;
pub mod host;

use podwire_linux::netns::Netns;
use podwire_linux::rtnl::{Batch, Link, LinkRef, Peer, PortChange, Socket, Veth};
use serde_json::Value;

use self::conf::Conf;
use super::{iface, masquerade};
use crate::ipam::delegate;
use crate::names;
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
    let host_end = create_veth(&mut socket, conf, request, &netns, &bridge)?;
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
    if conf.ip_masq
        && let Err(error) = host::unmasquerade(conf, attachment(conf, request))
    {
        say("masquerading", error);
    }
    if let Some(kind) = &conf.ipam
        && let Err(error) = delegate::del(kind, request)
    {
        say("addresses", error);
    }
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Index(host_end.index));
    match socket.exchange(&mut batch) {
        Err(error) if !error.is_absent() => say("veth", error.into()),
        _ => {}
    }
    first
}

fn create_veth(
    socket: &mut Socket,
    conf: &Conf,
    request: &Request,
    netns: &Netns,
    bridge: &Link,
) -> Result<Link, CniError> {
    use std::os::fd::AsFd;
    let alias = host::alias(&conf.network, &request.container_id, &request.ifname);
    for _ in 0..10 {
        let name = names::random_veth();
        let mut batch = Batch::new();
        batch.add_veth(&Veth {
            name: &name,
            up: true,
            master: Some(bridge.index),
            mtu: conf.mtu,
            mac: None,
            alias: Some(&alias),
            peer: Peer { name: &request.ifname, netns: Some(netns.as_fd()), mac: conf.mac },
        });
        match socket.exchange(&mut batch) {
            Ok(replies) => {
                let link = replies.iter().find_map(Link::parse);
                return link.ok_or_else(|| CniError::internal("the kernel did not describe the new veth"));
            }
            Err(error) if error.is_present() => {
                if netns.run(|| Socket::route()?.link(LinkRef::Name(&request.ifname)))??.is_some() {
                    return Err(CniError::internal(format!(
                        "container veth name {:?} already exists in {}",
                        request.ifname, request.netns
                    )));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(CniError::internal("failed to find a unique veth name"))
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
            conf.complete(&mut result)?;
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
    let bridge_mac = if conf.is_gateway {
        iface::enable_forwarding(&result)?;
        host::set_gateways(socket, conf, bridge, &result)?
    } else {
        bridge.mac
    };
    if conf.ip_masq {
        let nets: Vec<_> = result.ips.iter().map(|ip| ip.address).collect();
        host::masquerade(conf, attachment(conf, request), &nets)?;
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
    if let Some(kind) = &conf.ipam {
        note(delegate::del(kind, request));
    }
    if conf.ip_masq {
        note(host::unmasquerade(conf, attachment(conf, request)));
    }
    note(host::delete_pod_link(request));
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
    if pod_end.mac.is_some_and(|mac| !mac.to_string().eq_ignore_ascii_case(&wanted.mac))
        && !wanted.mac.is_empty()
    {
        return Err(CniError::internal(format!(
            "interface {} has the address {} instead of {}",
            request.ifname,
            pod_end.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            wanted.mac
        )));
    }
    host::check(conf, &result, &pod_end)?;
    if conf.ip_masq {
        host::check_masquerade(conf, attachment(conf, request), result.ips_of(&request.ifname).count())?;
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
    if conf.ip_masq {
        note(host::gc_masquerade(conf, &keep));
    }
    note(host::gc_links(&conf.network, &keep));
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
