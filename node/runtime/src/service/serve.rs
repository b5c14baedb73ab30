//! gRPC over the unix socket, with deadlines left to those who set them.
//!
//! tonic's own server ends a call when the deadline in its header passes, and says Cancelled; clients of CRI expect
//! their own DeadlineExceeded, and an operation here outlives its caller anyway.

use std::{pin::pin, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;

/// How long a connection may take to end once the server is to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Serves `routes` to everybody who connects, until `shutdown`.
pub(crate) async fn serve(listener: UnixListener, routes: Routes, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            stream = podwire_wire::accept::next(&listener, "CRI socket") => stream,
        };
        connections.spawn(converse(stream, routes.clone(), shutdown.clone()));
    }
    connections.close();
    connections.wait().await;
}

async fn converse(stream: UnixStream, routes: Routes, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(routes);
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    tokio::select! {
        // Clients go away as they please.
        _ = served.as_mut() => return,
        () = shutdown.cancelled() => served.as_mut().graceful_shutdown(),
    }
    // Past its grace a connection is dropped: what it asked for belongs to the runtime, not to it.
    drop(tokio::time::timeout(GRACE, served).await);
}
