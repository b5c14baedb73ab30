//! One connection from its first byte to its end: registration, configuration, synchronization, service.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use podwire_wire::nri::{
    ConfigureRequest, ConfigureResponse, Container, Empty, PodSandbox, RegisterPluginRequest,
    SynchronizeRequest, SynchronizeResponse, UpdateContainersRequest, UpdateContainersResponse,
};
use podwire_wire::ttrpc::{MESSAGE_LIMIT, Status, code};
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot};

use super::Context;
use super::log::{Entry, micros};
use super::plugin::{ALL_EVENTS, Plugin, Stage};
use super::registry::Registry;
use crate::NRI_VERSION;
use crate::link::{CallError, Link, Service, Side, argument, status};
use crate::merge::{Merged, requested};

/// Room left for what surrounds objects in a message.
const SLACK: usize = 64 << 10;

/// Who a started plugin is, and what it is told.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) index: String,
    pub(super) config: String,
}

/// Why a connection did not become a plugin.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("it did not register within {0:?}")]
    NotRegistered(std::time::Duration),
    #[error("it ended before it registered")]
    Ended,
    #[error("it wants unknown events {0:#x}")]
    UnknownEvents(i32),
    #[error("{0} failed")]
    Call(&'static str, #[source] CallError),
    #[error("it does not understand a synchronization in parts")]
    NotSplit,
}

/// Takes care of a new connection.
pub(super) fn begin(context: &Context, stream: UnixStream, known: Option<Identity>) {
    let context = context.clone();
    let tasks = context.tasks.clone();
    tasks.spawn(async move {
        let (registered, identity) = oneshot::channel();
        let guest = Arc::new(Guest {
            registry: context.registry.clone(),
            registered: Mutex::new(Some(registered)),
            label: OnceLock::new(),
            updating: Semaphore::new(1),
        });
        let link =
            Link::start(stream, Side::Runtime, Arc::new(RuntimeService(guest.clone())), &context.tasks);
        if let Some(known) = &known {
            guest.label.get_or_init(|| format!("{}-{}", known.index, known.name));
        }
        tokio::select! {
            () = context.shutdown.cancelled() => {}
            result = converse(&context, &link, identity, known) => if let Err(error) = result {
                let why = link.broken().map_or_else(|| told(&error), |broken| format!("{error}: {broken}"));
                let plugin = guest.label.get().map_or("unnamed", String::as_str);
                tracing::warn!(plugin, error = why, "an NRI plugin was turned away");
                context.registry.note(plugin, "turned away", &why);
                if let Some(label) = guest.label.get() {
                    context.registry.book.page(label).failed(why);
                }
            }
        }
        link.close();
    });
}

