//! One more process in a running container.

use std::io;

use podwire_linux::pidfd;

use super::clients::{Reply, ok, unzip};
use super::container::{Container, Exec, Phase, Starting};
use super::create::{Wiring, into_cgroup, read_report, receive_master};
use super::poll::Whose;
use super::server::{Server, internal, refusal};
use crate::child::{self, Enter};
use crate::error::RefusalKind;
use crate::plan::{NamespaceKind, ProcessPlan};
use crate::prepare::{Program, procs};
use crate::protocol::{ExecArg, FdRole, ProcessReply, Refusal};
use crate::request::Event;

/// What the container's process has and the caller did not say otherwise.
fn program(container: &Container, arg: &ExecArg) -> ProcessPlan {
    let own = &container.plan.process;
    let mut plan = own.clone();
    plan.argv.clone_from(&arg.argv);
    if let Some(env) = &arg.env {
        plan.env.clone_from(env);
    }
    if let Some(cwd) = &arg.cwd {
        plan.cwd.clone_from(cwd);
    }
    if let Some((uid, gid, groups)) = &arg.user {
        plan.uid = *uid;
        plan.gid = *gid;
        plan.groups.clone_from(groups);
    }
    if let Some(caps) = arg.caps {
        plan.caps = Some(caps);
    }
    plan
}

/// The namespaces of a container that its execs enter; the pid namespace is entered by cloning.
fn namespaces(container: &Container) -> i32 {
    let user = NamespaceKind::User;
    let has_user = container.plan.clone_flags & user.flag() != 0
        || container.plan.join.iter().any(|join| join.kind == user);
    let common = libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if has_user { common | libc::CLONE_NEWUSER } else { common }
}

/// What a program needs to get into a container.
pub(super) fn enter(container: &Container, program: Program) -> io::Result<Enter> {
    Ok(Enter {
        pidfd: container.process.pidfd.try_clone()?,
        namespaces: namespaces(container),
        procs: container.group.as_ref().map(procs).transpose()?.unwrap_or_default(),
        has_proc: container.plan.has_proc(),
        program,
    })
}

impl Server {
    pub(super) fn exec(&mut self, reply: Reply, arg: ExecArg) -> Result<(), Refusal> {
        super::seal::guard()?;
        let container = self.container(&arg.id)?;
        if !matches!(container.phase, Phase::Running) {
            let message = format!("container {:?} is not running", arg.id);
            return Err(refusal(RefusalKind::WrongState, message));
        }
        if container.execs.contains_key(&arg.exec_id) {
            return Err(refusal(RefusalKind::Exists, format!("exec {:?} exists", arg.exec_id)));
        }
        if arg.argv.first().is_none_or(String::is_empty) {
            return Err(refusal(RefusalKind::Setup, "there is no program to run"));
        }
        if container.oci_runtime.is_some() {
            return self.exec_by_oci_runtime(reply, arg);
        }
        let plan = program(container, &arg);
        let program = Program::new(&plan).map_err(|e| internal(&e))?;
        let enter = enter(container, program).map_err(|e| internal(&e))?;
        let into = into_cgroup(container.group.as_ref()).map_err(|e| internal(&e))?;
        let wiring = Wiring::new(arg.tty, arg.stdin, true).map_err(|e| internal(&e))?;
        let pipes = wiring.pipes([std::os::fd::AsRawFd::as_raw_fd(&enter.pidfd)].into_iter());
        let (pid, fd) = self
            .clone_into(Some(&enter.pidfd), 0, into.as_ref(), || child::enter(&enter, &pipes))
            .map_err(|e| refusal(RefusalKind::Setup, format!("clone into container {:?}: {e}", arg.id)))?;
        let whose = Whose { container: arg.id.clone(), exec: Some(arg.exec_id.clone()) };
        let process =
            self.watch(whose, pid, fd, &wiring.status.0, wiring.console).map_err(|e| internal(&e))?;
        let mut fds = Vec::new();
        fds.extend(wiring.stdin.1.map(|fd| (FdRole::Stdin, fd)));
        fds.extend(wiring.stdout.map(|(fd, _)| (FdRole::Stdout, fd)));
        fds.extend(wiring.stderr.map(|(fd, _)| (FdRole::Stderr, fd)));
        let starting = Some(Starting { reply, fds });
        let exec =
            Exec { process, program: plan, starting, failure: None, exit_code: None, oci_runtime: None };
        self.container(&arg.id)?.execs.insert(arg.exec_id, exec);
        Ok(())
    }

    /// An exec's child has said something, or execve closed its pipe.
    pub(super) fn exec_reported(&mut self, id: &str, exec_id: &str) {
        let Some(exec) = self.containers.get_mut(id).and_then(|c| c.execs.get_mut(exec_id)) else { return };
        let Some((status, token)) = &exec.process.status else { return };
        let report = match read_report(status) {
            Ok(report) => report,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => None,
        };
        self.poll.remove(status, *token);
        exec.process.status = None;
        let console = exec.process.console.take();
        let Some(mut starting) = exec.starting.take() else { return };
        match report {
            // The caller hears of it when the child is gone and its name is free again.
            Some(failure) => exec.failure = Some((starting.reply, failure.of_process(&exec.program))),
            None => {
                let master = console.map(|console| receive_master(&console));
                match master {
                    None => {}
                    Some(Ok(master)) => {
                        for role in [FdRole::Stdin, FdRole::Stdout] {
                            starting.fds.extend(master.try_clone().map(|copy| (role, copy)));
                        }
                        exec.process.master = Some(master);
                    }
                    Some(Err(error)) => super::note(&format!("exec {exec_id}: no terminal arrived: {error}")),
                }
                let pid = exec.process.pid;
                let (roles, fds) = unzip(starting.fds);
                self.send(
                    starting.reply.client,
                    &ok(starting.reply.seq, &ProcessReply { pid, fds: roles }),
                    fds,
                );
            }
        }
    }

    pub(super) fn exec_ended(&mut self, id: &str, exec_id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some(exec) = container.execs.get_mut(exec_id) else { return };
        let exit = match pidfd::reap(&exec.process.pidfd) {
            Ok(Some(exit)) => exit,
            Ok(None) => return,
            Err(_) => pidfd::Exit::Code(255),
        };
        if exec.oci_runtime.is_some() {
            return self.oci_runtime_exec_started(id, exec_id, exit);
        }
        if let Some(token) = exec.process.pidfd_token.take() {
            self.poll.remove(&exec.process.pidfd, token);
        }
        exec.exit_code = Some(exit.code());
        if let Some((reply, refusal)) = exec.failure.take() {
            container.execs.remove(exec_id);
            self.refuse(reply, refusal);
            return;
        }
        let event =
            Event::ExecExited { container: id.to_owned(), exec_id: exec_id.to_owned(), code: exit.code() };
        let heard = self.announce(&event);
        if heard && let Some(container) = self.containers.get_mut(id) {
            container.execs.remove(exec_id);
        }
    }
}
