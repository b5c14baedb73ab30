//! What the node has: device files that the pools' selectors could mean, interfaces, virtual functions, RDMA devices.
//!
//! Reads the tree and decides nothing; `plan` does. Every folder that was looked into is remembered, so that a change in one of
//! them brings a new look.

mod nodes;
mod sysfs;

pub(crate) use nodes::link_has_serial;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use crate::{
    config::{Config, Selector},
    tree::Tree,
};

pub(crate) const TUN: &str = "/dev/net/tun";
pub(crate) const VHOST_NET: &str = "/dev/vhost-net";
const VFIO: &str = "/dev/vfio/vfio";
const RDMA_CM: &str = "/dev/infiniband/rdma_cm";

/// What makes a device the same one under whatever name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    Character(u32, u32),
    Block(u32, u32),
    Pci(String),
    Link(String),
    Rdma(String),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Character(major, minor) => write!(f, "character device {major}:{minor}"),
            Identity::Block(major, minor) => write!(f, "block device {major}:{minor}"),
            Identity::Pci(address) => write!(f, "PCI device {address}"),
            Identity::Link(name) => write!(f, "interface {name}"),
            Identity::Rdma(name) => write!(f, "RDMA device {name}"),
        }
    }
}

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Where it is once every link is followed.
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
}

/// A device file that a path or a search for serial numbers led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundNode {
    /// The path that led there.
    pub(crate) named: PathBuf,
    pub(crate) node: Node,
    pub(crate) serial: Option<String>,
    /// It is a part of a disk, which has the disk's serial number.
    pub(crate) partition: bool,
    pub(crate) numa: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    Macvtap,
    Tap,
}

/// An interface that a container can speak through by a device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundLink {
    pub(crate) name: String,
    pub(crate) kind: LinkKind,
    /// The file of a macvtap interface; `/dev/net/tun` serves all tap interfaces.
    pub(crate) node: Option<Node>,
    pub(crate) numa: Option<u16>,
}

/// An SR-IOV virtual function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FoundVf {
    pub(crate) address: String,
    /// The interfaces of its physical function.
    pub(crate) pf: Vec<String>,
    /// Its number among the functions of that one.
    pub(crate) index: Option<u32>,
    pub(crate) driver: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) device: Option<String>,
    /// The physical function's link is up.
    pub(crate) link: bool,
    pub(crate) numa: Option<u16>,
    /// The file of its group, if it is driven from user space; the error tells why there should be one and is none.
    pub(crate) group: Option<Result<Node, String>>,
    /// Its RDMA devices by name.
    pub(crate) rdma: Vec<String>,
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRdma {
    pub(crate) name: String,
    pub(crate) driver: Option<String>,
    pub(crate) verbs: Vec<Node>,
    /// Files that speak to the subnet's management.
    pub(crate) mad: Vec<Node>,
    pub(crate) numa: Option<u16>,
}

/// A path that fits a pool and leads to no device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeftOut {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inventory {
    pub(crate) nodes: Vec<FoundNode>,
    pub(crate) links: Vec<FoundLink>,
    pub(crate) vfs: Vec<FoundVf>,
    pub(crate) rdma: Vec<FoundRdma>,
    /// Files that go with devices of several pools and belong to none.
    pub(crate) tun: Option<Node>,
    pub(crate) vfio: Option<Node>,
    pub(crate) rdma_cm: Option<Node>,
    pub(crate) left_out: BTreeSet<LeftOut>,
    /// Folders of `/dev` that were looked into, there or not.
    pub(crate) folders: BTreeSet<PathBuf>,
}

/// What has to be looked at for the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wanted {
    pub(crate) links: bool,
    pub(crate) vfs: bool,
    pub(crate) rdma: bool,
    pub(crate) serials: bool,
}

impl Wanted {
    pub(crate) fn by(config: &Config) -> Wanted {
        let mut wanted = Wanted::default();
        for selector in config.pools.iter().flat_map(|pool| &pool.select) {
            match selector {
                Selector::Macvtap { .. } | Selector::Tap { .. } => wanted.links = true,
                Selector::Vf { rdma, .. } => (wanted.vfs, wanted.rdma) = (true, wanted.rdma || *rdma),
                Selector::Rdma { .. } => wanted.rdma = true,
                Selector::Node { serial: Some(_), .. } => wanted.serials = true,
                Selector::Node { .. } | Selector::Tun {} | Selector::VhostNet {} => {}
            }
        }
        wanted
    }

    /// Files alone do not tell of changes to these; the kernel does, by netlink.
    pub(crate) fn beyond_files(self) -> bool {
        self.links || self.vfs || self.rdma || self.serials
    }
}

/// Looks at the node. Blocking.
pub(crate) fn take(tree: &Tree, config: &Config) -> Inventory {
    let wanted = Wanted::by(config);
    let (mut found, mut seen) = (Inventory::default(), nodes::Seen::new());
    for selector in config.pools.iter().flat_map(|pool| &pool.select) {
        match selector {
            Selector::Node { path: Some(path), .. } => nodes::fitting(tree, path, &mut seen, &mut found),
            Selector::Node { path: None, .. } => nodes::with_serials(tree, &mut seen, &mut found),
            Selector::Tun {} => nodes::fitting(tree, TUN, &mut seen, &mut found),
            Selector::VhostNet {} => nodes::fitting(tree, VHOST_NET, &mut seen, &mut found),
            _ => {}
        }
    }
    if wanted.links {
        found.folders.insert("/dev".into());
        found.tun = common(tree, TUN, &mut found.folders);
        found.links = sysfs::links(tree);
    }
    if wanted.vfs {
        found.vfio = common(tree, VFIO, &mut found.folders);
        found.vfs = sysfs::virtual_functions(tree);
    }
    if wanted.rdma {
        found.rdma_cm = common(tree, RDMA_CM, &mut found.folders);
        found.rdma = sysfs::rdma(tree);
    }
    found
}

fn common(tree: &Tree, path: &str, folders: &mut BTreeSet<PathBuf>) -> Option<Node> {
    let path = Path::new(path);
    // The folder of the folder tells when it comes.
    folders
        .extend(path.ancestors().skip(1).take_while(|folder| folder.starts_with("/dev")).map(Path::to_owned));
    tree.node(path).ok()
}
