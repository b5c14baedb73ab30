//! After a start: what the journal says against what lives, and the end of everything nobody accounts for.
//!
//! Order: containers are adopted or ended, half made sandboxes are taken down, then sandboxes, snapshots, folders and
//! mounts that no row names are removed and reported. After another boot no process lives: every row is swept.

pub(crate) mod journal;
pub(crate) mod records;

use std::{collections::HashSet, sync::Arc};

use podwire_container::ContainerStatus;
use tokio_util::sync::CancellationToken;

use self::{
    journal::Contents,
    records::{ContainerPhase, SandboxPhase},
};
use crate::{
    container::{self, creation, launch},
    context::Context,
    error::{OpError, chain},
    host,
    model::{Container, Sandbox},
    sandbox::{self, network},
    supervision::Exit,
};

/// Supervisors that may die during one adoption.
const DEATHS: usize = 5;

/// Brings the tables back from the journal. Blocks; nothing is changed yet.
pub(crate) fn load(ctx: &Context, contents: &Contents) {
    for (row, state) in contents.sandboxes.values() {
        ctx.registry.add_sandbox(Arc::new(Sandbox::new(row, state.clone(), ctx.sandbox_dir(&row.id))));
    }
    for (row, state) in contents.containers.values() {
        let mut spec: oci_spec::runtime::Spec = match serde_json::from_str(&row.spec) {
            Ok(spec) => spec,
            Err(error) => {
                tracing::warn!(container = %row.id, %error, "journalled spec not understood; the container cannot start");
                oci_spec::runtime::Spec::default()
            }
        };
        if row.default_seccomp {
            creation::add_default_seccomp(&mut spec);
        }
        ctx.registry.add_container(Arc::new(Container::new(row.clone(), state.clone(), spec)));
    }
}

/// Makes node and tables agree. Returns when everything stale is gone or reported.
pub(crate) async fn reconcile(ctx: &Arc<Context>, stale: bool, shutdown: &CancellationToken) {
    adopt_surely(ctx).await;
    finish_removals(ctx).await;
    for known in ctx.registry.sandboxes() {
        let gone = stale || !pinned(&known);
        match known.phase() {
            SandboxPhase::Creating if known.state().plugins_told => {
                mark_not_ready(ctx, &known);
                ctx.tasks.spawn(drop_told(ctx.clone(), known, shutdown.clone()));
            }
            SandboxPhase::Creating => drop_half_made(ctx, &known).await,
            SandboxPhase::Ready if gone => lose(ctx, &known).await,
            _ => {}
        }
    }
    if let Err(error) = ctx.blocking(sweep).await {
        tracing::warn!(error = chain(&error), "leftovers not swept");
    }
}

/// Adopts, from as many supervisors as it takes within bounds; afterwards no start of the last run is left open.
async fn adopt_surely(ctx: &Arc<Context>) {
    for _ in 0..=DEATHS {
        let Err(error) = adopt(ctx).await else { break };
        tracing::warn!(error = chain(&error), "containers not adopted; the supervisor's successor is asked");
        if ctx.supervision.successor().await.is_err() {
            break;
        }
    }
    for known in ctx.registry.containers() {
        container::lost(ctx, &known);
    }
}

/// Whether the namespaces of a ready sandbox are still there.
fn pinned(sandbox: &Sandbox) -> bool {
    sandbox.netns().is_none_or(|path| podwire_linux::netns::Netns::open(&path).is_ok())
}

/// A sandbox the last run did not finish and plugins were told of: they hear of its end, once they are back. Meanwhile, and
/// at a shutdown, it is listed as not ready and can be removed.
async fn drop_told(ctx: Arc<Context>, sandbox: Arc<Sandbox>, shutdown: CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return,
        () = ctx.plugins.wait_for_listeners() => {}
    }
    let _turn = sandbox.turn.take().await;
    if ctx.registry.sandbox(&sandbox.id).is_some() {
        drop_half_made(&ctx, &sandbox).await;
    }
}

