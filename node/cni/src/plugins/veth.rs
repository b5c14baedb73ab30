//! veth pairs of pods: made straight into the pod's namespace, found again by the text they carry.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use podwire_linux::background;
use podwire_linux::netns::Netns;
use podwire_linux::rtnl::{Batch, Link, LinkChange, LinkRef, Mac, Peer, Socket, Veth};

use crate::ipam::delegate;
use crate::names;
use crate::spec::error::CniError;
use crate::spec::request::Request;

/// How long a child may take to remove a link before its parent tries by itself, which tells the reason.
const VANISHES_WITHIN: Duration = Duration::from_secs(2);

/// What a pair is to be like.
pub struct New<'a> {
    /// The bridge of the host's end.
    pub master: Option<u32>,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// Hardware address of the pod's end.
    pub mac: Option<Mac>,
    /// The network.
    pub network: &'a str,
}

/// Makes a pair; returns the host's end, whose peer is the pod's.
pub fn create(
    socket: &mut Socket,
    request: &Request,
    netns: &Netns,
    new: &New<'_>,
) -> Result<Link, CniError> {
    let alias = alias(new.network, &request.container_id, &request.ifname);
    for _ in 0..10 {
        let name = names::random_veth();
        let mut batch = Batch::new();
        batch.add_veth(&Veth {
            name: &name,
            up: true,
            master: new.master,
            mtu: new.mtu,
            mac: None,
            peer: Peer { name: &request.ifname, netns: Some(netns.as_fd()), mac: new.mac },
        });
        batch.set_link(LinkRef::Name(&name), &LinkChange { alias: Some(&alias), ..LinkChange::default() });
        match socket.exchange(&mut batch) {
            Ok(replies) => {
                let link = socket.made(&replies, &name)?;
                return link.ok_or_else(|| CniError::internal("the kernel did not describe the new veth"));
            }
            Err(error) if error.is_present() => refuse_existing(netns, request)?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(CniError::internal("failed to find a unique veth name"))
}

/// Refuses an interface that the pod has already.
pub fn refuse_existing(netns: &Netns, request: &Request) -> Result<(), CniError> {
    if netns.run(|| Socket::route()?.link(LinkRef::Name(&request.ifname)))??.is_none() {
        return Ok(());
    }
    Err(CniError::internal(format!(
        "container veth name {:?} already exists in {}",
        request.ifname, request.netns
    )))
}

/// The text by which a host's end is recognised as one of an attachment.
fn alias(network: &str, container: &str, ifname: &str) -> String {
    let mut text = format!("cni {network} {container} {ifname}");
    text.truncate(text.floor_char_boundary(255));
    text
}

/// Removes host's ends of a network whose attachments are not in `keep`.
pub fn gc(network: &str, keep: &[(String, String)]) -> Result<(), CniError> {
    let kept: Vec<String> = keep.iter().map(|(id, ifname)| alias(network, id, ifname)).collect();
    let ours = format!("cni {network} ");
    let mut socket = Socket::route()?;
    let mut batch = Batch::new();
    for link in socket.links()? {
        let stale =
            link.alias.as_ref().is_some_and(|alias| alias.starts_with(&ours) && !kept.contains(alias));
        if stale && link.kind.as_deref() == Some("veth") {
            batch.del_link(LinkRef::Index(link.index));
        }
    }
    let refused =
        socket.run(&mut batch)?.refusals.into_iter().find(|no| no.errno != rustix::io::Errno::NODEV);
    refused.map_or(Ok(()), |no| Err(CniError::internal(no.to_string())))
}

/// Removes the pod's interface, and only then gives its addresses back: an address that is free must not answer any more.
///
/// Addresses of an interface that could not be removed stay reserved; the caller's next DEL tries again.
pub fn release(request: &Request, ipam: Option<&str>) -> Result<(), CniError> {
    delete(request)?;
    ipam.map_or(Ok(()), |kind| delegate::del(kind, request))
}

/// Removes the pod's interface; a namespace or interface that is gone is fine.
///
/// The kernel takes some twenty milliseconds for it, which a namespace that is dying anyway does not cost the caller. A
/// program has the rest of them waited for by a child: it answers as soon as the link is gone from its namespace.
fn delete(request: &Request) -> Result<(), CniError> {
    let Some(netns) = request.netns_path().and_then(|path| Netns::open(path).ok()) else { return Ok(()) };
    if request.netns_is_dying {
        return forget_addresses(&netns, &request.ifname);
    }
    let deleted = netns.run(|| {
        if request.is_program && vanishes(&request.ifname) {
            return Ok(Vec::new());
        }
        let mut batch = Batch::new();
        batch.del_link(LinkRef::Name(&request.ifname));
        Socket::route()?.exchange(&mut batch)
    });
    match deleted {
        Ok(Err(error)) if !error.is_absent() => Err(error.into()),
        // A path that is no network namespace has no interface of ours.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Takes the addresses off an interface that dies with its namespace a moment later: until then it would answer for them.
fn forget_addresses(netns: &Netns, ifname: &str) -> Result<(), CniError> {
    let forgotten = netns.run(|| -> Result<(), podwire_linux::rtnl::Error> {
        let mut socket = Socket::route()?;
        let Some(link) = socket.link(LinkRef::Name(ifname))? else { return Ok(()) };
        let mut batch = Batch::new();
        for address in socket.addresses(link.index)? {
            batch.del_address(link.index, address.net);
        }
        if batch.is_empty() { Ok(()) } else { socket.exchange(&mut batch).map(|_| ()) }
    });
    match forgotten {
        Ok(Err(error)) if !error.is_absent() => Err(error.into()),
        // A path that is no network namespace has no interface of ours.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Has a child remove the link and waits until it is gone; false when that did not happen and nobody knows why.
///
/// The child knows the link by its index: a name may be another link's by the time the child runs.
fn vanishes(name: &str) -> bool {
    let Ok(mut socket) = Socket::route() else { return false };
    let link = match socket.link(LinkRef::Name(name)) {
        Ok(Some(link)) => LinkRef::Index(link.index),
        Ok(None) => return true,
        Err(_) => return false,
    };
    let removed = background::run(|| {
        let mut batch = Batch::new();
        batch.del_link(link);
        // Ignored: the parent sees whether the link is gone.
        Socket::route().and_then(|mut socket| socket.exchange(&mut batch)).ok();
    });
    let deadline = Instant::now() + VANISHES_WITHIN;
    while removed.is_ok() && Instant::now() < deadline {
        match socket.link(link) {
            Ok(None) => return true,
            Ok(Some(_)) => std::thread::sleep(Duration::from_micros(200)),
            Err(_) => return false,
        }
    }
    false
}

/// The host's end of a pod's veth, by the index the pod's end names.
pub fn host_end(request: &Request) -> Result<Link, CniError> {
    let name = &request.ifname;
    let netns = Netns::open(std::path::Path::new(&request.netns))?;
    let pod_end = netns.run(|| Socket::route()?.link(LinkRef::Name(name)))??;
    let pod_end =
        pod_end.ok_or_else(|| CniError::internal(format!("container interface {name} not found")))?;
    let peer = pod_end.peer.filter(|_| pod_end.kind.as_deref() == Some("veth"));
    let peer =
        peer.ok_or_else(|| CniError::internal(format!("container interface {name} has no veth peer")))?;
    let found = Socket::route()?.link(LinkRef::Index(peer))?;
    found
        .filter(|link| link.kind.as_deref() == Some("veth"))
        .ok_or_else(|| CniError::internal(format!("veth peer with index {peer} is not in host ns")))
}
