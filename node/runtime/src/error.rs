//! Errors of the runtime, and the one place where they become gRPC statuses.

use std::{error::Error as StdError, io, path::PathBuf, sync::Arc};

pub(crate) use podwire_trace::chain;
use tonic::{Code, Status};

/// Why the runtime could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A folder the runtime keeps things in could not be made.
    #[error("prepare folder {path:?}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The journal could not be opened or read.
    #[error("open journal {path:?}")]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The CRI socket could not be listened on.
    #[error("listen for CRI clients")]
    Listen {
        /// Why.
        source: podwire_wire::unix::ListenError,
    },
    /// The streaming server's port could not be listened on.
    #[error("listen for streams on {address}")]
    StreamListen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The supervisor could be neither found nor started.
    #[error("connect to the container supervisor")]
    Supervisor {
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The program of a runtime handler cannot be used.
    #[error("use {path:?} for runtime handler {name:?}")]
    Handler {
        /// The handler.
        name: String,
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The image store could not be opened.
    #[error("open the image store")]
    Images {
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// Plugins could not be listened for.
    #[error("open the door for plugins")]
    Plugins {
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The CNI side could not be opened.
    #[error("open the pod networks")]
    Networks {
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// Why one CRI call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpError {
    #[error("{what} {id:?} not found")]
    NotFound { what: &'static str, id: String },
    #[error("{what} {name:?} already exists as {id}")]
    AlreadyExists { what: &'static str, name: String, id: String },
    #[error("{why}")]
    Invalid { why: String },
    #[error("{why}")]
    Precondition { why: String },
    #[error("{what} is not implemented")]
    Unimplemented { what: &'static str },
    #[error("{what} timed out after {seconds} s")]
    Timeout { what: &'static str, seconds: i64 },
    #[error("{what} is not available")]
    Unavailable { what: &'static str },
    #[error("{attempt}")]
    Failed { attempt: String, source: Box<dyn StdError + Send + Sync> },
}

impl OpError {
    /// Wraps what went wrong with what was tried.
    pub(crate) fn failed<E>(attempt: impl Into<String>) -> impl FnOnce(E) -> OpError
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let attempt = attempt.into();
        move |source| OpError::Failed { attempt, source: source.into() }
    }

    /// An argument the caller must change.
    pub(crate) fn invalid(why: impl Into<String>) -> OpError {
        OpError::Invalid { why: why.into() }
    }

    fn code(&self) -> Code {
        match self {
            OpError::NotFound { .. } => Code::NotFound,
            OpError::AlreadyExists { .. } => Code::AlreadyExists,
            OpError::Invalid { .. } => Code::InvalidArgument,
            OpError::Precondition { .. } => Code::FailedPrecondition,
            OpError::Unimplemented { .. } => Code::Unimplemented,
            OpError::Timeout { .. } => Code::DeadlineExceeded,
            OpError::Unavailable { .. } => Code::Unavailable,
            OpError::Failed { .. } => Code::Unknown,
        }
    }
}

impl From<&OpError> for Status {
    fn from(error: &OpError) -> Status {
        Status::new(error.code(), chain(error))
    }
}

impl From<OpError> for Status {
    fn from(error: OpError) -> Status {
        Status::from(&error)
    }
}

/// A result several waiting callers share.
pub(crate) type Shared<T> = Result<T, Arc<OpError>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_every_cause_once() {
        let inner = OpError::failed("open netns")(io::Error::other("no such file"));
        let outer = OpError::failed("run sandbox")(inner);
        let status = Status::from(outer);
        assert_eq!(status.message(), "run sandbox: open netns: no such file");
        assert_eq!(status.code(), Code::Unknown);
        assert_eq!(
            Status::from(OpError::NotFound { what: "container", id: "x".into() }).code(),
            Code::NotFound
        );
    }
}
