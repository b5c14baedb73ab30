//! Which devices each pool offers, from what was asked for and what is there.
//!
//! Pure: `inventory` has looked, `plugin` tells the kubelet. A device has one identity however many names it has, and belongs
//! to one pool: the first that names it keeps it, and the second is told.

mod allocate;
mod prefer;

pub(crate) use self::{
    allocate::{Refusal, allocate},
    prefer::prefer,
};

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use podwire_wire::device_plugin as v1beta1;

use crate::{
    config::{Config, MOST_IDS, Numa, NumaWord, PhysicalFunction, Pool, Selector},
    glob,
    inventory::{
        FoundLink, FoundNode, FoundVf, Identity, Inventory, LinkKind, Node, TUN, VHOST_NET, link_has_serial,
    },
};

/// A device as a pool offers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// What the kubelet knows it by, before it is shared.
    pub(crate) id: String,
    /// What a container is told that it was given: a PCI address, an interface; else the path of its file.
    pub(crate) name: Option<String>,
    pub(crate) identity: Identity,
    /// Other devices that come with it and may not be given to anybody else.
    pub(crate) also: Vec<Identity>,
    /// Its files on the node.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) numa: Option<u16>,
    /// Why it cannot be used now.
    pub(crate) trouble: Option<String>,
}

/// What one resource has to offer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Offer {
    pub(crate) pool: Arc<Pool>,
    pub(crate) devices: Vec<Device>,
}

/// Why a device is not offered although a pool names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Conflict {
    #[error(
        "{identity} ({id}) is named by two pools, {first} and {second}; change a selector of one of them"
    )]
    TwoPools { identity: Identity, id: String, first: String, second: String },
    #[error(
        "pool {resource} has {devices} devices for {share} containers each, more than {MOST_IDS} in all; share less or choose fewer"
    )]
    TooMany { resource: String, devices: usize, share: u32 },
}

/// What is offered, and what is not although it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) offers: Vec<Offer>,
    pub(crate) conflicts: Vec<Conflict>,
}

/// The offers of all pools, in the configuration's order.
pub(crate) fn plan(config: &Config, inventory: &Inventory) -> Plan {
    let mut owners: BTreeMap<Identity, usize> = BTreeMap::new();
    let mut plan = Plan::default();
    for (at, pool) in config.pools.iter().enumerate() {
        let mut devices: Vec<Device> = Vec::new();
        for device in pool.select.iter().flat_map(|selector| chosen(selector, inventory)) {
            if owners.get(&device.identity) == Some(&at) {
                continue;
            }
            let claims = || std::iter::once(&device.identity).chain(&device.also);
            let taken = claims()
                .find_map(|one| owners.get(one).filter(|owner| **owner != at).map(|owner| (one, *owner)));
            if let Some((identity, owner)) = taken {
                plan.conflicts.push(Conflict::TwoPools {
                    identity: identity.clone(),
                    id: device.id,
                    first: config.pools[owner].resource.clone(),
                    second: pool.resource.clone(),
                });
                continue;
            }
            owners.extend(claims().map(|one| (one.clone(), at)));
            devices.push(device);
        }
        let most = (MOST_IDS / pool.share) as usize;
        if devices.len() > most {
            let (resource, share) = (pool.resource.clone(), pool.share);
            plan.conflicts.push(Conflict::TooMany { resource, devices: devices.len(), share });
            devices.truncate(most);
        }
        devices.iter_mut().for_each(|device| device.numa = numa(pool, device.numa));
        tell_apart(pool, &mut devices);
        plan.offers.push(Offer { pool: Arc::new(pool.clone()), devices });
    }
    plan
}

/// What is offered now, and what was offered before and is gone: the kubelet is told that it is unhealthy, as a container may
/// have it, and it may come back.
pub(crate) fn carried(before: &Offer, mut now: Offer) -> Offer {
    let most = (MOST_IDS / now.pool.share) as usize;
    let here: BTreeSet<&str> = now.devices.iter().map(|device| device.id.as_str()).collect();
    let gone: Vec<Device> = before
        .devices
        .iter()
        .filter(|device| !here.contains(device.id.as_str()))
        .take(most.saturating_sub(here.len()))
        .map(|device| Device { trouble: Some("it is gone".to_owned()), ..device.clone() })
        .collect();
    now.devices.extend(gone);
    now
}

fn numa(pool: &Pool, found: Option<u16>) -> Option<u16> {
    match pool.numa {
        Numa::At(node) => Some(node),
        Numa::Said(NumaWord::None) => None,
        Numa::Said(NumaWord::Sysfs) | Numa::Sysfs => found,
    }
}

