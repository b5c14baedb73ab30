//! Trees of `/dev` and `/sys` in a folder of the test: real device nodes, and sysfs as files and links.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode};

/// A major number that Linux keeps for experiments.
const MAJOR: u32 = 240;

pub(crate) struct Trees(tempfile::TempDir);

impl Trees {
    pub(crate) fn new() -> Trees {
        let trees = Trees(tempfile::tempdir().unwrap());
        fs::create_dir_all(trees.root().join("dev")).unwrap();
        fs::create_dir_all(trees.root().join("sys/devices")).unwrap();
        trees
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    fn ready(&self, path: &str) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub(crate) fn node_at(&self, path: &str, minor: u32) {
        let device = rustix::fs::makedev(MAJOR, minor);
        rustix::fs::mknodat(CWD, self.ready(path), FileType::CharacterDevice, Mode::RUSR, device).unwrap();
    }

    pub(crate) fn character(&self, name: &str, minor: u32) {
        self.node_at(&format!("dev/{name}"), minor);
    }

    pub(crate) fn file(&self, name: &str) {
        fs::write(self.ready(&format!("dev/{name}")), "no device").unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.root().join("dev").join(name)).unwrap();
    }

    pub(crate) fn link_in_dev(&self, name: &str, to: &str) {
        symlink(to, self.ready(&format!("dev/{name}"))).unwrap();
    }

    pub(crate) fn attribute(&self, path: &str, value: &str) {
        fs::write(self.ready(&format!("sys/{path}")), format!("{value}\n")).unwrap();
    }

    /// A link of sysfs, absolute in the tree, as the kernel's relative ones lead to the same place.
    fn link(&self, path: &str, to: &str) {
        symlink(format!("/sys/{to}"), self.ready(&format!("sys/{path}"))).unwrap();
    }

    pub(crate) fn sys_of_character(&self, minor: u32, device: &str) {
        fs::create_dir_all(self.root().join("sys/devices").join(device)).unwrap();
        self.link(&format!("dev/char/{MAJOR}:{minor}"), &format!("devices/{device}"));
    }

    fn pci(&self, address: &str, numa: u32, driver: &str) {
        let folder = format!("devices/pci0000:3a/{address}");
        for (name, value) in [("vendor", "0x15b3"), ("device", "0x1018"), ("numa_node", &numa.to_string())] {
            self.attribute(&format!("{folder}/{name}"), value);
        }
        fs::create_dir_all(self.root().join("sys/bus/pci/drivers").join(driver)).unwrap();
        self.link(&format!("{folder}/driver"), &format!("bus/pci/drivers/{driver}"));
        self.link(&format!("bus/pci/devices/{address}"), &folder);
    }

    /// A physical function whose link is up.
    pub(crate) fn pf(&self, address: &str, name: &str, numa: u32) {
        self.pci(address, numa, "mlx5_core");
        self.operstate(address, name, "up");
        self.link(&format!("class/net/{name}"), &format!("devices/pci0000:3a/{address}/net/{name}"));
    }

    pub(crate) fn operstate(&self, address: &str, name: &str, state: &str) {
        self.attribute(&format!("devices/pci0000:3a/{address}/net/{name}/operstate"), state);
    }

    pub(crate) fn vf(&self, pf: &str, number: u32, address: &str, driver: &str) {
        let numa =
            fs::read_to_string(self.root().join(format!("sys/devices/pci0000:3a/{pf}/numa_node"))).unwrap();
        self.pci(address, numa.trim().parse().unwrap(), driver);
        self.link(&format!("devices/pci0000:3a/{address}/physfn"), &format!("devices/pci0000:3a/{pf}"));
        self.link(
            &format!("devices/pci0000:3a/{pf}/virtfn{number}"),
            &format!("devices/pci0000:3a/{address}"),
        );
    }

    pub(crate) fn iommu_group(&self, address: &str, group: u32) {
        fs::create_dir_all(self.root().join(format!("sys/kernel/iommu_groups/{group}"))).unwrap();
        self.link(
            &format!("devices/pci0000:3a/{address}/iommu_group"),
            &format!("kernel/iommu_groups/{group}"),
        );
    }

    /// An RDMA device with its verbs and management files.
    pub(crate) fn rdma(&self, address: &str, name: &str, number: u32) {
        let folder = format!("devices/pci0000:3a/{address}");
        fs::create_dir_all(self.root().join(format!("sys/{folder}/infiniband/{name}"))).unwrap();
        self.link(&format!("{folder}/infiniband/{name}/device"), &folder);
        self.link(&format!("class/infiniband/{name}"), &format!("{folder}/infiniband/{name}"));
        for (class, file, minor) in [("infiniband_verbs", "uverbs", 10), ("infiniband_mad", "umad", 30)] {
            self.attribute(&format!("{folder}/{class}/{file}{number}/ibdev"), name);
            self.link(&format!("class/{class}/{file}{number}"), &format!("{folder}/{class}/{file}{number}"));
            self.character(&format!("infiniband/{file}{number}"), minor + number);
        }
    }

    pub(crate) fn macvtap(&self, name: &str, index: u32, lower: &str, address: &str) {
        let folder = format!("devices/virtual/net/{name}");
        self.attribute(&format!("{folder}/macvtap/tap{index}/dev"), "240:7");
        self.link(&format!("{folder}/lower_{lower}"), &format!("devices/pci0000:3a/{address}/net/{lower}"));
        self.link(&format!("class/net/{name}"), &folder);
    }

    pub(crate) fn tap(&self, name: &str, flags: &str) {
        self.attribute(&format!("devices/virtual/net/{name}/tun_flags"), flags);
        self.link(&format!("class/net/{name}"), &format!("devices/virtual/net/{name}"));
    }
}
