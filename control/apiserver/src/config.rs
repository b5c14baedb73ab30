//! What the server needs to know, and how it is put together from that.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use podwire_api::Registry;
use podwire_store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::admission::policy::Policies;
use crate::admission::resource_quota::Ledger;
use crate::admission::service::{Allocator, Repair};
use crate::admission::webhook::Webhooks;
use crate::advertise::Advertise;
use crate::authz::Authorizer;
use crate::cache::Caches;
use crate::context::Context;
use crate::definitions::Definitions;
use crate::encryption::Encryption;
use crate::handler::proxy::KubeletClient;
use crate::kinds::Kinds;
use crate::limits::{Gates, Limits};
use crate::pki::{Pki, PkiError};
use crate::server::{ApiServer, Asked, Tls};
use crate::token::{KeyError, Tokens};
use crate::traced::TracedStore;

/// Keys and certificates that somebody else has made; what is not given is made.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The serving certificate, with those that sign it, and its key.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// Who signs certificates of clients, beside the authority of this server.
    pub client_ca: Option<PathBuf>,
    /// The key that signs service-account tokens: PKCS#8, P-256.
    pub token_key: Option<PathBuf>,
}

/// Everything an API server is made from.
pub struct Config {
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// The folder of keys and certificates; filled on first start.
    pub pki_dir: PathBuf,
    /// The address to listen on; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Host names and addresses clients use beside the usual ones.
    pub extra_sans: Vec<String>,
    /// First address and prefix length of the range service addresses come from.
    pub service_cidr: (IpAddr, u8),
    /// How often addresses and ports are looked for that no service has.
    pub repair_services_every: Duration,
    /// The issuer in service-account tokens.
    pub token_issuer: String,
    /// How much is served at once, and for how long.
    pub limits: Limits,
    /// The longest that a service-account token may be valid; `None` leaves it to who asks.
    pub longest_token_life: Option<Duration>,
    /// As what this server is listed behind the `kubernetes` service, if it is.
    pub advertise: Option<Advertise>,
    /// How the values of the store are encrypted, if they are.
    pub encryption: Option<Arc<Encryption>>,
    /// Keys and certificates of others.
    pub given: Given,
    /// Whether pods are given service accounts; where no controller makes any they could not be created otherwise.
    pub service_accounts: bool,
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Keys or certificates.
    #[error("prepare keys and certificates")]
    Pki(#[from] PkiError),
    /// The token key.
    #[error("prepare service account tokens")]
    TokenKey(#[from] KeyError),
    /// The store.
    #[error("read the stored objects")]
    Store(#[from] StoreError),
    /// A kind that comes while the server runs.
    #[error("serve {kind}: {message}")]
    Kind {
        /// The kind.
        kind: String,
        /// What went wrong.
        message: String,
    },
    /// The definitions that are stored.
    #[error("serve the stored definitions: {message}")]
    Definitions {
        /// What went wrong.
        message: String,
    },
    /// The objects every cluster has.
    #[error("create the objects every cluster has: {message}")]
    Bootstrap {
        /// What the server answered.
        message: String,
    },
}

impl Config {
    /// A configuration with the usual values.
    pub fn new(store: Arc<dyn Store>, pki_dir: PathBuf, listen: SocketAddr) -> Self {
        Self {
            store,
            pki_dir,
            listen,
            extra_sans: Vec::new(),
            service_cidr: (IpAddr::from([10, 96, 0, 0]), 16),
            repair_services_every: Duration::from_secs(180),
            token_issuer: "https://kubernetes.default.svc.cluster.local".into(),
            limits: Limits::default(),
            longest_token_life: None,
            advertise: None,
            encryption: None,
            given: Given::default(),
            service_accounts: true,
        }
    }

    /// Binds the port, makes keys and certificates that are missing, and reads what is stored.
    pub async fn build(self) -> Result<ApiServer, Error> {
        let failed = |source| Error::Listen { address: self.listen, source };
        let listener = tokio::net::TcpListener::bind(self.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let pki = Arc::new(Pki::open(&self.pki_dir)?);
        let services = Allocator::new(self.service_cidr.0, self.service_cidr.1);
        let sans = server_names(address.ip(), services.first(), &self.extra_sans);
        let tls = Tls::new(pki.clone(), sans, &self.given)?;
        let kubelets = KubeletClient::new(&pki)?;
        let token_key = match &self.given.token_key {
            Some(path) => crate::pki::given(path)?,
            None => pki.token_key()?,
        };
        let tokens = Tokens::new(&token_key, self.token_issuer, self.longest_token_life)?;
        let kinds = Registry::builtin();
        let store: Arc<dyn Store> = Arc::new(TracedStore::new(self.store));
        let (caches, new_kinds) = Caches::load(store.as_ref(), kinds).await?;
        let shutdown = CancellationToken::new();
        let (definitions, asked) = Definitions::new();
        let context = Context {
            store,
            authorizer: Authorizer::new(&caches),
            caches,
            kinds: Kinds::new(kinds.clone()),
            pki,
            tokens,
            kubelets,
            advertised: address.to_string(),
            services,
            definitions,
            converters: crate::conversion::Converters::default(),
            webhooks: Webhooks::default(),
            policies: Policies::default(),
            quotas: Ledger::default(),
            gates: Gates::new(&self.limits),
            limits: self.limits,
            service_accounts: self.service_accounts,
            encryption: self.encryption,
            shutdown,
        };
        let repair = Repair::new(self.repair_services_every);
        let asked = Asked { new_kinds, definitions: asked, repair, advertise: self.advertise };
        ApiServer::start(Arc::new(context), asked, listener, address, tls).await
    }
}

/// The names the serving certificate carries.
fn server_names(address: IpAddr, service: IpAddr, extra: &[String]) -> Vec<String> {
    let mut names: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    ]
    .map(String::from)
    .into();
    names.push(service.to_string());
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
    names.extend(extra.iter().cloned());
    let mut unique = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique
}
