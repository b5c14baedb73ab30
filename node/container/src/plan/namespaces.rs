//! Namespaces, cgroup path and sysctls of a plan.

use std::path::Path;

use oci_spec::runtime::{Linux, LinuxIdMapping, LinuxNamespaceType};
use serde::{Deserialize, Serialize};

use super::{CgroupPlan, IdMapPlan, LaunchPlan, PlanError, ProcessPlan, text};

/// An existing namespace to enter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Its kind.
    pub kind: NamespaceKind,
    /// A file of it, on the host.
    pub path: String,
}

/// Kinds of namespaces that can be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamespaceKind {
    /// Users.
    User,
    /// Processes.
    Pid,
    /// Network.
    Net,
    /// System V IPC and POSIX message queues.
    Ipc,
    /// Host name.
    Uts,
    /// cgroups.
    Cgroup,
    /// Clocks.
    Time,
}

impl NamespaceKind {
    /// The kernel's `CLONE_NEW*` flag.
    pub fn flag(self) -> u64 {
        let flag = match self {
            NamespaceKind::User => libc::CLONE_NEWUSER,
            NamespaceKind::Pid => libc::CLONE_NEWPID,
            NamespaceKind::Net => libc::CLONE_NEWNET,
            NamespaceKind::Ipc => libc::CLONE_NEWIPC,
            NamespaceKind::Uts => libc::CLONE_NEWUTS,
            NamespaceKind::Cgroup => libc::CLONE_NEWCGROUP,
            NamespaceKind::Time => libc::CLONE_NEWTIME,
        };
        u64::from(flag.cast_unsigned())
    }
}

/// The namespaces of one container.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    pub(super) clone_flags: u64,
    pub(super) join: Vec<Join>,
    pub(super) unshare_cgroup: bool,
}

impl Spaces {
    fn separate(&self, kind: NamespaceKind) -> bool {
        self.clone_flags & kind.flag() != 0 || self.join.iter().any(|join| join.kind == kind)
    }
}

pub(super) fn plan(linux: &Linux) -> Result<Spaces, PlanError> {
    let mut spaces =
        Spaces { clone_flags: u64::from(libc::CLONE_NEWNS.cast_unsigned()), ..Spaces::default() };
    for namespace in linux.namespaces().as_deref().unwrap_or_default() {
        let kind = match namespace.typ() {
            LinuxNamespaceType::Mount => {
                if let Some(path) = namespace.path() {
                    let value = path.display().to_string();
                    let reason = "a container always has a mount namespace of its own";
                    return Err(PlanError::Invalid { field: "mount namespace", value, reason });
                }
                continue;
            }
            LinuxNamespaceType::Cgroup => NamespaceKind::Cgroup,
            LinuxNamespaceType::Uts => NamespaceKind::Uts,
            LinuxNamespaceType::Ipc => NamespaceKind::Ipc,
            LinuxNamespaceType::User => NamespaceKind::User,
            LinuxNamespaceType::Pid => NamespaceKind::Pid,
            LinuxNamespaceType::Network => NamespaceKind::Net,
            LinuxNamespaceType::Time => NamespaceKind::Time,
        };
        if spaces.separate(kind) || (kind == NamespaceKind::Cgroup && spaces.unshare_cgroup) {
            let value = format!("{kind:?}");
            return Err(PlanError::Invalid { field: "namespace", value, reason: "is given twice" });
        }
        match namespace.path() {
            Some(path) => {
                let path = utf8("namespace path", path)?;
                spaces.join.push(Join { kind, path });
            }
            None if kind == NamespaceKind::Cgroup => spaces.unshare_cgroup = true,
            None => spaces.clone_flags |= kind.flag(),
        }
    }
    // The kernel wants the user namespace first: the others are entered with its capabilities.
    // <https://man7.org/linux/man-pages/man2/setns.2.html>.
    spaces.join.sort_by_key(|join| join.kind != NamespaceKind::User);
    Ok(spaces)
}

pub(super) fn utf8(field: &'static str, path: &Path) -> Result<String, PlanError> {
    let invalid = |reason| PlanError::Invalid { field, value: path.display().to_string(), reason };
    let path_text = path.to_str().ok_or_else(|| invalid("is not UTF-8"))?;
    text(field, path_text)?;
    Ok(path_text.to_owned())
}

pub(super) fn cgroup_path(path: &Path) -> Result<String, PlanError> {
    let path = utf8("cgroupsPath", path)?;
    let reason = if path.contains(':') {
        "is a systemd path; only the cgroupfs driver is supported"
    } else if path.split('/').any(|part| part == "..") {
        "leaves its parent"
    } else if path.trim_matches('/').is_empty() {
        "is the root of the hierarchy"
    } else {
        return Ok(path);
    };
    Err(PlanError::Invalid { field: "cgroupsPath", value: path, reason })
}

