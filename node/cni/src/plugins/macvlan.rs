//! macvlan: the pod is on the network of one of the host's links, with a hardware address of its own.

use std::os::fd::AsFd;

use podwire_linux::netns::Netns;
use podwire_linux::rtnl::{Batch, Link, LinkChange, LinkRef, Mac, Macvlan, MacvlanMode, Socket};
use serde_json::Value;

use super::{iface, veth};
use crate::ipam::delegate;
use crate::names;
use crate::spec::error::{CniError, code};
use crate::spec::request::{Command, Request};
use crate::spec::result::{CniResult, Dns, Interface};

struct Conf {
    master: Option<String>,
    mode: MacvlanMode,
    mtu: Option<u32>,
    mac: Option<Mac>,
    in_container: bool,
    broadcast_queue: Option<u32>,
    ipam: Option<String>,
    dns: Dns,
}

impl Conf {
    fn parse(request: &Request) -> Result<Conf, CniError> {
        let object = request.object()?;
        let mode = match object.text("mode")? {
            None | Some("bridge") => MacvlanMode::Bridge,
            Some("private") => MacvlanMode::Private,
            Some("vepa") => MacvlanMode::Vepa,
            Some("passthru") => MacvlanMode::Passthru,
            Some(other) => return Err(CniError::config(format!("unknown macvlan mode: {other:?}"))),
        };
        let asked = super::bridge::conf::mac(request, &object)?;
        Ok(Conf {
            master: object.text("master")?.map(str::to_owned),
            mode,
            mtu: object.u32("mtu")?.filter(|mtu| *mtu > 0),
            mac: asked.or(object.parsed("mac", "a hardware address")?),
            in_container: object.bool("linkInContainer")?.unwrap_or(false),
            broadcast_queue: object.u32("bcqueuelen")?.filter(|length| *length > 0),
            ipam: delegate::kind(request)?,
            dns: Dns::parse(&object.object("dns")?)?,
        })
    }
}

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    match request.command {
        Command::Add => add(&conf, request)?.to_value(request.version()?).map(Some),
        Command::Del => veth::release(request, conf.ipam.as_deref()).map(|()| None),
        Command::Check => check(&conf, request).map(|()| None),
        Command::Gc => {
            conf.ipam.as_ref().map_or(Ok(()), |kind| delegate::forward(kind, request)).map(|()| None)
        }
        Command::Status => status(&conf, request).map(|()| None),
        Command::Version => Ok(None),
    }
}

/// The parent, in the calling thread's namespace: the one named, else the one the default route leaves by.
fn parent(conf: &Conf, socket: &mut Socket) -> Result<Link, CniError> {
    let link = match &conf.master {
        Some(name) => socket.link(LinkRef::Name(name))?,
        None => {
            let mut routes = socket.routes(None, false)?;
            routes.extend(socket.routes(None, true)?);
            let default = routes.iter().find(|route| route.destination.prefix_len() == 0);
            let index = default.ok_or_else(|| CniError::internal("no default route interface found"))?.link;
            socket.link(LinkRef::Index(index))?
        }
    };
    let name = conf.master.as_deref().unwrap_or("of the default route");
    let link =
        link.ok_or_else(|| CniError::internal(format!("failed to lookup master {name:?}: Link not found")))?;
    if conf.mtu.is_some_and(|mtu| mtu > link.mtu) {
        let mtu = conf.mtu.unwrap_or(0);
        return Err(CniError::config(format!("invalid MTU {mtu}, must be [0, master MTU({})]", link.mtu)));
    }
    Ok(link)
}

fn create(conf: &Conf, netns: Option<&Netns>, name: &str) -> Result<(), CniError> {
    let mut socket = Socket::route()?;
    let parent = parent(conf, &mut socket)?;
    let mut batch = Batch::new();
    batch.add_macvlan(&Macvlan {
        name,
        parent: parent.index,
        mode: conf.mode,
        mtu: conf.mtu,
        mac: conf.mac,
        broadcast_queue: conf.broadcast_queue,
        netns: netns.map(AsFd::as_fd),
    });
    socket.exchange(&mut batch).map_err(|error| CniError::because("failed to create macvlan", &error))?;
    Ok(())
}

