//! loopback: brings `lo` up, whatever interface was named.

use podwire_linux::netns::Netns;
use podwire_linux::rtnl::{Batch, LinkChange, LinkRef, Socket};
use serde_json::Value;

use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};
use crate::spec::result::{CniResult, Interface, IpConfig};

const LO: LinkRef<'static> = LinkRef::Name("lo");

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    match request.command {
        Command::Add => {
            let netns = open(request)?;
            let prev = request.prev_result()?;
            let own = netns.run(|| bring_up(&request.netns))??;
            prev.unwrap_or(own).to_value(request.version()?).map(Some)
        }
        Command::Del => {
            let Some(netns) = request.netns_path().and_then(|path| Netns::open(path).ok()) else {
                return Ok(None);
            };
            netns.run(|| set(false))??;
            Ok(None)
        }
        Command::Check => {
            let link = open(request)?.run(|| Socket::route()?.link(LO))??;
            if link.is_some_and(|link| link.is_up()) {
                Ok(None)
            } else {
                Err(CniError::internal("loopback interface is down"))
            }
        }
        Command::Gc | Command::Status | Command::Version => Ok(None),
    }
}

fn open(request: &Request) -> Result<Netns, CniError> {
    Ok(Netns::open(std::path::Path::new(&request.netns))?)
}

/// Brings `lo` of the calling thread's namespace up or down.
pub fn set(up: bool) -> Result<(), CniError> {
    let mut batch = Batch::new();
    batch.set_link(LO, &LinkChange { up: Some(up), ..LinkChange::default() });
    Socket::route()?.exchange(&mut batch)?;
    Ok(())
}

/// Brings `lo` up in the calling thread's namespace and tells its addresses.
pub fn bring_up(sandbox: &str) -> Result<CniResult, CniError> {
    let mut socket = Socket::route()?;
    let mut batch = Batch::new();
    batch.set_link(LO, &LinkChange { up: Some(true), ..LinkChange::default() });
    batch.get_link(LO);
    let replies = socket.exchange(&mut batch)?;
    let link = replies.iter().find_map(podwire_linux::rtnl::Link::parse);
    let mut result = CniResult::default();
    result.interfaces.push(Interface {
        name: "lo".into(),
        mac: "00:00:00:00:00:00".into(),
        sandbox: sandbox.to_owned(),
        ..Interface::default()
    });
    for address in socket.addresses(link.map_or(1, |link| link.index))? {
        if !address.net.addr().is_loopback() {
            return Err(CniError::internal(format!(
                "loopback interface has the non-loopback address {}",
                address.net
            )));
        }
        result.ips.push(IpConfig { interface: Some(0), address: address.net, gateway: None });
    }
    Ok(result)
}
