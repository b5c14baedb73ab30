//! The files every container of a pod sees: hosts, hostname, resolv.conf, and the shared memory folder.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use podwire_wire::cri;

use crate::container::spec::mounts::PodMount;

/// Size of a pod's /dev/shm.
const SHM_BYTES: u64 = 64 << 20;

/// How a pod wants its files.
pub(crate) struct PodFiles<'a> {
    pub(crate) hostname: &'a str,
    pub(crate) dns: Option<&'a cri::DnsConfig>,
    pub(crate) host_ipc: bool,
    /// Who the pod's root is on the node, if somebody else than root.
    pub(crate) owner: Option<(u32, u32)>,
}

/// The text of resolv.conf for a DNS config.
pub(crate) fn resolv_conf(dns: &cri::DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    text
}

/// Makes the pod's folder: a small file system of its own, so that one unmount lets everything in it go (each unmount
/// waits for all CPUs once).
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    podwire_linux::mount::tmpfs(dir, SHM_BYTES, 0o755).map_err(io::Error::other)?;
    podwire_linux::mount::make_private(dir).map_err(io::Error::other)
}

/// Writes the files into `dir`.
pub(crate) fn write(dir: &Path, files: &PodFiles<'_>) -> io::Result<()> {
    fs::write(dir.join("hostname"), format!("{}\n", files.hostname))?;
    match fs::copy("/etc/hosts", dir.join("hosts")) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::write(dir.join("hosts"), "127.0.0.1\tlocalhost\n::1\tlocalhost\n")?;
        }
        Err(error) => return Err(error),
    }
    let resolv = dir.join("resolv.conf");
    match files.dns.map(resolv_conf).filter(|text| !text.is_empty()) {
        Some(text) => fs::write(resolv, text)?,
        None => match fs::read("/etc/resolv.conf") {
            Ok(text) => fs::write(resolv, text)?,
            Err(_) => fs::write(resolv, "")?,
        },
    }
    if !files.host_ipc {
        let shm = dir.join("shm");
        fs::create_dir(&shm)?;
        fs::set_permissions(&shm, fs::Permissions::from_mode(0o1777))?;
    }
    if let Some((uid, gid)) = files.owner {
        let names = ["hostname", "hosts", "resolv.conf", "shm"];
        for path in names.map(|name| dir.join(name)).iter().filter(|path| path.exists()) {
            chown(path, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// What of them is mounted where in each container.
pub(crate) fn mounts(dir: &Path, host_ipc: bool) -> Vec<PodMount> {
    let file = |name: &str, target| PodMount { source: dir.join(name), target, follows_root: true };
    let shm = if host_ipc { PathBuf::from("/dev/shm") } else { dir.join("shm") };
    vec![
        file("hosts", "/etc/hosts"),
        file("hostname", "/etc/hostname"),
        file("resolv.conf", "/etc/resolv.conf"),
        PodMount { source: shm, target: "/dev/shm", follows_root: false },
    ]
}

/// Lets the pod's namespaces and files go, in one step; what is already gone is fine.
pub(crate) fn release(dir: &Path) -> io::Result<()> {
    while podwire_linux::mount::detach(dir).map_err(io::Error::other)? {}
    Ok(())
}

/// Releases what is left and removes the folder; what is already gone is fine.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    release(dir)?;
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_has_searches_servers_and_options() {
        let dns = cri::DnsConfig {
            servers: vec!["10.96.0.10".into(), "1.1.1.1".into()],
            searches: vec!["a.local".into(), "b.local".into()],
            options: vec!["ndots:5".into()],
        };
        assert_eq!(
            resolv_conf(&dns),
            "search a.local b.local\nnameserver 10.96.0.10\nnameserver 1.1.1.1\noptions ndots:5\n"
        );
        assert_eq!(resolv_conf(&cri::DnsConfig::default()), "");
    }
}
