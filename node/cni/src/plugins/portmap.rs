//! portmap: ports of the node lead to ports of a pod.
//!
//! Rules are the reference plugin's, in either backend; in nf_tables each carries the container as comment, in iptables
//! each container has a chain. Adding is done in the backend named or, unnamed, in the one the reference would pick;
//! removing in both.

pub mod conf;
pub mod iptables;
pub mod nft;

use ipnet::IpNet;
use podwire_linux::{nft as nf, sysctl};
use serde_json::Value;

use self::conf::Conf;
use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    match request.command {
        Command::Add => {
            let result = request.required_prev_result()?;
            let targets = conf.targets(&result, &request.ifname);
            if let Err(error) = add(&conf, &targets) {
                return Err(match del(&conf) {
                    Ok(()) => error,
                    Err(undo) => error.details(format!("clean-up failed: {undo}")),
                });
            }
            result.to_value(request.version()?).map(Some)
        }
        Command::Del => del(&conf).map(|()| None),
        Command::Check => {
            let targets = conf.targets(&request.required_prev_result()?, &request.ifname);
            if targets.is_empty() {
                return Ok(None);
            }
            if conf.by_iptables() {
                iptables::check(&conf, &targets)?
            } else {
                nft::check(&conf, &targets)?
            }
            Ok(None)
        }
        Command::Gc => {
            let keep = request.valid_attachments()?;
            let swept = nft::gc(&conf, &keep);
            if conf.cleans_iptables() {
                iptables::gc(&conf, &keep)?;
            }
            swept.map(|()| None)
        }
        Command::Status | Command::Version => Ok(None),
    }
}

fn add(conf: &Conf, targets: &[IpNet]) -> Result<(), CniError> {
    if targets.is_empty() {
        return Ok(());
    }
    if conf.by_iptables() {
        iptables::add(conf, targets)?
    } else {
        nft::add(conf, targets)?
    }
    for target in targets.iter().filter(|target| conf.snat && target.addr().is_ipv4()) {
        allow_localhost(*target)?;
    }
    forget_stale(conf, targets)
}

/// Clients that keep talking to a UDP port must find the new pod, not the one before.
fn forget_stale(conf: &Conf, targets: &[IpNet]) -> Result<(), CniError> {
    for mapping in conf.mappings.iter().filter(|mapping| mapping.protocol == "udp") {
        for v6 in [false, true] {
            if targets.iter().any(|target| target.addr().is_ipv6() == v6) {
                nf::netfilter()?.forget_connections(v6, mapping.protocol_number(), mapping.host_port)?;
            }
        }
    }
    Ok(())
}

fn del(conf: &Conf) -> Result<(), CniError> {
    let removed = nft::del(conf);
    if conf.cleans_iptables() {
        iptables::del(conf)?;
    }
    removed
}

/// Packets from 127.0.0.1 may leave by the link that leads to the pod.
fn allow_localhost(target: IpNet) -> Result<(), CniError> {
    use podwire_linux::rtnl::{LinkRef, Socket};
    let mut socket = Socket::route()?;
    let Some(index) = socket.route_to(target.addr())? else { return Ok(()) };
    if let Some(link) = socket.link(LinkRef::Index(index))? {
        sysctl::ensure(&format!("net/ipv4/conf/{}/route_localnet", link.name), "1")?;
    }
    Ok(())
}
