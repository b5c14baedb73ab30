//! How a runtime is configured, built and run.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use podwire_container::{Event, SupervisorConfig};
use podwire_wire::{
    CRI_MESSAGE_LIMIT,
    cri::{image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer},
};
use tokio::{net::UnixListener, sync::mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    container::{apparmor::Confinement, exits, oci_runtimes::OciRuntimes},
    context::Context,
    error::{Error, OpError},
    host,
    joins::Joins,
    plugins::{Plugins, View},
    recovery::{
        self,
        journal::{Journal, Opened},
    },
    service::{Service, events::Events, images::Images, serve, traced::Traced},
    stream::{StreamServer, containers::Backend},
    supervision::Supervision,
};

/// How long operations under way may take to finish at shutdown.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is tried to write journal rows that are owed.
const PAYMENT: Duration = Duration::from_secs(1);

/// Everything a runtime needs to know; every name of the host comes from here.
pub struct Config {
    /// The CRI socket.
    pub listen: PathBuf,
    /// What operations need to know as long as the runtime lives.
    pub settings: Settings,
    /// The container supervisor.
    pub supervisor: SupervisorConfig,
    /// The image store.
    pub images: podwire_image::StoreConfig,
    /// The pod networks.
    pub cni: podwire_cni_lib::RuntimeConfig,
    /// Where the streaming server listens.
    pub streaming_listen: SocketAddr,
    /// Which NRI plugins there may be, and which must be.
    pub nri: podwire_nri::Config,
    /// OCI runtime programs that make the containers of a runtime class instead of us.
    pub handlers: Vec<Handler>,
}

/// Folders and names.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Files of containers that need not survive them.
    pub data_dir: PathBuf,
    /// Namespace pins, pod files, the journal.
    pub run_dir: PathBuf,
    /// Where containers go whose pod names no cgroup.
    pub cgroup_root: String,
    /// Folders of CDI files; a device in a later one replaces one of the same name in an earlier.
    pub cdi_dirs: Vec<PathBuf>,
    /// Said in CRI's Version, and to NRI plugins.
    pub runtime_name: String,
    /// Said in CRI's Version, and to NRI plugins; a semantic version.
    pub runtime_version: String,
}

/// A runtime class's handler and the OCI runtime program (runc, crun) behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// The name a RuntimeClass gives as its handler.
    pub name: String,
    /// The program.
    pub runtime: PathBuf,
}

/// A runtime that listens and is ready to run.
pub struct Runtime {
    ctx: Arc<Context>,
    supervisor: SupervisorConfig,
    events: mpsc::Receiver<Event>,
    streams: StreamServer,
    adaptation: podwire_nri::Adaptation,
    listener: UnixListener,
    stale: bool,
}

impl Config {
    /// Opens everything, reads the journal and listens. Nothing is changed on the node before [`Runtime::run`].
    ///
    /// Not cancel safe: a supervisor that was started keeps running.
    pub async fn build(self) -> Result<Runtime, Error> {
        let handlers = OciRuntimes::open(&self.handlers)?;
        let sandboxes = self.settings.run_dir.join("sandboxes");
        for folder in [&sandboxes, &self.settings.data_dir] {
            std::fs::create_dir_all(folder)
                .map_err(|source| Error::Folder { path: folder.clone(), source })?;
        }
        // Whoever finds CRI's socket finds NRI's too.
        let nri = podwire_nri::Config {
            runtime_name: self.settings.runtime_name.clone(),
            runtime_version: self.settings.runtime_version.clone(),
            ..self.nri
        };
        let plugins = nri.listen().map_err(|error| Error::Plugins { source: error.into() })?;
        let listener = podwire_wire::unix::listen(&self.listen).map_err(|source| Error::Listen { source })?;
        let path = self.settings.run_dir.join("journal");
        let opened = podwire_linux::boot::id().and_then(|boot| Journal::open(&path, &boot));
        let Opened { journal, contents, stale } = opened.map_err(|source| Error::Journal { path, source })?;
        let images = self.images.open().map_err(|error| Error::Images { source: error.into() })?;
        let networks = self.cni.open().map_err(|error| Error::Networks { source: error.into() })?;
        let (supervisor, events) =
            exits::connect(&self.supervisor).await.map_err(|source| Error::Supervisor { source })?;
        let view = Arc::new(View::default());
        let adaptation =
            plugins.build(view.clone()).map_err(|error| Error::Plugins { source: error.into() })?;
        let tasks = TaskTracker::new();
        let ctx = Arc::new(Context {
            settings: self.settings,
            host: host::detect(),
            apparmor: Confinement::default(),
            handlers,
            user_namespaces: std::sync::OnceLock::new(),
            images,
            networks: Arc::new(networks),
            journal,
            registry: Arc::default(),
            events: Events::new(),
            plugins: Plugins::new(adaptation.handle(), view.clone()),
            runs: Joins::new(&tasks),
            creates: Joins::new(&tasks),
            removes: Joins::new(&tasks),
            container_removes: Joins::new(&tasks),
            stops: Joins::new(&tasks),
            tasks,
            supervision: Supervision::new(supervisor),
        });
        view.open(&ctx);
        if stale {
            tracing::info!("the journal is from before the last boot; its leftovers are swept");
        } else {
            recovery::load(&ctx, &contents);
        }
        let address = self.streaming_listen;
        let backend = Arc::new(Backend { ctx: ctx.clone() });
        let streams = StreamServer::bind(address, backend).await;
        let streams = streams.map_err(|source| Error::StreamListen { address, source })?;
        Ok(Runtime { ctx, supervisor: self.supervisor, events, streams, adaptation, listener, stale })
    }
}

