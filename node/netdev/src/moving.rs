//! One device into a pod and home again, with its name, its state and its addresses.
//!
//! Each direction is one step that can be repeated: [`move_in`] undoes what it did when a later part fails, [`move_out`] does
//! nothing for a device that is home.

use std::{collections::HashSet, os::fd::AsFd, path::Path};

use ipnet::IpNet;
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{self, Batch, LinkChange, LinkRef, NewAddress, Socket},
};

/// Addresses that somebody set, not the kernel for a while.
const IFA_F_PERMANENT: u32 = 0x80;
/// Addresses that are valid everywhere.
const SCOPE_UNIVERSE: u8 = 0;

/// Why a device could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The node has no such device.
    #[error("there is no network device {name:?} on the node")]
    Absent {
        /// The name.
        name: String,
    },
    /// The pod has a device of that name.
    #[error("the namespace has a network device {name:?} already")]
    Taken {
        /// The name.
        name: String,
    },
    /// Every name that the template could give is taken.
    #[error("{name:?} names no free network device")]
    Template {
        /// The name.
        name: String,
    },
    /// A namespace could not be opened or entered.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The kernel refused.
    #[error(transparent)]
    Link(#[from] rtnl::Error),
}

/// A device of the node in a pod, and what it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedDevice {
    /// What the node calls it.
    pub host: String,
    /// What it is called in the pod.
    pub inside: String,
    /// It was up before.
    pub up: bool,
    /// Its lasting addresses.
    pub addresses: Vec<IpNet>,
}

/// Whether a device is in the pod. One that is down there was carried in a moment before we died: it gets its addresses now.
pub fn arrive(pod: &Path, device: &MovedDevice) -> Result<bool, MoveError> {
    Netns::open(pod)?.run(|| match Socket::route()?.link(LinkRef::Name(&device.inside))? {
        None => Ok(false),
        Some(link) if link.is_up() => Ok(true),
        Some(_) => settle(&device.inside, &device.addresses, true).map(|()| true),
    })?
}

/// What the device of the calling thread's namespace is now, and what it will be called inside.
pub fn look(pod: &Path, host: &str, inside: &str) -> Result<MovedDevice, MoveError> {
    let mut here = Socket::route()?;
    let absent = || MoveError::Absent { name: host.to_owned() };
    let link = here.link(LinkRef::Name(host))?.ok_or_else(absent)?;
    let lasting = |net: &rtnl::Address| net.flags & IFA_F_PERMANENT != 0 && net.scope == SCOPE_UNIVERSE;
    let found = here.addresses(link.index)?;
    let addresses = found.iter().filter(|net| lasting(net)).map(|one| one.net).collect();
    let there = Netns::open(pod)?.run(|| Socket::route()?.links())??;
    let names = there.into_iter().map(|link| link.name).collect();
    let inside = name_inside(inside, &names)?;
    Ok(MovedDevice { host: host.to_owned(), inside, up: link.is_up(), addresses })
}

/// The name itself if it is free; the first free one of a template that ends in `%d`.
fn name_inside(wanted: &str, names: &HashSet<String>) -> Result<String, MoveError> {
    let Some(stem) = wanted.strip_suffix("%d") else {
        if names.contains(wanted) {
            return Err(MoveError::Taken { name: wanted.to_owned() });
        }
        return Ok(wanted.to_owned());
    };
    let numbered = (0..4096).map(|number| format!("{stem}{number}"));
    numbered
        .into_iter()
        .find(|name| !names.contains(name))
        .ok_or_else(|| MoveError::Template { name: wanted.to_owned() })
}

/// Into the pod: down, moved and renamed in one step, its addresses, up. A device that could not be moved is what it was.
pub fn move_in(pod: &Path, device: &MovedDevice) -> Result<(), MoveError> {
    let there = Netns::open(pod)?;
    if let Err(error) = carry(&device.host, &there, &device.inside) {
        settle(&device.host, &[], device.up)?;
        return Err(error);
    }
    let settled = there.run(|| settle(&device.inside, &device.addresses, true))?;
    if settled.is_err() {
        move_out(pod, device)?;
    }
    settled
}

/// Out of the pod, into the calling thread's namespace, to what it was before. A device that is gone stays gone.
pub fn move_out(pod: &Path, device: &MovedDevice) -> Result<(), MoveError> {
    let here = Netns::current()?;
    let moved = Netns::open(pod)?.run(|| match Socket::route()?.link(LinkRef::Name(&device.inside))? {
        None => Ok(false),
        Some(_) => carry(&device.inside, &here, &device.host).map(|()| true),
    })?;
    if moved? { settle(&device.host, &device.addresses, device.up) } else { Ok(()) }
}

/// Takes a device of the calling thread's namespace to another.
fn carry(name: &str, target: &Netns, new_name: &str) -> Result<(), MoveError> {
    let mut here = Socket::route()?;
    let absent = || MoveError::Absent { name: name.to_owned() };
    let index = LinkRef::Index(here.link(LinkRef::Name(name))?.ok_or_else(absent)?.index);
    let mut batch = Batch::new();
    batch.set_link(index, &LinkChange { up: Some(false), ..LinkChange::default() });
    let netns = Some(target.as_fd());
    batch.set_link(index, &LinkChange { name: Some(new_name), netns, ..LinkChange::default() });
    here.exchange(&mut batch)?;
    Ok(())
}

