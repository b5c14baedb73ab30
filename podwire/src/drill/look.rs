//! Looks at links: the node's, and those of pods, by way of a process of theirs. Blocking, and touches nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use podwire_linux::{netns::Netns, rtnl::Socket};

use super::plan::{Device, Link};

/// The links of the namespace that this thread is in.
pub fn links() -> Result<Vec<Link>, podwire_linux::rtnl::Error> {
    let links = Socket::route()?.links()?.into_iter();
    Ok(links.map(|link| Link { name: link.name, mac: link.mac.map(|mac| mac.to_string()) }).collect())
}

/// The network namespaces of pods with these uids: of the first process of each that is in another one than we are.
pub fn namespaces<'a>(uids: &[&'a str]) -> BTreeMap<&'a str, PathBuf> {
    let mut found = BTreeMap::new();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let folder = entry.path();
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // Ignored: processes end while they are looked at.
        let Ok(cgroups) = std::fs::read_to_string(folder.join("cgroup")) else { continue };
        let Some(uid) = uids.iter().find(|uid| is_of(&cgroups, uid)) else { continue };
        let Ok(namespace) = std::fs::read_link(folder.join("ns/net")) else { continue };
        if namespace != own {
            found.entry(*uid).or_insert_with(|| folder.join("ns/net"));
        }
    }
    found
}

/// Whether a process with these cgroups is a pod's, however the kubelet spells the uid.
fn is_of(cgroups: &str, uid: &str) -> bool {
    cgroups.split("pod").skip(1).any(|rest| rest.starts_with(uid) || rest.starts_with(&uid.replace('-', "_")))
}

/// The links in a namespace; none if it is there no more.
pub fn inside(namespace: &Path) -> Option<Vec<Link>> {
    // Ignored: a pod that ended meanwhile is one that cannot be looked at.
    Netns::open(namespace).ok()?.run(links).ok()?.ok()
}

/// Whether a device is in some network namespace: of any process, or mounted somewhere, as runtimes keep them.
pub fn elsewhere(device: &Device) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // proc(5): the fourth word says what of its file system is mounted, the fifth where.
    let mounted = mounts.lines().map(|line| line.split(' ').skip(3)).filter_map(|mut words| {
        let is_namespace = words.next()?.starts_with("net:");
        is_namespace.then(|| words.next().map(PathBuf::from)).flatten()
    });
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.map(|entry| entry.path().join("ns/net"));
    let mut known = BTreeSet::new();
    mounted.chain(processes).any(|path| {
        // Ignored: what cannot be opened is no namespace, or none any more.
        let Ok(namespace) = Netns::open(&path) else { return false };
        let Ok(identity) = namespace.identity() else { return false };
        known.insert((identity.dev, identity.ino))
            && namespace
                .run(links)
                .is_ok_and(|all| all.is_ok_and(|all| all.iter().any(|link| device.is(link))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_processes_are_known_by_either_spelling_of_its_uid() {
        let uid = "3a1f5c1e-7f2d";
        assert!(is_of("0::/kubepods/besteffort/pod3a1f5c1e-7f2d/abc\n", uid));
        assert!(is_of("4:cpu:/kubepods.slice/kubepods-pod3a1f5c1e_7f2d.slice/cri-abc.scope\n", uid));
        assert!(!is_of("0::/system.slice/3a1f5c1e-7f2d\n", uid));
    }
}
