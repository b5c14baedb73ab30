//! Where the API server's objects are kept: in the store of this process, or in an etcd cluster.

use std::{net::IpAddr, path::Path, sync::Arc};

use anyhow::{Context, Result};
use podwire_apiserver::{Advertise, Encrypted, Encryption, Transcoded};
use podwire_store::{ClientTls, Embedded, EmbeddedConfig, Remote, RemoteConfig, Store};
use tokio_util::sync::CancellationToken;

use crate::{cli::ClusterArgs, node_parts};

/// Where objects are kept, and how they are encrypted there.
pub struct Objects {
    /// The store.
    pub kept: Kept,
    /// Of which resources who encrypts what.
    pub encryption: Option<Arc<Encryption>>,
}

/// A store.
pub enum Kept {
    /// In a folder of this machine.
    Embedded(Embedded),
    /// In a cluster, as kube-apiserver keeps them.
    Cluster(Remote),
}

impl Objects {
    /// Opens the folder, or connects to the cluster that the flags name.
    pub async fn open(folder: &Path, args: &ClusterArgs) -> Result<Self> {
        let encryption = args.encryption_provider_config.as_deref();
        let encryption = encryption.map(|path| Encryption::read(path, &args.etcd_prefix)).transpose();
        let encryption = encryption.context("--encryption-provider-config")?.map(Arc::new);
        if args.etcd_servers.is_empty() {
            let store = EmbeddedConfig::new(folder).open().context("open the store")?;
            return Ok(Self { kept: Kept::Embedded(store), encryption });
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
        let kept = Kept::Cluster(config.connect().await.context("connect to etcd")?);
        Ok(Self { kept, encryption })
    }

    /// What the API server is given.
    pub fn store(&self) -> Arc<dyn Store> {
        match (&self.kept, &self.encryption) {
            (Kept::Embedded(store), None) => Arc::new(store.clone()),
            (Kept::Embedded(store), Some(how)) => Arc::new(Encrypted::new(store.clone(), how.clone())),
            (Kept::Cluster(store), None) => Arc::new(Transcoded::new(store.clone())),
            (Kept::Cluster(store), Some(how)) => {
                Arc::new(Transcoded::new(Encrypted::new(store.clone(), how.clone())))
            }
        }
    }

    /// As what a server that listens here is listed beside others; alone, or where nobody else reaches it, it is not.
    pub fn advertise(&self, bind: IpAddr, asked: Option<IpAddr>) -> Option<Advertise> {
        let Kept::Cluster(_) = &self.kept else { return None };
        let address =
            asked.unwrap_or_else(|| if bind.is_unspecified() { node_parts::node_address() } else { bind });
        (!address.is_loopback()).then(|| Advertise::new(address))
    }

    /// Does what must be done while it is used, until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        if let Kept::Cluster(store) = &self.kept {
            store.run(shutdown).await;
        }
    }

    /// Gives the folder back.
    pub async fn close(&self) {
        if let Kept::Embedded(store) = &self.kept {
            store.close().await;
        }
    }
}
