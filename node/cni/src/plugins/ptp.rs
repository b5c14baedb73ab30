//! ptp: a veth pair whose host end routes to one pod; no bridge.
//!
//! The pod reaches its gateway, an address of the host's end, directly, and everything else through it.

use ipnet::IpNet;
use podwire_linux::netns::Netns;
use podwire_linux::rtnl::{Batch, Link, LinkRef, NewAddress, Route, Scope, Socket};
use serde_json::Value;

use super::{iface, masquerade, veth};
use crate::ipam::delegate;
use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};
use crate::spec::result::{CniResult, Dns, Interface};

struct Conf {
    network: String,
    ipam: String,
    mtu: Option<u32>,
    dns: Dns,
    masquerade: Option<masquerade::Conf>,
}

impl Conf {
    fn parse(request: &Request) -> Result<Conf, CniError> {
        let object = request.object()?;
        Ok(Conf {
            network: request.network()?,
            ipam: delegate::kind(request)?
                .ok_or_else(|| CniError::config("field \"ipam.type\" is missing"))?,
            mtu: object.u32("mtu")?.filter(|mtu| *mtu > 0),
            dns: Dns::parse(&object.object("dns")?)?,
            masquerade: masquerade::Conf::parse(&object)?,
        })
    }
}

fn attachment<'a>(conf: &'a Conf, request: &'a Request) -> masquerade::Attachment<'a> {
    masquerade::Attachment {
        network: &conf.network,
        ifname: &request.ifname,
        container: &request.container_id,
    }
}

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    match request.command {
        Command::Add => add(&conf, request)?.to_value(request.version()?).map(Some),
        Command::Del => del(&conf, request).map(|()| None),
        Command::Check => check(&conf, request).map(|()| None),
        Command::Gc => gc(&conf, request).map(|()| None),
        Command::Status => delegate::forward(&conf.ipam, request).map(|()| None),
        Command::Version => Ok(None),
    }
}

fn add(conf: &Conf, request: &Request) -> Result<CniResult, CniError> {
    let netns = Netns::open(std::path::Path::new(&request.netns))?;
    let mut result = delegate::add(&conf.ipam, request)?;
    let made = attach(conf, request, &netns, &mut result);
    match made {
        Ok(()) => Ok(result),
        Err((error, host_end)) => {
            let mut notes = Vec::new();
            if let Some(masquerade) = &conf.masquerade {
                notes.extend(masquerade.del(attachment(conf, request)).err());
            }
            if let Some(index) = host_end {
                let mut batch = Batch::new();
                batch.del_link(LinkRef::Index(index));
                notes.extend(
                    Socket::route()
                        .and_then(|mut socket| socket.exchange(&mut batch))
                        .err()
                        .map(CniError::from),
                );
            }
            notes.extend(delegate::del(&conf.ipam, request).err());
            let notes: Vec<String> = notes.iter().map(|note| format!("clean-up failed: {note}")).collect();
            Err(if notes.is_empty() { error } else { error.details(notes.join("; ")) })
        }
    }
}

/// Why it failed, and the host's end if it was made.
type Failed = (CniError, Option<u32>);

fn attach(conf: &Conf, request: &Request, netns: &Netns, result: &mut CniResult) -> Result<(), Failed> {
    let early = |error: CniError| (error, None);
    if result.ips.is_empty() {
        return Err(early(CniError::internal("IPAM plugin returned missing IP config")));
    }
    if let Some(ip) = result.ips.iter().find(|ip| ip.gateway.is_none()) {
        return Err(early(CniError::internal(format!("IPAM plugin returned no gateway for {}", ip.address))));
    }
    iface::enable_forwarding(result).map_err(early)?;
    let mut socket = Socket::route().map_err(|error| early(error.into()))?;
    let new = veth::New { master: None, mtu: conf.mtu, mac: None, network: &conf.network };
    let host_end = veth::create(&mut socket, request, netns, &new).map_err(early)?;
    finish(conf, request, netns, &mut socket, &host_end, result)
        .map_err(|error| (error, Some(host_end.index)))
}

fn finish(
    conf: &Conf,
    request: &Request,
    netns: &Netns,
    socket: &mut Socket,
    host_end: &Link,
    result: &mut CniResult,
) -> Result<(), CniError> {
    iface::set_if_present(&format!("net/ipv6/conf/{}/accept_ra", host_end.name), "0")?;
    let peer = host_end.peer.ok_or_else(|| CniError::internal("the veth has no other end"))?;
    let (plan, through_gateway) = plan(&request.ifname, result, peer);
    let pod_end = netns.run(|| {
        let mut inside = Socket::route()?;
        iface::apply(&plan, peer, &mut inside)?;
        inside.exchange(&mut through_gateway.batch())?;
        inside.link(LinkRef::Index(peer))?.ok_or_else(|| CniError::internal("the new link has vanished"))
    })??;
    host_side(host_end.index, result, socket)?;
    let nets: Vec<IpNet> = result.ips.iter().map(|ip| ip.address).collect();
    if let Some(masquerade) = &conf.masquerade {
        masquerade.add(attachment(conf, request), &nets)?;
    }
    let text = |link: &Link| link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    result.interfaces = vec![
        Interface { name: host_end.name.clone(), mac: text(host_end), ..Interface::default() },
        Interface {
            name: request.ifname.clone(),
            mac: text(&pod_end),
            sandbox: request.netns.clone(),
            ..Interface::default()
        },
    ];
    for ip in &mut result.ips {
        ip.interface = Some(1);
    }
    if !conf.dns.is_empty() {
        result.dns = conf.dns.clone();
    }
    Ok(())
}

