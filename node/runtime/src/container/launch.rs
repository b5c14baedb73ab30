//! From a created container to its running process, even when supervisors die under way.
//!
//! A supervisor's death says nothing about how far it got: its successor knows what had begun, and everything else is
//! taken back and begun again.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use podwire_container::{ContainerState, ContainerStatus, Error as TaskError, Supervisor};
use podwire_linux::{cgroup, mount};

use crate::{
    container::{self, oci_runtimes},
    context::Context,
    error::{OpError, chain},
    host,
    model::Container,
    net_devices,
    supervision::Exit,
};

/// Supervisors that may die under one start.
const DEATHS: usize = 5;
/// How long what a dead supervisor left in a container's cgroup may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a container did not start.
enum StartError {
    /// The supervisor died; its successor may do better.
    SupervisorDied(OpError),
    Failed(OpError),
}

impl From<OpError> for StartError {
    fn from(error: OpError) -> StartError {
        StartError::Failed(error)
    }
}

fn start_error(attempt: &'static str) -> impl FnOnce(TaskError) -> StartError {
    move |error| {
        let kind = if error.is_gone() { StartError::SupervisorDied } else { StartError::Failed };
        kind(OpError::failed(attempt)(error))
    }
}

/// Sets the container up, asks the plugins, lets it go; gives its process and when it began.
pub(crate) async fn launch(ctx: &Arc<Context>, container: &Arc<Container>) -> Result<(i32, i64), OpError> {
    let mut told = false;
    let mut deaths = 0;
    loop {
        let error = match once(ctx, container, &mut told).await {
            Ok(begun) => return Ok(begun),
            Err(StartError::Failed(error)) => return Err(error),
            Err(StartError::SupervisorDied(error)) => error,
        };
        deaths += 1;
        if deaths > DEATHS {
            return Err(error);
        }
        tracing::warn!(
            container = %container.id(),
            error = chain(&error),
            "supervisor died under a start; its successor is asked"
        );
        ctx.supervision.successor().await?;
        let taken = container.clone();
        if let Some(begun) = ctx.blocking(move |ctx| begun_or_taken_back(ctx, &taken)).await? {
            return Ok(begun);
        }
    }
}

/// One try, all of it with one supervisor.
async fn once(
    ctx: &Arc<Context>,
    container: &Arc<Container>,
    told: &mut bool,
) -> Result<(i32, i64), StartError> {
    let supervisor = ctx.supervision.supervisor();
    let (taken, asked) = (container.clone(), supervisor.clone());
    let pid = ctx.blocking(move |ctx| Ok(make(ctx, &taken, &asked))).await??;
    if !std::mem::replace(told, true) {
        let started = ctx.plugins.start_container(container, pid).await;
        started.map_err(OpError::failed("start the container's plugins"))?;
    }
    let id = container.id().to_owned();
    let started = ctx.blocking(move |_| Ok(supervisor.start(&id))).await?;
    let at = started.map_err(start_error("start container task"))?.at;
    Ok((pid, i64::try_from(at).unwrap_or_else(|_| host::now())))
}

/// Everything up to the point where only execve is missing. Blocks.
fn make(ctx: &Context, container: &Container, supervisor: &Supervisor) -> Result<i32, StartError> {
    if let Some(folder) = container::log_path(container).as_ref().and_then(|path| path.parent()) {
        fs::create_dir_all(folder).map_err(OpError::failed("make the log folder"))?;
    }
    let made = match ctx.oci_runtime_for_start(container)? {
        Some(oci_runtime) => supervisor.create_by_oci_runtime(oci_runtime.request(ctx, container)?),
        None => {
            net_devices::take(ctx, container)?;
            supervisor.create(container::create_request(ctx, container)?)
        }
    };
    let made = made.map_err(start_error("create container task"))?;
    Ok(i32::try_from(made.pid).map_err(OpError::failed("read the process id"))?)
}

/// The process, if the supervisor that died had got as far as that; else nothing of it is left. Blocks.
fn begun_or_taken_back(ctx: &Context, container: &Container) -> Result<Option<(i32, i64)>, OpError> {
    let found = ctx.supervision.supervisor().find(container.id());
    let found = found.map_err(OpError::failed("ask the supervisor for the container"))?;
    let Some(ContainerState { pid, status, started_at: Some(at), .. }) = found else {
        take_back(ctx, container)?;
        return Ok(None);
    };
    if let ContainerStatus::Exited { code, oom, finished_at, .. } = status {
        let at = i64::try_from(finished_at).unwrap_or(i64::MAX);
        ctx.supervision.exited_early(container.id(), Exit { code, oom, at });
    }
    let pid = i32::try_from(pid).map_err(OpError::failed("read the process id"))?;
    Ok(Some((pid, i64::try_from(at).unwrap_or_else(|_| host::now()))))
}

/// Makes a start undone, whoever of the supervisors got how far with it. Blocks.
pub(crate) fn take_back(ctx: &Context, container: &Container) -> Result<(), OpError> {
    ctx.supervision.supervisor().delete(container.id()).map_err(OpError::failed("delete container task"))?;
    // A child that a dead supervisor had just made is in nobody's journal.
    let path = container.cgroup();
    if !path.is_empty() {
        cgroup::group(&path)
            .and_then(|group| group.remove(PATIENCE))
            .map_err(OpError::failed("remove the container's cgroup"))?;
    }
    if ctx.oci_runtime(container).is_some() {
        oci_runtimes::release(ctx, container)?;
        mount::detach_all_under(&ctx.container_dir(container.id()).join("bundle"))
            .map_err(OpError::failed("unmount the root file system"))?;
    }
    // A volatile overlay marks its work folder, and the kernel refuses to mount a marked one again.
    match fs::remove_dir_all(Path::new(&container.row.work).join("work")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(OpError::failed("empty the work folder")(error))
        }
        _ => Ok(()),
    }
}
