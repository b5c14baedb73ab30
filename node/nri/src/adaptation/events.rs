//! What happens to pods and containers, told to plugins one after another, and what they want merged.
//!
//! Events of one pod keep their order; those of different pods run side by side. A plugin that refuses fails the
//! event. One that does not answer is dropped, and the event goes on without it, unless it is required: then
//! the event fails. Events on the way out (stop, remove) reach every plugin, whatever the others say.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use podwire_wire::nri::{
    Container, ContainerAdjustment, ContainerEviction, ContainerUpdate, CreateContainerRequest,
    CreateContainerResponse, Event, LinuxResources, PodSandbox, PostCreateContainerRequest,
    PostStartContainerRequest, PostUpdateContainerRequest, PostUpdatePodSandboxRequest,
    RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest,
    StopContainerRequest, StopContainerResponse, StopPodSandboxRequest, UpdateContainerRequest,
    UpdateContainerResponse, UpdatePodSandboxRequest, UpdatePodSandboxResponse,
};
use tokio::sync::broadcast;

use super::dispatch::Dispatch;
use super::log::Entry;
use super::plugin::{PluginInfo, Stage};
use super::registry::Registry;
use super::required;
use crate::merge::{Conflict, Merged, requested};

/// Why an event failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// A plugin refused.
    #[error("NRI plugin {plugin} refused {event}: {message}")]
    Refused {
        /// The plugin.
        plugin: String,
        /// The event.
        event: &'static str,
        /// Its words.
        message: String,
    },
    /// A plugin that must not be missing is.
    #[error("required NRI plugin {plugin} is not connected, so {event} cannot go on")]
    Absent {
        /// The plugin.
        plugin: String,
        /// The event.
        event: &'static str,
    },
    /// A plugin that must not be missing did not answer.
    #[error("required NRI plugin {plugin} failed at {event}: {reason}")]
    Failed {
        /// The plugin.
        plugin: String,
        /// The event.
        event: &'static str,
        /// What happened.
        reason: String,
    },
    /// Two plugins want the same.
    #[error("{0}")]
    Conflict(#[from] Conflict),
    /// A validating plugin does not accept what the others made of the container.
    #[error("NRI plugin {plugin} rejected the container: {reason}")]
    Rejected {
        /// The plugin.
        plugin: String,
        /// Its words.
        reason: String,
    },
}

/// What plugins want of a container being created, and of others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Creation {
    /// Changes to the container.
    pub adjust: ContainerAdjustment,
    /// Changes to other containers.
    pub updates: Vec<ContainerUpdate>,
    /// Containers that shall go.
    pub evictions: Vec<ContainerEviction>,
}

/// What plugins want of a container being updated, and of others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Updating {
    /// The limits to set instead of the asked ones.
    pub resources: LinuxResources,
    /// Changes to other containers.
    pub updates: Vec<ContainerUpdate>,
    /// Containers that shall go.
    pub evictions: Vec<ContainerEviction>,
}

/// The handle through which the runtime tells what happens; cheap to clone.
#[derive(Clone)]
pub struct Nri {
    pub(super) registry: Arc<Registry>,
}

/// The pod of a message, if only by its id.
fn pod_of(container: &Container) -> PodSandbox {
    PodSandbox { id: container.pod_sandbox_id.clone(), ..PodSandbox::default() }
}

impl Nri {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// Whether nobody listens and nobody is required: then nothing needs to be told.
    pub fn is_idle(&self) -> bool {
        self.registry.is_empty() && self.registry.config.required.is_empty()
    }

    /// Whether nobody listens and nobody is required, by configuration or by this pod's annotations.
    pub fn is_idle_for(&self, annotations: &HashMap<String, String>) -> bool {
        self.is_idle() && !required::annotated(annotations.keys())
    }

    /// The connected plugins, in order.
    pub fn plugins(&self) -> Vec<PluginInfo> {
        self.registry.plugins().iter().map(|plugin| plugin.info()).collect()
    }

    /// The connected plugins, those that were, and those that are required.
    pub fn overview(&self) -> Vec<PluginInfo> {
        self.registry.overview()
    }

    /// The newest entries of the log, oldest first, and what comes after them.
    pub fn follow(&self) -> (Vec<Entry>, broadcast::Receiver<Entry>) {
        self.registry.log.follow()
    }

    /// Counters and times of all plugins in Prometheus' text form.
    pub fn metrics(&self) -> String {
        let ready = self.registry.plugins().iter().filter(|plugin| plugin.stage() == Stage::Ready).count();
        self.registry.book.metrics(ready)
    }

