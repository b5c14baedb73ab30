//! Watches the runtime: its event stream when it has one, relists when it does not, slow relists always.
//!
//! Tasks: one. Inputs: GetContainerEvents, ListPodSandbox, ListContainers. Outputs: signals to pods' inboxes, the
//! first complete picture (what to adopt), orphans, and whether the runtime answers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podwire_wire::{
    cri,
    ids::{ContainerId, PodUid, SandboxId},
};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{CallError, Runtime};
use crate::{
    inbox::Signal,
    labels,
    node::Inboxes,
    observed::{Observed, RunState},
    spec::PodRef,
};

/// With an event stream a relist only catches what the stream lost.
const SLOW_RELIST: Duration = Duration::from_secs(60);
/// Without one it is all there is.
const FAST_RELIST: Duration = Duration::from_millis(250);
/// How long a runtime may take to open its event stream before it is listed without one.
const OPENING: Duration = Duration::from_millis(100);
/// Longest wait between attempts to reach the runtime.
const RETRY_CAP: Duration = Duration::from_secs(2);

/// What a relist saw of one container.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Its state.
    pub(crate) state: RunState,
    /// Its sandbox.
    pub(crate) sandbox: SandboxId,
}

/// What a relist saw of one pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodListing {
    /// Whose it is, from the labels.
    pub(crate) pod: Option<PodRef>,
    /// Sandboxes and whether they are ready.
    pub(crate) sandboxes: BTreeMap<SandboxId, bool>,
    /// Containers by id.
    pub(crate) containers: BTreeMap<ContainerId, Listed>,
    /// When the relist began, in nanoseconds since the epoch.
    pub(crate) at: i64,
}

/// What the node needs to know about the runtime's health.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// Why the runtime does not answer, if it does not.
    pub(crate) down: Option<String>,
    /// How often the runtime has come back.
    pub(crate) epoch: u64,
}

/// Watches the runtime on behalf of all pods.
pub(crate) struct Watcher {
    pub(crate) runtime: Runtime,
    pub(crate) inboxes: Arc<Inboxes>,
    pub(crate) health: watch::Sender<Health>,
    /// Pods that the runtime has and no worker knows.
    pub(crate) orphans: mpsc::Sender<(PodRef, Observed)>,
    /// Rung when workers have begun on pods that ran already: what was told of them before, nobody heard.
    pub(crate) adopted: Arc<Notify>,
}

impl Watcher {
    /// Watches until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.forever() => {}
        }
    }

    async fn forever(self) {
        let mut wait = Duration::from_millis(50);
        loop {
            let mut next = Instant::now();
            let error = match self.open(&mut next).await {
                Ok(events) => {
                    wait = Duration::from_millis(50);
                    self.stream(events, next).await
                }
                Err(error) if error.status.code() == tonic::Code::Unimplemented => self.poll().await,
                Err(error) => error,
            };
            self.down(&error);
            tracing::warn!(error = %error, "lost the runtime; will retry");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_CAP);
        }
    }

    /// Opens the event stream; `next` is when to relist again.
    ///
    /// A runtime written in Go answers only with its first event, which on an idle node may be hours away: it is
    /// listed meanwhile.
    async fn open(
        &self,
        next: &mut Instant,
    ) -> Result<tonic::Streaming<cri::ContainerEventResponse>, CallError> {
        let mut opening = std::pin::pin!(self.runtime.events());
        let mut relist = Instant::now() + OPENING;
        loop {
            tokio::select! {
                biased;
                opened = &mut opening => return opened,
                () = tokio::time::sleep_until(relist) => {
                    self.relist().await?;
                    relist = Instant::now() + SLOW_RELIST;
                    *next = relist;
                }
                () = self.adopted.notified() => relist = Instant::now(),
            }
        }
    }

    /// Follows the event stream until it breaks; relists at `next` first, since nothing is replayed.
    async fn stream(
        &self,
        mut events: tonic::Streaming<cri::ContainerEventResponse>,
        mut next: Instant,
    ) -> CallError {
        loop {
            tokio::select! {
                biased;
                event = events.message() => match event {
                    Ok(Some(event)) => self.route(event),
                    Ok(None) => return ended("the event stream ended"),
                    Err(status) => return CallError { call: "get_container_events", status },
                },
                () = tokio::time::sleep_until(next) => {
                    if let Err(error) = self.relist().await {
                        return error;
                    }
                    next = Instant::now() + SLOW_RELIST;
                }
                () = self.adopted.notified() => next = Instant::now(),
            }
        }
    }

    /// Relists often, for a runtime without events.
    async fn poll(&self) -> CallError {
        tracing::info!("the runtime has no event stream; relisting instead");
        loop {
            if let Err(error) = self.relist().await {
                return error;
            }
            tokio::time::sleep(FAST_RELIST).await;
        }
    }

    fn route(&self, event: cri::ContainerEventResponse) {
        let uid = event.pod_sandbox_status.as_ref().and_then(|s| s.metadata.as_ref()).map(|m| m.uid.clone());
        if let Some(uid) = uid {
            self.inboxes.signal(&uid, Signal::Event(Box::new(event)));
        }
    }

    async fn relist(&self) -> Result<(), CallError> {
        let began = Instant::now();
        // Before the list: what is made while it is taken must not look older than it.
        let at = i64::try_from(crate::clock::now().as_nanosecond()).unwrap_or_default();
        let listings = list(&self.runtime).await?;
        self.up();
        let known = self.inboxes.uids();
        for uid in &known {
            let listing =
                listings.get(uid).cloned().unwrap_or_else(|| PodListing { at, ..PodListing::default() });
            self.inboxes.signal(uid, Signal::Relisted(listing, began));
        }
        for (uid, listing) in listings {
            if known.contains(&uid) {
                continue;
            }
            if let Some(pod) = listing.pod.clone() {
                let observed = observe(&self.runtime, &listing).await?;
                // Ignored: without a receiver the kubelet is ending.
                self.orphans.send((pod, observed)).await.ok();
            }
        }
        Ok(())
    }

    fn up(&self) {
        self.health.send_if_modified(|health| {
            let was_down = health.down.take().is_some();
            if was_down || health.epoch == 0 {
                health.epoch += 1;
                return true;
            }
            false
        });
    }

    fn down(&self, error: &CallError) {
        let text = error.to_string();
        self.health.send_if_modified(|health| {
            let changed = health.down.is_none();
            health.down = Some(text);
            changed
        });
    }
}

