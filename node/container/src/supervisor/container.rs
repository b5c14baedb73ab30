//! What the supervisor keeps of one container and of one exec.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use podwire_linux::cgroup::Group;
use serde::{Deserialize, Serialize};

use super::attach::Sink;
use super::clients::Reply;
use super::hooks::Progress;
use super::log::Log;
use super::oci_runtime::{OciRuntime, OciRuntimeExec};
use super::output::Output;
use super::poll::{Stream, Token};
use crate::plan::LaunchPlan;
use crate::protocol::{FdRole, Refusal};
use crate::request::{ContainerState, ContainerStatus, ExecState};

/// A process we cloned, and the pipe it reports on.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
    pub(super) pidfd_token: Option<Token>,
    pub(super) status: Option<(OwnedFd, Token)>,
    /// Where the master of a terminal arrives.
    pub(super) console: Option<OwnedFd>,
    pub(super) master: Option<OwnedFd>,
}

/// How far a container is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its child is at work.
    Creating(Reply),
    /// Its child waits for a byte on the pipe.
    Created(OwnedFd),
    /// It was told to go; the answer waits for execve.
    Starting(Reply),
    Running,
    Exited(Exited),
}

/// How a container ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Exited {
    pub(super) code: i32,
    pub(super) signal: Option<i32>,
    pub(super) oom: bool,
    pub(super) at: u64,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) plan: LaunchPlan,
    pub(super) process: Process,
    pub(super) phase: Phase,
    pub(super) group: Option<Group>,
    pub(super) started_at: Option<u64>,
    pub(super) oom_watch: bool,
    /// Its init has a pid namespace to itself, whose death ends everything in it.
    pub(super) own_pids: bool,
    /// Written to when it may execute.
    pub(super) go: Option<OwnedFd>,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) outputs: Vec<Output>,
    pub(super) log: Option<Log>,
    pub(super) sinks: BTreeMap<u64, Sink>,
    pub(super) execs: BTreeMap<String, Exec>,
    /// Why execve failed, once it has: the exit that follows is no news.
    pub(super) start_failed: bool,
    /// Not our child: we took it over from a supervisor that died.
    pub(super) adopted: bool,
    /// It has ended, and its parent has yet to reap it before its exit code can be read.
    pub(super) waits_for_reaping: bool,
    pub(super) hooks: Progress,
    /// An OCI runtime makes and deletes it.
    pub(super) oci_runtime: Option<OciRuntime>,
    pub(super) deleting: Option<Deleting>,
}

/// A delete under way.
#[derive(Debug)]
pub(super) struct Deleting {
    pub(super) replies: Vec<Reply>,
    pub(super) tries: u32,
    /// Set when it failed to be created: the answer is the reason.
    pub(super) verdict: Option<Refusal>,
}

#[derive(Debug)]
pub(super) struct Exec {
    pub(super) process: Process,
    pub(super) program: crate::plan::ProcessPlan,
    /// The answer, until execve has happened.
    pub(super) starting: Option<Starting>,
    /// Why execve failed, and who is to hear of it.
    pub(super) failure: Option<(Reply, Refusal)>,
    pub(super) exit_code: Option<i32>,
    /// An OCI runtime has yet to start it.
    pub(super) oci_runtime: Option<OciRuntimeExec>,
}

/// An exec whose caller still waits, with the descriptors for it.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) reply: Reply,
    pub(super) fds: Vec<(FdRole, OwnedFd)>,
}

impl Container {
    pub(super) fn state(&self) -> ContainerState {
        ContainerState {
            id: self.id.clone(),
            pid: self.process.pid,
            status: match &self.phase {
                Phase::Creating(_) | Phase::Created(_) | Phase::Starting(_) => ContainerStatus::Created,
                Phase::Running => ContainerStatus::Running,
                Phase::Exited(exited) => ContainerStatus::Exited {
                    code: exited.code,
                    signal: exited.signal,
                    oom: exited.oom,
                    finished_at: exited.at,
                },
            },
            started_at: self.started_at,
            execs: self
                .execs
                .iter()
                .map(|(id, exec)| ExecState {
                    exec_id: id.clone(),
                    pid: exec.process.pid,
                    exit_code: exec.exit_code,
                })
                .collect(),
        }
    }

    /// Copies of what must not be lost with us, for the daemon to hold.
    pub(super) fn second_holder(&self) -> Vec<(FdRole, OwnedFd)> {
        let role = |stream| if stream == Stream::Stdout { FdRole::Stdout } else { FdRole::Stderr };
        let ends = self.outputs.iter().map(|output| (role(output.stream), &output.fd));
        let mut copies = Vec::new();
        for (role, fd) in [(FdRole::Pidfd, &self.process.pidfd)].into_iter().chain(ends) {
            match fd.try_clone() {
                Ok(copy) => copies.push((role, copy)),
                Err(error) => super::note(&format!("container {}: no second holder: {error}", self.id)),
            }
        }
        copies
    }

    pub(super) fn has_exited(&self) -> bool {
        matches!(self.phase, Phase::Exited(_))
    }
}

impl Process {
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        podwire_linux::pidfd::signal(&self.pidfd, signal).map(drop)
    }
}
