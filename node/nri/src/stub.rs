//! The plugin's side of NRI: implement [`Plugin`], give it to [`Stub::serve`], and it stays connected.
//!
//! Speaks to runtimes old and new: events that travelled as `StateChange` before NRI 0.12 reach the same methods. A
//! plugin that the runtime started and one that somebody else started are the same program: see
//! [`Stub::with_environment`].

mod answer;
mod inherited;
mod serving;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use podwire_wire::nri::{
    ConfigureRequest, Container, ContainerEviction, ContainerUpdate, CreateContainerResponse, Empty, Event,
    FailurePolicy, LinuxResources, PodSandbox, RegisterPluginRequest, UpdateContainerResponse,
    UpdateContainersRequest, UpdateContainersResponse, UpdatePodSandboxRequest,
    ValidateContainerAdjustmentRequest,
};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::answer::PluginService;
pub use self::inherited::EnvironmentError;
pub use self::serving::{Handle, Serving};
use crate::NRI_VERSION;
use crate::link::{CallError, Link, Side};

/// Why a plugin refuses; its text reaches the runtime.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// What a plugin answers with.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Refusal>>;

/// Where the runtime listens.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";

/// What happened to a pod or container, where nothing but consent is asked.
#[derive(Debug, Clone)]
pub struct Happened {
    /// What.
    pub event: Event,
    /// To which pod.
    pub pod: PodSandbox,
    /// To which of its containers, if to one.
    pub container: Option<Container>,
}

/// A plugin. Every default hears and changes nothing.
pub trait Plugin: Send + Sync + 'static {
    /// The events to hear of.
    fn events(&self) -> Vec<Event>;

    /// The runtime's introduction and the plugin's configuration.
    fn configure(&self, request: ConfigureRequest) -> Answer<'_, ()> {
        drop(request);
        done(())
    }

    /// Everything there is; returns changes to containers.
    fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Answer<'_, Vec<ContainerUpdate>> {
        drop((pods, containers));
        done(Vec::new())
    }

    /// An event that asks for nothing back; an error refuses it where that is possible.
    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        drop(what);
        done(())
    }

    /// A container is to be created; returns what to change.
    fn create_container(&self, pod: PodSandbox, container: Container) -> Answer<'_, CreateContainerResponse> {
        drop((pod, container));
        done(CreateContainerResponse::default())
    }

    /// A container's limits are to change; returns what to change instead.
    fn update_container(
        &self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Answer<'_, UpdateContainerResponse> {
        drop((pod, container, resources));
        done(UpdateContainerResponse::default())
    }

    /// A pod's limits are to change.
    fn update_pod_sandbox(&self, request: UpdatePodSandboxRequest) -> Answer<'_, ()> {
        drop(request);
        done(())
    }

    /// A container has ended; returns changes to others.
    fn stop_container(&self, pod: PodSandbox, container: Container) -> Answer<'_, Vec<ContainerUpdate>> {
        drop((pod, container));
        done(Vec::new())
    }

    /// What all plugins made of a container; a reason rejects it.
    fn validate(&self, request: ValidateContainerAdjustmentRequest) -> Answer<'_, Option<String>> {
        drop(request);
        done(None)
    }

    /// The runtime says that it ends. Not every runtime does, and none that is killed: what must not be lost is written
    /// before. It may come back, so what pods depend on stays.
    fn shutdown(&self) -> Answer<'_, ()> {
        done(())
    }
}

fn done<'a, T: Send + 'a>(value: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

/// Why a plugin could not stay connected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime's socket.
    #[error("connect to the runtime at {path:?}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The runtime did not take the plugin.
    #[error("register as {index}-{name}")]
    Register {
        /// The plugin's name.
        name: String,
        /// Its place in the order.
        index: String,
        /// What the runtime said.
        source: CallError,
    },
    /// The runtime that started the plugin went away, and with it the only way to reach it.
    #[error("the runtime that started {index}-{name} went away")]
    Ended {
        /// The plugin's name.
        name: String,
        /// Its place in the order.
        index: String,
    },
}

/// What becomes of an event whose hook takes longer than the runtime waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Late {
    /// The runtime decides: most drop the plugin and go on without it.
    #[default]
    Wait,
    /// The hook is given up when nine tenths of the runtime's time are over and the event is refused: no pod goes on
    /// without the plugin's word, on any runtime. A hook must bear to be dropped at an `await`.
    Refuse,
}

/// How a plugin presents itself.
#[derive(Debug, Clone)]
pub struct Stub {
    /// The plugin's name.
    pub name: String,
    /// Its place in the order: two digits.
    pub index: String,
    /// Where the runtime listens.
    pub socket: PathBuf,
    /// The connection that the runtime made for a plugin it started; then nobody listens for it.
    pub descriptor: Option<Arc<OwnedFd>>,
    /// How long the runtime may take to answer.
    pub timeout: Duration,
    /// What a runtime that knows this shall do when the plugin does not answer; others do as they please.
    pub failure_policy: Option<FailurePolicy>,
    /// What the plugin's side does about a hook that takes too long.
    pub late: Late,
}

