//! Containers that an OCI runtime program makes: create, start, kill, delete and exec are its verbs.
//!
//! The program leaves as soon as it has done its part; the container's process then is our child, as we are the nearest
//! reaper above it, and everything else (output, terminal, exit code) is as with a container of our own.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use podwire_linux::{cgroup, pidfd};
use rustix::event::epoll::EventFlags;
use serde::{Deserialize, Serialize};

use super::clients::{Reply, ok, unzip};
use super::container::{Exec, Exited, Phase, Process, Starting};
use super::create::{Wiring, open_log, receive_master};
use super::delete::UNKNOWN;
use super::helper::{self, Ended, PATIENCE, Purpose};
use super::note;
use super::output::Output;
use super::poll::{Poll, Source, Stream, Whose, now};
use super::server::{Server, internal, refusal};
use crate::error::RefusalKind;
use crate::protocol::{CreateArg, ExecArg, FdRole, ProcessReply, Refusal};
use crate::request::StartedAt;

/// Which program makes a container, and where its bundle and the program's own state are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OciRuntimePlan {
    pub(crate) runtime: String,
    pub(crate) root: String,
    pub(crate) bundle: String,
}

/// What the supervisor keeps of such a container beside the rest.
#[derive(Debug)]
pub(super) struct OciRuntime {
    pub(super) plan: OciRuntimePlan,
    /// Where its terminal arrives.
    console: Option<UnixListener>,
    /// Its runtime was told to delete it.
    deleting: bool,
    /// Its runtime has deleted it.
    deleted: bool,
}

/// An exec that its runtime has yet to start.
#[derive(Debug)]
pub(super) struct OciRuntimeExec {
    tag: String,
    console: Option<UnixListener>,
}

impl OciRuntime {
    pub(super) fn new(plan: OciRuntimePlan) -> OciRuntime {
        OciRuntime { plan, console: None, deleting: false, deleted: false }
    }
}

impl OciRuntimePlan {
    fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.bundle).join(name)
    }

    /// The program with one of its verbs. It works in the bundle, so that names in there are short.
    fn command(&self, verb: &str, tag: &str) -> Command {
        let mut command = Command::new(&self.runtime);
        let log = self.file(&format!("{tag}.log"));
        // Ignored: there is none, or the old complaint is read again.
        fs::remove_file(&log).ok();
        command.args(["--root", &self.root, "--log"]).arg(log).args(["--log-format", "json", verb]);
        command.current_dir(&self.bundle).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// What the program had to say against it.
    fn complaint(&self, tag: &str, verb: &str, exit: pidfd::Exit) -> String {
        #[derive(Deserialize)]
        struct Line {
            level: String,
            msg: String,
        }
        let text = fs::read_to_string(self.file(&format!("{tag}.log"))).unwrap_or_default();
        let said = text
            .lines()
            .rev()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok())
            .find(|line| matches!(line.level.as_str(), "error" | "fatal"))
            .map(|line| line.msg);
        let runtime = &self.runtime;
        match said {
            Some(said) => format!("{runtime} {verb}: {said}"),
            None => format!("{runtime} {verb} ended with {}", exit.code()),
        }
    }

    /// Listens under a short name in the bundle, however long the bundle's own path is.
    fn listen(&self, name: &str) -> io::Result<UnixListener> {
        let folder = fs::File::open(&self.bundle)?;
        let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// The process whose number the program left in a file.
    fn process(&self, name: &str) -> io::Result<(u32, OwnedFd)> {
        let text = fs::read_to_string(self.file(name))?;
        let pid = text.trim().parse().map_err(|_| io::Error::other(format!("no process id: {text:?}")))?;
        Ok((pid, pidfd::open(pid)?))
    }

    fn forget(&self, names: &[String]) {
        for name in names {
            // Ignored: not every verb leaves every file, and all go with the bundle.
            fs::remove_file(self.file(name)).ok();
        }
    }
}

/// The terminal that the program sent before it ended.
fn terminal(listener: &UnixListener) -> io::Result<OwnedFd> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(false)?;
    receive_master(&OwnedFd::from(stream))
}

/// A process that reports nothing; its end will be heard of.
fn follow(poll: &mut Poll, whose: Whose, pid: u32, pidfd: OwnedFd) -> io::Result<Process> {
    let token = poll.add(&pidfd, Source::Process(whose), EventFlags::IN)?;
    Ok(Process { pid, pidfd, pidfd_token: Some(token), status: None, console: None, master: None })
}

