//! The way to an API server elsewhere: HTTP over TLS, credentials in every request, and another try when it is busy.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podwire_wire::tls::TrustAnyone;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

use crate::body::{Body, BoxError};
use crate::credentials::Credentials;
use crate::kubeconfig::{Config, ConfigError, refused};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(30);
/// The first wait before another try, and how many there are: some minutes in all, as a server takes to come back.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const TRIES: u32 = 15;
/// Where distributions keep the certificates that they trust.
const SYSTEM_ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// An API server elsewhere.
#[derive(Clone)]
pub(crate) struct Remote {
    http: Http<Connector, Body>,
    server: Uri,
    headers: Arc<[(HeaderName, HeaderValue)]>,
    credentials: Credentials,
}

impl Remote {
    pub(crate) async fn new(config: Config) -> Result<Remote, ConfigError> {
        let identity = match config.credentials.identity().await? {
            Some(identity) => Some(identity),
            None => config.identity,
        };
        let tls = tls(config.authority.as_deref(), config.insecure, identity)?;
        let name = config.server_name.map(ServerName::try_from).transpose();
        let name = name.map_err(|error| refused("tls-server-name", error))?;
        let http = Http::builder(TokioExecutor::new()).build(Connector { tls: Arc::new(tls), name });
        let (server, headers) = (config.server, config.headers.into());
        Ok(Remote { http, server, headers, credentials: config.credentials })
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        *request.uri_mut() = beneath(&self.server, request.uri())?;
        for (name, value) in self.headers.iter() {
            request.headers_mut().append(name, value.clone());
        }
        let mut tried = 0;
        loop {
            if let Some(value) = self.credentials.header().await? {
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            let once_more = again(&request);
            let answer = self.http.request(request).await?;
            match once_more {
                Some(next) if is_busy(answer.status()) && tried < TRIES => {
                    tokio::time::sleep(wait(tried, &answer, RandomState::new().hash_one(()))).await;
                    request = next;
                    tried += 1;
                }
                _ => return Ok(answer),
            }
        }
    }
}

impl Service<Request<Body>> for Remote {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// A path of the API beneath the server's address, which may have a path itself.
fn beneath(server: &Uri, asked: &Uri) -> Result<Uri, BoxError> {
    let path = asked.path_and_query().map_or("/", |path| path.as_str());
    let above = server.path().trim_end_matches('/');
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(format!("{above}{path}").parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// The same request, if it can be sent twice.
fn again(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().again()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// The server did nothing, and may do it later.
fn is_busy(code: StatusCode) -> bool {
    matches!(
        code,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Twice as long each time, at random up to twice that, and not less than the server asks for.
fn wait<B>(tried: u32, answer: &Response<B>, random: u64) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << tried.min(TRIES));
    let most = u64::try_from(doubled.as_millis()).unwrap_or(u64::MAX);
    let own = doubled + Duration::from_millis(random % most.max(1));
    let asked = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    own.max(asked.map_or(Duration::ZERO, Duration::from_secs))
}

fn tls(
    authority: Option<&[u8]>,
    insecure: bool,
    identity: Option<(Vec<u8>, Vec<u8>)>,
) -> Result<ClientConfig, ConfigError> {
    let bad = |error: BoxError| ConfigError::Tls(error);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.into()))?;
    let builder = if insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnyone::new(provider)))
    } else {
        match roots(authority)? {
            // Any handshake will fail, in words that say why; plain HTTP still works.
            roots if roots.is_empty() => builder.with_root_certificates(roots),
            roots => {
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_webpki_verifier(verifier.map_err(|error| bad(error.into()))?)
            }
        }
    };
    let Some((certificate, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| bad(error.into()))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| bad(error.into()))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| bad(error.into()))
}

fn roots(authority: Option<&[u8]>) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    let Some(authority) = authority else {
        // Files that are not there belong to other distributions.
        let files = SYSTEM_ROOTS.iter().filter_map(|file| CertificateDer::pem_file_iter(file).ok());
        roots.add_parsable_certificates(files.flatten().flatten());
        return Ok(roots);
    };
    for certificate in CertificateDer::pem_slice_iter(authority) {
        let certificate = certificate.map_err(|error| ConfigError::Tls(error.into()))?;
        roots.add(certificate).map_err(|error| ConfigError::Tls(error.into()))?;
    }
    Ok(roots)
}

/// Opens connections.
#[derive(Clone)]
struct Connector {
    tls: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl Connector {
    async fn open(self, uri: Uri) -> io::Result<Stream> {
        let host = uri.host().ok_or_else(|| io::Error::other("the address has no host"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let secure = uri.scheme_str() != Some("http");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let opening = async {
            let socket = TcpStream::connect((host.as_str(), port)).await?;
            socket.set_nodelay(true)?;
            if !secure {
                return Ok(Stream::Plain(TokioIo::new(socket)));
            }
            let name = match self.name {
                Some(name) => name,
                None => ServerName::try_from(host.clone()).map_err(io::Error::other)?,
            };
            let stream = TlsConnector::from(self.tls).connect(name, socket).await?;
            Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
        };
        let opened = tokio::time::timeout(CONNECT, opening).await;
        opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().open(uri))
    }
}

/// An open connection.
enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Stream {
    fn read(&mut self) -> Pin<&mut (dyn Read + Send + Unpin)> {
        match self {
            Stream::Plain(stream) => Pin::new(stream),
            Stream::Tls(stream) => Pin::new(&mut **stream),
        }
    }

    fn write(&mut self) -> Pin<&mut (dyn Write + Send + Unpin)> {
        match self {
            Stream::Plain(stream) => Pin::new(stream),
            Stream::Tls(stream) => Pin::new(&mut **stream),
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.get_mut().read().poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().write().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().write().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().write().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_own_path_stays_above() {
        let at = |server: &str, asked: &str| {
            beneath(&server.parse().unwrap(), &asked.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(at("https://a:1", "/api/v1/pods?watch=1"), "https://a:1/api/v1/pods?watch=1");
        assert_eq!(at("https://a:1/k8s/", "/api"), "https://a:1/k8s/api");
    }

    #[test]
    fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
        let mut answer = Response::new(());
        assert_eq!(wait(0, &answer, 0), Duration::from_millis(5));
        assert_eq!(wait(3, &answer, 41), Duration::from_millis(41));
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
        assert_eq!(wait(3, &answer, 0), Duration::from_secs(2));
        assert!(is_busy(StatusCode::TOO_MANY_REQUESTS) && !is_busy(StatusCode::INTERNAL_SERVER_ERROR));
    }

    #[test]
    fn a_request_can_be_sent_twice_unless_its_body_is_a_stream() {
        let mut request = Request::post("/api").header("x", "y").body(Body::from("abc")).unwrap();
        let copy = again(&request).unwrap();
        assert_eq!(
            (copy.method(), copy.uri().path(), &copy.headers()["x"]),
            (&http::Method::POST, "/api", &"y".parse::<HeaderValue>().unwrap())
        );
        *request.body_mut() = Body::wrap(http_body_util::Full::new(bytes::Bytes::from("abc")));
        assert!(again(&request).is_none());
    }
}
