//! Makes the file system object of one tar entry.

use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::path::{clean, display, split};
use super::tree::{Tree, io_error, kind_at, remove_at};
use super::{Deferred, DevicePolicy, UnpackError, Unpacked};
use crate::digest::Digest;
use crate::tar::{Header, Kind, Mtime, TarError};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names that old union file systems kept for themselves.
const UNION_METADATA: &[u8] = b".wh..wh.";
/// The extended attribute by which overlayfs hides what is below a directory.
pub(super) const OPAQUE_XATTR: &str = "trusted.overlay.opaque";

/// Makes files and keeps account of them.
pub(super) struct Builder {
    devices: DevicePolicy,
    deferred: Deferred,
    /// Times of directories, set at the end: filling a directory changes its time.
    directory_times: Vec<(PathBuf, Mtime)>,
    size: u64,
    inodes: u64,
    root_opaque: bool,
}

impl Builder {
    pub(super) fn new(devices: DevicePolicy) -> Self {
        Self {
            devices,
            deferred: Deferred::default(),
            directory_times: Vec::new(),
            size: 0,
            inodes: 0,
            root_opaque: false,
        }
    }

    /// Makes what `header` describes.
    pub(super) fn add(
        &mut self,
        tree: &mut Tree,
        header: &Header,
        data: &mut impl BufRead,
    ) -> Result<(), UnpackError> {
        let path = clean(&header.path)?;
        let Some((parent, name)) = split(&path) else {
            return self.root(tree, header);
        };
        let bytes = name.as_bytes();
        if bytes.starts_with(WHITEOUT) {
            return self.whiteout(tree, &path, parent, bytes);
        }
        self.inodes += 1;
        match header.kind {
            Kind::Directory => self.directory(tree, &path, parent, name, header),
            Kind::File => self.file(tree, &path, parent, name, header, data),
            Kind::HardLink => self.hard_link(tree, &path, parent, name, header),
            Kind::Symlink => self.symlink(tree, &path, parent, name, header),
            Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => self.node(tree, &path, parent, name, header),
        }
    }

    /// Sets what could not be set while the tree was being filled.
    pub(super) fn finish(mut self, tree: &Tree, diff_id: Digest) -> Result<Unpacked, UnpackError> {
        for (path, mtime) in self.directory_times.drain(..).rev() {
            match tree.open_dir(&path) {
                Ok(fd) => {
                    rustix::fs::futimens(&fd, &times(mtime)).map_err(io_error("set times of", &path))?
                }
                // Replaced by a later entry.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(io_error("open directory", &path)(error)),
            }
        }
        let deferred = &mut self.deferred;
        deferred.directories.retain(|path| tree.open_dir(path).is_ok());
        Ok(Unpacked {
            diff_id,
            blob: diff_id,
            blob_size: 0,
            size: self.size,
            inodes: self.inodes,
            root_opaque: self.root_opaque,
            deferred: self.deferred,
        })
    }

    fn root(&mut self, tree: &Tree, header: &Header) -> Result<(), UnpackError> {
        if header.kind != Kind::Directory {
            return Err(UnpackError::Path {
                path: display(&header.path),
                reason: "is the root but no directory",
            });
        }
        set_attributes(tree.root(), header, Path::new("."))?;
        self.directory_times.push((PathBuf::new(), header.mtime));
        Ok(())
    }

    fn whiteout(
        &mut self,
        tree: &mut Tree,
        path: &Path,
        parent: &Path,
        name: &[u8],
    ) -> Result<(), UnpackError> {
        if name == OPAQUE {
            if parent.as_os_str().is_empty() {
                self.root_opaque = true;
                return Ok(());
            }
            let dir = tree.parent(parent, &mut self.deferred.directories)?;
            return set_opaque(dir, parent);
        }
        if name.starts_with(UNION_METADATA) {
            return Ok(());
        }
        let hidden = OsStr::from_bytes(&name[WHITEOUT.len()..]);
        if matches!(hidden.as_bytes(), b"" | b"." | b"..") {
            return Err(UnpackError::Path {
                path: path.to_string_lossy().into_owned(),
                reason: "hides no file name",
            });
        }
        let dir = tree.parent(parent, &mut self.deferred.directories)?;
        match kind_at(dir, hidden).map_err(io_error("look up", path))? {
            // The layer removes what was below and puts its own in its place.
            Some((FileType::Directory, _)) => {
                let fd = open_child_dir(dir, hidden).map_err(io_error("open directory", path))?;
                set_opaque(fd.as_fd(), path)
            }
            Some(_) => Ok(()),
            None => {
                self.inodes += 1;
                rustix::fs::mknodat(dir, hidden, FileType::CharacterDevice, Mode::empty(), 0)
                    .map_err(io_error("make whiteout", path))
            }
        }
    }

