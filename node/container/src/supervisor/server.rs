//! The loop: one event after the other, nothing that waits.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SupervisorArgs;
use super::clients::{Client, Reply, ok, refused, unzip};
use super::container::{Container, Phase};
use super::helper::Helper;
use super::journal::Journal;
use super::note;
use super::poll::{Poll, Source, Token, Whose};
use crate::error::RefusalKind;
use crate::protocol::{
    AttachArg, FdRole, FdsReply, IdArg, Outgoing, RawRequest, Refusal, ResizeArg, SignalArg,
};
use crate::request::{ContainerState, Event};

/// All state of the supervisor.
pub(super) struct Server {
    pub(super) poll: Poll,
    pub(super) args: SupervisorArgs,
    pub(super) listener: UnixListener,
    ear: Token,
    /// Set while nobody can be let in, as there are no descriptors left.
    deaf_until: Option<Instant>,
    /// Held for as long as we live.
    pub(super) lock: OwnedFd,
    /// Our own pid namespace, to come back to after cloning into another.
    pub(super) own_pids: File,
    pub(super) staging: PathBuf,
    clients: HashMap<u64, Client>,
    next_client: u64,
    pub(super) next_sink: u64,
    pub(super) containers: BTreeMap<String, Container>,
    pub(super) journal: Journal,
    /// Seccomp programs in use; containers share them.
    pub(super) filters: Vec<std::sync::Weak<[u64]>>,
    /// Programs at work beside the containers.
    pub(super) helpers: BTreeMap<u64, Helper>,
    pub(super) next_helper: u64,
    /// Orphans are left from the last round.
    orphans_wait: bool,
    ending: bool,
}

/// How soon a group that was busy is tried again.
const RETRY: Duration = Duration::from_millis(2);
/// How long nobody is let in after there was no descriptor for one.
const DEAF: Duration = Duration::from_millis(500);
/// Connections let in before everything else gets its turn.
const MOST_AT_ONCE: usize = 16;
/// Orphans reaped before everything else gets its turn: a pod can make them without pause.
const MOST_ORPHANS: usize = 256;

pub(super) fn refusal(kind: RefusalKind, message: impl Into<String>) -> Refusal {
    Refusal { kind, message: message.into() }
}

/// A refusal that carries a whole chain of causes.
pub(super) fn internal(error: &dyn std::error::Error) -> Refusal {
    refusal(RefusalKind::Internal, podwire_trace::chain(error))
}

pub(super) fn not_found(id: &str) -> Refusal {
    refusal(RefusalKind::NotFound, format!("no container {id:?}"))
}

impl Server {
    pub(super) fn new(
        args: &SupervisorArgs,
        listener: UnixListener,
        lock: OwnedFd,
        staging: PathBuf,
        from_journal: bool,
    ) -> io::Result<Server> {
        let mut poll = Poll::new()?;
        let ear = poll.add(&listener, Source::Listener, EventFlags::IN)?;
        let (journal, records) = Journal::open(&args.state_dir)?;
        let mut server = Server {
            poll,
            listener,
            ear,
            deaf_until: None,
            args: args.clone(),
            lock,
            own_pids: File::open("/proc/self/ns/pid")?,
            staging,
            clients: HashMap::new(),
            next_client: 0,
            next_sink: 0,
            containers: BTreeMap::new(),
            journal,
            filters: Vec::new(),
            helpers: BTreeMap::new(),
            next_helper: 0,
            orphans_wait: false,
            ending: false,
        };
        if from_journal {
            server.restore(records)?;
        }
        Ok(server)
    }

    pub(super) fn run(&mut self) -> io::Result<()> {
        while !self.ending {
            let patience = self.patience();
            let events = self.poll.wait(patience)?;
            let waited = events.is_empty();
            for (token, source, flags) in events {
                if self.poll.has(token) {
                    self.event(source, flags);
                }
            }
            self.orphans_wait = self.reap_orphans();
            if waited || self.has_deletions() {
                self.continue_deletions();
            }
        }
        note("ending: told to, and no containers left");
        Ok(())
    }

