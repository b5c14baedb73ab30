//! What the node knows of its NRI plugins, over a unix socket: a header, then one JSON line per plugin or entry.
//!
//! The client says `list`, `log` or `log follow` in its first line. Tasks: one per connection, ended with the node.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_nri::Nri;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::broadcast::error::RecvError,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// First line of every answer: magic and version.
const HEADER: &str = "podwire-nri 1";

/// How long a client may take to say what it wants, or to take in a line.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until `shutdown`; a node whose plugins cannot be looked at runs on.
pub async fn serve(path: PathBuf, nri: Nri, shutdown: CancellationToken) {
    let listener: UnixListener = match podwire_wire::unix::listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, "NRI plugins cannot be looked at; the node runs on");
            return;
        }
    };
    let tasks = TaskTracker::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            stream = podwire_wire::accept::next(&listener, "NRI log socket") => {
                let (nri, shutdown) = (nri.clone(), shutdown.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        done = answer(stream, &nri) => if let Err(error) = done {
                            tracing::debug!(%error, "a reader of NRI's log went away");
                        }
                    }
                });
            }
        }
    }
    tasks.close();
    tasks.wait().await;
    // Ignored: the folder may be gone already.
    std::fs::remove_file(path).ok();
}

async fn answer(stream: UnixStream, nri: &Nri) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut wanted = String::new();
    let mut reader = tokio::io::BufReader::new(reader);
    tokio::time::timeout(PATIENCE, reader.read_line(&mut wanted)).await??;
    let mut text = format!("{HEADER}\n");
    match wanted.trim() {
        "list" => {
            for plugin in nri.overview() {
                text.push_str(&serde_json::to_string(&plugin)?);
                text.push('\n');
            }
            send(&mut writer, &text).await
        }
        wanted @ ("log" | "log follow") => {
            let (kept, mut live) = nri.follow();
            for entry in kept {
                text.push_str(&serde_json::to_string(&entry)?);
                text.push('\n');
            }
            send(&mut writer, &text).await?;
            if wanted == "log" {
                return Ok(());
            }
            loop {
                let line = match live.recv().await {
                    Ok(entry) => serde_json::to_string(&entry)?,
                    // One that cannot keep up misses what is too old, and is told how much.
                    Err(RecvError::Lagged(count)) => serde_json::to_string(&podwire_nri::Entry {
                        event: format!("{count} entries missed"),
                        ..podwire_nri::Entry::default()
                    })?,
                    Err(RecvError::Closed) => return Ok(()),
                };
                send(&mut writer, &format!("{line}\n")).await?;
            }
        }
        other => send(&mut writer, &format!("unknown request {other:?}\n")).await,
    }
}

async fn send(writer: &mut tokio::net::unix::OwnedWriteHalf, text: &str) -> Result<()> {
    Ok(tokio::time::timeout(PATIENCE, writer.write_all(text.as_bytes())).await??)
}

/// Asks the node with this socket, and gives each line of its answer to `line` as it comes.
pub fn ask(path: &Path, wanted: &str, mut line: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let mut stream = std::os::unix::net::UnixStream::connect(path)
        .with_context(|| format!("nobody answers on {path:?}; is the node up?"))?;
    writeln!(stream, "{wanted}")?;
    let mut lines = BufReader::new(stream).lines();
    match lines.next() {
        Some(Ok(header)) if header == HEADER => {}
        other => bail!("{path:?} does not speak this version's protocol: {other:?}"),
    }
    lines.try_for_each(|text| line(&text?))
}
