//! The directory a layer is unpacked into, and the only door to it.
//!
//! Every lookup goes through `openat2` with RESOLVE_IN_ROOT, so that symbolic links made by the
//! layer itself cannot lead outside.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::UnpackError;

/// An open layer directory.
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory of the last entry: archives list a directory's files together.
    last: Option<(PathBuf, OwnedFd)>,
}

/// How lookups behave: inside the root, never through procfs links or onto other mounts.
const RESOLVE: ResolveFlags =
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> UnpackError {
    move |error| UnpackError::Io { action, path: path.to_owned(), source: error.into() }
}

impl Tree {
    pub(super) fn open(dest: &Path) -> Result<Self, UnpackError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dest, flags, Mode::empty()).map_err(io_error("open", dest))?;
        Ok(Self { root, last: None })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens an existing directory of the layer.
    pub(super) fn open_dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), RESOLVE)
    }

    /// The directory `path`, made with its parents if missing; those made are added to `made`.
    pub(super) fn parent(
        &mut self,
        path: &Path,
        made: &mut Vec<PathBuf>,
    ) -> Result<BorrowedFd<'_>, UnpackError> {
        let known = matches!(&self.last, Some((last, _)) if last == path);
        if !known {
            let fd = match self.open_dir(path) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => self.make_parents(path, made)?,
                Err(error) => return Err(io_error("open directory", path)(error)),
            };
            self.last = Some((path.to_owned(), fd));
        }
        Ok(self.last.as_ref().expect("set above").1.as_fd())
    }

    /// Forgets the cached directory; call after anything but a plain file was put in its place.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    fn make_parents(&self, path: &Path, made: &mut Vec<PathBuf>) -> Result<OwnedFd, UnpackError> {
        let mut so_far = PathBuf::new();
        let mut fd = self.open_dir(&so_far).map_err(io_error("open directory", path))?;
        for part in path.iter() {
            so_far.push(part);
            fd = match self.open_dir(&so_far) {
                Ok(next) => next,
                Err(Errno::NOENT) => {
                    self.make_dir(fd.as_fd(), part, &so_far)?;
                    made.push(so_far.clone());
                    let fd = self.open_dir(&so_far).map_err(io_error("open directory", &so_far))?;
                    // Whatever the daemon's umask is.
                    rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o755))
                        .map_err(io_error("set mode of", &so_far))?;
                    fd
                }
                Err(error) => return Err(io_error("open directory", &so_far)(error)),
            };
        }
        Ok(fd)
    }

    fn make_dir(&self, parent: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(), UnpackError> {
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => Ok(()),
            // A dangling link of the layer stands where a directory is needed.
            Err(Errno::EXIST) => Err(UnpackError::Path {
                path: path.to_string_lossy().into_owned(),
                reason: "lies below a symbolic link that leads nowhere",
            }),
            Err(error) => Err(io_error("make directory", path)(error)),
        }
    }
}

/// The type of `name` in `dir`, if it is there.
pub(super) fn kind_at(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Option<(FileType, u64)>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((FileType::from_raw_mode(stat.st_mode), stat.st_rdev))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes `name` in `dir`, with all below it, never following a link.
pub(super) fn remove_at(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(&fd)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for name in names {
        use std::os::unix::ffi::OsStrExt;
        remove_at(fd.as_fd(), OsStr::from_bytes(name.to_bytes()))?;
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Removes the directory `path` and all below it; one that is not there is fine.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => std::fs::remove_file(path),
        other => other,
    }
}
