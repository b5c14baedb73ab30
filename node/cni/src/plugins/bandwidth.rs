//! bandwidth: how fast a pod may receive and send, by token buckets on the host's end of its veth.
//!
//! What the pod receives leaves by the host's end, where a bucket waits; what it sends comes in there and is redirected
//! to an ifb link, whose bucket it passes.

use std::time::Duration;

use podwire_linux::rtnl::{Batch, Link, LinkRef, Socket, Tbf};
use serde_json::Value;

use super::veth;
use crate::names::sha512_hex;
use crate::spec::error::CniError;
use crate::spec::json::Object;
use crate::spec::request::{Command, Request};
use crate::spec::result::Interface;

const LATENCY: Duration = Duration::from_millis(25);
const IFB: &str = "bwp";

/// The limits, each absent when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    ingress: Option<Tbf>,
    egress: Option<Tbf>,
}

fn bucket(object: &Object<'_>, direction: &str) -> Result<Option<Tbf>, CniError> {
    let rate = object.u64(&format!("{direction}Rate"))?.unwrap_or(0);
    let burst = object.u64(&format!("{direction}Burst"))?.unwrap_or(0);
    match (rate, burst) {
        (0, 0) => Ok(None),
        (_, 0) => {
            Err(CniError::config("if rate is set, burst must also be set").details(object.at(direction)))
        }
        (0, _) => {
            Err(CniError::config("if burst is set, rate must also be set").details(object.at(direction)))
        }
        _ => match u32::try_from(burst / 8) {
            Ok(burst) if burst < u32::MAX => Ok(Some(Tbf::new(rate / 8, burst, LATENCY))),
            _ => Err(CniError::config("burst cannot be more than 4GB").details(object.at(direction))),
        },
    }
}

impl Limits {
    fn parse(request: &Request) -> Result<Limits, CniError> {
        let object = request.object()?;
        let names = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
        let inline = names.iter().any(|name| object.get(name).is_some());
        let source = if inline { object } else { object.object("runtimeConfig")?.object("bandwidth")? };
        Ok(Limits { ingress: bucket(&source, "ingress")?, egress: bucket(&source, "egress")? })
    }

    fn is_empty(self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

fn ifb_name(network: &str, container: &str) -> String {
    let mut name = format!("{IFB}{}", sha512_hex(&format!("{network}{container}")));
    name.truncate(15);
    name
}

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let limits = Limits::parse(request)?;
    let name = ifb_name(&request.network()?, &request.container_id);
    match request.command {
        Command::Add => {
            let mut result =
                request.prev_result()?.ok_or_else(|| CniError::config("must be called as chained plugin"))?;
            if !limits.is_empty() {
                let host_end = veth::host_end(request)?;
                match add(limits, &host_end, &name, &request.network()?) {
                    Ok(Some(ifb)) => result.interfaces.push(Interface {
                        name: ifb.name,
                        mac: ifb.mac.map(|mac| mac.to_string()).unwrap_or_default(),
                        ..Interface::default()
                    }),
                    Ok(None) => {}
                    Err(error) => return Err(undo(&host_end, &name, error)),
                }
            }
            result.to_value(request.version()?).map(Some)
        }
        Command::Del => delete(&name).map(|()| None),
        Command::Check => {
            request.required_prev_result()?;
            if limits.is_empty() {
                Ok(None)
            } else {
                check(limits, &veth::host_end(request)?, &name).map(|()| None)
            }
        }
        Command::Gc => gc(request).map(|()| None),
        Command::Status | Command::Version => Ok(None),
    }
}

fn alias(network: &str) -> String {
    let mut text = format!("cni-bandwidth {network}");
    text.truncate(text.floor_char_boundary(255));
    text
}

fn add(limits: Limits, host_end: &Link, name: &str, network: &str) -> Result<Option<Link>, CniError> {
    let mut socket = Socket::route()?;
    let mut batch = Batch::new();
    if let Some(tbf) = limits.ingress {
        batch.add_tbf(host_end.index, tbf);
    }
    socket.exchange(&mut batch)?;
    let Some(tbf) = limits.egress else { return Ok(None) };
    let mut batch = Batch::new();
    batch.add_plain("ifb", name, Some(host_end.mtu), Some(0));
    let replies = socket.exchange(&mut batch)?;
    let ifb = socket
        .made(&replies, name)?
        .ok_or_else(|| CniError::internal("the kernel did not describe the new ifb"))?;
    let mut batch = Batch::new();
    let change = podwire_linux::rtnl::LinkChange { alias: Some(&alias(network)), ..Default::default() };
    batch.set_link(LinkRef::Index(ifb.index), &change);
    batch.add_ingress(host_end.index);
    batch.add_redirect(host_end.index, ifb.index);
    batch.add_tbf(ifb.index, tbf);
    socket.exchange(&mut batch)?;
    Ok(Some(ifb))
}

fn undo(host_end: &Link, name: &str, error: CniError) -> CniError {
    let mut batch = Batch::new();
    batch.del_ingress(host_end.index);
    batch.del_root_qdisc(host_end.index);
    // Ignored: whichever of the two was not made cannot be removed; both die with the veth.
    Socket::route().and_then(|mut socket| socket.run(&mut batch)).ok();
    match delete(name) {
        Ok(()) => error,
        Err(undo) => error.details(format!("clean-up failed: {undo}")),
    }
}

fn delete(name: &str) -> Result<(), CniError> {
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Name(name));
    match Socket::route()?.exchange(&mut batch) {
        Err(error) if !error.is_absent() => Err(error.into()),
        _ => Ok(()),
    }
}

fn check(limits: Limits, host_end: &Link, name: &str) -> Result<(), CniError> {
    let mut socket = Socket::route()?;
    let missing =
        |what: &str, link: &str| CniError::internal(format!("{what} of {link} is missing or differs"));
    if let Some(tbf) = limits.ingress
        && !socket.qdiscs(host_end.index)?.iter().any(|qdisc| qdisc.tbf == Some(tbf))
    {
        return Err(missing("the token bucket", &host_end.name));
    }
    if let Some(tbf) = limits.egress {
        let ifb = socket
            .link(LinkRef::Name(name))?
            .ok_or_else(|| CniError::internal(format!("get ifb device: {name} not found")))?;
        if !socket.qdiscs(ifb.index)?.iter().any(|qdisc| qdisc.tbf == Some(tbf)) {
            return Err(missing("the token bucket", name));
        }
        let ingress = socket.qdiscs(host_end.index)?.iter().any(|qdisc| qdisc.kind == "ingress");
        if !ingress || !socket.has_ingress_filter(host_end.index)? {
            return Err(missing("the redirection", &host_end.name));
        }
    }
    Ok(())
}

/// Removes ifbs of this network's containers that are not kept.
fn gc(request: &Request) -> Result<(), CniError> {
    let network = request.network()?;
    let kept: Vec<String> =
        request.valid_attachments()?.iter().map(|(id, _)| ifb_name(&network, id)).collect();
    let ours = alias(&network);
    for link in Socket::route()?.links()? {
        let stale = link.kind.as_deref() == Some("ifb") && link.alias.as_ref() == Some(&ours);
        if stale && !kept.contains(&link.name) {
            delete(&link.name)?;
        }
    }
    Ok(())
}