impl Stub {
    /// A plugin at the usual socket.
    pub fn new(name: impl Into<String>, index: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            index: index.into(),
            socket: DEFAULT_SOCKET.into(),
            descriptor: None,
            timeout: Duration::from_secs(5),
            failure_policy: None,
            late: Late::Wait,
        }
    }

    /// The plugin, to be kept connected; also what it is reached by from elsewhere in the program.
    pub fn serve(&self, plugin: Arc<dyn Plugin>) -> Serving {
        Serving::new(self.clone(), plugin)
    }

    /// Stays connected until `shutdown`: connects anew whenever the runtime went away.
    ///
    /// A plugin that the runtime started has nobody to connect to anew: then it returns when the runtime goes away.
    pub async fn run(&self, plugin: Arc<dyn Plugin>, shutdown: CancellationToken) {
        if let Err(error) = self.serve(plugin).run(shutdown).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the plugin ends");
        }
    }

    /// Connects once and registers.
    pub async fn connect(&self, plugin: Arc<dyn Plugin>) -> Result<Connection, Error> {
        Ok(self.speak(self.dial().await?, plugin).await?.0)
    }

    /// Registers over a socket that the runtime has handed to the plugin (descriptor 3 of a started one).
    pub async fn adopt(&self, socket: OwnedFd, plugin: Arc<dyn Plugin>) -> Result<Connection, Error> {
        Ok(self.speak(stream_of(socket)?, plugin).await?.0)
    }

    async fn dial(&self) -> Result<UnixStream, Error> {
        if let Some(descriptor) = &self.descriptor {
            return stream_of(descriptor.try_clone().map_err(descriptor_failed)?);
        }
        UnixStream::connect(&self.socket)
            .await
            .map_err(|source| Error::Connect { path: self.socket.clone(), source })
    }

    /// Registers; also gives what tells that the plugin has been told what exists.
    async fn speak(
        &self,
        stream: UnixStream,
        plugin: Arc<dyn Plugin>,
    ) -> Result<(Connection, answer::Synchronized), Error> {
        let tasks = TaskTracker::new();
        let (service, synchronized) = PluginService::new(plugin, self.failure_policy, self.late);
        let link = Link::start(stream, Side::Plugin, Arc::new(service), &tasks);
        let request = RegisterPluginRequest {
            plugin_name: self.name.clone(),
            plugin_idx: self.index.clone(),
            nri_version: NRI_VERSION.into(),
        };
        let connection = Connection { link: link.clone(), tasks, timeout: self.timeout };
        // One that is given up here leaves nothing running.
        let mut unregistered = CloseOnDrop(Some(link));
        let registered = connection.link.call::<_, Empty>("RegisterPlugin", &request, self.timeout).await;
        match registered {
            Ok(_) => {
                unregistered.0 = None;
                Ok((connection, synchronized))
            }
            Err(source) => {
                connection.close().await;
                Err(Error::Register { name: self.name.clone(), index: self.index.clone(), source })
            }
        }
    }
}

struct CloseOnDrop(Option<Link>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            link.close();
        }
    }
}

fn descriptor_failed(source: std::io::Error) -> Error {
    Error::Connect { path: "descriptor".into(), source }
}

fn stream_of(socket: OwnedFd) -> Result<UnixStream, Error> {
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream.set_nonblocking(true).map_err(descriptor_failed)?;
    UnixStream::from_std(stream).map_err(descriptor_failed)
}

/// A registered plugin's connection.
pub struct Connection {
    link: Link,
    tasks: TaskTracker,
    timeout: Duration,
}

impl Connection {
    /// Returns once the runtime went away.
    pub async fn ended(&self) {
        self.link.ended().await;
    }

    /// Leaves, and waits until nothing runs any more.
    pub async fn close(&self) {
        self.link.close();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Asks the runtime to change containers, unprompted; returns those it could not change.
    pub async fn update_containers(
        &self,
        update: Vec<ContainerUpdate>,
        evict: Vec<ContainerEviction>,
    ) -> Result<Vec<ContainerUpdate>, CallError> {
        ask_to_update(&self.link, self.timeout, update, evict).await
    }
}

async fn ask_to_update(
    link: &Link,
    limit: Duration,
    update: Vec<ContainerUpdate>,
    evict: Vec<ContainerEviction>,
) -> Result<Vec<ContainerUpdate>, CallError> {
    let request = UpdateContainersRequest { update, evict };
    let answer: UpdateContainersResponse = link.call("UpdateContainers", &request, limit).await?;
    Ok(answer.failed)
}
