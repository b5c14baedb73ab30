//! What the controllers need, and running them all.

use std::time::Duration;

use podwire_client::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{claims, garbage, namespaces, nodes, policies, quotas, roles};

/// What the controllers need.
#[derive(Clone)]
pub struct Config {
    /// The way to the API server.
    pub client: Client,
    /// The bundle published as `kube-root-ca.crt` in every namespace.
    pub root_ca_pem: String,
    /// A node that was silent for this long is unreachable.
    pub node_grace: Duration,
    /// The same for a node that never spoke.
    pub node_startup_grace: Duration,
    /// How long a node must be missing before its pods are removed.
    pub orphan_quarantine: Duration,
    /// Finished pods beyond this number are removed, oldest first.
    pub terminated_pod_threshold: usize,
    /// How long after the start garbage is looked for.
    pub garbage_delay: Duration,
    /// How often it is asked which resources there are.
    pub discovery_period: Duration,
}

impl Config {
    /// Upstream's settings.
    pub fn new(client: Client, root_ca_pem: impl Into<String>) -> Self {
        Self {
            client,
            root_ca_pem: root_ca_pem.into(),
            node_grace: Duration::from_secs(50),
            node_startup_grace: Duration::from_secs(60),
            orphan_quarantine: Duration::from_secs(40),
            terminated_pod_threshold: 12_500,
            garbage_delay: Duration::from_secs(1),
            discovery_period: Duration::from_secs(30),
        }
    }

    /// Makes the controllers; nothing is asked of the API server before they run.
    pub async fn build(self) -> Result<Controllers, Error> {
        if self.root_ca_pem.trim().is_empty() {
            return Err(Error::NoRootCa);
        }
        Ok(Controllers { config: self })
    }
}

/// Why the controllers could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `root_ca_pem` is empty.
    #[error("the controllers need the certificate bundle to publish in every namespace")]
    NoRootCa,
}

/// Controllers ready to run.
pub struct Controllers {
    config: Config,
}

impl Controllers {
    /// Runs all controllers until `shutdown`; writes that have begun are finished.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut tasks = JoinSet::new();
        tasks.spawn(namespaces::run(self.config.clone(), shutdown.clone()));
        tasks.spawn(claims::run(self.config.clone(), shutdown.clone()));
        tasks.spawn(garbage::run(self.config.clone(), shutdown.clone()));
        tasks.spawn(policies::run(self.config.clone(), shutdown.clone()));
        tasks.spawn(quotas::run(self.config.clone(), shutdown.clone()));
        tasks.spawn(roles::run(self.config.clone(), shutdown.clone()));
        tasks.spawn(nodes::run(self.config, shutdown));
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a controller panicked");
            }
        }
    }
}