    fn directory(
        &mut self,
        tree: &mut Tree,
        path: &Path,
        parent: &Path,
        name: &OsStr,
        header: &Header,
    ) -> Result<(), UnpackError> {
        let dir = tree.parent(parent, &mut self.deferred.directories)?;
        let before = kind_at(dir, name).map_err(io_error("look up", path))?;
        if !matches!(before, Some((FileType::Directory, _))) {
            if before.is_some() {
                remove_at(dir, name).map_err(io_error("replace", path))?;
            }
            rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700))
                .map_err(io_error("make directory", path))?;
        }
        let fd = open_child_dir(dir, name).map_err(io_error("open directory", path))?;
        if matches!(before, Some((FileType::CharacterDevice, 0))) {
            set_opaque(fd.as_fd(), path)?;
        }
        set_attributes(fd.as_fd(), header, path)?;
        self.directory_times.push((path.to_owned(), header.mtime));
        self.deferred.directories.retain(|deferred| deferred != path);
        if before.is_some() {
            tree.forget();
        }
        Ok(())
    }

    fn file(
        &mut self,
        tree: &mut Tree,
        path: &Path,
        parent: &Path,
        name: &OsStr,
        header: &Header,
        data: &mut impl BufRead,
    ) -> Result<(), UnpackError> {
        let (fd, replaced) = {
            let dir = tree.parent(parent, &mut self.deferred.directories)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = || rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600));
            match open() {
                Err(Errno::EXIST) => {
                    remove_at(dir, name).map_err(io_error("replace", path))?;
                    (open().map_err(io_error("create", path))?, true)
                }
                other => (other.map_err(io_error("create", path))?, false),
            }
        };
        if replaced {
            tree.forget();
        }
        let mut file = std::fs::File::from(fd);
        loop {
            let chunk = data.fill_buf().map_err(|error| UnpackError::Tar(TarError::Read(error)))?;
            if chunk.is_empty() {
                break;
            }
            let length = chunk.len();
            file.write_all(chunk).map_err(|source| UnpackError::Io {
                action: "write",
                path: path.to_owned(),
                source,
            })?;
            data.consume(length);
        }
        self.size += header.size;
        set_attributes(file.as_fd(), header, path)?;
        rustix::fs::futimens(&file, &times(header.mtime)).map_err(io_error("set times of", path))
    }

    fn hard_link(
        &mut self,
        tree: &mut Tree,
        path: &Path,
        parent: &Path,
        name: &OsStr,
        header: &Header,
    ) -> Result<(), UnpackError> {
        let refuse =
            |reason| UnpackError::Link { path: display(&header.path), target: display(&header.link), reason };
        let target = clean(&header.link)?;
        let Some((target_parent, target_name)) = split(&target) else {
            return Err(refuse("target is the root"));
        };
        if target_name.as_bytes().starts_with(WHITEOUT) {
            return Err(refuse("target is a whiteout"));
        }
        if target == path {
            return Err(refuse("target is the link itself"));
        }
        let found = match tree.open_dir(target_parent) {
            Ok(fd) => {
                kind_at(fd.as_fd(), target_name).map_err(io_error("look up", &target))?.map(|kind| (fd, kind))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(error) => return Err(io_error("open directory", target_parent)(error)),
        };
        let dir = tree.parent(parent, &mut self.deferred.directories)?;
        match found {
            Some((_, (FileType::Directory, _))) => return Err(refuse("target is a directory")),
            Some((_, (FileType::CharacterDevice, 0))) => {
                return Err(refuse("target was removed by this layer"));
            }
            Some((from, _)) => {
                if kind_at(dir, name).map_err(io_error("look up", path))?.is_some() {
                    remove_at(dir, name).map_err(io_error("replace", path))?;
                }
                rustix::fs::linkat(&from, target_name, dir, name, AtFlags::empty())
                    .map_err(io_error("link", path))?;
                tree.forget();
            }
            None => self.deferred.links.push((path.to_owned(), target)),
        }
        Ok(())
    }

    fn symlink(
        &mut self,
        tree: &mut Tree,
        path: &Path,
        parent: &Path,
        name: &OsStr,
        header: &Header,
    ) -> Result<(), UnpackError> {
        let dir = tree.parent(parent, &mut self.deferred.directories)?;
        let make = || rustix::fs::symlinkat(OsStr::from_bytes(&header.link), dir, name);
        match make() {
            Err(Errno::EXIST) => {
                remove_at(dir, name).map_err(io_error("replace", path))?;
                make().map_err(io_error("make link", path))?;
            }
            other => other.map_err(io_error("make link", path))?,
        }
        set_owner_and_times(dir, name, header, path)?;
        tree.forget();
        Ok(())
    }

    fn node(
        &mut self,
        tree: &mut Tree,
        path: &Path,
        parent: &Path,
        name: &OsStr,
        header: &Header,
    ) -> Result<(), UnpackError> {
        let kind = match header.kind {
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
            _ => FileType::Fifo,
        };
        if kind != FileType::Fifo {
            match self.devices {
                DevicePolicy::Create => {}
                DevicePolicy::Skip => return Ok(()),
                DevicePolicy::Refuse => return Err(UnpackError::Device { path: display(&header.path) }),
            }
        }
        let dir = tree.parent(parent, &mut self.deferred.directories)?;
        if kind_at(dir, name).map_err(io_error("look up", path))?.is_some() {
            remove_at(dir, name).map_err(io_error("replace", path))?;
        }
        let device = rustix::fs::makedev(header.device.0, header.device.1);
        rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(0o600), device)
            .map_err(io_error("make node", path))?;
        set_owner_and_times(dir, name, header, path)?;
        rustix::fs::chmodat(dir, name, Mode::from_raw_mode(header.mode), AtFlags::empty())
            .map_err(io_error("set mode of", path))?;
        tree.forget();
        Ok(())
    }
}

