//! Work that outlives its process: for a program that only has to answer while the kernel finishes something.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work` in a copy of this process, which has no descriptor open and for which nobody waits.
///
/// Only a process with a single thread is copied: another thread could hold a lock that the copy would wait for in vain.
pub fn run(work: impl FnOnce()) -> io::Result<()> {
    // One folder per thread, beside the usual two.
    if std::fs::metadata("/proc/self/task")?.nlink() != 3 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the process has more than one thread"));
    }
    // SAFETY: there is one thread, the calling one, so that the copy's memory is as whole as the original's.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes no pointers. What owns the descriptors is never used again: the copy only runs `work`, which
            // opens its own, and then ends without dropping anything.
            unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
            let done = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: ends the copy at once, without the exit handlers of the original.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        _ => Ok(()),
    }
}
