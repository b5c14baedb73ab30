//! Creating and starting containers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use podwire_linux::cgroup::{self, Group};
use rustix::event::epoll::EventFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::clients::{Reply, ok, unzip};
use super::container::{Container, Phase, Process};
use super::hooks::{Point, Progress};
use super::log::Log;
use super::output::Output;
use super::poll::{Source, Stream, Whose, now};
use super::server::{Server, internal, refusal};
use crate::child::{self, MOST_SOURCES, Pipes, Terminal};
use crate::error::RefusalKind;
use crate::failure::{Failure, REPORT, Stage};
use crate::plan::LaunchPlan;
use crate::prepare::{Launch, PrepareError};
use crate::protocol::{CreateArg, ProcessReply, Refusal};
use crate::request::{StartedAt, WindowSize};

/// Both sides of everything between a child and us.
pub(super) struct Wiring {
    pub(super) status: (OwnedFd, OwnedFd),
    pub(super) start: (OwnedFd, OwnedFd),
    pub(super) console: Option<(OwnedFd, OwnedFd)>,
    pub(super) size: WindowSize,
    pub(super) stdin: (OwnedFd, Option<OwnedFd>),
    pub(super) stdout: Option<(OwnedFd, OwnedFd)>,
    pub(super) stderr: Option<(OwnedFd, OwnedFd)>,
    null: OwnedFd,
}

impl Wiring {
    /// `stdin` and `output` say which pipes there are; with a terminal there are none.
    pub(super) fn new(tty: Option<WindowSize>, stdin: bool, output: bool) -> io::Result<Wiring> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let null: OwnedFd = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into();
        let pipes = output && tty.is_none();
        let console = match tty {
            Some(_) => Some(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?),
            None => None,
        };
        let stdin = if stdin && tty.is_none() {
            let (read, write) = pipe()?;
            (read, Some(write))
        } else {
            (null.try_clone()?, None)
        };
        Ok(Wiring {
            status: pipe()?,
            start: pipe()?,
            console,
            size: tty.unwrap_or(WindowSize { width: 0, height: 0 }),
            stdin,
            stdout: if pipes { Some(pipe()?) } else { None },
            stderr: if pipes { Some(pipe()?) } else { None },
            null,
        })
    }

    /// Lets the child itself hold a reading end of its output, so that our death is no SIGPIPE.
    pub(super) fn make_output_lasting(&mut self) -> io::Result<()> {
        for (_, write) in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            let path = format!("/proc/self/fd/{}", write.as_raw_fd());
            *write = std::fs::OpenOptions::new().read(true).write(true).open(path)?.into();
        }
        Ok(())
    }

    /// The child's view, with `extra` descriptors it needs as well.
    pub(super) fn pipes(&self, extra: impl Iterator<Item = RawFd>) -> Pipes {
        let write_end = |ends: &Option<(OwnedFd, OwnedFd)>| {
            ends.as_ref().map_or(self.null.as_raw_fd(), |(_, write)| write.as_raw_fd())
        };
        let stdio = [self.stdin.0.as_raw_fd(), write_end(&self.stdout), write_end(&self.stderr)];
        let terminal =
            self.console.as_ref().map(|(_, theirs)| Terminal { socket: theirs.as_raw_fd(), size: self.size });
        let (status, start) = (self.status.1.as_raw_fd(), self.start.0.as_raw_fd());
        let mut keep: Vec<_> = stdio.iter().copied().chain([status, start]).chain(extra).collect();
        keep.extend(terminal.map(|t| t.socket));
        keep.sort_unstable();
        keep.dedup();
        Pipes { status, start, stdio, terminal, keep }
    }
}

/// Reads one report; `None` at the end of the pipe.
pub(super) fn read_report(status: &OwnedFd) -> io::Result<Option<Failure>> {
    let mut bytes = [0; REPORT];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(status, &mut bytes))?;
    if count == 0 {
        return Ok(None);
    }
    // Twelve bytes are far below PIPE_BUF, so they come together.
    Failure::parse(bytes).filter(|_| count == REPORT).map(Some).ok_or(io::ErrorKind::InvalidData.into())
}

