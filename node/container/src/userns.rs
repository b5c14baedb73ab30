//! User namespaces as descriptors, for containers and for mapped mounts.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;

use crate::child;
use crate::plan::IdMapPlan;

/// A new user namespace with these maps, kept alive by the descriptor alone.
pub(crate) fn make(uids: &[IdMapPlan], gids: &[IdMapPlan]) -> io::Result<OwnedFd> {
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let flag = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
    let (pid, pidfd) = child::clone_child(flag, None, || child::wait_for_end(&wait, &go))?;
    drop(wait);
    let made = fs::write(format!("/proc/{pid}/uid_map"), text(uids))
        .and_then(|()| fs::write(format!("/proc/{pid}/gid_map"), text(gids)))
        .and_then(|()| File::open(format!("/proc/{pid}/ns/user")));
    drop(go);
    // It ends with the pipe; waiting for it takes microseconds.
    let id = rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd));
    rustix::io::retry_on_intr(|| {
        rustix::process::waitid(id.clone(), rustix::process::WaitIdOptions::EXITED)
    })?;
    Ok(made?.into())
}

fn text(maps: &[IdMapPlan]) -> String {
    maps.iter().map(|m| format!("{} {} {}\n", m.container, m.host, m.length)).collect()
}
