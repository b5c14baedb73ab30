//! `podwire exec`: runs a command in a container, streams attached, and takes over its exit code.

use anyhow::{Context, Result, bail};
use podwire_client::{Ended, Process, api::AttachParams};

use super::{Session, pod};
use crate::cli::ExecArgs;

/// Runs the command; returns its exit code.
pub async fn exec(args: &ExecArgs) -> Result<u8> {
    if args.command.is_empty() {
        bail!("error: you must specify at least one command for the container");
    }
    let session = Session::open(&args.to).await?;
    let pod = pod::name(&args.pod);
    let container = pod::container(&session, pod, args.container.as_deref()).await?;
    let params = AttachParams::default()
        .stdin(args.stdin)
        .stdout(true)
        .stderr(!args.tty)
        .tty(args.tty)
        .container(container);
    let process = Process::begin(&session.client, &session.namespace, pod, &args.command, &params)
        .await
        .map_err(super::refusal)?;
    let input = args.stdin.then(tokio::io::stdin);
    let ended = process.run(input, tokio::io::stdout(), tokio::io::stderr()).await;
    exit_code(ended.context("copy output")?)
}

/// The code in the Status that ends an exec, as kubectl reads it.
fn exit_code(ended: Ended) -> Result<u8> {
    let Some(status) = ended else { bail!("error: the connection ended before the command did") };
    if status.is_success() {
        return Ok(0);
    }
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let code = causes.iter().find(|cause| cause.reason == "ExitCode");
    match code.and_then(|cause| cause.message.parse::<i32>().ok()) {
        Some(code) => {
            crate::remark(&format!("command terminated with exit code {code}"));
            Ok(u8::try_from(code & 0xff).unwrap_or(1))
        }
        None => bail!("error: {}", status.message),
    }
}
