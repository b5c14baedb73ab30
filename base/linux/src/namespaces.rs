//! Pins of namespaces: made on a thread, kept as files.
//!
//! A pod's network, IPC and host name live as long as the files do; no process is needed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::mount;
use crate::sysctl::{self, Namespace};

/// Which namespaces to make, and what to set in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinRequest {
    /// A network of its own.
    pub net: bool,
    /// System V IPC and message queues of its own.
    pub ipc: bool,
    /// A host name of its own.
    pub uts: bool,
    /// The host name; needs `uts`.
    pub hostname: Option<String>,
    /// Sysctls, with dots or slashes, written inside the new namespaces.
    pub sysctls: Vec<(String, String)>,
    /// Maps of a new user namespace that owns the others.
    pub userns: Option<UserMaps>,
}

/// Maps of a user namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserMaps {
    /// Users.
    pub uids: Vec<IdMap>,
    /// Groups.
    pub gids: Vec<IdMap>,
}

/// One range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdMap {
    /// First id inside.
    pub container: u32,
    /// First id outside.
    pub host: u32,
    /// How many.
    pub length: u32,
}

/// Files that keep namespaces alive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    /// The network.
    pub net: Option<PathBuf>,
    /// IPC.
    pub ipc: Option<PathBuf>,
    /// The host name.
    pub uts: Option<PathBuf>,
    /// The user namespace.
    pub user: Option<PathBuf>,
}

/// Why namespaces could not be made or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("{attempt} {path:?}")]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// On which file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kernel did not make the namespaces.
    #[error("make new namespaces ({flags:#x})")]
    Unshare {
        /// `CLONE_NEW*`.
        flags: i32,
        /// The cause.
        source: io::Error,
    },
    /// The host name was refused.
    #[error("set the host name {name:?}")]
    Hostname {
        /// The name.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// A sysctl was refused.
    #[error("set sysctl {name:?} to {value:?}")]
    Sysctl {
        /// Its name.
        name: String,
        /// The value.
        value: String,
        /// The cause.
        source: io::Error,
    },
    /// A sysctl that belongs to the machine, or to a namespace that is not made here.
    #[error("sysctl {name:?} is not in a separate kernel namespace")]
    HostSysctl {
        /// Its name.
        name: String,
    },
    /// A namespace could not be bound to its file.
    #[error(transparent)]
    Mount(#[from] mount::Error),
    /// The thread could not be started, or panicked.
    #[error("run the thread that makes namespaces")]
    Thread(#[source] io::Error),
}

const KINDS: [(&str, i32); 4] = [
    ("user", libc::CLONE_NEWUSER),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
];

impl PinRequest {
    fn flags(&self) -> i32 {
        let wanted = [self.userns.is_some(), self.net, self.ipc, self.uts];
        KINDS.iter().zip(wanted).filter(|(_, wanted)| *wanted).fold(0, |flags, ((_, flag), _)| flags | flag)
    }
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { attempt, path, source }
}

/// Makes new namespaces and binds each to a file in `dir` (`net`, `ipc`, `uts`, `user`). On an
/// error nothing stays.
pub fn pin(dir: &Path, req: &PinRequest) -> Result<Pins, Error> {
    for (name, _) in &req.sysctls {
        sysctl_file(name, req)?;
    }
    fs::create_dir_all(dir).map_err(io_error("make folder", dir))?;
    let flags = req.flags();
    for (name, flag) in KINDS {
        if flags & flag != 0 {
            let file = dir.join(name);
            fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&file)
                .map_err(io_error("make file", &file))?;
        }
    }
    let made = if req.userns.is_some() { user::make(dir, req, flags) } else { on_thread(dir, req, flags) };
    if let Err(error) = made {
        // Ignored: the first error is the one that explains; a leftover is found by the sweep.
        unpin(dir).ok();
        return Err(error);
    }
    let path = |at: usize| (flags & KINDS[at].1 != 0).then(|| dir.join(KINDS[at].0));
    Ok(Pins { user: path(0), net: path(1), ipc: path(2), uts: path(3) })
}

fn on_thread(dir: &Path, req: &PinRequest, flags: i32) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let work = || {
            // SAFETY: these kinds belong to the calling thread alone, which ends right after.
            if unsafe { libc::unshare(flags) } != 0 {
                return Err(Error::Unshare { flags, source: io::Error::last_os_error() });
            }
            settle(req)?;
            bind_all(dir, flags, Path::new("/proc/thread-self/ns"))
        };
        let thread = std::thread::Builder::new()
            .name("namespace-pin".to_owned())
            .spawn_scoped(scope, work)
            .map_err(Error::Thread)?;
        thread.join().unwrap_or_else(|_| Err(Error::Thread(io::Error::other("it panicked"))))
    })
}

