//! Why an image operation failed, with the facts a caller needs to tell a user.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::pull::PullError;
use crate::unpack::UnpackError;

/// Why an image operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation in the store or on an archive failed.
    #[error("{action} {path:?}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The text is not an image reference.
    #[error("invalid image reference {reference:?}: {reason}")]
    InvalidReference {
        /// The text that was given.
        reference: String,
        /// The rule it breaks.
        reason: String,
    },
    /// The text is not a digest.
    #[error("invalid digest {value:?}")]
    InvalidDigest {
        /// The text that was given.
        value: String,
    },
    /// Content does not have the digest it was asked for by.
    #[error("content of {what} has digest {actual}, expected {expected}")]
    DigestMismatch {
        /// What was read.
        what: String,
        /// What its descriptor or name promised.
        expected: Digest,
        /// What its bytes hash to.
        actual: Digest,
    },
    /// Content is shorter or longer than its descriptor says.
    #[error("content of {what} has {actual} bytes, expected {expected}")]
    SizeMismatch {
        /// What was read.
        what: String,
        /// The size in the descriptor.
        expected: u64,
        /// The size of the content.
        actual: u64,
    },
    /// A file of the store is damaged.
    #[error("corrupt store file {path:?}: {reason}")]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store was written by another version.
    #[error("image store {path:?} has format {found:?}, this version reads {expected:?}")]
    Format {
        /// The store's format file.
        path: PathBuf,
        /// What the file says.
        found: String,
        /// What this version writes.
        expected: &'static str,
    },
    /// An archive is neither an OCI layout nor a docker archive, or is inconsistent.
    #[error("archive {path:?}: {reason}")]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A manifest, index or image configuration cannot be used.
    #[error("invalid {what}: {reason}")]
    Manifest {
        /// Which document, with its digest where known.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An index holds no image for this machine.
    #[error("no image for platform {wanted} in {what}")]
    NoPlatform {
        /// The index.
        what: String,
        /// The platform looked for.
        wanted: String,
    },
    /// No image has this name or id.
    #[error("image {reference:?} not found")]
    NotFound {
        /// The name or id.
        reference: String,
    },
    /// The container has a snapshot already.
    #[error("snapshot {id:?} already exists")]
    SnapshotExists {
        /// The container's id.
        id: String,
    },
    /// The text cannot name a snapshot directory.
    #[error("invalid snapshot id {id:?}")]
    InvalidSnapshotId {
        /// The text that was given.
        id: String,
    },
    /// A layer could not be unpacked.
    #[error("unpack layer {layer}")]
    Unpack {
        /// The layer's digest or name.
        layer: String,
        /// What was wrong with the layer or the disk.
        source: UnpackError,
    },
    /// The registry did not deliver.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// A worker panicked or the runtime went down in the middle.
    #[error("worker stopped: {reason}")]
    Worker {
        /// What the runtime reported.
        reason: String,
    },
    /// What a pull failed with that this call had joined.
    #[error(transparent)]
    Joined(std::sync::Arc<Error>),
}

impl Error {
    /// The error itself, also if it was shared by several callers of one pull.
    pub fn unshared(&self) -> &Self {
        match self {
            Self::Joined(error) => error.unshared(),
            error => error,
        }
    }
}

/// Adds the attempt and the path to an I/O error.
pub(crate) trait IoContext<T> {
    /// Wraps the error as [`Error::Io`].
    fn at(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source: source.into() })
    }
}
