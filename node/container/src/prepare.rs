//! A plan laid out in memory for a child that must not allocate.

mod places;

use std::ffi::{CString, c_char};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

pub(crate) use places::{Restrictions, Target};
use podwire_linux::cgroup::{Group, Version};
use podwire_linux::mount::{Handing, layers};

use crate::plan::{LaunchPlan, MountKind, MountPlan, NamespaceKind, ProcessPlan};
use crate::request::Rootfs;

/// Strings and the array of pointers execve wants.
#[derive(Debug)]
pub(crate) struct Strings {
    /// What the pointers point to; only kept.
    _items: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    pub(crate) fn new<S: AsRef<str>>(items: &[S]) -> io::Result<Strings> {
        let items: Vec<CString> = items.iter().map(|s| c(s.as_ref())).collect::<Result<_, _>>()?;
        let pointers = items.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Strings { _items: items, pointers })
    }

    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

fn c(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// One program, ready for execve.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) reaper: bool,
    pub(crate) argv: Strings,
    pub(crate) env: Strings,
    /// Files to try in order.
    pub(crate) candidates: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) umask: u32,
    pub(crate) caps: Option<crate::plan::CapabilityPlan>,
    pub(crate) rlimits: Vec<crate::plan::RlimitPlan>,
    pub(crate) no_new_privs: bool,
    pub(crate) oom_score_adj: Option<CString>,
    pub(crate) io_priority: Option<i32>,
    pub(crate) scheduler: Option<crate::plan::SchedulerPlan>,
    pub(crate) memory_policy: Option<crate::plan::MemoryPolicyPlan>,
    /// File below `/proc/self/attr` and what to write.
    pub(crate) label: Option<(CString, CString)>,
    pub(crate) filter: Vec<libc::sock_filter>,
    pub(crate) filter_flags: u64,
}

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Program {
    pub(crate) fn new(plan: &ProcessPlan) -> io::Result<Program> {
        let filter = plan.seccomp.as_ref();
        Ok(Program {
            reaper: plan.reaper,
            argv: Strings::new(&plan.argv)?,
            env: Strings::new(&plan.env)?,
            candidates: candidates(plan)?,
            cwd: c(&plan.cwd)?,
            uid: plan.uid,
            gid: plan.gid,
            groups: plan.groups.clone(),
            umask: plan.umask.unwrap_or(0o022),
            caps: plan.caps,
            rlimits: plan.rlimits.clone(),
            no_new_privs: plan.no_new_privs,
            oom_score_adj: plan.oom_score_adj.map(|adj| c(&adj.to_string())).transpose()?,
            io_priority: plan.io_priority,
            scheduler: plan.scheduler,
            memory_policy: plan.memory_policy.clone(),
            label: label(plan)?,
            filter: filter
                .map(|f| f.program.iter().map(|raw| instruction(*raw)).collect())
                .unwrap_or_default(),
            filter_flags: filter.map_or(0, |f| f.flags),
        })
    }
}

impl Program {
    /// The same with a file to execute that the arguments do not name.
    pub(crate) fn of_file(plan: &ProcessPlan, file: &str) -> io::Result<Program> {
        Ok(Program { candidates: vec![c(file)?], ..Program::new(plan)? })
    }
}

#[allow(clippy::cast_possible_truncation)]
fn instruction(raw: u64) -> libc::sock_filter {
    libc::sock_filter {
        code: (raw >> 48) as u16,
        jt: (raw >> 40) as u8,
        jf: (raw >> 32) as u8,
        k: raw as u32,
    }
}