/// Sets what belongs into the new namespaces; runs inside them.
fn settle(req: &PinRequest) -> Result<(), Error> {
    if let (true, Some(name)) = (req.uts, &req.hostname) {
        rustix::system::sethostname(name.as_bytes())
            .map_err(|source| Error::Hostname { name: name.clone(), source: source.into() })?;
    }
    for (name, value) in &req.sysctls {
        let refused = |source| Error::Sysctl { name: name.clone(), value: value.clone(), source };
        fs::write(sysctl_file(name, req)?, value).map_err(refused)?;
    }
    Ok(())
}

/// The file of a sysctl, which must belong to a namespace that the request makes.
fn sysctl_file(name: &str, req: &PinRequest) -> Result<PathBuf, Error> {
    let own = |kind: &Namespace| match kind {
        Namespace::Net => req.net,
        Namespace::Ipc => req.ipc,
    };
    let (_, key) = sysctl::namespaced(name)
        .filter(|(kind, _)| own(kind))
        .ok_or_else(|| Error::HostSysctl { name: name.to_owned() })?;
    Ok(Path::new("/proc/sys").join(key))
}

fn bind_all(dir: &Path, flags: i32, from: &Path) -> Result<(), Error> {
    for (name, flag) in KINDS {
        if flags & flag != 0 {
            let target = dir.join(name);
            let tree = mount::detached(&from.join(name), false)?;
            mount::attach(&tree, &target)?;
            // Ignored: where the folder is shared, the copy elsewhere goes away with this one.
            mount::make_private(&target).ok();
        }
    }
    Ok(())
}

/// Lets the namespaces pinned in `dir` go and removes the files. What is not there is no error.
pub fn unpin(dir: &Path) -> Result<(), Error> {
    for (name, _) in KINDS {
        let file = dir.join(name);
        while mount::detach(&file)? {}
        match fs::remove_file(&file) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("remove", &file)(error)),
        }
    }
    Ok(())
}

/// Tries whether pods with user namespaces can run here: makes one, and maps the ids of a mount of `folder` through it.
///
/// File systems learned this one by one: <https://man7.org/linux/man-pages/man2/mount_setattr.2.html>.
pub fn try_mapped_mount(folder: &Path) -> Result<(), Error> {
    let only = || vec![IdMap { container: 0, host: 65_536, length: 65_536 }];
    let tree = mount::detached(folder, false)?;
    user::with(&UserMaps { uids: only(), gids: only() }, |namespace| {
        mount::map_ids(&tree, namespace).map_err(io_error("map the ids of a mount of", folder))
    })
}

/// Namespaces owned by a user namespace: a process must make them, as a thread of ours may not
/// change its user namespace.
mod user {
    use super::{Error, IdMap, PinRequest, UserMaps, bind_all, io_error, settle};
    use std::fs;
    use std::io::{self, Read, Write};
    use std::path::{Path, PathBuf};