/// Receives the master of a terminal, which the child sent before its report.
pub(super) fn receive_master(console: &OwnedFd) -> io::Result<OwnedFd> {
    let mut fds = std::collections::VecDeque::new();
    let mut byte = [0];
    crate::socket::receive(console, &mut byte, &mut fds)?;
    fds.pop_front().ok_or(io::ErrorKind::UnexpectedEof.into())
}

impl Server {
    pub(super) fn create(&mut self, reply: Reply, mut arg: CreateArg) -> Result<(), Refusal> {
        super::seal::guard()?;
        if self.containers.contains_key(&arg.id) {
            return Err(refusal(RefusalKind::Exists, format!("container {:?} exists", arg.id)));
        }
        if arg.plan.mounts.len() + arg.plan.masked.len() + 32 > MOST_SOURCES {
            return Err(refusal(
                RefusalKind::Setup,
                format!("{} mounts are too many", arg.plan.mounts.len()),
            ));
        }
        self.share_filter(&mut arg.plan);
        let log = open_log(arg.log_path.as_deref())?;
        let group = make_group(&arg.plan)?;
        match self.launch(reply, arg, group.clone(), log) {
            Ok(container) => {
                self.containers.insert(container.id.clone(), container);
                Ok(())
            }
            Err(refusal) => {
                if let Some(group) = group
                    && let Err(error) = group.try_remove()
                {
                    super::note(&format!("cgroup {:?} left behind: {error}", group.path()));
                }
                Err(refusal)
            }
        }
    }

    fn launch(
        &mut self,
        reply: Reply,
        arg: CreateArg,
        group: Option<Group>,
        log: Option<Log>,
    ) -> Result<Container, Refusal> {
        let mut wiring = Wiring::new(arg.tty, arg.stdin, true).map_err(|e| internal(&e))?;
        wiring.make_output_lasting().map_err(|e| internal(&e))?;
        let launch = Launch::new(&arg.plan, group.as_ref(), &self.staging).map_err(|e| match e {
            PrepareError::Namespace { .. } | PrepareError::User(_) => {
                Refusal { kind: RefusalKind::Setup, ..internal(&e) }
            }
            PrepareError::Text(_) => internal(&e),
        })?;
        let pipes = wiring.pipes(launch.descriptors());
        let into = into_cgroup(group.as_ref()).map_err(|e| internal(&e))?;
        // With a user namespace the other new ones are made from inside it, by a second child.
        // The first stays among our processes, so that the number it reports for the second is ours too.
        let (flags, pids) =
            if launch.user.is_some() { (0, None) } else { (launch.clone_flags, launch.join_pid.as_ref()) };
        let (pid, pidfd) = self
            .clone_into(pids, flags, into.as_ref(), || child::container(&launch, &pipes))
            .map_err(|e| refusal(RefusalKind::Setup, format!("clone the container's process: {e}")))?;
        let whose = Whose { container: arg.id.clone(), exec: None };
        let console = wiring.console.take();
        let process = self.watch(whose, pid, pidfd, &wiring.status.0, console).map_err(|e| internal(&e))?;
        self.begun(reply, arg, process, wiring, group, log)
    }

    /// A container whose process is at work on it.
    pub(super) fn begun(
        &mut self,
        reply: Reply,
        arg: CreateArg,
        process: Process,
        wiring: Wiring,
        group: Option<Group>,
        log: Option<Log>,
    ) -> Result<Container, Refusal> {
        let mut outputs = Vec::new();
        for (stream, ends) in [(Stream::Stdout, wiring.stdout), (Stream::Stderr, wiring.stderr)] {
            if let Some((read, _)) = ends {
                outputs.push(Output::new(&mut self.poll, &arg.id, stream, read).map_err(|e| internal(&e))?);
            }
        }
        Ok(Container {
            own_pids: arg.plan.clone_flags & u64::from(libc::CLONE_NEWPID.cast_unsigned()) != 0,
            id: arg.id,
            plan: arg.plan,
            process,
            phase: Phase::Creating(reply),
            group,
            started_at: None,
            oom_watch: arg.oom_watch,
            go: Some(wiring.start.1),
            stdin: wiring.stdin.1,
            outputs,
            log,
            sinks: std::collections::BTreeMap::new(),
            execs: std::collections::BTreeMap::new(),
            start_failed: false,
            adopted: false,
            waits_for_reaping: false,
            hooks: Progress::default(),
            oci_runtime: None,
            deleting: None,
        })
    }

