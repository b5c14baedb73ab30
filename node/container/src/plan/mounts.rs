//! Mounts and device nodes of a plan.

use oci_spec::runtime::{Linux, LinuxDeviceType, Mount};

use super::namespaces::{id_maps, utf8};
use super::{DevicePlan, IdmapPlan, MountKind, MountPlan, PlanError, text};

const RDONLY: u64 = 0x1;
const NOSUID: u64 = 0x2;
const NODEV: u64 = 0x4;
const NOEXEC: u64 = 0x8;
const ATIME_MASK: u64 = 0x70;
const NOATIME: u64 = 0x10;
const STRICTATIME: u64 = 0x20;
const NODIRATIME: u64 = 0x80;
const NOSYMFOLLOW: u64 = 0x0020_0000;

/// What one mount option means.
enum Meaning {
    Attr { set: u64, clear: u64, recursive: bool },
    Propagation { kind: u64, recursive: bool },
    Bind { recursive: bool },
    Idmap { recursive: bool },
    CopyUp,
    Superblock,
    Nothing,
}

fn meaning(option: &str) -> Meaning {
    let attr = |set, clear| Meaning::Attr { set, clear, recursive: false };
    let all = |set, clear| Meaning::Attr { set, clear, recursive: true };
    let propagation = |kind, recursive| Meaning::Propagation { kind, recursive };
    match option {
        "ro" => attr(RDONLY, 0),
        "rw" => attr(0, RDONLY),
        "nosuid" => attr(NOSUID, 0),
        "suid" => attr(0, NOSUID),
        "nodev" => attr(NODEV, 0),
        "dev" => attr(0, NODEV),
        "noexec" => attr(NOEXEC, 0),
        "exec" => attr(0, NOEXEC),
        "noatime" => attr(NOATIME, ATIME_MASK),
        "atime" | "norelatime" | "nostrictatime" | "defaults" => Meaning::Nothing,
        "relatime" => attr(0, ATIME_MASK),
        "strictatime" => attr(STRICTATIME, ATIME_MASK),
        "nodiratime" => attr(NODIRATIME, 0),
        "diratime" => attr(0, NODIRATIME),
        "nosymfollow" => attr(NOSYMFOLLOW, 0),
        "symfollow" => attr(0, NOSYMFOLLOW),
        "rro" => all(RDONLY, 0),
        "rrw" => all(0, RDONLY),
        "rnosuid" => all(NOSUID, 0),
        "rnodev" => all(NODEV, 0),
        "rnoexec" => all(NOEXEC, 0),
        "private" => propagation(libc::MS_PRIVATE, false),
        "rprivate" => propagation(libc::MS_PRIVATE, true),
        "shared" => propagation(libc::MS_SHARED, false),
        "rshared" => propagation(libc::MS_SHARED, true),
        "slave" => propagation(libc::MS_SLAVE, false),
        "rslave" => propagation(libc::MS_SLAVE, true),
        "unbindable" => propagation(libc::MS_UNBINDABLE, false),
        "runbindable" => propagation(libc::MS_UNBINDABLE, true),
        "bind" => Meaning::Bind { recursive: false },
        "rbind" => Meaning::Bind { recursive: true },
        "idmap" => Meaning::Idmap { recursive: false },
        "ridmap" => Meaning::Idmap { recursive: true },
        "tmpcopyup" => Meaning::CopyUp,
        _ => Meaning::Superblock,
    }
}

/// Options of one mount, sorted by who has to act on them.
#[derive(Default)]
struct Options {
    attr_set: u64,
    attr_clear: u64,
    attr_recursive: bool,
    propagation: u64,
    propagation_recursive: bool,
    bind: Option<bool>,
    idmap: Option<bool>,
    superblock: Vec<(String, Option<String>)>,
}

