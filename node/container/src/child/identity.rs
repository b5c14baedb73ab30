//! Who the process is: limits, user, capabilities, filter, program.

use std::ffi::CStr;

use super::cwd::Settled;
use super::sys::{self, Errno};
use super::{At, Child};
use crate::failure::{Failure, Stage};
use crate::prepare::Program;

const LAST_CAPABILITY: u32 = 63;

impl Child<'_> {
    /// The security label to take on at execve; written while the host's /proc is in sight.
    pub(super) fn label(&self, program: &Program) -> Result<(), Failure> {
        match &program.label {
            Some((file, value)) => sys::write_proc_file(file, value.to_bytes()).at(Stage::Label),
            None => Ok(()),
        }
    }

    /// Badness for the OOM killer; below what we have it needs a right that containers in
    /// containers lack, and then the inherited value stays.
    pub(super) fn oom_score(&self, program: &Program) -> Result<(), Failure> {
        let Some(adj) = &program.oom_score_adj else { return Ok(()) };
        match sys::write_file(c"/proc/self/oom_score_adj", adj.to_bytes()) {
            Ok(()) | Err(libc::EPERM | libc::EACCES) => Ok(()),
            Err(errno) => Err(Failure { stage: Stage::OomScore, errno, index: 0 }),
        }
    }

    pub(super) fn rlimits(&self, program: &Program) -> Result<(), Failure> {
        for (index, limit) in program.rlimits.iter().enumerate() {
            let set = match sys::setrlimit(limit.resource, limit.soft, limit.hard) {
                // Without CAP_SYS_RESOURCE the hard limit cannot rise: go as far as it lets us.
                Err(libc::EPERM) => sys::hard_limit(limit.resource)
                    .and_then(|hard| sys::setrlimit(limit.resource, limit.soft.min(hard), hard)),
                other => other,
            };
            set.at_index(Stage::Rlimit, index)?;
        }
        if let Some(priority) = program.io_priority {
            sys::ioprio_set(priority).at(Stage::Priority)?;
        }
        if let Some(scheduler) = &program.scheduler {
            sys::sched_setattr(scheduler).at(Stage::Priority)?;
        }
        match &program.memory_policy {
            Some(policy) => sys::set_mempolicy(policy.mode, &policy.nodes).at(Stage::MemoryPolicy),
            None => Ok(()),
        }
    }

    /// Everything that cannot be undone, in the one order that works.
    pub(super) fn become_user(&self, program: &Program, settled: Settled) -> Result<(), Failure> {
        if program.no_new_privs {
            sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).at(Stage::NoNewPrivs)?;
        } else {
            // Without no_new_privs a filter needs CAP_SYS_ADMIN, which is about to go.
            self.filter(program)?;
        }
        sys::umask(program.umask);
        if let Some(caps) = &program.caps {
            drop_bounding(caps.bounding).at(Stage::Capabilities)?;
        }
        const KEEP: u64 = 1;
        sys::prctl(libc::PR_SET_KEEPCAPS, KEEP, 0).at(Stage::User)?;
        sys::setgroups(&program.groups).at(Stage::User)?;
        sys::setresgid(program.gid).at(Stage::User)?;
        sys::setresuid(program.uid).at(Stage::User)?;
        if settled == Settled::NotYet {
            // A folder that only this user may enter.
            self.enter_cwd_as_user(program)?;
        }
        if let Some(caps) = &program.caps {
            let own = caps.permitted;
            sys::capset(caps.effective & own, own, caps.inheritable).at(Stage::Capabilities)?;
            raise_ambient(caps.ambient & own & caps.inheritable).at(Stage::Capabilities)?;
        }
        Ok(())
    }

    pub(super) fn filter(&self, program: &Program) -> Result<(), Failure> {
        if program.filter.is_empty() {
            return Ok(());
        }
        sys::seccomp_filter(program.filter_flags, &program.filter).at(Stage::Seccomp)
    }

    /// Tries every candidate; returns only with the error that explains most.
    pub(super) fn execute(&self, program: &Program) -> Failure {
        let mut worst = libc::ENOENT;
        for candidate in &program.candidates {
            let errno = sys::execve(candidate, program.argv.as_ptr(), program.env.as_ptr());
            match errno {
                libc::ENOENT | libc::ENOTDIR => {}
                // A folder, or no permission: another candidate may still do.
                libc::EACCES => worst = if is_folder(candidate) { libc::EISDIR } else { libc::EACCES },
                other => return Failure { stage: Stage::Exec, errno: other, index: 0 },
            }
        }
        if worst == libc::EISDIR && program.candidates.len() > 1 {
            worst = libc::ENOENT;
        }
        Failure { stage: Stage::Exec, errno: worst, index: 0 }
    }
}

fn is_folder(path: &CStr) -> bool {
    match sys::open(path, libc::O_PATH | libc::O_DIRECTORY, 0) {
        Ok(fd) => {
            sys::close(fd);
            true
        }
        Err(_) => false,
    }
}

fn drop_bounding(keep: u64) -> Result<(), Errno> {
    for capability in 0..=LAST_CAPABILITY {
        if keep & 1 << capability != 0 {
            continue;
        }
        match sys::prctl(libc::PR_CAPBSET_DROP, u64::from(capability), 0) {
            Ok(_) => {}
            // The kernel has no capability of this number, so none above either.
            // <https://man7.org/linux/man-pages/man2/PR_CAPBSET_READ.2const.html>.
            Err(libc::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn raise_ambient(ambient: u64) -> Result<(), Errno> {
    const RAISE: u64 = 2;
    const CLEAR_ALL: u64 = 4;
    sys::prctl(libc::PR_CAP_AMBIENT, CLEAR_ALL, 0)?;
    for capability in 0..=LAST_CAPABILITY {
        if ambient & 1 << capability != 0 {
            sys::prctl(libc::PR_CAP_AMBIENT, RAISE, u64::from(capability))?;
        }
    }
    Ok(())
}
