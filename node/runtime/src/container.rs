//! The life of a container after its creation: start, stop, remove, update, and what its exit does.

pub(crate) mod apparmor;
pub(crate) mod cdi;
pub(crate) mod creation;
pub(crate) mod exec;
pub(crate) mod exits;
pub(crate) mod image_volume;
pub(crate) mod launch;
pub(crate) mod layered;
pub(crate) mod oci_runtimes;
pub(crate) mod signal;
pub(crate) mod spec;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use oci_spec::runtime::LinuxResources;
use podwire_container::{CreateRequest, Rootfs};
use podwire_linux::mount::Handing;
use podwire_trace::Note;
use podwire_wire::cri::{self, ContainerEventType as Happened};

use self::spec::resources;
use crate::{
    context::Context,
    error::{OpError, chain},
    host,
    model::Container,
    recovery::records::{ContainerPhase, SandboxPhase, row::Kind},
    supervision::Exit,
};

/// What a container that could not be started is said to have exited with.
const START_FAILED: i32 = 128;
/// How long a stop waits for a start under way before its caller has to come back.
const STARTING: Duration = Duration::from_secs(120);
/// How long a killed container may take to end.
const DEATH: Duration = Duration::from_secs(10);
/// What a container whose end nobody saw is said to have exited with.
pub(crate) const UNKNOWN_EXIT: i32 = 255;

/// Starts a created container.
pub(crate) async fn start(ctx: &Arc<Context>, container: &Arc<Container>) -> Result<(), OpError> {
    let _turn = container.turn.take().await;
    let id = container.id().to_owned();
    let sandbox = ctx.registry.sandbox(&container.sandbox);
    let sandbox = sandbox.filter(|sandbox| sandbox.phase() == SandboxPhase::Ready).ok_or_else(|| {
        OpError::Precondition {
            why: format!("sandbox {} of container {id} is not ready", container.row.sandbox_id),
        }
    })?;
    let _under_way = container.begin_start();
    let claimed = container.change(&ctx.journal, |state| {
        let fits = state.phase() == ContainerPhase::Created && !state.removing;
        state.phase = ContainerPhase::Starting as i32;
        fits
    })?;
    if !claimed {
        let phase = container.phase();
        return Err(OpError::Precondition {
            why: format!("container {id} is in {phase:?} state, not Created"),
        });
    }
    match launch::launch(ctx, container).await {
        Ok((pid, at)) => {
            sandbox.note(Note::ProcessStarted { pid });
            let early = began(ctx, container, pid, at);
            ctx.events.emit(&ctx.registry, &sandbox, &id, Happened::ContainerStartedEvent);
            if let Some(exit) = early {
                exits::ended(ctx, container, &exit);
            }
            if let Err(error) = ctx.plugins.post_start_container(container).await {
                tracing::warn!(container = %id, error, "plugin failed after the container's start");
            }
            Ok(())
        }
        Err(error) => {
            not_started(ctx, container, &error).await;
            ctx.events.emit(&ctx.registry, &sandbox, &id, Happened::ContainerStoppedEvent);
            Err(error)
        }
    }
}

/// What the supervisor is to make.
pub(crate) fn create_request(ctx: &Context, container: &Container) -> Result<CreateRequest, OpError> {
    let row = &container.row;
    let spec = container.spec();
    let readonly = spec.root().as_ref().and_then(oci_spec::runtime::Root::readonly).unwrap_or(false);
    Ok(CreateRequest {
        id: row.id.clone(),
        spec: (*spec).clone(),
        rootfs: Rootfs::Overlay {
            lower: row.lower.iter().map(PathBuf::from).collect(),
            upper: PathBuf::from(&row.upper),
            work: PathBuf::from(&row.work),
            readonly,
            newest: Handing::default(),
        },
        log_path: log_path(container),
        tty: container.config.tty,
        stdin: container.config.stdin,
        stdin_once: container.config.stdin_once,
        oom_watch: true,
        bundle: oci_runtimes::bundle_of_hooks(ctx, container)?,
    })
}

/// The file of the container's output, if it has one.
pub(crate) fn log_path(container: &Container) -> Option<PathBuf> {
    (!container.row.log_path.is_empty()).then(|| PathBuf::from(&container.row.log_path))
}

/// The process runs; gives the exit that was reported before we got here, if it was that quick.
fn began(ctx: &Context, container: &Container, pid: i32, at: i64) -> Option<Exit> {
    let mut early = None;
    container.settle(&ctx.journal, |state| {
        early = ctx.supervision.take_early(container.id());
        state.phase = ContainerPhase::Running as i32;
        state.pid = pid;
        state.started_at = at;
        true
    });
    early
}

