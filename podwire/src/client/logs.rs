//! `podwire logs`: a container's log as the kubelet streams it.

use std::io::Write;

use anyhow::{Context, Result};
use futures::AsyncReadExt;
use http::Method;

use super::{Session, get::escape, request};
use crate::cli::LogsArgs;

/// Copies the log to `to`, byte for byte.
pub async fn logs(args: &LogsArgs, to: &mut dyn Write) -> Result<()> {
    let session = Session::open(&args.to).await?;
    let pod = args.pod.trim_start_matches("pods/").trim_start_matches("pod/");
    let mut path = format!("/api/v1/namespaces/{}/pods/{pod}/log?", session.namespace);
    if let Some(container) = &args.container {
        path.push_str(&format!("container={}&", escape(container)));
    }
    if args.follow {
        path.push_str("follow=true&");
    }
    if args.previous {
        path.push_str("previous=true&");
    }
    if let Some(lines) = args.tail.filter(|lines| *lines >= 0) {
        path.push_str(&format!("tailLines={lines}&"));
    }
    let path = path.trim_end_matches(['&', '?']);
    let stream = session
        .client
        .request_stream(request(Method::GET, path, None, "*/*")?)
        .await
        .map_err(super::refusal)?;
    let mut stream = std::pin::pin!(stream);
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let read = stream.read(&mut chunk).await.context("read log")?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&chunk[..read])?;
        to.flush()?;
    }
}
