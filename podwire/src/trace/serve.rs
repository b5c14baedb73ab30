//! The ring over a unix socket: whoever connects gets a header and every arrow as one JSON line.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use tokio::{io::AsyncWriteExt, net::UnixListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Arrow, Ring};
use crate::private;

/// First line of every answer: magic and version.
const HEADER: &str = "podwire-trace 1";

/// How long a reader may take to read.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// How many readers are answered side by side; more wait.
const READERS: usize = 8;

/// Serves the ring on a socket in `folder` until `shutdown`. A reader that is away, or slow, costs nothing.
pub async fn serve(folder: PathBuf, ring: Ring, shutdown: CancellationToken) -> Result<()> {
    let made = if folder.is_dir() { false } else { private::folder(&folder)? };
    sweep(&folder);
    let path = folder.join(format!("{}.trace.sock", std::process::id()));
    let listener: UnixListener = podwire_wire::unix::listen(&path)?;
    let mut readers = JoinSet::new();
    loop {
        let mut stream = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = readers.join_next() => continue,
            stream = podwire_wire::accept::next(&listener, "trace socket"), if readers.len() < READERS => stream,
        };
        let text = dump(&ring)?;
        readers.spawn(async move {
            let sent = tokio::time::timeout(PATIENCE, stream.write_all(text.as_bytes())).await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::debug!("a trace reader went away");
            }
        });
    }
    // Ignored: the folder may be gone already.
    std::fs::remove_file(path).ok();
    if made {
        // Ignored: others may have put something there, and then it is theirs.
        std::fs::remove_dir(folder).ok();
    }
    Ok(())
}

/// Removes the sockets of processes that were killed.
fn sweep(folder: &Path) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let refused = |path: &Path| {
            std::os::unix::net::UnixStream::connect(path)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        };
        if path.to_string_lossy().ends_with(".trace.sock") && refused(&path) {
            // Ignored: somebody else may have swept it.
            std::fs::remove_file(path).ok();
        }
    }
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
        bail!("no process of this node answers in {folder:?}; is it up? (`podwire up`)");
    }
    Ok(arrows)
}
