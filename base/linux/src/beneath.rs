//! Files of folders that somebody else writes to meanwhile: an image, a volume, a pod's log folder.
//!
//! A path is resolved below an open folder without following any link, what is found must be a regular file before it is
//! opened for reading, and no more is read than the caller can use. A FIFO cannot block, a device is never opened, a
//! large file costs no memory. Resolution is the kernel's: <https://man7.org/linux/man-pages/man2/openat2.2.html>.

pub mod make;
mod remove;

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

pub use remove::{remove, remove_path};

/// Not one link on the way, and never up.
const STRICT: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Why a file of somebody else's was not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is a folder, link, FIFO, socket or device.
    #[error("{path:?} is not a regular file")]
    NotRegular {
        /// The path below the folder.
        path: std::path::PathBuf,
    },
    /// It has more than the caller takes.
    #[error("{path:?} has more than {most} bytes")]
    TooLarge {
        /// The path below the folder.
        path: std::path::PathBuf,
        /// What the caller takes.
        most: usize,
    },
    /// The kernel refused.
    #[error("open {path:?} without following links")]
    Io {
        /// The path below the folder.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// Nothing of that name is there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

fn failed<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Error {
    move |source| Error::Io { path: path.to_owned(), source: source.into() }
}

/// A folder of ours to look below; its last part must not be a link.
pub fn folder(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed(path))
}

/// What lies at `path` below `folder`, whatever it is, as a place and not for reading; no link is followed, and a link
/// at the end is an error.
pub fn place(folder: impl AsFd, path: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), STRICT)
        .map_err(failed(path))
}

/// The folder at `path` below `folder`.
pub fn subfolder(folder: impl AsFd, path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(folder, path, flags, Mode::empty(), STRICT).map_err(failed(path))
}

/// The regular file at `path` below `folder`, open for reading.
pub fn open(folder: impl AsFd, path: &Path) -> Result<File, Error> {
    reopen(&place(folder, path)?, path)
}

/// Opens a place for reading once it is known to be a regular file: to open a device or FIFO may already do something.
pub fn reopen(place: &OwnedFd, path: &Path) -> Result<File, Error> {
    let stat = rustix::fs::fstat(place).map_err(failed(path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::NotRegular { path: path.to_owned() });
    }
    // A link of our own process to what is already open: nobody can exchange it.
    let own = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(own, flags, Mode::empty()).map(File::from).map_err(failed(path))
}

/// The whole of a regular file that has at most `most` bytes.
pub fn read(folder: impl AsFd, path: &Path, most: usize) -> Result<Vec<u8>, Error> {
    let file = open(folder, path)?;
    let mut bytes = Vec::new();
    // One byte beyond the bound tells a file that is too large, also one that grows.
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed(path))?;
    if bytes.len() > most { Err(Error::TooLarge { path: path.to_owned(), most }) } else { Ok(bytes) }
}

/// The last `most` bytes of a regular file.
pub fn read_tail(folder: impl AsFd, path: &Path, most: usize) -> Result<Vec<u8>, Error> {
    let mut file = open(folder, path)?;
    let length = file.metadata().map_err(failed(path))?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most as u64))).map_err(failed(path))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).map_err(failed(path))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_below_the_folder_are_read_and_only_so_much() {
        let dir = tempfile::tempdir().unwrap();
        let root = folder(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), b"0123456789").unwrap();
        assert_eq!(read(&root, Path::new("sub/file"), 10).unwrap(), b"0123456789");
        assert!(matches!(read(&root, Path::new("sub/file"), 9), Err(Error::TooLarge { most: 9, .. })));
        assert_eq!(read_tail(&root, Path::new("sub/file"), 4).unwrap(), b"6789");
        assert!(read(&root, Path::new("absent"), 9).unwrap_err().is_absent());
        assert!(matches!(read(&root, Path::new("sub"), 9), Err(Error::NotRegular { .. })));
    }

    #[test]
    fn links_fifos_and_devices_are_neither_followed_nor_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = folder(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::fs::write(dir.path().join("real/file"), b"x").unwrap();
        symlink("real/file", dir.path().join("link")).unwrap();
        symlink("real", dir.path().join("way")).unwrap();
        symlink("/dev/zero", dir.path().join("device")).unwrap();
        for path in ["link", "way/file", "device", "../x", "/etc/hostname"] {
            assert!(matches!(read(&root, Path::new(path), 9), Err(Error::Io { .. })), "{path}");
        }
        assert!(folder(&dir.path().join("way")).is_err(), "a link is no folder");
        rustix::fs::mknodat(&root, "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
        rustix::fs::mknodat(&root, "zero", FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 5))
            .unwrap();
        for path in ["fifo", "zero"] {
            assert!(matches!(read_tail(&root, Path::new(path), 9), Err(Error::NotRegular { .. })), "{path}");
        }
    }

    #[test]
    fn the_tail_of_a_huge_sparse_file_costs_only_the_tail() {
        let dir = tempfile::tempdir().unwrap();
        let root = folder(dir.path()).unwrap();
        File::create(dir.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_tail(&root, Path::new("huge"), 4096).unwrap(), vec![0; 4096]);
        assert!(matches!(read(&root, Path::new("huge"), 4096), Err(Error::TooLarge { .. })));
    }
}
