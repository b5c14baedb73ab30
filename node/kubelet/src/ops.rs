//! The operations a worker begins: each does one thing to the world and reports how it went.

use std::{io, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container as Spec, Pod, PodStatus};
use podwire_wire::{
    cri,
    ids::{ContainerId, ContainerName, PodUid, SandboxId},
};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    api::ApiError,
    cgroups::CgroupError,
    claims::{PrepareError, UnprepareError},
    container,
    devices::Admission,
    hooks,
    images::{Found, ImageError},
    node::{Node, RuntimeClassError},
    observed::{Container, Observed, Sandbox},
    paths,
    resize::{self, Change},
    resources,
    runtime::{CallError, Runtime},
    sandbox,
    spec::{self, Kind, PodRef},
    users::{self, UsersError},
    volumes::{self, Mounted, VolumeError},
};

/// How an operation ended.
pub(crate) enum Done {
    Prepared(Result<Mounted, VolumeError>),
    Remounted(Result<Mounted, VolumeError>),
    Sandbox {
        result: Result<Sandbox, SandboxError>,
        left: Vec<Sandbox>,
    },
    Dropped {
        id: SandboxId,
        result: Result<(), CallError>,
    },
    Image {
        container: ContainerName,
        attempt: u32,
        result: Result<Found, ImageError>,
    },
    Started {
        container: ContainerName,
        attempt: u32,
        seen: Option<Container>,
        failure: Option<StartFailure>,
    },
    Resumed {
        id: ContainerId,
        container: ContainerName,
        seen: Option<Container>,
        failure: Option<StartFailure>,
    },
    Killed {
        id: ContainerId,
        result: Result<Option<Container>, CallError>,
    },
    TornDown {
        remove: bool,
        result: Result<(), TearDownError>,
    },
    Published {
        status: Box<PodStatus>,
        result: Result<(), ApiError>,
    },
    Deleted(Result<(), ApiError>),
    Hooked {
        id: ContainerId,
        container: ContainerName,
        result: Result<(), hooks::HookError>,
    },
    Refreshed {
        seen: Vec<Container>,
        lost: Vec<ContainerId>,
    },
    Devices {
        admission: Admission,
        since: Instant,
        changes: watch::Receiver<()>,
    },
    DevicesChanged,
    Resized {
        /// What the containers have now.
        applied: Vec<(ContainerId, cri::LinuxContainerResources)>,
        result: Result<(), ResizeError>,
    },
    LastWords {
        id: ContainerId,
        message: String,
    },
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// The pod's cgroup could not be made.
    #[error("failed to ensure that the pod: {uid} cgroups exist and are correctly applied: {error}")]
    Cgroup { uid: PodUid, error: CgroupError },
    /// The pod wants a user namespace that it cannot have.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The pod's runtime class is not known.
    #[error(transparent)]
    RuntimeClass(#[from] RuntimeClassError),
    /// The pod does not have its claims: it must not run without them.
    #[error("prepare dynamic resources: {0}")]
    Claims(#[from] PrepareError),
    /// The pod ends.
    #[error("the pod ends")]
    Ended,
    /// The runtime refused.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why something of the pod is left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TearDownError {
    /// The runtime refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A volume could not be unmounted or removed.
    #[error("clean up volumes: {0}")]
    Volumes(#[source] std::io::Error),
    /// The cgroup could not be removed.
    #[error("remove cgroup {path}: {error}")]
    Cgroup { path: String, error: CgroupError },
}

/// Why a container does not run, in the words of status and event.
pub(crate) struct StartFailure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) event: String,
}

/// What starting a container takes.
pub(crate) struct StartInput {
    pub(crate) pod: Arc<Pod>,
    pub(crate) kind: Kind,
    pub(crate) container: Spec,
    pub(crate) attempt: u32,
    pub(crate) sandbox: Sandbox,
    pub(crate) mounted: Arc<Mounted>,
    pub(crate) image: Found,
    pub(crate) target: Option<ContainerId>,
}

/// What stopping a container takes.
pub(crate) struct KillInput {
    pub(crate) pod: Arc<Pod>,
    pub(crate) spec: Option<Spec>,
    pub(crate) id: ContainerId,
    pub(crate) sandbox: SandboxId,
    pub(crate) grace: i64,
    pub(crate) ips: Vec<String>,
}

/// Folders and volumes.
pub(crate) async fn prepare(node: Arc<Node>, pod: Arc<Pod>) -> Done {
    Done::Prepared(volumes::prepare(&node, &pod).await)
}

/// Volumes again, after their sources changed.
pub(crate) async fn remount(node: Arc<Node>, pod: Arc<Pod>) -> Done {
    Done::Remounted(volumes::prepare(&node, &pod).await)
}

/// The pod's cgroup and claims, then its sandbox. When it has `ended` drivers are not waited for.
pub(crate) async fn run_sandbox(
    node: Arc<Node>,
    pod: Arc<Pod>,
    attempt: u32,
    ended: CancellationToken,
) -> Done {
    let result = run_sandbox_inner(&node, &pod, attempt, &ended).await;
    let left = match &result {
        Ok(_) | Err(SandboxError::Claims(_) | SandboxError::Ended) => Vec::new(),
        Err(_) => leftovers(&node, &spec::uid(&pod).into()).await,
    };
    Done::Sandbox { result, left }
}

/// What the runtime keeps of a pod after a failure: a sandbox it could not take back, or one made after all.
async fn leftovers(node: &Node, uid: &PodUid) -> Vec<Sandbox> {
    let listed = match node.runtime.sandboxes_of(uid).await {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(%uid, %error, "sandboxes not listed after a failure; the next relist finds them");
            return Vec::new();
        }
    };
    let mut left = Vec::new();
    for sandbox in listed {
        match node.runtime.sandbox_status(&sandbox.id.as_str().into()).await {
            Ok(sandbox) => left.push(sandbox),
            Err(error) => tracing::debug!(sandbox = %sandbox.id, %error, "leftover sandbox not asked about"),
        }
    }
    left
}