fn ended(text: &str) -> CallError {
    CallError { call: "get_container_events", status: tonic::Status::unavailable(text) }
}

/// Everything the runtime has, by pod uid.
pub(crate) async fn list(runtime: &Runtime) -> Result<BTreeMap<PodUid, PodListing>, CallError> {
    let at = i64::try_from(crate::clock::now().as_nanosecond()).unwrap_or_default();
    let (sandboxes, containers) = tokio::try_join!(runtime.list_sandboxes(), runtime.list_containers())?;
    let mut all: BTreeMap<PodUid, PodListing> = BTreeMap::new();
    for sandbox in sandboxes {
        let Some(pod) = identity(&sandbox.labels) else { continue };
        let listing = all.entry(pod.uid.clone()).or_default();
        listing.at = at;
        listing.pod = Some(pod);
        let ready = sandbox.state == cri::PodSandboxState::SandboxReady as i32;
        listing.sandboxes.insert(sandbox.id.into(), ready);
    }
    for container in containers {
        let Some(pod) = identity(&container.labels) else { continue };
        let listing = all.entry(pod.uid.clone()).or_default();
        listing.at = at;
        listing.pod.get_or_insert(pod);
        let state = match cri::ContainerState::try_from(container.state) {
            Ok(cri::ContainerState::ContainerCreated) => RunState::Created,
            Ok(cri::ContainerState::ContainerRunning) => RunState::Running,
            Ok(cri::ContainerState::ContainerExited) => RunState::Exited,
            _ => RunState::Unknown,
        };
        let sandbox = container.pod_sandbox_id.into();
        listing.containers.insert(container.id.into(), Listed { state, sandbox });
    }
    Ok(all)
}

/// The full picture of one listed pod.
pub(crate) async fn observe(runtime: &Runtime, listing: &PodListing) -> Result<Observed, CallError> {
    let mut observed = Observed::default();
    for id in listing.sandboxes.keys() {
        match runtime.sandbox_status(id).await {
            Ok(sandbox) => {
                observed.merge_sandbox(sandbox);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    for (id, listed) in &listing.containers {
        if let Some(container) = runtime.container_status(id, &listed.sandbox).await? {
            observed.merge_container(container);
        }
    }
    Ok(observed)
}

fn identity(labels: &std::collections::HashMap<String, String>) -> Option<PodRef> {
    Some(PodRef {
        name: labels.get(labels::POD_NAME)?.clone(),
        namespace: labels.get(labels::POD_NAMESPACE)?.clone(),
        uid: labels.get(labels::POD_UID)?.as_str().into(),
    })
}
