//! What the runtime calls, brought to the plugin's methods, and their answers brought back.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use podwire_wire::nri::{
    ConfigureRequest, ConfigureResponse, Container, CreateContainerRequest, Empty, Event, FailurePolicy,
    PodSandbox, StateChangeEvent, StopContainerRequest, StopContainerResponse, SynchronizeRequest,
    SynchronizeResponse, UpdateContainerRequest, UpdatePodSandboxResponse,
    ValidateContainerAdjustmentResponse,
};
use podwire_wire::ttrpc::{Status, code};
use prost::Message;
use tokio::sync::watch;

use super::{Happened, Late, Plugin, Refusal};
use crate::link::{Service, argument, status};

/// Moves to `true` when the plugin has been told what exists.
pub(super) type Synchronized = watch::Receiver<bool>;

/// What one connection serves.
pub(super) struct PluginService(Arc<Served>);

struct Served {
    plugin: Arc<dyn Plugin>,
    policy: Option<FailurePolicy>,
    late: Late,
    partial: Mutex<SynchronizeRequest>,
    /// How long the runtime waits for an answer, once it has said so.
    patience: OnceLock<Duration>,
    synchronized: watch::Sender<bool>,
}

impl PluginService {
    /// Nothing has been told yet.
    pub(super) fn new(
        plugin: Arc<dyn Plugin>,
        policy: Option<FailurePolicy>,
        late: Late,
    ) -> (Self, Synchronized) {
        let (synchronized, told) = watch::channel(false);
        let (partial, patience) = (Mutex::default(), OnceLock::new());
        (Self(Arc::new(Served { plugin, policy, late, partial, patience, synchronized })), told)
    }
}

impl Service for PluginService {
    fn call(&self, method: String, payload: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>> {
        let served = self.0.clone();
        Box::pin(async move {
            match served.limit(&method) {
                None => served.answer(&method, payload).await,
                Some(limit) => match tokio::time::timeout(limit, served.answer(&method, payload)).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        Err(status(code::UNKNOWN, format!("no decision about {method} within {limit:?}")))
                    }
                },
            }
        })
    }
}

impl Served {
    /// When a call is given up and refused.
    fn limit(&self, method: &str) -> Option<Duration> {
        let introduces = ["Configure", "Synchronize", "Shutdown"].contains(&method);
        let patience = self.patience.get().filter(|_| self.late == Late::Refuse && !introduces)?;
        Some(*patience * 9 / 10)
    }

    async fn configure(&self, request: ConfigureRequest) -> Result<Vec<u8>, Status> {
        let patience = u64::try_from(request.request_timeout).ok().filter(|millis| *millis > 0);
        if let Some(millis) = patience {
            // Ignored: a runtime that introduces itself twice means the same.
            self.patience.set(Duration::from_millis(millis)).ok();
        }
        self.plugin.configure(request).await.map_err(refused)?;
        let events = self.plugin.events().iter().fold(0, |mask, event| mask | 1 << (*event as i32 - 1));
        Ok(ConfigureResponse { events, failure_policy: self.policy }.encode_to_vec())
    }

    async fn answer(&self, method: &str, payload: Bytes) -> Result<Vec<u8>, Status> {
        let plugin = &*self.plugin;
        match method {
            "Configure" => self.configure(argument(payload)?).await,
            "Synchronize" => self.synchronize(argument(payload)?).await,
            "Shutdown" => {
                plugin.shutdown().await.map_err(refused)?;
                Ok(Empty {}.encode_to_vec())
            }
            _ => event(plugin, method, payload).await,
        }
    }

    async fn synchronize(&self, request: SynchronizeRequest) -> Result<Vec<u8>, Status> {
        let whole = {
            let mut so_far = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
            so_far.pods.extend(request.pods);
            so_far.containers.extend(request.containers);
            if request.more {
                return Ok(SynchronizeResponse { update: Vec::new(), more: true }.encode_to_vec());
            }
            std::mem::take(&mut *so_far)
        };
        let update = self.plugin.synchronize(whole.pods, whole.containers).await.map_err(refused)?;
        self.synchronized.send_replace(true);
        Ok(SynchronizeResponse { update, more: false }.encode_to_vec())
    }
}

fn refused(error: Refusal) -> Status {
    status(code::UNKNOWN, error.to_string())
}

async fn event(plugin: &dyn Plugin, method: &str, payload: Bytes) -> Result<Vec<u8>, Status> {
    match method {
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
