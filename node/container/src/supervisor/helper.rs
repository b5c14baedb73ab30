//! Programs that run beside containers and for them: OCI runtimes and hooks.
//!
//! Each is watched through its pidfd, so nothing waits for it; one that takes too long is killed.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use podwire_linux::pidfd;
use rustix::event::epoll::EventFlags;
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::clients::Reply;
use super::create::{into_cgroup, read_report};
use super::hooks::Point;
use super::poll::{Source, Token};
use super::server::Server;
use crate::child::{self, Pipes};
use crate::plan::{HookPlan, ProcessPlan};
use crate::prepare::Program;

/// How long a program may take when nothing else is said.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// What is kept of a program's output.
const MOST_OUTPUT: u64 = 4096;

/// What a program was started for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Lets a container of an OCI runtime go.
    Start { container: String, reply: Reply },
    /// Signals a container of an OCI runtime.
    Signal { container: String, signal: i32, reply: Reply },
    /// Takes a container of an OCI runtime away.
    Delete { container: String },
    /// Does what the spec wants done at a point of a container's life.
    Hook { container: String, point: Point, at: usize },
}

/// A program at work.
#[derive(Debug)]
pub(super) struct Helper {
    pub(super) pid: u32,
    pidfd: OwnedFd,
    token: Token,
    deadline: Instant,
    output: File,
    /// Where one that is started like a container's reports what kept it from its execve, and what it was to be.
    report: Option<(OwnedFd, Box<ProcessPlan>)>,
    purpose: Purpose,
}

/// How a program ended.
pub(super) struct Ended {
    pub(super) exit: pidfd::Exit,
    /// The end of what it said.
    pub(super) output: String,
}

/// Starts a program in a session of its own. It is our child until its pidfd is reaped.
pub(super) fn run(command: &mut Command) -> io::Result<(u32, OwnedFd)> {
    // SAFETY: only system calls that are safe between fork and execve.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            libc::setsid();
            Ok(())
        });
    }
    let child = command.spawn()?;
    let pid = child.id();
    // The child cannot be reaped before we do it, so its number is still its own.
    Ok((pid, pidfd::open(pid)?))
}

/// A file in memory for what a program says.
pub(super) fn ear() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("podwire-helper", MemfdFlags::CLOEXEC)?))
}

/// The end of what was said into `file`, on one line.
pub(super) fn heard(file: &mut File) -> String {
    let mut text = Vec::new();
    let length = file.metadata().map(|meta| meta.len()).unwrap_or(0);
    let read = file
        .seek(io::SeekFrom::Start(length.saturating_sub(MOST_OUTPUT)))
        .and_then(|_| file.take(MOST_OUTPUT).read_to_end(&mut text));
    match read {
        Ok(_) => String::from_utf8_lossy(&text).trim().replace('\n', "; "),
        Err(error) => format!("(its output was lost: {error})"),
    }
}

impl Server {
    /// Starts a program whose end is handled by its purpose.
    pub(super) fn help(
        &mut self,
        command: &mut Command,
        patience: Duration,
        purpose: Purpose,
    ) -> io::Result<()> {
        let output = ear()?;
        command.stdout(Stdio::from(output.try_clone()?)).stderr(Stdio::from(output.try_clone()?));
        let process = run(command)?;
        self.watch_helper(process, output, None, patience, purpose)
    }

    /// Starts a program inside a container with all that confines the container's own, whose end is handled by its
    /// purpose. `said` is what it reads.
    pub(super) fn help_inside(
        &mut self,
        id: &str,
        hook: &HookPlan,
        said: &File,
        patience: Duration,
        purpose: Purpose,
    ) -> io::Result<()> {
        let container = self.containers.get(id).ok_or(io::ErrorKind::NotFound)?;
        let plan = ProcessPlan {
            argv: if hook.args.is_empty() { vec![hook.path.clone()] } else { hook.args.clone() },
            env: hook.env.clone(),
            ..container.plan.process.clone()
        };
        let enter = super::exec::enter(container, Program::of_file(&plan, &hook.path)?)?;
        let into = into_cgroup(container.group.as_ref())?;
        let output = ear()?;
        let (report, status) = pipe_with(PipeFlags::CLOEXEC)?;
        let stdio = [said.as_raw_fd(), output.as_raw_fd(), output.as_raw_fd()];
        let mut keep =
            vec![said.as_raw_fd(), output.as_raw_fd(), status.as_raw_fd(), enter.pidfd.as_raw_fd()];
        keep.sort_unstable();
        let (status_fd, start) = (status.as_raw_fd(), status.as_raw_fd());
        let pipes = Pipes { status: status_fd, start, stdio, terminal: None, keep };
        let process =
            self.clone_into(Some(&enter.pidfd), 0, into.as_ref(), || child::enter(&enter, &pipes))?;
        drop(status);
        let plan = ProcessPlan { argv: vec![hook.path.clone()], ..plan };
        self.watch_helper(process, output, Some((report, Box::new(plan))), patience, purpose)
    }

    fn watch_helper(
        &mut self,
        (pid, pidfd): (u32, OwnedFd),
        output: File,
        report: Option<(OwnedFd, Box<ProcessPlan>)>,
        patience: Duration,
        purpose: Purpose,
    ) -> io::Result<()> {
        let number = self.next_helper;
        self.next_helper += 1;
        let token = self.poll.add(&pidfd, Source::Helper(number), EventFlags::IN)?;
        let deadline = Instant::now() + patience;
        self.helpers.insert(number, Helper { pid, pidfd, token, deadline, output, report, purpose });
        Ok(())
    }

    /// A program may have ended.
    pub(super) fn helper_event(&mut self, number: u64) {
        let Some(helper) = self.helpers.get_mut(&number) else { return };
        let exit = match pidfd::reap(&helper.pidfd) {
            Ok(Some(exit)) => exit,
            Ok(None) => return,
            Err(_) => pidfd::Exit::Code(255),
        };
        let Some(mut helper) = self.helpers.remove(&number) else { return };
        self.poll.remove(helper.pidfd.as_fd(), helper.token);
        let mut output = heard(&mut helper.output);
        if let Some((report, plan)) = &helper.report
            && let Ok(Some(failure)) = read_report(report)
        {
            output = failure.of_process(plan).message;
        }
        let ended = Ended { exit, output };
        match helper.purpose {
            Purpose::Start { container, reply } => self.oci_runtime_started(&container, reply, &ended),
            Purpose::Signal { container, signal, reply } => {
                self.oci_runtime_signalled(&container, signal, reply, &ended)
            }
            Purpose::Delete { container } => self.oci_runtime_deleted(&container, &ended),
            Purpose::Hook { container, point, at } => self.hook_ended(&container, point, at, &ended),
        }
    }

    /// Kills programs that take too long; says when to look again.
    pub(super) fn hurry_helpers(&self) -> Option<Duration> {
        let now = Instant::now();
        for late in self.helpers.values().filter(|helper| helper.deadline <= now) {
            // Ignored: gone is what we want, and its pidfd tells.
            pidfd::signal(&late.pidfd, libc::SIGKILL).ok();
        }
        let next = self.helpers.values().map(|helper| helper.deadline).min()?;
        Some(next.saturating_duration_since(now).max(Duration::from_millis(10)))
    }
}
