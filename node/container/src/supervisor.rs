//! The process that outlives the daemon: one thread, one epoll, all containers.
//!
//! It keeps what must not die with the daemon: pidfds, stdio, log files, exit codes. It is started
//! by the daemon from the daemon's own executable, detaches itself, sits in a cgroup of its own
//! and serves any number of connections. It never exits while it has containers.

mod adopt;
mod attach;
mod clients;
mod container;
mod create;
mod delete;
mod exec;
mod helper;
mod hooks;
mod journal;
mod log;
mod notes;
mod oci_runtime;
mod output;
mod poll;
mod seal;
mod server;
mod upgrade;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use journal::ids as journalled;
pub(crate) use notes::note;
pub(crate) use oci_runtime::OciRuntimePlan;
use server::Server;

/// Arguments of the hidden `supervisor` subcommand.
#[derive(Debug, Clone)]
pub struct SupervisorArgs {
    /// Where to listen.
    pub socket: PathBuf,
    /// Folder of its journal and its log file.
    pub state_dir: PathBuf,
    /// A cgroup of its own in every hierarchy.
    pub cgroup: Option<String>,
    /// State that the predecessor in this process left open.
    resume: Option<RawFd>,
}

impl SupervisorArgs {
    /// Reads `--socket PATH --state-dir DIR [--cgroup NAME]`.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> io::Result<SupervisorArgs> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let (mut socket, mut state_dir, mut cgroup, mut resume) = (None, None, None, None);
        let mut words = words.into_iter();
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| invalid(format!("{flag:?} needs a value")))?;
            match flag.to_str() {
                Some("--socket") => socket = Some(PathBuf::from(value)),
                Some("--state-dir") => state_dir = Some(PathBuf::from(value)),
                Some("--cgroup") => {
                    let name =
                        value.into_string().map_err(|v| invalid(format!("cgroup {v:?} is not UTF-8")))?;
                    cgroup = Some(name);
                }
                Some("--resume") => {
                    let number = value.to_str().and_then(|v| v.parse().ok());
                    resume = Some(number.ok_or_else(|| invalid(format!("{value:?} is no descriptor")))?);
                }
                _ => return Err(invalid(format!("unknown flag {flag:?}"))),
            }
        }
        let socket = socket.ok_or_else(|| invalid("--socket is missing".to_owned()))?;
        let state_dir = state_dir.ok_or_else(|| invalid("--state-dir is missing".to_owned()))?;
        Ok(SupervisorArgs { socket, state_dir, cgroup, resume })
    }

    /// The words that give these arguments again.
    fn words(&self) -> Vec<OsString> {
        let mut words = vec!["--socket".into(), self.socket.clone().into()];
        words.extend(["--state-dir".into(), self.state_dir.clone().into()]);
        if let Some(cgroup) = &self.cgroup {
            words.extend(["--cgroup".into(), cgroup.into()]);
        }
        words
    }
}

/// Runs the supervisor with the words after the subcommand's name. Call it first thing in `main`,
/// before any thread exists.
///
/// Returns in the calling process as soon as the supervisor, detached from it, listens.
pub fn supervisor_main(words: Vec<OsString>) -> ExitCode {
    let sealed = seal::seal();
    let run = |args: SupervisorArgs| match args.resume {
        Some(state) => resume_and_run(&args, state, sealed),
        None => detach_and_run(&args, sealed),
    };
    match SupervisorArgs::parse(words).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = io::stderr();
            // Ignored: without a stderr there is nobody to tell.
            writeln!(stderr, "supervisor: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Goes on in the process, and with the descriptors, of an older supervisor.
fn resume_and_run(args: &SupervisorArgs, state: RawFd, sealed: io::Result<()>) -> io::Result<()> {
    harden()?;
    notes::begin(&args.state_dir)?;
    // What runs is kept, but nothing new is made.
    if let Err(error) = sealed {
        seal::remember_unsealed(&error);
        note(&format!("the executable is not sealed against containers, so none is made: {error}"));
    }
    upgrade::resume(args, state)?.run()
}

fn detach_and_run(args: &SupervisorArgs, sealed: io::Result<()>) -> io::Result<()> {
    let unsealed =
        |error| io::Error::other(format!("the executable is not sealed against containers: {error}"));
    sealed.map_err(unsealed)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&args.state_dir)?;
    let (mut told, tell) = io::pipe()?;
    // SAFETY: called before any thread exists, so the child is a whole process.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid > 0 {
        drop(tell);
        let mut verdict = String::new();
        told.read_to_string(&mut verdict)?;
        return if verdict == "listening" { Ok(()) } else { Err(io::Error::other(verdict)) };
    }
    drop(told);
    let code = match daemon(args, tell) {
        Ok(()) => 0,
        Err(error) => {
            note(&format!("ended: {error}"));
            1
        }
    };
    // SAFETY: ends the detached process without running the caller's exit code.
    unsafe { libc::_exit(code) }
}

/// The detached process.
fn daemon(args: &SupervisorArgs, mut tell: io::PipeWriter) -> io::Result<()> {
    let started = start(args);
    let verdict = match &started {
        Ok(_) => "listening".to_owned(),
        Err(error) => error.to_string(),
    };
    // Ignored: the one who started us may be gone already.
    tell.write_all(verdict.as_bytes()).ok();
    drop(tell);
    let mut server = started?;
    server.run()
}

fn start(args: &SupervisorArgs) -> io::Result<Server> {
    rustix::process::setsid()?;
    let lock = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(args.state_dir.join("supervisor.lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::other("another supervisor has this state folder"))?;
    redirect_stdio(args)?;
    harden()?;
    if let Some(cgroup) = &args.cgroup {
        settle_in(cgroup)?;
    }
    std::env::set_current_dir("/")?;
    let staging = args.state_dir.join("root");
    fs::create_dir_all(&staging)?;
    let listener = listen(args)?;
    note("listening");
    Server::new(args, listener, lock.into(), staging, true)
}

/// Nothing of the daemon's terminal or pipes stays open; notes go to a file.
fn redirect_stdio(args: &SupervisorArgs) -> io::Result<()> {
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    notes::begin(&args.state_dir)
}

/// Orphans of containers come to us; nobody in a container can look into us; many descriptors.
fn harden() -> io::Result<()> {
    rustix::thread::set_name(c"podwire-superv")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)?;
    // SAFETY: plain constants; a hang-up or a closed pipe must not end us.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
    Ok(())
}

fn settle_in(cgroup: &str) -> io::Result<()> {
    let group = podwire_linux::cgroup::group(cgroup).map_err(io::Error::other)?;
    group.create().map_err(io::Error::other)?;
    group.add(std::process::id()).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        io::Error::other(format!("{error}: {cause}"))
    })
}

fn listen(args: &SupervisorArgs) -> io::Result<UnixListener> {
    if let Some(parent) = args.socket.parent() {
        fs::create_dir_all(parent)?;
    }
    // We hold the lock, so a socket that is there belongs to a dead one.
    match fs::remove_file(&args.socket) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // SAFETY: plain number; no other thread creates files meanwhile.
    let before = unsafe { libc::umask(0o177) };
    let listener = UnixListener::bind(&args.socket);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    let listener = listener?;
    listener.set_nonblocking(true)?;
    debug_assert!(listener.as_raw_fd() > 2);
    Ok(listener)
}