async fn run_sandbox_inner(
    node: &Arc<Node>,
    pod: &Arc<Pod>,
    attempt: u32,
    ended: &CancellationToken,
) -> Result<Sandbox, SandboxError> {
    node.cgroups
        .ensure_pod(pod)
        .await
        .map_err(|error| SandboxError::Cgroup { uid: spec::uid(pod).into(), error })?;
    let handler = node.runtime_handler(pod).await?;
    let users = users::for_sandbox(node, pod, &handler).await?;
    // After everything that can fail without a driver, so that one is asked for a sandbox that will be.
    tokio::select! {
        prepared = node.claims.prepare(pod) => prepared?,
        () = ended.cancelled() => return Err(SandboxError::Ended),
    }
    let required = node.claims.nri_plugins(pod);
    let config = sandbox::config(pod, attempt, users, &required, &node.sandbox_facts());
    Ok(node.runtime.for_pod(&PodRef::of(pod)).run_sandbox(config, &handler).await?)
}

/// Stops a sandbox that is to be replaced.
pub(crate) async fn drop_sandbox(node: Arc<Node>, pod: PodRef, id: SandboxId) -> Done {
    let result = node.runtime.for_pod(&pod).stop_sandbox(&id).await;
    Done::Dropped { id, result }
}

/// Creates and starts a container.
pub(crate) async fn start(node: Arc<Node>, input: StartInput) -> Done {
    let (seen, failure) = start_inner(&node, &input).await;
    Done::Started { container: input.container.name.into(), attempt: input.attempt, seen, failure }
}

async fn start_inner(node: &Arc<Node>, input: &StartInput) -> (Option<Container>, Option<StartFailure>) {
    let part = Some((input.kind, input.container.name.as_str()));
    let made = async {
        let users = users::for_container(node, &input.pod, &input.sandbox)?;
        Ok::<_, container::ConfigError>((container::config(node, input, users.clone()).await?, users))
    };
    let (config, users) = match made.await {
        Ok(made) => made,
        Err(error) => {
            let message = error.to_string();
            return (
                None,
                Some(StartFailure { reason: error.reason(), event: format!("Error: {message}"), message }),
            );
        }
    };
    let required = node.claims.nri_plugins(&input.pod);
    let attempt = input.sandbox.attempt;
    let sandbox_config = sandbox::config(&input.pod, attempt, users, &required, &node.sandbox_facts());
    let runtime = node.runtime.for_container(&PodRef::of(&input.pod), &input.container.name);
    let id = match runtime.create_container(&input.sandbox.id, config, sandbox_config).await {
        Ok(id) => id,
        Err(error) => {
            let message = error.status.message().to_owned();
            let event = format!("Error: {message}");
            return (None, Some(StartFailure { reason: "CreateContainerError", message, event }));
        }
    };
    node.events.normal(&input.pod, part, "Created", "Container created");
    finish_start(node, &input.pod, part, &id, &input.sandbox.id).await
}

