//! The daemon's handle on the supervisor.
//!
//! One thread (`supervisor-read`) reads answers and events; calls may come from any thread and
//! block until their own answer is there. Events are delivered on the reading thread in the order
//! they were sent, so the callback must be quick and must not call back into the handle. No call
//! waits without limit: a supervisor that does not answer costs its callers an error, not a thread.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use oci_spec::runtime::Spec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::plan;
use crate::protocol::{
    AdoptArg, AttachArg, CreateArg, ExecArg, FdRole, FdsReply, HELLO, IdArg, Outgoing, ProcessReply, Request,
    ResizeArg, SignalArg, UpgradeArg, frame, hello, parse_hello,
};
use crate::request::{
    AttachHandle, AttachRequest, ContainerState, CreateRequest, Created, Event, ExecHandle, ExecRequest,
    OciRuntimeRequest, StartedAt, SupervisorConfig, WindowSize,
};
use crate::socket::{Frames, send_all};
use crate::spare_fds::{self, SpareFds};
use crate::spawn;
use crate::supervisor::OciRuntimePlan;

/// Receives events; called on the reading thread.
pub(crate) type OnEvent = Arc<dyn Fn(Event) + Send + Sync>;

type Answer = (Outgoing, Vec<OwnedFd>);

/// How long to wait for the supervisor.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For its greeting.
    greeting: Duration,
    /// For what it answers at once, or once an OCI runtime has delivered a signal.
    quick: Duration,
    /// For what waits for hooks, OCI runtimes and the kernel, each of which has its own limit.
    slow: Duration,
}

const PATIENCE: Patience = Patience {
    greeting: Duration::from_secs(30),
    quick: Duration::from_secs(150),
    slow: Duration::from_secs(15 * 60),
};

impl Patience {
    fn with(self, operation: &str) -> Duration {
        match operation {
            "create" | "create-foreign" | "start" | "delete" | "exec" => self.slow,
            _ => self.quick,
        }
    }
}

/// A connection to the supervisor. Clones share it; the last one to be dropped closes it.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("socket", &self.shared.path).finish_non_exhaustive()
    }
}

struct Shared {
    path: PathBuf,
    stream: UnixStream,
    writing: Mutex<()>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    filters: crate::seccomp::Cache,
    spare_fds: Arc<SpareFds>,
    patience: Patience,
}