/// An error with its cause.
fn told(error: &SessionError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

async fn converse(
    context: &Context,
    link: &Link,
    identity: oneshot::Receiver<(String, String)>,
    known: Option<Identity>,
) -> Result<(), SessionError> {
    let registry = &context.registry;
    let config = &registry.config;
    let limit = config.registration_timeout;
    let claimed = tokio::select! {
        claimed = tokio::time::timeout(limit, identity) => {
            claimed.map_err(|_| SessionError::NotRegistered(limit))?.map_err(|_| SessionError::Ended)?
        }
        () = link.ended() => return Err(SessionError::Ended),
    };
    // A started plugin keeps the name of its file.
    let text = known.as_ref().map(|known| known.config.clone()).unwrap_or_default();
    let identity = known.map_or(claimed, |known| (known.name, known.index));
    let patience = config.timeout_of(&identity.0);
    let millis = |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let request = ConfigureRequest {
        config: text,
        runtime_name: config.runtime_name.clone(),
        runtime_version: config.runtime_version.clone(),
        registration_timeout: millis(config.registration_timeout),
        request_timeout: millis(patience),
        nri_version: NRI_VERSION.into(),
    };
    let answer: ConfigureResponse = link
        .call("Configure", &request, patience)
        .await
        .map_err(|error| SessionError::Call("Configure", error))?;
    if answer.events & !ALL_EVENTS != 0 {
        return Err(SessionError::UnknownEvents(answer.events));
    }
    let stats = registry.book.page(&format!("{}-{}", identity.1, identity.0));
    let plugin =
        Arc::new(Plugin::new(identity, link.clone(), answer.events, answer.failure_policy, patience, stats));
    let leaving = Leaving { registry, plugin: &plugin };
    registry.enter(&plugin).await;
    synchronize(registry, &plugin).await?;
    registry.set_stage(&plugin, Stage::Ready);
    tracing::info!(
        plugin = plugin.label(),
        events = format_args!("{:#x}", plugin.events),
        "NRI plugin connected"
    );
    registry.note(&plugin.label(), "connected", &plugin.info().event_names().join(","));
    link.ended().await;
    match link.broken() {
        None => tracing::info!(plugin = plugin.label(), "NRI plugin disconnected"),
        Some(error) => {
            tracing::warn!(plugin = plugin.label(), error, "NRI plugin dropped for what it sent");
            plugin.stats.failed(format!("it sent what cannot be read: {error}"));
        }
    }
    registry.note(&plugin.label(), "disconnected", link.broken().unwrap_or_default());
    drop(leaving);
    Ok(())
}

/// Takes the plugin out of the list however the conversation ends.
struct Leaving<'a> {
    registry: &'a Registry,
    plugin: &'a Arc<Plugin>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.registry.set_stage(self.plugin, Stage::Gone);
    }
}

async fn synchronize(registry: &Registry, plugin: &Arc<Plugin>) -> Result<(), SessionError> {
    let (mut pods, mut containers) = registry.host.snapshot().await;
    let being_made = registry.being_made();
    pods.retain(|pod| !being_made.contains(&pod.id));
    containers.retain(|container| {
        !being_made.contains(&container.id) && !being_made.contains(&container.pod_sandbox_id)
    });
    // Starting up may take a plugin longer than an event; the limit is for all parts together.
    let limit = registry.config.registration_timeout.max(plugin.timeout);
    let exchange = async {
        let mut updates = Vec::new();
        for part in parts(pods, containers, MESSAGE_LIMIT - SLACK) {
            let more = part.more;
            let answer: SynchronizeResponse = plugin
                .call_within("Synchronize", &part, limit)
                .await
                .map_err(|error| SessionError::Call("Synchronize", error))?;
            if more && !answer.more {
                return Err(SessionError::NotSplit);
            }
            updates.extend(answer.update);
        }
        Ok(updates)
    };
    let updates = tokio::time::timeout(limit, exchange)
        .await
        .map_err(|_| SessionError::Call("Synchronize", CallError::Timeout(limit)))??;
    if !updates.is_empty() {
        registry.host.update_containers(updates).await;
    }
    Ok(())
}

/// Divides everything into messages that may be sent.
fn parts(pods: Vec<PodSandbox>, containers: Vec<Container>, limit: usize) -> Vec<SynchronizeRequest> {
    let mut parts = vec![SynchronizeRequest::default()];
    let mut used = 0;
    let mut make_room = |parts: &mut Vec<SynchronizeRequest>, size: usize| {
        if used > 0 && used + size > limit {
            if let Some(full) = parts.last_mut() {
                full.more = true;
            }
            parts.push(SynchronizeRequest::default());
            used = 0;
        }
        used += size;
    };
    for pod in pods {
        make_room(&mut parts, pod.encoded_len() + 8);
        if let Some(part) = parts.last_mut() {
            part.pods.push(pod);
        }
    }
    for container in containers {
        make_room(&mut parts, container.encoded_len() + 8);
        if let Some(part) = parts.last_mut() {
            part.containers.push(container);
        }
    }
    parts
}

/// One connection as the runtime's service knows it.
struct Guest {
    registry: Arc<Registry>,
    registered: Mutex<Option<oneshot::Sender<(String, String)>>>,
    /// Who it is, once it has said so.
    label: OnceLock<String>,
    /// One update at a time: a plugin that floods waits for itself.
    updating: Semaphore,
}