fn candidates(plan: &ProcessPlan) -> io::Result<Vec<CString>> {
    let Some(program) = plan.argv.first() else { return Ok(Vec::new()) };
    if program.contains('/') {
        return Ok(vec![c(program)?]);
    }
    let path = plan.env.iter().rev().find_map(|e| e.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    let file = |dir: &str| c(&format!("{}/{program}", if dir.is_empty() { "." } else { dir }));
    path.split(':').map(file).collect()
}

/// What to write where. Where the kernel lacks the module there is no such file, or it takes no such word, and the
/// container is refused: a label that is asked for is never left out.
fn label(plan: &ProcessPlan) -> io::Result<Option<(CString, CString)>> {
    Ok(match (&plan.apparmor, &plan.selinux) {
        (Some(profile), _) => Some((c("/proc/self/attr/apparmor/exec")?, c(&format!("exec {profile}"))?)),
        (None, Some(label)) => Some((c("/proc/self/attr/exec")?, c(label)?)),
        (None, None) => None,
    })
}

/// The new root, still to be mounted.
#[derive(Debug)]
pub(crate) enum Root {
    /// Nothing at all, for the reaper.
    Empty,
    Overlay(Overlay),
    Bind {
        path: CString,
        readonly: bool,
    },
}

impl Root {
    fn new(rootfs: Option<&Rootfs>) -> io::Result<Root> {
        Ok(match rootfs {
            None => Root::Empty,
            Some(Rootfs::Bind { path, readonly }) => Root::Bind { path: c_path(path)?, readonly: *readonly },
            // An image without layers is its upper folder.
            Some(Rootfs::Overlay { lower, upper, readonly, .. }) if lower.is_empty() => {
                Root::Bind { path: c_path(upper)?, readonly: *readonly }
            }
            Some(Rootfs::Overlay { lower, upper, work, readonly, newest }) => {
                let all = lower.iter().chain([upper, work]);
                let newest =
                    if all.map(|p| p.as_path()).all(layers::is_plain) { *newest } else { Handing::Options };
                Root::Overlay(Overlay {
                    lower: lower.iter().map(|p| c_path(p)).collect::<Result<_, _>>()?,
                    upper: c_path(upper)?,
                    work: c_path(work)?,
                    options: layers::options(lower, Some((upper, work))),
                    newest,
                    readonly: *readonly,
                })
            }
        })
    }
}

/// Layers under an upper folder, ready.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) lower: Vec<CString>,
    pub(crate) upper: CString,
    pub(crate) work: CString,
    /// The same as one option string, unless it must name open descriptors.
    pub(crate) options: Option<CString>,
    pub(crate) newest: Handing,
    pub(crate) readonly: bool,
}

/// One mount, ready.
#[derive(Debug)]
pub(crate) struct Mounting {
    pub(crate) target: CString,
    /// How that is looked for.
    pub(crate) place: Target,
    pub(crate) what: What,
    pub(crate) attr_set: u64,
    pub(crate) attr_clear: u64,
    pub(crate) attr_recursive: bool,
    pub(crate) propagation: u64,
    pub(crate) propagation_recursive: bool,
    pub(crate) idmap: Option<Idmap>,
    /// What of it is masked or cannot be written.
    pub(crate) restrictions: Restrictions,
}

/// Ids of a mount, mapped through a user namespace.
#[derive(Debug)]
pub(crate) struct Idmap {
    /// `None` is the container's own.
    pub(crate) user: Option<OwnedFd>,
    pub(crate) recursive: bool,
}

/// What is mounted, ready.
#[derive(Debug)]
pub(crate) enum What {
    Bind {
        source: CString,
        recursive: bool,
    },
    New {
        fstype: CString,
        source: CString,
        options: Vec<(CString, Option<CString>)>,
    },
    /// cgroup v1: folders to show by name, and links between names.
    CgroupViews {
        views: Vec<(CString, CString)>,
        links: Vec<(CString, CString)>,
    },
}

