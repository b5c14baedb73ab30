//! Pulls images from registries (OCI distribution protocol), layers in parallel, unpacked as they come.
//!
//! Tasks: each pull is one task in the store's tracker, which outlives a caller that gives up; the
//! same pull asked for again joins it. Within it, one download per layer feeds one unpacking thread.
//!
//! <https://github.com/opencontainers/distribution-spec/blob/main/spec.md>

mod auth;
mod client;
mod connect;
mod hosts;
mod layers;
mod registry;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::watch;

use crate::digest::Digest;
use crate::error::Error;
use crate::record::Image;
use crate::reference::Reference;
use crate::store::ImageStore;

pub(crate) use auth::has_credentials;
pub use auth::{Auth, Challenge, parse_challenges};
pub(crate) use hosts::places;

pub use hosts::Place;

/// How registries are reached.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// A folder of per-host settings in containerd's form: `<host>/hosts.toml`.
    pub hosts_dir: Option<PathBuf>,
    /// Credentials for pulls that bring none, in the form of docker's `config.json`.
    pub docker_config: Option<PathBuf>,
    /// Hosts whose certificates are not checked and that may speak plain HTTP.
    pub insecure: Vec<String>,
    /// Per registry host (or `*`), URLs to try before the registry itself.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Per registry host, PEM files of authorities to trust beside the system's.
    pub ca_files: BTreeMap<String, Vec<PathBuf>>,
    /// PEM files with the system's authorities; those that exist are read.
    pub system_roots: Vec<PathBuf>,
    /// Layers of one image that are downloaded at once.
    pub parallel_layers: usize,
    /// How often a request is tried.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub backoff: Duration,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// A download that brings nothing for this long is begun again where it stopped.
    pub stall_timeout: Duration,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        let roots =
            ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
        Self {
            hosts_dir: None,
            docker_config: None,
            insecure: Vec::new(),
            mirrors: BTreeMap::new(),
            ca_files: BTreeMap::new(),
            system_roots: roots.map(PathBuf::from).to_vec(),
            parallel_layers: 6,
            attempts: 5,
            backoff: Duration::from_millis(200),
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// What a pull has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes received of all layers.
    pub received: u64,
    /// Bytes of all layers that were not in the store.
    pub total: u64,
    /// Layers done.
    pub layers_done: usize,
    /// Layers in the image.
    pub layers: usize,
}

/// Hears how a pull goes.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Why a registry did not deliver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// No endpoint of the registry could be reached, or all were out of order.
    #[error("RegistryUnavailable: {url}: {reason}")]
    Unavailable {
        /// The last URL tried.
        url: String,
        /// What went wrong there.
        reason: String,
    },
    /// The registry does not have it.
    #[error("{what}: not found")]
    NotFound {
        /// The image or blob.
        what: String,
    },
    /// The registry wants other credentials, or none would do.
    #[error(
        "{what}: pull access denied, repository does not exist or may require authorization: server message: {reason}"
    )]
    Denied {
        /// The image or blob.
        what: String,
        /// The registry's words.
        reason: String,
    },
    /// The registry wants fewer requests.
    #[error("{what}: toomanyrequests: {reason}")]
    TooManyRequests {
        /// The image or blob.
        what: String,
        /// The registry's words.
        reason: String,
    },
    /// The registry answered with something else.
    #[error("{url}: unexpected answer: {reason}")]
    Unexpected {
        /// The URL asked for.
        url: String,
        /// What came.
        reason: String,
    },
    /// A settings file or URL of the configuration cannot be used.
    #[error("registry settings for {host:?}: {reason}")]
    Settings {
        /// The registry's host.
        host: String,
        /// What is wrong.
        reason: String,
    },
}

type Outcome = Result<Image, Arc<Error>>;

/// Pulls that are under way, by what is pulled and for whom.
#[derive(Default)]
pub(crate) struct PullFlights(Mutex<HashMap<(String, Auth), Flight>>);

#[derive(Clone)]
struct Flight {
    outcome: Shared<BoxFuture<'static, Outcome>>,
    progress: watch::Receiver<Progress>,
}

impl ImageStore {
    /// Pulls an image for this platform, or joins the same pull if it is under way.
    ///
    /// Cancel safe: the pull itself goes on, and a later call joins it or finds the image.
    pub async fn pull(
        &self,
        reference: &str,
        auth: Auth,
        progress: Option<OnProgress>,
    ) -> Result<Image, Error> {
        let reference: Reference = reference.parse()?;
        let mut flight = self.flight(&reference, auth);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = flight.outcome.clone() => break outcome,
                Ok(()) = flight.progress.changed() => {
                    let now = *flight.progress.borrow_and_update();
                    if let Some(report) = &progress {
                        report(now);
                    }
                }
            }
        };
        if let (Ok(_), Some(report)) = (&outcome, &progress) {
            report(*flight.progress.borrow());
        }
        drop(flight);
        outcome.map_err(|error| Arc::try_unwrap(error).unwrap_or_else(Error::Joined))
    }

    /// The pull of `reference` that is under way, or a new one.
    fn flight(&self, reference: &Reference, auth: Auth) -> Flight {
        let key = (reference.to_string(), auth);
        let mut flights = self.inner.pulls.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&key) {
            return flight.clone();
        }
        let (report, progress) = watch::channel(Progress::default());
        let (store, reference, done) = (self.clone(), reference.clone(), key.clone());
        let task = self.inner.tracker.spawn(async move {
            let outcome = store.pull_now(&reference, &done.1, &report).await;
            let mut flights = store.inner.pulls.0.lock().unwrap_or_else(PoisonError::into_inner);
            flights.remove(&done);
            outcome.map_err(Arc::new)
        });
        let outcome = async move {
            task.await.unwrap_or_else(|error| Err(Arc::new(Error::Worker { reason: error.to_string() })))
        };
        let flight = Flight { outcome: outcome.boxed().shared(), progress };
        flights.insert(key, flight.clone());
        flight
    }
}

/// The digest of `bytes`, if it is the one promised.
fn verified(what: &str, bytes: &[u8], expected: &Digest) -> Result<(), Error> {
    let actual = Digest::of(bytes);
    if actual == *expected {
        return Ok(());
    }
    Err(Error::DigestMismatch { what: what.to_owned(), expected: *expected, actual })
}
