//! gRPC over unix sockets: a lazily connecting channel, and a listener that replaces a dead socket file.

use std::{
    io,
    os::unix::fs::PermissionsExt,
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

/// Listens on `path`, for its owner alone; a socket file that nobody answers on is replaced, a living one is an error.
///
/// Between bind and chmod the socket has what the umask leaves of its mode: [`crate::accept`] asks every peer who it is.
pub fn listen(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(ListenError::InUse { path: path.to_owned() });
            }
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[tokio::test]
    async fn a_socket_is_its_owners_alone() {
        let folder = std::env::temp_dir().join(format!("podwire-wire-{}", std::process::id()));
        let path = folder.join("one.sock");
        let listener = listen(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(listen(&path), Err(ListenError::InUse { .. })));
        drop(listener);
        listen(&path).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
