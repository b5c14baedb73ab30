//! Ties up what a layer left open, once its parents are unpacked.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::entry::OPAQUE_XATTR;
use super::path::split;
use super::tree::{Tree, io_error, kind_at, remove_at};
use super::{Deferred, UnpackError};

/// Gives the deferred directories of the layer in `dest` the attributes they have in `parents` (top
/// first), and makes the deferred links from the parents' files.
pub(crate) fn apply_deferred(
    dest: &Path,
    parents: &[PathBuf],
    deferred: &Deferred,
) -> Result<(), UnpackError> {
    let mut tree = Tree::open(dest)?;
    let parents: Vec<Tree> = parents.iter().map(|path| Tree::open(path)).collect::<Result<_, _>>()?;
    let mut deferred = deferred.clone();
    relocate(&mut tree, &parents, &mut deferred)?;
    for path in &deferred.directories {
        if let Some(from) = find_dir(&parents, path)? {
            let to = tree.open_dir(path).map_err(io_error("open directory", path))?;
            copy_attributes(&from, &to).map_err(io_error("copy attributes to", path))?;
        }
    }
    for (path, target) in &deferred.links {
        link(&mut tree, &parents, path, target)?;
    }
    Ok(())
}

/// Moves what lies in deferred directories that are symbolic links in the parents to where the links
/// lead, as unpacking onto the parents would have done; `deferred` then says what is deferred there.
fn relocate(tree: &mut Tree, parents: &[Tree], deferred: &mut Deferred) -> Result<(), UnpackError> {
    let mut queue = std::mem::take(&mut deferred.directories);
    let (mut settled, mut hops) = (Vec::new(), 0);
    while !queue.is_empty() {
        queue.sort_by_key(|path| std::cmp::Reverse(path.iter().count()));
        let path = queue.pop().expect("the queue is not empty");
        let Some(link) = find_link(parents, &path)? else {
            settled.push(path);
            continue;
        };
        let target = target(&path, &link);
        hops += 1;
        if hops > MOST_HOPS || target.starts_with(&path) {
            let reason = "lies below symbolic links that lead in a circle";
            return Err(UnpackError::Path { path: path.to_string_lossy().into_owned(), reason });
        }
        let mut made = Vec::new();
        let to = tree.parent(&target, &mut made)?;
        let to = rustix::io::dup(to).map_err(io_error("open directory", &target))?;
        tree.forget();
        let (parent, name) = split(&path).expect("a deferred directory is not the root");
        let home = tree.open_dir(parent).map_err(io_error("open directory", parent))?;
        merge(&home, name, &to).map_err(io_error("move", &path))?;
        let links = deferred.links.iter_mut().flat_map(|(link, target)| [link, target]);
        for known in queue.iter_mut().chain(links) {
            if let Ok(rest) = known.strip_prefix(&path) {
                *known = target.join(rest);
            }
        }
        queue.extend(made);
    }
    deferred.directories = settled;
    Ok(())
}

/// Links of links are followed this far, as the kernel does.
/// <https://man7.org/linux/man-pages/man7/path_resolution.7.html>.
const MOST_HOPS: usize = 40;

/// What `path` points at in the parents, if it is a symbolic link there.
fn find_link(parents: &[Tree], path: &Path) -> Result<Option<Vec<u8>>, UnpackError> {
    let (dir, name) = split(path).expect("a deferred directory is not the root");
    for parent in parents {
        let found = match parent.open_dir(dir) {
            Ok(fd) => match kind_at(fd.as_fd(), name).map_err(io_error("look up", path))? {
                Some((FileType::Symlink, _)) => {
                    let link =
                        rustix::fs::readlinkat(&fd, name, Vec::new()).map_err(io_error("read link", path))?;
                    return Ok(Some(link.into_bytes()));
                }
                found => found.is_some(),
            },
            Err(Errno::NOENT) => false,
            Err(Errno::NOTDIR) => true,
            Err(error) => return Err(io_error("open directory", dir)(error)),
        };
        if found || hides(parent, path) {
            break;
        }
    }
    Ok(None)
}

/// Where the link at `path` leads, within the root.
fn target(path: &Path, link: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let mut target = match link.starts_with(b"/") {
        true => PathBuf::new(),
        false => path.parent().unwrap_or(Path::new("")).to_owned(),
    };
    for part in link.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                target.pop();
            }
            part => target.push(OsStr::from_bytes(part)),
        }
    }
    target
}

