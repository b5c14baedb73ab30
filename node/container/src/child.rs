//! Between clone and execve.
//!
//! The supervisor lays everything out ([`crate::prepare`]), clones, and the child runs the
//! functions here: raw system calls on memory that is already there, no allocation, no locks, no
//! return into the supervisor's code. A failure travels back as three numbers.

mod cwd;
mod device;
mod identity;
mod place;
mod restrict;
mod root;
mod sys;
mod terminal;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(crate) use root::MOST_SOURCES;
pub(crate) use terminal::Terminal;

use crate::failure::{Failure, Stage};
use crate::prepare::{Launch, Program};
use sys::Errno;

/// Descriptors of the child, as numbers: they belong to the supervisor's memory.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// Reports go here; execve closes it.
    pub(crate) status: RawFd,
    /// One byte here means go; its end means give up.
    pub(crate) start: RawFd,
    /// What becomes 0, 1 and 2, unless there is a terminal.
    pub(crate) stdio: [RawFd; 3],
    /// The terminal to make.
    pub(crate) terminal: Option<Terminal>,
    /// Everything that must stay open until execve, sorted; the rest is the supervisor's.
    pub(crate) keep: Vec<RawFd>,
}

/// A process to add to a container.
#[derive(Debug)]
pub(crate) struct Enter {
    /// The container's init.
    pub(crate) pidfd: OwnedFd,
    /// `CLONE_NEW*` of the namespaces to enter, all but the pid namespace.
    pub(crate) namespaces: i32,
    /// cgroup files to join through.
    pub(crate) procs: Vec<CString>,
    /// `/proc` in there must be procfs.
    pub(crate) has_proc: bool,
    pub(crate) program: Program,
}

struct Child<'a> {
    pipes: &'a Pipes,
}

/// Turns an error number into a report.
trait At<T> {
    fn at(self, stage: Stage) -> Result<T, Failure>;
    fn at_index(self, stage: Stage, index: usize) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, stage: Stage) -> Result<T, Failure> {
        self.at_index(stage, 0)
    }

    fn at_index(self, stage: Stage, index: usize) -> Result<T, Failure> {
        self.map_err(|errno| Failure { stage, errno, index: u32::try_from(index).unwrap_or(u32::MAX) })
    }
}

/// Clones this process; the child runs `body` and ends.
pub(crate) fn clone_child(
    flags: u64,
    cgroup: Option<BorrowedFd<'_>>,
    body: impl FnOnce(),
) -> io::Result<(u32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | u64::from(libc::CLONE_PIDFD.cast_unsigned());
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    if let Some(cgroup) = cgroup {
        const INTO_CGROUP: u64 = 0x2_0000_0000;
        args.flags |= INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: this process has one thread, so the child's copy of memory is whole; the child runs
    // `body`, which ends it.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        body();
        sys::exit(128);
    }
    // SAFETY: the kernel stored a fresh descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((u32::try_from(pid).unwrap_or(0), pidfd))
}

/// A child that does nothing until the other end of its pipe is closed.
pub(crate) fn wait_for_end(wait: &OwnedFd, go: &OwnedFd) {
    sys::close(go.as_raw_fd());
    // Ignored: whatever ends the wait ends the child.
    sys::read(wait.as_raw_fd(), &mut [0]).ok();
}

/// Closes all descriptors but stdio and `keep`, which is sorted.
fn close_others(keep: &[RawFd]) -> Result<(), Errno> {
    let mut first = 3;
    for fd in keep {
        if *fd > first {
            let last = u32::try_from(*fd - 1).unwrap_or(0);
            sys::close_range(first, last)?;
        }
        first = first.max(*fd + 1);
    }
    sys::close_range(first, u32::MAX)
}

/// The child of a container.
pub(crate) fn container(launch: &Launch, pipes: &Pipes) {
    let child = Child { pipes };
    let failure = match child.set_up(launch).and_then(|()| child.wait(&launch.program)) {
        Ok(()) => child.execute(&launch.program),
        Err(failure) => failure,
    };
    child.report(failure);
}