async fn finish_start(
    node: &Arc<Node>,
    pod: &Pod,
    part: Option<(Kind, &str)>,
    id: &ContainerId,
    sandbox: &SandboxId,
) -> (Option<Container>, Option<StartFailure>) {
    let name = part.map(|(_, name)| name).unwrap_or_default();
    let failure = match node.runtime.for_container(&PodRef::of(pod), name).start_container(id).await {
        Ok(()) => {
            node.events.normal(pod, part, "Started", "Container started");
            None
        }
        Err(error) => {
            let message = error.status.message().to_owned();
            let event = format!("Error: {message}");
            Some(StartFailure { reason: "RunContainerError", message, event })
        }
    };
    // Ignored: an unanswered question is asked again by the next relist.
    let seen = node.runtime.container_status(id, sandbox).await.ok().flatten();
    (seen, failure)
}

/// Starts a container that an earlier kubelet only created.
pub(crate) async fn resume(
    node: Arc<Node>,
    pod: Arc<Pod>,
    name: ContainerName,
    id: ContainerId,
    sandbox: SandboxId,
) -> Done {
    let kind = spec::find_container(&pod, &name).map(|(kind, _)| kind);
    let part = kind.map(|kind| (kind, name.as_str()));
    let (seen, failure) = finish_start(&node, &pod, part, &id, &sandbox).await;
    Done::Resumed { id, container: name, seen, failure }
}

/// preStop hook, then StopContainer with what is left of the grace period.
pub(crate) async fn kill(node: Arc<Node>, input: KillInput) -> Done {
    const MINIMUM: i64 = 2;
    let began = Instant::now();
    if let Some(spec) = input.spec.as_ref().filter(|_| input.grace > 0) {
        hooks::pre_stop(&node, &input.pod, spec, &input.id, &input.ips, input.grace).await;
    }
    let used = i64::try_from(began.elapsed().as_secs()).unwrap_or(i64::MAX);
    let grace = (input.grace - used).max(MINIMUM);
    let name = input.spec.as_ref().map(|spec| spec.name.as_str()).unwrap_or_default();
    let runtime = node.runtime.for_container(&PodRef::of(&input.pod), name);
    let result = stop_and_look(&runtime, &input.id, &input.sandbox, grace).await;
    Done::Killed { id: input.id, result }
}

async fn stop_and_look(
    runtime: &Runtime,
    id: &ContainerId,
    sandbox: &SandboxId,
    grace: i64,
) -> Result<Option<Container>, CallError> {
    runtime.stop_container(id, grace).await?;
    runtime.container_status(id, sandbox).await
}

/// Another attempt at a container that could not be stopped.
pub(crate) async fn kill_again(node: Arc<Node>, pod: PodRef, id: ContainerId, sandbox: SandboxId) -> Done {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let result = stop_and_look(&node.runtime.for_pod(&pod), &id, &sandbox, 2).await;
    Done::Killed { id, result }
}

/// Containers whose sandbox is not known: they are removed one by one.
pub(crate) fn strays(observed: &Observed) -> Vec<ContainerId> {
    let known = |id: &str| observed.sandboxes.iter().any(|s| s.id == id);
    observed.containers.values().filter(|c| !known(&c.sandbox)).map(|c| c.id.clone()).collect()
}

/// Stops the sandboxes; when `remove`, nothing of the pod stays on the node.
pub(crate) async fn tear_down(
    node: Arc<Node>,
    pod: Arc<Pod>,
    sandboxes: Vec<SandboxId>,
    strays: Vec<ContainerId>,
    remove: bool,
) -> Done {
    let result = tear_down_inner(&node, &pod, &sandboxes, &strays, remove).await;
    Done::TornDown { remove, result }
}

