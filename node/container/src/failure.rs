//! What went wrong in a child, as three numbers on a pipe and as a sentence.

use std::io;

use crate::error::RefusalKind;
use crate::plan::{LaunchPlan, MountKind, ProcessPlan};
use crate::protocol::Refusal;

/// What the child was doing. Numbers are only ever added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    Ready = 0,
    Detach = 1,
    JoinCgroup = 2,
    JoinNamespace = 3,
    UnshareCgroup = 4,
    Sysctl = 5,
    Hostname = 6,
    MountSource = 7,
    Root = 8,
    Pivot = 9,
    MountTarget = 10,
    Mount = 11,
    Device = 12,
    MaskedPath = 13,
    ReadonlyPath = 14,
    ReadonlyRoot = 15,
    Terminal = 16,
    Rlimit = 17,
    OomScore = 18,
    User = 19,
    Capabilities = 20,
    NoNewPrivs = 21,
    Seccomp = 22,
    Label = 23,
    Cwd = 24,
    Stdio = 25,
    Exec = 26,
    UserNamespace = 27,
    MountIdmap = 28,
    /// Not a failure: the process that will be the container, by number in `index`.
    Child = 29,
    Priority = 30,
    MemoryPolicy = 31,
    /// A mount on `/proc` that is not procfs.
    NotProc = 32,
    /// A mount that would land in procfs.
    InsideProc = 33,
    /// What stands at `/proc` is not procfs.
    ProveProc = 34,
    /// The working folder is not below the root.
    OutsideRoot = 35,
}

const STAGES: [Stage; 36] = [
    Stage::Ready,
    Stage::Detach,
    Stage::JoinCgroup,
    Stage::JoinNamespace,
    Stage::UnshareCgroup,
    Stage::Sysctl,
    Stage::Hostname,
    Stage::MountSource,
    Stage::Root,
    Stage::Pivot,
    Stage::MountTarget,
    Stage::Mount,
    Stage::Device,
    Stage::MaskedPath,
    Stage::ReadonlyPath,
    Stage::ReadonlyRoot,
    Stage::Terminal,
    Stage::Rlimit,
    Stage::OomScore,
    Stage::User,
    Stage::Capabilities,
    Stage::NoNewPrivs,
    Stage::Seccomp,
    Stage::Label,
    Stage::Cwd,
    Stage::Stdio,
    Stage::Exec,
    Stage::UserNamespace,
    Stage::MountIdmap,
    Stage::Child,
    Stage::Priority,
    Stage::MemoryPolicy,
    Stage::NotProc,
    Stage::InsideProc,
    Stage::ProveProc,
    Stage::OutsideRoot,
];

/// Bytes of one report.
pub(crate) const REPORT: usize = 12;

/// One failure, or with [`Stage::Ready`] the news that only execve is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) errno: i32,
    /// Which mount, namespace, path; 0 where there is only one.
    pub(crate) index: u32,
}

