//! A network namespace for the calling thread: nothing in it but loopback, no route to anywhere.
//!
//! Processes that the thread starts inherit it, so a whole node and its clients live there and it is gone with them.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Folders that tests of this process have mounted over: how many do, and whether the first of them made the folder.
static OWN_FOLDERS: Mutex<BTreeMap<PathBuf, (usize, bool)>> = Mutex::new(BTreeMap::new());

/// Moves the calling thread into a new network namespace with loopback up.
pub fn isolate() -> io::Result<()> {
    // SAFETY: unshare takes no pointers; it changes only the calling thread's network namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    loopback_up()
}

/// An empty folder of the calling thread's own, and of the processes that it starts, at a path that programs insist on.
pub struct OwnFolder {
    path: PathBuf,
}

impl OwnFolder {
    /// Moves the calling thread into a mount namespace of its own, with an empty folder at the path.
    pub fn at(path: &Path) -> io::Result<OwnFolder> {
        // SAFETY: unshare takes no pointers; it changes only the calling thread's mount namespace, root and working folder.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let everywhere =
            rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", everywhere)?;
        let mut folders = OWN_FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        let made = !path.exists();
        fs::create_dir_all(path)?;
        podwire_linux::mount::tmpfs(path, 64 << 20, 0o755).map_err(io::Error::other)?;
        folders.entry(path.to_owned()).or_insert((0, made)).0 += 1;
        Ok(OwnFolder { path: path.to_owned() })
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // Ignored: the namespace takes the mount with it.
        podwire_linux::mount::detach(&self.path).ok();
        let mut folders = OWN_FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((users, made)) = folders.get_mut(&self.path) else { return };
        *users -= 1;
        // A folder that is removed takes what is mounted on it in other namespaces along: the last one removes it.
        if *users == 0 {
            if *made {
                // Ignored: who put something there meanwhile keeps it.
                fs::remove_dir(&self.path).ok();
            }
            folders.remove(&self.path);
        }
    }
}

fn loopback_up() -> io::Result<()> {
    // SAFETY: a plain socket call; the descriptor is owned below.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `raw` was just opened and nobody else owns it.
    let socket = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(raw) };
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
    // SAFETY: SIOCSIFFLAGS reads the ifreq that outlives the call.
    let done = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, &request) };
    if done != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
