//! Process file descriptors: a process that cannot be mistaken for another.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal};

/// Opens the process `pid`.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Signals the process behind `pidfd`; false when it is gone.
pub fn signal(pidfd: impl AsFd, signal: i32) -> io::Result<bool> {
    let signal = Signal::from_named_raw(signal);
    let Some(signal) = signal else { return Err(io::ErrorKind::InvalidInput.into()) };
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Exit {
    /// From a `wait` status word.
    pub fn from_wait_status(status: i32) -> Exit {
        if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        }
    }

    /// As shells and Kubernetes count: 128 + signal.
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }

    /// The signal that ended it.
    pub fn signal(self) -> Option<i32> {
        match self {
            Exit::Code(_) => None,
            Exit::Signal(signal) => Some(signal),
        }
    }
}

/// Reaps the child behind `pidfd` without waiting; `None` while it runs.
pub fn reap(pidfd: impl AsFd) -> io::Result<Option<Exit>> {
    let id = rustix::process::WaitId::PidFd(pidfd.as_fd());
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOHANG;
    let status = rustix::io::retry_on_intr(|| rustix::process::waitid(id.clone(), options))?;
    Ok(status.map(|status| match status.exit_status() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.terminating_signal().unwrap_or(0)),
    }))
}

/// How a process that is not our child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranger {
    /// So.
    Ended(Exit),
    /// It runs, or its parent has not reaped it; the hang-up of its pidfd tells when it did.
    NotYet,
    /// Nobody will ever know: the kernel keeps no exit codes for strangers (before 6.15), or tells none of its hang-up
    /// either (before 6.13), so that waiting would have no end.
    /// `PIDFD_INFO_EXIT` in <https://github.com/torvalds/linux/blob/v6.15/include/uapi/linux/pidfd.h>.
    Never,
}

/// Asks how the process behind `pidfd` ended, which need not be our child.
pub fn exit_of_stranger(pidfd: impl AsFd) -> Stranger {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: `info` has the size that is encoded in the request.
    let result = unsafe {
        libc::ioctl(pidfd.as_fd().as_raw_fd(), libc::PIDFD_GET_INFO, std::ptr::from_mut(&mut info))
    };
    if result < 0 {
        // Also when it was reaped and nothing was kept.
        return Stranger::Never;
    }
    if info.mask & u64::from(libc::PIDFD_INFO_EXIT) == 0 {
        return Stranger::NotYet;
    }
    Stranger::Ended(Exit::from_wait_status(info.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_reaped_with_its_code_and_only_once() {
        #[allow(clippy::zombie_processes, reason = "reaped through the pidfd")]
        let child = Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pidfd = open(child.id()).unwrap();
        assert!(!matches!(exit_of_stranger(&pidfd), Stranger::Ended(_)), "it may run still");
        let exit = loop {
            if let Some(exit) = reap(&pidfd).unwrap() {
                break exit;
            }
            std::thread::yield_now();
        };
        assert_eq!(exit, Exit::Code(7));
        assert!(reap(&pidfd).is_err());
        assert!(!signal(&pidfd, libc::SIGTERM).unwrap());
        match exit_of_stranger(&pidfd) {
            Stranger::Ended(exit) => assert_eq!(exit, Exit::Code(7)),
            // Kernels before 6.15.
            other => assert_eq!(other, Stranger::Never),
        }
    }
}