impl Failure {
    pub(crate) fn bytes(self) -> [u8; REPORT] {
        let mut bytes = [0; REPORT];
        bytes[..4].copy_from_slice(&(self.stage as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.errno.to_le_bytes());
        bytes[8..].copy_from_slice(&self.index.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: [u8; REPORT]) -> Option<Failure> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let stage = *STAGES.get(word(0) as usize)?;
        Some(Failure { stage, errno: word(4).cast_signed(), index: word(8) })
    }

    /// The refusal a caller sees for a container.
    pub(crate) fn of_container(self, plan: &LaunchPlan) -> Refusal {
        let refusal = self.of_process(&plan.process);
        let index = self.index as usize;
        let why = io::Error::from_raw_os_error(self.errno);
        let target = || plan.mounts.get(index).map_or("", |m| m.target.as_str());
        let text = match self.stage {
            Stage::JoinNamespace => match plan.join.get(index) {
                Some(join) => format!("enter the {:?} namespace {:?}", join.kind, join.path),
                None => return refusal,
            },
            Stage::Sysctl => match plan.sysctls.get(index) {
                Some((file, value)) => format!("write {value:?} to sysctl {file:?}"),
                None => return refusal,
            },
            Stage::MountSource => match plan.mounts.get(index).map(|m| &m.kind) {
                Some(MountKind::Bind { source, .. }) => format!("mount {source:?} to {:?}", target()),
                _ => format!("prepare the mount on {:?}", target()),
            },
            Stage::MountTarget if matches!(self.errno, libc::ELOOP | libc::ENOTDIR) => {
                let place = "must be mounted on an ordinary directory that no link leads to";
                let message = format!("mount on {:?} in the rootfs: {place}: {}", target(), plain(&why));
                return Refusal { kind: RefusalKind::Setup, message };
            }
            Stage::NotProc => {
                let message = format!(
                    "{:?} cannot be mounted because what is mounted there is not of type proc",
                    target()
                );
                return Refusal { kind: RefusalKind::Setup, message };
            }
            Stage::InsideProc => {
                let message = format!("{:?} cannot be mounted because it is inside /proc", target());
                return Refusal { kind: RefusalKind::Setup, message };
            }
            Stage::MountTarget => format!("make the mount point {:?} in the rootfs", target()),
            Stage::Mount => format!("mount on {:?} in the rootfs", target()),
            Stage::MountIdmap => format!("map the ids of the mount on {:?}", target()),
            Stage::Device => {
                let path = plan.devices.get(index).map_or("links in /dev", |d| d.path.as_str());
                format!("make the device {path:?}")
            }
            Stage::MaskedPath => format!("mask {:?}", plan.masked.get(index).map_or("", String::as_str)),
            Stage::ReadonlyPath => {
                format!("make {:?} read-only", plan.readonly.get(index).map_or("", String::as_str))
            }
            Stage::Root => format!("mount the rootfs {:?}", plan.rootfs),
            _ => return refusal,
        };
        Refusal { kind: RefusalKind::Setup, message: format!("{text}: {}", plain(&why)) }
    }

    /// The refusal a caller sees for an exec, and for what containers share with it.
    pub(crate) fn of_process(self, process: &ProcessPlan) -> Refusal {
        let why = io::Error::from_raw_os_error(self.errno);
        let program = process.argv.first().map_or("", String::as_str);
        if self.stage == Stage::Exec {
            return Refusal { kind: RefusalKind::Exec, message: exec_text(program, self.errno) };
        }
        let text = match self.stage {
            Stage::Cwd if self.errno == libc::ELOOP => {
                format!("chdir to cwd ({:?}): a link leads out of the container or in a circle", process.cwd)
            }
            Stage::OutsideRoot => format!("chdir to cwd ({:?}): it is not below the rootfs", process.cwd),
            Stage::ProveProc => "/proc in the rootfs is not a procfs".to_owned(),
            Stage::Cwd => format!("chdir to cwd ({:?})", process.cwd),
            Stage::User => format!("become user {} and group {}", process.uid, process.gid),
            Stage::Rlimit => "set a resource limit".to_owned(),
            Stage::MemoryPolicy => "set the memory policy".to_owned(),
            Stage::Priority => "set the I/O priority or the scheduler".to_owned(),
            Stage::Label => match (&process.apparmor, &process.selinux) {
                (Some(profile), _) => format!("apply apparmor profile {profile:?}"),
                (None, label) => format!("set the SELinux label {:?}", label.as_deref().unwrap_or_default()),
            },
            other => format!("{other:?}").to_lowercase(),
        };
        Refusal { kind: RefusalKind::Setup, message: format!("{text}: {}", plain(&why)) }
    }
}

/// The sentences users of runc know.
fn exec_text(program: &str, errno: i32) -> String {
    let why = io::Error::from_raw_os_error(errno);
    match errno {
        libc::ENOENT if !program.contains('/') => {
            format!("exec: {program:?}: executable file not found in $PATH")
        }
        libc::ENOENT => format!("exec: {program:?}: stat {program}: no such file or directory"),
        libc::EACCES => format!("exec: {program:?}: permission denied"),
        libc::EISDIR => format!("exec: {program:?}: is a directory"),
        libc::ENOEXEC => format!("exec {program}: exec format error"),
        _ => format!("exec {program}: {}", plain(&why)),
    }
}

/// The kernel's words without the number, in lower case.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_pipe_and_nonsense_does_not() {
        for stage in STAGES {
            let failure = Failure { stage, errno: -5, index: 7 };
            assert_eq!(Failure::parse(failure.bytes()), Some(failure));
        }
        assert_eq!(Failure::parse([0xff; REPORT]), None);
    }

    #[test]
    fn a_missing_program_reads_as_with_runc() {
        let text = |argv0: &str, errno| {
            let process = ProcessPlan { argv: vec![argv0.to_owned()], ..ProcessPlan::default() };
            Failure { stage: Stage::Exec, errno, index: 0 }.of_process(&process).message
        };
        assert_eq!(text("foo", libc::ENOENT), "exec: \"foo\": executable file not found in $PATH");
        assert_eq!(text("/foo", libc::ENOENT), "exec: \"/foo\": stat /foo: no such file or directory");
        assert_eq!(text("/foo", libc::EACCES), "exec: \"/foo\": permission denied");
    }
}