/// Routes of the pod that force everything through the gateway.
struct ThroughGateway {
    remove: Vec<Route>,
    add: Vec<Route>,
    late: Vec<Route>,
}

impl ThroughGateway {
    fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        for route in &self.add[..self.remove.len()] {
            batch.add_route(route);
        }
        for route in &self.remove {
            batch.del_route(route);
        }
        for route in self.add[self.remove.len()..].iter().chain(&self.late) {
            batch.add_route(route);
        }
        batch
    }
}

/// Plans the pod's side: addresses first, routes of the result last, when the gateway can be reached.
fn plan(name: &str, result: &CniResult, link: u32) -> (iface::Plan, ThroughGateway) {
    let mut plan = iface::plan(name, result, false);
    let late = plan.routes.drain(..).map(|route| iface::kernel_route(&route, link)).collect();
    let mut routes = ThroughGateway { remove: Vec::new(), add: Vec::new(), late };
    let mut indirect = Vec::new();
    for ip in &result.ips {
        let (Some(gateway), net) = (ip.gateway, ip.address) else { continue };
        let own = Some(net.addr());
        routes.add.push(Route {
            source: own,
            scope: Some(Scope::LINK),
            ..Route::by_link(IpNet::from(gateway), link)
        });
        routes.remove.push(Route { scope: Some(Scope(255)), ..Route::by_link(net.trunc(), link) });
        indirect.push(Route { source: own, ..Route::by_gateway(net.trunc(), gateway, link) });
    }
    routes.add.extend(indirect);
    (plan, routes)
}

/// The host's end has the gateways' addresses and a route to each of the pod's.
fn host_side(link: u32, result: &CniResult, socket: &mut Socket) -> Result<(), CniError> {
    let mut batch = Batch::new();
    for ip in &result.ips {
        let Some(gateway) = ip.gateway else { continue };
        batch.add_address(&NewAddress { link, net: IpNet::from(gateway), no_dad: true, broadcast: false });
    }
    socket.exchange(&mut batch)?;
    let mut batch = Batch::new();
    for ip in &result.ips {
        let destination = IpNet::from(ip.address.addr());
        let scope = if destination.addr().is_ipv4() { Scope::HOST } else { Scope::UNIVERSE };
        // The address may have been a pod's whose link is still dying: its route goes, ours is the one that leads somewhere.
        batch.replace_route(&Route { scope: Some(scope), ..Route::by_link(destination, link) });
    }
    socket.exchange(&mut batch)?;
    Ok(())
}

fn del(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let mut errors = Vec::new();
    if let Some(masquerade) = &conf.masquerade {
        errors.extend(masquerade.del(attachment(conf, request)).err());
    }
    errors.extend(veth::release(request, Some(&conf.ipam)).err());
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn check(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let result = request.required_prev_result()?;
    delegate::forward(&conf.ipam, request)?;
    let netns = Netns::open(std::path::Path::new(&request.netns))?;
    let pod_end = netns.run(|| iface::check(&request.ifname, &result))??;
    iface::check_mac(&pod_end, &result)?;
    let host_end = veth::host_end(request)?;
    let mut socket = Socket::route()?;
    let addresses = socket.addresses(host_end.index)?;
    for ip in result.ips_of(&request.ifname) {
        if let Some(gateway) =
            ip.gateway.filter(|gateway| !addresses.iter().any(|found| found.net.addr() == *gateway))
        {
            return Err(CniError::internal(format!(
                "{} lacks the gateway's address {gateway}",
                host_end.name
            )));
        }
        let destination = IpNet::from(ip.address.addr());
        let routes = socket.routes(Some(host_end.index), destination.addr().is_ipv6())?;
        if !routes.iter().any(|route| route.destination == destination) {
            return Err(CniError::internal(format!("no route to {destination} by {}", host_end.name)));
        }
    }
    match &conf.masquerade {
        Some(masquerade) => {
            masquerade.check(attachment(conf, request), result.ips_of(&request.ifname).map(|ip| ip.address))
        }
        None => Ok(()),
    }
}

fn gc(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let keep = request.valid_attachments()?;
    let mut errors = Vec::new();
    errors.extend(delegate::forward(&conf.ipam, request).err());
    if let Some(masquerade) = &conf.masquerade {
        errors.extend(masquerade.gc(&conf.network, &keep).err());
    }
    errors.extend(veth::gc(&conf.network, &keep).err());
    errors.into_iter().next().map_or(Ok(()), Err)
}
