//! Where mounts may go and on which of them each restriction lies. Pure.

use std::ffi::CString;
use std::io;

use crate::plan::{LaunchPlan, MountKind, MountPlan};

/// How the place of a mount is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Without following a link: what the kernel shows there must be where everybody expects it.
    Real,
    /// `/proc` itself, without following a link; a tree of the host's must be procfs.
    Proc,
    /// One of the few files in procfs that may be covered.
    InProc,
    /// As a process in the container would find it, but outside procfs.
    Inside,
}

/// One path to restrict.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Restriction {
    /// Which of the plan's paths it is.
    pub(crate) index: usize,
    /// Below what it lies on.
    pub(crate) path: CString,
}

/// Restrictions of one file system.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Restrictions {
    pub(crate) masked: Vec<Restriction>,
    pub(crate) readonly: Vec<Restriction>,
}

/// How the place of `mount` is looked for. Volumes and other trees of the host's go where the image's links lead, as
/// with every runtime (`/var/run` is often a link); only the kernel's own file systems and `/dev` do not.
pub(super) fn target(mount: &MountPlan) -> Target {
    let below = |folder: &str| part_below(&mount.target, folder).is_some();
    match &mount.kind {
        _ if mount.target == "/proc" => Target::Proc,
        _ if below("/proc") => Target::InProc,
        MountKind::Bind { .. } => Target::Inside,
        MountKind::New { fstype, .. } if fstype == "tmpfs" && mount.target != "/dev" && !below("/dev") => {
            Target::Inside
        }
        MountKind::New { .. } | MountKind::Cgroup => Target::Real,
    }
}

/// The restrictions that lie on mount `number`, or with `None` on whatever the root shows in the end.
pub(super) fn restrictions(plan: &LaunchPlan, number: Option<usize>) -> io::Result<Restrictions> {
    let list = |paths: &[String]| -> io::Result<Vec<Restriction>> {
        let mut found = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            let owner = owner(&plan.mounts, path);
            if owner.map(|(mount, _)| mount) == number {
                let path = owner.map_or(path.as_str(), |(_, rest)| rest);
                found.push(Restriction { index, path: super::c(path)? });
            }
        }
        Ok(found)
    };
    Ok(Restrictions { masked: list(&plan.masked)?, readonly: list(&plan.readonly)? })
}

/// The mount of procfs or sysfs that shows `path`, and the path in there.
fn owner<'a>(mounts: &[MountPlan], path: &'a str) -> Option<(usize, &'a str)> {
    // A later mount hides what is below an earlier one.
    let on = |mount: &MountPlan| path == mount.target || part_below(path, &mount.target).is_some();
    let (number, mount) = mounts.iter().enumerate().rfind(|(_, mount)| on(mount))?;
    let kernels =
        matches!(&mount.kind, MountKind::New { fstype, .. } if matches!(fstype.as_str(), "proc" | "sysfs"));
    part_below(path, &mount.target).filter(|_| kernels).map(|rest| (number, rest))
}

/// What is left of `path` below `folder`.
pub(super) fn part_below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/').filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(target: &str, fstype: &str) -> MountPlan {
        let kind = MountKind::New { fstype: fstype.to_owned(), source: String::new(), options: Vec::new() };
        mount(target, kind)
    }

    fn bind(target: &str) -> MountPlan {
        mount(target, MountKind::Bind { source: "/src".to_owned(), recursive: true })
    }

    fn mount(target: &str, kind: MountKind) -> MountPlan {
        MountPlan {
            target: target.to_owned(),
            kind,
            attr_set: 0,
            attr_clear: 0,
            attr_recursive: false,
            propagation: 0,
            propagation_recursive: false,
            idmap: None,
        }
    }

    #[test]
    fn only_what_is_not_the_kernels_follows_links() {
        for (mount, expected) in [
            (new("/proc", "proc"), Target::Proc),
            (bind("/proc"), Target::Proc),
            (bind("/proc/meminfo"), Target::InProc),
            (bind("/process"), Target::Inside),
            (new("/sys", "sysfs"), Target::Real),
            (new("/dev", "tmpfs"), Target::Real),
            (new("/dev/shm", "tmpfs"), Target::Real),
            (new("/dev/mqueue", "mqueue"), Target::Real),
            (mount("/sys/fs/cgroup", MountKind::Cgroup), Target::Real),
            (new("/var/run/x", "tmpfs"), Target::Inside),
            (bind("/dev/shm"), Target::Inside),
        ] {
            assert_eq!(target(&mount), expected, "{}", mount.target);
        }
    }

    #[test]
    fn a_restriction_lies_on_the_file_system_that_shows_its_path() {
        let plan = LaunchPlan {
            mounts: vec![new("/proc", "proc"), new("/sys", "sysfs"), bind("/data"), bind("/sys/firmware")],
            masked: ["/proc/kcore", "/sys/firmware/efi", "/etc/secret", "/sys/devices/power", "/processes"]
                .map(str::to_owned)
                .to_vec(),
            readonly: ["/proc/sys", "/data/x", "/proc"].map(str::to_owned).to_vec(),
            ..LaunchPlan::default()
        };
        let seen = |number| {
            let found = restrictions(&plan, number).unwrap();
            let text = |list: Vec<Restriction>| {
                let one = |r: Restriction| (r.index, r.path.into_string().unwrap());
                list.into_iter().map(one).collect::<Vec<_>>()
            };
            (text(found.masked), text(found.readonly))
        };
        let own = |list: &[(usize, &str)]| list.iter().map(|(i, p)| (*i, (*p).to_owned())).collect();
        let expected: [(_, Vec<_>, Vec<_>); 5] = [
            (Some(0), own(&[(0, "kcore")]), own(&[(0, "sys")])),
            (Some(1), own(&[(3, "devices/power")]), own(&[])),
            (Some(2), own(&[]), own(&[])),
            (Some(3), own(&[]), own(&[])),
            (
                None,
                own(&[(1, "/sys/firmware/efi"), (2, "/etc/secret"), (4, "/processes")]),
                own(&[(1, "/data/x"), (2, "/proc")]),
            ),
        ];
        for (number, masked, readonly) in expected {
            assert_eq!(seen(number), (masked, readonly), "{number:?}");
        }
    }
}
