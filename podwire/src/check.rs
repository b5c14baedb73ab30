//! The preflight: what a node needs from this machine, and what to do about each miss.
//!
//! Looks only; nothing is changed.

use std::{fs, path::Path};

use podwire_linux::{apparmor::AppArmor, kernel};

use crate::client::columns;

/// How bad a miss is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    /// There.
    Ok,
    /// Missing; something works less well.
    Warn,
    /// Missing; pods cannot run.
    Fail,
}

/// Of a disk with less free than this, in percent, a kubelet with default settings says that it is under pressure.
const LEAST_FREE: u64 = 10;

/// One thing looked at.
#[derive(Debug)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How it stands.
    pub grade: Grade,
    /// What was seen and, for a miss, what to do.
    pub note: String,
}

fn ok(what: &'static str, note: impl Into<String>) -> Finding {
    Finding { what, grade: Grade::Ok, note: note.into() }
}

fn miss(what: &'static str, grade: Grade, note: impl Into<String>) -> Finding {
    Finding { what, grade, note: note.into() }
}

/// Looks at everything a node needs that keeps its data in this folder.
pub fn findings(data: &Path) -> Vec<Finding> {
    vec![
        root(),
        kernel(&kernel::release()),
        cgroups(),
        overlay(),
        disk(data),
        namespaces(),
        network(),
        resource_limits(),
        apparmor(&AppArmor::default()),
    ]
}

/// The findings that stop a node, as one message; None when pods can run.
pub fn blocking(findings: &[Finding]) -> Option<String> {
    let lines: Vec<String> = findings
        .iter()
        .filter(|finding| finding.grade == Grade::Fail)
        .map(|finding| format!("{}: {}", finding.what, finding.note))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The findings as a table.
pub fn report(findings: &[Finding]) -> String {
    let mut lines = vec![vec!["CHECK".to_owned(), "RESULT".to_owned(), "NOTE".to_owned()]];
    for finding in findings {
        let grade = match finding.grade {
            Grade::Ok => "ok",
            Grade::Warn => "warning",
            Grade::Fail => "MISSING",
        };
        lines.push(vec![finding.what.to_owned(), grade.to_owned(), finding.note.clone()]);
    }
    columns(&lines)
}

fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|rest| rest.trim().to_owned()))
}

fn root() -> Finding {
    let uid = status_field("Uid").and_then(|ids| ids.split_whitespace().nth(1).map(str::to_owned));
    let caps = status_field("CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0);
    // CAP_NET_ADMIN is bit 12, CAP_SYS_ADMIN bit 21.
    if uid.as_deref() == Some("0") && caps & (1 << 21) != 0 && caps & (1 << 12) != 0 {
        return ok("root", "running as root with CAP_SYS_ADMIN and CAP_NET_ADMIN");
    }
    miss("root", Grade::Fail, "pods need root with CAP_SYS_ADMIN and CAP_NET_ADMIN; run this with sudo")
}

fn kernel(release: &str) -> Finding {
    let version = kernel::parse(release);
    if version < kernel::OLDEST {
        let (major, minor) = kernel::OLDEST;
        let note =
            format!("{release} is too old; Linux {major}.{minor} or newer is needed (mount API, pidfds)");
        return miss("kernel", Grade::Fail, note);
    }
    let lacks: Vec<String> = kernel::lacks(version)
        .map(|need| {
            let (major, minor) = need.since;
            format!("before {major}.{minor}, no {}: {}", need.what, need.before)
        })
        .collect();
    if lacks.is_empty() {
        ok("kernel", release)
    } else {
        miss("kernel", Grade::Warn, format!("{release}; {}", lacks.join("; ")))
    }
}

/// Whether containers that ask for nothing are confined.
fn apparmor(node: &AppArmor) -> Finding {
    if !node.enforces() {
        return ok("AppArmor", "not enforced by this kernel; a pod that asks for a profile is refused");
    }
    match (node.parser(), node.has(podwire_runtime::APPARMOR_PROFILE)) {
        (Some(_), Ok(_)) | (None, Ok(true)) => ok("AppArmor", "containers run under the default profile"),
        (None, Ok(false)) => miss(
            "AppArmor",
            Grade::Warn,
            "no apparmor_parser to load the default profile with: containers run without one, and those that ask for \
             RuntimeDefault are refused; install the package apparmor",
        ),
        (_, Err(error)) => miss(
            "AppArmor",
            Grade::Warn,
            format!(
                "{}: {error}: containers run without a profile, and those that ask for one are refused; mount securityfs \
                 on /sys/kernel/security",
                node.profiles.display()
            ),
        ),
    }
}

fn cgroups() -> Finding {
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let v1 = |name: &str| Path::new("/sys/fs/cgroup").join(name).join("cgroup.procs").exists();
    if v2 {
        return ok("cgroups", "v2");
    }
    let missing: Vec<&str> = ["cpu", "memory", "pids"].into_iter().filter(|name| !v1(name)).collect();
    if missing.is_empty() {
        ok("cgroups", "v1 hybrid")
    } else {
        miss(
            "cgroups",
            Grade::Fail,
            format!("no cgroup v2 at /sys/fs/cgroup and no v1 {}; mount cgroup2 there", missing.join(", ")),
        )
    }
}

fn overlay() -> Finding {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.trim() == "nodev\toverlay" || line.ends_with("\toverlay")) {
        ok("overlayfs", "in the kernel")
    } else {
        miss("overlayfs", Grade::Fail, "the kernel has no overlay file system loaded; run `modprobe overlay`")
    }
}

