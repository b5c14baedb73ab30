//! A device of the node in a pod, set up there as a driver wants it, and home again as it was.
//!
//! [`attach`] is one transaction: what cannot be done whole is undone, and the device is what it was. [`bring_home`] can be
//! repeated, also after the pod, its namespace or this process has gone in the middle.

use std::os::fd::AsFd;

use ipnet::IpNet;
use podwire_linux::{
    bpf,
    netns::{self, Netns},
    rtnl::{self, Batch, Link, LinkChange, LinkRef, Mac, NewAddress, Socket},
    sysctl,
};
use serde::{Deserialize, Serialize};

use crate::{
    bandwidth,
    snapshot::{Aggregated, Neighbour, Route, Snapshot, first_refusal},
    switches::Switched,
    vrf::Vrf,
};

/// Why a device is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The node has no such device any more.
    #[error("there is no network device {name:?} on the node")]
    Absent {
        /// The name.
        name: String,
    },
    /// The pod has a device of that name.
    #[error("the pod has a network device {name:?} already")]
    Taken {
        /// The name.
        name: String,
    },
    /// The kernel does not know the kind.
    #[error("this kernel cannot make network devices of kind {kind}")]
    Lacks {
        /// The kind.
        kind: &'static str,
    },
    /// The pod has a virtual router of that name with another table.
    #[error("the pod has a virtual router {name:?} already, with table {table}")]
    OtherTable {
        /// The name.
        name: String,
        /// The table it has.
        table: u32,
    },
    /// A feature or a flag of the device cannot be what is wanted.
    #[error("switch {name:?}: {why}")]
    Switch {
        /// Its name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// The text is no hardware address.
    #[error("{text:?} is no hardware address")]
    Mac {
        /// The text.
        text: String,
    },
    /// A namespace could not be opened or entered.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The kernel refused.
    #[error(transparent)]
    Link(#[from] rtnl::Error),
    /// A setting of the device in the pod.
    #[error(transparent)]
    Setting(#[from] sysctl::Error),
    /// Programs that run on the device's packets.
    #[error(transparent)]
    Programs(#[from] bpf::Error),
    /// What was done could not be undone either.
    #[error("{first}; and it could not be undone: {undo}")]
    Undo {
        /// What went wrong first.
        first: Box<AttachError>,
        /// What went wrong then.
        undo: Box<AttachError>,
    },
}

/// A rule that chooses a table of routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its place in the order.
    pub priority: u32,
    /// Packets from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNet>,
    /// Packets to there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNet>,
    /// The table.
    pub table: u32,
}

/// What a device is to be in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Its name.
    pub name: String,
    /// Its largest packet, if it is to be another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Its hardware address, if it is to be another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its limits of aggregation.
    #[serde(default)]
    pub aggregated: Aggregated,
    /// Settings below `net/` with `{}` in place of its name, written before it is up.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// The virtual router it joins; made if the pod has none of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<Vrf>,
    /// Its features and flags, as far as they are to be others.
    #[serde(default, skip_serializing_if = "Switched::is_empty")]
    pub switched: Switched,
    /// Programs that somebody attached to it are taken off, and not put back when it goes home.
    #[serde(default)]
    pub without_programs: bool,
    /// How many bits per second it may send, and receive; only for one that is made and goes with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// Its addresses.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Its routes.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Rules of the pod.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Its neighbours.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
}

/// A device in a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its number there.
    pub index: u32,
    /// Its hardware address there.
    pub mac: Option<String>,
}

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the pod, under this number.
    InPod(u32),
    /// On the node, under this number.
    OnNode(u32),
    /// Nowhere that was looked.
    Nowhere,
}

/// Into the pod and set up there; the calling thread is in the node's namespace. A device that could not be set up whole is
/// what it was.
pub fn attach(pod: &Netns, snapshot: &Snapshot, inside: &Inside) -> Result<Attached, AttachError> {
    let taken = pod.run(|| Socket::route()?.link(LinkRef::Name(&inside.name)))??;
    if taken.is_some() {
        return Err(AttachError::Taken { name: inside.name.clone() });
    }
    let mut here = Socket::route()?;
    let there = here.link(LinkRef::Index(snapshot.index))?.filter(|link| link.name == snapshot.name);
    if there.is_none() {
        return Err(AttachError::Absent { name: snapshot.name.clone() });
    }
    let carried = carry(&mut here, snapshot.index, pod, &inside.name).map_err(AttachError::from);
    let done = carried.and_then(|()| pod.run(|| settle_inside(inside))?);
    done.map_err(|first| match bring_home(Some(pod), snapshot, inside, None) {
        Ok(_) => first,
        Err(undo) => AttachError::Undo { first: Box::new(first), undo: Box::new(undo) },
    })
}

/// Down, then to another namespace under another name in one step.
fn carry(here: &mut Socket, index: u32, target: &Netns, name: &str) -> Result<(), rtnl::Error> {
    let at = LinkRef::Index(index);
    let mut batch = Batch::new();
    batch.set_link(at, &LinkChange { up: Some(false), ..LinkChange::default() });
    let netns = Some(target.as_fd());
    batch.set_link(at, &LinkChange { name: Some(name), netns, ..LinkChange::default() });
    here.exchange(&mut batch).map(drop)
}

