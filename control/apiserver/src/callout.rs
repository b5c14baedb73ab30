//! Calls a webhook, of admission or of conversion: one connection, one question, a bounded answer in a bounded time.
//!
//! `trust` says which certificates are believed. Pure but for that and for the roots of the system, which are read from their file when a webhook brings none of its own.

mod trust;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::body::{self, Body};
use crate::context::Context;
use crate::endpoints;
use crate::service::read_body;

/// Where systems keep the authorities they believe.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A webhook as its `WebhookClientConfig` says where it is.
pub(crate) struct Client {
    target: Target,
    tls: Result<Arc<rustls::ClientConfig>, String>,
    timeout: Duration,
    /// Longer answers are refused.
    limit: usize,
    agent: &'static str,
}

/// Where a webhook is.
enum Target {
    Url(String),
    Service { namespace: String, name: String, port: u16, path: String },
}

impl Client {
    /// The webhook of a configuration. It is given so much time, and its answer has no more than `limit` bytes.
    pub(crate) fn read(client: &Value, timeout: Duration, limit: usize, agent: &'static str) -> Client {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = &client["service"];
        let target = match client["url"].as_str() {
            Some(url) => Target::Url(url.to_owned()),
            None => Target::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: service["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(443),
                path: text(&service["path"]),
            },
        };
        Client { target, tls: tls(&text(&client["caBundle"])), timeout, limit, agent }
    }

    /// The address as errors show it.
    pub(crate) fn shown_url(&self) -> String {
        let seconds = self.timeout.as_secs();
        match &self.target {
            Target::Url(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
                let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                format!("{scheme}://{host}{}?timeout={seconds}s", clean(path))
            }
            Target::Service { namespace, name, port, path } => {
                format!("https://{name}.{namespace}.svc:{port}{}?timeout={seconds}s", clean(path))
            }
        }
    }

    /// Posts a review and reads the answer; the error is why that failed, in upstream's words. Cancel safe.
    pub(crate) async fn post(&self, context: &Context, review: &Value) -> Result<Bytes, String> {
        let called = call(context, self, review);
        tokio::time::timeout(self.timeout, called)
            .await
            .unwrap_or_else(|_| Err(format!("Post \"{}\": context deadline exceeded", self.shown_url())))
    }
}

/// A path without empty parts and dots, as upstream asks for it: servers redirect who asks for `//p`.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// What a webhook's certificate is checked against: its own bundle, or what the system believes.
fn tls(bundle: &str) -> Result<Arc<rustls::ClientConfig>, String> {
    let own = STANDARD.decode(bundle).map_err(|error| error.to_string())?;
    // A bundle of nothing but spaces is none.
    let pem = match own.trim_ascii() {
        [] => SYSTEM_ROOTS.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default(),
        _ => own,
    };
    let believed: Vec<_> = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = trust::Bundle::new(believed, provider.clone()).map_err(|error| error.to_string())?;
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Where the call goes.
struct Place {
    /// The name that the certificate must carry.
    name: String,
    addresses: Vec<SocketAddr>,
    host: String,
}

fn call<'a>(
    context: &'a Context,
    hook: &'a Client,
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
            .header(header::USER_AGENT, hook.agent)
            .body(body::full(review.to_string()))
            .map_err(|error| posted(error.to_string()))?;
        let exchange = exchange(sender, request, hook.limit);
        let connection = driven(connection);
        // The connection ends with the exchange, which drops its sender.
        let (exchanged, ()) = tokio::join!(exchange, connection);
        let (status, media, bytes) = exchanged.map_err(posted)?;
        if !status.is_success() {
            return Err(refused(status, &media, &bytes));
        }
        if bytes.is_empty() {
            let code = status.as_u16();
            return Err(format!("0-length response with status code: {code} and content type: {media}"));
        }
        Ok(bytes)
    })
}

/// What upstream says about an answer with such a code; words of the webhook are told where they are plain text.
fn refused(status: StatusCode, media: &str, bytes: &[u8]) -> String {
    let told: String = if media.is_empty() || media.starts_with("text/") {
        String::from_utf8_lossy(bytes).trim().chars().take(512).collect()
    } else {
        "unknown".to_owned()
    };
    match status {
        StatusCode::BAD_REQUEST => "the server rejected our request for an unknown reason".to_owned(),
        StatusCode::UNAUTHORIZED => "the server has asked for the client to provide credentials".to_owned(),
        StatusCode::FORBIDDEN => told,
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        StatusCode::METHOD_NOT_ALLOWED => {
            "the server does not allow this method on the requested resource".to_owned()
        }
        StatusCode::CONFLICT => "the server reported a conflict".to_owned(),
        StatusCode::UNPROCESSABLE_ENTITY => {
            "the server rejected our request due to an error in our request".to_owned()
        }
        StatusCode::GATEWAY_TIMEOUT => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "the server has received too many requests and has asked us to try again later".to_owned()
        }
        StatusCode::SERVICE_UNAVAILABLE => "the server is currently unable to handle the request".to_owned(),
        status if status.is_server_error() => {
            format!("an error on the server ({told:?}) has prevented the request from succeeding")
        }
        status => format!(
            "the server responded with the status code {} but did not return more information",
            status.as_u16()
        ),
    }
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
    limit: usize,
) -> BoxFuture<'static, Result<(StatusCode, String, Bytes), String>> {
    Box::pin(async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = media.unwrap_or_default().to_owned();
        let bytes = read_body(boxed(response.into_body()), limit).await.map_err(|error| error.message)?;
        Ok((status, media, bytes))
    })
}

fn boxed(body: hyper::body::Incoming) -> Body {
    body.map_err(Into::into).boxed_unsync()
}

async fn find(context: &Context, hook: &Client, uri: &Uri) -> Result<Place, String> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_address_is_shown_with_the_time_it_has() {
        let of = |client: Value| Client::read(&client, Duration::from_secs(3), 0, "a").shown_url();
        assert_eq!(of(json!({"url": "https://127.0.0.1:1"})), "https://127.0.0.1:1/?timeout=3s");
        assert_eq!(of(json!({"url": "https://h/x"})), "https://h/x?timeout=3s");
        assert_eq!(of(json!({"url": "https://h:1//a/./b/../c/"})), "https://h:1/a/c?timeout=3s");
        let service = json!({"service": {"namespace": "n", "name": "s", "path": "/p", "port": 443}});
        assert_eq!(of(service), "https://s.n.svc:443/p?timeout=3s");
    }
}