/// The file system that the data folder is or will be on.
fn disk(data: &Path) -> Finding {
    const OVERLAY: u64 = 0x794c_7630;
    let there = data.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let (kind, figures) = match (rustix::fs::statfs(there), rustix::fs::statvfs(there)) {
        (Ok(kind), Ok(figures)) => (kind.f_type.cast_unsigned(), figures),
        (Err(error), _) | (_, Err(error)) => {
            return miss("disk", Grade::Fail, format!("{}: {error}", there.display()));
        }
    };
    let name = data.display();
    if figures.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        let note = format!("{name} is on a file system that is read-only; name another with --data-dir");
        return miss("disk", Grade::Fail, note);
    }
    if kind == OVERLAY {
        let note = format!(
            "{name} is on an overlay file system, on which no container can write; name another with --data-dir"
        );
        return miss("disk", Grade::Fail, note);
    }
    let bytes = |blocks: u64| blocks.saturating_mul(figures.f_frsize);
    judge_room(data, bytes(figures.f_bavail), bytes(figures.f_blocks))
}

/// Whether pods are admitted with so much of the disk free.
fn judge_room(data: &Path, free: u64, size: u64) -> Finding {
    let (name, gigabytes) = (data.display(), free as f64 / 1e9);
    let percent = free.saturating_mul(100) / size.max(1);
    if percent < LEAST_FREE {
        let note = format!(
            "{name} has {percent} % free ({gigabytes:.1} GB); with less than {LEAST_FREE} % pods are turned away: \
             make room, or lower --eviction-hard"
        );
        return miss("disk", Grade::Warn, note);
    }
    ok("disk", format!("{name} has {percent} % free ({gigabytes:.1} GB)"))
}

fn namespaces() -> Finding {
    let missing: Vec<&str> = ["net", "pid", "mnt", "ipc", "uts", "cgroup"]
        .into_iter()
        .filter(|name| !Path::new("/proc/self/ns").join(name).exists())
        .collect();
    if missing.is_empty() {
        ok("namespaces", "net, pid, mnt, ipc, uts, cgroup")
    } else {
        miss("namespaces", Grade::Fail, format!("the kernel lacks the namespaces {}", missing.join(", ")))
    }
}

fn network() -> Finding {
    match podwire_linux::rtnl::probe() {
        Ok(()) => ok("network", "bridge and veth"),
        Err(error) => miss("network", Grade::Fail, format!("{error}; run `modprobe -a bridge veth`")),
    }
}

fn resource_limits() -> Finding {
    let caps = status_field("CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0);
    // CAP_SYS_RESOURCE is bit 24.
    if caps & (1 << 24) != 0 {
        ok("limits", "CAP_SYS_RESOURCE")
    } else {
        miss(
            "limits",
            Grade::Warn,
            "no CAP_SYS_RESOURCE: negative oom_score_adj and raised hard limits are not applied",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_judged_by_what_it_lacks_and_says_it() {
        assert_eq!(kernel("5.10.0-8-amd64").grade, Grade::Fail);
        let old = kernel("6.1.0-54-cloud-amd64");
        assert_eq!(old.grade, Grade::Warn, "{old:?}");
        assert!(old.note.contains("before 6.15") && old.note.contains("hostUsers: false"), "{old:?}");
        assert!(!old.note.contains("before 5.19"), "{old:?}");
        assert_eq!(kernel("6.18.3").grade, Grade::Ok);
    }

    #[test]
    fn apparmor_without_its_compiler_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (switch, profiles) = (dir.path().join("enabled"), dir.path().join("profiles"));
        let node = AppArmor { switch, profiles, parsers: vec![dir.path().join("parser")] };
        assert_eq!(apparmor(&node).grade, Grade::Ok, "not enforced");
        fs::write(&node.switch, "Y\n").unwrap();
        assert!(apparmor(&node).note.contains("securityfs"));
        fs::write(&node.profiles, "").unwrap();
        let found = apparmor(&node);
        assert!(found.grade == Grade::Warn && found.note.contains("apparmor_parser"), "{found:?}");
        fs::write(&node.profiles, "podwire-default (enforce)\n").unwrap();
        assert_eq!(apparmor(&node).grade, Grade::Ok);
        fs::write(&node.profiles, "").unwrap();
        fs::write(&node.parsers[0], "").unwrap();
        assert_eq!(apparmor(&node).grade, Grade::Ok);
    }

    #[test]
    fn a_disk_is_judged_by_what_is_free_and_by_what_it_can_hold() {
        let wanted = std::env::temp_dir().join("not/there/yet");
        let found = disk(&wanted);
        assert_ne!(found.grade, Grade::Fail, "{found:?}");
        assert!(found.note.contains("not/there/yet"), "{found:?}");
        assert_eq!(judge_room(&wanted, 9, 100).grade, Grade::Warn);
        assert_eq!(judge_room(&wanted, 10, 100).grade, Grade::Ok);
        assert!(judge_room(&wanted, 9, 100).note.contains("--eviction-hard"));
    }
}
