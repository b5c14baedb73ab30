//! `podwire logs`: a container's log as the kubelet streams it.

use std::io::Write;

use anyhow::{Context, Result, bail};
use http::Method;
use http_body_util::BodyExt;

use super::{Session, get::escape, is_not_found, pod, request};
use crate::cli::LogsArgs;

/// Copies the log to `to`, byte for byte.
pub async fn logs(args: &LogsArgs, to: &mut dyn Write) -> Result<()> {
    let session = Session::open(&args.to).await?;
    let name = pod::name(&args.pod);
    let wanted = args.container.as_deref().or(args.container_word.as_deref());
    let container = match pod::container(&session, name, wanted).await {
        Err(error) if is_not_found(&error) => bail!(
            "error: error from server (NotFound): pods {name:?} not found in namespace {:?}",
            session.namespace
        ),
        other => other?,
    };
    let mut path = format!("/api/v1/namespaces/{}/pods/{name}/log?", session.namespace);
    path.push_str(&format!("container={}&", escape(&container)));
    if args.follow {
        path.push_str("follow=true&");
    }
    if args.previous {
        path.push_str("previous=true&");
    }
    if let Some(lines) = args.tail.filter(|lines| *lines >= 0) {
        path.push_str(&format!("tailLines={lines}&"));
    }
    if let Some(since) = &args.since {
        path.push_str(&format!("sinceSeconds={}&", seconds(since)?));
    }
    if let Some(time) = &args.since_time {
        path.push_str(&format!("sinceTime={}&", escape(time)));
    }
    if let Some(bytes) = args.limit_bytes.filter(|bytes| *bytes > 0) {
        path.push_str(&format!("limitBytes={bytes}&"));
    }
    if args.timestamps {
        path.push_str("timestamps=true&");
    }
    let path = path.trim_end_matches(['&', '?']);
    let mut log = session
        .client
        .request_stream(request(Method::GET, path, None, "*/*")?)
        .await
        .map_err(super::refusal)?;
    while let Some(frame) = log.frame().await {
        let frame = frame.map_err(anyhow::Error::from_boxed).context("read log")?;
        if let Ok(chunk) = frame.into_data() {
            to.write_all(&chunk)?;
            to.flush()?;
        }
    }
    Ok(())
}

/// A duration as Go writes it (`1h30m`, `10s`), in whole seconds, rounded up.
/// <https://pkg.go.dev/time#ParseDuration>
fn seconds(text: &str) -> Result<u64> {
    let wrong = || format!("error: --since: {text:?} is not a duration like 10s, 5m or 2h");
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').with_context(wrong)?;
        let number: f64 = rest[..end].parse().with_context(wrong)?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| end + at);
        total += number
            * match &rest[end..unit_end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 0.001,
                _ => bail!(wrong()),
            };
        rest = &rest[unit_end..];
    }
    let whole = std::time::Duration::try_from_secs_f64(f64::ceil(total)).with_context(wrong)?;
    Ok(whole.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(seconds("1h30m").unwrap(), 5400);
        assert_eq!(seconds("10s").unwrap(), 10);
        assert_eq!(seconds("1500ms").unwrap(), 2);
        assert!(seconds("10").is_err() && seconds("soon").is_err());
    }
}
