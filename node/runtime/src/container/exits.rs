//! Takes the supervisor's events: exits of containers and execs, and the loss of the connection.
//!
//! The one task here never calls the supervisor itself, so its queue always drains; reconnecting is a task of its own.

use std::{sync::Arc, time::Duration};

use podwire_container::{Event, Supervisor, SupervisorConfig};
use podwire_wire::cri::ContainerEventType as Happened;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    error::chain,
    model::Container,
    recovery::{
        self,
        records::{ContainerPhase, SandboxPhase},
    },
    supervision::Exit,
};

/// Events that may wait to be handled.
const QUEUE: usize = 4096;
/// How often a daemon that starts tries to get a supervisor.
const CONNECTS: usize = 20;
/// How long after a supervisor could not be had the next is tried.
const RETRY: Duration = Duration::from_millis(50);

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The callback for the supervisor's handle, and the queue it fills.
fn queue() -> (Arc<dyn Fn(Event) + Send + Sync>, mpsc::Receiver<Event>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let callback = Arc::new(move |event| {
        // Ignored: the queue is gone only when the runtime is, and then nobody asks.
        sender.blocking_send(event).ok();
    });
    (callback, receiver)
}

/// Handles events until `shutdown`.
pub(crate) async fn run(
    ctx: Arc<Context>,
    config: SupervisorConfig,
    mut events: mpsc::Receiver<Event>,
    shutdown: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            event = events.recv() => event,
        };
        match event {
            Some(Event::Exited { id, code, oom, at, .. }) => exited(&ctx, &id, code, oom, at),
            Some(Event::ExecExited { exec_id, code, .. }) => {
                ctx.supervision.exec_exited(&exec_id, code);
            }
            Some(Event::Disconnected) | None => {
                events = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    fresh = reconnect(&ctx, &config) => fresh,
                };
            }
        }
    }
}

fn exited(ctx: &Arc<Context>, id: &str, code: i32, oom: bool, at: u64) {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    if let Some(container) = ctx.registry.container(id) {
        ended(ctx, &container, &Exit { code, oom, at });
    } else if let Some(sandbox) = ctx.registry.sandbox(id) {
        // Process 1 of a shared PID namespace took every container of the pod with it.
        sandbox.settle(&ctx.journal, |state| {
            state.reaper_pid = 0;
            if state.phase() == SandboxPhase::Ready {
                state.phase = SandboxPhase::NotReady as i32;
            }
        });
    }
}

/// Finds or starts a supervisor, several times if need be: the one that is found may be about to die.
pub(crate) async fn connect(
    config: &SupervisorConfig,
) -> Result<(Supervisor, mpsc::Receiver<Event>), Source> {
    let mut tries = 0;
    loop {
        tries += 1;
        match connect_once(config).await {
            Err(error) if tries < CONNECTS => {
                tracing::warn!(error = &*error, "no supervisor yet; tried again");
                tokio::time::sleep(RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

async fn connect_once(config: &SupervisorConfig) -> Result<(Supervisor, mpsc::Receiver<Event>), Source> {
    let (callback, receiver) = queue();
    let config = config.clone();
    let connected = tokio::task::spawn_blocking(move || Supervisor::connect_or_spawn(&config, callback));
    Ok((connected.await??, receiver))
}

/// Finds or starts a supervisor again and learns what became of the containers. Tries until it has one.
async fn reconnect(ctx: &Arc<Context>, config: &SupervisorConfig) -> mpsc::Receiver<Event> {
    tracing::warn!(socket = ?config.socket, "supervisor is gone; connecting again");
    loop {
        match connect_once(config).await {
            Ok((supervisor, receiver)) => {
                ctx.supervision.succeed(supervisor);
                let ctx = ctx.clone();
                ctx.clone().tasks.spawn(async move {
                    if let Err(error) = recovery::adopt(&ctx).await {
                        let error = chain(&error);
                        tracing::warn!(error, "containers not adopted; the next supervisor is asked");
                    }
                });
                return receiver;
            }
            // The dying one may still hold its socket or its lock for a moment.
            Err(error) => {
                tracing::warn!(
                    error = &*error,
                    "no supervisor yet; containers cannot be started until there is one"
                );
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The container's process ended: state, event, and clean-up behind it.
pub(crate) fn ended(ctx: &Arc<Context>, container: &Arc<Container>, exit: &Exit) {
    let changed = container.settle(&ctx.journal, |state| match state.phase() {
        ContainerPhase::Starting => {
            ctx.supervision.exited_early(container.id(), exit.clone());
            false
        }
        ContainerPhase::Running => {
            state.phase = ContainerPhase::Exited as i32;
            state.exit_code = exit.code;
            state.finished_at = exit.at.max(state.started_at);
            if exit.oom {
                "OOMKilled".clone_into(&mut state.reason);
            }
            true
        }
        ContainerPhase::Created | ContainerPhase::Exited => false,
    });
    if !changed {
        return;
    }
    if let Some(sandbox) = ctx.registry.sandbox(&container.sandbox) {
        ctx.events.emit(&ctx.registry, &sandbox, container.id(), Happened::ContainerStoppedEvent);
    }
    let (ctx, container) = (ctx.clone(), container.clone());
    ctx.clone().tasks.spawn(async move {
        let _turn = container.turn.take().await;
        super::clean(&ctx, &container).await;
    });
}
