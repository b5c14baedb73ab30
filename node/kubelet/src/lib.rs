//! Makes this node match the pods bound to it.
//!
//! Talks to the API server only through `kube::Client` and to the container runtime only through CRI.
//! Tasks: one per pod (`worker`), the pod watch (`source`), the runtime watch (`runtime::watch`), the node's
//! status and lease (`node`), the event writer (`events`), one per config map or secret in use (`objects`),
//! the HTTPS server (`server`).

mod admission;
pub mod api;
mod cgroups;
mod clock;
mod container;
mod credentials;
pub mod dns;
mod env;
pub mod events;
mod evict;
mod files;
mod hooks;
#[doc(hidden)]
pub mod hostile;
mod images;
mod inbox;
mod labels;
mod leftovers;
pub mod logs;
mod node;
mod objects;
pub mod observed;
mod ops;
pub mod paths;
pub mod plan;
pub mod probes;
pub mod resources;
pub mod restart;
mod rotate;
pub mod runtime;
mod sandbox;
mod security;
mod server;
mod source;
pub mod spec;
pub mod status;
pub mod tls;
mod users;
pub mod volumes;
mod worker;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use jiff::SignedDuration;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    api::Api,
    dns::{ClusterDns, HostResolver},
    node::{Inboxes, Node, Tokens},
};
pub use crate::{
    evict::Thresholds,
    users::{PoolError, UserIds},
};

/// Why a kubelet cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A folder cannot be made.
    #[error("make folder {path:?}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The port is taken or not ours.
    #[error("listen on {addr}")]
    Listen {
        /// Address asked for.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The ids for pods with user namespaces of their own cannot be given.
    #[error("create user namespace manager")]
    Users(#[from] PoolError),
    /// The certificates do not work.
    #[error("serve TLS")]
    Tls(#[from] tls::TlsError),
}

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
    pub client: kube::Client,
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
    /// Cluster's name servers.
    pub cluster_dns: Vec<String>,
    /// Cluster's domain.
    pub cluster_domain: String,
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
    /// Metrics of others on this node, served with the kubelet's own.
    pub more_metrics: Option<MoreMetrics>,
    /// Ids for pods with user namespaces of their own; `None` is what `/etc/subuid` gives to the user `kubelet`, or
    /// else 65536 for each pod after the node's own.
    pub user_ids: Option<UserIds>,
}

impl Config {
    /// A configuration with upstream's defaults for everything that has one.
    pub fn new(
        client: kube::Client,
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
            root_dir,
            cgroup_root: "/".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            node_ips: vec!["127.0.0.1".to_owned()],
            pod_cidr: None,
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            max_pods: 110,
            version: "v1.36.4".to_owned(),
            log_max_bytes: 10 * 1024 * 1024,
            log_max_files: 5,
            static_pod_dir: None,
            eviction: Some(Thresholds::default()),
            more_metrics: None,
            user_ids: None,
        }
    }

    /// Makes the folders and takes the port. Cancel safe.
    pub async fn build(self) -> Result<Kubelet, Error> {
        for path in [&self.root_dir, &self.log_dir] {
            std::fs::create_dir_all(path).map_err(|source| Error::Folder { path: path.clone(), source })?;
        }
        let users = self.users()?;
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
        let local = listener.as_ref().and_then(|(socket, _)| socket.local_addr().ok()).unwrap_or(self.listen);
        Ok(Kubelet { config: self, users, listener, local })
    }

    fn users(&self) -> Result<users::Users, Error> {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let ids = match self.user_ids {
            Some(ids) => ids,
            None => UserIds::of_node(self.max_pods, &file("/etc/subuid"), &file("/etc/subgid"))?,
        };
        users::Users::open(&self.root_dir, ids.check(self.max_pods)?)
            .map_err(|source| Error::Folder { path: self.root_dir.join("pods"), source })
    }
}

/// What the parts need to know of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) node_name: String,
    pub(crate) root_dir: PathBuf,
    pub(crate) memory_dir: Option<PathBuf>,
    pub(crate) log_dir: PathBuf,
    pub(crate) cgroup_root: String,
    pub(crate) node_ips: Vec<String>,
    pub(crate) pod_cidr: Option<String>,
    pub(crate) dns: ClusterDns,
    pub(crate) max_pods: u32,
    pub(crate) version: String,
    pub(crate) milli_cpu: i64,
    pub(crate) memory_capacity: i64,
    pub(crate) storage_capacity: u64,
    pub(crate) crash_loop_cap: SignedDuration,
    pub(crate) listen: SocketAddr,
    pub(crate) more_metrics: Option<MoreMetrics>,
}

impl Settings {
    pub(crate) fn port(&self) -> u16 {
        self.listen.port()
    }
}

