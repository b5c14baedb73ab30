//! The seam between the streaming server (HTTP, SPDY, WebSocket) and the runtime that owns the containers.
//!
//! The server turns a one-time URL into a call of [`StreamBackend`] and then copies bytes; it knows nothing of
//! containers. The runtime implements the trait; it knows nothing of framing.

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// A readable end of a session.
pub type BoxRead = Box<dyn AsyncRead + Send + Unpin>;
/// A writable end of a session; dropping or shutting it down closes the process's standard input.
pub type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// A byte stream in both directions, as port-forward needs it.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Which of the three standard streams a client asked for, and whether there is a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// The client sends standard input.
    pub stdin: bool,
    /// The client wants standard output.
    pub stdout: bool,
    /// The client wants standard error (never together with `tty`).
    pub stderr: bool,
    /// A terminal carries all three.
    pub tty: bool,
}

/// A terminal's size in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// A running exec or attach session.
pub struct Session {
    /// Goes to the process; present only if asked for (and, for attach, if the container has stdin).
    pub stdin: Option<BoxWrite>,
    /// Comes from the process; present only if asked for.
    pub stdout: Option<BoxRead>,
    /// Comes from the process; present only if asked for and without a terminal.
    pub stderr: Option<BoxRead>,
    /// New terminal sizes; ignored without a terminal.
    pub resize: mpsc::Sender<TerminalSize>,
    /// The exit code of the process. For attach: of the container, once it ends. Never resolves before the process
    /// ended; output may still be unread then. Dropping a session's future kills an exec'd process.
    pub exit: BoxFuture<'static, Result<i32, BackendError>>,
}

/// Why a session could not be opened or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Neither a container nor a sandbox has this id.
    #[error("no container or sandbox with id {id:?}")]
    NotFound {
        /// The id asked for.
        id: String,
    },
    /// The container or sandbox is not running.
    #[error("{id:?} is not running")]
    NotRunning {
        /// The id asked for.
        id: String,
    },
    /// The command could not be started, in the words a user should read.
    #[error("{message}")]
    Start {
        /// For example `exec: "foo": executable file not found in $PATH`.
        message: String,
    },
    /// Nothing listens on the port inside the pod.
    #[error("dial localhost:{port} inside the pod")]
    Dial {
        /// The port asked for.
        port: u16,
        /// What connect said.
        source: std::io::Error,
    },
    /// The session broke.
    #[error("stream session")]
    Io {
        /// What the system said.
        source: std::io::Error,
    },
}

/// What the streaming server calls. Every method is cancel safe: a dropped future leaves nothing behind.
pub trait StreamBackend: Send + Sync + 'static {
    /// Runs `argv` in the container.
    fn exec(
        &self,
        container_id: &str,
        argv: &[String],
        streams: Streams,
    ) -> BoxFuture<'_, Result<Session, BackendError>>;

    /// Joins the streams of the container's main process.
    fn attach(&self, container_id: &str, streams: Streams) -> BoxFuture<'_, Result<Session, BackendError>>;

    /// Dials `localhost:port` inside the pod's network namespace, IPv4 first.
    fn port_forward(
        &self,
        sandbox_id: &str,
        port: u16,
    ) -> BoxFuture<'_, Result<Box<dyn Duplex>, BackendError>>;
}
