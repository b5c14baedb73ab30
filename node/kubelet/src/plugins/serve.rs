//! gRPC services of the kubelet on unix sockets of its own.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, pin::pin, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use podwire_wire::{authority::PathAuthority, unix};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;

/// How long a connection may take to end once the server is to stop.
const GRACE: Duration = Duration::from_secs(1);
/// Connections that are served at once; more wait.
const AT_ONCE: usize = 256;
/// Between attempts at a socket that somebody else serves.
const RETRY: Duration = Duration::from_secs(2);

/// A folder for sockets, for its owner alone.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o750))
}

/// Listens on `path` as soon as nobody else does; `before` readies its folder. `None`: told to stop.
pub(crate) async fn listen(
    path: &Path,
    before: impl Fn() -> io::Result<()>,
    shutdown: &CancellationToken,
) -> Option<UnixListener> {
    let mut told = false;
    loop {
        let free = std::os::unix::net::UnixStream::connect(path).is_err();
        let failed = match free {
            false => format!("socket {path:?} is in use by a running process"),
            true => match before() {
                Err(error) => error.to_string(),
                Ok(()) => match unix::listen(path) {
                    Ok(listener) => return Some(listener),
                    Err(error) => podwire_trace::chain(&error),
                },
            },
        };
        if !std::mem::replace(&mut told, true) {
            tracing::error!(?path, error = failed, "socket not served; will try until it can be");
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Serves `routes` to everybody who connects, until `shutdown`.
pub(crate) async fn serve(
    listener: UnixListener,
    what: &'static str,
    routes: Routes,
    shutdown: CancellationToken,
) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let accepted = async {
            let place = room.clone().acquire_owned().await;
            (place, podwire_wire::accept::next(&listener, what).await)
        };
        let (place, stream) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accepted => accepted,
        };
        let (routes, shutdown) = (routes.clone(), shutdown.clone());
        connections.spawn(async move {
            converse(stream, routes, shutdown).await;
            drop(place);
        });
    }
    connections.close();
    connections.wait().await;
}

async fn converse(stream: UnixStream, routes: Routes, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(routes);
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // Device plugins dial the socket's path in ways that make it the authority.
        .serve_connection(TokioIo::new(PathAuthority::new(stream)), service);
    let mut served = pin!(served);
    tokio::select! {
        // Clients go away as they please.
        _ = served.as_mut() => return,
        () = shutdown.cancelled() => served.as_mut().graceful_shutdown(),
    }
    drop(tokio::time::timeout(GRACE, served).await);
}