async fn tear_down_inner(
    node: &Arc<Node>,
    pod: &Arc<Pod>,
    sandboxes: &[SandboxId],
    strays: &[ContainerId],
    remove: bool,
) -> Result<(), TearDownError> {
    let reference = PodRef::of(pod);
    let runtime = async {
        let runtime = node.runtime.for_pod(&reference);
        for id in sandboxes {
            runtime.stop_sandbox(id).await?;
        }
        unprepare(node, pod, &reference).await;
        if remove {
            for id in sandboxes {
                runtime.remove_sandbox(id).await?;
            }
            for id in strays {
                runtime.remove_container(id).await?;
            }
        }
        let path = paths::pod_cgroup(&node.config.cgroup_root, resources::qos(pod), spec::uid(pod));
        let removed = node.cgroups.remove_pod(pod).await;
        removed.map_err(|error| TearDownError::Cgroup { path, error })
    };
    // Nothing runs any more, so the volumes need not wait for the network.
    let files = async { volumes::tear_down(node, &reference, remove).await.map_err(TearDownError::Volumes) };
    let (runtime, files) = tokio::join!(runtime, files);
    runtime.and(files)?;
    if node.users.range_of(spec::uid(pod)).is_some() {
        let (node, uid) = (node.clone(), spec::uid(pod).to_owned());
        let freed = tokio::task::spawn_blocking(move || node.users.release(&uid)).await;
        freed.map_err(io::Error::other).and_then(|freed| freed).map_err(TearDownError::Volumes)?;
    }
    if remove {
        node.images.forget(spec::uid(pod));
    }
    Ok(())
}

/// Gives the pod's claims back, before its status says that it has ended.
async fn unprepare(node: &Arc<Node>, pod: &Pod, reference: &PodRef) {
    let told = |error: &UnprepareError| {
        let text = format!("Failed to unprepare dynamic resources: unprepare dynamic resources: {error}");
        node.events.warning(pod, None, "FailedUnprepareDynamicResources", &text);
    };
    if !node.claims.unprepare(reference, told).await {
        let text =
            "The pod ends though its dynamic resources are not unprepared; they are kept back until they are";
        node.events.warning(pod, None, "FailedUnprepareDynamicResources", text);
    }
}

/// Asks the runtime about containers.
pub(crate) async fn refresh(node: Arc<Node>, containers: Vec<(ContainerId, SandboxId)>) -> Done {
    let (mut seen, mut lost) = (Vec::new(), Vec::new());
    for (id, sandbox) in containers {
        match node.runtime.container_status(&id, &sandbox).await {
            Ok(Some(container)) => seen.push(container),
            Ok(None) => lost.push(id),
            Err(error) => {
                tracing::warn!(container = %id, error = %error, "container not observed; the next relist asks again");
            }
        }
    }
    Done::Refreshed { seen, lost }
}

/// Removes one dead container.
pub(crate) async fn remove_container(node: Arc<Node>, pod: PodRef, id: ContainerId) -> Done {
    if let Err(error) = node.runtime.for_pod(&pod).remove_container(&id).await {
        tracing::warn!(container = %id, error = %error, "dead container not removed; its pod's end removes it");
    }
    Done::Refreshed { seen: Vec::new(), lost: Vec::new() }
}

/// Why a pod does not have all that it was given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResizeError {
    /// It would be killed for what it uses already.
    #[error("{0}")]
    InUse(String),
    /// Its cgroup could not be changed.
    #[error("pod cgroup: {0}")]
    Cgroup(#[from] CgroupError),
    /// The runtime refused.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Gives running containers and the pod's cgroup what the pod was given.
pub(crate) async fn resize(node: Arc<Node>, pod: Arc<Pod>, changes: Vec<Change>) -> Done {
    let mut applied = Vec::new();
    let result = give(&node, &pod, changes, &mut applied).await;
    Done::Resized { applied, result }
}

async fn give(
    node: &Node,
    pod: &Pod,
    changes: Vec<Change>,
    applied: &mut Vec<(ContainerId, cri::LinuxContainerResources)>,
) -> Result<(), ResizeError> {
    if changes.iter().any(|change| change.shrinks) {
        let stats = node.runtime.container_stats().await?;
        let usage = |id: &ContainerId| {
            let one = stats.iter().find(|s| s.attributes.as_ref().is_some_and(|a| *id == a.id.as_str()))?;
            Some(one.memory.as_ref()?.usage_bytes.as_ref()?.value)
        };
        if let Some(why) = resize::too_small(&changes, usage) {
            return Err(ResizeError::InUse(why));
        }
    }
    // A pod that grows needs room before its containers do, and one that shrinks has it only after they did: where the
    // kernel does not let it go first, it goes last.
    let grown = node.cgroups.ensure_pod(pod).await;
    let runtime = node.runtime.for_pod(&PodRef::of(pod));
    for change in changes {
        runtime.update_resources(&change.id, change.wanted.clone()).await?;
        applied.push((change.id, change.wanted));
    }
    if grown.is_err() {
        node.cgroups.ensure_pod(pod).await?;
    }
    Ok(())
}
