//! Makes this node match the pods bound to it.
//!
//! Talks to the API server only through `podwire_client::Client` and to the container runtime only through CRI.
//! Tasks: one per pod (`worker`), the pod watch (`source`), the runtime watch (`runtime::watch`), the node's
//! status and lease (`node`), the event writer (`events`), one per config map or secret in use (`configmaps_and_secrets`),
//! the HTTPS server (`server`).

mod admission;
pub mod api;
mod capacity;
mod cgroups;
mod checkpoint;
mod claims;
mod clock;
mod config;
mod configmaps_and_secrets;
mod container;
mod credentials;
mod devices;
pub mod dns;
mod env;
pub mod events;
mod evict;
mod hooks;
#[doc(hidden)]
pub mod hostile;
mod images;
mod inbox;
mod labels;
mod leftovers;
pub mod logs;
mod node;
pub mod observed;
mod ops;
pub mod paths;
pub mod plan;
mod plugins;
pub mod probes;
mod resize;
pub mod resources;
pub mod restart;
mod rotate;
pub mod runtime;
mod sandbox;
mod security;
mod server;
mod source;
pub mod spec;
mod static_pods;
pub mod status;
pub mod tls;
pub mod topology;
mod users;
pub mod volumes;
mod worker;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    api::Api,
    capacity::Capacity,
    dns::HostResolver,
    node::{Inboxes, Node, Tokens},
};
pub use crate::{
    capacity::{Reserved, ReservedError, TooMuchReserved},
    claims::ClaimSettings,
    config::{Config, MoreMetrics, ServerTls},
    devices::{DeviceSettings, DevicesError},
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
    /// Devices cannot be given out as configured.
    #[error(transparent)]
    Devices(#[from] DevicesError),
    /// Nothing would be left for pods.
    #[error(transparent)]
    Reserved(#[from] TooMuchReserved),
    /// The certificates do not work.
    #[error("serve TLS")]
    Tls(#[from] tls::TlsError),
}

/// A kubelet that is ready to run.
pub struct Kubelet {
    config: Config,
    capacity: Capacity,
    allocatable: Capacity,
    users: users::Users,
    topology: topology::Topology,
    listener: Option<(TcpListener, Arc<rustls::ServerConfig>)>,
}

impl Kubelet {
    /// Where the HTTPS server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.config.listen
    }

    /// Runs until `shutdown`; containers keep running. Not cancel safe.
    pub async fn run(self, shutdown: CancellationToken) {
        let Kubelet { config, capacity, allocatable, users, topology, listener } = self;
        let tasks = TaskTracker::new();
        let inboxes: Arc<Inboxes> = Arc::default();
        let api = Api::new(config.client.clone());
        let runtime = runtime::Runtime::connect(&config.runtime_endpoint, config.image_endpoint.as_deref());
        let (events, writer) = events::Recorder::new(api.clone(), &config.node_name);
        let (services, follower) = node::services::Services::new(config.client.clone());
        let devices = Arc::new(devices::Devices::open(
            config.devices.clone(),
            topology,
            inboxes.clone(),
            tasks.clone(),
            shutdown.clone(),
        ));
        let claims = Arc::new(claims::Claims::open(claims::Parts {
            settings: config.claims.clone(),
            api: api.clone(),
            node_name: config.node_name.clone(),
            inboxes: inboxes.clone(),
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
        }));
        // Events outlive the workers, so that what they say last is still written.
        let writer_stop = CancellationToken::new();
        let node = Arc::new(Node {
            cgroups: cgroups::Cgroups::new(&config.cgroup_root),
            users,
            devices: devices.clone(),
            claims: claims.clone(),
            capacity,
            allocatable,
            api,
            runtime: runtime.clone(),
            events,
            images: images::Images::default(),
            configs: configmaps_and_secrets::ConfigMapsAndSecrets::new(
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
            mirrors: static_pods::Mirrors::default(),
            changes: watch::channel(()).0,
            pressure: watch::channel(evict::plan::Pressure::default()).0,
            config,
        });
        let config = &node.config;
        let (health, healthy) = watch::channel(runtime::watch::Health::default());
        let (orphans, orphaned) = tokio::sync::mpsc::channel(256);
        let (registered, _) = watch::channel(false);
        let writing = tasks.spawn(writer.run(writer_stop.clone()));
        tasks.spawn(follower.run(shutdown.clone()));
        let adopted = Arc::new(tokio::sync::Notify::new());
        let watcher = runtime::watch::Watcher { runtime, inboxes, health, orphans, adopted: adopted.clone() };
        tasks.spawn(watcher.run(shutdown.clone()));
        let reporter = node::register::Reporter { node: node.clone(), health: healthy, registered };
        tasks.spawn(reporter.run(shutdown.clone()));
        tasks.spawn(node::lease::run(node.clone(), shutdown.clone()));
        tasks.spawn(node::enforce(node.clone()));
        tasks.spawn(devices::registration::run(devices.clone(), shutdown.clone()));
        tasks.spawn(devices::pod_resources::run(node.clone(), shutdown.clone()));
        tasks.spawn(claims::run(claims.clone(), shutdown.clone()));
        let handlers: plugins::Handlers = Arc::new(vec![
            Arc::new(devices::registration::Announcements(devices)),
            Arc::new(claims::driver::Announcements(claims)),
        ]);
        tasks.spawn(plugins::run(config.devices.registry(), handlers, shutdown.clone()));
        if let Some((listener, tls)) = listener {
            tasks.spawn(server::run(node.clone(), listener, tls, shutdown.clone()));
        }
        if let Some(thresholds) = config.eviction.clone() {
            tasks.spawn(evict::run(node.clone(), thresholds, shutdown.clone()));
        }
        let limits = rotate::plan::Limits {
            bytes: config.log_max_bytes,
            files: usize::try_from(config.log_max_files).unwrap_or(5),
        };
        tasks.spawn(rotate::run(node.clone(), limits, shutdown.clone()));
        let (wanted, statics) = watch::channel(static_pods::Wanted::default());
        if let Some(folder) = config.static_pod_dir.clone() {
            let name = config.node_name.clone();
            tasks.spawn(static_pods::run(folder, name, wanted, shutdown.clone()));
        }
        let source = source::Source {
            client: config.client.clone(),
            node,
            statics,
            orphans: orphaned,
            adopted,
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