impl Runtime {
    /// The plugins, for people to look at.
    pub fn nri(&self) -> podwire_nri::Nri {
        self.adaptation.handle()
    }

    /// Where the streaming server listens.
    pub fn streaming_addr(&self) -> SocketAddr {
        self.streams.local_addr()
    }

    /// Reconciles with the node, then serves CRI until `shutdown`; containers keep running afterwards.
    ///
    /// Tasks: the exit handler, the writer of owed journal rows, the streaming server, and every operation under way; all are awaited.
    pub async fn run(self, shutdown: CancellationToken) {
        let Runtime { ctx, supervisor, events, streams, adaptation, listener, stale } = self;
        let background = TaskTracker::new();
        let done = CancellationToken::new();
        background.spawn(exits::run(ctx.clone(), supervisor, events, done.clone()));
        background.spawn(pay_the_journal(ctx.clone(), done.clone()));
        recovery::reconcile(&ctx, stale, &shutdown).await;
        background.spawn(adaptation.run(done.clone()));
        background.spawn(streams.clone().run(shutdown.clone()));
        let registry = ctx.registry.clone();
        let service = Traced { service: Service { ctx: ctx.clone(), streams }, registry: registry.clone() };
        let runtime = RuntimeServiceServer::new(service)
            .max_decoding_message_size(CRI_MESSAGE_LIMIT)
            .max_encoding_message_size(CRI_MESSAGE_LIMIT);
        let images = Images { store: ctx.images.clone(), tasks: ctx.tasks.clone() };
        let images = ImageServiceServer::new(Traced { service: images, registry })
            .max_decoding_message_size(CRI_MESSAGE_LIMIT)
            .max_encoding_message_size(CRI_MESSAGE_LIMIT);
        let routes = tonic::service::Routes::new(runtime).add_service(images);
        serve::serve(listener, routes, shutdown.clone()).await;
        ctx.tasks.close();
        if tokio::time::timeout(PATIENCE, ctx.tasks.wait()).await.is_err() {
            // The journal knows them; the next start goes on from there.
            tracing::warn!(
                count = ctx.tasks.len(),
                "operations still under way at shutdown are left to the next start"
            );
        }
        done.cancel();
        background.close();
        background.wait().await;
    }
}

/// Writes what the journal could not take when it happened, as soon as it can.
async fn pay_the_journal(ctx: Arc<Context>, done: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = done.cancelled() => return,
            () = tokio::time::sleep(PAYMENT) => {}
        }
        if ctx.journal.owes() {
            let paid =
                ctx.blocking(|ctx| ctx.journal.pay().map_err(OpError::failed("write the journal"))).await;
            if paid.is_ok() {
                tracing::info!("the journal is complete again");
            }
        }
    }
}
