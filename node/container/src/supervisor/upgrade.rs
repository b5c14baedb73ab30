//! A newer supervisor in the same process: execve with every descriptor kept.
//!
//! State goes through a memfd, descriptors by number. The process stays the same, so containers
//! stay its children; connections end, and their owners connect again to the same socket.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;

use rustix::event::epoll::EventFlags;
use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};

use super::SupervisorArgs;
use super::adopt::resume_log;
use super::attach::Sink;
use super::container::{Container, Exec, Phase, Process};
use super::hooks::Progress;
use super::journal::Record;
use super::oci_runtime::OciRuntime;
use super::output::Output;
use super::poll::{Poll, Source, Stream, Whose};
use super::server::{Server, internal, refusal};
use crate::error::RefusalKind;
use crate::plan::ProcessPlan;
use crate::protocol::{Refusal, UpgradeArg};

const MAGIC: &str = "PODWSUPU 1";

/// Everything the next program must know.
#[derive(Debug, Serialize, Deserialize)]
struct Carried {
    magic: String,
    listener: RawFd,
    lock: RawFd,
    containers: Vec<CarriedContainer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CarriedContainer {
    record: Record,
    adopted: bool,
    pidfd: RawFd,
    master: Option<RawFd>,
    /// Present while it has yet to be started, as is the pipe it reports on.
    go: Option<RawFd>,
    status: Option<RawFd>,
    stdin: Option<RawFd>,
    outputs: Vec<CarriedOutput>,
    sinks: Vec<(Stream, RawFd, Vec<u8>)>,
    execs: Vec<CarriedExec>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CarriedOutput {
    stream: Stream,
    fd: RawFd,
    /// The beginning of a line.
    rest: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CarriedExec {
    id: String,
    pid: u32,
    pidfd: RawFd,
    master: Option<RawFd>,
    program: ProcessPlan,
    exit_code: Option<i32>,
}

/// Lets a descriptor live on through execve, and remembers to undo that.
#[derive(Default)]
struct Kept<'a> {
    fds: Vec<BorrowedFd<'a>>,
}

impl<'a> Kept<'a> {
    fn keep(&mut self, fd: &'a impl AsFd) -> RawFd {
        let fd = fd.as_fd();
        self.fds.push(fd);
        fd.as_raw_fd()
    }

    fn set(&self, flags: FdFlags) -> io::Result<()> {
        self.fds.iter().try_for_each(|fd| Ok(rustix::io::fcntl_setfd(fd, flags)?))
    }
}

fn carry<'a>(container: &'a Container, kept: &mut Kept<'a>) -> CarriedContainer {
    CarriedContainer {
        record: Record::of(container),
        adopted: container.adopted,
        pidfd: kept.keep(&container.process.pidfd),
        master: container.process.master.as_ref().map(|fd| kept.keep(fd)),
        go: match &container.phase {
            Phase::Created(go) => Some(kept.keep(go)),
            _ => None,
        },
        status: container.process.status.as_ref().map(|(fd, _)| kept.keep(fd)),
        stdin: container.stdin.as_ref().map(|fd| kept.keep(fd)),
        outputs: container
            .outputs
            .iter()
            .filter(|output| output.is_open())
            .map(|o| CarriedOutput { stream: o.stream, fd: kept.keep(&o.fd), rest: o.rest().to_vec() })
            .collect(),
        sinks: container
            .sinks
            .values()
            .map(|sink| {
                let (stream, fd, behind) = sink.parts();
                (stream, kept.keep(fd), behind.to_vec())
            })
            .collect(),
        execs: container
            .execs
            .iter()
            .map(|(id, exec)| CarriedExec {
                id: id.clone(),
                pid: exec.process.pid,
                pidfd: kept.keep(&exec.process.pidfd),
                master: exec.process.master.as_ref().map(|fd| kept.keep(fd)),
                program: exec.program.clone(),
                exit_code: exec.exit_code,
            })
            .collect(),
    }
}

impl Server {
    /// Becomes the program that is asked for. Returns only when that fails or must wait.
    pub(super) fn upgrade(&mut self, arg: &UpgradeArg) -> Result<(), Refusal> {
        let busy = !self.helpers.is_empty()
            || self.containers.values().any(|c| {
                matches!(c.phase, Phase::Creating(_) | Phase::Starting(_))
                    || c.deleting.is_some()
                    || c.execs.values().any(|exec| exec.starting.is_some())
            });
        if busy {
            return Err(refusal(RefusalKind::WrongState, "operations are under way; ask again"));
        }
        super::note(&format!("becoming {}", arg.exe));
        Err(internal(&self.become_program(arg)))
    }