    /// Clones, from within another pid namespace if need be.
    pub(super) fn clone_into(
        &self,
        pids: Option<&OwnedFd>,
        flags: u64,
        cgroup: Option<&OwnedFd>,
        body: impl FnOnce(),
    ) -> io::Result<(u32, OwnedFd)> {
        let enter = |fd: &dyn AsRawFd| {
            // SAFETY: plain numbers; only children made from now on are affected.
            let result = unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWPID) };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        if let Some(pids) = pids {
            enter(pids)?;
        }
        let cloned = child::clone_child(flags, cgroup.map(AsFd::as_fd), body);
        if pids.is_some() {
            enter(&self.own_pids)?;
        }
        cloned
    }

    /// Listens to a new process and its report pipe.
    pub(super) fn watch(
        &mut self,
        whose: Whose,
        pid: u32,
        pidfd: OwnedFd,
        status: &OwnedFd,
        console: Option<(OwnedFd, OwnedFd)>,
    ) -> io::Result<Process> {
        let status = status.try_clone()?;
        rustix::io::ioctl_fionbio(&status, true)?;
        let status_token = self.poll.add(&status, Source::Status(whose.clone()), EventFlags::IN)?;
        let pidfd_token = self.poll.add(&pidfd, Source::Process(whose), EventFlags::IN)?;
        Ok(Process {
            pid,
            pidfd,
            pidfd_token: Some(pidfd_token),
            status: Some((status, status_token)),
            console: console.map(|(ours, _)| ours),
            master: None,
        })
    }

    /// A container's child has said something.
    pub(super) fn container_reported(&mut self, id: &str) {
        loop {
            let Some(container) = self.containers.get_mut(id) else { return };
            let Some((status, token)) = &container.process.status else { return };
            let report = match read_report(status) {
                Ok(report) => report,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => None,
            };
            if report.is_none_or(|failure| !matches!(failure.stage, Stage::Ready | Stage::Child)) {
                self.poll.remove(status, *token);
                container.process.status = None;
            }
            match report {
                Some(failure) if failure.stage == Stage::Ready => self.container_ready(id),
                Some(failure) if failure.stage == Stage::Child => self.container_replaced(id, failure.index),
                Some(failure) => self.container_failed(id, failure),
                None => self.container_executed(id),
            }
        }
    }

    pub(super) fn container_ready(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Phase::Creating(reply) = container.phase else { return };
        if self.hook_creation(id) {
            return;
        }
        let Some(container) = self.containers.get_mut(id) else { return };
        if let Some(console) = container.process.console.take() {
            match receive_master(&console).and_then(|master| {
                let output = Output::new(&mut self.poll, id, Stream::Stdout, master.try_clone()?)?;
                container.outputs.push(output);
                Ok(master)
            }) {
                Ok(master) => container.process.master = Some(master),
                Err(error) => super::note(&format!("container {id}: its terminal did not arrive: {error}")),
            }
        }
        let pid = container.process.pid;
        let fds = container.second_holder();
        container.phase = match container.go.take() {
            Some(start) => Phase::Created(start),
            None => Phase::Running,
        };
        if container.plan.process.reaper {
            container.phase = Phase::Running;
            container.started_at = Some(now());
        }
        let (roles, fds) = unzip(fds);
        self.send(reply.client, &ok(reply.seq, &ProcessReply { pid, fds: roles }), fds);
        // While the caller already goes on: without this line a successor would only find a child
        // that waits for a word that never comes, and that ends by itself.
        if let Some(container) = self.containers.get(id) {
            self.journal.put(container);
        }
    }

    /// The first child has made a second one, which will be the container.
    fn container_replaced(&mut self, id: &str, pid: u32) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let whose = Whose { container: id.to_owned(), exec: None };
        if let Some(token) = container.process.pidfd_token.take() {
            self.poll.remove(&container.process.pidfd, token);
        }
        let opened = podwire_linux::pidfd::open(pid).and_then(|pidfd| {
            let token = self.poll.add(&pidfd, Source::Process(whose), EventFlags::IN)?;
            Ok((pidfd, token))
        });
        match opened {
            Ok((pidfd, token)) => {
                container.process.pid = pid;
                container.process.pidfd = pidfd;
                container.process.pidfd_token = Some(token);
            }
            Err(error) => super::note(&format!("container {id}: its process {pid} not opened: {error}")),
        }
    }

    fn container_failed(&mut self, id: &str, failure: Failure) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let refusal = failure.of_container(&container.plan);
        match container.phase {
            Phase::Creating(reply) => self.abandon(id, reply, refusal),
            Phase::Starting(reply) => {
                container.start_failed = true;
                container.phase = Phase::Running;
                self.refuse(reply, refusal);
            }
            _ => super::note(&format!("container {id}: {}", refusal.message)),
        }
    }

    /// The report pipe is closed: execve happened, or the child died.
    fn container_executed(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        match container.phase {
            Phase::Starting(reply) => {
                let at = now();
                container.phase = Phase::Running;
                container.started_at = Some(at);
                self.journal.started(id, at);
                self.answer(reply, &StartedAt { at });
                self.next_hook(id, Point::PostStart, 0);
            }
            Phase::Creating(reply) => {
                let died = refusal(RefusalKind::Setup, "the container's process died while it was set up");
                self.abandon(id, reply, died);
            }
            _ => {}
        }
    }

    pub(super) fn start(&mut self, reply: Reply, id: &str) -> Result<(), Refusal> {
        let container = self.container(id)?;
        if container.oci_runtime.is_some() && matches!(container.phase, Phase::Created(_)) {
            return self.start_by_oci_runtime(reply, id);
        }
        if matches!(container.phase, Phase::Created(_))
            && !container.plan.hooks.start_container.is_empty()
            && !container.hooks.may_start
        {
            container.hooks.started = Some(reply);
            self.next_hook(id, Point::StartContainer, 0);
            return Ok(());
        }
        match std::mem::replace(&mut container.phase, Phase::Running) {
            Phase::Created(start) => {
                container.phase = Phase::Starting(reply);
                rustix::io::write(&start, b".").map_err(|e| internal(&io::Error::from(e)))?;
                Ok(())
            }
            other => {
                container.phase = other;
                let state = container.state().status;
                Err(refusal(
                    RefusalKind::WrongState,
                    format!("container {id:?} is not created but {state:?}"),
                ))
            }
        }
    }

    /// Containers with the same filter share one copy of it.
    fn share_filter(&mut self, plan: &mut LaunchPlan) {
        let Some(filter) = &mut plan.process.seccomp else { return };
        self.filters.retain(|known| known.strong_count() > 0);
        let known =
            self.filters.iter().filter_map(std::sync::Weak::upgrade).find(|known| *known == filter.program);
        match known {
            Some(known) => filter.program = known,
            None => self.filters.push(Arc::downgrade(&filter.program)),
        }
    }
}