/// Two devices that CDI would call the same are not mixed up: the second cannot be used.
fn tell_apart(pool: &Pool, devices: &mut [Device]) {
    if pool.cdi.is_none() {
        return;
    }
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for device in devices {
        match names.entry(cdi_name(&device.id)) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(device.id.clone());
            }
            std::collections::btree_map::Entry::Occupied(other) => {
                device.trouble = Some(format!("CDI calls it {:?}, as it does {}", other.key(), other.get()));
            }
        }
    }
}

/// The name of a device within its CDI kind: letters, digits and `_-.:`, with a letter or digit at both ends.
fn cdi_name(id: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    let name: String = id.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    name.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

fn chosen(selector: &Selector, inventory: &Inventory) -> Vec<Device> {
    match selector {
        Selector::Tun {} => at_path(inventory, TUN),
        Selector::VhostNet {} => at_path(inventory, VHOST_NET),
        Selector::Node { path, serial } => {
            let fit = |found: &&FoundNode| {
                path.as_ref().is_none_or(|path| path_fits(path, &found.named))
                    && serial.as_ref().is_none_or(|serial| has_serial(found, serial, path.is_some()))
            };
            inventory.nodes.iter().filter(fit).map(of_node).collect()
        }
        Selector::Macvtap { name } => links(inventory, LinkKind::Macvtap, name),
        Selector::Tap { name } => links(inventory, LinkKind::Tap, name),
        Selector::Vf { .. } => inventory
            .vfs
            .iter()
            .filter(|vf| vf_fits(selector, vf))
            .map(|vf| of_vf(selector, vf, inventory))
            .collect(),
        Selector::Rdma { name, driver, mad } => {
            let fit = inventory.rdma.iter().filter(|found| {
                glob::fits(name, &found.name) && any(driver, found.driver.as_deref().unwrap_or_default())
            });
            fit.map(|found| of_rdma(&found.name, *mad, inventory)).collect()
        }
    }
}

fn at_path(inventory: &Inventory, path: &str) -> Vec<Device> {
    inventory.nodes.iter().filter(|found| found.named == Path::new(path)).map(of_node).collect()
}

fn path_fits(pattern: &str, path: &Path) -> bool {
    let parts = path.to_str().map(|path| path.split('/')).into_iter().flatten();
    let mut patterns = pattern.split('/');
    let all = parts.into_iter().all(|part| patterns.next().is_some_and(|pattern| glob::fits(pattern, part)));
    all && patterns.next().is_none()
}

/// A part of a disk has the disk's number and is meant only if its path says so.
fn has_serial(found: &FoundNode, serial: &str, by_path: bool) -> bool {
    let number = found.serial.as_deref() == Some(serial) || link_has_serial(&found.named, serial);
    number && (by_path || !found.partition)
}

fn of_node(found: &FoundNode) -> Device {
    Device {
        id: below_dev(&found.named),
        name: None,
        identity: found.node.identity.clone(),
        also: Vec::new(),
        files: vec![found.node.path.clone()],
        numa: found.numa,
        trouble: None,
    }
}

fn below_dev(path: &Path) -> String {
    path.strip_prefix("/dev").unwrap_or(path).to_string_lossy().into_owned()
}

fn links(inventory: &Inventory, kind: LinkKind, pattern: &str) -> Vec<Device> {
    let fit = inventory.links.iter().filter(|link| link.kind == kind && glob::fits(pattern, &link.name));
    fit.map(|link| of_link(link, inventory)).collect()
}

fn of_link(link: &FoundLink, inventory: &Inventory) -> Device {
    let (node, file) = match link.kind {
        LinkKind::Macvtap => (link.node.as_ref(), "its file /dev/tapN is not there"),
        LinkKind::Tap => (inventory.tun.as_ref(), "/dev/net/tun is not there"),
    };
    // The file of a macvtap interface is its own; that of tap interfaces is everybody's.
    let own = node.filter(|_| link.kind == LinkKind::Macvtap).map(|node| node.identity.clone());
    Device {
        id: link.name.clone(),
        name: Some(link.name.clone()),
        identity: Identity::Link(link.name.clone()),
        also: own.into_iter().collect(),
        files: node.map(|node| node.path.clone()).into_iter().collect(),
        numa: link.numa,
        trouble: node.is_none().then(|| file.to_owned()),
    }
}

/// An empty list excludes nobody.
fn any(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| glob::fits(pattern, name))
}

