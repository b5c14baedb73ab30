//! From an OCI spec to a flat list of what the child will do. Pure.
//!
//! Everything that can be refused is refused here, before a process exists. The plan travels to
//! the supervisor as JSON, so its fields are only ever added.

mod hooks;
mod memory;
mod mounts;
mod namespaces;
mod process;

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

pub use hooks::{HookPlan, HookPlans};
pub use memory::MemoryPolicyPlan;
pub use namespaces::{Join, NamespaceKind, ReaperRequest, reaper};
pub use process::{CapabilityPlan, ProcessPlan, RlimitPlan, SchedulerPlan, capabilities};

use crate::request::{Rootfs, WindowSize};

/// Why a specification cannot be carried out.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// A part without which nothing can run.
    #[error("the spec has no {part}")]
    Missing {
        /// The part.
        part: &'static str,
    },
    /// A value that has no meaning here.
    #[error("{field} {value:?} {reason}")]
    Invalid {
        /// Where it stands in the spec.
        field: &'static str,
        /// The value.
        value: String,
        /// Why it cannot be used.
        reason: &'static str,
    },
    /// A sysctl that would change the host.
    #[error("sysctl {name:?} is not in a separate kernel namespace")]
    HostSysctl {
        /// Its name.
        name: String,
    },
}

/// Everything the child does before execve.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// `CLONE_NEW*` flags for clone3.
    pub clone_flags: u64,
    /// Existing namespaces to enter.
    #[serde(default)]
    pub join: Vec<Join>,
    /// A cgroup namespace, made once the child is in its cgroup.
    #[serde(default)]
    pub unshare_cgroup: bool,
    /// Maps of a new user namespace (`container host length`).
    #[serde(default)]
    pub uid_maps: Vec<IdMapPlan>,
    /// The same for groups.
    #[serde(default)]
    pub gid_maps: Vec<IdMapPlan>,
    /// Its cgroup, relative to the root of every hierarchy.
    #[serde(default)]
    pub cgroup: Option<CgroupPlan>,
    /// What becomes `/`; `None` keeps the supervisor's (the reaper needs none).
    #[serde(default)]
    pub rootfs: Option<Rootfs>,
    /// Mounts in order.
    #[serde(default)]
    pub mounts: Vec<MountPlan>,
    /// Device nodes below `/dev`.
    #[serde(default)]
    pub devices: Vec<DevicePlan>,
    /// Give `/dev` the standard links (`fd`, `stdin`, `ptmx`, ...).
    #[serde(default)]
    pub dev_links: bool,
    /// Paths that read as empty.
    #[serde(default)]
    pub masked: Vec<String>,
    /// Paths that cannot be written.
    #[serde(default)]
    pub readonly: Vec<String>,
    /// Propagation of `/` itself (`MS_PRIVATE` and so on).
    #[serde(default)]
    pub propagation: u64,
    /// File below `/proc/sys` and its value.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Host name to set.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Domain name to set.
    #[serde(default)]
    pub domainname: Option<String>,
    /// Programs to run at points of its life.
    #[serde(default, skip_serializing_if = "HookPlans::is_empty")]
    pub hooks: HookPlans,
    /// Folder with `config.json`, for those programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The program.
    pub process: ProcessPlan,
}

impl LaunchPlan {
    /// True when something is mounted on `/proc`, which then must be procfs.
    pub(crate) fn has_proc(&self) -> bool {
        self.mounts.iter().any(|mount| mount.target == "/proc")
    }
}

/// One range of a user namespace's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapPlan {
    /// First id inside.
    pub container: u32,
    /// First id outside.
    pub host: u32,
    /// How many.
    pub length: u32,
}

/// A cgroup and its limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupPlan {
    /// Relative to the root of every hierarchy.
    pub path: String,
    /// Its limits.
    #[serde(default)]
    pub resources: podwire_linux::cgroup::Resources,
}

/// One mount below the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPlan {
    /// Where, absolute inside the container.
    pub target: String,
    /// What.
    pub kind: MountKind,
    /// `MOUNT_ATTR_*` to set on it.
    #[serde(default)]
    pub attr_set: u64,
    /// `MOUNT_ATTR_*` to clear on it.
    #[serde(default)]
    pub attr_clear: u64,
    /// Apply the attributes to everything below too (`rro`).
    #[serde(default)]
    pub attr_recursive: bool,
    /// Propagation to set (`MS_PRIVATE`, ...); 0 leaves the kernel's.
    #[serde(default)]
    pub propagation: u64,
    /// Propagation holds for everything below too.
    #[serde(default)]
    pub propagation_recursive: bool,
    /// Map ids of the mounted tree.
    #[serde(default)]
    pub idmap: Option<IdmapPlan>,
}