    /// The pod's network is up and its containers may follow.
    pub async fn run_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let dispatch = self.gated(Event::RunPodSandbox, "RunPodSandbox", &pod, None, Some(&pod.id)).await?;
        let request = RunPodSandboxRequest { pod: Some(pod.clone()) };
        dispatch.notify_all(&request, &pod, None).await
    }

    /// The pod's limits are about to change.
    pub async fn update_pod_sandbox(
        &self,
        pod: PodSandbox,
        overhead: LinuxResources,
        resources: LinuxResources,
    ) -> Result<(), EventError> {
        let dispatch = self.open(Event::UpdatePodSandbox, "UpdatePodSandbox", &pod).await;
        let request = UpdatePodSandboxRequest {
            pod: Some(pod),
            overhead_linux_resources: Some(overhead),
            linux_resources: Some(resources),
        };
        for plugin in dispatch.hearers().await {
            dispatch.ask(&plugin, &request, |_: &UpdatePodSandboxResponse| String::new()).await?;
        }
        Ok(())
    }

    /// The pod's limits have changed.
    pub async fn post_update_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let dispatch = self.open(Event::PostUpdatePodSandbox, "PostUpdatePodSandbox", &pod).await;
        let request = PostUpdatePodSandboxRequest { pod: Some(pod.clone()) };
        dispatch.notify_all(&request, &pod, None).await
    }

    /// All containers of the pod are dead.
    pub async fn stop_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let dispatch = self.open(Event::StopPodSandbox, "StopPodSandbox", &pod).await;
        let request = StopPodSandboxRequest { pod: Some(pod.clone()) };
        dispatch.notify_everyone(&request, &pod, None).await
    }

    /// The pod is about to be forgotten.
    pub async fn remove_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let dispatch = self.open(Event::RemovePodSandbox, "RemovePodSandbox", &pod).await;
        let request = RemovePodSandboxRequest { pod: Some(pod.clone()) };
        dispatch.notify_everyone(&request, &pod, None).await
    }

    /// The container is planned; returns what the plugins make of it.
    pub async fn create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Creation, EventError> {
        let making = Some(container.id.as_str());
        let dispatch =
            self.gated(Event::CreateContainer, "CreateContainer", &pod, Some(&container), making).await?;
        let mut merged = Merged::creating(container.clone());
        for plugin in dispatch.hearers().await {
            let request =
                CreateContainerRequest { pod: Some(pod.clone()), container: Some(merged.container.clone()) };
            let words =
                |one: &CreateContainerResponse| requested(one.adjust.as_ref(), &one.update, &one.evict);
            if let Some(answer) = dispatch.ask(&plugin, &request, words).await? {
                merged.created(&plugin.label(), answer).map_err(|error| dispatch.conflict(&plugin, error))?;
            }
        }
        dispatch.validate(pod, container, &merged).await?;
        Ok(Creation { adjust: merged.adjust, updates: merged.updates, evictions: merged.evictions })
    }

    /// The container exists.
    pub async fn post_create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let dispatch =
            self.open(Event::PostCreateContainer, "PostCreateContainer", &pod).await.about(&container);
        let request =
            PostCreateContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        dispatch.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container is about to run.
    pub async fn start_container(&self, pod: PodSandbox, container: Container) -> Result<(), EventError> {
        let dispatch =
            self.gated(Event::StartContainer, "StartContainer", &pod, Some(&container), None).await?;
        let request = StartContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        dispatch.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container runs.
    pub async fn post_start_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let dispatch =
            self.open(Event::PostStartContainer, "PostStartContainer", &pod).await.about(&container);
        let request =
            PostStartContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        dispatch.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container's limits are about to change; returns what the plugins make of that.
    pub async fn update_container(
        &self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Result<Updating, EventError> {
        let dispatch = self.open(Event::UpdateContainer, "UpdateContainer", &pod).await.about(&container);
        let mut merged = Merged::updating(container.clone(), resources);
        for plugin in dispatch.hearers().await {
            let request = UpdateContainerRequest {
                pod: Some(pod.clone()),
                container: Some(container.clone()),
                linux_resources: Some(merged.resources.clone()),
            };
            let words = |one: &UpdateContainerResponse| requested(None, &one.update, &one.evict);
            if let Some(answer) = dispatch.ask(&plugin, &request, words).await? {
                let label = plugin.label();
                merged.update(&label, answer.update).map_err(|error| dispatch.conflict(&plugin, error))?;
                merged.evictions.extend(answer.evict);
            }
        }
        Ok(Updating { resources: merged.resources, updates: merged.updates, evictions: merged.evictions })
    }

    /// The container's limits have changed.
    pub async fn post_update_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let dispatch =
            self.open(Event::PostUpdateContainer, "PostUpdateContainer", &pod).await.about(&container);
        let request =
            PostUpdateContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        dispatch.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container has ended; returns changes to others.
    pub async fn stop_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Vec<ContainerUpdate>, EventError> {
        let pod = if pod.id.is_empty() { pod_of(&container) } else { pod };
        let dispatch = self.open(Event::StopContainer, "StopContainer", &pod).await.about(&container);
        let request = StopContainerRequest { pod: Some(pod), container: Some(container) };
        let (mut merged, mut first) = (Merged::others(), Ok(()));
        for plugin in dispatch.hearers().await {
            let words = |one: &StopContainerResponse| requested(None, &one.update, &[]);
            match dispatch.ask(&plugin, &request, words).await {
                Ok(Some(answer)) => {
                    if let Err(conflict) = merged.update(&plugin.label(), answer.update) {
                        first = first.and(Err(dispatch.conflict(&plugin, conflict)));
                    }
                }
                Ok(None) => {}
                Err(error) => first = first.and(Err(error)),
            }
        }
        first.map(|()| merged.updates)
    }

    /// The container is about to be forgotten.
    pub async fn remove_container(&self, pod: PodSandbox, container: Container) -> Result<(), EventError> {
        let dispatch = self.open(Event::RemoveContainer, "RemoveContainer", &pod).await.about(&container);
        let request = RemoveContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        dispatch.notify_everyone(&request, &pod, Some(&container)).await
    }

    /// An event that must go on even without required plugins.
    async fn open(&self, event: Event, method: &'static str, pod: &PodSandbox) -> Dispatch {
        let under_way = self.registry.begin(&pod.id, None).await;
        Dispatch::new(event, method, under_way, BTreeSet::new(), pod)
    }
}
