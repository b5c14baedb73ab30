//! gRPC over unix sockets: a lazily connecting channel, and a listener that replaces a dead socket file.

use std::{
    io,
    path::{Path, PathBuf},
};

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::{Channel, Endpoint, Uri};

/// Why a unix socket could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody answers on the socket.
    #[error("socket {path:?} is in use by a running process")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("listen on socket {path:?}")]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A channel to the unix socket at `path` that connects on first use and reconnects by itself.
pub fn channel(path: impl Into<PathBuf>) -> Channel {
    let path: PathBuf = path.into();
    // The authority is what Go peers send; nothing resolves it.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    }))
}

/// Listens on `path`; a socket file that nobody answers on is replaced, a living one is an error.
pub fn listen(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(ListenError::InUse { path: path.to_owned() });
            }
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)
        }
        other => other.map_err(failed),
    }
}
