//! The streaming server: exec, attach and port-forward over one-time URLs.
//!
//! CRI answers Exec, Attach and PortForward with a URL of this server. A client upgrades it to
//! WebSocket (`v5.channel.k8s.io`, `v4.channel.k8s.io`; port-forward as SPDY frames in WebSocket
//! messages) or to SPDY/3.1. The server copies bytes; [`StreamBackend`] owns the containers.
//!
//! Tasks: one per connection, in the server's tracker; each ends with its connection or at shutdown.

pub mod backend;
pub(crate) mod containers;
pub(crate) mod fdio;
mod forward;
#[doc(hidden)]
pub mod hostile;
mod negotiate;
pub(crate) mod port_forward;
mod session;
pub mod spdy;
mod spdy_session;
mod status;
mod token;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::stream::backend::{StreamBackend, Streams};
use negotiate::{Choice, Refusal};
use token::Tokens;

/// A session without traffic is ended after this long.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);
/// How long a client may take to open the streams it announced.
const STREAM_CREATION: Duration = Duration::from_secs(30);

/// Why no URL could be given out.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// Too many URLs are waiting to be used.
    #[error("maximum number of in-flight streaming requests exceeded")]
    TooMany,
    /// The system gave no randomness.
    #[error("make a token")]
    Random(#[source] io::Error),
}

/// What a URL stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    Exec { container: String, argv: Vec<String>, streams: Streams },
    Attach { container: String, streams: Streams },
    PortForward { sandbox: String, ports: Vec<u16> },
}

impl Work {
    fn verb(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "exec",
            Self::Attach { .. } => "attach",
            Self::PortForward { .. } => "portforward",
        }
    }
}

/// The streaming server; clones share it.
#[derive(Clone)]
pub struct StreamServer {
    inner: Arc<Inner>,
}

struct Inner {
    listener: TcpListener,
    address: SocketAddr,
    backend: Arc<dyn StreamBackend>,
    tokens: Mutex<Tokens<Work>>,
    tracker: TaskTracker,
}

impl StreamServer {
    /// Binds the server's address; port 0 takes a free one.
    pub async fn bind(listen: SocketAddr, backend: Arc<dyn StreamBackend>) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let tokens = Mutex::new(Tokens::default());
        Ok(Self {
            inner: Arc::new(Inner { listener, address, backend, tokens, tracker: TaskTracker::new() }),
        })
    }

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.address
    }

    /// A URL that runs `argv` in a container, once.
    pub fn exec_url(
        &self,
        container_id: &str,
        argv: Vec<String>,
        streams: Streams,
    ) -> Result<String, UrlError> {
        self.url(Work::Exec { container: container_id.to_owned(), argv, streams })
    }

    /// A URL that joins a container's main process, once.
    pub fn attach_url(&self, container_id: &str, streams: Streams) -> Result<String, UrlError> {
        self.url(Work::Attach { container: container_id.to_owned(), streams })
    }

    /// A URL that forwards ports of a sandbox, once.
    pub fn port_forward_url(&self, sandbox_id: &str, ports: Vec<u16>) -> Result<String, UrlError> {
        self.url(Work::PortForward { sandbox: sandbox_id.to_owned(), ports })
    }

    fn url(&self, work: Work) -> Result<String, UrlError> {
        let verb = work.verb();
        let mut random = [0u8; 12];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| UrlError::Random(error.into()))?;
        let token = token::encode(&random);
        let now = tokio::time::Instant::now().into_std();
        let mut tokens = self.inner.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if !tokens.insert(token.clone(), work, now) {
            return Err(UrlError::TooMany);
        }
        Ok(format!("http://{}/{verb}/{token}", self.inner.address))
    }

    /// Serves until `shutdown`; sessions still open then are ended.
    pub async fn run(self, shutdown: CancellationToken) {
        let inner = &self.inner;
        loop {
            let socket = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                socket = podwire_wire::accept::next(&inner.listener, "streaming server") => socket,
            };
            // Ignored: a socket that cannot be tuned is only slower.
            socket.set_nodelay(true).ok();
            let server = self.clone();
            let shutdown = shutdown.clone();
            inner.tracker.spawn(async move { server.connection(socket, shutdown).await });
        }
        inner.tracker.close();
        inner.tracker.wait().await;
    }

    async fn connection(self, socket: tokio::net::TcpStream, shutdown: CancellationToken) {
        let service = hyper::service::service_fn(|request| {
            let response = self.answer(request, &shutdown);
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(STREAM_CREATION);
        let connection = http.serve_connection(TokioIo::new(socket), service).with_upgrades();
        tokio::select! {
            () = shutdown.cancelled() => {}
            served = connection => {
                if let Err(error) = served {
                    tracing::debug!(%error, "streaming connection ended badly");
                }
            }
        }
    }

    fn answer(&self, mut request: Request<Incoming>, shutdown: &CancellationToken) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::POST) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST");
        }
        let Some((verb, token)) = split_path(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "no such endpoint");
        };
        let now = tokio::time::Instant::now().into_std();
        let mut tokens = self.inner.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let work = tokens.take(token, now).filter(|work| work.verb() == verb);
        drop(tokens);
        let Some(work) = work else {
            return text(StatusCode::NOT_FOUND, "the URL was used before, has expired or never existed");
        };
        let choice = match negotiate::choose(request.headers(), matches!(work, Work::PortForward { .. })) {
            Ok(choice) => choice,
            Err(refusal) => return refuse(&refusal),
        };
        let response = accept(&choice);
        let upgrade = hyper::upgrade::on(&mut request);
        let (backend, shutdown) = (Arc::clone(&self.inner.backend), shutdown.clone());
        self.inner.tracker.spawn(async move {
            let io = match upgrade.await {
                Ok(upgraded) => TokioIo::new(upgraded),
                Err(error) => {
                    tracing::debug!(%error, "client went away before the upgrade");
                    return;
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = serve(io, choice, work, backend) => {}
            }
        });
        response
    }
}

