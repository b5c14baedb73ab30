//! The spec's hooks: run one after another at their point, each told the container's state on its stdin.
//!
//! A hook of `createContainer` is in the container's namespaces while it still sees the host's files, so that a program
//! of the host can be run there; the container's own files are below `rootfs` in the bundle. A hook of `startContainer`
//! is a program of the image's: it gets what the container's own program gets and nothing more (user, capabilities,
//! filter, limits, cgroup, all namespaces), as with runc, whose waiting init runs it.
//! <https://github.com/opencontainers/runtime-spec/blob/v1.2.1/config.md#posix-platform-hooks>

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::container::{Container, Phase};
use super::helper::{self, Ended, PATIENCE, Purpose};
use super::note;
use super::server::{Server, refusal};
use crate::error::RefusalKind;
use crate::plan::HookPlan;

/// When hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    CreateRuntime,
    CreateContainer,
    StartContainer,
    PostStart,
    PostStop,
}

/// How far a container's hooks are.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) created: bool,
    pub(super) started: Option<super::clients::Reply>,
    pub(super) may_start: bool,
    pub(super) stopping: bool,
    pub(super) stopped: bool,
}

impl Progress {
    /// Of a container that was taken over in the middle of its life.
    pub(super) fn past() -> Progress {
        Progress { created: true, may_start: true, ..Progress::default() }
    }
}

fn hooks(container: &Container, point: Point) -> &[HookPlan] {
    let plans = &container.plan.hooks;
    match point {
        Point::CreateRuntime => &plans.create_runtime,
        Point::CreateContainer => &plans.create_container,
        Point::StartContainer => &plans.start_container,
        Point::PostStart => &plans.post_start,
        Point::PostStop => &plans.post_stop,
    }
}

/// The state of a container in the runtime specification's words.
fn state(container: &Container, point: Point) -> String {
    let status = match point {
        Point::CreateRuntime | Point::CreateContainer => "creating",
        Point::StartContainer => "created",
        Point::PostStart => "running",
        Point::PostStop => "stopped",
    };
    let pid = match point {
        Point::PostStop => 0,
        Point::StartContainer => pid_inside(container.process.pid),
        _ => container.process.pid,
    };
    let bundle = container.plan.bundle.as_deref().unwrap_or("/");
    serde_json::json!({
        "ociVersion": "1.0.2", "id": container.id, "status": status, "pid": pid, "bundle": bundle,
    })
    .to_string()
}

