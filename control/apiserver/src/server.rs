//! The socket: TLS, connections, and an orderly end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::resource_quota::Ledger;
use crate::admission::service::Repair;
use crate::advertise::{Advertise, Advertiser};
use crate::cache::NewKinds;
use crate::config::{Error, Given};
use crate::context::Context;
use crate::definitions::{Definer, Wishes};
use crate::handler::bootstrap;
use crate::identity::Identity;
use crate::limits::Wire;
use crate::pki::{KeyCert, Pki, PkiError, given};
use crate::service::ApiService;

/// How often the serving certificate is looked at.
const RENEW_EVERY: Duration = Duration::from_secs(6 * 3600);
/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long open requests may take after shutdown began.
const DRAIN: Duration = Duration::from_secs(5);

/// The serving certificate, replaceable while connections are accepted.
pub(crate) struct Tls {
    pki: Arc<Pki>,
    sans: Vec<String>,
    /// The certificate and key of somebody else, to be served instead.
    serving: Option<(PathBuf, PathBuf)>,
    current: Arc<Current>,
    acceptor: TlsAcceptor,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Tls {
    /// Reads or makes the serving certificate for these names.
    pub(crate) fn new(pki: Arc<Pki>, sans: Vec<String>, given: &Given) -> Result<Self, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let serving = given.serving.clone();
        let current = Arc::new(Current(ArcSwap::from_pointee(load(&pki, &sans, serving.as_ref())?)));
        let failed = |source| PkiError::Tls { subject: "the API server".into(), source };
        let mut roots = roots(&pki)?;
        if let Some(path) = &given.client_ca {
            trust(&mut roots, path)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| failed(rustls::Error::General(error.to_string())))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { pki, sans, serving, current, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Replaces the certificate when it nears its end.
    fn renew(&self) -> Result<(), PkiError> {
        self.current.0.store(Arc::new(load(&self.pki, &self.sans, self.serving.as_ref())?));
        Ok(())
    }
}

/// The authority as the only root clients and kubelets are believed by.
pub(crate) fn roots(pki: &Pki) -> Result<rustls::RootCertStore, PkiError> {
    use rustls::pki_types::pem::PemObject;
    let subject = || "the certificate authority".to_owned();
    let mut roots = rustls::RootCertStore::empty();
    let certificate = rustls::pki_types::CertificateDer::from_pem_slice(pki.ca_pem().as_bytes())
        .map_err(|source| PkiError::Pem { subject: subject(), source })?;
    roots.add(certificate).map_err(|source| PkiError::Tls { subject: subject(), source })?;
    Ok(roots)
}

/// Believes clients whose certificates are signed by those of a file.
fn trust(roots: &mut rustls::RootCertStore, path: &Path) -> Result<(), PkiError> {
    use rustls::pki_types::pem::PemObject;
    let subject = || format!("{}", path.display());
    let text = given(path)?;
    for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|source| PkiError::Pem { subject: subject(), source })?;
        roots.add(certificate).map_err(|source| PkiError::Tls { subject: subject(), source })?;
    }
    Ok(())
}

fn load(pki: &Pki, sans: &[String], serving: Option<&(PathBuf, PathBuf)>) -> Result<CertifiedKey, PkiError> {
    let subject = "the API server";
    let identity = match serving {
        Some((cert, key)) => KeyCert { cert_pem: given(cert)?, key_pem: given(key)? },
        None => pki.kept_server("apiserver", sans)?,
    };
    let (chain, key) = identity.to_der(subject)?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)
        .map_err(|source| PkiError::Tls { subject: subject.into(), source })?;
    Ok(CertifiedKey::new(chain, key))
}

/// A built API server: bound, loaded, ready to run.
pub struct ApiServer {
    context: Arc<Context>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<Tls>,
    tasks: TaskTracker,
    places: Arc<Semaphore>,
    /// Connections turned away since that was last told.
    turned_away: AtomicU64,
}

/// What the server's own tasks are asked for.
pub(crate) struct Asked {
    pub(crate) new_kinds: NewKinds,
    pub(crate) definitions: Wishes,
    pub(crate) repair: Repair,
    pub(crate) advertise: Option<Advertise>,
}