/// The process never ran: exited, with the reason the kubelet shows.
async fn not_started(ctx: &Arc<Context>, container: &Arc<Container>, error: &OpError) {
    let text = chain(error);
    let now = host::now();
    container.settle(&ctx.journal, |state| {
        ctx.supervision.take_early(container.id());
        state.phase = ContainerPhase::Exited as i32;
        state.exit_code = START_FAILED;
        "StartError".clone_into(&mut state.reason);
        state.message.clone_from(&text);
        state.started_at = now;
        state.finished_at = now;
        true
    });
    let taken = container.clone();
    let deleted = ctx.blocking(move |ctx| launch::take_back(ctx, &taken)).await;
    if let Err(error) = deleted {
        tracing::warn!(container = %container.id(), error = chain(&error), "failed container not deleted yet");
    }
}

/// A start of which nobody will ever know more: it counts as ended, and its removal ends whatever there is of it.
pub(crate) fn lost(ctx: &Context, container: &Container) {
    let now = host::now();
    let changed = container.settle(&ctx.journal, |state| {
        if !container.is_being_started() && state.phase() == ContainerPhase::Starting {
            state.phase = ContainerPhase::Exited as i32;
            state.exit_code = UNKNOWN_EXIT;
            "StartError".clone_into(&mut state.reason);
            "the runtime ended during the start and what became of it is not known"
                .clone_into(&mut state.message);
            state.started_at = now;
            state.finished_at = now;
            return true;
        }
        false
    });
    if changed {
        tracing::warn!(container = %container.id(), "interrupted start counts as ended");
    }
}

/// Plugins, then whatever processes and cgroups are left.
pub(crate) async fn clean(ctx: &Arc<Context>, container: &Arc<Container>) {
    tell_stopped(ctx, container).await;
    let id = container.id().to_owned();
    let deleted = ctx
        .blocking(move |ctx| ctx.supervision.supervisor().delete(&id).map_err(OpError::failed("delete")))
        .await;
    if let Err(error) = deleted {
        tracing::warn!(
            container = %container.id(),
            error = chain(&error),
            "ended container not deleted; removal will"
        );
    }
}

/// Tells the plugins once that the container ended.
async fn tell_stopped(ctx: &Arc<Context>, container: &Arc<Container>) {
    if container.stop_told.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Err(error) = ctx.plugins.stop_container(container).await {
        tracing::warn!(container = %container.id(), error, "plugin failed at the container's stop");
    }
}

/// Stops a container: its signal, `seconds` of grace, then SIGKILL. Returns once it has ended.
///
/// Cancel safe.
pub(crate) async fn stop(
    ctx: &Arc<Context>,
    container: &Arc<Container>,
    seconds: i64,
) -> Result<(), OpError> {
    let mut watch = container.watch();
    if container.is_orphaned() {
        lost(ctx, container);
    }
    let settled = watch.wait_for(|state| state.phase() != ContainerPhase::Starting);
    if tokio::time::timeout(STARTING, settled).await.is_err() {
        let seconds = i64::try_from(STARTING.as_secs()).unwrap_or(i64::MAX);
        return Err(OpError::Timeout { what: "the start of the container that is to be stopped", seconds });
    }
    if container.phase() != ContainerPhase::Running {
        return Ok(());
    }
    let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let ended =
        |state: &crate::recovery::records::ContainerStateRow| state.phase() != ContainerPhase::Running;
    if !grace.is_zero() {
        send(ctx, container, container.row.stop_signal).await?;
        if tokio::time::timeout(grace, watch.wait_for(ended)).await.is_ok() {
            return Ok(());
        }
    }
    send(ctx, container, signal::SIGKILL).await?;
    if tokio::time::timeout(DEATH, watch.wait_for(ended)).await.is_ok() {
        return Ok(());
    }
    // Its end was missed, or it waits in the kernel: everything in its cgroup is killed and it is forgotten, or the
    // caller is told why that cannot be and comes back.
    let id = container.id().to_owned();
    ctx.blocking(move |ctx| {
        ctx.supervision.supervisor().delete(&id).map_err(OpError::failed("end a container that does not die"))
    })
    .await?;
    exits::ended(ctx, container, &Exit { code: UNKNOWN_EXIT, oom: false, at: host::now() });
    Ok(())
}

