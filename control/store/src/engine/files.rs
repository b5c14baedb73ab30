//! The store's directory: names, the lock, durable creation and removal of files.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::StoreError;

const LOCK_MAGIC: &str = "podwire-store-lock 1";
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Path of a log segment.
pub(crate) fn segment_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("log-{segment:016x}"))
}

/// Path of the snapshot onto which segments from `segment` on are replayed.
pub(crate) fn snapshot_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("snapshot-{segment:016x}"))
}

/// What lies in the directory.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Segment numbers in order.
    pub(crate) segments: Vec<u64>,
    /// Snapshot numbers in order.
    pub(crate) snapshots: Vec<u64>,
    /// Files whose creation was never finished.
    pub(crate) unfinished: Vec<PathBuf>,
}

/// Reads the directory; names that are not ours are left alone.
pub(crate) fn contents(dir: &Path) -> Result<Contents, StoreError> {
    let failed = |source| StoreError::io("read directory", dir, source);
    let mut found = Contents::default();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let number = |prefix| {
            name.strip_prefix(prefix)
                .filter(|hex| hex.len() == 16)
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        };
        if name.ends_with(".tmp") {
            found.unfinished.push(entry.path());
        } else if let Some(segment) = number("log-") {
            found.segments.push(segment);
        } else if let Some(segment) = number("snapshot-") {
            found.snapshots.push(segment);
        }
    }
    found.segments.sort_unstable();
    found.snapshots.sort_unstable();
    Ok(found)
}

/// Makes directory entries durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    let synced = File::open(dir).and_then(|handle| handle.sync_all());
    synced.map_err(|source| StoreError::io("sync directory", dir, source))
}

/// A file that appears under its name only when it is whole and durable.
pub(crate) struct Draft {
    path: PathBuf,
    tmp: PathBuf,
    /// Where the content goes.
    pub(crate) file: File,
}

impl Draft {
    /// Begins a file that will be called `path`.
    pub(crate) fn create(path: PathBuf) -> Result<Self, StoreError> {
        let mut tmp = path.clone().into_os_string();
        tmp.push(".tmp");
        let tmp = PathBuf::from(tmp);
        // A draft of a process that died may have been made by an earlier version, open to everybody.
        remove(&tmp);
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(PRIVATE_FILE).open(&tmp);
        let file = file.map_err(|source| StoreError::io("create", &tmp, source))?;
        Ok(Self { path, tmp, file })
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(|source| StoreError::io("write", &self.tmp, source))
    }

    /// Syncs the content, then the name; the handle stays usable.
    pub(crate) fn publish(self) -> Result<(PathBuf, File), StoreError> {
        self.file.sync_all().map_err(|source| StoreError::io("sync", &self.tmp, source))?;
        fs::rename(&self.tmp, &self.path).map_err(|source| StoreError::io("rename", &self.tmp, source))?;
        sync_dir(self.path.parent().expect("a draft lies in the store's directory"))?;
        Ok((self.path, self.file))
    }

    /// Gives up; what was written is removed.
    pub(crate) fn discard(self) {
        remove(&self.tmp);
    }
}

/// Removes a file that is no longer needed; a failure costs only space and is logged.
pub(crate) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(?path, %error, "old store file not removed; the next snapshot retries");
        }
        _ => {}
    }
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    fs::read(path).map_err(|source| StoreError::io("read", path, source))
}

/// The store holds every Secret: it is its owner's alone, also what an earlier version left open to everybody.
fn close_to_others(dir: &Path) -> Result<(), StoreError> {
    let close = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|source| StoreError::io("set the mode of", path, source))
    };
    close(dir, PRIVATE_DIR)?;
    let entries = fs::read_dir(dir).map_err(|source| StoreError::io("read directory", dir, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| StoreError::io("read directory", dir, source))?;
        let state = entry.metadata().map_err(|source| StoreError::io("look at", entry.path(), source))?;
        if state.is_file() && state.mode() & 0o077 != 0 {
            close(&entry.path(), PRIVATE_FILE)?;
        }
    }
    Ok(())
}

/// The right to be the only one in a directory; given back when dropped.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Makes the directory if need be and takes it.
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(|source| StoreError::io("create directory", dir, source))?;
        close_to_others(dir)?;
        let path = dir.join("lock");
        let failed = |source| StoreError::io("lock", &path, source);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(PRIVATE_FILE)
            .open(&path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // Ignored: the name of the holder is a courtesy; without it the error says "unknown".
                file.read_to_string(&mut text).ok();
                let pid = text.strip_prefix(LOCK_MAGIC).and_then(|rest| rest.trim().parse().ok());
                return Err(StoreError::Taken { dir: dir.into(), pid });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{LOCK_MAGIC} {}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}