impl ApiServer {
    /// Starts following the store, makes the objects every cluster has and serves what is defined.
    pub(crate) async fn start(
        context: Arc<Context>,
        asked: Asked,
        listener: TcpListener,
        address: SocketAddr,
        tls: Tls,
    ) -> Result<Self, Error> {
        let tasks = TaskTracker::new();
        let follower = context.clone();
        tasks.spawn(async move {
            follower.caches.run(follower.store.as_ref(), asked.new_kinds, follower.shutdown.clone()).await;
        });
        let counter = context.clone();
        tasks.spawn(async move { Ledger::run(&counter).await });
        let mut repair = asked.repair;
        let made = bootstrap::run(&context, &mut repair).await;
        made.map_err(|error| Error::Bootstrap { message: error.message })?;
        tasks.spawn(repair.run(context.clone()));
        if let Some(own) = asked.advertise {
            tasks.spawn(Advertiser::new(own).run(context.clone()));
        }
        let mut definer = Definer::new(context.clone());
        definer.catch_up().await.map_err(|error| Error::Definitions { message: error.message })?;
        let shutdown = context.shutdown.clone();
        tasks.spawn(definer.run(asked.definitions, shutdown));
        let places = Arc::new(Semaphore::new(context.limits.connections));
        let turned_away = AtomicU64::new(0);
        Ok(Self { context, listener, address, tls: Arc::new(tls), tasks, places, turned_away })
    }

    /// The service, for whoever brings an identity of its own as a request extension or none at all.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.context.clone(), None)
    }

    /// The service as one user sees it, without a socket.
    pub fn client(&self, identity: Identity) -> ApiService {
        ApiService::new(self.context.clone(), Some(identity))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The certificate authority, for kubeconfigs and node certificates.
    pub fn pki(&self) -> Arc<Pki> {
        self.context.pki.clone()
    }

    /// Serves until `shutdown`, then ends watches, finishes open requests and returns.
    pub async fn run(self, shutdown: CancellationToken) {
        let drain = CancellationToken::new();
        let mut renewals = tokio::time::interval(RENEW_EVERY);
        renewals.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        renewals.tick().await;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                stream = podwire_wire::accept::next(&self.listener, "API server") => self.take(stream, drain.clone()),
                _ = renewals.tick() => if let Err(error) = self.renew() {
                    tracing::error!(error = %crate::error_chain(&error), "certificates were not renewed; trying again later");
                },
            }
        }
        drain.cancel();
        self.context.shutdown.cancel();
        self.tasks.close();
        if tokio::time::timeout(DRAIN, self.tasks.wait()).await.is_err() {
            tracing::warn!(open = self.tasks.len(), "connections were still open at the end");
        }
    }

    fn renew(&self) -> Result<(), PkiError> {
        self.tls.renew()?;
        self.context.kubelets.renew(&self.context.pki)
    }

    fn take(&self, stream: TcpStream, drain: CancellationToken) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            // Closed at once: a descriptor that waits is one that is missing elsewhere.
            if self.turned_away.fetch_add(1, Ordering::Relaxed).is_multiple_of(1000) {
                let most = self.context.limits.connections;
                tracing::warn!(most, "too many connections; new ones are turned away");
            }
            return;
        };
        let (tls, context, tasks) = (self.tls.clone(), self.context.clone(), self.tasks.clone());
        let wire = Wire::new(Some(place), stream.peer_addr().ok().map(|peer| peer.ip()));
        self.tasks.spawn(async move {
            if let Err(error) = connection(stream, &tls, context, tasks, drain, wire).await {
                tracing::debug!(error, "connection ended");
            }
        });
    }
}

/// Runs the work of a connection inside the server's tracker, so that shutdown can wait for it.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        self.0.spawn(async move {
            future.await;
        });
    }
}

async fn connection(
    stream: TcpStream,
    tls: &Tls,
    context: Arc<Context>,
    tasks: TaskTracker,
    drain: CancellationToken,
    wire: Arc<Wire>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE, tls.acceptor.accept(stream)).await??;
    let peer = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let identity = peer.and_then(|certificate| crate::authn::from_certificate(certificate));
    let idle = context.limits.idle;
    let service = TowerToHyperService::new(ApiService::outside(context, identity, wire.clone()));
    let mut builder = auto::Builder::new(Tracked(tasks));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(2000)
        .keep_alive_interval(Duration::from_secs(30))
        .adaptive_window(true);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut looks = tokio::time::interval((idle / 8).max(Duration::from_millis(10)));
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ending = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => return result,
            () = drain.cancelled(), if !ending => ending = true,
            _ = looks.tick() => {
                if wire.is_stalled() {
                    return Err("the client does not read its answers".into());
                }
                if ending || wire.idle() < idle {
                    continue;
                }
                ending = true;
            }
        }
        connection.as_mut().graceful_shutdown();
    }
}