/// Moves everything in the directory `name` of `home` into `to` and removes it.
fn merge(home: &OwnedFd, name: &OsStr, to: &OwnedFd) -> Result<(), Errno> {
    use std::os::unix::ffi::OsStrExt;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = rustix::fs::openat(home, name, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(&from)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for child in names {
        let child = OsStr::from_bytes(child.to_bytes());
        let both = (kind_at(from.as_fd(), child)?, kind_at(to.as_fd(), child)?);
        if let (Some((FileType::Directory, _)), Some((FileType::Directory, _))) = both {
            let inner = rustix::fs::openat(to, child, flags, Mode::empty())?;
            merge(&from, child, &inner)?;
            continue;
        }
        if both.1.is_some() {
            remove_at(to.as_fd(), child)?;
        }
        rustix::fs::renameat(&from, child, to, child)?;
    }
    rustix::fs::unlinkat(home, name, AtFlags::REMOVEDIR)
}

/// The topmost directory `path` of the parents, unless a layer above it hides it.
fn find_dir(parents: &[Tree], path: &Path) -> Result<Option<OwnedFd>, UnpackError> {
    for parent in parents {
        match parent.open_dir(path) {
            Ok(fd) => return Ok(Some(fd)),
            Err(Errno::NOENT) if !hides(parent, path) => {}
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(io_error("open directory", path)(error)),
        }
    }
    Ok(None)
}

/// True if an opaque ancestor in this layer hides `path` in the layers below.
fn hides(layer: &Tree, path: &Path) -> bool {
    path.ancestors().skip(1).any(|ancestor| {
        layer.open_dir(ancestor).is_ok_and(|fd| {
            let mut value = [0u8; 4];
            rustix::fs::fgetxattr(&fd, OPAQUE_XATTR, &mut value)
                .is_ok_and(|length| length == 1 && value[0] == b'y')
        })
    })
}

fn copy_attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(from)?;
    rustix::fs::fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    copy_xattrs(from, to)?;
    rustix::fs::futimens(to, &stat_times(&stat))
}

fn copy_xattrs(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut names = vec![0u8; 64 * 1024];
    let length = match rustix::fs::flistxattr(from, names.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"trusted.overlay.") {
            continue;
        }
        let mut value = vec![0u8; 64 * 1024];
        let length = rustix::fs::fgetxattr(from, name, value.as_mut_slice())?;
        match rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty()) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn stat_times(stat: &rustix::fs::Stat) -> Timestamps {
    let at = |seconds, nanos: u64| Timespec { tv_sec: seconds, tv_nsec: nanos.cast_signed() };
    Timestamps {
        last_access: at(stat.st_atime, stat.st_atime_nsec),
        last_modification: at(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// Makes the link `path` from the parents' file `target`, which is copied into this layer.
fn link(tree: &mut Tree, parents: &[Tree], path: &Path, target: &Path) -> Result<(), UnpackError> {
    let refuse = |reason| UnpackError::Link {
        path: path.to_string_lossy().into_owned(),
        target: target.to_string_lossy().into_owned(),
        reason,
    };
    let (parent, name) = split(path).expect("the link was cleaned and is not the root");
    let (target_parent, target_name) = split(target).expect("the target was cleaned and is not the root");
    let dir = tree.parent(parent, &mut Vec::new())?;
    if kind_at(dir, name).map_err(io_error("look up", path))?.is_some() {
        remove_at(dir, name).map_err(io_error("replace", path))?;
    }
    let dir = rustix::io::dup(dir).map_err(io_error("open directory", parent))?;
    // An earlier deferred link may have brought the target into this layer.
    if let Ok(here) = tree.open_dir(target_parent)
        && matches!(kind_at(here.as_fd(), target_name), Ok(Some((FileType::RegularFile, _))))
    {
        return rustix::fs::linkat(&here, target_name, &dir, name, AtFlags::empty())
            .map_err(io_error("link", path));
    }
    let source = find_file(parents, target_parent, target_name)?
        .ok_or_else(|| refuse("target is in no layer below or not a regular file"))?;
    copy_file(&source, &dir, name).map_err(io_error("copy from a lower layer", path))?;
    let mut made = Vec::new();
    let home = tree.parent(target_parent, &mut made)?;
    rustix::fs::linkat(&dir, name, home, target_name, AtFlags::empty()).map_err(io_error("link", target))?;
    for path in made {
        if let Some(from) = find_dir(parents, &path)? {
            let to = tree.open_dir(&path).map_err(io_error("open directory", &path))?;
            copy_attributes(&from, &to).map_err(io_error("copy attributes to", &path))?;
        }
    }
    Ok(())
}

/// The topmost regular file `name` in directory `dir` of the parents.
fn find_file(parents: &[Tree], dir: &Path, name: &OsStr) -> Result<Option<OwnedFd>, UnpackError> {
    for parent in parents {
        let fd = match parent.open_dir(dir) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if !hides(parent, &dir.join(name)) => continue,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(io_error("open directory", dir)(error)),
        };
        match kind_at(fd.as_fd(), name).map_err(io_error("look up", dir))? {
            Some((FileType::RegularFile, _)) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return rustix::fs::openat(&fd, name, flags, Mode::empty())
                    .map(Some)
                    .map_err(io_error("open", dir));
            }
            Some(_) => return Ok(None),
            None if hides(parent, &dir.join(name)) => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

fn copy_file(source: &OwnedFd, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let to = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
    while rustix::fs::copy_file_range(source, None, &to, None, 1 << 30)? > 0 {}
    copy_attributes(source, &to)
}