/// Gives a device its addresses and brings it up if it is to be.
fn settle(name: &str, addresses: &[IpNet], up: bool) -> Result<(), MoveError> {
    let mut socket = Socket::route()?;
    let absent = || MoveError::Absent { name: name.to_owned() };
    let link = socket.link(LinkRef::Name(name))?.ok_or_else(absent)?.index;
    let mut batch = Batch::new();
    for &net in addresses {
        batch.add_address(&NewAddress { link, net, no_dad: false, broadcast: true });
    }
    if up {
        batch.set_link(LinkRef::Index(link), &LinkChange { up: Some(true), ..LinkChange::default() });
    }
    if batch.is_empty() {
        return Ok(());
    }
    // An address that is there already is what was wanted.
    let refused =
        socket.run(&mut batch)?.refusals.into_iter().find(|no| no.errno != rustix::io::Errno::EXIST);
    refused.map_or(Ok(()), |no| Err(MoveError::Link(rtnl::Error::Refused(no))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_linux::rtnl::{Peer, Veth};
    use std::os::fd::AsRawFd;

    /// Two namespaces, the node's with a pair of devices, one of which is up and has an address.
    fn node_and_pod() -> (Netns, Netns) {
        let (node, pod) = (netns::create().unwrap(), netns::create().unwrap());
        node.run(|| {
            let mut socket = Socket::route().unwrap();
            let mut batch = Batch::new();
            let peer = Peer { name: "far0", netns: None, mac: None };
            batch.add_veth(&Veth { name: "near0", up: true, master: None, mtu: Some(1400), mac: None, peer });
            socket.exchange(&mut batch).unwrap();
            let link = socket.link(LinkRef::Name("near0")).unwrap().unwrap().index;
            let mut batch = Batch::new();
            let net = "192.0.2.7/24".parse().unwrap();
            batch.add_address(&NewAddress { link, net, no_dad: false, broadcast: true });
            socket.exchange(&mut batch).unwrap();
        })
        .unwrap();
        (node, pod)
    }

    fn path(ns: &Netns) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", ns.as_fd().as_raw_fd()).into()
    }

    /// Whether a device is up, its largest packet and its lasting addresses; `None` if it is not there.
    fn seen(ns: &Netns, name: &str) -> Option<(bool, u32, Vec<String>)> {
        ns.run(|| {
            let mut socket = Socket::route().unwrap();
            let link = socket.link(LinkRef::Name(name)).unwrap()?;
            let all = socket.addresses(link.index).unwrap();
            let own = all.iter().filter(|one| one.scope == SCOPE_UNIVERSE).map(|one| one.net.to_string());
            Some((link.is_up(), link.mtu, own.collect()))
        })
        .unwrap()
    }

    fn there() -> Option<(bool, u32, Vec<String>)> {
        Some((true, 1400, vec!["192.0.2.7/24".to_owned()]))
    }

    #[test]
    fn a_device_goes_into_the_pod_as_it_was_and_comes_home() {
        let (node, pod) = node_and_pod();
        let at = path(&pod);
        let device = node.run(|| look(&at, "near0", "net1").unwrap()).unwrap();
        node.run(|| move_in(&at, &device)).unwrap().unwrap();
        assert_eq!((seen(&node, "near0"), seen(&pod, "net1")), (None, there()));
        node.run(|| move_out(&at, &device)).unwrap().unwrap();
        assert_eq!((seen(&node, "near0"), seen(&pod, "net1")), (there(), None));
        // Once more does nothing: it is home.
        node.run(|| move_out(&at, &device)).unwrap().unwrap();
        assert_eq!(seen(&node, "near0"), there());
    }

    #[test]
    fn a_device_that_was_only_carried_before_the_end_gets_its_addresses_later() {
        let (node, pod) = node_and_pod();
        let at = path(&pod);
        let device = node.run(|| look(&at, "near0", "net1").unwrap()).unwrap();
        assert!(!arrive(&at, &device).unwrap(), "it has not left yet");
        let there_now = Netns::open(&at).unwrap();
        node.run(|| carry("near0", &there_now, "net1")).unwrap().unwrap();
        assert_eq!(seen(&pod, "net1"), Some((false, 1400, Vec::new())));
        assert!(arrive(&at, &device).unwrap());
        assert_eq!(seen(&pod, "net1"), there());
        assert!(arrive(&at, &device).unwrap(), "once more does nothing");
        assert_eq!(seen(&pod, "net1"), there());
    }

    #[test]
    fn a_device_that_is_not_there_or_a_name_that_is_taken_is_refused() {
        let (node, pod) = node_and_pod();
        let at = path(&pod);
        let error = node.run(|| look(&at, "none0", "net1").unwrap_err()).unwrap();
        assert!(matches!(error, MoveError::Absent { .. }), "{error}");
        let error = node.run(|| look(&at, "near0", "lo").unwrap_err()).unwrap();
        assert!(matches!(error, MoveError::Taken { .. }), "{error}");
        assert_eq!(seen(&node, "near0"), there());
    }

    #[test]
    fn a_template_takes_the_first_free_name() {
        let names = HashSet::from(["lo".to_owned(), "net0".to_owned(), "net2".to_owned()]);
        assert_eq!(name_inside("net%d", &names).unwrap(), "net1");
        assert_eq!(name_inside("net7", &names).unwrap(), "net7");
    }
}