/// Sets a device up that is in the calling thread's namespace under its name there.
pub fn settle_inside(inside: &Inside) -> Result<Attached, AttachError> {
    let mut socket = Socket::route()?;
    let name = LinkRef::Name(&inside.name);
    let absent = || AttachError::Absent { name: inside.name.clone() };
    let link = socket.link(name)?.ok_or_else(absent)?.index;
    let at = LinkRef::Index(link);
    // Before it has addresses: their routes are those of the router then.
    let master = inside.vrf.as_ref().map(|vrf| vrf.join(&mut socket)).transpose()?;
    let mut batch = Batch::new();
    // What no file of the pod's settings needs comes first, in one exchange with the link still down.
    let change = LinkChange {
        mtu: inside.mtu,
        mac: inside.mac.as_deref().map(mac).transpose()?,
        master,
        aggregation: inside.aggregated.into(),
        ..LinkChange::default()
    };
    batch.set_link(at, &change);
    for &net in &inside.addresses {
        batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: true });
    }
    first_refusal(&mut socket, &mut batch)?;
    inside.switched.apply(link)?;
    for (key, value) in &inside.settings {
        // A dot in a device's name is no separator in a path.
        sysctl::write(&key.replace("{}", &inside.name), value)?;
    }
    let mut batch = Batch::new();
    batch.set_link(at, &LinkChange { up: Some(true), ..LinkChange::default() });
    let mut routes: Vec<&Route> = inside.routes.iter().collect();
    routes.sort_by_key(|route| route.order());
    for route in routes {
        batch.add_kept(&route.kept(link));
    }
    for rule in &inside.rules {
        let Rule { priority, from, to, table } = *rule;
        batch.add_rule(&rtnl::Rule { priority, from, to, table });
    }
    for neighbour in &inside.neighbours {
        batch.set_neighbour(&rtnl::Neighbour { link, ip: neighbour.ip, mac: mac(&neighbour.mac)? });
    }
    first_refusal(&mut socket, &mut batch)?;
    if let Some(bits) = inside.bandwidth {
        bandwidth::limit(&mut socket, &inside.name, bits)?;
    }
    // The last, as it cannot be undone.
    if inside.without_programs {
        bpf::detach(link)?;
    }
    let mac = socket.link(at)?.ok_or_else(absent)?.mac.map(|mac| mac.to_string());
    Ok(Attached { index: link, mac })
}

fn mac(text: &str) -> Result<Mac, AttachError> {
    text.parse().map_err(|_| AttachError::Mac { text: text.to_owned() })
}

/// Looks for a device: in the pod by its number there, by what it is, or by its name there; then on the node.
pub fn find(
    pod: Option<&Netns>,
    snapshot: &Snapshot,
    inside: &Inside,
    index: Option<u32>,
) -> Result<Found, AttachError> {
    if let Some(pod) = pod {
        let links = pod.run(|| Socket::route()?.links())??;
        let by_index = links.iter().find(|link| Some(link.index) == index);
        // A name alone says nothing: somebody else may have it, and whoever may rename there may mislead.
        let macs = [&snapshot.mac, &inside.mac];
        let named = |link: &&Link| {
            let mac = link.mac.map(|mac| mac.to_string());
            index.is_none() && link.name == inside.name && macs.contains(&&mac)
        };
        let found = by_index.or_else(|| links.iter().find(|link| snapshot.is_of(link)));
        if let Some(link) = found.or_else(|| links.iter().find(named)) {
            return Ok(Found::InPod(link.index));
        }
    }
    let links = Socket::route()?.links()?;
    let underway = on_the_way(snapshot);
    let found = links.iter().find(|link| link.name == underway);
    let found = found.or_else(|| links.iter().find(|link| snapshot.is_of(link)));
    Ok(found.map_or(Found::Nowhere, |link| Found::OnNode(link.index)))
}

/// Out of the pod, or from wherever the kernel has put it, to what it was; says where it was found.
///
/// A name that somebody else on the node has by now is told as an error, with the device home under a name of ours.
pub fn bring_home(
    pod: Option<&Netns>,
    snapshot: &Snapshot,
    inside: &Inside,
    index: Option<u32>,
) -> Result<Found, AttachError> {
    let found = find(pod, snapshot, inside, index)?;
    match (&found, pod) {
        (Found::InPod(there), Some(pod)) => {
            let (home, name) = (Netns::current()?, on_the_way(snapshot));
            pod.run(|| carry(&mut Socket::route()?, *there, &home, &name))??;
            let mut here = Socket::route()?;
            let arrived = here.link(LinkRef::Name(&name))?.ok_or(AttachError::Absent { name })?;
            snapshot.restore(&mut here, arrived.index)?;
        }
        (Found::OnNode(index), _) => snapshot.restore(&mut Socket::route()?, *index)?,
        _ => {}
    }
    leave_nothing(pod, inside)?;
    Ok(found)
}

/// Takes away what came into the pod with a device that has left it.
pub(crate) fn leave_nothing(pod: Option<&Netns>, inside: &Inside) -> Result<(), AttachError> {
    let Some(pod) = pod.filter(|_| inside.vrf.is_some() || inside.bandwidth.is_some()) else { return Ok(()) };
    pod.run(|| {
        let mut socket = Socket::route()?;
        if inside.bandwidth.is_some() {
            bandwidth::leave(&mut socket, &inside.name)?;
        }
        inside.vrf.as_ref().map_or(Ok(()), |vrf| vrf.leave(&mut socket))
    })??;
    Ok(())
}

/// What a device is called between the pod and its own name, which may be somebody else's by now.
fn on_the_way(snapshot: &Snapshot) -> String {
    format!("home{}", snapshot.index)
}

#[cfg(test)]
mod tests;