fn add(conf: &Conf, request: &Request) -> Result<CniResult, CniError> {
    let netns = Netns::open(std::path::Path::new(&request.netns))?;
    veth::refuse_existing(&netns, request)?;
    // Made under another name: the wanted one may be taken in the host's namespace, where the kernel looks first.
    let temporary = names::random_veth();
    if conf.in_container {
        netns.run(|| create(conf, None, &temporary))??;
    } else {
        create(conf, Some(&netns), &temporary)?;
    }
    let made = configure(conf, request, &netns, &temporary);
    made.map_err(|error| {
        let mut notes = Vec::new();
        let removed = netns.run(|| {
            let mut socket = Socket::route()?;
            for name in [temporary.as_str(), request.ifname.as_str()] {
                let mut batch = Batch::new();
                batch.del_link(LinkRef::Name(name));
                match socket.exchange(&mut batch) {
                    Err(error) if !error.is_absent() => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        });
        notes.extend(
            removed
                .map(|inner| inner.err().map(|note| note.to_string()))
                .unwrap_or_else(|note| Some(note.to_string())),
        );
        if let Some(kind) = &conf.ipam {
            notes.extend(delegate::del(kind, request).err().map(|note| note.to_string()));
        }
        if notes.is_empty() { error } else { error.details(format!("clean-up failed: {}", notes.join("; "))) }
    })
}

fn configure(conf: &Conf, request: &Request, netns: &Netns, temporary: &str) -> Result<CniResult, CniError> {
    let mut result = match &conf.ipam {
        Some(kind) => delegate::add(kind, request)?,
        None => CniResult::default(),
    };
    if conf.ipam.is_some() && result.ips.is_empty() {
        return Err(CniError::internal("IPAM plugin returned missing IP config"));
    }
    let mut plan = iface::plan(&request.ifname, &result, false);
    if conf.ipam.is_some() {
        plan.sysctls.push((format!("net/ipv6/conf/{}/ndisc_notify", request.ifname), "1".into()));
    }
    let link = netns.run(|| {
        let mut socket = Socket::route()?;
        let made = socket.link(LinkRef::Name(temporary))?;
        let index = made.ok_or_else(|| CniError::internal("the new macvlan has vanished"))?.index;
        let mut batch = Batch::new();
        batch.set_link(
            LinkRef::Index(index),
            &LinkChange { name: Some(&request.ifname), ..LinkChange::default() },
        );
        socket.exchange(&mut batch).map_err(|error| {
            CniError::because(format!("failed to rename macvlan to {:?}", request.ifname), &error)
        })?;
        iface::apply(&plan, index, &mut socket)
    })??;
    for ip in &mut result.ips {
        ip.interface = Some(0);
    }
    result.interfaces = vec![Interface {
        name: request.ifname.clone(),
        mac: link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        sandbox: request.netns.clone(),
        ..Interface::default()
    }];
    if !conf.dns.is_empty() {
        result.dns = conf.dns.clone();
    }
    Ok(result)
}

fn check(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let result = request.required_prev_result()?;
    if let Some(kind) = &conf.ipam {
        delegate::forward(kind, request)?;
    }
    let netns = Netns::open(std::path::Path::new(&request.netns))?;
    let link = netns.run(|| iface::check(&request.ifname, &result))??;
    iface::check_mac(&link, &result)?;
    if link.kind.as_deref() != Some("macvlan") || link.macvlan_mode != Some(conf.mode as u32) {
        return Err(CniError::internal(format!(
            "container interface {} is not the macvlan that was made",
            link.name
        )));
    }
    if conf.in_container {
        return Ok(());
    }
    let parent = parent(conf, &mut Socket::route()?)?;
    if link.peer != Some(parent.index) {
        return Err(CniError::internal(format!(
            "container interface {} does not belong to {}",
            link.name, parent.name
        )));
    }
    Ok(())
}

fn status(conf: &Conf, request: &Request) -> Result<(), CniError> {
    if !conf.in_container {
        parent(conf, &mut Socket::route()?).map_err(|error| CniError { code: code::UNAVAILABLE, ..error })?;
    }
    conf.ipam.as_ref().map_or(Ok(()), |kind| delegate::forward(kind, request))
}
