//! What happens to pods and containers, told to plugins one after another, and what they want merged.
//!
//! Events of one pod keep their order; those of different pods run side by side. A plugin that refuses fails the
//! event. One that does not answer is dropped, and the event goes on without it, unless it is required: then
//! the event fails. Events on the way out (stop, remove) reach every plugin, whatever the others say.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use podwire_wire::nri::{
    Container, ContainerAdjustment, ContainerEviction, ContainerUpdate, CreateContainerRequest,
    CreateContainerResponse, Event, LinuxResources, PluginInstance, PodSandbox, PostCreateContainerRequest,
    PostStartContainerRequest, PostUpdateContainerRequest, PostUpdatePodSandboxRequest,
    RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest,
    StopContainerRequest, StopContainerResponse, StopPodSandboxRequest, UpdateContainerRequest,
    UpdateContainerResponse, UpdatePodSandboxRequest, UpdatePodSandboxResponse,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};

use super::plugin::{Plugin, PluginInfo, Stage};
use super::registry::{Registry, UnderWay};
use super::required;
use crate::link::CallError;
use crate::merge::{Conflict, Merged};

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
    registry: Arc<Registry>,
}

/// One event being told.
struct Telling {
    event: Event,
    method: &'static str,
    under_way: UnderWay,
    required: BTreeSet<String>,
    uid: String,
    pod: String,
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

    /// The connected plugins, in order.
    pub fn plugins(&self) -> Vec<PluginInfo> {
        self.registry.plugins().iter().map(|plugin| plugin.info()).collect()
    }