/// The number of a process in its own pid namespace, which is the only one a hook in there can use; 0 if it is gone.
fn pid_inside(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.and_then(|all| all.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

/// Lets a child enter the container's namespaces; it keeps seeing the files below `root`.
fn enter(command: &mut Command, pidfd: OwnedFd, root: File) {
    let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    // SAFETY: only system calls between fork and execve, on descriptors that the closure owns.
    unsafe {
        command.pre_exec(move || {
            if libc::setns(pidfd.as_raw_fd(), spaces) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::fchdir(root.as_raw_fd()) != 0 || libc::chroot(c".".as_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// What a hook reads.
fn said(container: &Container, point: Point) -> io::Result<File> {
    let mut said = helper::ear()?;
    said.write_all(state(container, point).as_bytes())?;
    said.rewind()?;
    Ok(said)
}

fn command(container: &Container, point: Point, hook: &HookPlan) -> io::Result<Command> {
    let mut command = Command::new(&hook.path);
    if let Some((name, rest)) = hook.args.split_first() {
        command.arg0(name).args(rest);
    }
    command.env_clear().envs(hook.env.iter().filter_map(|pair| pair.split_once('=')));
    command.stdin(Stdio::from(said(container, point)?));
    if point == Point::CreateContainer {
        enter(&mut command, container.process.pidfd.try_clone()?, File::open("/")?);
    }
    Ok(command)
}

impl Server {
    /// Runs what is to be run before a container counts as created; false when there is nothing.
    pub(super) fn hook_creation(&mut self, id: &str) -> bool {
        let Some(container) = self.containers.get_mut(id) else { return false };
        let plans = &container.plan.hooks;
        if container.hooks.created || (plans.create_runtime.is_empty() && plans.create_container.is_empty()) {
            return false;
        }
        container.hooks.created = true;
        if let Some(bundle) = &container.plan.bundle {
            let link = Path::new(bundle).join("rootfs");
            let target = format!("/proc/{}/root", container.process.pid);
            // Ignored: there is none, or making the new one says so.
            std::fs::remove_file(&link).ok();
            if let Err(error) = std::os::unix::fs::symlink(target, &link) {
                note(&format!("container {id}: {link:?} not made: {error}"));
            }
        }
        self.next_hook(id, Point::CreateRuntime, 0);
        true
    }

    /// Runs the hook number `at` of a point, or goes on when there is none.
    pub(super) fn next_hook(&mut self, id: &str, point: Point, at: usize) {
        let Some(container) = self.containers.get(id) else { return };
        let Some(hook) = hooks(container, point).get(at) else { return self.hooks_done(id, point) };
        let (hook, patience) = (hook.clone(), hook.timeout.map_or(PATIENCE, Duration::from_secs));
        let purpose = Purpose::Hook { container: id.to_owned(), point, at };
        let started = if point == Point::StartContainer {
            said(container, point).and_then(|said| self.help_inside(id, &hook, &said, patience, purpose))
        } else {
            command(container, point, &hook)
                .and_then(|mut command| self.help(&mut command, patience, purpose))
        };
        if let Err(error) = started {
            self.hook_failed(id, point, at, &format!("hook {}: {error}", hook.path));
        }
    }

    pub(super) fn hook_ended(&mut self, id: &str, point: Point, at: usize, ended: &Ended) {
        let Some(container) = self.containers.get(id) else { return };
        if ended.exit.code() == 0 {
            return self.next_hook(id, point, at + 1);
        }
        let path = hooks(container, point).get(at).map(|hook| hook.path.clone()).unwrap_or_default();
        let code = ended.exit.code();
        self.hook_failed(id, point, at, &format!("hook {path} ended with {code}: {}", ended.output));
    }

    fn hooks_done(&mut self, id: &str, point: Point) {
        let Some(container) = self.containers.get_mut(id) else { return };
        match point {
            Point::CreateRuntime => self.next_hook(id, Point::CreateContainer, 0),
            Point::CreateContainer => self.container_ready(id),
            Point::StartContainer => {
                container.hooks.may_start = true;
                let Some(reply) = container.hooks.started.take() else { return };
                if let Err(refusal) = self.start(reply, id) {
                    self.refuse(reply, refusal);
                }
            }
            Point::PostStart => {}
            Point::PostStop => {
                container.hooks.stopped = true;
                self.continue_deletions();
            }
        }
    }

    fn hook_failed(&mut self, id: &str, point: Point, at: usize, message: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        match (point, &container.phase) {
            (Point::CreateRuntime | Point::CreateContainer, Phase::Creating(reply)) => {
                let reply = *reply;
                self.abandon(id, reply, refusal(RefusalKind::Setup, message));
            }
            (Point::StartContainer, _) => {
                if let Some(reply) = container.hooks.started.take() {
                    self.refuse(reply, refusal(RefusalKind::Setup, message));
                }
            }
            // What has happened cannot be undone: the others are still told.
            (Point::PostStart | Point::PostStop, _) => {
                note(&format!("container {id}: {message}"));
                self.next_hook(id, point, at + 1);
            }
            _ => note(&format!("container {id}: {message}")),
        }
    }

    /// True once the hooks of the container's end have run; starts them when nobody has.
    pub(super) fn stop_hooks_are_done(&mut self, id: &str) -> bool {
        let Some(container) = self.containers.get_mut(id) else { return true };
        if container.plan.hooks.post_stop.is_empty() || container.hooks.stopped {
            return true;
        }
        if !container.hooks.stopping {
            container.hooks.stopping = true;
            self.next_hook(id, Point::PostStop, 0);
        }
        self.containers.get(id).is_none_or(|container| container.hooks.stopped)
    }
}