    /// Forks a child into the new namespaces, writes its maps, lets it settle and binds them.
    pub(super) fn make(dir: &Path, req: &PinRequest, flags: i32) -> Result<(), Error> {
        let maps = req.userns.clone().unwrap_or_default();
        let (go_read, mut go_write) = io::pipe().map_err(Error::Thread)?;
        let mut args = clone_args(flags);
        // SAFETY: the child makes only the raw calls of `child` and never returns.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
        if pid < 0 {
            return Err(Error::Unshare { flags, source: io::Error::last_os_error() });
        }
        if pid == 0 {
            drop(go_write);
            wait_forever(go_read);
        }
        drop(go_read);
        let outcome = from_outside(dir, req, flags, pid, &maps);
        // Ignored: the child ends at the end of the pipe in any case.
        go_write.write_all(b".").ok();
        drop(go_write);
        let mut status = 0;
        // SAFETY: our own child, reaped exactly once.
        unsafe { libc::waitpid(i32::try_from(pid).unwrap_or(-1), &raw mut status, 0) };
        outcome
    }

    /// Lends a user namespace with these maps, which ends with the call.
    pub(super) fn with(
        maps: &UserMaps,
        work: impl FnOnce(&fs::File) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (go_read, go_write) = io::pipe().map_err(Error::Thread)?;
        let mut args = clone_args(libc::CLONE_NEWUSER);
        // SAFETY: the child makes only the raw calls of `wait_forever` and never returns.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
        if pid < 0 {
            return Err(Error::Unshare { flags: libc::CLONE_NEWUSER, source: io::Error::last_os_error() });
        }
        if pid == 0 {
            drop(go_write);
            wait_forever(go_read);
        }
        drop(go_read);
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let lent = write_map(&proc.join("uid_map"), &maps.uids)
            .and_then(|()| write_map(&proc.join("gid_map"), &maps.gids))
            .and_then(|()| {
                let file = proc.join("ns/user");
                fs::File::open(&file).map_err(io_error("open", &file))
            });
        let outcome = lent.and_then(|namespace| work(&namespace));
        // The child ends at the end of the pipe.
        drop(go_write);
        let mut status = 0;
        // SAFETY: our own child, reaped exactly once.
        unsafe { libc::waitpid(i32::try_from(pid).unwrap_or(-1), &raw mut status, 0) };
        outcome
    }

    fn clone_args(flags: i32) -> libc::clone_args {
        // SAFETY: all zeros is a valid value of this plain struct.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.flags = u64::from(flags.cast_unsigned());
        args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        args
    }