fn vf_fits(selector: &Selector, vf: &FoundVf) -> bool {
    let Selector::Vf { pf, driver, address, vendor, device, rdma, .. } = selector else { return false };
    let of_pf = |text: &String| {
        PhysicalFunction::parse(text).is_ok_and(|wanted| {
            wanted.has(vf.index) && vf.pf.iter().any(|name| glob::fits(wanted.name, name))
        })
    };
    let number = |wanted: &[String], found: &Option<String>| {
        wanted.is_empty()
            || wanted.iter().any(|one| found.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(one)))
    };
    (pf.is_empty() || pf.iter().any(of_pf))
        && any(driver, vf.driver.as_deref().unwrap_or_default())
        && any(address, &vf.address)
        && number(vendor, &vf.vendor)
        && number(device, &vf.device)
        && (!*rdma || !vf.rdma.is_empty())
}

fn of_vf(selector: &Selector, vf: &FoundVf, inventory: &Inventory) -> Device {
    let (with_rdma, needs_link) = match selector {
        Selector::Vf { rdma, require_link, .. } => (*rdma, *require_link),
        _ => (false, false),
    };
    let mut device = Device {
        id: vf.address.clone(),
        name: Some(vf.address.clone()),
        identity: Identity::Pci(vf.address.clone()),
        also: Vec::new(),
        files: Vec::new(),
        numa: vf.numa,
        trouble: (needs_link && !vf.link).then(|| "the link of its physical function is down".to_owned()),
    };
    match (&vf.group, &inventory.vfio) {
        (None, _) => {}
        (Some(Ok(group)), Some(vfio)) => {
            device.files = vec![vfio.path.clone(), group.path.clone()];
            device.also.push(group.identity.clone());
        }
        (Some(Ok(_)), None) => device.trouble = Some("/dev/vfio/vfio is not there".to_owned()),
        (Some(Err(why)), _) => device.trouble = Some(why.clone()),
    }
    if with_rdma {
        for name in &vf.rdma {
            let rdma = of_rdma(name, false, inventory);
            device.also.extend([rdma.identity].into_iter().chain(rdma.also));
            device.files.extend(
                rdma.files.into_iter().filter(|file| !device.files.contains(file)).collect::<Vec<_>>(),
            );
            device.trouble = device.trouble.or(rdma.trouble);
        }
    }
    device
}

fn of_rdma(name: &str, mad: bool, inventory: &Inventory) -> Device {
    let found = inventory.rdma.iter().find(|found| found.name == name);
    let verbs = found.map(|found| found.verbs.as_slice()).unwrap_or_default();
    let mad = found.filter(|_| mad).map(|found| found.mad.as_slice()).unwrap_or_default();
    let own: Vec<&Node> = verbs.iter().chain(mad).collect();
    let files = own.iter().copied().chain(&inventory.rdma_cm).map(|node| node.path.clone()).collect();
    Device {
        id: name.to_owned(),
        name: Some(name.to_owned()),
        identity: Identity::Rdma(name.to_owned()),
        also: own.iter().map(|node| node.identity.clone()).collect(),
        files,
        numa: found.and_then(|found| found.numa),
        trouble: verbs.is_empty().then(|| "it has no file in /dev/infiniband".to_owned()),
    }
}

impl Offer {
    /// The ids of a device: its own, or one for each container that may have it.
    pub(crate) fn ids<'a>(&self, device: &'a Device) -> impl Iterator<Item = String> + use<'a> {
        let share = self.pool.share;
        (0..share)
            .map(move |number| if share == 1 { device.id.clone() } else { format!("{}#{number}", device.id) })
    }

    /// The device behind an id.
    pub(crate) fn device(&self, id: &str) -> Option<&Device> {
        let own = self.own_id(id)?;
        self.devices.iter().find(|device| device.id == own)
    }

    /// The id of the device behind an id, whether there is such a device or not.
    fn own_id<'a>(&self, id: &'a str) -> Option<&'a str> {
        if self.pool.share == 1 {
            return Some(id);
        }
        let (own, number) = id.rsplit_once('#')?;
        // As it is written, and not `+1` or `01`.
        let number = number.parse::<u32>().ok().filter(|parsed| parsed.to_string() == number)?;
        (number < self.pool.share).then_some(own)
    }

    /// What the kubelet is told.
    pub(crate) fn told(&self) -> Vec<v1beta1::Device> {
        let one = |device: &Device, id| v1beta1::Device {
            id,
            health: if device.trouble.is_none() { "Healthy" } else { "Unhealthy" }.to_owned(),
            topology: device
                .numa
                .map(|node| v1beta1::TopologyInfo { nodes: vec![v1beta1::NumaNode { id: node.into() }] }),
        };
        self.devices.iter().flat_map(|device| self.ids(device).map(move |id| one(device, id))).collect()
    }
}

#[cfg(test)]
mod tests;