/// Runs one upgraded connection to its end.
async fn serve(
    io: TokioIo<hyper::upgrade::Upgraded>,
    choice: Choice,
    work: Work,
    backend: Arc<dyn StreamBackend>,
) {
    match (choice, work) {
        (Choice::WebSocket { version, .. }, Work::PortForward { sandbox, ports }) => match version {
            Some(_) => forward::channels(io, backend, sandbox, ports).await,
            None => forward::serve(websocket::tunnel(io).await, backend, sandbox).await,
        },
        (Choice::Spdy { .. }, Work::PortForward { sandbox, .. }) => {
            forward::serve(io, backend, sandbox).await
        }
        (Choice::WebSocket { version, .. }, work) => {
            websocket::session(io, version.unwrap_or(negotiate::Version::V4), work, backend).await;
        }
        (Choice::Spdy { version, .. }, work) => spdy_session::session(io, version, work, backend).await,
    }
}

fn split_path(path: &str) -> Option<(&str, &str)> {
    let (verb, token) = path.strip_prefix('/')?.split_once('/')?;
    (!token.is_empty() && !token.contains('/')).then_some((verb, token))
}

fn text(status: StatusCode, message: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(message.as_bytes())));
    *response.status_mut() = status;
    response
}

fn refuse(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = text(refusal.status, refusal.message);
    for version in refusal.offered {
        response
            .headers_mut()
            .append("x-accepted-stream-protocol-versions", header::HeaderValue::from_static(version));
    }
    response
}

/// The 101 answer that a choice stands for.
fn accept(choice: &Choice) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
    match choice {
        Choice::WebSocket { key, protocol, .. } => {
            headers.insert(header::UPGRADE, header::HeaderValue::from_static("websocket"));
            let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
            let accept = header::HeaderValue::from_str(&accept).expect("base64 is a header value");
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            if let Some(protocol) = protocol {
                headers.insert(header::SEC_WEBSOCKET_PROTOCOL, header::HeaderValue::from_static(protocol));
            }
        }
        Choice::Spdy { protocol, .. } => {
            headers.insert(header::UPGRADE, header::HeaderValue::from_static("SPDY/3.1"));
            if let Some(protocol) = protocol {
                headers.insert("x-stream-protocol-version", header::HeaderValue::from_static(protocol));
            }
        }
    }
    response
}
