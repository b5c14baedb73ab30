//! The plugin's side of NRI: implement [`Plugin`], give it to [`Stub::run`], and it stays connected.
//!
//! Speaks to runtimes old and new: events that travelled as `StateChange` before NRI 0.12 reach the same methods.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use podwire_wire::nri::{
    ConfigureRequest, ConfigureResponse, Container, ContainerEviction, ContainerUpdate,
    CreateContainerRequest, CreateContainerResponse, Empty, Event, LinuxResources, PodSandbox,
    RegisterPluginRequest, StateChangeEvent, StopContainerRequest, StopContainerResponse, SynchronizeRequest,
    SynchronizeResponse, UpdateContainerRequest, UpdateContainerResponse, UpdateContainersRequest,
    UpdateContainersResponse, UpdatePodSandboxRequest, UpdatePodSandboxResponse,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};
use podwire_wire::ttrpc::{Status, code};
use prost::Message;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::NRI_VERSION;
use crate::link::{CallError, Link, Service, Side, argument, status};

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
    /// How long the runtime may take to answer.
    pub timeout: Duration,
}

impl Stub {
    /// A plugin at the usual socket.
    pub fn new(name: impl Into<String>, index: impl Into<String>) -> Self {
        let (socket, timeout) = (DEFAULT_SOCKET.into(), Duration::from_secs(5));
        Self { name: name.into(), index: index.into(), socket, timeout }
    }

    /// Stays connected until `shutdown`: connects anew whenever the runtime went away.
    pub async fn run(&self, plugin: Arc<dyn Plugin>, shutdown: CancellationToken) {
        let mut pause = Duration::from_millis(100);
        loop {
            match self.connect(plugin.clone()).await {
                Ok(connection) => {
                    pause = Duration::from_millis(100);
                    tokio::select! {
                        () = shutdown.cancelled() => return connection.close().await,
                        () = connection.ended() => tracing::warn!("the runtime went away; connecting anew"),
                    }
                    connection.close().await;
                }
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "not connected; will retry");
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
            }
        }
    }

    /// Connects once and registers.
    pub async fn connect(&self, plugin: Arc<dyn Plugin>) -> Result<Connection, Error> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| Error::Connect { path: self.socket.clone(), source })?;
        self.speak(stream, plugin).await
    }

    /// Registers over a socket that the runtime has handed to the plugin (descriptor 3 of a started one).
    pub async fn adopt(&self, socket: OwnedFd, plugin: Arc<dyn Plugin>) -> Result<Connection, Error> {
        let failed = |source| Error::Connect { path: "descriptor".into(), source };
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true).map_err(failed)?;
        self.speak(UnixStream::from_std(stream).map_err(failed)?, plugin).await
    }

    async fn speak(&self, stream: UnixStream, plugin: Arc<dyn Plugin>) -> Result<Connection, Error> {
        let tasks = TaskTracker::new();
        let service = PluginService { plugin, partial: Arc::default() };
        let link = Link::start(stream, Side::Plugin, Arc::new(service), &tasks);
        let request = RegisterPluginRequest {
            plugin_name: self.name.clone(),
            plugin_idx: self.index.clone(),
            nri_version: NRI_VERSION.into(),
        };
        let connection = Connection { link, tasks, timeout: self.timeout };
        match connection.link.call::<_, Empty>("RegisterPlugin", &request, self.timeout).await {
            Ok(_) => Ok(connection),
            Err(source) => {
                connection.close().await;
                Err(Error::Register { name: self.name.clone(), index: self.index.clone(), source })
            }
        }
    }
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
        let request = UpdateContainersRequest { update, evict };
        let answer: UpdateContainersResponse =
            self.link.call("UpdateContainers", &request, self.timeout).await?;
        Ok(answer.failed)
    }
}

/// What has been told in parts so far.
type Partial = Arc<std::sync::Mutex<SynchronizeRequest>>;

struct PluginService {
    plugin: Arc<dyn Plugin>,
    partial: Partial,
}

