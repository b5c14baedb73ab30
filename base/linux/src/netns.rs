//! Network namespaces: opened by path, recognised, entered by a thread and left again.
//!
//! A namespace belongs to a thread. [`Netns::run`] takes the calling thread in and back out, also when the work panics;
//! another thread would cost two turns of the scheduler. A thread that could not come back would do the host's work in a
//! pod: the process is ended instead.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, fstatfs};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

const NSFS_MAGIC: FsWord = 0x6e73_6673;
const PROC_SUPER_MAGIC: FsWord = 0x9fa0;

/// Why a namespace could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing at the path.
    #[error("no network namespace at {path}")]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// The path is something else.
    #[error("{path} is not a namespace file")]
    NotANamespace {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{attempt} network namespace {path}")]
    Refused {
        /// What was attempted.
        attempt: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
}

/// Device and inode of a namespace: equal exactly when the namespaces are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
}

/// An open network namespace.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Netns {
    /// Opens the namespace at a path, and makes sure that it is one.
    pub fn open(path: &Path) -> Result<Netns, Error> {
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::Absent { path: path.to_owned() },
            _ => Error::Refused { attempt: "open", path: path.to_owned(), source },
        })?;
        let kind = fstatfs(&file).map_err(|source| Error::Refused {
            attempt: "examine",
            path: path.to_owned(),
            source: source.into(),
        })?;
        if kind.f_type != NSFS_MAGIC && kind.f_type != PROC_SUPER_MAGIC {
            return Err(Error::NotANamespace { path: path.to_owned() });
        }
        Ok(Netns { file, path: path.to_owned() })
    }

    /// The calling thread's namespace.
    pub fn current() -> Result<Netns, Error> {
        let path = Path::new("/proc/thread-self/ns/net");
        match of_new_socket() {
            Ok(file) => Ok(Netns { file, path: path.to_owned() }),
            // Not allowed to ask: the file system tells as well.
            Err(_) => Netns::open(path),
        }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which namespace it is.
    pub fn identity(&self) -> Result<Identity, Error> {
        let stat = rustix::fs::fstat(&self.file).map_err(|source| Error::Refused {
            attempt: "examine",
            path: self.path.clone(),
            source: source.into(),
        })?;
        Ok(Identity { dev: stat.st_dev, ino: stat.st_ino })
    }

    /// Runs `work` inside the namespace, on the calling thread, and returns what it returns.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let _back = Inside::enter(self)?;
        Ok(work())
    }

    fn enter(&self) -> rustix::io::Result<()> {
        rustix::thread::move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
    }
}

/// The calling thread is in another namespace until this is dropped.
struct Inside {
    home: Netns,
}

impl Inside {
    fn enter(target: &Netns) -> Result<Inside, Error> {
        let home = Netns::current()?;
        target.enter().map_err(|source| Error::Refused {
            attempt: "enter",
            path: target.path.clone(),
            source: source.into(),
        })?;
        Ok(Inside { home })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.home.enter().is_err() {
            std::process::abort();
        }
    }
}

/// The namespace that sockets of the calling thread are in: it costs a tenth of what the thread's folder in /proc does,
/// all of which the kernel makes for a new process when somebody looks at it.
fn of_new_socket() -> io::Result<File> {
    const SIOCGSKNS: libc::Ioctl = 0x894c;
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: the request takes no argument.
    let fd = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor (close-on-exec) for us, and nobody else knows of it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Runs `work` inside the namespace behind `fd`, on the calling thread.
pub fn run_in<T: Send>(fd: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let file = fd.try_clone_to_owned().map_err(|source| Error::Refused {
        attempt: "duplicate",
        path: PathBuf::from("(descriptor)"),
        source,
    })?;
    Netns { file: File::from(file), path: PathBuf::from("(descriptor)") }.run(work)
}

/// Gives the calling thread a new network namespace of its own and returns it.
///
/// The thread never goes back: call this on a thread made for it.
pub fn unshare() -> Result<Netns, Error> {
    // SAFETY: only the network namespace is unshared, which no Rust code relies on; file descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|source| Error::Refused {
        attempt: "unshare",
        path: PathBuf::from("(new)"),
        source: source.into(),
    })?;
    Netns::current()
}

/// A new network namespace that lives as long as the returned handle.
pub fn create() -> Result<Netns, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns-new".into()).spawn_scoped(scope, unshare);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(source) => {
                Err(Error::Refused { attempt: "start a thread for", path: PathBuf::from("(new)"), source })
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_inside_and_the_caller_stays_outside() {
        let here = Netns::current().and_then(|ns| ns.identity()).expect("own namespace");
        let fresh = create().expect("new namespace");
        let inside =
            fresh.run(|| Netns::current().and_then(|ns| ns.identity())).expect("enter").expect("identity");
        assert_eq!(inside, fresh.identity().expect("identity"));
        assert_ne!(inside, here);
        assert_eq!(Netns::current().and_then(|ns| ns.identity()).expect("own namespace"), here);
    }

    #[test]
    fn a_panic_inside_brings_the_thread_back() {
        let here = Netns::current().and_then(|ns| ns.identity()).expect("own namespace");
        let fresh = create().expect("new namespace");
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fresh.run(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert_eq!(Netns::current().and_then(|ns| ns.identity()).expect("own namespace"), here);
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("file");
        assert!(matches!(Netns::open(file.path()), Err(Error::NotANamespace { .. })));
        assert!(matches!(Netns::open(Path::new("/nonexistent/ns")), Err(Error::Absent { .. })));
    }
}
