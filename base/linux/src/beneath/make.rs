//! Files and folders made or rewritten below an open folder that somebody else may write to meanwhile.
//!
//! Every step is relative to a descriptor and takes one part of the path, no link is followed, and nothing but a
//! regular file is opened for writing.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path},
};

use rustix::fs::{FileType, Mode, OFlags};

use super::{Error, failed};

/// A folder as it may be listed and its mode set.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The folder `name` (one part of a path) in `folder`, and whether it was made just now.
pub fn folder(folder: impl AsFd, name: &OsStr, mode: u32) -> Result<(OwnedFd, bool), Error> {
    let path = Path::new(name);
    if !matches!(single(path), Some(only) if only == name) {
        return Err(Error::Io { path: path.to_owned(), source: io::ErrorKind::InvalidInput.into() });
    }
    let fresh = match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(mode)) {
        Ok(()) => true,
        Err(rustix::io::Errno::EXIST) => false,
        Err(error) => return Err(failed(path)(error)),
    };
    let opened = rustix::fs::openat(&folder, name, FOLDER, Mode::empty()).map_err(failed(path))?;
    if fresh {
        // The umask may have taken something away.
        rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode)).map_err(failed(path))?;
    }
    Ok((opened, fresh))
}

/// The folder at `path` below `folder`; what is missing on the way is made with `mode`.
pub fn folders(folder: impl AsFd, path: &Path, mode: u32) -> Result<OwnedFd, Error> {
    let mut at = rustix::fs::openat(folder, ".", FOLDER, Mode::empty()).map_err(failed(path))?;
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => at = self::folder(&at, name, mode)?.0,
            _ => return Err(Error::Io { path: path.to_owned(), source: io::ErrorKind::InvalidInput.into() }),
        }
    }
    Ok(at)
}

/// A new file `name` in `folder`; whatever has the name already is an error.
pub fn file(folder: impl AsFd, name: &OsStr, mode: u32) -> Result<File, Error> {
    let path = Path::new(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode)).map_err(failed(path))?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(mode)).map_err(failed(path))?;
    Ok(File::from(made))
}

/// Gives the file at `path` below `folder` this content and mode, in place: whoever has it mounted sees it.
pub fn rewrite(folder: impl AsFd, path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let invalid = || Error::Io { path: path.to_owned(), source: io::ErrorKind::InvalidInput.into() };
    let name = path.file_name().ok_or_else(invalid)?;
    let parent = folders(folder, path.parent().unwrap_or(Path::new("")), 0o755)?;
    let mut file = match file(&parent, name, mode) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let place = rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(failed(path))?;
            let stat = rustix::fs::fstat(&place).map_err(failed(path))?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(Error::NotRegular { path: path.to_owned() });
            }
            let own = format!("/proc/self/fd/{}", place.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::open(own, flags, Mode::empty()).map_err(failed(path))?;
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode)).map_err(failed(path))?;
            File::from(opened)
        }
        other => other?,
    };
    file.write_all(bytes).map_err(failed(path))
}

/// The only part of a path that has one.
fn single(path: &Path) -> Option<&OsStr> {
    let mut parts = path.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::beneath;

    #[test]
    fn a_file_is_rewritten_in_place_and_nothing_else_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("victim"), "safe").unwrap();
        let root = beneath::folder(dir.path()).unwrap();
        rewrite(&root, Path::new("a/b/file"), b"long text", 0o640).unwrap();
        let held = File::open(dir.path().join("a/b/file")).unwrap();
        rewrite(&root, Path::new("a/b/file"), b"short", 0o600).unwrap();
        assert_eq!(io::read_to_string(held).unwrap(), "short");
        let mode = std::fs::metadata(dir.path().join("a/b/file")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);

        symlink(outside.path().join("victim"), dir.path().join("link")).unwrap();
        symlink(outside.path(), dir.path().join("way")).unwrap();
        rustix::fs::mknodat(&root, "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in ["link", "way/victim", "fifo", "../x", "a/../../x", ""] {
            assert!(rewrite(&root, Path::new(path), b"bad", 0o644).is_err(), "{path}");
        }
        assert_eq!(std::fs::read_to_string(outside.path().join("victim")).unwrap(), "safe");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn folders_get_their_mode_and_links_are_no_folders() {
        let dir = tempfile::tempdir().unwrap();
        let root = beneath::folder(dir.path()).unwrap();
        folders(&root, Path::new("x/y"), 0o777).unwrap();
        let mode = std::fs::metadata(dir.path().join("x/y")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o777);
        symlink("x", dir.path().join("link")).unwrap();
        assert!(folders(&root, Path::new("link/z"), 0o755).is_err());
        assert!(!folder(&root, OsStr::new("x"), 0o755).unwrap().1, "it was there");
        assert!(folder(&root, OsStr::new(".."), 0o755).is_err());
    }
}