/// A device node, ready.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) path: CString,
    /// The folder it is in.
    pub(crate) folder: CString,
    /// That folder below `/dev`, if it is.
    pub(crate) in_dev: Option<CString>,
    /// Its name there.
    pub(crate) name: CString,
    pub(crate) mode: u32,
    pub(crate) device: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Everything for one container's child.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) clone_flags: u64,
    pub(crate) join_pid: Option<OwnedFd>,
    /// The user namespace to be root of.
    pub(crate) user: Option<OwnedFd>,
    pub(crate) joins: Vec<(OwnedFd, i32, u32)>,
    pub(crate) unshare_cgroup: bool,
    pub(crate) procs: Vec<CString>,
    pub(crate) root: Root,
    pub(crate) staging: CString,
    pub(crate) mounts: Vec<Mounting>,
    pub(crate) devices: Vec<Node>,
    pub(crate) dev_links: bool,
    /// Those that lie on no file system of the container's own.
    pub(crate) restrictions: Restrictions,
    /// `/proc` must be procfs.
    pub(crate) has_proc: bool,
    pub(crate) share_root: bool,
    pub(crate) sysctls: Vec<(CString, CString)>,
    pub(crate) hostname: Option<CString>,
    pub(crate) domainname: Option<CString>,
    pub(crate) program: Program,
}

/// Why the layout failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("open namespace {path:?}")]
    Namespace { path: String, source: io::Error },
    #[error("make a user namespace")]
    User(#[source] io::Error),
    #[error("lay the plan out")]
    Text(#[from] io::Error),
}

impl Launch {
    /// Lays `plan` out. `staging` is an empty folder to mount the root on.
    pub(crate) fn new(
        plan: &LaunchPlan,
        group: Option<&Group>,
        staging: &Path,
    ) -> Result<Launch, PrepareError> {
        let mut joins = Vec::new();
        let mut join_pid = None;
        let mut user = None;
        let new_user = plan.clone_flags & NamespaceKind::User.flag() != 0;
        if new_user {
            user = Some(crate::userns::make(&plan.uid_maps, &plan.gid_maps).map_err(PrepareError::User)?);
        }
        for (at, join) in plan.join.iter().enumerate() {
            let file = File::open(&join.path)
                .map_err(|source| PrepareError::Namespace { path: join.path.clone(), source })?;
            if join.kind == NamespaceKind::Pid {
                join_pid = Some(file.into());
            } else if join.kind == NamespaceKind::User {
                user = Some(file.into());
            } else {
                let flag = i32::try_from(join.kind.flag()).expect("namespace flags fit");
                joins.push((file.into(), flag, u32::try_from(at).expect("a handful of namespaces")));
            }
        }
        let text = |pairs: &[(String, String)]| -> io::Result<Vec<(CString, CString)>> {
            pairs.iter().map(|(a, b)| Ok((c(a)?, c(b)?))).collect()
        };
        Ok(Launch {
            clone_flags: plan.clone_flags & !NamespaceKind::User.flag(),
            join_pid,
            user,
            joins,
            unshare_cgroup: plan.unshare_cgroup,
            procs: group.map(procs).transpose()?.unwrap_or_default(),
            root: Root::new(plan.rootfs.as_ref())?,
            staging: c_path(staging)?,
            mounts: plan
                .mounts
                .iter()
                .enumerate()
                .map(|(number, mount)| mounting(number, mount, plan, group))
                .collect::<Result<_, PrepareError>>()?,
            devices: plan.devices.iter().map(node).collect::<Result<_, _>>()?,
            dev_links: plan.dev_links,
            restrictions: places::restrictions(plan, None)?,
            has_proc: plan.has_proc(),
            share_root: plan.propagation == libc::MS_SHARED,
            sysctls: text(&plan.sysctls)?,
            hostname: plan.hostname.as_deref().filter(|h| !h.is_empty()).map(c).transpose()?,
            domainname: plan.domainname.as_deref().filter(|h| !h.is_empty()).map(c).transpose()?,
            program: Program::new(&plan.process)?,
        })
    }

    /// Descriptors the child needs besides stdio and its pipes.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let maps = self.mounts.iter().filter_map(|m| m.idmap.as_ref()?.user.as_ref());
        let users = self.user.iter().chain(&self.join_pid).chain(maps).map(AsRawFd::as_raw_fd);
        self.joins.iter().map(|(fd, _, _)| fd.as_raw_fd()).chain(users)
    }
}