/// The child of an exec.
pub(crate) fn enter(enter: &Enter, pipes: &Pipes) {
    let child = Child { pipes };
    let failure = match child.join(enter).and_then(|()| child.late_filter(&enter.program)) {
        Ok(()) => child.execute(&enter.program),
        Err(failure) => failure,
    };
    child.report(failure);
}

impl Child<'_> {
    fn set_up(&self, launch: &Launch) -> Result<(), Failure> {
        let program = &launch.program;
        self.detach()?;
        self.join_cgroup(&launch.procs)?;
        self.oom_score(program)?;
        self.label(program)?;
        for (fd, kind, index) in &launch.joins {
            sys::setns(fd.as_raw_fd(), *kind).at_index(Stage::JoinNamespace, *index as usize)?;
        }
        for (index, (file, value)) in launch.sysctls.iter().enumerate() {
            sys::write_file(file, value.to_bytes()).at_index(Stage::Sysctl, index)?;
        }
        if let Some(name) = &launch.hostname {
            sys::sethostname(name).at(Stage::Hostname)?;
        }
        if let Some(name) = &launch.domainname {
            sys::setdomainname(name).at(Stage::Hostname)?;
        }
        let mut trees = self.host_trees(launch)?;
        if let Some(user) = &launch.user {
            self.become_root_of(user.as_raw_fd(), launch)?;
        }
        if launch.unshare_cgroup {
            sys::unshare(libc::CLONE_NEWCGROUP).at(Stage::UnshareCgroup)?;
        }
        self.own_trees(launch, &mut trees)?;
        self.enter_root(&mut trees)?;
        self.mounts(launch, &mut trees)?;
        self.devices(launch, &mut trees)?;
        let slave = match self.pipes.terminal {
            Some(terminal) => Some(self.terminal(terminal, true, program.uid)?),
            None => None,
        };
        self.make_cwd(program, trees.inside)?;
        self.restrict(launch, &mut trees)?;
        self.rlimits(program)?;
        self.stdio(slave, program.uid)?;
        self.let_go()?;
        if launch.has_proc {
            self.prove_proc()?;
        }
        let settled = self.enter_cwd(program)?;
        self.become_user(program, settled)
    }

    /// Enters the user namespace and lets a second child go on in namespaces that belong to it.
    ///
    /// What needs the host's rights has been done by now: the mounts are open.
    fn become_root_of(&self, user: RawFd, launch: &Launch) -> Result<(), Failure> {
        if let Some(pids) = &launch.join_pid {
            sys::setns(pids.as_raw_fd(), libc::CLONE_NEWPID).at(Stage::UserNamespace)?;
        }
        sys::setns(user, libc::CLONE_NEWUSER).at(Stage::UserNamespace)?;
        let child = sys::clone_sibling(launch.clone_flags).at(Stage::UserNamespace)?;
        if child != 0 {
            let pid = u32::try_from(child).unwrap_or(0);
            let report = Failure { stage: Stage::Child, errno: 0, index: pid };
            sys::write(self.pipes.status, &report.bytes()).at(Stage::UserNamespace)?;
            sys::exit(0);
        }
        sys::setsid().at(Stage::Detach)?;
        // Our ids outside mean nothing in here until we take on some that do.
        sys::setgroups(&[]).at(Stage::UserNamespace)?;
        sys::setresgid(0).at(Stage::UserNamespace)?;
        sys::setresuid(0).at(Stage::UserNamespace)
    }

    fn join(&self, enter: &Enter) -> Result<(), Failure> {
        let program = &enter.program;
        self.detach()?;
        self.join_cgroup(&enter.procs)?;
        self.oom_score(program)?;
        self.label(program)?;
        sys::setns(enter.pidfd.as_raw_fd(), enter.namespaces).at(Stage::JoinNamespace)?;
        let slave = match self.pipes.terminal {
            Some(terminal) => Some(self.terminal(terminal, false, program.uid)?),
            None => None,
        };
        self.rlimits(program)?;
        self.stdio(slave, program.uid)?;
        self.let_go()?;
        if enter.has_proc {
            self.prove_proc()?;
        }
        let settled = self.enter_cwd(program)?;
        self.become_user(program, settled)
    }

    /// Cuts what ties this copy to the supervisor: its descriptors, session, keys and signals.
    fn detach(&self) -> Result<(), Failure> {
        sys::default_signal(libc::SIGPIPE);
        sys::default_signal(libc::SIGHUP);
        sys::unblock_signals();
        close_others(&self.pipes.keep).at(Stage::Detach)?;
        sys::new_session_keyring().at(Stage::Detach)?;
        sys::setsid().at(Stage::Detach)
    }

    /// Closes everything but stdio and the two pipes to the supervisor. From here on the image has a say, in where a
    /// path leads or by its program, and nothing of the host's may be open: `/proc/self/fd` would lead there.
    fn let_go(&self) -> Result<(), Failure> {
        let (status, start) = (self.pipes.status, self.pipes.start);
        close_others(&[status.min(start), status.max(start)]).at(Stage::Detach)
    }

    fn join_cgroup(&self, files: &[CString]) -> Result<(), Failure> {
        for (index, file) in files.iter().enumerate() {
            sys::write_file(file, b"0").at_index(Stage::JoinCgroup, index)?;
        }
        Ok(())
    }

    fn stdio(&self, slave: Option<RawFd>, uid: u32) -> Result<(), Failure> {
        for (number, fd) in self.pipes.stdio.iter().enumerate() {
            let from = slave.unwrap_or(*fd);
            let to = RawFd::try_from(number).unwrap_or(0);
            sys::dup_to(from, to).at(Stage::Stdio)?;
            let pipe = sys::mode_of(to).at(Stage::Stdio)? & libc::S_IFMT == libc::S_IFIFO;
            if pipe && uid != 0 {
                // So that a program can open /dev/stdout again as its own user.
                match sys::chown_fd(to, uid, u32::MAX) {
                    // In a user namespace the pipe belongs to nobody we know.
                    Ok(()) | Err(libc::EPERM | libc::EINVAL) => {}
                    Err(errno) => return Err(errno).at(Stage::Stdio),
                }
            }
        }
        Ok(())
    }

    /// Says that all is ready and waits for the word.
    fn wait(&self, program: &Program) -> Result<(), Failure> {
        let ready = Failure { stage: Stage::Ready, errno: 0, index: 0 };
        sys::write(self.pipes.status, &ready.bytes()).at(Stage::Ready)?;
        if program.reaper {
            self.reap();
        }
        let mut byte = [0];
        if sys::read(self.pipes.start, &mut byte).at(Stage::Ready)? == 0 {
            // Deleted before it was started, or the supervisor is gone.
            sys::exit(128);
        }
        self.late_filter(program)
    }

    /// With no_new_privs the filter can come last, so it need not allow what we do before.
    fn late_filter(&self, program: &Program) -> Result<(), Failure> {
        if program.no_new_privs { self.filter(program) } else { Ok(()) }
    }

    /// Process 1 of a pod: the kernel reaps for it, as it never asks how its children ended.
    /// SIG_IGN for SIGCHLD: <https://man7.org/linux/man-pages/man2/sigaction.2.html>.
    fn reap(&self) -> ! {
        sys::ignore_signal(libc::SIGCHLD);
        sys::prctl(libc::PR_SET_NAME, c"podwire-reaper".as_ptr() as u64, 0).ok();
        // Closing the report pipe tells the supervisor that it runs.
        sys::close_range(3, u32::MAX).ok();
        loop {
            sys::sleep_until_signal();
        }
    }

    fn report(&self, failure: Failure) {
        // Ignored: without a reader nobody wants to know.
        sys::write(self.pipes.status, &failure.bytes()).ok();
    }
}