/// Ids of a bind mount, mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdmapPlan {
    /// Users; empty means the container's own map.
    pub uids: Vec<IdMapPlan>,
    /// Groups; empty means the container's own map.
    pub gids: Vec<IdMapPlan>,
    /// Everything below too.
    pub recursive: bool,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountKind {
    /// A tree of the host.
    Bind {
        /// Its path on the host.
        source: String,
        /// With what is mounted below it.
        recursive: bool,
    },
    /// A file system of its own.
    New {
        /// Its type.
        fstype: String,
        /// Its source, as `/proc/mounts` shows it.
        source: String,
        /// Options for the superblock; without a value they are flags.
        options: Vec<(String, Option<String>)>,
    },
    /// The container's view of its cgroups.
    Cgroup,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePlan {
    /// Absolute path inside the container.
    pub path: String,
    /// Type and permission bits as for mknod.
    pub mode: u32,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A compiled seccomp filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterPlan {
    /// Instructions, each as `code << 48 | jt << 40 | jf << 32 | k`.
    pub program: std::sync::Arc<[u64]>,
    /// `SECCOMP_FILTER_FLAG_*`.
    pub flags: u64,
}

/// The plan for `spec` on `rootfs`, all but the seccomp filter, which has a cache of its own.
///
/// `rootfs` alone says what `/` is and whether it can be written; the spec's `root` is not read.
pub fn launch(spec: &Spec, rootfs: &Rootfs) -> Result<LaunchPlan, PlanError> {
    let linux = spec.linux().as_ref().ok_or(PlanError::Missing { part: "linux section" })?;
    let process = spec.process().as_ref().ok_or(PlanError::Missing { part: "process" })?;
    let spaces = namespaces::plan(linux)?;
    let cgroup = match linux.cgroups_path() {
        None => None,
        Some(path) => Some(CgroupPlan {
            path: namespaces::cgroup_path(path)?,
            resources: linux.resources().as_ref().map(crate::resources::from_oci).unwrap_or_default(),
        }),
    };
    if let Some(label) = linux.mount_label().as_ref().filter(|label| !label.is_empty()) {
        let value = label.clone();
        return Err(PlanError::Invalid { field: "mountLabel", value, reason: "is not supported" });
    }
    let mounts = mounts::mounts(spec.mounts().as_deref().unwrap_or_default())?;
    // The last one counts. Nothing is made in a folder of the host's that is shown as /dev: its nodes come with it.
    let dev = mounts.iter().rfind(|m| m.target == "/dev").map(|m| matches!(m.kind, MountKind::New { .. }));
    let has_dev = dev == Some(true);
    let mut devices = mounts::devices(linux, has_dev)?;
    if dev == Some(false) {
        devices.clear();
    }
    Ok(LaunchPlan {
        clone_flags: spaces.clone_flags,
        unshare_cgroup: spaces.unshare_cgroup,
        sysctls: namespaces::sysctls(linux, &spaces)?,
        uid_maps: namespaces::id_maps(linux.uid_mappings().as_deref()),
        gid_maps: namespaces::id_maps(linux.gid_mappings().as_deref()),
        join: spaces.join,
        cgroup,
        rootfs: Some(rootfs.clone()),
        mounts,
        devices,
        dev_links: has_dev,
        masked: absolute("maskedPaths", linux.masked_paths().as_deref())?,
        readonly: absolute("readonlyPaths", linux.readonly_paths().as_deref())?,
        propagation: mounts::root_propagation(linux.rootfs_propagation().as_deref())?,
        hostname: spec.hostname().clone(),
        domainname: spec.domainname().clone(),
        hooks: hooks::plan(spec)?,
        bundle: None,
        process: ProcessPlan {
            memory_policy: linux.memory_policy().as_ref().map(memory::policy).transpose()?,
            ..process::plan(process)?
        },
    })
}

/// What the supervisor must know of a container that an OCI runtime makes from `spec`.
pub fn for_oci_runtime(spec: &Spec) -> Result<LaunchPlan, PlanError> {
    let linux = spec.linux().as_ref().ok_or(PlanError::Missing { part: "linux section" })?;
    let process = spec.process().as_ref().ok_or(PlanError::Missing { part: "process" })?;
    let spaces = namespaces::plan(linux)?;
    let cgroup = match linux.cgroups_path() {
        None => None,
        Some(path) => Some(CgroupPlan { path: namespaces::cgroup_path(path)?, ..CgroupPlan::default() }),
    };
    let process = process::plan(process)?;
    Ok(LaunchPlan { clone_flags: spaces.clone_flags, cgroup, process, ..LaunchPlan::default() })
}

/// The terminal's first size.
pub fn console_size(spec: &Spec) -> WindowSize {
    let size = spec.process().as_ref().and_then(|p| p.console_size());
    let clamp = |v: u64| u16::try_from(v).unwrap_or(u16::MAX);
    size.map_or(WindowSize { width: 0, height: 0 }, |size| WindowSize {
        width: clamp(size.width()),
        height: clamp(size.height()),
    })
}

fn absolute(field: &'static str, paths: Option<&[String]>) -> Result<Vec<String>, PlanError> {
    let plain = |path: &String| {
        text(field, path)?;
        let invalid = |reason| Err(PlanError::Invalid { field, value: path.clone(), reason });
        if !path.starts_with('/') {
            return invalid("is not absolute");
        }
        match clean(path) {
            clean if clean == "/" => invalid("is the root itself"),
            clean => Ok(clean),
        }
    };
    paths.unwrap_or_default().iter().map(plain).collect()
}

/// An absolute path without `.`, `..` and doubled slashes, as if there were no links.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Refuses what cannot become a C string.
fn text(field: &'static str, value: &str) -> Result<(), PlanError> {
    if value.contains('\0') {
        return Err(PlanError::Invalid { field, value: value.to_owned(), reason: "contains a NUL byte" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::{LinuxBuilder, ProcessBuilder, SpecBuilder, UserBuilder};

    fn spec(change: impl FnOnce(&mut serde_json::Value)) -> Spec {
        let process = ProcessBuilder::default()
            .args(vec!["true".to_owned()])
            .cwd("/")
            .user(UserBuilder::default().build().unwrap())
            .build()
            .unwrap();
        let linux = LinuxBuilder::default().cgroups_path("/pods/a").build().unwrap();
        let spec = SpecBuilder::default().process(process).linux(linux).mounts(Vec::new()).build().unwrap();
        let mut value = serde_json::to_value(spec).unwrap();
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn rootfs() -> Rootfs {
        use Rootfs as Root;
        Root::Bind { path: "/r".into(), readonly: false }
    }

    #[test]
    fn an_ordinary_spec_has_a_plan_that_survives_the_wire() {
        let plan = launch(&spec(|_| {}), &rootfs()).unwrap();
        let again: LaunchPlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(plan, again);
    }

    #[test]
    fn what_lxcfs_shows_in_procfs_may_be_mounted_and_devices_of_a_bound_dev_are_not_made() {
        use serde_json::json;
        let plan = |mounts: serde_json::Value| {
            let given = spec(|spec| {
                spec["mounts"] = mounts;
                spec["linux"]["devices"] =
                    json!([{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}]);
            });
            launch(&given, &rootfs()).unwrap()
        };
        let bind = |target: &str| json!({"destination": target, "type": "bind", "source": "/src"});
        let shown = plan(json!([{"destination": "/dev", "type": "tmpfs"}, bind("/proc/meminfo")]));
        assert_eq!(shown.mounts[1].target, "/proc/meminfo");
        assert!(shown.dev_links && shown.devices.len() == 7, "{:?}", shown.devices);
        let bound = plan(json!([{"destination": "/dev", "type": "tmpfs"}, bind("/dev/")]));
        assert!(!bound.dev_links && bound.devices.is_empty(), "{:?}", bound.devices);
    }

    #[test]
    fn hostile_specs_are_refused_before_a_process_exists() {
        use serde_json::json;
        let cases: [(&str, &str, serde_json::Value); 16] = [
            ("label of mounts", "/linux/mountLabel", json!("system_u:object_r:container_file_t:s0")),
            ("NUL in an argument", "/process/args", json!(["a\0b"])),
            ("no program", "/process/args", json!([])),
            ("relative folder", "/process/cwd", json!("etc")),
            ("badness out of range", "/process/oomScoreAdj", json!(-1001)),
            ("cgroup of somebody else", "/linux/cgroupsPath", json!("/pods/../../system.slice")),
            ("relative masked path", "/linux/maskedPaths", json!(["proc/kcore"])),
            ("mount over the root", "/mounts", json!([{"destination": "/", "type": "tmpfs"}])),
            ("bind of nothing", "/mounts", json!([{"destination": "/x", "type": "bind"}])),
            ("mask of everything", "/linux/maskedPaths", json!(["/proc/.."])),
            ("mount over the root by detour", "/mounts", json!([{"destination": "/x/..", "type": "tmpfs"}])),
            ("no procfs on /proc", "/mounts", json!([{"destination": "/proc/.", "type": "tmpfs"}])),
            ("sysfs in procfs", "/mounts", json!([{"destination": "/proc/x", "type": "sysfs"}])),
            (
                "a file of the kernel's pretended",
                "/mounts",
                json!([{"destination": "/x/../proc/self/attr/exec", "type": "bind", "source": "/dev/null"}]),
            ),
            (
                "settings of the kernel's pretended",
                "/mounts",
                json!([{"destination": "/proc/sys", "type": "bind", "source": "/tmp"}]),
            ),
            (
                "device outside",
                "/linux/devices",
                json!([{"path": "/dev/../x", "type": "c", "major": 1, "minor": 3}]),
            ),
        ];
        for (what, pointer, value) in cases {
            let hostile = spec(|spec| {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                spec.pointer_mut(parent).unwrap()[key] = value;
            });
            assert!(launch(&hostile, &rootfs()).is_err(), "{what}");
        }
    }
}