fn options(mount: &Mount) -> Result<Options, PlanError> {
    let mut sorted = Options::default();
    for option in mount.options().as_deref().unwrap_or_default() {
        text("mount option", option)?;
        match meaning(option) {
            Meaning::Attr { set, clear, recursive } => {
                sorted.attr_set = (sorted.attr_set & !clear) | set;
                sorted.attr_clear = (sorted.attr_clear & !set) | clear;
                sorted.attr_recursive |= recursive;
            }
            Meaning::Propagation { kind, recursive } => {
                sorted.propagation = kind;
                sorted.propagation_recursive = recursive;
            }
            Meaning::Bind { recursive } => sorted.bind = Some(recursive),
            Meaning::Idmap { recursive } => sorted.idmap = Some(recursive),
            Meaning::CopyUp => {
                let value = option.clone();
                return Err(PlanError::Invalid { field: "mount option", value, reason: "is not supported" });
            }
            Meaning::Superblock => sorted.superblock.push(match option.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (option.clone(), None),
            }),
            Meaning::Nothing => {}
        }
    }
    Ok(sorted)
}

pub(super) fn mounts(mounts: &[Mount]) -> Result<Vec<MountPlan>, PlanError> {
    mounts.iter().map(mount).collect()
}

fn mount(mount: &Mount) -> Result<MountPlan, PlanError> {
    let target = utf8("mount destination", mount.destination())?;
    if !target.starts_with('/') {
        return Err(PlanError::Invalid {
            field: "mount destination",
            value: target,
            reason: "is not absolute",
        });
    }
    let target = super::clean(&target);
    if target == "/" {
        return Err(PlanError::Invalid {
            field: "mount destination",
            value: target,
            reason: "is the root itself",
        });
    }
    let sorted = options(mount)?;
    let source = mount.source().as_deref().map(|s| utf8("mount source", s)).transpose()?;
    let fstype = mount.typ().as_deref().unwrap_or("bind");
    let kind = match (fstype, sorted.bind) {
        ("cgroup" | "cgroup2", None) => MountKind::Cgroup,
        ("bind" | "rbind", None) | (_, Some(_)) => {
            let source = source.filter(|s| s.starts_with('/')).ok_or(PlanError::Invalid {
                field: "bind mount of",
                value: target.clone(),
                reason: "needs an absolute source",
            })?;
            MountKind::Bind { source, recursive: sorted.bind.unwrap_or(fstype == "rbind") }
        }
        (fstype, None) => MountKind::New {
            fstype: fstype.to_owned(),
            source: source.unwrap_or_else(|| fstype.to_owned()),
            options: sorted.superblock,
        },
    };
    procfs_is_kept(&target, &kind)?;
    let idmap = idmap(mount, sorted.idmap);
    Ok(MountPlan {
        target,
        kind,
        attr_set: sorted.attr_set,
        attr_clear: sorted.attr_clear,
        attr_recursive: sorted.attr_recursive,
        propagation: sorted.propagation,
        propagation_recursive: sorted.propagation_recursive,
        idmap,
    })
}

/// Files of procfs that may be covered: what lxcfs shows and no program of ours or the kernel's trusts.
/// The list is runc's: <https://github.com/opencontainers/runc/blob/v1.3.0/libcontainer/rootfs_linux.go>.
const IN_PROC: [&str; 10] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/slabinfo",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/crypto/fips_enabled",
];

/// Refuses mounts that would let something else pass for a part of procfs.
fn procfs_is_kept(target: &str, kind: &MountKind) -> Result<(), PlanError> {
    let reason = match kind {
        MountKind::New { fstype, .. } if target == "/proc" && fstype != "proc" => {
            "cannot be mounted because it is not of type proc"
        }
        MountKind::Cgroup if target == "/proc" => "cannot be mounted because it is not of type proc",
        MountKind::Bind { .. } if IN_PROC.contains(&target) => return Ok(()),
        _ if target.starts_with("/proc/") => "cannot be mounted because it is inside /proc",
        _ => return Ok(()),
    };
    Err(PlanError::Invalid { field: "mount destination", value: target.to_owned(), reason })
}

fn idmap(mount: &Mount, asked: Option<bool>) -> Option<IdmapPlan> {
    let uids = id_maps(mount.uid_mappings().as_deref());
    let gids = id_maps(mount.gid_mappings().as_deref());
    if asked.is_none() && uids.is_empty() && gids.is_empty() {
        return None;
    }
    Some(IdmapPlan { uids, gids, recursive: asked.unwrap_or(false) })
}

