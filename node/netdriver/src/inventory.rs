//! What the node has: links by rtnetlink, and what is behind them by sysfs. Reads and decides nothing; `plan::devices` does.
//!
//! Only `/sys/bus` is read, which is the same in every network namespace; `/sys/class/net` shows those of one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use podwire_linux::{
    netns::{self, Netns},
    rtnl::{self, Link, Socket},
};

use crate::plan::devices::{Pci, Seen, SeenLink};

/// An attribute of sysfs is at most a page.
const ATTRIBUTE: u64 = 4096;
/// Addresses that are valid everywhere.
const SCOPE_UNIVERSE: u8 = 0;

/// Why the node could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its network namespace.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The kernel refused.
    #[error(transparent)]
    Link(#[from] rtnl::Error),
}

/// What looks.
pub(crate) struct Inventory {
    home: Netns,
    sysfs: PathBuf,
    /// By which links the node ever reached the world: one that lost its route for a while is no less needed.
    uplinks: BTreeSet<u32>,
}

impl Inventory {
    /// Looks at the namespace, with sysfs at a place.
    pub(crate) fn of(home: Netns, sysfs: PathBuf) -> Inventory {
        Inventory { home, sysfs, uplinks: BTreeSet::new() }
    }

    /// Looks. Blocking.
    pub(crate) fn look(&mut self) -> Result<Seen, Error> {
        let (links, addresses, routes) = self.home.run(|| {
            let mut socket = Socket::route()?;
            let links = socket.links()?;
            let addresses = socket.all_addresses()?;
            let mut routes = socket.routes(None, false)?;
            routes.extend(socket.routes(None, true)?);
            Ok::<_, rtnl::Error>((links, addresses, routes))
        })??;
        self.uplinks.extend(uplinks(&routes));
        let there: BTreeSet<u32> = links.iter().map(|link| link.index).collect();
        self.uplinks.retain(|index| there.contains(index));
        let mut by_link: BTreeMap<u32, Vec<ipnet::IpNet>> = BTreeMap::new();
        for one in addresses.iter().filter(|one| one.scope == SCOPE_UNIVERSE) {
            by_link.entry(one.link).or_default().push(one.net);
        }
        let seen = links.into_iter().map(|link| SeenLink {
            addresses: by_link.remove(&link.index).unwrap_or_default(),
            pci: self.pci(&link),
            link,
        });
        Ok(Seen { links: seen.collect(), uplinks: self.uplinks.clone() })
    }

    /// The PCI function that a link is a part of, also by what is between them, as with virtio.
    fn pci(&self, link: &Link) -> Option<Pci> {
        let (bus, name) = link.parent_device.as_ref()?;
        let plain = |text: &str| !text.is_empty() && !text.contains('/') && text != "." && text != "..";
        if !plain(bus) || !plain(name) {
            return None;
        }
        let device = self.sysfs.join("bus").join(bus).join("devices").join(name).canonicalize().ok()?;
        let place = device.ancestors().find(|place| is_function(place))?;
        let address = place.file_name()?.to_str()?.to_owned();
        let number = |name: &str| read(&place.join(name)).and_then(|text| text.parse::<i64>().ok());
        let root =
            device.ancestors().filter_map(|place| place.file_name()?.to_str()).find(|name| is_root(name));
        Some(Pci {
            root: root.map(str::to_owned),
            vendor: read(&place.join("vendor")),
            device: read(&place.join("device")),
            numa: number("numa_node"),
            functions: number("sriov_totalvfs").map(|most| (most, number("sriov_numvfs").unwrap_or(0))),
            is_function: place.join("physfn").exists(),
            rdma: names(&place.join("infiniband")),
            verbs: names(&place.join("infiniband_verbs")),
            address,
        })
    }
}

