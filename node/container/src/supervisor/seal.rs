//! Our executable, out of reach of containers.
//!
//! Until execve a container's process still runs our program, and `/proc/<pid>/exe` of it leads to
//! the file on the host: a container that starts a link to `/proc/self/exe` could get hold of it
//! and overwrite it (CVE-2019-5736). Run from a read-only copy of the mount, it cannot be written.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use podwire_linux::mount;

/// Executes ourselves again from a read-only mount, unless that has happened. Returns when it has,
/// or with the reason why it cannot be.
pub(super) fn seal() -> io::Result<()> {
    if on_readonly_mount()? {
        return Ok(());
    }
    let tree = mount::detached(Path::new("/proc/self/exe"), false).map_err(|e| e.source)?;
    mount::set_readonly(&tree)?;
    Err(execute(&tree))
}

fn on_readonly_mount() -> io::Result<bool> {
    let exe = File::open("/proc/self/exe")?;
    let status = rustix::fs::fstatvfs(&exe)?;
    Ok(status.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Only returns when it fails.
fn execute(file: &OwnedFd) -> io::Error {
    let texts = |items: Vec<OsString>| -> Result<Vec<CString>, io::Error> {
        let text =
            |item: OsString| CString::new(item.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into());
        items.into_iter().map(text).collect()
    };
    let pairs = std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    let (args, env) = match (texts(std::env::args_os().collect()), texts(pairs.collect())) {
        (Ok(args), Ok(env)) => (args, env),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    let pointers = |items: &[CString]| -> Vec<*const libc::c_char> {
        items.iter().map(|item| item.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(&args), pointers(&env));
    // SAFETY: both arrays end with a null pointer and their strings outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}