/// Gives a program the ends of the container's streams as its own; it hands them on.
fn give_stdio(command: &mut Command, wiring: &Wiring) -> io::Result<()> {
    command.stdin(Stdio::from(wiring.stdin.0.try_clone()?));
    if let Some((_, write)) = &wiring.stdout {
        command.stdout(Stdio::from(write.try_clone()?));
    }
    if let Some((_, write)) = &wiring.stderr {
        command.stderr(Stdio::from(write.try_clone()?));
    }
    Ok(())
}

impl Server {
    pub(super) fn create_by_oci_runtime(&mut self, reply: Reply, arg: CreateArg) -> Result<(), Refusal> {
        if self.containers.contains_key(&arg.id) {
            return Err(refusal(RefusalKind::Exists, format!("container {:?} exists", arg.id)));
        }
        let Some(plan) = arg.oci_runtime.clone() else {
            return Err(refusal(RefusalKind::Setup, "no OCI runtime is named"));
        };
        let log = open_log(arg.log_path.as_deref())?;
        let group = match &arg.plan.cgroup {
            Some(wanted) => Some(cgroup::group(&wanted.path).map_err(|e| internal(&e))?),
            None => None,
        };
        let mut oci_runtime = OciRuntime::new(plan);
        let (wiring, process) = self.run_create(&arg, &mut oci_runtime).map_err(|e| {
            refusal(RefusalKind::Setup, format!("run OCI runtime {}: {e}", oci_runtime.plan.runtime))
        })?;
        // What would let it go is never written to: the runtime's own `start` does that.
        let mut container = self.begun(reply, arg, process, wiring, group, log)?;
        container.oci_runtime = Some(oci_runtime);
        self.containers.insert(container.id.clone(), container);
        Ok(())
    }

    /// The runtime at work; until it has ended it stands in for the container's process.
    fn run_create(&mut self, arg: &CreateArg, oci_runtime: &mut OciRuntime) -> io::Result<(Wiring, Process)> {
        let plan = &oci_runtime.plan;
        let mut wiring = Wiring::new(arg.tty, arg.stdin, true)?;
        wiring.make_output_lasting()?;
        let mut command = plan.command("create", "create");
        command.arg("--bundle").arg(&plan.bundle).arg("--pid-file").arg(plan.file("pid"));
        if arg.tty.is_some() {
            oci_runtime.console = Some(plan.listen("console.sock")?);
            command.args(["--console-socket", "console.sock"]);
        }
        give_stdio(&mut command, &wiring)?;
        let (pid, pidfd) = helper::run(command.arg(&arg.id))?;
        let whose = Whose { container: arg.id.clone(), exec: None };
        Ok((wiring, follow(&mut self.poll, whose, pid, pidfd)?))
    }

