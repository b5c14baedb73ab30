//! The working folder, which must be below the container's root.
//!
//! A path can lead out of the root only by one of procfs' magic links (`/proc/1/root`, `/proc/self/fd/9`). Those are not
//! followed, and afterwards the kernel itself is asked where we are. Comes after the host's descriptors are closed.

use std::os::fd::RawFd;

use super::place::{self, Kind};
use super::sys::{self, Errno, INSIDE};
use super::{At, Child};
use crate::failure::{Failure, Stage};
use crate::prepare::Program;

/// Whether the working folder has been entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Done,
    /// Root may not enter it; perhaps the user may.
    NotYet,
}

impl Child<'_> {
    /// A working folder that the image lacks is made.
    pub(super) fn make_cwd(&self, program: &Program, root: RawFd) -> Result<(), Failure> {
        if program.cwd.to_bytes().len() <= 1 {
            return Ok(());
        }
        match place::inside(root, &program.cwd, Kind::Folder) {
            Ok(folder) => sys::close(folder),
            // Whoever enters it later says so if it matters.
            Err(libc::EACCES) => {}
            Err(errno) => return Err(errno).at(Stage::Cwd),
        }
        Ok(())
    }

    /// Enters the working folder with root's rights; from `/`, before any filter forbids a system call of this.
    pub(super) fn enter_cwd(&self, program: &Program) -> Result<Settled, Failure> {
        match enter(program) {
            Ok(()) => {}
            Err(libc::EACCES) => return Ok(Settled::NotYet),
            Err(errno) => return Err(errno).at(Stage::Cwd),
        }
        below_root().map(|()| Settled::Done)
    }

    pub(super) fn enter_cwd_as_user(&self, program: &Program) -> Result<(), Failure> {
        enter(program).at(Stage::Cwd)?;
        below_root()
    }
}

fn enter(program: &Program) -> Result<(), Errno> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let folder = sys::open_how(libc::AT_FDCWD, &program.cwd, flags, INSIDE)?;
    let entered = sys::fchdir(folder);
    sys::close(folder);
    entered
}

/// The kernel's word on where we are. A folder outside our root is said to be unreachable, a removed one not at all.
/// <https://man7.org/linux/man-pages/man2/getcwd.2.html>, "(unreachable)".
fn below_root() -> Result<(), Failure> {
    let mut path = [0; libc::PATH_MAX as usize];
    sys::getcwd(&mut path).at(Stage::OutsideRoot)?;
    if path[0] == b'/' { Ok(()) } else { Err(libc::EXDEV).at(Stage::OutsideRoot) }
}
