//! What a kubelet is made from.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::net::TcpListener;

use crate::{
    Error, Kubelet, Thresholds,
    capacity::{Capacity, Reserved},
    claims::ClaimSettings,
    devices::{self, DeviceSettings},
    dns::ClusterDns,
    tls,
    users::{UserIds, Users},
};

/// Certificates of the kubelet's server.
#[derive(Clone, Debug, Default)]
pub struct ServerTls {
    /// Serving certificate chain, PEM.
    pub cert: String,
    /// Its key, PEM.
    pub key: String,
    /// CA of clients, PEM.
    pub client_ca: String,
}

/// Metrics of others, in Prometheus' text form.
#[derive(Clone)]
pub struct MoreMetrics(Arc<dyn Fn() -> String + Send + Sync>);

impl MoreMetrics {
    /// Asks `page` whenever metrics are read.
    pub fn new(page: impl Fn() -> String + Send + Sync + 'static) -> MoreMetrics {
        MoreMetrics(Arc::new(page))
    }

    pub(crate) fn text(&self) -> String {
        (self.0)()
    }
}

impl std::fmt::Debug for MoreMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MoreMetrics")
    }
}

/// What a kubelet is made from. Every name it uses on the host is in here.
pub struct Config {
    /// The API server, as this node.
    pub client: podwire_client::Client,
    /// Node's name.
    pub node_name: String,
    /// CRI socket.
    pub runtime_endpoint: PathBuf,
    /// CRI socket of the image service, if another.
    pub image_endpoint: Option<PathBuf>,
    /// Where pods' files lie.
    pub root_dir: PathBuf,
    /// A folder in memory for secrets and tokens; without one they lie with the other files.
    pub memory_dir: Option<PathBuf>,
    /// Where containers' logs lie.
    pub log_dir: PathBuf,
    /// Root of this node's cgroups, e.g. `/` or `/podwire-a`.
    pub cgroup_root: String,
    /// Address of the HTTPS server.
    pub listen: SocketAddr,
    /// Its certificates; without them there is no server.
    pub tls: Option<ServerTls>,
    /// Addresses of the node, the first is the primary.
    pub node_ips: Vec<String>,
    /// Range of pod addresses.
    pub pod_cidr: Option<String>,
    /// The cluster's names.
    pub dns: ClusterDns,
    /// How many pods the node takes.
    pub max_pods: u32,
    /// Version shown in the node's info.
    pub version: String,
    /// Largest size of a container's log before it is rotated, in bytes.
    pub log_max_bytes: u64,
    /// How many log files are kept per container.
    pub log_max_files: u32,
    /// Folder of pods that this node runs by itself.
    pub static_pod_dir: Option<PathBuf>,
    /// When a shortage of memory or disk ends pods; `None` is never.
    pub eviction: Option<Thresholds>,
    /// What pods may not use.
    pub reserved: Reserved,
    /// How devices of plugins are given out, and where plugins find the kubelet.
    pub devices: DeviceSettings,
    /// How claims are prepared.
    pub claims: ClaimSettings,
    /// Metrics of others on this node, served with the kubelet's own.
    pub more_metrics: Option<MoreMetrics>,
    /// Ids for pods with user namespaces of their own; `None` is what `/etc/subuid` gives to the user `kubelet`, or
    /// else 65536 for each pod after the node's own.
    pub user_ids: Option<UserIds>,
}

impl Config {
    /// A configuration with upstream's defaults for everything that has one.
    pub fn new(
        client: podwire_client::Client,
        node_name: &str,
        runtime_endpoint: PathBuf,
        root_dir: PathBuf,
    ) -> Config {
        Config {
            client,
            node_name: node_name.to_owned(),
            runtime_endpoint,
            image_endpoint: None,
            memory_dir: None,
            log_dir: root_dir.join("logs"),
            devices: DeviceSettings::at(&root_dir),
            claims: ClaimSettings::at(&root_dir),
            root_dir,
            cgroup_root: "/".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            node_ips: vec!["127.0.0.1".to_owned()],
            pod_cidr: None,
            dns: ClusterDns { servers: Vec::new(), domain: "cluster.local".to_owned() },
            max_pods: 110,
            version: "v1.36.4".to_owned(),
            log_max_bytes: 10 * 1024 * 1024,
            log_max_files: 5,
            static_pod_dir: None,
            eviction: Some(Thresholds::default()),
            reserved: Reserved::default(),
            more_metrics: None,
            user_ids: None,
        }
    }

    /// Makes the folders and takes the port. Cancel safe.
    pub async fn build(mut self) -> Result<Kubelet, Error> {
        for path in [&self.root_dir, &self.log_dir, &self.claims.root] {
            std::fs::create_dir_all(path).map_err(|source| Error::Folder { path: path.clone(), source })?;
        }
        let users = self.users()?;
        let capacity = Capacity::of_node(&self.root_dir);
        let allocatable = capacity.left(self.reserved, self.eviction.as_ref())?;
        let topology = devices::topology(&self.devices)?;
        let listener = match &self.tls {
            None => None,
            Some(tls) => {
                let config = tls::server(&tls.cert, &tls.key, &tls.client_ca)?;
                let addr = self.listen;
                let socket =
                    TcpListener::bind(addr).await.map_err(|source| Error::Listen { addr, source })?;
                Some((socket, Arc::new(config)))
            }
        };
        if let Some(local) = listener.as_ref().and_then(|(socket, _)| socket.local_addr().ok()) {
            self.listen = local;
        }
        Ok(Kubelet { config: self, capacity, allocatable, users, topology, listener })
    }

    fn users(&self) -> Result<Users, Error> {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let ids = match self.user_ids {
            Some(ids) => ids,
            None => UserIds::of_node(self.max_pods, &file("/etc/subuid"), &file("/etc/subgid"))?,
        };
        Users::open(&self.root_dir, ids.check(self.max_pods)?)
            .map_err(|source| Error::Folder { path: self.root_dir.join("pods"), source })
    }
}
