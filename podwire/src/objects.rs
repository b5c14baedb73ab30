//! Where the API server's objects are kept: in the store of this process, or in an etcd cluster.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use podwire_store::{ClientTls, Embedded, EmbeddedConfig, Remote, RemoteConfig, Store};
use tokio_util::sync::CancellationToken;

use crate::cli::ClusterArgs;

/// Where objects are kept.
pub enum Objects {
    /// In a folder of this machine.
    Embedded(Embedded),
    /// In a cluster, as kube-apiserver keeps them.
    Cluster(Remote),
}

impl Objects {
    /// Opens the folder, or connects to the cluster that the flags name.
    pub async fn open(folder: &Path, args: &ClusterArgs) -> Result<Self> {
        if args.etcd_servers.is_empty() {
            return Ok(Self::Embedded(EmbeddedConfig::new(folder).open().context("open the store")?));
        }
        let tls = ClientTls {
            ca: args.etcd_cafile.clone(),
            cert: args.etcd_certfile.clone(),
            key: args.etcd_keyfile.clone(),
        };
        let config = RemoteConfig {
            tls,
            prefix: args.etcd_prefix.clone(),
            compaction_interval: args.etcd_compaction_interval,
            ..RemoteConfig::new(args.etcd_servers.clone())
        };
        Ok(Self::Cluster(config.connect().await.context("connect to etcd")?))
    }

    /// What the API server is given.
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(store) => Arc::new(store.clone()),
            Self::Cluster(store) => Arc::new(podwire_apiserver::Transcoded::new(store.clone())),
        }
    }

    /// Does what must be done while it is used, until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        if let Self::Cluster(store) = self {
            store.run(shutdown).await;
        }
    }

    /// Gives the folder back.
    pub async fn close(&self) {
        if let Self::Embedded(store) = self {
            store.close().await;
        }
    }
}
