//! Our executable, out of reach of containers.
//!
//! Until execve a container's process still runs our program, and `/proc/<pid>/exe` of it leads to
//! the file on the host: a container that starts a link to `/proc/self/exe` could get hold of it
//! and overwrite it (CVE-2019-5736). Run from a read-only copy of the mount, or where that cannot be
//! had from a sealed copy in memory, it cannot be written. Without either no process is made for anybody.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use podwire_linux::mount;
use rustix::fs::{MemfdFlags, SealFlags};

use super::server::refusal;
use crate::error::RefusalKind;
use crate::protocol::Refusal;

/// Why our executable could not be sealed, if it could not.
static UNSEALED: OnceLock<String> = OnceLock::new();

/// Executes ourselves again from where it cannot be written, unless that has happened. Returns when it has, or with the
/// reason why it cannot be.
pub(super) fn seal() -> io::Result<()> {
    let exe = File::open("/proc/self/exe")?;
    if is_sealed(&exe)? {
        return Ok(());
    }
    let mounted = mount::detached(Path::new("/proc/self/exe"), false)
        .map_err(|e| e.source)
        .and_then(|tree| mount::set_readonly(&tree).map(|()| tree));
    let error = match mounted {
        Ok(tree) => execute(&tree),
        Err(error) => error,
    };
    match copy_to_memory(&exe) {
        Ok(copy) => Err(execute(&copy)),
        Err(second) => Err(io::Error::other(format!("{error}; nor from a copy in memory: {second}"))),
    }
}

/// From now on no process is made: it would still run our program when the container gets hold of it.
pub(super) fn remember_unsealed(error: &io::Error) {
    // Ignored: the first reason is as good as the second.
    UNSEALED.set(error.to_string()).ok();
}

/// Refuses to make a process while our executable is not sealed.
pub(super) fn guard() -> Result<(), Refusal> {
    match UNSEALED.get() {
        None => Ok(()),
        Some(why) => Err(refusal(
            RefusalKind::Setup,
            format!("the supervisor's executable is not sealed against containers: {why}"),
        )),
    }
}

fn is_sealed(exe: &File) -> io::Result<bool> {
    let status = rustix::fs::fstatvfs(exe)?;
    // Only files in memory have seals.
    let seals = rustix::fs::fcntl_get_seals(exe).unwrap_or(SealFlags::empty());
    Ok(status.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) || seals.contains(SealFlags::WRITE))
}

/// A copy that nobody can change any more.
fn copy_to_memory(mut exe: &File) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 know only files in memory that can be executed, and not the word for it.
    let copy = rustix::fs::memfd_create("podwire-supervisor", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("podwire-supervisor", flags))?;
    let mut copy = File::from(copy);
    io::copy(&mut exe, &mut copy)?;
    rustix::fs::fcntl_add_seals(
        &copy,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(copy.into())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_copy_in_memory_is_whole_and_cannot_be_written() {
        let exe = File::open("/proc/self/exe").unwrap();
        assert!(!is_sealed(&exe).unwrap());
        let copy = File::from(copy_to_memory(&exe).unwrap());
        assert_eq!(copy.metadata().unwrap().len(), exe.metadata().unwrap().len());
        assert!(is_sealed(&copy).unwrap());
        assert!((&copy).write_all(b"x").is_err() && copy.set_len(0).is_err());
        let again =
            std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", copy.as_raw_fd()));
        assert!(again.and_then(|mut file| file.write_all(b"x")).is_err());
    }

    #[test]
    fn without_a_seal_no_process_is_made() {
        guard().unwrap();
        remember_unsealed(&io::Error::other("no mounts today"));
        assert!(guard().unwrap_err().message.ends_with("against containers: no mounts today"));
    }
}
