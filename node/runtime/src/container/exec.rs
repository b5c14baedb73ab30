//! Processes beside a container's main one: ExecSync with captured output, and sessions for the streaming server.

use std::{sync::Arc, time::Duration};

use podwire_container::{AttachRequest, ExecRequest, WindowSize};
use podwire_wire::cri;
use tokio::sync::{mpsc, oneshot};

use crate::{
    container::{oci_runtimes, signal},
    context::Context,
    error::{OpError, chain},
    host,
    model::Container,
    recovery::records::ContainerPhase,
    stream::{
        backend::{BackendError, Session, Streams, TerminalSize},
        fdio::{self, FdReader, FdWriter},
    },
};

/// Output beyond this is dropped, per stream, without an error.
const OUTPUT_LIMIT: usize = 16 << 20;
/// How long a killed command may take to be gone before its caller is told.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// Resizes a session may have waiting.
const RESIZES: usize = 8;

/// Forgets, and if asked kills, an exec whose caller left.
struct Pending {
    ctx: Arc<Context>,
    container: String,
    exec_id: String,
    armed: bool,
}

impl Pending {
    /// The command ended by itself.
    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.ctx.supervision.forget_exec(&self.exec_id);
        if self.armed {
            let (ctx, container, exec_id) = (self.ctx.clone(), self.container.clone(), self.exec_id.clone());
            self.ctx.tasks.spawn_blocking(move || {
                if let Err(error) =
                    ctx.supervision.supervisor().signal_exec(&container, &exec_id, signal::SIGKILL)
                {
                    tracing::debug!(
                        container,
                        exec_id,
                        error = &error as &dyn std::error::Error,
                        "exec not killed"
                    );
                }
            });
        }
    }
}

/// A started exec: its ends, and its exit to be waited for.
struct Started {
    handle: podwire_container::ExecHandle,
    exit: oneshot::Receiver<i32>,
    pending: Pending,
}

async fn launch(
    ctx: &Arc<Context>,
    container: &Container,
    argv: Vec<String>,
    tty: bool,
    stdin: bool,
) -> Result<Started, OpError> {
    if container.phase() != ContainerPhase::Running {
        return Err(OpError::Precondition { why: format!("container {} is not running", container.id()) });
    }
    ctx.supervision.successor().await?;
    // Chosen before the waiter is there: waiters are forgotten when a supervisor is, and its successor knows none.
    let supervisor = ctx.supervision.supervisor();
    let exec_id = host::fresh_id();
    let exit = ctx.supervision.expect_exec(&exec_id);
    let mut pending = Pending {
        ctx: ctx.clone(),
        container: container.id().to_string(),
        exec_id: exec_id.clone(),
        armed: false,
    };
    let request = ExecRequest {
        container: container.id().to_string(),
        exec_id,
        argv: argv.clone(),
        env: tty.then(|| with_term(container)),
        cwd: None,
        user: None,
        caps: None,
        tty: tty.then_some(WindowSize { width: 80, height: 24 }),
        stdin,
        process: ctx
            .oci_runtime(container)
            .map(|_| oci_runtimes::process(container, argv, tty))
            .transpose()?,
    };
    let attempt = format!("exec in container {}", container.id());
    let handle = ctx.blocking(move |_| supervisor.exec(request).map_err(OpError::failed(attempt))).await?;
    pending.armed = true;
    Ok(Started { handle, exit, pending })
}

/// The container's environment with a terminal's name in it.
fn with_term(container: &Container) -> Vec<String> {
    let spec = container.spec();
    let mut env = spec.process().as_ref().and_then(|process| process.env().clone()).unwrap_or_default();
    if !env.iter().any(|pair| pair.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    env
}

/// Runs a command and gives its output and exit code.
///
/// Cancel safe: a dropped call kills the command.
pub(crate) async fn sync(
    ctx: &Arc<Context>,
    request: cri::ExecSyncRequest,
) -> Result<cri::ExecSyncResponse, OpError> {
    let id = request.container_id;
    let container = ctx.registry.container(&id).ok_or(OpError::NotFound { what: "container", id })?;
    if request.cmd.is_empty() {
        return Err(OpError::invalid("a command is required"));
    }
    let mut started = launch(ctx, &container, request.cmd, false, false).await?;
    let stdout = reader(started.handle.stdout.take())?;
    let stderr = reader(started.handle.stderr.take())?;
    let (ended, end) = tokio::sync::watch::channel(false);
    let exit = async {
        let code = (&mut started.exit).await;
        // Ignored: both readers may have seen the end of their stream already.
        ended.send(true).ok();
        code
    };
    let work = async {
        tokio::join!(
            exit,
            fdio::capture(stdout, OUTPUT_LIMIT, end.clone()),
            fdio::capture(stderr, OUTPUT_LIMIT, end)
        )
    };
    let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0);
    let done = match limit {
        Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds), work).await,
        None => Ok(work.await),
    };
    let Ok((code, stdout, stderr)) = done else {
        started.kill().await;
        return Err(OpError::Timeout { what: "the command", seconds: request.timeout });
    };
    started.pending.disarm();
    let exit_code = code.map_err(|_| OpError::Unavailable { what: "the exit code of the command" })?;
    Ok(cri::ExecSyncResponse { stdout, stderr, exit_code })
}

