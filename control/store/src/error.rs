//! Why the store could not do what was asked.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Revision;

/// Why the store could not do what was asked; cheap to clone, since one failed batch answers many.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The revision asked for is no longer in the retained history.
    #[error("the requested revision was compacted; the oldest one available is {oldest}")]
    Compacted {
        /// The oldest revision that can still be listed or watched from.
        oldest: Revision,
    },
    /// The revision asked for has not happened yet.
    #[error("revision {requested} is in the future; the newest one is {current}")]
    FutureRevision {
        /// What was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The disk is full; nothing of the write was kept and later writes may succeed.
    #[error("no space left to write {path:?}")]
    Full {
        /// The file that could not grow.
        path: PathBuf,
        /// The operating system's word.
        source: Arc<io::Error>,
    },
    /// The store holds as much as it may; deleting makes room.
    #[error("the store is full: it holds {held} bytes and may hold {quota}; delete what is not needed")]
    Quota {
        /// Bytes of all keys and values.
        held: u64,
        /// The most there may be.
        quota: u64,
    },
    /// A write failed in a way that leaves its durability unknown; reopen the store.
    #[error("the store refuses writes after a failed sync of {path:?}; reopen it")]
    Poisoned {
        /// The file whose state is unknown.
        path: PathBuf,
        /// The first failure.
        source: Arc<io::Error>,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The value or key is larger than a record may be.
    #[error("a record of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Bytes of key and value.
        size: usize,
        /// The most that is accepted.
        limit: usize,
    },
    /// The cluster cannot be asked; nothing was done.
    #[error("etcd is not available: {reason}")]
    Unavailable {
        /// What went wrong.
        reason: String,
    },
    /// The cluster did not answer in time; nothing was asked of it that changes anything.
    #[error("etcd did not answer in time: {reason}")]
    TimedOut {
        /// What went wrong.
        reason: String,
    },
    /// Whether the write was done is not known; reading tells.
    #[error("whether the write was done is not known: {reason}")]
    OutcomeUnknown {
        /// What went wrong.
        reason: String,
    },
    /// The cluster would not do it, and did not.
    #[error("etcd refused: {reason}")]
    Refused {
        /// In its words.
        reason: String,
    },
    /// A value cannot be written or read in the encoding of the store.
    #[error("the value of {key} cannot be turned into another encoding: {reason}")]
    Encoding {
        /// The key.
        key: String,
        /// Why not.
        reason: String,
    },
    /// Another process has the directory.
    #[error("store directory {dir:?} is in use by process {}", .pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string()))]
    Taken {
        /// The directory.
        dir: PathBuf,
        /// Who holds it, if its lock file says.
        pid: Option<u32>,
    },
    /// There is a store already where one is to be made.
    #[error("{path:?} is there already; a store is made in an empty folder")]
    Occupied {
        /// A file of the store.
        path: PathBuf,
    },
    /// A file was written by a version this one cannot read.
    #[error("{path:?} has format version {found}, this program reads {supported}")]
    UnsupportedVersion {
        /// The file.
        path: PathBuf,
        /// The version it names.
        found: u32,
        /// The version understood here.
        supported: u32,
    },
    /// Acknowledged data is damaged on disk.
    #[error("{path:?} is corrupt at byte {offset}: {reason}")]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The operating system refused.
    #[error("{attempt} {path:?}")]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// On which file.
        path: PathBuf,
        /// The operating system's word.
        source: Arc<io::Error>,
    },
}

impl StoreError {
    /// Wraps an operating system error with what was tried on which file.
    pub(crate) fn io(attempt: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { attempt, path: path.into(), source: Arc::new(source) }
    }

    /// Names damage in a file.
    pub(crate) fn corrupt(path: impl Into<PathBuf>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), offset, reason: reason.into() }
    }
}