/// What the runtime serves to one plugin.
struct RuntimeService(Arc<Guest>);

impl Service for RuntimeService {
    fn call(&self, method: String, payload: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>> {
        let guest = self.0.clone();
        Box::pin(async move {
            match method.as_str() {
                "RegisterPlugin" => guest.register(argument(payload)?),
                "UpdateContainers" => guest.update(argument(payload)?).await,
                other => {
                    let plugin = guest.label.get().map_or("unnamed", String::as_str);
                    tracing::warn!(plugin, method = other, "an NRI plugin called what does not exist");
                    Err(status(code::UNIMPLEMENTED, format!("method {other}")))
                }
            }
        })
    }
}

impl Guest {
    fn pending(&self) -> std::sync::MutexGuard<'_, Option<oneshot::Sender<(String, String)>>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, request: RegisterPluginRequest) -> Result<Vec<u8>, Status> {
        let RegisterPluginRequest { plugin_name: name, plugin_idx: index, .. } = request;
        let proper = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
        if name.is_empty() || !name.bytes().all(proper) {
            return Err(status(code::INVALID_ARGUMENT, format!("invalid plugin name {name:?}")));
        }
        if index.len() != 2 || !index.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(status(
                code::INVALID_ARGUMENT,
                format!("invalid plugin index {index:?}, must be two digits"),
            ));
        }
        let sender = self.pending().take();
        let sender = sender.ok_or_else(|| status(code::FAILED_PRECONDITION, "already registered"))?;
        self.label.get_or_init(|| format!("{index}-{name}"));
        // Ignored: whoever waited has given the connection up, and its end will be noticed.
        sender.send((name, index)).ok();
        Ok(Empty {}.encode_to_vec())
    }

    async fn update(&self, request: UpdateContainersRequest) -> Result<Vec<u8>, Status> {
        if self.pending().is_some() {
            return Err(status(code::FAILED_PRECONDITION, "not registered"));
        }
        let begun = std::time::Instant::now();
        let plugin = self.label.get().cloned().unwrap_or_default();
        // Ignored: the semaphore is never closed.
        let _turn = self.updating.acquire().await.ok();
        let mut merged = Merged::others();
        merged
            .update(&plugin, request.update)
            .map_err(|error| status(code::INVALID_ARGUMENT, error.to_string()))?;
        let wanted = requested(None, &merged.updates, &request.evict);
        let failed = self.registry.host.update_containers(merged.updates).await;
        for eviction in request.evict {
            self.registry.host.evict(eviction).await;
        }
        self.registry.log.note(Entry {
            plugin,
            event: "UpdateContainers".into(),
            outcome: if failed.is_empty() { "ok" } else { "failed" }.into(),
            detail: wanted,
            micros: micros(begun.elapsed()),
            ..Entry::default()
        });
        Ok(UpdateContainersResponse { failed }.encode_to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_node_is_told_in_parts_that_fit() {
        let pod = |n: usize| PodSandbox { id: format!("{n:0100}"), ..PodSandbox::default() };
        let container = |n: usize| Container { id: format!("{n:0100}"), ..Container::default() };
        let parts = parts((0..20).map(pod).collect(), (0..20).map(container).collect(), 1000);
        assert!(parts.len() > 3);
        assert!(parts.iter().all(|part| part.encoded_len() <= 1000 + 100));
        assert_eq!(parts.iter().filter(|part| !part.more).count(), 1);
        assert!(!parts.last().unwrap().more);
        assert_eq!(parts.iter().map(|part| part.pods.len()).sum::<usize>(), 20);
        assert_eq!(parts.iter().map(|part| part.containers.len()).sum::<usize>(), 20);
    }

    #[test]
    fn an_empty_node_is_told_once() {
        assert_eq!(parts(Vec::new(), Vec::new(), 1000), [SynchronizeRequest::default()]);
    }
}
