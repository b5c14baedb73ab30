//! A backend of few words at an address of the cluster: it tells what it was asked, and shows pages and streams.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and fails where it unwraps"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use podwire_apiserver::pki::{KeyCert, Pki};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A running backend; ends when it is dropped.
pub(crate) struct Backend {
    pub(crate) port: u16,
    /// One for each stream that the backend was asked for: what is sent here is sent to the client.
    pub(crate) streams: mpsc::Receiver<mpsc::Sender<&'static str>>,
    _tasks: JoinSet<()>,
}

/// One that speaks plain HTTP.
pub(crate) async fn plain(address: &str) -> Backend {
    start(address, None).await
}

/// One behind TLS, with a certificate of that authority for that name, which asks clients for theirs if told to.
pub(crate) async fn tls(address: &str, pki: &Pki, name: &str, asks: bool) -> Backend {
    let names = [name.to_owned()];
    let issued = if asks { pki.issue_node_server("n1", &names) } else { pki.issue_server(&names) };
    let KeyCert { cert_pem, key_pem } = issued.unwrap();
    let chain = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if asks {
        builder.with_client_cert_verifier(clients.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(chain, key).unwrap();
    start(address, Some(TlsAcceptor::from(Arc::new(config)))).await
}

async fn start(address: &str, acceptor: Option<TlsAcceptor>) -> Backend {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, streams) = mpsc::channel(8);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, asked) = (acceptor.clone(), asked.clone());
            connections.spawn(async move {
                match acceptor {
                    None => serve(stream, asked).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream, asked).await;
                        }
                    }
                }
            });
        }
    });
    Backend { port, streams, _tasks: tasks }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    asked: mpsc::Sender<mpsc::Sender<&'static str>>,
) {
    let service = hyper::service::service_fn(move |request| {
        let asked = asked.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(request, asked).await) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    // Ignored: the other side may close at any time.
    http.serve_connection(TokioIo::new(stream), service).with_upgrades().await.ok();
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

const PAGE: &str = r#"<html><a href="/x?a=1&amp;b=2">x</a><a href="y">y</a><img src="http://other/z"/><script>"<a href='/no'>"</script></html>"#;

async fn answer(
    request: Request<Incoming>,
    asked: mpsc::Sender<mpsc::Sender<&'static str>>,
) -> Response<Body> {
    let response = Response::builder();
    match request.uri().path() {
        "/page" => response.header("content-type", "text/html; charset=utf-8").body(full(PAGE)).unwrap(),
        "/packed" => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            packer.write_all(PAGE.as_bytes()).unwrap();
            let response = response.header("content-type", "text/html").header("content-encoding", "gzip");
            response.body(full(packer.finish().unwrap())).unwrap()
        }
        "/redirect" => response
            .status(302)
            .header("location", "/elsewhere?q=1")
            .header("content-type", "text/plain")
            .body(full("moved"))
            .unwrap(),
        "/away" => response
            .status(307)
            .header("location", "http://other/x")
            .header("content-type", "text/plain")
            .body(full("moved"))
            .unwrap(),
        "/teapot" => response.status(418).header("retry-after", "7").body(full("short and stout")).unwrap(),
        "/headers" => response
            .header("access-control-allow-origin", "*")
            .header("cache-control", "max-age=60")
            .header("keep-alive", "timeout=5")
            .header("x-own", "kept")
            .header("content-type", "text/plain")
            .body(full("headers"))
            .unwrap(),
        "/stream" => {
            let (sender, mut receiver) = mpsc::channel::<&'static str>(1);
            asked.send(sender).await.unwrap();
            let pieces = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
            let frames = futures::StreamExt::map(pieces, |piece| Ok(Frame::data(Bytes::from(piece))));
            response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
        }
        "/endless" => {
            let frames = futures::stream::repeat_with(|| Ok(Frame::data(Bytes::from(vec![b'x'; 65536]))));
            let frames = StreamBody::new(futures::StreamExt::take(frames, 160));
            response.header("content-type", "text/html").body(frames.boxed_unsync()).unwrap()
        }
        "/upgrade" if request.headers().contains_key(header::UPGRADE) => upgraded(request),
        "/no-upgrade" => {
            let words = format!("not with you at {}", request.uri());
            response.status(403).header("content-type", "text/plain").body(full(words)).unwrap()
        }
        _ => tell(request).await,
    }
}

/// What was asked.
async fn tell(request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &parts.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.entry(name.to_string()).or_default().push(value);
    }
    // The one names a port that differs from run to run, the other is the transport's own.
    headers.remove("host");
    headers.remove("accept-encoding");
    let body = body.collect().await.unwrap().to_bytes();
    let told = json!({
        "method": parts.method.as_str(), "uri": parts.uri.to_string(), "headers": headers,
        "length": body.len(), "body": String::from_utf8_lossy(&body[..body.len().min(100)]),
    });
    Response::builder().header("content-type", "application/json").body(full(told.to_string())).unwrap()
}

/// Says what it was asked and then echoes.
fn upgraded(mut request: Request<Incoming>) -> Response<Body> {
    let names: Vec<String> = request.headers().keys().map(ToString::to_string).collect();
    let greeting = format!("{} {}\n", request.uri(), names.join(","));
    let upgraded = hyper::upgrade::on(&mut request);
    let mut set = JoinSet::new();
    set.spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        stream.write_all(greeting.as_bytes()).await.unwrap();
        let mut buffer = [0_u8; 64];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..read]).await.unwrap();
        }
    });
    set.detach_all();
    let response =
        Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "websocket");
    response.body(full("")).unwrap()
}
