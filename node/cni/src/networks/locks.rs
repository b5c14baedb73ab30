//! Whose turn it is: one operation at a time per attachment, many in parallel, GC alone.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The turns of all attachments.
#[derive(Default)]
pub(crate) struct Locks {
    busy: Mutex<HashSet<(String, String)>>,
    freed: Condvar,
    alone: RwLock<()>,
}

/// A turn; dropping it ends it.
pub(crate) struct Turn<'a> {
    locks: &'a Locks,
    key: (String, String),
    _shared: RwLockReadGuard<'a, ()>,
}

impl Locks {
    /// Waits for the turn of one attachment.
    pub(crate) fn attachment(&self, container: &str, ifname: &str) -> Turn<'_> {
        let shared = self.alone.read().unwrap_or_else(PoisonError::into_inner);
        let key = (container.to_owned(), ifname.to_owned());
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        while busy.contains(&key) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        busy.insert(key.clone());
        Turn { locks: self, key, _shared: shared }
    }

    /// Waits until nobody else has a turn.
    pub(crate) fn everything(&self) -> RwLockWriteGuard<'_, ()> {
        self.alone.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut busy = self.locks.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.key);
        self.locks.freed.notify_all();
    }
}
