//! Whose turn it is: one operation at a time per attachment, many in parallel, GC alone.
//!
//! Within the process by locks in memory; between processes (a doctor beside the daemon) by a lock on a file, shared by
//! attachments and taken alone by GC.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The turns of all attachments.
pub(crate) struct Locks {
    file: PathBuf,
    busy: Mutex<HashSet<(String, String)>>,
    freed: Condvar,
    alone: RwLock<()>,
}

/// A turn; dropping it ends it.
pub(crate) struct Turn<'a> {
    locks: &'a Locks,
    key: (String, String),
    _shared: RwLockReadGuard<'a, ()>,
    _file: Option<File>,
}

/// Nobody else has a turn, in any process; dropping it ends that.
pub(crate) struct Alone<'a> {
    _alone: RwLockWriteGuard<'a, ()>,
    _file: Option<File>,
}

impl Locks {
    /// Turns whose lock between processes is in a folder.
    pub(crate) fn new(dir: &std::path::Path) -> Locks {
        Locks {
            file: dir.join("lock"),
            busy: Mutex::default(),
            freed: Condvar::new(),
            alone: RwLock::new(()),
        }
    }

    /// The file locked; without it only this process is kept in order, which is better than no network at all.
    fn lock_file(&self, lock: impl FnOnce(&File) -> std::io::Result<()>) -> Option<File> {
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&self.file);
        match opened.and_then(|file| lock(&file).map(|()| file)) {
            Ok(file) => Some(file),
            Err(error) => {
                tracing::warn!(file = %self.file.display(), %error, "other processes are not kept out");
                None
            }
        }
    }

    /// Waits for the turn of one attachment.
    pub(crate) fn attachment(&self, container: &str, ifname: &str) -> Turn<'_> {
        let shared = self.alone.read().unwrap_or_else(PoisonError::into_inner);
        let key = (container.to_owned(), ifname.to_owned());
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        while busy.contains(&key) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        busy.insert(key.clone());
        drop(busy);
        Turn { locks: self, key, _shared: shared, _file: self.lock_file(File::lock_shared) }
    }

    /// Waits until nobody else has a turn.
    pub(crate) fn everything(&self) -> Alone<'_> {
        let alone = self.alone.write().unwrap_or_else(PoisonError::into_inner);
        Alone { _alone: alone, _file: self.lock_file(File::lock) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut busy = self.locks.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.key);
        self.locks.freed.notify_all();
    }
}