    /// How long to wait for the next event: until something else is due.
    fn patience(&mut self) -> Option<Duration> {
        let orphans = self.orphans_wait.then_some(Duration::ZERO);
        let deletions = self.has_deletions().then_some(RETRY);
        let dues =
            [orphans, deletions, self.hurry_helpers(), self.journal.mend(&self.containers), self.listen()];
        dues.into_iter().flatten().min()
    }

    /// Lets connections in again, if it is time. Says when to try again.
    fn listen(&mut self) -> Option<Duration> {
        let wait = self.deaf_until?.saturating_duration_since(Instant::now());
        if wait.is_zero() && self.poll.change(&self.listener, self.ear, EventFlags::IN).is_ok() {
            self.deaf_until = None;
            return None;
        }
        Some(wait.max(RETRY))
    }

    fn event(&mut self, source: Source, flags: EventFlags) {
        match source {
            Source::Listener => self.accept(),
            Source::Helper(number) => self.helper_event(number),
            Source::Client(id) => self.client_event(id, flags),
            Source::Process(whose) => self.process_event(&whose),
            Source::Status(whose) => self.status_event(&whose),
            Source::Output(id, stream) => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.pump(stream, &mut self.poll);
                }
            }
            Source::Sink(id, number) => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.sink_event(number, flags, &mut self.poll);
                }
            }
        }
    }

    fn process_event(&mut self, whose: &Whose) {
        // What the child said before it ended comes first.
        self.status_event(whose);
        match &whose.exec {
            None => self.container_ended(&whose.container),
            Some(exec) => self.exec_ended(&whose.container, exec),
        }
    }

    fn status_event(&mut self, whose: &Whose) {
        match &whose.exec {
            None => self.container_reported(&whose.container),
            Some(exec) => self.exec_reported(&whose.container, exec),
        }
    }

    /// Processes of containers whose parents have died are ours to reap; true when more may wait.
    fn reap_orphans(&mut self) -> bool {
        for _ in 0..MOST_ORPHANS {
            let Some(pid) = child_that_ended() else { return false };
            if self.is_ours(pid.cast_unsigned()) || self.expects_children() {
                // It has a pidfd of its own, whose event will come.
                return false;
            }
            // SAFETY: reaps one child by number, which stays ours until reaped; nobody asked for
            // this one's exit code.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        }
        true
    }

    /// An OCI runtime is about to leave us a process whose number we do not know yet.
    fn expects_children(&self) -> bool {
        self.containers.values().any(|c| {
            (c.oci_runtime.is_some() && matches!(c.phase, Phase::Creating(_)))
                || c.execs.values().any(|e| e.oci_runtime.is_some())
        })
    }

    fn is_ours(&self, pid: u32) -> bool {
        self.helpers.values().any(|helper| helper.pid == pid)
            || self.containers.values().any(|c| {
                (c.process.pid == pid && !c.has_exited())
                    || c.execs.values().any(|e| e.process.pid == pid && e.exit_code.is_none())
            })
    }

    fn accept(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.be_deaf(&error),
            };
            let id = self.next_client;
            self.next_client += 1;
            let added = stream
                .set_nonblocking(true)
                .and_then(|()| self.poll.add(&stream, Source::Client(id), EventFlags::IN | EventFlags::OUT));
            match added {
                Ok(token) => {
                    self.clients.insert(id, Client::new(stream, token));
                    self.flush(id);
                }
                Err(error) => note(&format!("connection not accepted: {error}")),
            }
        }
    }

    /// Without descriptors the one who knocks would wake us again and again.
    fn be_deaf(&mut self, error: &io::Error) {
        note(&format!("connection not accepted: {error}; it waits"));
        if self.poll.change(&self.listener, self.ear, EventFlags::empty()).is_ok() {
            self.deaf_until = Some(Instant::now() + DEAF);
        }
    }

    fn client_event(&mut self, id: u64, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.flush(id);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.requests() {
            Ok(requests) => {
                for (request, fds) in requests {
                    self.request(id, &request, fds);
                }
            }
            Err(reason) => self.hang_up(id, &reason),
        }
    }

    fn flush(&mut self, id: u64) {
        if let Some(client) = self.clients.get_mut(&id)
            && let Err(reason) = client.flush(&mut self.poll)
        {
            self.hang_up(id, &reason);
        }
    }

    fn hang_up(&mut self, id: u64, reason: &str) {
        if let Some(client) = self.clients.remove(&id) {
            let (stream, token) = client.stream();
            self.poll.remove(stream.as_fd(), token);
            if reason != "closed" {
                note(&format!("connection ended: {reason}"));
            }
        }
    }

    pub(super) fn send(&mut self, client: u64, outgoing: &Outgoing, fds: Vec<OwnedFd>) {
        if let Some(connection) = self.clients.get_mut(&client)
            && let Err(reason) = connection.queue(outgoing, fds, &mut self.poll)
        {
            self.hang_up(client, &reason);
        }
    }

    pub(super) fn answer<T: Serialize>(&mut self, reply: Reply, value: &T) {
        self.send(reply.client, &ok(reply.seq, value), Vec::new());
    }

    pub(super) fn refuse(&mut self, reply: Reply, refusal: Refusal) {
        self.send(reply.client, &refused(reply.seq, refusal), Vec::new());
    }

    /// Tells everybody; false when nobody is connected.
    pub(super) fn announce(&mut self, event: &Event) -> bool {
        let outgoing = Outgoing::event(event);
        let clients: Vec<_> = self.clients.keys().copied().collect();
        for client in &clients {
            self.send(*client, &outgoing, Vec::new());
        }
        !clients.is_empty()
    }

    fn request(&mut self, client: u64, request: &RawRequest, fds: Vec<OwnedFd>) {
        let reply = Reply { client, seq: request.seq };
        if let Err(refusal) = self.carry_out(reply, request, fds) {
            self.refuse(reply, refusal);
        }
    }

    /// Does what is asked and answers, now or later. A refusal is answered by the caller.
    fn carry_out(&mut self, reply: Reply, request: &RawRequest, fds: Vec<OwnedFd>) -> Result<(), Refusal> {
        if matches!(request.op.as_str(), "create" | "create-foreign" | "start")
            && let Some(failure) = self.journal.failure(&self.containers)
        {
            return Err(refusal(RefusalKind::Internal, failure));
        }
        match request.op.as_str() {
            "list" => {
                let list: Vec<ContainerState> = self.containers.values().map(Container::state).collect();
                self.answer(reply, &list);
                self.forget_finished_execs();
                Ok(())
            }
            "peek" => {
                let list: Vec<ContainerState> = self.containers.values().map(Container::state).collect();
                self.answer(reply, &list);
                Ok(())
            }
            "create" => self.create(reply, decode(request)?),
            "create-foreign" => self.create_by_oci_runtime(reply, decode(request)?),
            "start" => self.start(reply, &decode::<IdArg>(request)?.id),
            "delete" => self.delete(reply, &decode::<IdArg>(request)?.id),
            "exec" => self.exec(reply, decode(request)?),
            "signal" => self.signal(reply, &decode(request)?),
            "attach" => self.attach(reply, &decode(request)?),
            "resize" => {
                self.resize(&decode(request)?)?;
                self.answer(reply, &());
                Ok(())
            }
            "close-stdin" => {
                self.container(&decode::<IdArg>(request)?.id)?.stdin = None;
                self.answer(reply, &());
                Ok(())
            }
            "reopen-log" => {
                let container = self.container(&decode::<IdArg>(request)?.id)?;
                if let Some(log) = &mut container.log {
                    log.reopen().map_err(|e| internal(&e))?;
                }
                self.answer(reply, &());
                Ok(())
            }
            "hold" => self.hold(reply, &decode::<IdArg>(request)?.id),
            "adopt" => self.adopt(reply, &decode(request)?, fds),
            "upgrade" => self.upgrade(&decode(request)?),
            "shutdown" => {
                if !self.containers.is_empty() {
                    let message = format!("{} containers are left", self.containers.len());
                    return Err(refusal(RefusalKind::WrongState, message));
                }
                self.answer(reply, &());
                self.ending = true;
                Ok(())
            }
            other => Err(refusal(RefusalKind::Unsupported, format!("no operation {other:?}"))),
        }
    }

    pub(super) fn container(&mut self, id: &str) -> Result<&mut Container, Refusal> {
        self.containers.get_mut(id).ok_or_else(|| not_found(id))
    }

    fn signal(&mut self, reply: Reply, arg: &SignalArg) -> Result<(), Refusal> {
        let container = self.container(&arg.id)?;
        let whole = arg.exec.is_none() && !arg.all;
        if whole && container.oci_runtime.is_some() && matches!(container.phase, Phase::Running) {
            return self.signal_by_oci_runtime(reply, &arg.id, arg.signal);
        }
        self.send_signal(arg)?;
        self.answer(reply, &());
        Ok(())
    }

    fn send_signal(&mut self, arg: &SignalArg) -> Result<(), Refusal> {
        let container = self.container(&arg.id)?;
        if let Some(exec_id) = &arg.exec {
            let message = || refusal(RefusalKind::NotFound, format!("no exec {exec_id:?} in {:?}", arg.id));
            let exec = container.execs.get(exec_id).ok_or_else(message)?;
            return exec.process.signal(arg.signal).map_err(|e| internal(&e));
        }
        if arg.all
            && let Some(group) = &container.group
        {
            return group.signal(arg.signal).map_err(|e| internal(&e));
        }
        match container.phase {
            Phase::Exited(_) => {
                Err(refusal(RefusalKind::WrongState, format!("container {:?} has exited", arg.id)))
            }
            // Not even started: nothing there would understand anything milder.
            Phase::Creating(_) | Phase::Created(_) if arg.signal == libc::SIGTERM => {
                container.process.signal(libc::SIGKILL).map_err(|e| internal(&e))
            }
            _ => container.process.signal(arg.signal).map_err(|e| internal(&e)),
        }
    }

    fn attach(&mut self, reply: Reply, arg: &AttachArg) -> Result<(), Refusal> {
        let Some(container) = self.containers.get_mut(&arg.id) else { return Err(not_found(&arg.id)) };
        let fds =
            container.attach(arg.streams, &mut self.poll, &mut self.next_sink).map_err(|e| internal(&e))?;
        self.answer_with(reply, fds);
        Ok(())
    }

    fn answer_with(&mut self, reply: Reply, fds: Vec<(FdRole, OwnedFd)>) {
        let (roles, fds) = unzip(fds);
        self.send(reply.client, &ok(reply.seq, &FdsReply { fds: roles }), fds);
    }

    fn resize(&mut self, arg: &ResizeArg) -> Result<(), Refusal> {
        let container = self.container(&arg.id)?;
        let master = match &arg.exec {
            None => container.process.master.as_ref(),
            Some(exec) => container.execs.get(exec).and_then(|e| e.process.master.as_ref()),
        };
        let Some(master) = master else {
            return Err(refusal(RefusalKind::WrongState, "it has no terminal"));
        };
        let size = rustix::termios::Winsize {
            ws_row: arg.size.height,
            ws_col: arg.size.width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(master, size).map_err(|e| internal(&io::Error::from(e)))
    }

    fn forget_finished_execs(&mut self) {
        for container in self.containers.values_mut() {
            container.execs.retain(|_, exec| exec.exit_code.is_none());
        }
    }
}

/// Some child that has ended and is not yet reaped.
fn child_that_ended() -> Option<i32> {
    // SAFETY: all zeros is a valid value of this plain struct, and the kernel fills it.
    let info = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut info, look) != 0 {
            return None;
        }
        info
    };
    // SAFETY: waitid fills this part of the union.
    let pid = unsafe { info.si_pid() };
    (pid > 0).then_some(pid)
}

fn decode<T: DeserializeOwned>(request: &RawRequest) -> Result<T, Refusal> {
    let text = request.arg.as_ref().map_or("null", |raw| raw.get());
    serde_json::from_str(text).map_err(|e| {
        refusal(RefusalKind::Internal, format!("argument of {} not understood: {e}", request.op))
    })
}
