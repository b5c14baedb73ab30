//! All that a device is before it leaves, as a value that can be written down, and making it that again.
//!
//! What the kernel makes by itself when a link comes up with its addresses (routes of the kernel, link-local addresses,
//! multicast) is not part of it. Traffic control stays with the device wherever it goes and is not touched.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use podwire_linux::rtnl::{
    self, Aggregation, Batch, Error, Kept, Link, LinkChange, LinkRef, NewAddress, Scope, Socket,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::switches::Switchboard;

/// Addresses that somebody set, not the kernel for a while.
const IFA_F_PERMANENT: u32 = 0x80;
/// Addresses that are valid everywhere.
const SCOPE_UNIVERSE: u8 = 0;
/// Routes that the kernel makes itself.
const PROTOCOL_KERNEL: u8 = 2;
/// Routes that come from routers, and go when they are not heard any more.
const PROTOCOL_RA: u8 = 9;

/// A route of a device; the device itself is whoever has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// By which next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// From which address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// In which table; `None` is main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// `RT_SCOPE_*`; `None` is link without a gateway and universe with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
    /// Path MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Advertised segment size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Who made it, as the kernel counts them.
    #[serde(default)]
    pub protocol: u8,
    /// The next hop counts as reachable.
    #[serde(default)]
    pub onlink: bool,
}

impl Route {
    fn of(kept: &Kept) -> Route {
        let route = kept.route;
        Route {
            destination: route.destination,
            gateway: route.gateway,
            source: route.source,
            table: route.table,
            priority: route.priority,
            scope: route.scope.map(|scope| scope.0),
            mtu: route.mtu,
            advmss: route.advmss,
            protocol: kept.protocol,
            onlink: kept.onlink,
        }
    }

    /// As rtnetlink wants it, by this link.
    pub(crate) fn kept(&self, link: u32) -> Kept {
        let route = rtnl::Route {
            destination: self.destination,
            gateway: self.gateway,
            link,
            source: self.source,
            table: self.table,
            priority: self.priority,
            scope: self.scope.map(Scope),
            mtu: self.mtu,
            advmss: self.advmss,
        };
        Kept { route, protocol: self.protocol, onlink: self.onlink }
    }

    /// Routes that lead nowhere else come first: others find their next hops by them.
    pub(crate) fn order(&self) -> (bool, IpNet) {
        (self.gateway.is_some(), self.destination)
    }
}

/// A neighbour that is known for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its address.
    pub ip: IpAddr,
    /// Its hardware address.
    pub mac: String,
}

/// Limits of packets that are made of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregated {
    /// Out, IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gso: Option<u32>,
    /// In, IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro: Option<u32>,
    /// Out, IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gso_ipv4: Option<u32>,
    /// In, IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro_ipv4: Option<u32>,
}

impl From<Aggregated> for Aggregation {
    fn from(of: Aggregated) -> Aggregation {
        Aggregation { gso: of.gso, gro: of.gro, gso_ipv4: of.gso_ipv4, gro_ipv4: of.gro_ipv4 }
    }
}

impl From<Aggregation> for Aggregated {
    fn from(of: Aggregation) -> Aggregated {
        Aggregated { gso: of.gso, gro: of.gro, gso_ipv4: of.gso_ipv4, gro_ipv4: of.gro_ipv4 }
    }
}

/// A device as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Its number, which it keeps in another namespace as long as nobody has it there.
    pub index: u32,
    /// Its further names.
    #[serde(default)]
    pub altnames: Vec<String>,
    /// Free text.
    #[serde(default)]
    pub alias: Option<String>,
    /// Its hardware address.
    #[serde(default)]
    pub mac: Option<String>,
    /// The hardware address it was made with.
    #[serde(default)]
    pub permanent_mac: Option<String>,
    /// Bus and name of the device it is a part of.
    #[serde(default)]
    pub parent_device: Option<(String, String)>,
    /// Its largest packet.
    pub mtu: u32,
    /// Its queue.
    pub tx_queue: u32,
    /// Its limits of aggregation.
    #[serde(default)]
    pub aggregated: Aggregated,
    /// Its features and flags.
    #[serde(default)]
    pub switches: Switchboard,
    /// It was up.
    pub up: bool,
    /// Its lasting addresses.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Its routes that the kernel did not make.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Neighbours that somebody put there.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
}

impl Snapshot {
    /// What a device of the socket's namespace, which is the calling thread's, is now; `None` if there is none.
    pub fn take(socket: &mut Socket, link: LinkRef<'_>) -> Result<Option<Snapshot>, Error> {
        let Some(link) = socket.link(link)? else { return Ok(None) };
        let lasting = |one: &rtnl::Address| one.flags & IFA_F_PERMANENT != 0 && one.scope == SCOPE_UNIVERSE;
        let addresses =
            socket.addresses(link.index)?.iter().filter(|one| lasting(one)).map(|one| one.net).collect();
        let mut routes = Vec::new();
        for v6 in [false, true] {
            let made = |kept: &Kept| ![PROTOCOL_KERNEL, PROTOCOL_RA].contains(&kept.protocol);
            let found = socket.kept_routes(link.index, v6)?;
            routes.extend(found.iter().filter(|kept| made(kept)).map(Route::of));
        }
        let neighbours = socket.permanent_neighbours(link.index)?.into_iter();
        let neighbours = neighbours.map(|one| Neighbour { ip: one.ip, mac: one.mac.to_string() }).collect();
        let switches = Switchboard::take(link.index)?;
        Ok(Some(Snapshot { switches, addresses, routes, neighbours, ..Snapshot::of(link) }))
    }

