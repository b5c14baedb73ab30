//! Why the supervisor could not do what was asked.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A failed call of [`crate::Supervisor`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The specification cannot be carried out.
    #[error("container {id}: {reason}")]
    Spec {
        /// The container.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The supervisor refused or failed; the text is fit for a user.
    #[error("{message}")]
    Refused {
        /// The class of the refusal.
        kind: RefusalKind,
        /// Its text.
        message: String,
    },
    /// The connection ended before the answer came.
    #[error("the supervisor went away during {operation}")]
    Disconnected {
        /// What was asked.
        operation: &'static str,
    },
    /// The supervisor lives and does not answer: it is stopped, or waits for the kernel.
    #[error("the supervisor did not answer {operation} within {seconds} s")]
    Silent {
        /// What was asked.
        operation: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// The socket failed.
    #[error("talk to the supervisor at {socket:?}")]
    Socket {
        /// Its socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Something else listens on the socket, or another version of us that we cannot talk to.
    #[error("no supervisor we understand at {socket:?}: {reason}")]
    Handshake {
        /// Its socket.
        socket: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// It could not be started.
    #[error("start the supervisor {exe:?}")]
    Spawn {
        /// Its executable.
        exe: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It was started and ended, or never listened.
    #[error("the supervisor did not listen on {socket:?}; see {log:?}")]
    NotListening {
        /// Its socket.
        socket: PathBuf,
        /// Its log file.
        log: PathBuf,
    },
    /// An answer could not be understood.
    #[error("the supervisor's answer to {operation} is not understood")]
    Decode {
        /// What was asked.
        operation: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
}

/// The class of a refusal, for callers that react to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// No such container or exec.
    NotFound,
    /// The name is taken.
    Exists,
    /// Not in this state of its life.
    WrongState,
    /// Setting the container up failed.
    Setup,
    /// Its program could not be executed.
    Exec,
    /// The supervisor is older and has no such operation.
    Unsupported,
    /// Anything else.
    #[serde(other)]
    Internal,
}

impl Error {
    /// True when the container or exec is not known to the supervisor.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Refused { kind: RefusalKind::NotFound, .. })
    }

    /// True when the container or exec is not in a state for that, for one because it has exited.
    pub fn is_wrong_state(&self) -> bool {
        matches!(self, Error::Refused { kind: RefusalKind::WrongState, .. })
    }

    /// True when the supervisor died, or hung up, under the call: whether it was carried out is not known.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Disconnected { .. } | Error::Socket { .. })
    }

    /// True when the supervisor is older than the operation.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self, Error::Refused { kind: RefusalKind::Unsupported, .. })
    }
}
