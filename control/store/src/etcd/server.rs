//! Connections: plain or TLS, gRPC and HTTP on the same port.
//!
//! [`Etcd::run`] has a task for each door and one for each connection; all have ended when it returns.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use podwire_wire::accept;
use podwire_wire::etcd::auth_server::AuthServer;
use podwire_wire::etcd::cluster_server::ClusterServer;
use podwire_wire::etcd::kv_server::KvServer;
use podwire_wire::etcd::lease_server::LeaseServer;
use podwire_wire::etcd::maintenance_server::MaintenanceServer;
use podwire_wire::etcd::watch_server::WatchServer;
use podwire_wire::grpc_health::health_server::HealthServer;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

use super::Etcd;

/// What gRPC adds to a request at most.
const OVERHEAD: usize = 512 << 10;
/// How long a client may take to say hello.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may take to end what it has begun.
const GRACE: Duration = Duration::from_secs(2);
/// How often a silent connection is asked whether it is still there, and how long it may take to answer.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));
/// Calls on one connection at once: kube-apiserver has some hundred watches on one.
const STREAMS: u32 = 100_000;
/// What a client may send before it is read, for one call and for all of a connection.
const WINDOWS: (u32, u32) = (1 << 20, 4 << 20);
/// What is spoken behind TLS.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where clients come in.
pub struct Door {
    /// What is listened on.
    pub listener: TcpListener,
    /// TLS, if it is to be spoken.
    pub tls: Option<TlsAcceptor>,
    /// Only health and metrics are answered here.
    pub metrics_only: bool,
}

/// The files of a door with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, with those that sign it.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs clients, if they must show a certificate.
    pub client_ca: Option<PathBuf>,
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read as what it is to be.
    #[error("read {path:?}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Key and certificate that do not go together, or an authority that is none.
    #[error("use the certificate {path:?}")]
    Certificate {
        /// The certificate's file.
        path: PathBuf,
        /// What TLS says.
        source: rustls::Error,
    },
    /// A certificate that could not be made.
    #[error("make a certificate: {reason}")]
    Make {
        /// What is wrong.
        reason: String,
    },
}

/// TLS with a certificate that is made here and now and that nobody else vouches for: `--auto-tls` of etcd.
pub fn self_signed(names: Vec<String>) -> Result<TlsAcceptor, TlsError> {
    let failed = |error: &dyn std::error::Error| TlsError::Make { reason: error.to_string() };
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| failed(&error))?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .map_err(|error| failed(&error))?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl TlsFiles {
    /// Reads the files.
    pub fn load(&self) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Certificate { path: self.cert.clone(), source })?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = rustls::RootCertStore::empty();
                for authority in certificates(path)? {
                    roots
                        .add(authority)
                        .map_err(|source| TlsError::Certificate { path: path.clone(), source })?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| TlsError::File { path: path.clone(), reason: error.to_string() })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| TlsError::File { path: self.key.clone(), reason: error.to_string() })?;
        let mut config = builder
            .with_single_cert(certificates(&self.cert)?, key)
            .map_err(|source| TlsError::Certificate { path: self.cert.clone(), source })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The certificates of a file; at least one.
pub(crate) fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::File { path: path.clone(), reason };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    let all: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    if all.is_empty() { Err(failed("no certificate in it".into())) } else { Ok(all) }
}

/// Spawns what a connection needs where it can be waited for.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F: Future<Output: Send + 'static> + Send + 'static> hyper::rt::Executor<F> for Tracked {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

impl Etcd {
    /// Serves until `shutdown`; then every connection has ended and the directory is free.
    pub async fn run(self, doors: Vec<Door>, shutdown: CancellationToken) {
        let tasks = TaskTracker::new();
        for door in doors {
            tasks.spawn(self.clone().serve(door, tasks.clone(), shutdown.clone()));
        }
        let compacting = self.clone();
        let stop = shutdown.clone();
        tasks.spawn(async move { compacting.compact_by_itself(stop).await });
        shutdown.cancelled().await;
        self.0.stopping.cancel();
        tasks.close();
        tasks.wait().await;
        self.close().await;
    }

    async fn serve(self, door: Door, tasks: TaskTracker, shutdown: CancellationToken) {
        let routes = self.routes();
        loop {
            let stream = tokio::select! {
                () = shutdown.cancelled() => return,
                stream = accept::next(&door.listener, "etcd") => stream,
            };
            // Ignored: an answer then waits for a full packet, and comes a little later.
            stream.set_nodelay(true).ok();
            let (etcd, tls, metrics_only) = (self.clone(), door.tls.clone(), door.metrics_only);
            let routes = (!metrics_only).then(|| routes.clone());
            let (inside, shutdown) = (tasks.clone(), shutdown.clone());
            tasks.spawn(async move {
                match tls {
                    None => etcd.connection(stream, routes, inside, shutdown).await,
                    Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        Ok(Ok(stream)) => etcd.connection(stream, routes, inside, shutdown).await,
                        Ok(Err(error)) => tracing::debug!(%error, "a client was not let in"),
                        Err(_) => tracing::debug!("a client took too long to say hello"),
                    },
                }
            });
        }
    }

    /// etcd's services.
    fn routes(&self) -> Routes {
        let most = self.config().max_request_bytes + OVERHEAD;
        let kv = KvServer::new(self.clone()).max_decoding_message_size(most);
        let watch = WatchServer::new(self.clone()).max_decoding_message_size(most);
        Routes::new(kv.max_encoding_message_size(usize::MAX))
            .add_service(watch.max_encoding_message_size(usize::MAX))
            .add_service(LeaseServer::new(self.clone()).max_encoding_message_size(usize::MAX))
            .add_service(MaintenanceServer::new(self.clone()))
            .add_service(ClusterServer::new(self.clone()))
            .add_service(AuthServer::new(self.clone()))
            .add_service(HealthServer::new(self.clone()))
            .prepare()
    }

    async fn connection<S>(
        self,
        stream: S,
        routes: Option<Routes>,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let (etcd, routes) = (self.clone(), routes.clone());
            async move { Ok::<_, Infallible>(etcd.answer(request, routes).await) }
        });
        let mut builder = auto::Builder::new(Tracked(tasks));
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(GRACE, connection).await {
                    Ok(ended) => ended,
                    Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }

    async fn answer(self, request: Request<Incoming>, routes: Option<Routes>) -> Response<Body> {
        let path = request.uri().path();
        match routes {
            Some(routes) if path.starts_with("/etcdserverpb.") || path.starts_with("/grpc.health.v1.") => {
                match routes.oneshot(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                }
            }
            _ => self.plain(request.method(), path),
        }
    }
}
