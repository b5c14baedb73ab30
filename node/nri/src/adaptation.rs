//! The runtime's side of NRI: plugins come and go, events reach them in order, what they ask for is merged.
//!
//! Tasks, all in one tracker that [`Adaptation::run`] awaits: the accept loop, one per connection (registration,
//! synchronization, then waiting for its end), one per launched plugin's process, and those of `link`.

mod dispatch;
mod events;
mod gate;
mod launch;
mod log;
mod plugin;
mod registry;
mod required;
mod session;
mod stats;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use podwire_wire::nri::{Container, ContainerEviction, ContainerUpdate, Empty, PodSandbox};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::events::{Creation, EventError, Nri, Updating};
pub use self::log::Entry;
pub use self::plugin::PluginInfo;
use self::registry::Registry;
use crate::timeout;

/// How the runtime's side of NRI is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where plugins connect; `None` accepts nobody.
    pub socket: Option<PathBuf>,
    /// Executables named `NN-name` that are started with the runtime.
    pub plugin_dir: Option<PathBuf>,
    /// Their configuration: `NN-name.conf` or `name.conf`.
    pub config_dir: Option<PathBuf>,
    /// What plugins are told about the runtime.
    pub runtime_name: String,
    /// What plugins are told about the runtime.
    pub runtime_version: String,
    /// How long a connection may take to register.
    pub registration_timeout: Duration,
    /// How long a plugin may take to answer.
    pub request_timeout: Duration,
    /// How long those may take that differ, by name.
    pub request_timeouts: BTreeMap<String, Duration>,
    /// Names of plugins without which no pod is set up.
    pub required: Vec<String>,
    /// How long a pod waits for a required plugin that is absent.
    pub required_wait: Duration,
    /// Which pods may do without required plugins that are absent; `None`: none may.
    pub toleration: Option<Toleration>,
}

/// By what a pod says that it may be set up while required plugins are absent, and which pods are believed: a plugin that
/// runs as a pod could not start its own otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    /// The annotation's key; `/pod` and `/container.NAME` after it say so more precisely.
    pub annotation: String,
    /// The namespaces in which the annotation counts. Elsewhere whoever may create a pod could go around the plugins.
    pub namespaces: Vec<String>,
}

impl Config {
    /// Upstream's times, nothing to listen on, nothing to start.
    pub fn new(runtime_name: impl Into<String>, runtime_version: impl Into<String>) -> Self {
        Self {
            socket: None,
            plugin_dir: None,
            config_dir: None,
            runtime_name: runtime_name.into(),
            runtime_version: runtime_version.into(),
            registration_timeout: timeout::REGISTRATION,
            request_timeout: timeout::REQUEST,
            request_timeouts: BTreeMap::new(),
            required: Vec::new(),
            required_wait: Duration::from_secs(10),
            toleration: None,
        }
    }

    /// How long the plugin of this name may take to answer.
    pub(crate) fn timeout_of(&self, plugin: &str) -> Duration {
        self.request_timeouts.get(plugin).copied().unwrap_or(self.request_timeout)
    }

    /// Listens on the socket. Plugins may connect from now on; they are heard once the rest is built and run.
    pub fn listen(self) -> Result<Listening, Error> {
        let listener = self.socket.as_deref().map(listen).transpose()?;
        Ok(Listening { config: self, listener })
    }

    /// Listens on the socket and starts the installed plugins.
    pub async fn build(self, host: Arc<dyn Host>) -> Result<Adaptation, Error> {
        self.listen()?.build(host)
    }
}

/// A socket that plugins can connect to, and nobody yet who hears them.
pub struct Listening {
    config: Config,
    listener: Option<UnixListener>,
}

impl Listening {
    /// Starts the installed plugins; must be called within a tokio runtime.
    pub fn build(self, host: Arc<dyn Host>) -> Result<Adaptation, Error> {
        let Listening { config, listener } = self;
        let tasks = TaskTracker::new();
        let registry = Arc::new(Registry::new(config, host));
        let adaptation =
            Adaptation { registry: registry.clone(), listener, tasks, shutdown: CancellationToken::new() };
        for installed in launch::discover(&registry.config)? {
            launch::keep(&adaptation.context(), installed)?;
        }
        Ok(adaptation)
    }
}

/// What the runtime offers to its plugins.
pub trait Host: Send + Sync + 'static {
    /// All pods and containers there are, for a plugin that has just come.
    fn snapshot(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)>;
    /// Changes limits of containers; returns those updates that failed.
    fn update_containers(&self, updates: Vec<ContainerUpdate>) -> BoxFuture<'_, Vec<ContainerUpdate>>;
    /// Stops a container because a plugin wants it gone.
    fn evict(&self, eviction: ContainerEviction) -> BoxFuture<'_, ()>;
}

/// Why the runtime's side could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket.
    #[error("listen for NRI plugins on {path:?}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder of plugins.
    #[error("read the NRI plugins in {path:?}")]
    Discover {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An executable that is not named `NN-name`.
    #[error("{path:?} is not named like an NRI plugin (two digits, a dash, a name)")]
    PluginName {
        /// The file.
        path: PathBuf,
    },
    /// A plugin that could not be started.
    #[error("start the NRI plugin {path:?}")]
    Launch {
        /// The executable.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

fn listen(path: &std::path::Path) -> Result<UnixListener, Error> {
    let failed = |source| Error::Listen { path: path.into(), source };
    if let Some(dir) = path.parent() {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    }
    podwire_wire::unix::listen(path).map_err(|error| match error {
        podwire_wire::unix::ListenError::InUse { .. } => failed(std::io::ErrorKind::AddrInUse.into()),
        podwire_wire::unix::ListenError::Io { source, .. } => failed(source),
    })
}

/// What every task of the adaptation needs.
#[derive(Clone)]
struct Context {
    registry: Arc<Registry>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// The runtime's side of NRI, ready to run.
pub struct Adaptation {
    registry: Arc<Registry>,
    listener: Option<UnixListener>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Adaptation {
    /// The handle through which the runtime tells what happens.
    pub fn handle(&self) -> Nri {
        Nri::new(self.registry.clone())
    }

    fn context(&self) -> Context {
        Context {
            registry: self.registry.clone(),
            tasks: self.tasks.clone(),
            shutdown: self.shutdown.clone(),
        }
    }

    /// Tells every plugin that the runtime ends. None holds it up for long.
    async fn farewell(&self) {
        let plugins = self.registry.plugins();
        let told = plugins.iter().map(|plugin| async move {
            let limit = plugin.timeout.min(timeout::FAREWELL);
            let told: Result<Empty, _> = plugin.call_within("Shutdown", &Empty {}, limit).await;
            if let Err(error) = told {
                tracing::debug!(plugin = plugin.label(), %error, "an NRI plugin did not hear of the end");
            }
        });
        futures::future::join_all(told).await;
    }

    /// Accepts plugins until `shutdown`, then says so to them, lets them go and ends the started ones.
    pub async fn run(self, shutdown: CancellationToken) {
        let context = self.context();
        loop {
            let accepted = async {
                match &self.listener {
                    Some(listener) => podwire_wire::accept::next(listener, "NRI socket").await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                // Every connection registers on its own: one that never does holds nobody up.
                stream = accepted => session::begin(&context, stream, None),
            }
        }
        self.farewell().await;
        self.shutdown.cancel();
        self.registry.close_all();
        self.tasks.close();
        self.tasks.wait().await;
        if let Some(path) = &self.registry.config.socket {
            // Ignored: a socket that is already gone is what was wanted.
            std::fs::remove_file(path).ok();
        }
    }
}
