//! Calls a webhook: one connection, one question, a bounded answer. The caller bounds the time.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::hook::{Hook, Target};
use crate::body::{self, Body};
use crate::context::Context;
use crate::endpoints;
use crate::handler::BODY_LIMIT;
use crate::service::read_body;

/// Where the call goes.
struct Place {
    /// The name that the certificate must carry.
    name: String,
    addresses: Vec<SocketAddr>,
    host: String,
}

/// Posts a review and reads the answer; the error is what upstream says after `failed to call webhook`.
pub(super) fn call<'a>(
    context: &'a Context,
    hook: &'a Hook,
    review: &'a Value,
) -> BoxFuture<'a, Result<Bytes, String>> {
    Box::pin(async move {
        let url = hook.shown_url();
        let uri: Uri = url.parse().map_err(|error| format!("parse \"{url}\": {error}"))?;
        let place = find(context, hook, &uri).await?;
        let posted = |why: String| format!("Post \"{url}\": {why}");
        let stream = connect(&place).await.map_err(posted)?;
        let tls = hook.tls.clone()?;
        let name = ServerName::try_from(place.name.clone()).map_err(|error| posted(error.to_string()))?;
        let stream = TlsConnector::from(tls)
            .connect(name, stream)
            .await
            .map_err(|error| posted(format!("tls: failed to verify certificate: {error}")))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| posted(error.to_string()))?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let request = Request::post(target)
            .header(header::HOST, &place.host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(body::full(review.to_string()))
            .map_err(|error| posted(error.to_string()))?;
        let exchange = exchange(sender, request);
        let connection = driven(connection);
        // The connection ends with the exchange, which drops its sender.
        let (exchanged, ()) = tokio::join!(exchange, connection);
        let (status, bytes) = exchanged.map_err(posted)?;
        match status {
            StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED => Ok(bytes),
            StatusCode::NOT_FOUND => Err("the server could not find the requested resource".to_owned()),
            other => {
                let text: String = String::from_utf8_lossy(&bytes).trim().chars().take(512).collect();
                let shown = if text.is_empty() {
                    other.canonical_reason().unwrap_or("unknown").to_owned()
                } else {
                    text
                };
                Err(format!("an error on the server ({shown:?}) has prevented the request from succeeding"))
            }
        }
    })
}

type Connection = http1::Connection<TokioIo<TlsStream<TcpStream>>, Body>;

/// Drives a connection to its end. Boxed, as the compiler cannot prove the plain future to be `Send` inside a larger one.
fn driven(connection: Connection) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a webhook ended");
        }
    })
}

/// One question and its answer; boxed for the same reason.
fn exchange(
    mut sender: http1::SendRequest<Body>,
    request: Request<Body>,
) -> BoxFuture<'static, Result<(StatusCode, Bytes), String>> {
    Box::pin(async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let bytes =
            read_body(boxed(response.into_body()), BODY_LIMIT).await.map_err(|error| error.message)?;
        Ok((status, bytes))
    })
}

fn boxed(body: hyper::body::Incoming) -> Body {
    body.map_err(Into::into).boxed_unsync()
}

async fn find(context: &Context, hook: &Hook, uri: &Uri) -> Result<Place, String> {
    match &hook.target {
        Target::Url(_) => {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(443);
            let looked_up =
                tokio::net::lookup_host((host.as_str(), port)).await.map(Iterator::collect::<Vec<_>>);
            let addresses = looked_up.map_err(|_| {
                format!("Post \"{}\": dial tcp: lookup {host}: no such host", hook.shown_url())
            })?;
            let shown = uri.authority().map_or(host.as_str(), |authority| authority.as_str()).to_owned();
            Ok(Place { name: host, addresses, host: shown })
        }
        Target::Service { namespace, name, port, .. } => {
            let endpoints = endpoints::of_service(context, namespace, name, *port).await;
            let addresses = endpoints
                .map_err(|error| format!("Post \"{}\": {}", hook.shown_url(), error.webhook_words(name)))?;
            let name = format!("{name}.{namespace}.svc");
            Ok(Place { host: name.clone(), name, addresses })
        }
    }
}

async fn connect(place: &Place) -> Result<TcpStream, String> {
    let mut last = "no address".to_owned();
    for address in place.addresses.iter().take(4) {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Ignored: a delay is all that it costs.
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                last = format!("dial tcp {address}: connect: connection refused");
            }
            Err(error) => last = format!("dial tcp {address}: {error}"),
        }
    }
    Err(last)
}