    fn wait_forever(mut go: io::PipeReader) -> ! {
        let mut byte = [0];
        // Ignored: whatever ends the wait ends the child.
        go.read_exact(&mut byte).ok();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(0) }
    }

    fn from_outside(
        dir: &Path,
        req: &PinRequest,
        flags: i32,
        pid: i64,
        maps: &UserMaps,
    ) -> Result<(), Error> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        write_map(&proc.join("uid_map"), &maps.uids)?;
        write_map(&proc.join("gid_map"), &maps.gids)?;
        bind_all(dir, flags, &proc.join("ns"))?;
        if req.hostname.is_none() && req.sysctls.is_empty() {
            return Ok(());
        }
        // A thread of ours may enter everything but the user namespace, and needs no more.
        let ns = proc.join("ns");
        let files: Vec<_> = ["net", "ipc", "uts"]
            .iter()
            .zip([req.net, req.ipc, req.uts])
            .filter(|(_, wanted)| *wanted)
            .map(|(name, _)| fs::File::open(ns.join(name)).map_err(io_error("open", &ns.join(name))))
            .collect::<Result<_, _>>()?;
        std::thread::scope(|scope| {
            let work = || {
                for file in &files {
                    rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(file), None)
                        .map_err(|e| Error::Unshare { flags, source: e.into() })?;
                }
                settle(req)
            };
            let thread = std::thread::Builder::new()
                .name("namespace-pin".to_owned())
                .spawn_scoped(scope, work)
                .map_err(Error::Thread)?;
            thread.join().unwrap_or_else(|_| Err(Error::Thread(io::Error::other("it panicked"))))
        })
    }

    fn write_map(file: &Path, maps: &[IdMap]) -> Result<(), Error> {
        let lines: String =
            maps.iter().map(|m| format!("{} {} {}\n", m.container, m.host, m.length)).collect();
        fs::write(file, lines).map_err(io_error("write", file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn pinned_namespaces_differ_from_ours_and_vanish_when_unpinned() {
        let dir = tempfile::tempdir().unwrap();
        let req = PinRequest {
            net: true,
            ipc: true,
            uts: true,
            hostname: Some("pinned".to_owned()),
            sysctls: vec![("net.ipv4.ip_forward".to_owned(), "1".to_owned())],
            ..PinRequest::default()
        };
        let pins = pin(dir.path(), &req).unwrap();
        for (file, kind) in [(pins.net, "net"), (pins.ipc, "ipc"), (pins.uts, "uts")] {
            assert_ne!(inode(&file.unwrap()), inode(&Path::new("/proc/self/ns").join(kind)));
        }
        assert_ne!(rustix::system::uname().nodename().to_bytes(), b"pinned");
        unpin(dir.path()).unwrap();
        unpin(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_can_be_mapped_is_told_from_what_cannot() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        try_mapped_mount(dir.path()).unwrap();
        assert!(try_mapped_mount(Path::new("/proc")).is_err(), "the kernel maps no ids of proc");
    }

    #[test]
    fn a_refused_sysctl_leaves_no_pin_behind() {
        let dir = tempfile::tempdir().unwrap();
        let sysctls = vec![("net.no.such".to_owned(), "1".to_owned())];
        let req = PinRequest { net: true, sysctls, ..PinRequest::default() };
        let refused = pin(dir.path(), &req);
        assert!(matches!(refused, Err(Error::Sysctl { .. })), "{refused:?}");
        assert!(mount::mounts_under(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn a_sysctl_of_the_hosts_is_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let before = fs::read_to_string("/proc/sys/kernel/shmmni").unwrap();
        let forward = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        let net = PinRequest { net: true, ..PinRequest::default() };
        let ipc = PinRequest { ipc: true, ..PinRequest::default() };
        for (req, name) in [
            (&net, "kernel.core_pattern"),
            (&net, "kernel/shmmni"),
            (&net, "net/../kernel/shmmni"),
            (&ipc, "net/ipv4/ip_forward"),
            (&ipc, "net.ipv4.ip_forward"),
            (&ipc, "kernel.hostname"),
        ] {
            let sysctls = vec![(name.to_owned(), "3".to_owned())];
            let refused = pin(dir.path(), &PinRequest { sysctls, ..req.clone() });
            assert!(matches!(refused, Err(Error::HostSysctl { .. })), "{name}: {refused:?}");
        }
        assert_eq!(fs::read_to_string("/proc/sys/kernel/shmmni").unwrap(), before);
        assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap(), forward);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let sysctls = vec![("kernel/shmmni".to_owned(), "4095".to_owned())];
        pin(dir.path(), &PinRequest { sysctls, ..ipc }).unwrap();
        unpin(dir.path()).unwrap();
        assert_eq!(fs::read_to_string("/proc/sys/kernel/shmmni").unwrap(), before);
    }

    #[test]
    fn namespaces_of_a_user_namespace_belong_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let map = vec![IdMap { container: 0, host: 100_000, length: 65_536 }];
        let userns = Some(UserMaps { uids: map.clone(), gids: map });
        let hostname = Some("mapped".to_owned());
        let req = PinRequest { net: true, uts: true, hostname, userns, ..PinRequest::default() };
        let pins = pin(dir.path(), &req).unwrap();
        assert_ne!(inode(&pins.user.unwrap()), inode(Path::new("/proc/self/ns/user")));
        unpin(dir.path()).unwrap();
        assert!(mount::mounts_under(dir.path()).unwrap().is_empty());
    }
}