pub(super) fn id_maps(maps: Option<&[LinuxIdMapping]>) -> Vec<IdMapPlan> {
    let map =
        |m: &LinuxIdMapping| IdMapPlan { container: m.container_id(), host: m.host_id(), length: m.size() };
    maps.unwrap_or_default().iter().map(map).collect()
}

pub(super) fn sysctls(linux: &Linux, spaces: &Spaces) -> Result<Vec<(String, String)>, PlanError> {
    let mut wanted: Vec<_> = linux.sysctl().iter().flatten().collect();
    wanted.sort();
    let mut sysctls = Vec::with_capacity(wanted.len());
    for (name, value) in wanted {
        text("sysctl", name)?;
        text("sysctl", value)?;
        let file = sysctl_file(name);
        let kind = match file.split('/').next().unwrap_or_default() {
            "net" => NamespaceKind::Net,
            "kernel" if matches!(file.as_str(), "kernel/domainname" | "kernel/hostname") => {
                NamespaceKind::Uts
            }
            "kernel" if ipc_sysctl(&file) => NamespaceKind::Ipc,
            "fs" if file.starts_with("fs/mqueue/") => NamespaceKind::Ipc,
            _ => return Err(PlanError::HostSysctl { name: name.clone() }),
        };
        if !spaces.separate(kind) || file.split('/').any(|part| part == ".." || part.is_empty()) {
            return Err(PlanError::HostSysctl { name: name.clone() });
        }
        sysctls.push((format!("/proc/sys/{file}"), value.clone()));
    }
    Ok(sysctls)
}

fn ipc_sysctl(file: &str) -> bool {
    matches!(
        file.trim_start_matches("kernel/"),
        "msgmax" | "msgmnb" | "msgmni" | "sem" | "shmall" | "shmmax" | "shmmni" | "shm_rmid_forced"
    )
}

/// `net.ipv4.conf.eth0/1.x` and `net/ipv4/conf/eth0.1/x` both name a file.
fn sysctl_file(name: &str) -> String {
    let first_dot = name.find('.').unwrap_or(usize::MAX);
    let first_slash = name.find('/').unwrap_or(usize::MAX);
    if first_slash < first_dot {
        return name.to_owned();
    }
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// A process 1 for a pod whose containers share their processes.
#[derive(Debug, Clone, Default)]
pub struct ReaperRequest {
    /// Its name, listed and deleted like a container's.
    pub id: String,
    /// Namespaces to enter; the pid namespace is new.
    pub join: Vec<Join>,
    /// Its cgroup, relative to the root of every hierarchy.
    pub cgroup: Option<String>,
}

/// The plan of a reaper: it executes nothing and needs no root file system.
pub fn reaper(req: &ReaperRequest) -> LaunchPlan {
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    LaunchPlan {
        clone_flags: u64::from(flags.cast_unsigned()),
        join: req.join.clone(),
        cgroup: req.cgroup.clone().map(|path| CgroupPlan { path, ..CgroupPlan::default() }),
        process: ProcessPlan { reaper: true, cwd: "/".to_owned(), ..ProcessPlan::default() },
        ..LaunchPlan::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::{LinuxBuilder, LinuxNamespaceBuilder};
    use std::collections::HashMap;

    fn linux(kinds: &[(LinuxNamespaceType, Option<&str>)], sysctl: &[(&str, &str)]) -> Linux {
        let spaces: Vec<_> = kinds
            .iter()
            .map(|(typ, path)| {
                let mut builder = LinuxNamespaceBuilder::default().typ(*typ);
                if let Some(path) = path {
                    builder = builder.path(*path);
                }
                builder.build().unwrap()
            })
            .collect();
        let sysctl: HashMap<_, _> = sysctl.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        LinuxBuilder::default().namespaces(spaces).sysctl(sysctl).build().unwrap()
    }

    #[test]
    fn a_sysctl_of_the_host_is_refused() {
        let joined = linux(
            &[(LinuxNamespaceType::Network, Some("/run/netns/a"))],
            &[("net.ipv4.ip_unprivileged_port_start", "0")],
        );
        let spaces = plan(&joined).unwrap();
        let files = sysctls(&joined, &spaces).unwrap();
        assert_eq!(files[0].0, "/proc/sys/net/ipv4/ip_unprivileged_port_start");
        for name in ["kernel.panic", "kernel.shmmax", "vm.swappiness", "net.ipv4/../../kernel/panic"] {
            let host = linux(&[], &[(name, "1")]);
            assert!(sysctls(&host, &plan(&host).unwrap()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_namespace_given_twice_is_refused() {
        let twice =
            linux(&[(LinuxNamespaceType::Pid, None), (LinuxNamespaceType::Pid, Some("/proc/1/ns/pid"))], &[]);
        assert!(plan(&twice).is_err());
    }

    #[test]
    fn a_cgroup_path_stays_below_its_parent() {
        assert!(cgroup_path(Path::new("/pods/a")).is_ok());
        for path in ["/pods/../..", "slice:prefix:name", "/", "//"] {
            assert!(cgroup_path(Path::new(path)).is_err(), "{path}");
        }
    }
}
