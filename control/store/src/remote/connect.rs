//! The members of a cluster: a connection to each, and which of them is asked.
//!
//! One is asked until it fails; then the next. What may have been done already is never asked for a second time.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use podwire_wire::etcd::StatusRequest;
use podwire_wire::etcd::kv_client::KvClient;
use podwire_wire::etcd::lease_client::LeaseClient;
use podwire_wire::etcd::maintenance_client::MaintenanceClient;
use podwire_wire::etcd::watch_client::WatchClient;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Response, Status};

use super::failure::{self, Attempt};
use crate::StoreError;
use crate::etcd::{TlsError, certificates};

/// How long a connection may take to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How long an answer may take: longer than etcd takes to give up.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How often a silent connection is asked whether it is still there, and how long it may take to answer.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// What may arrive before it is read, for one call.
const WINDOW: u32 = 4 << 20;
/// The largest answer: what gRPC bears.
const MOST_ANSWER: usize = i32::MAX as usize;
/// Where etcd listens unless it is told otherwise.
const PORT: u16 = 2379;

/// The files that https is spoken with.
#[derive(Debug, Clone, Default)]
pub struct ClientTls {
    /// Who signs the members' certificates.
    pub ca: Option<PathBuf>,
    /// The client's certificate, with those that sign it.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

impl ClientTls {
    fn load(&self) -> Result<TlsConnector, TlsError> {
        let missing =
            |flag: &str| TlsError::File { path: PathBuf::new(), reason: format!("{flag} is not given") };
        let ca = self.ca.as_ref().ok_or_else(|| missing("the certificate authority of https members"))?;
        let mut roots = rustls::RootCertStore::empty();
        for authority in certificates(ca)? {
            roots.add(authority).map_err(|source| TlsError::Certificate { path: ca.clone(), source })?;
        }
        let builder =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|source| TlsError::Certificate { path: ca.clone(), source })?
                .with_root_certificates(roots);
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| TlsError::File { path: key.clone(), reason: error.to_string() })?;
                builder
                    .with_client_auth_cert(certificates(cert)?, key)
                    .map_err(|source| TlsError::Certificate { path: cert.clone(), source })?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) => return Err(missing("the key of the client's certificate")),
            (None, Some(_)) => return Err(missing("the certificate of the client's key")),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// A connection of either sort.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// One member.
#[derive(Clone)]
pub(super) struct Member {
    url: Arc<str>,
    channel: Channel,
}

impl Member {
    /// A member that is connected to when it is first asked.
    fn new(url: &str, tls: &ClientTls) -> Result<Self, StoreError> {
        let bad = |reason: String| StoreError::Refused { reason: format!("{url}: {reason}") };
        let uri: Uri = url.parse().map_err(|_| bad("this is not a URL".into()))?;
        let host = uri.host().ok_or_else(|| bad("the URL has no host".into()))?;
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(PORT));
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => {
                let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(|error| bad(error.to_string()))?;
                Some((tls.load().map_err(|error| bad(failure::chain(&error)))?, name))
            }
            _ => return Err(bad("only http and https are spoken".into())),
        };
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).map_err(|error| bad(error.to_string()))?;
        let connector = tower::service_fn(move |_: Uri| {
            let (address, tls) = (address.clone(), tls.clone());
            async move {
                let connected = tokio::time::timeout(CONNECT_WAIT, connected(&address, tls)).await;
                connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map(TokioIo::new)
            }
        });
        let channel = endpoint
            .http2_keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW)
            .connect_with_connector_lazy(connector);
        Ok(Self { url: url.into(), channel })
    }

    /// Its keys.
    pub(super) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(MOST_ANSWER)
    }

    /// Its leases.
    pub(super) fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    /// What keeps it in order.
    pub(super) fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    /// Its watches.
    pub(super) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(MOST_ANSWER)
    }
}

async fn connected(
    address: &str,
    tls: Option<(TlsConnector, ServerName<'static>)>,
) -> io::Result<Box<dyn Io>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(match tls {
        None => Box::new(stream),
        Some((tls, name)) => Box::new(tls.connect(name, stream).await?),
    })
}

/// The members of a cluster.
pub(super) struct Members {
    all: Vec<Member>,
    /// Which one is asked.
    current: AtomicUsize,
}