/// A kubelet that is ready to run.
pub struct Kubelet {
    config: Config,
    users: users::Users,
    listener: Option<(TcpListener, Arc<rustls::ServerConfig>)>,
    local: SocketAddr,
}

impl Kubelet {
    /// Where the HTTPS server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Runs until `shutdown`; containers keep running. Not cancel safe.
    pub async fn run(self, shutdown: CancellationToken) {
        let Kubelet { config, users, listener, local } = self;
        let tasks = TaskTracker::new();
        let inboxes: Arc<Inboxes> = Arc::default();
        let api = Api::new(config.client.clone());
        let runtime = runtime::Runtime::connect(&config.runtime_endpoint, config.image_endpoint.as_deref());
        let (events, writer) = events::Recorder::new(api.clone(), &config.node_name);
        let (services, follower) = node::services::Services::new(config.client.clone());
        let settings = settings(&config, local);
        // Events outlive the workers, so that what they say last is still written.
        let writer_stop = CancellationToken::new();
        let node = Arc::new(Node {
            cgroups: cgroups::Cgroups::new(&settings.cgroup_root),
            users,
            config: settings,
            api,
            runtime: runtime.clone(),
            events,
            images: images::Images::default(),
            objects: objects::Objects::new(
                config.client.clone(),
                inboxes.clone(),
                tasks.clone(),
                shutdown.clone(),
            ),
            services,
            tokens: Tokens::default(),
            resolver: HostResolver::parse(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
            inboxes: inboxes.clone(),
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
            runtime_label: OnceLock::new(),
            pods: node::pods::Pods::default(),
            labels: Mutex::new(BTreeMap::new()),
            mirrors: files::Mirrors::default(),
            changes: watch::channel(()).0,
            pressure: watch::channel(evict::plan::Pressure::default()).0,
        });
        let (health, healthy) = watch::channel(runtime::watch::Health::default());
        let (orphans, orphaned) = tokio::sync::mpsc::channel(256);
        let (registered, _) = watch::channel(false);
        let writing = tasks.spawn(writer.run(writer_stop.clone()));
        tasks.spawn(follower.run(shutdown.clone()));
        let watcher = runtime::watch::Watcher { runtime, inboxes, health, orphans };
        tasks.spawn(watcher.run(shutdown.clone()));
        let reporter = node::register::Reporter { node: node.clone(), health: healthy, registered };
        tasks.spawn(reporter.run(shutdown.clone()));
        tasks.spawn(node::lease::run(node.clone(), shutdown.clone()));
        if let Some((listener, tls)) = listener {
            tasks.spawn(server::run(node.clone(), listener, tls, shutdown.clone()));
        }
        if let Some(thresholds) = config.eviction {
            tasks.spawn(evict::run(node.clone(), thresholds, shutdown.clone()));
        }
        let limits = rotate::plan::Limits {
            bytes: config.log_max_bytes,
            files: usize::try_from(config.log_max_files).unwrap_or(5),
        };
        tasks.spawn(rotate::run(node.clone(), limits, shutdown.clone()));
        let (wanted, statics) = watch::channel(files::Wanted::default());
        if let Some(folder) = config.static_pod_dir {
            let name = config.node_name.clone();
            tasks.spawn(files::run(folder, name, wanted, shutdown.clone()));
        }
        let source = source::Source {
            node,
            statics,
            client: config.client,
            orphans: orphaned,
            adoptable: BTreeMap::new(),
            listed: None,
            swept: false,
            workers: TaskTracker::new(),
        };
        source.run(shutdown).await;
        writer_stop.cancel();
        // Ignored: a writer that panicked has already said so.
        writing.await.ok();
        tasks.close();
        tasks.wait().await;
    }
}

fn settings(config: &Config, local: SocketAddr) -> Settings {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: i64 = total.and_then(|t| t.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(1 << 20);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let disk = rustix::fs::statvfs(&config.root_dir).map_or(0, |s| s.f_blocks * s.f_frsize);
    Settings {
        node_name: config.node_name.clone(),
        root_dir: config.root_dir.clone(),
        memory_dir: config.memory_dir.clone(),
        log_dir: config.log_dir.clone(),
        cgroup_root: config.cgroup_root.clone(),
        node_ips: config.node_ips.clone(),
        pod_cidr: config.pod_cidr.clone(),
        dns: ClusterDns { servers: config.cluster_dns.clone(), domain: config.cluster_domain.clone() },
        max_pods: config.max_pods,
        version: config.version.clone(),
        milli_cpu: i64::try_from(cores).unwrap_or(1) * 1000,
        memory_capacity: kib * 1024,
        storage_capacity: disk,
        crash_loop_cap: restart::CAP,
        listen: local,
        more_metrics: config.more_metrics.clone(),
    }
}