fn open_child_dir(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

fn set_opaque(dir: BorrowedFd<'_>, path: &Path) -> Result<(), UnpackError> {
    rustix::fs::fsetxattr(dir, OPAQUE_XATTR, b"y", XattrFlags::empty()).map_err(io_error("mark opaque", path))
}

/// Owner first: changing it clears set-id bits and capabilities.
fn set_attributes(fd: BorrowedFd<'_>, header: &Header, path: &Path) -> Result<(), UnpackError> {
    let (uid, gid) = (Uid::from_raw(header.uid), Gid::from_raw(header.gid));
    rustix::fs::fchown(fd, Some(uid), Some(gid)).map_err(io_error("set owner of", path))?;
    rustix::fs::fchmod(fd, Mode::from_raw_mode(header.mode)).map_err(io_error("set mode of", path))?;
    for (name, value) in &header.xattrs {
        if !is_wanted(name) {
            continue;
        }
        match rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty()) {
            // A file system without the attribute's kind is no reason to refuse the image.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(io_error("set extended attribute of", path)(error)),
        }
    }
    Ok(())
}

/// Attributes of users, capabilities and access lists; never those that steer overlayfs.
fn is_wanted(name: &[u8]) -> bool {
    (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
        || name == b"security.capability"
        || name.starts_with(b"system.posix_acl_")
}

fn set_owner_and_times(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    header: &Header,
    path: &Path,
) -> Result<(), UnpackError> {
    let (uid, gid) = (Uid::from_raw(header.uid), Gid::from_raw(header.gid));
    rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(io_error("set owner of", path))?;
    rustix::fs::utimensat(dir, name, &times(header.mtime), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(io_error("set times of", path))
}

fn times(mtime: Mtime) -> Timestamps {
    let at = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
    Timestamps { last_access: at, last_modification: at }
}
