//! `podwire exec`: runs a command in a container, streams attached, and takes over its exit code.

use anyhow::{Context, Result, bail};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::api::{Api, AttachParams};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Session, pod};
use crate::cli::ExecArgs;

/// Runs the command; returns its exit code.
pub async fn exec(args: &ExecArgs) -> Result<u8> {
    if args.command.is_empty() {
        bail!("error: you must specify at least one command for the container");
    }
    let session = Session::open(&args.to).await?;
    let pods: Api<Pod> = Api::namespaced(session.client.clone(), &session.namespace);
    let pod = pod::name(&args.pod);
    let container = pod::container(&session, pod, args.container.as_deref()).await?;
    let params = AttachParams::default()
        .stdin(args.stdin)
        .stdout(true)
        .stderr(!args.tty)
        .tty(args.tty)
        .container(container);
    let mut process = pods.exec(pod, &args.command, &params).await.map_err(super::refusal)?;
    let status = process.take_status().context("the server sends no status")?;
    let (input, output, errors) = (process.stdin(), process.stdout(), process.stderr());
    let feeding = async {
        if let Some(mut to) = input {
            tokio::io::copy(&mut tokio::io::stdin(), &mut to).await?;
            to.shutdown().await?;
        }
        // Standard input may end long before the command does.
        std::future::pending::<std::io::Result<()>>().await
    };
    let copying = async {
        tokio::try_join!(pour(output, tokio::io::stdout()), pour(errors, tokio::io::stderr()))?;
        Ok::<_, std::io::Error>(status.await)
    };
    let status = tokio::select! {
        failed = feeding => return Ok(failed.map(|()| 0)?),
        done = copying => done.context("copy output")?,
    };
    exit_code(status)
}

async fn pour(from: Option<impl AsyncRead + Unpin>, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    if let Some(mut from) = from {
        tokio::io::copy(&mut from, &mut to).await?;
        to.flush().await?;
    }
    Ok(())
}

/// The code in the Status that ends an exec, as kubectl reads it.
fn exit_code(status: Option<Status>) -> Result<u8> {
    let Some(status) = status else { bail!("error: the connection ended before the command did") };
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes
        .iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .and_then(|cause| cause.message.as_deref())
        .and_then(|text| text.parse::<i32>().ok());
    match code {
        Some(code) => {
            crate::remark(&format!("command terminated with exit code {code}"));
            Ok(u8::try_from(code & 0xff).unwrap_or(1))
        }
        None => bail!("error: {}", status.message.unwrap_or_default()),
    }
}
