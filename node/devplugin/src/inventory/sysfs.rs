//! What sysfs says: where a device is, its serial number, interfaces, virtual functions and RDMA devices.
//!
//! <https://docs.kernel.org/admin-guide/abi-testing.html>: sysfs-bus-pci, sysfs-class-net, sysfs-class-infiniband.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{FoundLink, FoundRdma, FoundVf, Identity, LinkKind, Node};
use crate::tree::{Tree, natural};

const PCI: &str = "/sys/bus/pci/devices";
const NET: &str = "/sys/class/net";
/// A tap interface among those of the tun driver.
/// <https://docs.kernel.org/networking/tuntap.html>
const IFF_TAP: u32 = 0x0002;

/// The folder of a device file's device, once every link is followed.
pub(super) fn folder_of(tree: &Tree, identity: &Identity) -> Option<PathBuf> {
    let (class, major, minor) = match identity {
        Identity::Character(major, minor) => ("char", major, minor),
        Identity::Block(major, minor) => ("block", major, minor),
        _ => return None,
    };
    tree.real(Path::new(&format!("/sys/dev/{class}/{major}:{minor}")))
}

/// The device itself and what it hangs on, up to the bus.
fn upwards(folder: &Path) -> impl Iterator<Item = &Path> {
    folder
        .ancestors()
        .take_while(|folder| folder.starts_with("/sys/devices/") && *folder != Path::new("/sys/devices"))
}

/// The NUMA node of the nearest that has one; -1 is none.
pub(super) fn numa(tree: &Tree, folder: &Path) -> Option<u16> {
    upwards(folder).find_map(|folder| tree.read(&folder.join("numa_node")))?.parse().ok()
}

/// The serial number of the device or of what it is a part of, but not of the hub that it is plugged into.
pub(super) fn serial(tree: &Tree, folder: &Path) -> Option<String> {
    for folder in upwards(folder) {
        if let Some(serial) = tree.read(&folder.join("serial")) {
            return Some(serial);
        }
        if tree.read(&folder.join("idVendor")).is_some() {
            return None;
        }
    }
    None
}

/// Macvtap and tap interfaces.
pub(super) fn links(tree: &Tree) -> Vec<FoundLink> {
    let all = tree.list(Path::new(NET)).into_iter();
    all.filter_map(|name| {
        let folder = Path::new(NET).join(&name);
        let macvtap = tree.list(&folder.join("macvtap"));
        if let Some(tap) = macvtap.iter().find(|tap| tap.starts_with("tap")) {
            let node = tree.node(&Path::new("/dev").join(tap)).ok();
            let below = tree.list(&folder).into_iter().find(|entry| entry.starts_with("lower_"));
            let below = below.and_then(|lower| tree.real(&folder.join(lower)));
            let numa = below.and_then(|lower| numa(tree, &lower));
            return Some(FoundLink { name, kind: LinkKind::Macvtap, node, numa });
        }
        let flags = number(&tree.read(&folder.join("tun_flags"))?)?;
        (flags & IFF_TAP != 0).then_some(FoundLink { name, kind: LinkKind::Tap, node: None, numa: None })
    })
    .collect()
}

fn number(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// A physical function: its interfaces, whether one is up, and its virtual functions' numbers by address.
struct Physical {
    names: Vec<String>,
    up: bool,
    numbers: BTreeMap<String, u32>,
}

fn physical(tree: &Tree, address: &str) -> Physical {
    let folder = Path::new(PCI).join(address);
    let names = tree.list(&folder.join("net"));
    let up = names.iter().any(|name| {
        tree.read(&folder.join("net").join(name).join("operstate")).is_some_and(|state| state == "up")
    });
    let entries = tree.list(&folder).into_iter();
    let numbers = entries.filter_map(|entry| {
        let number = entry.strip_prefix("virtfn")?.parse().ok()?;
        Some((tree.link_name(&folder.join(&entry))?, number))
    });
    let numbers = numbers.collect();
    Physical { names, up, numbers }
}

/// SR-IOV virtual functions.
pub(super) fn virtual_functions(tree: &Tree) -> Vec<FoundVf> {
    let mut parents: BTreeMap<String, Physical> = BTreeMap::new();
    let mut found = Vec::new();
    for address in tree.list(Path::new(PCI)) {
        let folder = Path::new(PCI).join(&address);
        let Some(parent) = tree.link_name(&folder.join("physfn")) else { continue };
        let pf = parents.entry(parent.clone()).or_insert_with(|| physical(tree, &parent));
        let driver = tree.link_name(&folder.join("driver"));
        let hex = |file: &str| {
            tree.read(&folder.join(file)).map(|text| text.trim_start_matches("0x").to_lowercase())
        };
        found.push(FoundVf {
            pf: pf.names.clone(),
            index: pf.numbers.get(&address).copied(),
            vendor: hex("vendor"),
            device: hex("device"),
            link: pf.up,
            numa: tree.read(&folder.join("numa_node")).and_then(|text| text.parse().ok()),
            group: (driver.as_deref() == Some("vfio-pci")).then(|| group(tree, &folder)),
            rdma: tree.list(&folder.join("infiniband")),
            driver,
            address,
        });
    }
    found
}

fn group(tree: &Tree, folder: &Path) -> Result<Node, String> {
    let number = tree.link_name(&folder.join("iommu_group")).ok_or("it is in no IOMMU group")?;
    let path = Path::new("/dev/vfio").join(number);
    tree.node(&path).map_err(|why| format!("{}: {why}", path.display()))
}

/// RDMA devices.
pub(super) fn rdma(tree: &Tree) -> Vec<FoundRdma> {
    let verbs = files(tree, "infiniband_verbs");
    let mad = files(tree, "infiniband_mad");
    let names = tree.list(Path::new("/sys/class/infiniband")).into_iter();
    names
        .map(|name| {
            let folder = Path::new("/sys/class/infiniband").join(&name);
            let real = tree.real(&folder).unwrap_or_default();
            FoundRdma {
                driver: tree.link_name(&folder.join("device/driver")),
                verbs: verbs.get(&name).cloned().unwrap_or_default(),
                mad: mad.get(&name).cloned().unwrap_or_default(),
                numa: numa(tree, &real).or_else(|| {
                    tree.read(&folder.join("device/numa_node")).and_then(|text| text.parse().ok())
                }),
                name,
            }
        })
        .collect()
}

/// The files of a class by the RDMA device that each belongs to.
fn files(tree: &Tree, class: &str) -> BTreeMap<String, Vec<Node>> {
    let mut found: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    let folder = Path::new("/sys/class").join(class);
    let mut names = tree.list(&folder);
    names.sort_by(|one, other| natural(one).cmp(&natural(other)));
    for name in names {
        let Some(device) = tree.read(&folder.join(&name).join("ibdev")) else { continue };
        if let Ok(node) = tree.node(&Path::new("/dev/infiniband").join(&name)) {
            found.entry(device).or_default().push(node);
        }
    }
    found
}