impl Members {
    /// The members at these URLs.
    pub(super) fn new(urls: &[String], tls: &ClientTls) -> Result<Self, StoreError> {
        if urls.is_empty() {
            return Err(StoreError::Refused { reason: "no member of the etcd cluster is named".into() });
        }
        let all = urls.iter().map(|url| Member::new(url.trim(), tls)).collect::<Result<_, _>>()?;
        Ok(Self { all, current: AtomicUsize::new(0) })
    }

    /// The member that is asked now.
    pub(super) fn current(&self) -> (usize, &Member) {
        let at = self.current.load(Ordering::Relaxed) % self.all.len();
        (at, &self.all[at])
    }

    /// Asks the next one from now on, unless somebody has said so already.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.all.len();
        // Ignored: another has been chosen meanwhile.
        self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    /// Asks one member after the other, until one answers or none is left; a write that may have been done is not
    /// asked for again. Not cancel safe for writes.
    pub(super) async fn call<T, F>(
        &self,
        attempt: Attempt,
        ask: impl Fn(Member) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        // One more than there are: the first connection may only have been an old one.
        let mut left = self.all.len();
        loop {
            let (at, member) = self.current();
            let failed = match tokio::time::timeout(ANSWER_WAIT, ask(member.clone())).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => {
                    let again = failure::not_begun(&status)
                        || attempt == Attempt::Read && failure::ask_another(&status);
                    let error = failure::translate(attempt, &status);
                    if !again {
                        return Err(error);
                    }
                    error
                }
                Err(_) if attempt == Attempt::Write => {
                    self.leave(at);
                    return Err(failure::late(attempt, ANSWER_WAIT));
                }
                Err(_) => failure::late(attempt, ANSWER_WAIT),
            };
            self.leave(at);
            if left == 0 {
                return Err(failed);
            }
            left -= 1;
        }
    }

    /// Waits until a member answers, and refuses a version whose word about progress cannot be relied on.
    pub(super) async fn check_versions(&self, wait: Duration) -> Result<(), StoreError> {
        let begun = Instant::now();
        loop {
            let asked = self.call(Attempt::Read, |member| async move {
                member.maintenance().status(StatusRequest {}).await
            });
            match asked.await {
                Ok(status) if tells_progress(&status.version) => return Ok(()),
                Ok(status) => {
                    let (version, url) = (status.version, &self.current().1.url);
                    let why = "before 3.4.31 and 3.5.13 a watch may be told of progress before what happened";
                    return Err(StoreError::Refused { reason: format!("{url} is etcd {version}: {why}") });
                }
                Err(error @ StoreError::Refused { .. }) => return Err(error),
                Err(error) if begun.elapsed() > wait => return Err(error),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "waiting for etcd");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }
}

/// Whether a progress notification of this version comes behind all events that it speaks of.
fn tells_progress(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_mislead_watchers_are_told_from_others() {
        for good in ["3.4.31", "3.5.13", "3.6.0", "3.6.0-rc.1", "4.0.0", "3.10.1"] {
            assert!(tells_progress(good), "{good}");
        }
        for bad in ["3.4.30", "3.5.12", "3.5.9", "3.3.27", "2.9.9", "", "x"] {
            assert!(!tells_progress(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_write_goes_to_the_next_member_only_if_it_never_left() {
        let urls = ["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".to_owned()];
        let members = Members::new(&urls, &ClientTls::default()).unwrap();
        let asked = std::sync::Mutex::new(Vec::new());
        let ask = |status: fn() -> Status| {
            asked.lock().unwrap().clear();
            members.call::<(), _>(Attempt::Write, {
                let asked = &asked;
                move |member| {
                    asked.lock().unwrap().push(member.url.clone());
                    async move { Err(status()) }
                }
            })
        };
        let error = ask(|| Status::unavailable("etcdserver: no leader")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert_eq!(asked.lock().unwrap().len(), 3);
        let error = ask(|| Status::unavailable("etcdserver: request timed out")).await.unwrap_err();
        assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error:?}");
        assert_eq!(asked.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_cluster_that_is_not_there_is_unavailable_and_nothing_was_done() {
        let members = Members::new(&["http://127.0.0.1:1".to_owned()], &ClientTls::default()).unwrap();
        let put = members.call(Attempt::Write, |member| async move {
            member.kv().put(podwire_wire::etcd::PutRequest::default()).await
        });
        let error = put.await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    }

    #[test]
    fn what_is_no_member_is_said() {
        for bad in ["", "localhost", "ftp://localhost", "https://localhost:2379"] {
            assert!(Member::new(bad, &ClientTls::default()).is_err(), "{bad}");
        }
    }
}