#[derive(Default)]
struct Waiting {
    closed: bool,
    calls: HashMap<u64, SyncSender<Answer>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Ignored: the reader ends either way.
        self.stream.shutdown(std::net::Shutdown::Both).ok();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Supervisor {
    /// Connects to the living supervisor, or starts one and connects.
    pub fn connect_or_spawn(cfg: &SupervisorConfig, on_event: OnEvent) -> Result<Supervisor, Error> {
        let stream = spawn::connect_or_spawn(cfg)?;
        Self::over(cfg.socket.clone(), stream, on_event, PATIENCE)
    }

    /// Connects to a living supervisor only.
    pub fn connect(cfg: &SupervisorConfig, on_event: OnEvent) -> Result<Supervisor, Error> {
        let stream = UnixStream::connect(&cfg.socket)
            .map_err(|source| Error::Socket { socket: cfg.socket.clone(), source })?;
        Self::over(cfg.socket.clone(), stream, on_event, PATIENCE)
    }

    fn over(
        path: PathBuf,
        stream: UnixStream,
        on_event: OnEvent,
        patience: Patience,
    ) -> Result<Supervisor, Error> {
        let socket = |source| Error::Socket { socket: path.clone(), source };
        stream.set_write_timeout(Some(patience.quick)).map_err(socket)?;
        stream.set_read_timeout(Some(patience.greeting)).map_err(socket)?;
        send_all(&stream, &hello(), &[]).map_err(socket)?;
        let mut frames = Frames::default();
        let greeting = loop {
            if let Some(greeting) = frames.take::<HELLO>() {
                break greeting;
            }
            if !frames.fill(&stream).map_err(socket)? {
                return Err(Error::Handshake { socket: path, reason: "it hung up".to_owned() });
            }
        };
        parse_hello(greeting).map_err(|reason| Error::Handshake { socket: path.clone(), reason })?;
        stream.set_read_timeout(None).map_err(socket)?;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let reader = stream.try_clone().map_err(socket)?;
        let for_reader = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("supervisor-read".to_owned())
            .spawn(move || read(&reader, frames, &for_reader, &on_event))
            .map_err(socket)?;
        let spare_fds = spare_fds::of(&path);
        let supervisor = Supervisor {
            shared: Arc::new(Shared {
                path,
                stream,
                writing: Mutex::new(()),
                waiting,
                next: AtomicU64::new(1),
                filters: crate::seccomp::Cache::default(),
                spare_fds,
                patience,
            }),
        };
        supervisor.share_descriptors()?;
        Ok(supervisor)
    }

    /// False once the connection has ended: whatever is asked from then on fails.
    pub fn is_connected(&self) -> bool {
        !lock(&self.shared.waiting).closed
    }

    /// Gives a new supervisor what we held through the old one's death, and holds what it has.
    fn share_descriptors(&self) -> Result<(), Error> {
        for (id, fds) in self.shared.spare_fds.copies() {
            let (roles, fds): (Vec<_>, Vec<_>) = fds.into_iter().unzip();
            let arg = AdoptArg { id, fds: roles };
            match self.call_with::<_, Option<()>>("adopt", &arg, &fds) {
                Ok(_) => {}
                Err(error) if error.is_not_found() => self.shared.spare_fds.forget(&arg.id),
                Err(error) if error.is_unsupported() => {}
                Err(error) => return Err(error),
            }
        }
        for container in self.list_states()? {
            if self.shared.spare_fds.has(&container.id) {
                continue;
            }
            match self.call::<_, FdsReply>("hold", &IdArg { id: container.id.clone() }) {
                Ok((reply, fds)) => {
                    self.shared.spare_fds.put(&container.id, reply.fds.into_iter().zip(fds).collect())
                }
                Err(error) if error.is_not_found() || error.is_unsupported() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Every container the supervisor has, dead or alive, until it is deleted.
    pub fn list(&self) -> Result<Vec<ContainerState>, Error> {
        Ok(self.call("list", &())?.0)
    }

    /// One container the supervisor has, dead or alive.
    pub fn find(&self, id: &str) -> Result<Option<ContainerState>, Error> {
        Ok(self.list_states()?.into_iter().find(|known| known.id == id))
    }

    /// As [`Supervisor::list`], without taking note of execs that have ended.
    fn list_states(&self) -> Result<Vec<ContainerState>, Error> {
        match self.call("peek", &()) {
            Ok((states, _)) => Ok(states),
            Err(error) if error.is_unsupported() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Sets a container up to the point where only execve is missing.
    pub fn create(&self, req: CreateRequest) -> Result<Created, Error> {
        let spec_error = |reason: String| Error::Spec { id: req.id.clone(), reason };
        let mut launch = plan::launch(&req.spec, &req.rootfs).map_err(|e| spec_error(e.to_string()))?;
        launch.process.seccomp = self.filter(&req.spec).map_err(|e| spec_error(e.to_string()))?;
        launch.bundle = match &req.bundle {
            None => None,
            Some(path) => {
                Some(path.to_str().ok_or_else(|| spec_error(format!("{path:?} is not UTF-8")))?.to_owned())
            }
        };
        let tty = req.tty.then(|| plan::console_size(&req.spec));
        let log_path = match &req.log_path {
            None => None,
            Some(path) => Some(
                path.to_str()
                    .ok_or_else(|| spec_error(format!("log path {path:?} is not UTF-8")))?
                    .to_owned(),
            ),
        };
        let arg = CreateArg {
            id: req.id,
            plan: launch,
            log_path,
            tty,
            stdin: req.stdin,
            stdin_once: req.stdin_once,
            oom_watch: req.oom_watch,
            oci_runtime: None,
        };
        self.created("create", arg)
    }

    /// Makes a container that only reaps: process 1 of a pod whose containers share their processes.
    ///
    /// It runs at once and needs no `start`.
    pub fn create_reaper(&self, req: plan::ReaperRequest) -> Result<Created, Error> {
        let arg = CreateArg {
            plan: plan::reaper(&req),
            id: req.id,
            log_path: None,
            tty: None,
            stdin: false,
            stdin_once: false,
            oom_watch: false,
            oci_runtime: None,
        };
        self.created("create", arg)
    }

    /// Lets an OCI runtime set a container up to the point where only its own `start` is missing.
    pub fn create_by_oci_runtime(&self, req: OciRuntimeRequest) -> Result<Created, Error> {
        let spec_error = |reason: String| Error::Spec { id: req.id.clone(), reason };
        let text = |path: &std::path::Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| spec_error(format!("{path:?} is not UTF-8")))
        };
        let arg = CreateArg {
            plan: plan::for_oci_runtime(&req.spec).map_err(|e| spec_error(e.to_string()))?,
            log_path: req.log_path.as_deref().map(text).transpose()?,
            tty: req.tty.then(|| plan::console_size(&req.spec)),
            stdin: req.stdin,
            stdin_once: req.stdin_once,
            oom_watch: true,
            oci_runtime: Some(OciRuntimePlan {
                runtime: text(&req.runtime)?,
                root: text(&req.root)?,
                bundle: text(&req.bundle)?,
            }),
            id: req.id.clone(),
        };
        self.created("create-foreign", arg)
    }

    fn created(&self, operation: &'static str, arg: CreateArg) -> Result<Created, Error> {
        let (reply, fds): (ProcessReply, _) = self.call(operation, &arg)?;
        self.shared.spare_fds.put(&arg.id, reply.fds.into_iter().zip(fds).collect());
        Ok(Created { pid: reply.pid })
    }

    /// Lets a created container execute its program. The error says why it could not.
    pub fn start(&self, id: &str) -> Result<StartedAt, Error> {
        Ok(self.call("start", &IdArg { id: id.to_owned() })?.0)
    }

    /// Signals a container's init, or with `all` every process in it.
    pub fn signal(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        let arg = SignalArg { id: id.to_owned(), signal, all, exec: None };
        self.call::<_, Option<()>>("signal", &arg)?;
        Ok(())
    }

    /// Signals an exec's process.
    pub fn signal_exec(&self, id: &str, exec_id: &str, signal: i32) -> Result<(), Error> {
        let arg = SignalArg { id: id.to_owned(), signal, all: false, exec: Some(exec_id.to_owned()) };
        self.call::<_, Option<()>>("signal", &arg)?;
        Ok(())
    }

    /// Kills what is left of a container, removes its cgroup and forgets it. A container that is
    /// not known is already deleted.
    pub fn delete(&self, id: &str) -> Result<(), Error> {
        match self.call::<_, Option<()>>("delete", &IdArg { id: id.to_owned() }) {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        self.shared.spare_fds.forget(id);
        Ok(())
    }

    /// Runs one more program in a container. Returns once it has been executed.
    pub fn exec(&self, req: ExecRequest) -> Result<ExecHandle, Error> {
        let cwd = match &req.cwd {
            None => None,
            Some(cwd) => Some(
                cwd.to_str()
                    .ok_or_else(|| Error::Spec {
                        id: req.container.clone(),
                        reason: format!("working folder {cwd:?} is not UTF-8"),
                    })?
                    .to_owned(),
            ),
        };
        let arg = ExecArg {
            id: req.container,
            exec_id: req.exec_id,
            argv: req.argv,
            env: req.env,
            cwd,
            user: req.user,
            caps: req.caps.as_ref().map(plan::capabilities),
            tty: req.tty,
            stdin: req.stdin,
            process: req.process,
        };
        let (reply, fds): (ProcessReply, _) = self.call("exec", &arg)?;
        let ends = Ends::sort(&reply.fds, fds);
        Ok(ExecHandle { pid: reply.pid, stdin: ends.stdin, stdout: ends.stdout, stderr: ends.stderr })
    }

    /// Copies of a running container's streams from now on.
    pub fn attach(&self, id: &str, streams: AttachRequest) -> Result<AttachHandle, Error> {
        let (reply, fds): (FdsReply, _) = self.call("attach", &AttachArg { id: id.to_owned(), streams })?;
        let ends = Ends::sort(&reply.fds, fds);
        Ok(AttachHandle { stdin: ends.stdin, stdout: ends.stdout, stderr: ends.stderr })
    }

    /// Tells the terminal of a container, or of one of its execs, its new size.
    pub fn resize(&self, id: &str, exec: Option<&str>, width: u16, height: u16) -> Result<(), Error> {
        let size = WindowSize { width, height };
        let arg = ResizeArg { id: id.to_owned(), exec: exec.map(str::to_owned), size };
        self.call::<_, Option<()>>("resize", &arg)?;
        Ok(())
    }

    /// Closes the supervisor's write end of a container's stdin.
    pub fn close_stdin(&self, id: &str) -> Result<(), Error> {
        self.call::<_, Option<()>>("close-stdin", &IdArg { id: id.to_owned() })?;
        Ok(())
    }

    /// Opens the log file again, after it was rotated away.
    pub fn reopen_log(&self, id: &str) -> Result<(), Error> {
        self.call::<_, Option<()>>("reopen-log", &IdArg { id: id.to_owned() })?;
        Ok(())
    }

    /// Lets the supervisor become the program of `cfg`, with all its containers. The connection
    /// ends with that ([`Event::Disconnected`]): connect again.
    pub fn upgrade(&self, cfg: &SupervisorConfig) -> Result<(), Error> {
        let text = |word: &std::ffi::OsStr| {
            let refused =
                || Error::Spawn { exe: cfg.exe.clone(), source: std::io::ErrorKind::InvalidInput.into() };
            word.to_str().map(str::to_owned).ok_or_else(refused)
        };
        let args = cfg.exe_args.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        let arg = UpgradeArg { exe: text(cfg.exe.as_os_str())?, args };
        match self.call::<_, Option<()>>("upgrade", &arg) {
            // The old program is gone without a word, as it should.
            Ok(_) | Err(Error::Disconnected { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the supervisor when it has no containers left; refused otherwise.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.call::<_, Option<()>>("shutdown", &())?;
        Ok(())
    }

    fn filter(&self, spec: &Spec) -> Result<Option<plan::FilterPlan>, crate::seccomp::CompileError> {
        let profile = spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
        profile.map(|profile| self.shared.filters.compile(profile)).transpose()
    }

    fn call<A: Serialize, R: DeserializeOwned>(
        &self,
        operation: &'static str,
        arg: &A,
    ) -> Result<(R, Vec<OwnedFd>), Error> {
        self.call_with(operation, arg, &[])
    }

    fn call_with<A: Serialize, R: DeserializeOwned>(
        &self,
        operation: &'static str,
        arg: &A,
        fds: &[OwnedFd],
    ) -> Result<(R, Vec<OwnedFd>), Error> {
        let seq = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let body = serde_json::to_vec(&Request { seq, op: operation, arg })
            .map_err(|source| Error::Decode { operation, source })?;
        let (answer, answered) = sync_channel(1);
        {
            let mut waiting = lock(&self.shared.waiting);
            if waiting.closed {
                return Err(Error::Disconnected { operation });
            }
            waiting.calls.insert(seq, answer);
        }
        let sent = {
            let _turn = lock(&self.shared.writing);
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            send_all(&self.shared.stream, &frame(&body, fds.len()), &fds)
        };
        if let Err(source) = sent {
            lock(&self.shared.waiting).calls.remove(&seq);
            // Half a frame may be out: nothing that follows would be understood. Ignored: the reader ends either way.
            self.shared.stream.shutdown(std::net::Shutdown::Both).ok();
            return Err(Error::Socket { socket: self.shared.path.clone(), source });
        }
        let patience = self.shared.patience.with(operation);
        let (answer, fds) = answered.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Disconnected => Error::Disconnected { operation },
            RecvTimeoutError::Timeout => {
                lock(&self.shared.waiting).calls.remove(&seq);
                Error::Silent { operation, seconds: patience.as_secs() }
            }
        })?;
        if let Some(refusal) = answer.error {
            return Err(Error::Refused { kind: refusal.kind, message: refusal.message });
        }
        let text = answer.ok.as_ref().map_or("null", |raw| raw.get());
        let value = serde_json::from_str(text).map_err(|source| Error::Decode { operation, source })?;
        Ok((value, fds))
    }
}

/// Descriptors of an answer by role.
#[derive(Default)]
struct Ends {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Ends {
    fn sort(roles: &[FdRole], fds: Vec<OwnedFd>) -> Ends {
        let mut ends = Ends::default();
        for (role, fd) in roles.iter().zip(fds) {
            match role {
                FdRole::Stdin => ends.stdin = Some(fd),
                FdRole::Stdout => ends.stdout = Some(fd),
                FdRole::Stderr => ends.stderr = Some(fd),
                FdRole::Pidfd | FdRole::Unknown => {}
            }
        }
        ends
    }
}

/// Reads answers and events until the connection ends.
fn read(stream: &UnixStream, mut frames: Frames, waiting: &Mutex<Waiting>, on_event: &OnEvent) {
    loop {
        match frames.next() {
            Ok(Some((body, fds))) => dispatch(&body, fds, waiting, on_event),
            Ok(None) => match frames.fill(stream) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "supervisor connection failed");
                    break;
                }
            },
            Err(reason) => {
                tracing::error!(reason, "supervisor sent what is no frame");
                break;
            }
        }
    }
    {
        let mut waiting = lock(waiting);
        waiting.closed = true;
        waiting.calls.clear();
    }
    on_event(Event::Disconnected);
}

fn dispatch(body: &[u8], fds: Vec<OwnedFd>, waiting: &Mutex<Waiting>, on_event: &OnEvent) {
    let outgoing: Outgoing = match serde_json::from_slice(body) {
        Ok(outgoing) => outgoing,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "supervisor frame not understood; skipped"
            );
            return;
        }
    };
    if let Some(seq) = outgoing.seq {
        let call = lock(waiting).calls.remove(&seq);
        if let Some(call) = call {
            // Ignored: the caller no longer waits.
            call.send((outgoing, fds)).ok();
        }
        return;
    }
    if let Some(event) = outgoing.event {
        // An event kind that a newer supervisor invented is not for us.
        match serde_json::from_str(event.get()) {
            Ok(event) => on_event(event),
            Err(error) => tracing::debug!(%error, "event kind not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const SHORT: Patience = Patience {
        greeting: Duration::from_millis(50),
        quick: Duration::from_millis(50),
        slow: Duration::from_millis(50),
    };

    #[test]
    fn a_supervisor_that_does_not_answer_costs_an_error_and_no_thread() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let silent = Supervisor::over("/silent".into(), ours, Arc::new(|_| {}), SHORT);
        assert!(matches!(silent, Err(Error::Socket { .. })), "one that does not even greet");
        drop(silent);
        theirs.read_to_end(&mut Vec::new()).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&hello()).unwrap();
        let silent = Supervisor::over("/silent".into(), ours, Arc::new(|_| {}), SHORT);
        assert!(matches!(silent, Err(Error::Silent { operation: "peek", .. })), "{silent:?}");
    }
}
