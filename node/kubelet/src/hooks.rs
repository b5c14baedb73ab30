//! Lifecycle hooks: postStart holds its container back, preStop runs inside the grace period.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use podwire_wire::ids::ContainerId;

use crate::{
    node::Node,
    ops::Done,
    probes::check::{self, Answer, HttpTarget},
    runtime::CallError,
    spec,
};

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    /// The runtime did not run it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It ended badly.
    #[error("command '{command}' exited with {code}: {output}")]
    Exit { command: String, code: i32, output: String },
    /// The request cannot be made.
    #[error(transparent)]
    Target(#[from] check::BadPort),
    /// The request was not answered as it should.
    #[error("{0}")]
    Http(String),
}

/// Longest a hook without a limit of its own may take.
const HOOK_LIMIT: Duration = Duration::from_secs(600);

/// Runs a postStart hook and reports.
pub(crate) async fn post_start(
    node: Arc<Node>,
    container: Container,
    hook: LifecycleHandler,
    id: ContainerId,
    ips: Vec<String>,
) -> Done {
    let result = run(&node, &container, &hook, &id, &ips, HOOK_LIMIT).await;
    Done::Hooked { id, container: container.name.into(), result }
}

/// Runs a preStop hook, for at most `grace` seconds; its failure is an event, nothing more.
pub(crate) async fn pre_stop(
    node: &Arc<Node>,
    pod: &Pod,
    container: &Container,
    id: &ContainerId,
    ips: &[String],
    grace: i64,
) {
    let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()) else { return };
    let limit = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
    let result = tokio::time::timeout(limit, run(node, container, hook, id, ips, limit)).await;
    if let Ok(Err(error)) = result {
        let kind = spec::find_container(pod, &container.name).map(|(kind, _)| kind);
        let part = kind.map(|kind| (kind, container.name.as_str()));
        node.events.warning(pod, part, "FailedPreStopHook", &format!("PreStopHook failed: {error}"));
    }
}

async fn run(
    node: &Arc<Node>,
    container: &Container,
    hook: &LifecycleHandler,
    id: &ContainerId,
    ips: &[String],
    limit: Duration,
) -> Result<(), HookError> {
    if let Some(exec) = &hook.exec {
        let command = exec.command.clone().unwrap_or_default();
        let answer = node.runtime.exec_sync(id, &command, limit).await?;
        if answer.exit_code == 0 {
            return Ok(());
        }
        let mut output = answer.stderr;
        output.extend_from_slice(&answer.stdout);
        output.truncate(check::BODY_LIMIT);
        let output = String::from_utf8_lossy(&output).into_owned();
        return Err(HookError::Exit { command: command.join(" "), code: answer.exit_code, output });
    }
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default())).await;
        return Ok(());
    }
    if let Some(get) = &hook.http_get {
        let ip = ips.first().cloned().unwrap_or_default();
        let target = HttpTarget::of(get, container, &ip)?;
        return match check::http(&target, limit).await {
            Answer::Success(_) | Answer::Warning(_) => Ok(()),
            Answer::Failure(text) | Answer::Error(text) => Err(HookError::Http(text)),
        };
    }
    Ok(())
}
