//! The scan for what a node left behind: links, mounts, cgroups, processes, reservations and files.
//!
//! Reads the kernel's own truth (`/proc`, `/sys`), never the node's opinion of itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The names that belong to one node.
#[derive(Debug, Clone)]
pub struct Names {
    /// The node's data folder.
    pub data_dir: PathBuf,
    /// Its run folder.
    pub run_dir: PathBuf,
    /// Its cgroup root, e.g. `/podwire-1a2b3c4d`.
    pub cgroup_root: String,
    /// Its bridge.
    pub bridge: String,
}

/// Everything of the pods that is still there; empty when the node is clean.
///
/// The node itself (daemon, supervisor, bridge) may still run: only what belongs to pods counts.
pub fn of_pods(names: &Names) -> Vec<String> {
    let mut found = Vec::new();
    let foreign = ports_of_others(&names.bridge);
    links(&mut found, |name| name.starts_with("veth") && !foreign.iter().any(|other| other == name));
    mounts(names, &mut found);
    pod_cgroups(names, &mut found);
    reservations(names, &mut found);
    pod_files(names, &mut found);
    found
}

/// Everything of the node that is still there after `down`.
pub fn of_node(names: &Names) -> Vec<String> {
    let mut found = of_pods(names);
    links(&mut found, |name| name == names.bridge);
    for root in cgroup_roots(names) {
        found.push(format!("cgroup {}", root.display()));
    }
    processes(names, &mut found);
    if names.run_dir.exists() {
        found.push(format!("folder {}", names.run_dir.display()));
    }
    found
}

fn links(found: &mut Vec<String>, ours: impl Fn(&str) -> bool) {
    // /proc/self/net belongs to the process; the calling thread may be in another namespace.
    for line in fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default().lines().skip(2) {
        let name = line.split(':').next().unwrap_or_default().trim();
        if ours(name) {
            found.push(format!("link {name}"));
        }
    }
}

/// Links that are ports of some other node's bridge: not ours to count.
fn ports_of_others(bridge: &str) -> Vec<String> {
    let listed = std::process::Command::new("ip")
        .args(["-o", "link"])
        .output()
        .map(|done| done.stdout)
        .unwrap_or_default();
    let mut others = Vec::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let mut words = line.split_whitespace();
        let name = words.nth(1).unwrap_or_default().split(['@', ':']).next().unwrap_or_default().to_owned();
        let master = words.skip_while(|word| *word != "master").nth(1);
        if master.is_some_and(|master| master != bridge) {
            others.push(name);
        }
    }
    others
}

fn mounts(names: &Names, found: &mut Vec<String>) {
    // As with links: the calling thread may be in a mount namespace of its own.
    for line in fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default().lines() {
        let target = Path::new(line.split(' ').nth(4).unwrap_or_default());
        // The data folder itself may be one that the test has mounted for the node.
        let in_data = target.starts_with(&names.data_dir) && target != names.data_dir;
        if in_data || target.starts_with(&names.run_dir) {
            found.push(format!("mount {}", target.display()));
        }
    }
}

fn cgroup_roots(names: &Names) -> Vec<PathBuf> {
    let relative = names.cgroup_root.trim_start_matches('/');
    let mut hierarchies = vec![PathBuf::from("/sys/fs/cgroup")];
    hierarchies
        .extend(fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path()));
    hierarchies.into_iter().map(|top| top.join(relative)).filter(|path| path.is_dir()).collect()
}

/// Cgroups of pods and containers: every one below a `kubepods` that is not a QoS class.
fn pod_cgroups(names: &Names, found: &mut Vec<String>) {
    let mut folders: Vec<PathBuf> = cgroup_roots(names);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if !path.is_dir() {
                continue;
            }
            let name = entry.file_name().display().to_string();
            if name.starts_with("pod") && !name.starts_with("podwire") || name.len() >= 64 {
                found.push(format!("cgroup {}", path.display()));
            } else {
                folders.push(path);
            }
        }
    }
}

/// Processes in the node's cgroups, or started with its folder on their command line.
pub fn processes(names: &Names, found: &mut Vec<String>) {
    let own = std::process::id().to_string();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().display().to_string();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) || pid == own {
            continue;
        }
        // A process that ended and was not waited for yet holds nothing.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
        {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        let ours = groups.lines().any(|group| {
            group.splitn(3, ':').nth(2).is_some_and(|path| {
                path == names.cgroup_root || path.starts_with(&format!("{}/", names.cgroup_root))
            })
        });
        let mentions = line.contains("podwire") && line.contains(&names.data_dir.display().to_string());
        if ours || mentions {
            found.push(format!("process {pid} {line}"));
        }
    }
}

/// Addresses that IPAM still holds: files named by an address.
pub fn reservations(names: &Names, found: &mut Vec<String>) {
    let mut folders = vec![names.data_dir.join("cni")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if entry
                .file_name()
                .display()
                .to_string()
                .replace('_', ":")
                .parse::<std::net::IpAddr>()
                .is_ok()
            {
                found.push(format!("reservation {}", path.display()));
            }
        }
    }
}

/// Files that belong to one pod or container only.
fn pod_files(names: &Names, found: &mut Vec<String>) {
    for folder in [
        "kubelet/pods",
        "logs",
        "images/snapshots",
        "runtime/sandboxes",
        "runtime/containers",
        "cni/cache/results",
    ] {
        for entry in fs::read_dir(names.data_dir.join(folder)).into_iter().flatten().flatten() {
            found.push(format!("file {}", entry.path().display()));
        }
    }
    for folder in ["sandboxes", "containers", "netns", "secrets/pods"] {
        for entry in fs::read_dir(names.run_dir.join(folder)).into_iter().flatten().flatten() {
            found.push(format!("file {}", entry.path().display()));
        }
    }
}