    /// The runtime has made the container, or has not.
    pub(super) fn oci_runtime_created(&mut self, id: &str, exit: pidfd::Exit) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if let Some(token) = container.process.pidfd_token.take() {
            self.poll.remove(&container.process.pidfd, token);
        }
        let (Phase::Creating(reply), Some(oci_runtime)) = (&container.phase, &mut container.oci_runtime)
        else {
            return;
        };
        let reply = *reply;
        let console = oci_runtime.console.take();
        let made = if exit.code() == 0 {
            oci_runtime
                .plan
                .process("pid")
                .map_err(|e| format!("{} left no process: {e}", oci_runtime.plan.runtime))
        } else {
            Err(oci_runtime.plan.complaint("create", "create", exit))
        };
        oci_runtime.plan.forget(&["create.log".to_owned(), "pid".to_owned(), "console.sock".to_owned()]);
        let taken = made.and_then(|(pid, pidfd)| {
            let whose = Whose { container: id.to_owned(), exec: None };
            container.process = follow(&mut self.poll, whose, pid, pidfd).map_err(|e| e.to_string())?;
            if let Some(console) = console {
                let master = terminal(&console).map_err(|e| format!("no terminal arrived: {e}"))?;
                let copy = master.try_clone().map_err(|e| e.to_string())?;
                let output =
                    Output::new(&mut self.poll, id, Stream::Stdout, copy).map_err(|e| e.to_string())?;
                container.outputs.push(output);
                container.process.master = Some(master);
            }
            Ok(())
        });
        match taken {
            Ok(()) if container.deleting.is_none() => self.container_ready(id),
            Ok(()) => {
                container.phase = Phase::Running;
                // Ignored: gone is what we want, and its pidfd tells.
                container.process.signal(libc::SIGKILL).ok();
            }
            Err(message) => {
                let exited = Exited { code: UNKNOWN, signal: None, oom: false, at: now() };
                container.phase = Phase::Exited(exited);
                let verdict = refusal(RefusalKind::Setup, message);
                if container.deleting.is_some() {
                    self.refuse(reply, verdict);
                    self.continue_deletions();
                } else {
                    self.abandon(id, reply, verdict);
                }
            }
        }
    }

    pub(super) fn start_by_oci_runtime(&mut self, reply: Reply, id: &str) -> Result<(), Refusal> {
        let container = self.container(id)?;
        let Some(oci_runtime) = &container.oci_runtime else { return Ok(()) };
        let mut command = oci_runtime.plan.command("start", "start");
        container.phase = Phase::Starting(reply);
        let purpose = Purpose::Start { container: id.to_owned(), reply };
        let started = self.help(command.arg(id), PATIENCE, purpose);
        started.map_err(|e| refusal(RefusalKind::Setup, format!("run the OCI runtime: {e}")))
    }

    pub(super) fn oci_runtime_started(&mut self, id: &str, reply: Reply, ended: &Ended) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some(oci_runtime) = &container.oci_runtime else { return };
        if ended.exit.code() == 0 {
            let at = now();
            container.phase = Phase::Running;
            container.started_at = Some(at);
            self.journal.started(id, at);
            self.answer(reply, &StartedAt { at });
        } else {
            let message = oci_runtime.plan.complaint("start", "start", ended.exit);
            container.start_failed = true;
            container.phase = Phase::Running;
            self.refuse(reply, refusal(RefusalKind::Setup, message));
        }
        // It may have been quicker than its runtime.
        self.container_ended(id);
    }

    /// Asks the runtime to signal the container's process.
    pub(super) fn signal_by_oci_runtime(
        &mut self,
        reply: Reply,
        id: &str,
        signal: i32,
    ) -> Result<(), Refusal> {
        let container = self.container(id)?;
        let Some(oci_runtime) = &container.oci_runtime else { return Ok(()) };
        let tag = format!("kill-{signal}");
        let mut command = oci_runtime.plan.command("kill", &tag);
        command.arg(id).arg(signal.to_string());
        let purpose = Purpose::Signal { container: id.to_owned(), signal, reply };
        self.help(&mut command, PATIENCE, purpose).map_err(|e| internal(&e))
    }

    pub(super) fn oci_runtime_signalled(&mut self, id: &str, signal: i32, reply: Reply, ended: &Ended) {
        let Some(container) = self.containers.get_mut(id) else {
            return self.refuse(reply, super::server::not_found(id));
        };
        if container.has_exited() {
            let exited = refusal(RefusalKind::WrongState, format!("container {id:?} has exited"));
            return self.refuse(reply, exited);
        }
        let sent = if ended.exit.code() == 0 { Ok(()) } else { container.process.signal(signal) };
        match sent {
            Ok(()) => self.answer(reply, &()),
            Err(error) => self.refuse(reply, internal(&error)),
        }
    }

    /// True once the runtime has taken its container away; starts that when nobody has.
    pub(super) fn oci_runtime_is_deleted(&mut self, id: &str) -> bool {
        let Some(container) = self.containers.get_mut(id) else { return true };
        let Some(oci_runtime) = &mut container.oci_runtime else { return true };
        if oci_runtime.deleted || oci_runtime.deleting {
            return oci_runtime.deleted;
        }
        oci_runtime.deleting = true;
        let mut command = oci_runtime.plan.command("delete", "delete");
        command.args(["--force", id]);
        if let Err(error) = self.help(&mut command, PATIENCE, Purpose::Delete { container: id.to_owned() }) {
            note(&format!("container {id}: its runtime did not delete it: {error}"));
            self.drop_oci_runtime_state(id);
            return true;
        }
        false
    }

    pub(super) fn oci_runtime_deleted(&mut self, id: &str, ended: &Ended) {
        if ended.exit.code() != 0 {
            note(&format!("container {id}: its runtime did not delete it: {}", ended.output));
        }
        self.drop_oci_runtime_state(id);
        self.continue_deletions();
    }

    /// What the runtime knows of a container whose process is dead goes, whatever the runtime thinks.
    fn drop_oci_runtime_state(&mut self, id: &str) {
        let Some(oci_runtime) = self.containers.get_mut(id).and_then(|c| c.oci_runtime.as_mut()) else {
            return;
        };
        oci_runtime.deleted = true;
        match fs::remove_dir_all(Path::new(&oci_runtime.plan.root).join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                note(&format!("container {id}: state of its runtime left behind: {error}"));
            }
            _ => {}
        }
    }

    /// One more process, made by the runtime.
    pub(super) fn exec_by_oci_runtime(&mut self, reply: Reply, arg: ExecArg) -> Result<(), Refusal> {
        let tag = format!("exec-{}", self.next_helper);
        self.next_helper += 1;
        let container = self.container(&arg.id)?;
        let Some(oci_runtime) = &container.oci_runtime else { return Ok(()) };
        let (plan, program) = (oci_runtime.plan.clone(), container.plan.process.clone());
        let (exec, command) =
            prepare_exec(&plan, &tag, &arg).map_err(|e| refusal(RefusalKind::Setup, e.to_string()))?;
        let (wiring, console, mut command) = (exec.0, exec.1, command);
        let ran = helper::run(command.arg(&arg.id)).and_then(|(pid, pidfd)| {
            let whose = Whose { container: arg.id.clone(), exec: Some(arg.exec_id.clone()) };
            follow(&mut self.poll, whose, pid, pidfd)
        });
        let process = ran.map_err(|e| refusal(RefusalKind::Setup, format!("run {}: {e}", plan.runtime)))?;
        let mut fds = Vec::new();
        fds.extend(wiring.stdin.1.map(|fd| (FdRole::Stdin, fd)));
        fds.extend(wiring.stdout.map(|(fd, _)| (FdRole::Stdout, fd)));
        fds.extend(wiring.stderr.map(|(fd, _)| (FdRole::Stderr, fd)));
        let exec = Exec {
            process,
            program,
            starting: Some(Starting { reply, fds }),
            failure: None,
            exit_code: None,
            oci_runtime: Some(OciRuntimeExec { tag, console }),
        };
        self.container(&arg.id)?.execs.insert(arg.exec_id, exec);
        Ok(())
    }

    /// The runtime has started the process, or has not.
    pub(super) fn oci_runtime_exec_started(&mut self, id: &str, exec_id: &str, exit: pidfd::Exit) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some(plan) = container.oci_runtime.as_ref().map(|oci_runtime| oci_runtime.plan.clone()) else {
            return;
        };
        let Some(exec) = container.execs.get_mut(exec_id) else { return };
        let (Some(started), Some(mut starting)) = (exec.oci_runtime.take(), exec.starting.take()) else {
            return;
        };
        if let Some(token) = exec.process.pidfd_token.take() {
            self.poll.remove(&exec.process.pidfd, token);
        }
        let tag = started.tag;
        let taken = if exit.code() == 0 {
            plan.process(&format!("{tag}.pid")).map_err(|e| format!("{} left no process: {e}", plan.runtime))
        } else {
            Err(plan.complaint(&tag, "exec", exit))
        };
        plan.forget(&["log", "pid", "json", "sock"].map(|ending| format!("{tag}.{ending}")));
        let taken = taken.and_then(|(pid, pidfd)| {
            let whose = Whose { container: id.to_owned(), exec: Some(exec_id.to_owned()) };
            let mut process = follow(&mut self.poll, whose, pid, pidfd).map_err(|e| e.to_string())?;
            let master = started.console.as_ref().map(terminal).transpose();
            let master = master.map_err(|e| format!("no terminal arrived: {e}"))?;
            for role in [FdRole::Stdin, FdRole::Stdout] {
                if let Some(master) = &master {
                    starting.fds.extend(master.try_clone().map(|copy| (role, copy)));
                }
            }
            process.master = master;
            exec.process = process;
            Ok(pid)
        });
        match taken {
            Ok(pid) => {
                let (roles, fds) = unzip(starting.fds);
                let answer = ok(starting.reply.seq, &ProcessReply { pid, fds: roles });
                self.send(starting.reply.client, &answer, fds);
            }
            Err(message) => {
                container.execs.remove(exec_id);
                self.refuse(starting.reply, refusal(RefusalKind::Setup, message));
            }
        }
    }
}

type PreparedExec = ((Wiring, Option<UnixListener>), Command);

fn prepare_exec(plan: &OciRuntimePlan, tag: &str, arg: &ExecArg) -> io::Result<PreparedExec> {
    let process = arg.process.as_deref().ok_or(io::ErrorKind::InvalidInput)?;
    fs::write(plan.file(&format!("{tag}.json")), process)?;
    let wiring = Wiring::new(arg.tty, arg.stdin, true)?;
    let mut command = plan.command("exec", tag);
    command.arg("--detach").arg("--process").arg(plan.file(&format!("{tag}.json")));
    command.arg("--pid-file").arg(plan.file(&format!("{tag}.pid")));
    let mut console = None;
    if arg.tty.is_some() {
        let name = format!("{tag}.sock");
        console = Some(plan.listen(&name)?);
        command.args(["--console-socket", &name]);
    }
    give_stdio(&mut command, &wiring)?;
    Ok(((wiring, console), command))
}