/// Files to join the v1 hierarchies of a group through; in cgroup2 the child is born.
///
/// `tasks`, not `cgroup.procs`: a single thread that moves itself needs no lock over all thread groups, whose first
/// taker waits for an RCU grace period (8 ms measured on an idle machine).
pub(crate) fn procs(group: &Group) -> io::Result<Vec<CString>> {
    let v1 = group.folders().filter(|(h, _)| h.version == Version::One);
    v1.map(|(_, folder)| c_path(&folder.join("tasks"))).collect()
}

fn node(plan: &crate::plan::DevicePlan) -> io::Result<Node> {
    let (folder, name) = plan.path.rsplit_once('/').ok_or(io::ErrorKind::InvalidInput)?;
    if name.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let in_dev = if folder == "/dev" { Some("") } else { places::part_below(folder, "/dev") };
    Ok(Node {
        folder: c(folder)?,
        in_dev: in_dev.map(c).transpose()?,
        name: c(name)?,
        path: c(&plan.path)?,
        mode: plan.mode,
        device: libc::makedev(plan.major, plan.minor),
        uid: plan.uid,
        gid: plan.gid,
    })
}

fn mounting(
    number: usize,
    plan: &MountPlan,
    launch: &LaunchPlan,
    group: Option<&Group>,
) -> Result<Mounting, PrepareError> {
    let idmap = match &plan.idmap {
        None => None,
        Some(map) if map.uids.is_empty() && map.gids.is_empty() => {
            Some(Idmap { user: None, recursive: map.recursive })
        }
        Some(map) => {
            let user = crate::userns::make(&map.uids, &map.gids).map_err(PrepareError::User)?;
            Some(Idmap { user: Some(user), recursive: map.recursive })
        }
    };
    let what = match &plan.kind {
        MountKind::Bind { source, recursive } => What::Bind { source: c(source)?, recursive: *recursive },
        MountKind::New { fstype, source, options, .. } => What::New {
            fstype: c(fstype)?,
            source: c(source)?,
            options: options
                .iter()
                .map(|(key, value)| Ok((c(key)?, value.as_deref().map(c).transpose()?)))
                .collect::<io::Result<_>>()?,
        },
        MountKind::Cgroup => cgroup_view(launch, group)?,
    };
    Ok(Mounting {
        target: c(&plan.target)?,
        place: places::target(plan),
        restrictions: places::restrictions(launch, Some(number))?,
        what,
        attr_set: plan.attr_set,
        attr_clear: plan.attr_clear,
        attr_recursive: plan.attr_recursive,
        propagation: plan.propagation,
        propagation_recursive: plan.propagation_recursive,
        idmap,
    })
}

/// How a container sees its cgroups: on v2 the tree below its own, on v1 its folder of each
/// hierarchy.
fn cgroup_view(launch: &LaunchPlan, group: Option<&Group>) -> io::Result<What> {
    let host = podwire_linux::cgroup::host().map_err(io::Error::other)?;
    if host.is_v2() {
        if launch.unshare_cgroup {
            return Ok(What::New { fstype: c("cgroup2")?, source: c("cgroup")?, options: Vec::new() });
        }
        let mount = host.unified().map_or(Path::new("/sys/fs/cgroup"), |h| &h.mount);
        return Ok(What::Bind { source: c_path(mount)?, recursive: true });
    }
    let mut views = Vec::new();
    let mut links = Vec::new();
    // Beside v1 hierarchies a cgroup2 one has no controllers that count, and a program that finds it takes the whole
    // machine for v2: it is left out, as runc does.
    for hierarchy in host.all().iter().filter(|hierarchy| hierarchy.version == Version::One) {
        let Some(name) = hierarchy.mount.file_name().map(|n| n.to_string_lossy().into_owned()) else {
            continue;
        };
        let source = match group {
            Some(group) => hierarchy.mount.join(group.path()),
            None => hierarchy.mount.clone(),
        };
        if hierarchy.controllers.len() > 1 {
            for controller in hierarchy.controllers.iter().filter(|c| **c != name) {
                links.push((c(&name)?, c(controller)?));
            }
        }
        views.push((c_path(&source)?, c(&name)?));
    }
    Ok(What::CgroupViews { views, links })
}
