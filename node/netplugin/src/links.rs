//! How a pod's packets come by: bridges are told to let them pass the hooks, and links that lead past this machine are named.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use podwire_linux::netns::{self, Netns};
use podwire_linux::rtnl::{self, Batch, LinkRef, Socket};

/// Why a pod's links could not be looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Its namespace.
    #[error("enter the pod's network namespace")]
    Namespace(#[from] netns::Error),
    /// The kernel refused.
    #[error("look at the pod's links")]
    Look(#[source] rtnl::Error),
    /// The bridge could not be told.
    #[error("filter what bridge {bridge} carries (needs br_netfilter)")]
    Bridge {
        /// Its name.
        bridge: String,
        /// The kernel's reason.
        source: rtnl::Error,
    },
}

/// What was found in a pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Addresses that others can reach.
    pub(crate) addresses: Vec<IpAddr>,
    /// Links whose packets pass this machine's hooks.
    pub(crate) passing: Vec<String>,
    /// Links whose packets never pass this machine: they lead elsewhere.
    pub(crate) beside: Vec<String>,
    /// Links to a bridge of this machine whose packets pass no hook, for want of br_netfilter.
    pub(crate) unfiltered: Vec<String>,
}

/// Bridges that have been told already.
#[derive(Default)]
pub(crate) struct Links {
    host: Option<Socket>,
    told: HashSet<u32>,
}

/// A link of a pod: its name, and its place in the pod and on the machine if it is one end of a pair.
struct PodLink {
    name: String,
    index: u32,
    peer: Option<u32>,
}

impl Links {
    /// Looks at a pod and sees to it that its packets pass the hooks.
    pub(crate) fn look(&mut self, pod: &Path) -> Result<Looked, Error> {
        let (links, addresses) = Netns::open(pod)?.run(inside)?.map_err(Error::Look)?;
        let mut looked = Looked { addresses, ..Looked::default() };
        for link in links {
            let outer = match link.peer {
                Some(peer) => self.host()?.link(LinkRef::Index(peer)).map_err(Error::Look)?,
                None => None,
            };
            match outer.filter(|outer| is_other_end(outer, &link)) {
                Some(outer) if self.pass(outer.master)? => looked.passing.push(link.name),
                Some(_) => looked.unfiltered.push(link.name),
                None => looked.beside.push(link.name),
            }
        }
        Ok(looked)
    }

    /// The addresses of this machine itself.
    pub(crate) fn own_addresses(&mut self) -> Result<HashSet<IpAddr>, Error> {
        let addresses = self.host()?.all_addresses().map_err(Error::Look)?;
        Ok(addresses.into_iter().map(|address| address.net.addr()).collect())
    }

    fn host(&mut self) -> Result<&mut Socket, Error> {
        if self.host.is_none() {
            self.host = Some(Socket::route().map_err(Error::Look)?);
        }
        Ok(self.host.as_mut().expect("opened above"))
    }

    /// Sees to it that what a bridge carries passes the hooks; whether it does.
    fn pass(&mut self, master: Option<u32>) -> Result<bool, Error> {
        let Some(index) = master.filter(|index| !self.told.contains(index)) else { return Ok(true) };
        let Some(bridge) = self.host()?.link(LinkRef::Index(index)).map_err(Error::Look)? else {
            return Ok(true);
        };
        if bridge.kind.as_deref() != Some("bridge") {
            return Ok(true);
        }
        // The kernel takes the word also when nobody is there to heed it.
        if !bridges_are_filtered() {
            return Ok(false);
        }
        let mut batch = Batch::new();
        batch.filter_bridged(index);
        let told = self.host()?.exchange(&mut batch);
        told.map_err(|source| Error::Bridge { bridge: bridge.name, source })?;
        self.told.insert(index);
        Ok(true)
    }
}

/// An index says nothing about the namespace: the other end must be the other end of this one.
fn is_other_end(outer: &rtnl::Link, link: &PodLink) -> bool {
    outer.kind.as_deref() == Some("veth") && outer.peer == Some(link.index)
}

/// Whether the kernel's br_netfilter is there.
fn bridges_are_filtered() -> bool {
    Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists()
}

/// Asks for br_netfilter where it is a module; without it packets between pods on one bridge pass no hook.
pub(crate) fn prepare() {
    if bridges_are_filtered() {
        return;
    }
    // Ignored: whether it worked shows right after.
    std::process::Command::new("modprobe")
        .arg("br_netfilter")
        .stdin(std::process::Stdio::null())
        .output()
        .ok();
    if !bridges_are_filtered() {
        tracing::warn!(
            "the kernel has no br_netfilter: pods on a bridge that policies govern will be refused"
        );
    }
}

fn inside() -> Result<(Vec<PodLink>, Vec<IpAddr>), rtnl::Error> {
    let mut socket = Socket::route()?;
    let (mut links, mut addresses) = (Vec::new(), Vec::new());
    for link in socket.links()? {
        if link.flags & rtnl::link::IFF_LOOPBACK != 0 || !link.is_up() {
            continue;
        }
        for address in socket.addresses(link.index)? {
            let ip = address.net.addr();
            let linklocal = match ip {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            if !linklocal && !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        let peer = link.peer.filter(|_| link.kind.as_deref() == Some("veth"));
        links.push(PodLink { name: link.name, index: link.index, peer });
    }
    Ok((links, addresses))
}