/// Signals the container's process; one the supervisor does not know any more has ended unseen.
async fn send(ctx: &Arc<Context>, container: &Arc<Container>, signal: i32) -> Result<(), OpError> {
    let taken = container.clone();
    let unknown = ctx
        .blocking(move |ctx| match ctx.supervision.supervisor().signal(taken.id(), signal, false) {
            Ok(()) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            // It may have ended between our look and the signal; its exit event says so, or is on its way.
            Err(error) if error.is_wrong_state() || taken.phase() != ContainerPhase::Running => Ok(false),
            Err(error) => Err(OpError::failed(format!("signal container {}", taken.id()))(error)),
        })
        .await?;
    if unknown {
        exits::ended(ctx, container, &Exit { code: UNKNOWN_EXIT, oom: false, at: host::now() });
    }
    Ok(())
}

/// Removes a container; a running one is killed first.
pub(crate) async fn remove_once(ctx: &Arc<Context>, container: &Arc<Container>) -> Result<(), OpError> {
    container.settle(&ctx.journal, |state| !std::mem::replace(&mut state.removing, true));
    stop(ctx, container, 0).await?;
    let _turn = container.turn.take().await;
    if ctx.registry.container(container.id()).is_none() {
        return Ok(());
    }
    // A start that was under way when removal began.
    stop(ctx, container, 0).await?;
    if container.phase() == ContainerPhase::Exited {
        tell_stopped(ctx, container).await;
    }
    if let Err(error) = ctx.plugins.remove_container(container).await {
        tracing::warn!(container = %container.id(), error, "plugin failed at the container's removal");
    }
    let taken = container.clone();
    ctx.blocking(move |ctx| release(ctx, &taken)).await?;
    if let Some(sandbox) = ctx.registry.sandbox(&container.sandbox) {
        ctx.events.emit(&ctx.registry, &sandbox, container.id(), Happened::ContainerDeletedEvent);
    }
    ctx.journal.forget(Kind::ContainerGone(container.id().to_string()));
    ctx.registry.drop_container(container.id());
    Ok(())
}

/// Processes, snapshots and files of a container. Blocks.
pub(crate) fn release(ctx: &Context, container: &Container) -> Result<(), OpError> {
    let id = container.id();
    if container.phase() != ContainerPhase::Created {
        ctx.supervision.supervisor().delete(id).map_err(OpError::failed("delete container task"))?;
    }
    let folder = ctx.container_dir(id);
    if folder.exists() {
        oci_runtimes::release(ctx, container)?;
        podwire_linux::mount::detach_all_under(&folder)
            .map_err(OpError::failed("unmount below the container"))?;
    }
    ctx.images.discard(id).map_err(OpError::failed("discard the container's snapshot"))?;
    for volume in &container.row.image_volumes {
        ctx.images.discard(volume).map_err(OpError::failed("discard an image volume"))?;
    }
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(OpError::failed("remove the container's files")(error))
        }
        _ => Ok(()),
    }
}

/// Changes a container's limits.
pub(crate) async fn update(
    ctx: &Arc<Context>,
    container: &Arc<Container>,
    requested: &cri::LinuxContainerResources,
) -> Result<(), OpError> {
    let _turn = container.turn.take().await;
    let state = container.state();
    if state.phase() == ContainerPhase::Exited || state.removing {
        return Err(OpError::Precondition { why: format!("container {} is not running", container.id()) });
    }
    let merged = resources::merge(&state.resources.clone().unwrap_or_default(), requested);
    let mut limits = resources::plan(requested, ctx.host.cgroup_v2);
    let updated = ctx.plugins.update_container(container, &mut limits).await;
    updated.map_err(OpError::failed("update the container's plugins"))?;
    if state.phase() == ContainerPhase::Running {
        let (cgroup, limits) = (container.cgroup(), limits.clone());
        ctx.blocking(move |_| apply(&cgroup, &limits)).await?;
    }
    // What plugins made of it, and what they had asked for before, is the container's too.
    let mut spec = (*container.spec()).clone();
    if let Some(linux) = spec.linux_mut() {
        let mut all = linux.resources().clone().unwrap_or_default();
        let changed = podwire_nri::spec::resources_from_oci(&limits);
        podwire_nri::spec::apply_resources(&changed, &mut all)
            .map_err(OpError::failed("note the container's limits"))?;
        linux.set_resources(Some(all));
    }
    container.set_spec(spec);
    container.change(&ctx.journal, |state| {
        state.resources = Some(merged);
        true
    })?;
    if let Err(error) = ctx.plugins.post_update_container(container).await {
        tracing::warn!(container = %container.id(), error, "plugin failed after the container's update");
    }
    Ok(())
}

/// Writes limits to a container's cgroup. Blocks.
pub(crate) fn apply(cgroup: &str, limits: &LinuxResources) -> Result<(), OpError> {
    let limits = podwire_container::resources::from_oci(limits);
    podwire_linux::cgroup::group(cgroup)
        .and_then(|group| group.apply(&limits))
        .map_err(OpError::failed("apply the container's limits"))
}