/// A child is born in its cgroup of the cgroup2 hierarchy, if the machine has one.
pub(super) fn into_cgroup(group: Option<&Group>) -> io::Result<Option<OwnedFd>> {
    match group.and_then(Group::unified) {
        Some(folder) => Ok(Some(std::fs::File::open(folder)?.into())),
        None => Ok(None),
    }
}

/// Opens the file that takes a container's output.
pub(super) fn open_log(path: Option<&str>) -> Result<Option<Log>, Refusal> {
    let Some(path) = path else { return Ok(None) };
    let setup = |e| refusal(RefusalKind::Setup, format!("open the log file {path:?}: {e}"));
    Log::open(path.into()).map(Some).map_err(setup)
}

fn make_group(plan: &LaunchPlan) -> Result<Option<Group>, Refusal> {
    let Some(wanted) = &plan.cgroup else { return Ok(None) };
    let setup = |e: cgroup::Error| Refusal { kind: RefusalKind::Setup, ..internal(&e) };
    let group = cgroup::group(&wanted.path).map_err(setup)?;
    let made = group.create().and_then(|()| group.apply(&wanted.resources));
    if let Err(error) = made {
        if let Err(error) = group.try_remove() {
            super::note(&format!("cgroup {:?} left behind: {error}", group.path()));
        }
        return Err(setup(error));
    }
    Ok(Some(group))
}