/// A sandbox the last run did not finish: nobody knows its id, so it goes.
async fn drop_half_made(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) {
    let done = match sandbox::tear_down(ctx, sandbox).await {
        Ok(()) => {
            sandbox::tell_removed(ctx, sandbox).await;
            sandbox::forget(ctx, sandbox).await
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => tracing::info!(sandbox = %sandbox.id, "half made sandbox removed"),
        Err(error) => {
            tracing::warn!(sandbox = %sandbox.id, error = chain(&error), "half made sandbox not removed; it stays listed");
            mark_not_ready(ctx, sandbox);
        }
    }
}

/// A sandbox whose namespaces died with the boot: the kubelet sees it as not ready and removes it.
async fn lose(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) {
    tracing::info!(sandbox = %sandbox.id, "sandbox lost its namespaces");
    mark_not_ready(ctx, sandbox);
    if let Err(error) = sandbox::tear_down(ctx, sandbox).await {
        tracing::warn!(sandbox = %sandbox.id, error = chain(&error), "lost sandbox not torn down yet; its stop will");
    }
}

fn mark_not_ready(ctx: &Context, sandbox: &Sandbox) {
    sandbox.settle(&ctx.journal, |state| state.phase = SandboxPhase::NotReady as i32);
}

/// Learns from the supervisor what became of every container; ends what it has and the journal does not.
///
/// Operations go on meanwhile: only what was there before the supervisor was asked must be on its list. Starts under way
/// are left to their callers, who hear for themselves that a supervisor is gone. Starts of a daemon that is gone ended with
/// it: the supervisor throws away what a closed connection still held, so a container it does not have was never begun.
pub(crate) async fn adopt(ctx: &Arc<Context>) -> Result<(), OpError> {
    let expected = |known: &Arc<Container>| match known.phase() {
        ContainerPhase::Running => true,
        ContainerPhase::Starting => known.is_orphaned(),
        ContainerPhase::Created | ContainerPhase::Exited => false,
    };
    let containers: Vec<_> = ctx.registry.containers().into_iter().filter(expected).collect();
    let mut reaped = ctx.registry.sandboxes();
    reaped.retain(|known| known.state().reaper_pid != 0);
    let listed = ctx
        .blocking(|ctx| {
            ctx.supervision.supervisor().list().map_err(OpError::failed("list the supervisor's containers"))
        })
        .await?;
    let mut seen = HashSet::new();
    for found in listed {
        seen.insert(found.id.clone());
        if let Some(known) = ctx.registry.container(&found.id) {
            take_over(ctx, &known, &found).await?;
        } else if ctx.registry.sandbox(&found.id).is_none() {
            tracing::warn!(container = %found.id, "container of no journal row ended");
            delete(ctx, found.id).await;
        }
    }
    for known in containers.iter().filter(|known| !seen.contains(known.id().as_str())) {
        match known.phase() {
            ContainerPhase::Starting => never_begun(ctx, known).await?,
            ContainerPhase::Running => {
                tracing::warn!(container = %known.id(), "container ended unseen");
                let exit = Exit { code: container::UNKNOWN_EXIT, oom: false, at: host::now() };
                container::exits::ended(ctx, known, &exit);
            }
            ContainerPhase::Created | ContainerPhase::Exited => {}
        }
    }
    for known in reaped.iter().filter(|known| !seen.contains(known.id.as_str())) {
        known.settle(&ctx.journal, |state| state.reaper_pid = 0);
    }
    Ok(())
}

async fn delete(ctx: &Arc<Context>, id: String) {
    let done = ctx
        .blocking(move |ctx| ctx.supervision.supervisor().delete(&id).map_err(OpError::failed("delete")))
        .await;
    if let Err(error) = done {
        tracing::warn!(error = chain(&error), "unknown container not deleted");
    }
}

/// One container the supervisor still has. An error says that the supervisor died meanwhile.
async fn take_over(
    ctx: &Arc<Context>,
    known: &Arc<Container>,
    found: &podwire_container::ContainerState,
) -> Result<(), OpError> {
    match (known.phase(), &found.status) {
        // Whoever starts it looks for itself, and goes on or begins again.
        _ if known.is_being_started() => {}
        // Nobody will say start any more.
        (ContainerPhase::Starting | ContainerPhase::Created, ContainerStatus::Created) => {
            never_begun(ctx, known).await?;
        }
        (ContainerPhase::Starting, ContainerStatus::Running) => {
            set_running(ctx, known, found.pid, found.started_at)
        }
        (
            ContainerPhase::Starting | ContainerPhase::Running,
            ContainerStatus::Exited { code, oom, finished_at, .. },
        ) => {
            set_running(ctx, known, found.pid, found.started_at);
            let at = i64::try_from(*finished_at).unwrap_or(i64::MAX);
            container::exits::ended(ctx, known, &Exit { code: *code, oom: *oom, at });
        }
        (ContainerPhase::Exited, _) => container::clean(ctx, known).await,
        (ContainerPhase::Created | ContainerPhase::Running, _) => {}
    }
    Ok(())
}

/// A start that did not get far: as if it had never been tried. If that cannot be, and the supervisor is not to blame, the
/// container counts as ended.
async fn never_begun(ctx: &Arc<Context>, known: &Arc<Container>) -> Result<(), OpError> {
    let _turn = known.turn.take().await;
    if !matches!(known.phase(), ContainerPhase::Starting | ContainerPhase::Created) {
        return Ok(());
    }
    let container = known.clone();
    let Err(error) = ctx.blocking(move |ctx| launch::take_back(ctx, &container)).await else {
        known.settle(&ctx.journal, |state| {
            let begun = state.phase() == ContainerPhase::Starting;
            state.phase = ContainerPhase::Created as i32;
            begun
        });
        return Ok(());
    };
    if !ctx.supervision.supervisor().is_connected() {
        return Err(error);
    }
    tracing::error!(container = %known.id(), error = chain(&error), "interrupted start not taken back");
    container::lost(ctx, known);
    Ok(())
}

/// Notes that a container got as far as running.
fn set_running(ctx: &Context, known: &Container, pid: u32, started_at: Option<u64>) {
    known.settle(&ctx.journal, |state| {
        if state.phase() == ContainerPhase::Running {
            return false;
        }
        state.phase = ContainerPhase::Running as i32;
        state.pid = i32::try_from(pid).unwrap_or_default();
        state.started_at = started_at.and_then(|at| i64::try_from(at).ok()).unwrap_or_else(host::now);
        true
    });
}

/// Removals the last run began are finished; containers of sandboxes nobody knows go too.
async fn finish_removals(ctx: &Arc<Context>) {
    for known in ctx.registry.containers() {
        let orphan = ctx.registry.sandbox(&known.row.sandbox_id).is_none();
        if !known.state().removing && !orphan {
            continue;
        }
        if let Err(error) = container::remove_once(ctx, &known).await {
            tracing::warn!(
                container = %known.id(),
                error = chain(&error),
                "removal not finished; it will be asked again"
            );
        }
    }
}

/// Everything no row names: snapshots, folders with their pins and mounts, addresses. Blocks.
fn sweep(ctx: &Context) -> Result<(), OpError> {
    for id in ctx.images.snapshots() {
        if ctx.registry.container(creation::holder_of(&id)).is_none() {
            tracing::warn!(snapshot = %id, "snapshot of no container discarded");
            ctx.images.discard(&id).map_err(OpError::failed("discard a snapshot"))?;
        }
    }
    sweep_containers(ctx)?;
    let folder = ctx.settings.run_dir.join("sandboxes");
    for entry in std::fs::read_dir(&folder).map_err(OpError::failed("list the sandbox folder"))? {
        let entry = entry.map_err(OpError::failed("list the sandbox folder"))?;
        let id = entry.file_name().to_string_lossy().into_owned();
        if ctx.registry.sandbox(&id).is_none() {
            tracing::warn!(sandbox = %id, "folder of no sandbox removed");
            crate::sandbox::pod_files::remove(&entry.path())
                .map_err(OpError::failed("remove a sandbox folder"))?;
        }
    }
    let keep: Vec<_> = ctx
        .registry
        .sandboxes()
        .iter()
        .filter(|known| !known.state().detached)
        .filter_map(|known| network::attachment(known, &ctx.cgroup_parent(&known.config)))
        .collect();
    ctx.networks.gc(&keep).map_err(OpError::failed("collect garbage in the pod networks"))?;
    let pending =
        ctx.networks.retry_pending().map_err(OpError::failed("finish half done network changes"))?;
    if !pending.is_empty() {
        tracing::warn!(count = pending.len(), "network changes of pods that are gone could not be finished");
    }
    Ok(())
}

/// Folders of containers that no row names, with what is mounted there. Blocks.
fn sweep_containers(ctx: &Context) -> Result<(), OpError> {
    let folder = ctx.container_dir("");
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        if ctx.registry.container(&id).is_none() {
            tracing::warn!(container = %id, "folder of no container removed");
            crate::container::image_volume::undo(ctx, &id, &[])?;
        }
    }
    Ok(())
}