    fn of(link: Link) -> Snapshot {
        let up = link.is_up();
        Snapshot {
            name: link.name,
            index: link.index,
            altnames: link.altnames,
            alias: link.alias.filter(|text| !text.is_empty()),
            mac: link.mac.map(|mac| mac.to_string()),
            permanent_mac: link.permanent_mac.map(|mac| mac.to_string()),
            parent_device: link.parent_device,
            mtu: link.mtu,
            tx_queue: link.tx_queue,
            aggregated: link.aggregation.into(),
            switches: Switchboard::default(),
            up,
            addresses: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
        }
    }

    /// Whether a link is this very device, wherever it was and whatever it is called.
    pub fn is_of(&self, link: &Link) -> bool {
        let permanent = link.permanent_mac.map(|mac| mac.to_string());
        match (&self.parent_device, &link.parent_device) {
            (Some(own), Some(other)) => own == other && self.permanent_mac == permanent,
            (None, None) if self.permanent_mac.is_some() => self.permanent_mac == permanent,
            (None, None) => self.index == link.index && self.mac == link.mac.map(|mac| mac.to_string()),
            _ => false,
        }
    }

    /// Makes a device what it was, whatever has become of it; it is in the socket's namespace again, the calling thread's.
    ///
    /// Everything is tried; the error is the first of what could not be done.
    pub fn restore(&self, socket: &mut Socket, index: u32) -> Result<(), Error> {
        let Some(link) = socket.link(LinkRef::Index(index))? else {
            return Err(Error::NoAnswer { attempt: "look up link" });
        };
        let mut batch = Batch::new();
        self.change_back(&link, &mut batch);
        for &net in &self.addresses {
            batch.add_address(&NewAddress { link: index, net, no_dad: false, broadcast: true });
        }
        if self.up {
            batch.set_link(LinkRef::Index(index), &LinkChange { up: Some(true), ..LinkChange::default() });
        }
        let mut routes: Vec<&Route> = self.routes.iter().collect();
        routes.sort_by_key(|route| route.order());
        for route in routes {
            batch.add_kept(&route.kept(index));
        }
        for neighbour in &self.neighbours {
            if let Ok(mac) = neighbour.mac.parse() {
                batch.set_neighbour(&rtnl::Neighbour { link: index, ip: neighbour.ip, mac });
            }
        }
        first_refusal(socket, &mut batch).and(self.switches.restore(index))
    }

    /// Name, names, hardware address, sizes: each only where it differs, as some drivers refuse even what changes nothing.
    fn change_back(&self, link: &Link, batch: &mut Batch) {
        let at = LinkRef::Index(link.index);
        let mut change = |change: LinkChange<'_>| batch.set_link(at, &change);
        if link.name != self.name || (link.mac.map(|mac| mac.to_string()) != self.mac && link.is_up()) {
            change(LinkChange { up: Some(false), ..LinkChange::default() });
        }
        if link.name != self.name {
            change(LinkChange { name: Some(&self.name), ..LinkChange::default() });
        }
        if let Some(mac) =
            self.mac.as_ref().and_then(|mac| mac.parse().ok()).filter(|mac| link.mac != Some(*mac))
        {
            change(LinkChange { mac: Some(mac), ..LinkChange::default() });
        }
        if link.mtu != self.mtu {
            change(LinkChange { mtu: Some(self.mtu), ..LinkChange::default() });
        }
        if link.tx_queue != self.tx_queue {
            change(LinkChange { tx_queue: Some(self.tx_queue), ..LinkChange::default() });
        }
        if link.aggregation != self.aggregated.into() {
            change(LinkChange { aggregation: self.aggregated.into(), ..LinkChange::default() });
        }
        if link.alias.as_deref().unwrap_or_default() != self.alias.as_deref().unwrap_or_default() {
            change(LinkChange {
                alias: Some(self.alias.as_deref().unwrap_or_default()),
                ..LinkChange::default()
            });
        }
        let had: BTreeSet<&String> = self.altnames.iter().collect();
        let has: BTreeSet<&String> = link.altnames.iter().collect();
        has.difference(&had).for_each(|name| batch.del_altname(link.index, name));
        had.difference(&has).for_each(|name| batch.add_altname(link.index, name));
    }
}

/// Runs a batch to its end; an address or a route that is there already is what was wanted, a name is not.
pub(crate) fn first_refusal(socket: &mut Socket, batch: &mut Batch) -> Result<(), Error> {
    const NAMING: [&str; 2] = ["change link", "add alternative name"];
    if batch.is_empty() {
        return Ok(());
    }
    let is_one = |no: &rtnl::Refusal| no.errno != Errno::EXIST || NAMING.contains(&no.attempt);
    let refused = socket.run(batch)?.refusals.into_iter().find(is_one);
    refused.map_or(Ok(()), |no| Err(Error::Refused(no)))
}
