//! Taking over from a supervisor that died: from its journal, and from what daemons still hold.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use podwire_linux::{cgroup, pidfd};
use rustix::event::epoll::EventFlags;

use super::clients::{Reply, ok, unzip};
use super::container::{Container, Exited, Phase, Process};
use super::delete::UNKNOWN;
use super::hooks::Progress;
use super::journal::{Record, birth};
use super::log::Log;
use super::note;
use super::oci_runtime::OciRuntime;
use super::output::Output;
use super::poll::{Source, Stream, Whose, now};
use super::server::{Server, internal, not_found};
use crate::protocol::{AdoptArg, FdRole, FdsReply, Refusal};
use crate::request::Event;

impl Server {
    /// Restores what the journal says: all of it, or there is no supervisor yet. One without a container that lives would
    /// let it be started a second time.
    pub(super) fn restore(&mut self, records: Vec<Record>) -> io::Result<()> {
        for record in records {
            let id = record.id.clone();
            let container = self.restore_one(record).map_err(|error| {
                io::Error::new(error.kind(), format!("take over container {id}: {error}"))
            })?;
            let fate = if container.has_exited() { "has ended" } else { "runs" };
            note(&format!("took over container {id}: it {fate}"));
            self.containers.insert(id, container);
        }
        Ok(())
    }

    fn restore_one(&mut self, record: Record) -> io::Result<Container> {
        let living = match record.exited {
            None if birth(record.pid) == Some(record.birth) => open_living(record.pid)?,
            _ => None,
        };
        let alive = living.is_some();
        // A process that is gone still needs a descriptor; our own stands in until the daemon's comes.
        let fd = match living {
            Some(fd) => fd,
            None => pidfd::open(std::process::id())?,
        };
        let whose = Whose { container: record.id.clone(), exec: None };
        let token =
            if alive { Some(self.poll.add(&fd, Source::Process(whose), EventFlags::IN)?) } else { None };
        let phase = match record.exited {
            Some(exited) => Phase::Exited(exited),
            None if alive => Phase::Running,
            None => Phase::Exited(Exited { code: UNKNOWN, signal: None, oom: false, at: now() }),
        };
        let group = match &record.plan.cgroup {
            Some(plan) => Some(cgroup::group(&plan.path).map_err(io::Error::other)?),
            None => None,
        };
        let log = record.log_path.map(|path| resume_log(&record.id, path));
        let mut container = Container {
            own_pids: record.plan.clone_flags & u64::from(libc::CLONE_NEWPID.cast_unsigned()) != 0,
            id: record.id,
            plan: record.plan,
            process: Process {
                pid: record.pid,
                pidfd: fd,
                pidfd_token: token,
                status: None,
                console: None,
                master: None,
            },
            phase,
            group,
            started_at: record.started_at,
            oom_watch: record.oom_watch,
            go: None,
            stdin: None,
            outputs: Vec::new(),
            log,
            sinks: BTreeMap::new(),
            execs: BTreeMap::new(),
            start_failed: record.start_failed,
            adopted: true,
            waits_for_reaping: false,
            hooks: Progress::past(),
            oci_runtime: record.oci_runtime.map(OciRuntime::new),
            deleting: None,
        };
        if alive {
            self.reopen_outputs(&mut container);
        }
        Ok(container)
    }

    /// The kernel lets us open the pipes of a process again, as long as it still has them.
    /// <https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html>.
    fn reopen_outputs(&mut self, container: &mut Container) {
        for (stream, number) in [(Stream::Stdout, 1), (Stream::Stderr, 2)] {
            let path = format!("/proc/{}/fd/{number}", container.process.pid);
            let is_pipe = std::fs::metadata(&path).is_ok_and(|meta| meta.file_type().is_fifo());
            if !is_pipe {
                continue;
            }
            let opened =
                OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(&path);
            let output = opened
                .and_then(|file| Output::new(&mut self.poll, &container.id, stream, OwnedFd::from(file)));
            match output {
                Ok(output) => container.outputs.push(output),
                Err(error) => note(&format!("container {}: output not reopened: {error}", container.id)),
            }
        }
    }

    /// A daemon gives back what it held for a container while there was no supervisor.
    pub(super) fn adopt(&mut self, reply: Reply, arg: &AdoptArg, fds: Vec<OwnedFd>) -> Result<(), Refusal> {
        let Some(container) = self.containers.get_mut(&arg.id) else { return Err(not_found(&arg.id)) };
        if !container.adopted {
            self.answer(reply, &());
            return Ok(());
        }
        let mut news = None;
        for (role, fd) in arg.fds.iter().zip(fds) {
            match role {
                FdRole::Pidfd => news = learn_exit(container, fd),
                FdRole::Stdout | FdRole::Stderr => {
                    let stream = if *role == FdRole::Stdout { Stream::Stdout } else { Stream::Stderr };
                    if container.outputs.iter().any(|o| o.stream == stream) {
                        continue;
                    }
                    if rustix::termios::isatty(&fd) {
                        container.process.master = Some(fd.try_clone().map_err(|e| internal(&e))?);
                    }
                    let output =
                        Output::new(&mut self.poll, &arg.id, stream, fd).map_err(|e| internal(&e))?;
                    container.outputs.push(output);
                }
                FdRole::Stdin | FdRole::Unknown => {}
            }
        }
        if container.has_exited() {
            container.drain(&mut self.poll);
        }
        if let Some(exited) = news {
            self.journal.exited(&arg.id, exited);
        }
        let event = match container.phase {
            Phase::Exited(e) if !container.start_failed => Some(Event::Exited {
                id: arg.id.clone(),
                code: e.code,
                signal: e.signal,
                oom: e.oom,
                at: e.at,
            }),
            _ => None,
        };
        self.answer(reply, &());
        if let Some(event) = event {
            self.announce(&event);
        }
        Ok(())
    }

    /// Copies of a container's descriptors, for a daemon that has just connected.
    pub(super) fn hold(&mut self, reply: Reply, id: &str) -> Result<(), Refusal> {
        let container = self.container(id)?;
        let (roles, fds) = unzip(container.second_holder());
        self.send(reply.client, &ok(reply.seq, &FdsReply { fds: roles }), fds);
        Ok(())
    }
}

/// The process, unless it has just ended.
fn open_living(pid: u32) -> io::Result<Option<OwnedFd>> {
    match pidfd::open(pid) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The log of a container that lives on, whether or not it can be opened now.
pub(super) fn resume_log(id: &str, path: std::path::PathBuf) -> Log {
    let (log, failure) = Log::resume(path);
    if let Some(failure) = failure {
        note(&format!("container {id}: {failure}"));
    }
    log
}

/// A pidfd opened before the end still knows the exit code.
fn learn_exit(container: &mut Container, pidfd: OwnedFd) -> Option<Exited> {
    let Phase::Exited(exited) = &mut container.phase else { return None };
    if exited.code != UNKNOWN {
        return None;
    }
    let pidfd::Stranger::Ended(exit) = pidfd::exit_of_stranger(&pidfd) else { return None };
    exited.code = exit.code();
    exited.signal = exit.signal();
    exited.oom = container.oom_watch
        && exit.code() != 0
        && container.group.as_ref().is_some_and(|group| group.oom_kills() > 0);
    container.process.pidfd = pidfd;
    Some(*exited)
}
