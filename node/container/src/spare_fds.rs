//! What this process holds for containers in case their supervisor dies.
//!
//! A second reading end of their output (so that nobody gets SIGPIPE, and no byte is lost) and a
//! pidfd from before their end (so that the exit code can still be asked for). Kept per process
//! and not per connection: the point is to have them when the connection is gone.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::protocol::FdRole;

/// Descriptors of containers by name.
#[derive(Debug, Default)]
pub(crate) struct SpareFds {
    containers: Mutex<HashMap<String, Vec<(FdRole, OwnedFd)>>>,
}

/// What is held for the containers of the supervisor at `socket`.
pub(crate) fn of(socket: &Path) -> Arc<SpareFds> {
    static ALL: OnceLock<Mutex<HashMap<PathBuf, Arc<SpareFds>>>> = OnceLock::new();
    let mut all = ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(socket.to_owned()).or_default())
}

impl SpareFds {
    pub(crate) fn put(&self, id: &str, fds: Vec<(FdRole, OwnedFd)>) {
        self.lock().insert(id.to_owned(), fds);
    }

    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Copies for a successor.
    pub(crate) fn copies(&self) -> Vec<(String, Vec<(FdRole, OwnedFd)>)> {
        let copy = |fds: &Vec<(FdRole, OwnedFd)>| {
            fds.iter().filter_map(|(role, fd)| Some((*role, fd.try_clone().ok()?))).collect()
        };
        self.lock().iter().map(|(id, fds)| (id.clone(), copy(fds))).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<(FdRole, OwnedFd)>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
