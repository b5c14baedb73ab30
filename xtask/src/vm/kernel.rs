//! Debian's kernels: found, downloaded, unpacked, and their modules in the order they must be loaded.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{first, output, output_bytes};

/// The kernels that tests run under. What the second lacks: `lowerdir+`, hang-ups of pidfds, exit codes of strangers,
/// tmpfs with mapped ids.
pub const LINES: &[&str] = &["6.12", "6.1"];

/// Kernel modules a node needs, loaded by the init in this order (dependencies follow by themselves). Not nfnetlink_log: the
/// network plugin must do without it.
const MODULES: &[&str] = &[
    // What others ask for when they are loaded, and no table says so.
    "crc32c_generic",
    "virtio_pci",
    "virtio_blk",
    "ext4",
    "overlay",
    "veth",
    "bridge",
    "macvlan",
    "dummy",
    "8021q",
    "ipvlan",
    "vrf",
    "nf_tables",
    "nft_chain_nat",
    "nft_nat",
    "nft_masq",
    "nft_ct",
    "nft_fib_inet",
    "nft_fib_ipv4",
    "nft_fib_ipv6",
    "nf_conntrack",
    "br_netfilter",
    "nf_conntrack_netlink",
    "sctp",
    "sch_tbf",
    "ifb",
    "act_mirred",
    "cls_u32",
    "sch_ingress",
    // Only Debian's generic kernels have these: a network card with virtual functions, and the functions.
    "igb",
    "igbvf",
];

/// A kernel that was unpacked.
pub struct Kernel {
    /// What QEMU boots.
    pub image: PathBuf,
    modules: PathBuf,
    /// Its full name.
    pub release: String,
}

/// What a kernel was built for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Machines of clouds: what they have, and nothing else.
    Cloud,
    /// Any machine, with drivers for its cards.
    Generic,
}

impl Flavour {
    /// Whether a package is of it.
    fn is_of(self, package: &str) -> bool {
        let is_cloud = package.ends_with("-cloud-amd64");
        match self {
            Flavour::Cloud => is_cloud,
            Flavour::Generic => package.ends_with("-amd64") && !is_cloud && !package.ends_with("-rt-amd64"),
        }
    }
}

/// The newest kernel of a line, from the cache or from Debian.
pub fn get(cache: &Path, line: &str, flavour: Flavour) -> Result<Kernel> {
    let name = if flavour == Flavour::Cloud { "kernel" } else { "kernel-generic" };
    let folder = cache.join(format!("{name}-{line}"));
    if !folder.join("ok").exists() {
        let prefix = format!("linux-image-{line}.");
        let listed = output(Command::new("apt-cache").args(["pkgnames", &prefix]))?;
        let mut names: Vec<&str> = listed.lines().filter(|name| flavour.is_of(name)).collect();
        names.sort_by_key(|name| {
            name.split(['.', '+', '-']).filter_map(|part| part.parse::<u32>().ok()).collect::<Vec<_>>()
        });
        let Some(name) = names.last() else {
            bail!("no fitting {prefix}* is known to apt; run apt-get update")
        };
        unpack(&folder, &[name])?;
    }
    let image = first(&folder.join("boot"), |file| file.starts_with("vmlinuz"))?;
    let top = if folder.join("usr/lib/modules").exists() {
        folder.join("usr/lib/modules")
    } else {
        folder.join("lib/modules")
    };
    let modules = first(&top, |_| true)?;
    let release = modules.file_name().context("no release")?.display().to_string();
    if !modules.join("modules.dep").exists() {
        // depmod wants BASE/lib/modules/RELEASE.
        let base = folder.join("base");
        fs::create_dir_all(base.join("lib/modules"))?;
        let link = base.join("lib/modules").join(&release);
        if !link.exists() {
            std::os::unix::fs::symlink(&modules, &link)?;
        }
        output(Command::new("/sbin/depmod").arg("-b").arg(&base).arg(&release))?;
    }
    Ok(Kernel { image, modules, release })
}

/// Downloads packages and unpacks them into `folder`, which then has a file `ok`; nothing is installed.
pub fn unpack(folder: &Path, packages: &[&str]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    for name in packages {
        println!("vm: downloading {name}");
        output(Command::new("apt-get").args(["download", name]).current_dir(folder))?;
        let package = first(folder, |file| file.ends_with(".deb"))?;
        output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(folder))?;
        fs::remove_file(package)?;
    }
    fs::write(folder.join("ok"), packages.join(" "))?;
    Ok(())
}

impl Kernel {
    /// The modules a node needs, in the order to load them: name and content.
    pub fn modules(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let read = |module: &String| {
            let path = self.modules.join(module);
            let name = module.rsplit('/').next().unwrap_or(module);
            match name.strip_suffix(".xz") {
                Some(plain) => {
                    let bytes = output_bytes(Command::new("xz").arg("-dc").arg(&path))?;
                    Ok((plain.to_owned(), bytes))
                }
                None => Ok((name.to_owned(), fs::read(&path)?)),
            }
        };
        load_order(self)?.iter().map(read).collect()
    }
}

/// Modules in load order with their dependencies, as paths below the module folder.
fn load_order(kernel: &Kernel) -> Result<Vec<String>> {
    let table = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    let stem = |path: &str| {
        path.rsplit('/').next().unwrap_or(path).split(".ko").next().unwrap_or_default().replace('-', "_")
    };
    let mut order: Vec<String> = Vec::new();
    for wanted in MODULES {
        let row = table.lines().find(|line| line.split(':').next().is_some_and(|path| stem(path) == *wanted));
        // Built into the kernel: nothing to load.
        let Some(row) = row else { continue };
        let (path, needs) = row.split_once(':').context("bad modules.dep")?;
        for module in needs.split_whitespace().rev().chain([path]) {
            if !order.iter().any(|known| known == module) {
                order.push(module.to_owned());
            }
        }
    }
    Ok(order)
}