/// The links of the default routes that count: those with the lowest metric of each family.
fn uplinks(routes: &[rtnl::Route]) -> BTreeSet<u32> {
    const MAIN: u32 = 254;
    let mut all = BTreeSet::new();
    for v4 in [true, false] {
        let defaults = routes.iter().filter(|route| {
            let to = route.destination;
            to.prefix_len() == 0 && to.addr().is_ipv4() == v4 && route.table == Some(MAIN)
        });
        let defaults: Vec<_> = defaults.map(|route| (route.priority.unwrap_or(0), route.link)).collect();
        let least = defaults.iter().map(|(metric, _)| *metric).min();
        all.extend(defaults.iter().filter(|(metric, _)| Some(*metric) == least).map(|(_, link)| *link));
    }
    all
}

/// `0000:8a:00.0`
fn is_function(place: &Path) -> bool {
    let name = place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shape = |c: char| if c.is_ascii_hexdigit() { 'x' } else { c };
    let shape: String = name.chars().map(shape).collect();
    shape.len() >= 12 && shape.ends_with("xxxx:xx:xx.x")
}

/// `pci0000:80`
fn is_root(name: &str) -> bool {
    let numbers = name.strip_prefix("pci").and_then(|rest| rest.split_once(':'));
    let hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    numbers.is_some_and(|(domain, bus)| hex(domain) && hex(bus))
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(ATTRIBUTE).read_to_string(&mut text).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut all: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use podwire_linux::rtnl::Route;

    use super::*;

    #[test]
    fn a_link_has_the_function_and_the_root_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let function = root.join("devices/pci0000:80/0000:80:01.0/0000:8a:00.2");
        let virtio = function.join("virtio3");
        std::fs::create_dir_all(&virtio).unwrap();
        std::fs::create_dir_all(function.join("infiniband/mlx5_2")).unwrap();
        std::fs::create_dir_all(function.join("infiniband_verbs/uverbs2")).unwrap();
        std::fs::create_dir_all(function.join("physfn")).unwrap();
        for (name, text) in [
            ("vendor", "0x15b3\n"),
            ("device", "0x101e\n"),
            ("numa_node", "1\n"),
            ("sriov_totalvfs", "8\n"),
            ("sriov_numvfs", "2\n"),
        ] {
            std::fs::write(function.join(name), text).unwrap();
        }
        for (bus, name, to) in [("pci", "0000:8a:00.2", &function), ("virtio", "virtio3", &virtio)] {
            let devices = root.join("bus").join(bus).join("devices");
            std::fs::create_dir_all(&devices).unwrap();
            symlink(to, devices.join(name)).unwrap();
        }
        let inventory = Inventory::of(Netns::current().unwrap(), root.to_owned());
        let of = |bus: &str, name: &str| {
            let parent_device = Some((bus.to_owned(), name.to_owned()));
            inventory.pci(&Link { parent_device, ..Link::default() })
        };
        let wanted = Pci {
            address: "0000:8a:00.2".into(),
            root: Some("pci0000:80".into()),
            vendor: Some("0x15b3".into()),
            device: Some("0x101e".into()),
            numa: Some(1),
            functions: Some((8, 2)),
            is_function: true,
            rdma: vec!["mlx5_2".into()],
            verbs: vec!["uverbs2".into()],
        };
        assert_eq!(of("pci", "0000:8a:00.2"), Some(wanted.clone()));
        assert_eq!(of("virtio", "virtio3"), Some(wanted));
        assert_eq!(of("..", "bus"), None);
        assert_eq!(of("pci", "0000:00:00.0"), None);
    }

    #[test]
    fn the_best_default_routes_of_each_family_count() {
        let to = |net: &str, link, priority, table| Route {
            priority,
            table: Some(table),
            ..Route::by_link(net.parse().unwrap(), link)
        };
        let routes = [
            to("0.0.0.0/0", 2, Some(100), 254),
            to("0.0.0.0/0", 3, Some(100), 254),
            to("0.0.0.0/0", 4, Some(200), 254),
            to("0.0.0.0/0", 5, None, 100),
            to("10.0.0.0/8", 6, None, 254),
            to("::/0", 7, Some(1024), 254),
        ];
        assert_eq!(uplinks(&routes), BTreeSet::from([2, 3, 7]));
    }
}
