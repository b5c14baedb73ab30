//! A terminal of the container's own, its master handed to the supervisor.

use std::os::fd::RawFd;

use super::place::{self, Kind};
use super::sys::{self, Errno, STRICT};
use super::{At, Child};
use crate::failure::{Failure, Stage};
use crate::request::WindowSize;

const DEVPTS_SUPER_MAGIC: libc::c_long = 0x1cd1;
const TIOCSPTLCK: u64 = 0x4004_5431;
const TIOCGPTPEER: u64 = 0x5441;
const TIOCSWINSZ: u64 = 0x5414;
const TIOCSCTTY: u64 = 0x540e;

/// Where the master goes and how large the terminal is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    pub(crate) socket: RawFd,
    pub(crate) size: WindowSize,
}

impl Child<'_> {
    /// Makes a terminal in the container's own `/dev/pts` and returns its other side.
    pub(super) fn terminal(&self, terminal: Terminal, console: bool, uid: u32) -> Result<RawFd, Failure> {
        self.make(terminal, console, uid).at(Stage::Terminal)
    }

    fn make(&self, terminal: Terminal, console: bool, uid: u32) -> Result<RawFd, Errno> {
        let flags = libc::O_RDWR | libc::O_NOCTTY;
        let master = open_ptmx(flags)?;
        let unlock = 0_i32;
        sys::ioctl(master, TIOCSPTLCK, (&raw const unlock) as u64)?;
        let slave = sys::ioctl(master, TIOCGPTPEER, u64::from((flags | libc::O_CLOEXEC).cast_unsigned()))?;
        let slave = RawFd::try_from(slave).unwrap_or(-1);
        let size = libc::winsize {
            ws_row: terminal.size.height,
            ws_col: terminal.size.width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        sys::ioctl(slave, TIOCSWINSZ, (&raw const size) as u64)?;
        sys::chown_fd(slave, uid, u32::MAX)?;
        if console {
            show_console(slave)?;
        }
        sys::send_fd(terminal.socket, master)?;
        sys::close(master);
        sys::ioctl(slave, TIOCSCTTY, 0)?;
        Ok(slave)
    }
}

/// Opens the multiplexer of the container's own devpts, where only the kernel makes files.
fn open_ptmx(flags: i32) -> Result<RawFd, Errno> {
    let folder = sys::open_how(libc::AT_FDCWD, c"dev/pts", libc::O_PATH | libc::O_DIRECTORY, STRICT)?;
    if sys::fs_of(folder)? != DEVPTS_SUPER_MAGIC {
        return Err(libc::ENODEV);
    }
    let master = sys::open_how(folder, c"ptmx", flags, STRICT)?;
    sys::close(folder);
    Ok(master)
}

/// Shows a terminal as `/dev/console`.
fn show_console(slave: RawFd) -> Result<(), Errno> {
    let place = match place::real(libc::AT_FDCWD, c"dev/console", Kind::File) {
        // Where /dev is not ours to write to, there is no console, and nobody needs it.
        Err(libc::EROFS | libc::EACCES) => return Ok(()),
        other => other?,
    };
    let tree = sys::open_tree_of(slave)?;
    sys::move_mount(tree, place)?;
    sys::close(tree);
    sys::close(place);
    Ok(())
}
