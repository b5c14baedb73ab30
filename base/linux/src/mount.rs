//! Mounts through the new mount API, and what is mounted now.

pub mod layers;

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub use self::layers::{Handing, Overlay, overlay};

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree,
    unmount,
};

/// Why a mount could not be changed or read.
#[derive(Debug, thiserror::Error)]
#[error("{attempt} {path:?}")]
pub struct Error {
    /// What was tried.
    pub attempt: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

fn error<E: Into<io::Error>>(attempt: &'static str, path: &Path) -> impl FnOnce(E) -> Error {
    let path = path.to_owned();
    move |source| Error { attempt, path, source: source.into() }
}

/// A tmpfs on `target` of at most `size` bytes whose root has `mode`.
pub fn tmpfs(target: &Path, size: u64, mode: u32) -> Result<(), Error> {
    let tmpfs = new_tmpfs(size, mode).map_err(error("make a tmpfs for", target))?;
    attach(&tmpfs, target)
}

fn new_tmpfs(size: u64, mode: u32) -> io::Result<OwnedFd> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "source", "tmpfs")?;
    if size > 0 {
        fsconfig_set_string(&fs, "size", size.to_string())?;
    }
    fsconfig_set_string(&fs, "mode", format!("{mode:o}"))?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A detached copy of the tree at `source`, mounted nowhere yet.
pub fn detached(source: &Path, recursive: bool) -> Result<OwnedFd, Error> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, source, flags).map_err(error("copy the mount of", source))
}

/// Mounts a detached tree on `target`.
pub fn attach(tree: &OwnedFd, target: &Path) -> Result<(), Error> {
    move_mount(tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(error("mount on", target))
}

/// Mounts a detached tree on what is open as `target`, whatever has its name by now.
pub fn attach_at(tree: &OwnedFd, target: impl AsFd) -> Result<(), Error> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", target, "", flags).map_err(error("mount on", Path::new("an open place")))
}

/// A new tmpfs on the open folder `target`.
pub fn tmpfs_at(target: impl AsFd, size: u64, mode: u32) -> Result<(), Error> {
    let tree = new_tmpfs(size, mode).map_err(error("make a tmpfs for", Path::new("an open place")))?;
    attach_at(&tree, target)
}

/// Shows the tree at `source` also at `target`.
pub fn bind(source: &Path, target: &Path, readonly: bool) -> Result<(), Error> {
    let tree = detached(source, true)?;
    if readonly {
        set_readonly(&tree).map_err(error("make read-only the copy of", source))?;
    }
    attach(&tree, target)
}

/// Makes a detached tree, with everything below it, read-only.
pub fn set_readonly(tree: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let attr =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is an empty C string and `attr` outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(&attr),
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Maps the ids of a detached tree through a user namespace.
pub fn map_ids(tree: &OwnedFd, namespace: impl AsFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let userns_fd = u64::try_from(namespace.as_fd().as_raw_fd()).map_err(io::Error::other)?;
    let attr = libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd };
    // SAFETY: the path is an empty C string and `attr` outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&attr),
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps mounts below `target` from travelling to or from other namespaces.
pub fn make_private(target: &Path) -> Result<(), Error> {
    mount_change(target, MountPropagationFlags::PRIVATE).map_err(error("make private", target))
}

/// Takes the topmost mount off `target`, even when busy; false when nothing was mounted there.
pub fn detach(target: &Path) -> Result<bool, Error> {
    match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(false),
        Err(source) => Err(error("unmount", target)(source)),
    }
}

/// Takes off everything mounted at or below `prefix`, deepest first; returns how many.
pub fn detach_all_under(prefix: &Path) -> Result<usize, Error> {
    let mut count = 0;
    for target in mounts_under(prefix)?.iter().rev() {
        if detach(target)? {
            count += 1;
        }
    }
    Ok(count)
}

/// Where something is mounted at or below `prefix`, in the order it was mounted.
pub fn mounts_under(prefix: &Path) -> Result<Vec<PathBuf>, Error> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read(path).map_err(error("read", path))?;
    let mounts = parse_mountinfo(&String::from_utf8_lossy(&text));
    Ok(mounts.into_iter().map(|m| m.target).filter(|t| t.starts_with(prefix)).collect())
}

/// One line of a `mountinfo` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The number of the mount it sits on.
    pub parent: u64,
    /// The folder of the file system that is shown.
    pub root: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// Type of the file system.
    pub fstype: String,
    /// Its source.
    pub source: String,
    /// Options of the file system.
    pub super_options: String,
}

/// Reads the text of a `mountinfo` file; lines that make no sense are left out.
pub fn parse_mountinfo(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let mut right = right.split(' ');
    Some(Mount {
        id: left.next()?.parse().ok()?,
        parent: left.next()?.parse().ok()?,
        root: unescape(left.nth(1)?),
        target: unescape(left.next()?),
        options: left.next()?.to_owned(),
        fstype: right.next()?.to_owned(),
        source: right.next()?.to_owned(),
        super_options: right.next().unwrap_or_default().to_owned(),
    })
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal =
            bytes.get(at + 1..at + 4).filter(|d| bytes[at] == b'\\' && d.iter().all(u8::is_ascii_digit));
        let value =
            octal.and_then(|d| d.iter().try_fold(0_u8, |v, d| v.checked_mul(8)?.checked_add(d - b'0')));
        match value {
            Some(value) => {
                out.push(value);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// A path as the kernel takes it.
pub fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error {
        attempt: "use",
        path: path.to_owned(),
        source: io::ErrorKind::InvalidInput.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountinfo_line_with_blanks_and_optional_fields_is_read() {
        let line = r"36 35 98:0 /a\040b /mnt/x\134y rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue";
        let mounts = parse_mountinfo(&format!("nonsense\n{line}\n"));
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].root, Path::new("/a b"));
        assert_eq!(mounts[0].target, Path::new("/mnt/x\\y"));
        assert_eq!(
            (mounts[0].fstype.as_str(), mounts[0].super_options.as_str()),
            ("ext3", "rw,errors=continue")
        );
    }

    #[test]
    fn what_is_mounted_is_seen_and_taken_off_again() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("source"), dir.path().join("target"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&target).unwrap();
        tmpfs(&source, 1 << 20, 0o1777).unwrap();
        fs::write(source.join("file"), "x").unwrap();
        bind(&source, &target, true).unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "x");
        assert!(fs::write(target.join("file"), "y").is_err());
        assert_eq!(mounts_under(dir.path()).unwrap(), [source.clone(), target.clone()]);
        assert_eq!(detach_all_under(dir.path()).unwrap(), 2);
        assert!(!detach(&target).unwrap());
        assert!(!target.join("file").exists());
    }
}