impl Started {
    /// Kills the command and waits until it is gone.
    async fn kill(mut self) {
        let (container, exec_id) = (self.pending.container.clone(), self.pending.exec_id.clone());
        let killed = self.pending.ctx.blocking(move |ctx| {
            ctx.supervision
                .supervisor()
                .signal_exec(&container, &exec_id, signal::SIGKILL)
                .map_err(OpError::failed("kill"))
        });
        if let Err(error) = killed.await {
            tracing::debug!(error = chain(&error), "command not killed");
        }
        if tokio::time::timeout(KILL_PATIENCE, &mut self.exit).await.is_ok() {
            self.pending.disarm();
        }
    }
}

fn reader(fd: Option<std::os::fd::OwnedFd>) -> Result<Option<FdReader>, OpError> {
    fd.map(FdReader::new).transpose().map_err(OpError::failed("read the command's output"))
}

/// An interactive exec.
pub(crate) async fn session(
    ctx: &Arc<Context>,
    id: &str,
    argv: &[String],
    streams: Streams,
) -> Result<Session, BackendError> {
    let container = running(ctx, id)?;
    let started = launch(ctx, &container, argv.to_vec(), streams.tty, streams.stdin)
        .await
        .map_err(|error| BackendError::Start { message: chain(&error) })?;
    let Started { handle, exit, mut pending } = started;
    let io = |source| BackendError::Io { source };
    let stdin = handle.stdin.filter(|_| streams.stdin).map(FdWriter::new).transpose().map_err(io)?;
    let stdout =
        handle.stdout.filter(|_| streams.stdout || streams.tty).map(FdReader::new).transpose().map_err(io)?;
    let stderr = handle
        .stderr
        .filter(|_| streams.stderr && !streams.tty)
        .map(FdReader::new)
        .transpose()
        .map_err(io)?;
    let resize = resizes(ctx, &container, Some(pending.exec_id.clone()));
    let exit = Box::pin(async move {
        let code = exit.await.map_err(|_| BackendError::NotRunning { id: pending.container.clone() });
        pending.disarm();
        code
    });
    Ok(Session { stdin: boxed_write(stdin), stdout: boxed(stdout), stderr: boxed(stderr), resize, exit })
}

/// A session on the container's main process.
pub(crate) async fn attach(ctx: &Arc<Context>, id: &str, streams: Streams) -> Result<Session, BackendError> {
    let container = running(ctx, id)?;
    let requested = AttachRequest {
        stdin: streams.stdin && container.config.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr && !container.config.tty,
    };
    let taken = container.clone();
    let handle = ctx
        .blocking(move |ctx| {
            ctx.supervision.supervisor().attach(taken.id(), requested).map_err(OpError::failed("attach"))
        })
        .await
        .map_err(|error| BackendError::Start { message: chain(&error) })?;
    let io = |source| BackendError::Io { source };
    let mut stdin = handle.stdin.map(FdWriter::new).transpose().map_err(io)?;
    if let Some(stdin) = stdin.as_mut().filter(|_| container.config.stdin_once) {
        let (ctx, container) = (ctx.clone(), container.clone());
        stdin.when_closed(move || close_stdin(&ctx, &container));
    }
    let stdout = handle.stdout.map(FdReader::new).transpose().map_err(io)?;
    let stderr = handle.stderr.map(FdReader::new).transpose().map_err(io)?;
    let resize = resizes(ctx, &container, None);
    let mut watch = container.watch();
    let exit = Box::pin(async move {
        let ended = watch.wait_for(|state| state.phase() != ContainerPhase::Running).await;
        ended
            .map(|state| state.exit_code)
            .map_err(|_| BackendError::NotRunning { id: container.id().to_string() })
    });
    Ok(Session { stdin: boxed_write(stdin), stdout: boxed(stdout), stderr: boxed(stderr), resize, exit })
}

/// The only session that may write is over: the container reads the end of its input.
fn close_stdin(ctx: &Arc<Context>, container: &Arc<Container>) {
    let (taken, container) = (ctx.clone(), container.clone());
    ctx.tasks.spawn_blocking(move || {
        if let Err(error) = taken.supervision.supervisor().close_stdin(container.id()) {
            tracing::debug!(
                container = %container.id(),
                error = &error as &dyn std::error::Error,
                "stdin not closed"
            );
        }
    });
}

fn running(ctx: &Context, id: &str) -> Result<Arc<Container>, BackendError> {
    let container = ctx.registry.container(id).ok_or_else(|| BackendError::NotFound { id: id.to_owned() })?;
    if container.phase() != ContainerPhase::Running {
        return Err(BackendError::NotRunning { id: id.to_owned() });
    }
    Ok(container)
}

fn boxed(reader: Option<FdReader>) -> Option<crate::stream::backend::BoxRead> {
    reader.map(|reader| Box::new(reader) as _)
}

fn boxed_write(writer: Option<FdWriter>) -> Option<crate::stream::backend::BoxWrite> {
    writer.map(|writer| Box::new(writer) as _)
}

/// Takes new terminal sizes until the session drops its end.
fn resizes(
    ctx: &Arc<Context>,
    container: &Arc<Container>,
    exec: Option<String>,
) -> mpsc::Sender<TerminalSize> {
    let (sender, mut sizes) = mpsc::channel::<TerminalSize>(RESIZES);
    let (ctx, id) = (ctx.clone(), container.id().to_owned());
    ctx.clone().tasks.spawn(async move {
        while let Some(size) = sizes.recv().await {
            let (id, exec) = (id.clone(), exec.clone());
            let done = ctx
                .blocking(move |ctx| {
                    ctx.supervision
                        .supervisor()
                        .resize(&id, exec.as_deref(), size.width, size.height)
                        .map_err(OpError::failed("resize"))
                })
                .await;
            if let Err(error) = done {
                tracing::debug!(error = chain(&error), "terminal not resized");
            }
        }
    });
    sender
}
