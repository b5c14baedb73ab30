//! Metrics of a runtime that runs alone: one page over plain HTTP, as containerd's metrics address serves it.

use std::{convert::Infallible, net::SocketAddr};

use anyhow::{Context, Result};
use hyper::{Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use podwire_nri::Nri;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The page, listening.
pub struct Metrics(TcpListener);

impl Metrics {
    /// Listens on the address.
    pub async fn listen(address: SocketAddr) -> Result<Metrics> {
        let listener = TcpListener::bind(address).await;
        Ok(Metrics(listener.with_context(|| format!("--metrics-address: listen on {address}"))?))
    }

    /// Serves until `shutdown`; nothing without a page.
    pub async fn run(page: Option<Metrics>, nri: Nri, shutdown: CancellationToken) {
        let Some(Metrics(listener)) = page else { return };
        let tasks = TaskTracker::new();
        loop {
            let stream = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                stream = podwire_wire::accept::next(&listener, "NRI metrics") => stream,
            };
            let (nri, shutdown) = (nri.clone(), shutdown.clone());
            tasks.spawn(async move {
                let answer = service_fn(move |request| {
                    std::future::ready(Ok::<_, Infallible>(page_for(&request, &nri)))
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

fn page_for(request: &Request<Incoming>, nri: &Nri) -> Response<String> {
    let known = matches!(request.uri().path(), "/metrics" | "/v1/metrics");
    let mut response = Response::new(if known { nri.metrics() } else { String::new() });
    if !known {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}
