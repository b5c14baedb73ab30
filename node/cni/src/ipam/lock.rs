//! The lock of a network's reservations, shared with the reference plugin: waited for, but not for ever.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::spec::error::{CniError, code};

/// How long the lock of a network may be waited for.
const LOCK_WITHIN: Duration = Duration::from_secs(30);
/// The longest pause between two attempts: about as long as an address takes.
const LOCK_PAUSE: Duration = Duration::from_micros(400);

/// Takes the lock.
pub(super) fn take(lock: &File, path: &Path) -> Result<(), CniError> {
    let deadline = Instant::now() + LOCK_WITHIN;
    let mut pause = Duration::from_micros(50);
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(CniError::new(
                    code::TRY_AGAIN,
                    format!("another process has held {} for {} s", path.display(), LOCK_WITHIN.as_secs()),
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(CniError::new(code::IO, format!("lock {}: {error}", path.display())));
            }
        }
    }
}
