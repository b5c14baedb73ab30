//! Metrics of a participant that runs alone: one page over plain HTTP, as containerd's metrics address serves it.

use std::{convert::Infallible, net::SocketAddr};

use anyhow::{Context, Result};
use hyper::{Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Readers that may wait to be served.
const BACKLOG: u32 = 128;

/// The page, listening.
pub struct Metrics(TcpListener);

impl Metrics {
    /// Listens on the address.
    pub async fn listen(address: SocketAddr) -> Result<Metrics> {
        let listener = TcpListener::bind(address).await;
        Ok(Metrics(listener.with_context(|| format!("listen for readers of metrics on {address}"))?))
    }

    /// The same beside others that listen there, as two of a participant do while one takes over from the other.
    pub async fn listen_beside(address: SocketAddr) -> Result<Metrics> {
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        let listener: std::io::Result<TcpListener> = listen();
        Ok(Metrics(listener.with_context(|| format!("listen for readers of metrics on {address}"))?))
    }

    /// Serves until `shutdown`; nothing without a page.
    pub async fn run(
        page: Option<Metrics>,
        figures: impl Fn() -> String + Clone + Send + Sync + 'static,
        shutdown: CancellationToken,
    ) {
        let Some(Metrics(listener)) = page else { return };
        let tasks = TaskTracker::new();
        loop {
            let stream = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                stream = podwire_wire::accept::next(&listener, "metrics") => stream,
            };
            let (figures, shutdown) = (figures.clone(), shutdown.clone());
            tasks.spawn(async move {
                let answer = service_fn(move |request| {
                    std::future::ready(Ok::<_, Infallible>(page_for(&request, &figures)))
                });
                let serving =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    served = serving => if let Err(error) = served {
                        tracing::debug!(%error, "a reader of metrics went away");
                    }
                }
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

fn page_for(request: &Request<Incoming>, figures: &impl Fn() -> String) -> Response<String> {
    let text = match request.uri().path() {
        "/metrics" | "/v1/metrics" => Some(figures()),
        "/healthz" => Some("ok".to_owned()),
        _ => None,
    };
    let is_known = text.is_some();
    let mut response = Response::new(text.unwrap_or_default());
    if !is_known {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}
