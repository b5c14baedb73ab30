//! A plugin's socket: dialled once, without following links, and every call on it bounded.

use std::{
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustix::fs::{FileType, Mode, OFlags};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint, Uri},
};

use crate::runtime::CallError;

/// Why a plugin cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// There is no such place, or it is not for us.
    #[error("failed to dial device plugin: open {path:?}: {source}")]
    Open { path: PathBuf, source: io::Error },
    /// A link, a FIFO, a file.
    #[error("failed to dial device plugin: {path:?} is not a socket")]
    NoSocket { path: PathBuf },
    /// Nobody listens, or nobody who speaks gRPC.
    #[error("failed to dial device plugin: {path:?}: {why}")]
    Connect { path: PathBuf, why: String },
}

/// A connection to the socket at `path`. When it breaks it stays broken: whoever listens next has to register first.
pub(crate) async fn dial(path: &Path, limit: Duration) -> Result<Channel, DialError> {
    dial_watched(path, limit).await.map(|(channel, _)| channel)
}

/// As [`dial`], with a token that is cancelled when the connection has ended.
pub(crate) async fn dial_watched(
    path: &Path,
    limit: Duration,
) -> Result<(Channel, CancellationToken), DialError> {
    let own = || path.to_owned();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |source: rustix::io::Errno| DialError::Open { path: own(), source: source.into() };
    let place = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&place).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(DialError::NoSocket { path: own() });
    }
    let refused = |why: String| DialError::Connect { path: own(), why };
    // A link of our own process to what is already open: nobody can exchange it, and it is short enough for any socket.
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    let dialled = async {
        let stream = UnixStream::connect(link).await.map_err(|error| refused(error.to_string()))?;
        let ended = CancellationToken::new();
        let stream = Watched { stream, _ends: ended.clone().drop_guard() };
        let once = Mutex::new(Some(stream));
        let connector = tower::service_fn(move |_: Uri| {
            let stream = once.lock().ok().and_then(|mut once| once.take());
            let gone = || io::Error::new(io::ErrorKind::NotConnected, "the plugin has gone");
            std::future::ready(stream.map(TokioIo::new).ok_or_else(gone))
        });
        // The authority is what Go peers send; nothing resolves it.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await;
        let channel = channel.map_err(|error| refused(podwire_trace::chain(&error)))?;
        Ok((channel, ended))
    };
    tokio::time::timeout(limit, dialled).await.map_err(|_| refused("no answer in time".to_owned()))?
}

/// A stream whose end is told.
struct Watched {
    stream: UnixStream,
    _ends: DropGuard,
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(ctx, into)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(ctx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(ctx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(ctx)
    }
}

/// One call that is given up after `limit`.
pub(crate) async fn bounded<T>(
    call: &'static str,
    limit: Duration,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    let late = || Status::deadline_exceeded(format!("{call}: no answer within {limit:?}"));
    let answer = tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(late()));
    answer.map(Response::into_inner).map_err(|status| CallError { call, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn links_fifos_and_files_are_not_dialled() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(dir.path().join("real.sock")).unwrap();
        std::os::unix::fs::symlink("real.sock", dir.path().join("link.sock")).unwrap();
        let fifo = dir.path().join("fifo.sock");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::fs::write(dir.path().join("file.sock"), "").unwrap();
        for name in ["link.sock", "fifo.sock", "file.sock"] {
            let error = dial(&dir.path().join(name), Duration::from_secs(5)).await.unwrap_err();
            assert!(matches!(error, DialError::NoSocket { .. }), "{name}: {error}");
        }
        assert!(dial(&dir.path().join("real.sock"), Duration::from_secs(5)).await.is_ok());
        let error = dial(&dir.path().join("none.sock"), Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(error, DialError::Open { .. }), "{error}");
    }
}
