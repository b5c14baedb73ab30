//! The kubelet's HTTPS server: health, pods, logs, and the door to exec, attach and port forwarding.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::node::Node;

/// Serves until `shutdown`.
pub(crate) async fn run(
    _node: Arc<Node>,
    _listener: TcpListener,
    _tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) {
    shutdown.cancelled().await;
}