impl Service for PluginService {
    fn call(&self, method: String, payload: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>> {
        let (plugin, partial) = (self.plugin.clone(), self.partial.clone());
        Box::pin(async move { answer(&*plugin, &partial, &method, payload).await })
    }
}

async fn answer(
    plugin: &dyn Plugin,
    partial: &Partial,
    method: &str,
    payload: Bytes,
) -> Result<Vec<u8>, Status> {
    let refused = |error: Refusal| status(code::UNKNOWN, error.to_string());
    match method {
        "Configure" => {
            plugin.configure(argument(payload)?).await.map_err(refused)?;
            let events = plugin.events().iter().fold(0, |mask, event| mask | 1 << (*event as i32 - 1));
            Ok(ConfigureResponse { events, failure_policy: None }.encode_to_vec())
        }
        "Synchronize" => synchronize(plugin, partial, argument(payload)?).await,
        "Shutdown" => Ok(Empty {}.encode_to_vec()),
        "CreateContainer" => {
            let CreateContainerRequest { pod, container } = argument(payload)?;
            let (pod, container) = (pod.unwrap_or_default(), container.unwrap_or_default());
            Ok(plugin.create_container(pod, container).await.map_err(refused)?.encode_to_vec())
        }
        "UpdateContainer" => {
            let UpdateContainerRequest { pod, container, linux_resources } = argument(payload)?;
            let (pod, container) = (pod.unwrap_or_default(), container.unwrap_or_default());
            let answer = plugin.update_container(pod, container, linux_resources.unwrap_or_default()).await;
            Ok(answer.map_err(refused)?.encode_to_vec())
        }
        "UpdatePodSandbox" => {
            plugin.update_pod_sandbox(argument(payload)?).await.map_err(refused)?;
            Ok(UpdatePodSandboxResponse {}.encode_to_vec())
        }
        "StopContainer" => {
            let StopContainerRequest { pod, container } = argument(payload)?;
            let answer = plugin.stop_container(pod.unwrap_or_default(), container.unwrap_or_default()).await;
            Ok(StopContainerResponse { update: answer.map_err(refused)? }.encode_to_vec())
        }
        "ValidateContainerAdjustment" => {
            let reason = plugin.validate(argument(payload)?).await.map_err(refused)?;
            let reject = reason.is_some();
            Ok(ValidateContainerAdjustmentResponse { reject, reason: reason.unwrap_or_default() }
                .encode_to_vec())
        }
        "StateChange" => {
            let change: StateChangeEvent = argument(payload)?;
            let event = Event::try_from(change.event).unwrap_or(Event::Unknown);
            happened(plugin, event, change.pod, change.container).await
        }
        _ => {
            let Some(event) = notification(method) else {
                return Err(status(code::UNIMPLEMENTED, format!("method {method}")));
            };
            // All these requests are alike: a pod, and a container where there is one.
            let CreateContainerRequest { pod, container } = argument(payload)?;
            happened(plugin, event, pod, container).await
        }
    }
}

/// The events that ask for nothing back.
fn notification(method: &str) -> Option<Event> {
    Some(match method {
        "RunPodSandbox" => Event::RunPodSandbox,
        "PostUpdatePodSandbox" => Event::PostUpdatePodSandbox,
        "StopPodSandbox" => Event::StopPodSandbox,
        "RemovePodSandbox" => Event::RemovePodSandbox,
        "PostCreateContainer" => Event::PostCreateContainer,
        "StartContainer" => Event::StartContainer,
        "PostStartContainer" => Event::PostStartContainer,
        "PostUpdateContainer" => Event::PostUpdateContainer,
        "RemoveContainer" => Event::RemoveContainer,
        _ => return None,
    })
}

async fn happened(
    plugin: &dyn Plugin,
    event: Event,
    pod: Option<PodSandbox>,
    container: Option<Container>,
) -> Result<Vec<u8>, Status> {
    let what = Happened { event, pod: pod.unwrap_or_default(), container };
    plugin.happened(what).await.map_err(|error| status(code::UNKNOWN, error.to_string()))?;
    Ok(Empty {}.encode_to_vec())
}

async fn synchronize(
    plugin: &dyn Plugin,
    partial: &Partial,
    request: SynchronizeRequest,
) -> Result<Vec<u8>, Status> {
    let whole = {
        let mut so_far = partial.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        so_far.pods.extend(request.pods);
        so_far.containers.extend(request.containers);
        if request.more {
            return Ok(SynchronizeResponse { update: Vec::new(), more: true }.encode_to_vec());
        }
        std::mem::take(&mut *so_far)
    };
    let update = plugin
        .synchronize(whole.pods, whole.containers)
        .await
        .map_err(|error| status(code::UNKNOWN, error.to_string()))?;
    Ok(SynchronizeResponse { update, more: false }.encode_to_vec())
}