    /// The pod's network is up and its containers may follow.
    pub async fn run_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let telling = self.gated(Event::RunPodSandbox, "RunPodSandbox", &pod, None, Some(&pod.id)).await?;
        let request = RunPodSandboxRequest { pod: Some(pod.clone()) };
        telling.notify_all(&request, &pod, None).await
    }

    /// The pod's limits are about to change.
    pub async fn update_pod_sandbox(
        &self,
        pod: PodSandbox,
        overhead: LinuxResources,
        resources: LinuxResources,
    ) -> Result<(), EventError> {
        let telling = self.open(Event::UpdatePodSandbox, "UpdatePodSandbox", &pod).await;
        let request = UpdatePodSandboxRequest {
            pod: Some(pod),
            overhead_linux_resources: Some(overhead),
            linux_resources: Some(resources),
        };
        for plugin in telling.hearers().await {
            telling.ask::<_, UpdatePodSandboxResponse>(&plugin, &request).await?;
        }
        Ok(())
    }

    /// The pod's limits have changed.
    pub async fn post_update_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let telling = self.open(Event::PostUpdatePodSandbox, "PostUpdatePodSandbox", &pod).await;
        let request = PostUpdatePodSandboxRequest { pod: Some(pod.clone()) };
        telling.notify_all(&request, &pod, None).await
    }

    /// All containers of the pod are dead.
    pub async fn stop_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let telling = self.open(Event::StopPodSandbox, "StopPodSandbox", &pod).await;
        let request = StopPodSandboxRequest { pod: Some(pod.clone()) };
        telling.notify_everyone(&request, &pod, None).await
    }

    /// The pod is about to be forgotten.
    pub async fn remove_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let telling = self.open(Event::RemovePodSandbox, "RemovePodSandbox", &pod).await;
        let request = RemovePodSandboxRequest { pod: Some(pod.clone()) };
        telling.notify_everyone(&request, &pod, None).await
    }

    /// The container is planned; returns what the plugins make of it.
    pub async fn create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Creation, EventError> {
        let making = Some(container.id.as_str());
        let telling =
            self.gated(Event::CreateContainer, "CreateContainer", &pod, Some(&container), making).await?;
        let mut merged = Merged::creating(container.clone());
        for plugin in telling.hearers().await {
            let request =
                CreateContainerRequest { pod: Some(pod.clone()), container: Some(merged.container.clone()) };
            if let Some(answer) = telling.ask::<_, CreateContainerResponse>(&plugin, &request).await? {
                merged.created(&plugin.label(), answer)?;
            }
        }
        telling.validate(pod, container, &merged).await?;
        Ok(Creation { adjust: merged.adjust, updates: merged.updates, evictions: merged.evictions })
    }

    /// The container exists.
    pub async fn post_create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let telling = self.open(Event::PostCreateContainer, "PostCreateContainer", &pod).await;
        let request =
            PostCreateContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        telling.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container is about to run.
    pub async fn start_container(&self, pod: PodSandbox, container: Container) -> Result<(), EventError> {
        let telling =
            self.gated(Event::StartContainer, "StartContainer", &pod, Some(&container), None).await?;
        let request = StartContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        telling.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container runs.
    pub async fn post_start_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let telling = self.open(Event::PostStartContainer, "PostStartContainer", &pod).await;
        let request =
            PostStartContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        telling.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container's limits are about to change; returns what the plugins make of that.
    pub async fn update_container(
        &self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Result<Updating, EventError> {
        let telling = self.open(Event::UpdateContainer, "UpdateContainer", &pod).await;
        let mut merged = Merged::updating(container.clone(), resources);
        for plugin in telling.hearers().await {
            let request = UpdateContainerRequest {
                pod: Some(pod.clone()),
                container: Some(container.clone()),
                linux_resources: Some(merged.resources.clone()),
            };
            if let Some(answer) = telling.ask::<_, UpdateContainerResponse>(&plugin, &request).await? {
                merged.update(&plugin.label(), answer.update)?;
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
        let telling = self.open(Event::PostUpdateContainer, "PostUpdateContainer", &pod).await;
        let request =
            PostUpdateContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        telling.notify_all(&request, &pod, Some(&container)).await
    }

    /// The container has ended; returns changes to others.
    pub async fn stop_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Vec<ContainerUpdate>, EventError> {
        let pod = if pod.id.is_empty() { pod_of(&container) } else { pod };
        let telling = self.open(Event::StopContainer, "StopContainer", &pod).await;
        let request = StopContainerRequest { pod: Some(pod), container: Some(container) };
        let (mut merged, mut first) = (Merged::others(), Ok(()));
        for plugin in telling.hearers().await {
            match telling.ask::<_, StopContainerResponse>(&plugin, &request).await {
                Ok(Some(answer)) => {
                    if let Err(conflict) = merged.update(&plugin.label(), answer.update) {
                        first = first.and(Err(conflict.into()));
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
        let telling = self.open(Event::RemoveContainer, "RemoveContainer", &pod).await;
        let request = RemoveContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        telling.notify_everyone(&request, &pod, Some(&container)).await
    }

    /// An event that must go on even without required plugins.
    async fn open(&self, event: Event, method: &'static str, pod: &PodSandbox) -> Telling {
        let under_way = self.registry.begin(&pod.id, None).await;
        Telling::new(event, method, under_way, BTreeSet::new(), pod)
    }

    /// An event that must not go on without required plugins.
    async fn gated(
        &self,
        event: Event,
        method: &'static str,
        pod: &PodSandbox,
        container: Option<&Container>,
        making: Option<&str>,
    ) -> Result<Telling, EventError> {
        let required = required::names(&self.registry.config.required, pod, container);
        let deadline = Instant::now() + self.registry.config.required_wait;
        loop {
            // Waited for before the event begins: a plugin that comes waits for events under way.
            let left = deadline.saturating_duration_since(Instant::now());
            if !required.is_empty()
                && let Some(plugin) = required::wait(&self.registry, &required, left).await
            {
                return Err(EventError::Absent { plugin, event: method });
            }
            let under_way = self.registry.begin(&pod.id, making).await;
            let living = |plugin: &&Arc<Plugin>| plugin.stage() != Stage::Gone;
            let here =
                |name: &String| under_way.plugins.iter().filter(living).any(|plugin| plugin.name == *name);
            if required.iter().all(here) {
                return Ok(Telling::new(event, method, under_way, required, pod));
            }
        }
    }
}

impl Telling {
    fn new(
        event: Event,
        method: &'static str,
        under_way: UnderWay,
        required: BTreeSet<String>,
        pod: &PodSandbox,
    ) -> Self {
        let (uid, pod) = (pod.uid.clone(), format!("{}/{}", pod.namespace, pod.name));
        Self { event, method, under_way, required, uid, pod }
    }

    /// The plugins that want to hear of it and are ready, in order.
    async fn hearers(&self) -> Vec<Arc<Plugin>> {
        let mut hearers = Vec::new();
        for plugin in self.under_way.plugins.iter().filter(|plugin| plugin.hears(self.event)) {
            // One that goes away while being synchronized is treated as one that does not answer.
            if plugin.ready().await || self.required.contains(&plugin.name) {
                hearers.push(plugin.clone());
            }
        }
        hearers
    }

    /// Tells one after another; the first refusal ends it.
    async fn notify_all<A: prost::Message>(
        &self,
        request: &A,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> Result<(), EventError> {
        for plugin in self.hearers().await {
            let begun = Instant::now();
            let told = plugin.notify(self.event, self.method, request, pod, container).await;
            self.judge(&plugin, told, begun)?;
        }
        Ok(())
    }

    /// Tells everyone, and reports the first refusal at the end.
    async fn notify_everyone<A: prost::Message>(
        &self,
        request: &A,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> Result<(), EventError> {
        let mut first = Ok(());
        for plugin in self.hearers().await {
            let begun = Instant::now();
            let told = plugin.notify(self.event, self.method, request, pod, container).await;
            let judged = self.judge(&plugin, told, begun).map(drop);
            first = first.and(judged);
        }
        first
    }

    /// Asks one plugin; `None` if it dropped out and the event may go on without it.
    async fn ask<A: prost::Message, R: prost::Message + Default>(
        &self,
        plugin: &Plugin,
        request: &A,
    ) -> Result<Option<R>, EventError> {
        let begun = Instant::now();
        let answer = plugin.call(self.method, request).await;
        self.judge(plugin, answer, begun)
    }

    /// What an answer, or its absence, means for the event.
    fn judge<R>(
        &self,
        plugin: &Plugin,
        answer: Result<R, CallError>,
        begun: Instant,
    ) -> Result<Option<R>, EventError> {
        tracing::debug!(
            target: "arrow", uid = self.uid, pod = self.pod, from = "ContainerRuntime", to = "NetworkPlugin",
            what = %format_args!("{} {}", self.method, plugin.label()), reply = if answer.is_ok() { "ok" } else { "error" },
            micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
        );
        let error = match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        let (label, event) = (plugin.label(), self.method);
        if error.unimplemented() {
            return Ok(None);
        }
        if error.answered() {
            return Err(EventError::Refused { plugin: label, event, message: error.to_string() });
        }
        let keep = matches!(error, CallError::Timeout(_)) && plugin.policy.keep_connected;
        if !keep && !plugin.link.is_closed() {
            tracing::warn!(plugin = label, event, %error, "NRI plugin dropped; it may connect anew");
            plugin.link.close();
        }
        if self.required.contains(&plugin.name) || plugin.policy.fail_request {
            return Err(EventError::Failed { plugin: label, event, reason: error.to_string() });
        }
        Ok(None)
    }

    /// Shows validating plugins what became of the container; any of them may reject it.
    async fn validate(
        &self,
        pod: PodSandbox,
        container: Container,
        merged: &Merged,
    ) -> Result<(), EventError> {
        let event = Event::ValidateContainerAdjustment;
        let validators: Vec<_> = self.under_way.plugins.iter().filter(|plugin| plugin.hears(event)).collect();
        if validators.is_empty() {
            return Ok(());
        }
        let instance =
            |plugin: &Arc<Plugin>| PluginInstance { name: plugin.name.clone(), index: plugin.index.clone() };
        let request = ValidateContainerAdjustmentRequest {
            pod: Some(pod),
            container: Some(container),
            adjust: Some(merged.adjust.clone()),
            update: merged.updates.clone(),
            owners: Some(merged.owners()),
            plugins: self.under_way.plugins.iter().map(instance).collect(),
        };
        let verdicts = validators.iter().map(|plugin| async {
            let method = "ValidateContainerAdjustment";
            (plugin.label(), plugin.call::<_, ValidateContainerAdjustmentResponse>(method, &request).await)
        });
        for (plugin, verdict) in futures::future::join_all(verdicts).await {
            match verdict {
                Ok(verdict) if verdict.reject => {
                    return Err(EventError::Rejected { plugin, reason: verdict.reason });
                }
                Ok(_) => {}
                // One that subscribes to everything without validating has nothing against it.
                Err(error) if error.unimplemented() => {}
                Err(error) => return Err(EventError::Rejected { plugin, reason: error.to_string() }),
            }
        }
        Ok(())
    }
}
