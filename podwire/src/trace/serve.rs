//! The ring over a unix socket: whoever connects gets a header and every arrow as one JSON line.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use tokio::{io::AsyncWriteExt, net::UnixListener};
use tokio_util::sync::CancellationToken;

use super::{Arrow, Ring};

/// First line of every answer: magic and version.
const HEADER: &str = "podwire-trace 1";

/// Serves the ring on a socket in `folder` until `shutdown`. A reader that is away costs nothing.
pub async fn serve(folder: PathBuf, ring: Ring, shutdown: CancellationToken) -> Result<()> {
    let path = folder.join(format!("{}.trace.sock", std::process::id()));
    let listener: UnixListener = podwire_wire::unix::listen(&path)?;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        if let Ok((mut stream, _)) = accepted {
            let text = dump(&ring)?;
            let sent =
                tokio::time::timeout(std::time::Duration::from_secs(5), stream.write_all(text.as_bytes()))
                    .await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::debug!("a trace reader went away");
            }
        }
    }
    // Ignored: the folder may be gone already.
    std::fs::remove_file(path).ok();
    Ok(())
}

fn dump(ring: &Ring) -> Result<String> {
    let mut text = format!("{HEADER}\n");
    for arrow in ring.snapshot() {
        text.push_str(&serde_json::to_string(&arrow)?);
        text.push('\n');
    }
    Ok(text)
}

/// Every arrow that the processes of the instance with this run folder hold.
pub fn collect(folder: &Path) -> Result<Vec<Arrow>> {
    let mut arrows = Vec::new();
    let mut answered = false;
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("no node runs here ({folder:?}); start one with `podwire up`"))?;
    for entry in entries {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with(".trace.sock") {
            continue;
        }
        // A socket that nobody answers on belongs to a process that was killed.
        let Ok(stream) = std::os::unix::net::UnixStream::connect(&path) else { continue };
        let mut lines = BufReader::new(stream).lines();
        match lines.next() {
            Some(Ok(header)) if header == HEADER => answered = true,
            other => bail!("{path:?} does not speak this version's trace protocol: {other:?}"),
        }
        for line in lines {
            arrows.push(serde_json::from_str(&line?)?);
        }
    }
    if !answered {
        bail!("no process of this node answers; is it up?");
    }
    Ok(arrows)
}