pub(super) fn root_propagation(propagation: Option<&str>) -> Result<u64, PlanError> {
    Ok(match propagation.unwrap_or_default() {
        "" | "rslave" | "slave" => libc::MS_SLAVE,
        "rprivate" | "private" => libc::MS_PRIVATE,
        "rshared" | "shared" => libc::MS_SHARED,
        "unbindable" | "runbindable" => libc::MS_UNBINDABLE,
        other => {
            let value = other.to_owned();
            return Err(PlanError::Invalid { field: "rootfsPropagation", value, reason: "is not known" });
        }
    })
}

/// Nodes every container has: name below `/dev` and numbers.
const STANDARD: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

pub(super) fn devices(linux: &Linux, standard: bool) -> Result<Vec<DevicePlan>, PlanError> {
    let mut plans = Vec::new();
    let given = linux.devices().as_deref().unwrap_or_default();
    if standard {
        for (path, major, minor) in STANDARD {
            if !given.iter().any(|d| d.path().as_os_str() == path) {
                let mode = libc::S_IFCHR | 0o666;
                plans.push(DevicePlan { path: path.to_owned(), mode, major, minor, uid: 0, gid: 0 });
            }
        }
    }
    for device in given {
        let path = utf8("device", device.path())?;
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(PlanError::Invalid {
                field: "device",
                value: path,
                reason: "is not a plain absolute path",
            });
        }
        let kind = match device.typ() {
            LinuxDeviceType::B => libc::S_IFBLK,
            LinuxDeviceType::C | LinuxDeviceType::U => libc::S_IFCHR,
            LinuxDeviceType::P => libc::S_IFIFO,
            LinuxDeviceType::A => {
                return Err(PlanError::Invalid {
                    field: "device",
                    value: path,
                    reason: "has no single type",
                });
            }
        };
        let number = |n: i64| u32::try_from(n).unwrap_or(0);
        let path = super::clean(&path);
        plans.push(DevicePlan {
            mode: kind | (device.file_mode().unwrap_or(0o666) & 0o7777),
            major: number(device.major()),
            minor: number(device.minor()),
            uid: device.uid().unwrap_or(0),
            gid: device.gid().unwrap_or(0),
            path,
        });
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::MountBuilder;

    fn parse(typ: &str, source: &str, options: &[&str]) -> MountPlan {
        let options: Vec<_> = options.iter().map(|o| (*o).to_owned()).collect();
        let given = MountBuilder::default()
            .destination("/data/")
            .typ(typ)
            .source(source)
            .options(options)
            .build()
            .unwrap();
        mount(&given).unwrap()
    }

    #[test]
    fn options_are_sorted_by_who_acts_on_them() {
        let plan = parse("tmpfs", "shm", &["nosuid", "noexec", "mode=1777", "size=64k", "rw", "huge"]);
        assert_eq!(plan.target, "/data");
        assert_eq!((plan.attr_set, plan.attr_clear), (NOSUID | NOEXEC, RDONLY));
        let MountKind::New { options, .. } = plan.kind else { panic!("not a file system") };
        assert_eq!(options[0], ("mode".to_owned(), Some("1777".to_owned())));
        assert_eq!(options[2], ("huge".to_owned(), None));
    }

    #[test]
    fn a_recursive_read_only_bind_says_so() {
        let plan = parse("bind", "/src", &["rbind", "rro", "rprivate"]);
        assert!(plan.attr_recursive && plan.propagation_recursive);
        assert_eq!((plan.attr_set, plan.propagation), (RDONLY, libc::MS_PRIVATE));
        assert_eq!(plan.kind, MountKind::Bind { source: "/src".to_owned(), recursive: true });
    }

    #[test]
    fn a_bind_without_an_absolute_source_is_refused() {
        let given = MountBuilder::default().destination("/x").typ("bind").source("rel").build().unwrap();
        assert!(mount(&given).is_err());
    }
}