    fn become_program(&self, arg: &UpgradeArg) -> io::Error {
        let attempt = || -> io::Result<()> {
            let mut kept = Kept::default();
            let carried = Carried {
                magic: MAGIC.to_owned(),
                listener: kept.keep(&self.listener),
                lock: kept.keep(&self.lock),
                containers: self.containers.values().map(|c| carry(c, &mut kept)).collect(),
            };
            let mut state = File::from(rustix::fs::memfd_create("podwire-supervisor", MemfdFlags::empty())?);
            state.write_all(&serde_json::to_vec(&carried)?)?;
            kept.set(FdFlags::empty())?;
            let failed = execute(arg, &self.args, state.as_raw_fd());
            kept.set(FdFlags::CLOEXEC)?;
            Err(failed)
        };
        match attempt() {
            Ok(()) => io::Error::other("execve came back"),
            Err(error) => error,
        }
    }
}

/// Only returns when it fails.
fn execute(arg: &UpgradeArg, args: &SupervisorArgs, state: RawFd) -> io::Error {
    let mut words = vec![arg.exe.clone().into()];
    words.extend(arg.args.iter().map(Into::into));
    words.extend(args.words());
    words.extend(["--resume".into(), state.to_string().into()]);
    let text =
        |word: &std::ffi::OsString| CString::new(word.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput);
    let exe = match CString::new(arg.exe.as_str()) {
        Ok(exe) => exe,
        Err(_) => return io::ErrorKind::InvalidInput.into(),
    };
    let words: Vec<CString> = match words.iter().map(text).collect::<Result<_, _>>() {
        Ok(words) => words,
        Err(kind) => return kind.into(),
    };
    let argv: Vec<_> = words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: the array ends with a null pointer and its strings outlive the call.
    unsafe { libc::execv(exe.as_ptr(), argv.as_ptr()) };
    io::Error::last_os_error()
}

/// Takes a descriptor that came through execve.
fn take(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 3 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the predecessor in this process left it open for us, and for nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// The server that the predecessor in this process left.
pub(super) fn resume(args: &SupervisorArgs, state: RawFd) -> io::Result<Server> {
    let mut state = File::from(take(state)?);
    state.rewind()?;
    let mut text = String::new();
    state.read_to_string(&mut text)?;
    let carried: Carried = serde_json::from_str(&text)?;
    if carried.magic != MAGIC {
        return Err(io::Error::other("the state left by the last supervisor is of another version"));
    }
    let listener = UnixListener::from(take(carried.listener)?);
    let lock = take(carried.lock)?;
    let mut server = Server::new(args, listener, lock, args.state_dir.join("root"), false)?;
    for carried in carried.containers {
        let id = carried.record.id.clone();
        let container = revive(carried, &mut server.poll, &mut server.next_sink)?;
        server.containers.insert(id, container);
    }
    super::note(&format!("resumed with {} containers", server.containers.len()));
    Ok(server)
}

fn watch(
    poll: &mut Poll,
    pid: u32,
    pidfd: RawFd,
    master: Option<RawFd>,
    whose: Option<Whose>,
) -> io::Result<Process> {
    let pidfd = take(pidfd)?;
    let pidfd_token = match whose {
        Some(whose) => Some(poll.add(&pidfd, Source::Process(whose), EventFlags::IN)?),
        None => None,
    };
    let master = master.map(take).transpose()?;
    Ok(Process { pid, pidfd, pidfd_token, status: None, console: None, master })
}

fn revive(carried: CarriedContainer, poll: &mut Poll, next_sink: &mut u64) -> io::Result<Container> {
    let record = carried.record;
    let id = record.id.clone();
    let whose = |exec: Option<&str>| Whose { container: id.clone(), exec: exec.map(str::to_owned) };
    let running = record.exited.is_none();
    let mut process = watch(poll, record.pid, carried.pidfd, carried.master, running.then(|| whose(None)))?;
    if let Some(status) = carried.status {
        let status = take(status)?;
        let token = poll.add(&status, Source::Status(whose(None)), EventFlags::IN)?;
        process.status = Some((status, token));
    }
    let phase = match (record.exited, carried.go) {
        (Some(exited), _) => Phase::Exited(exited),
        (None, Some(go)) => Phase::Created(take(go)?),
        (None, None) => Phase::Running,
    };
    let mut outputs = Vec::new();
    for output in carried.outputs {
        outputs.push(Output::with_rest(poll, &id, output.stream, take(output.fd)?, output.rest)?);
    }
    let mut sinks = BTreeMap::new();
    for (stream, fd, behind) in carried.sinks {
        let number = *next_sink;
        *next_sink += 1;
        sinks.insert(number, Sink::new(poll, &id, number, stream, take(fd)?, behind)?);
    }
    let mut execs = BTreeMap::new();
    for exec in carried.execs {
        let watched = exec.exit_code.is_none().then(|| whose(Some(&exec.id)));
        let process = watch(poll, exec.pid, exec.pidfd, exec.master, watched)?;
        let revived = Exec {
            process,
            program: exec.program,
            starting: None,
            failure: None,
            exit_code: exec.exit_code,
            oci_runtime: None,
        };
        execs.insert(exec.id, revived);
    }
    let group = match &record.plan.cgroup {
        Some(plan) => Some(podwire_linux::cgroup::group(&plan.path).map_err(io::Error::other)?),
        None => None,
    };
    let log = record.log_path.map(|path| resume_log(&id, path));
    Ok(Container {
        own_pids: record.plan.clone_flags & u64::from(libc::CLONE_NEWPID.cast_unsigned()) != 0,
        id,
        plan: record.plan,
        process,
        phase,
        group,
        started_at: record.started_at,
        oom_watch: record.oom_watch,
        go: None,
        stdin: carried.stdin.map(take).transpose()?,
        outputs,
        log,
        sinks,
        execs,
        start_failed: record.start_failed,
        adopted: carried.adopted,
        waits_for_reaping: false,
        hooks: Progress::past(),
        oci_runtime: record.oci_runtime.map(OciRuntime::new),
        deleting: None,
    })
}
