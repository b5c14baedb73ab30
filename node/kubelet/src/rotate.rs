//! Keeps container logs small: a log beyond its limit is set aside, and the runtime opens a new one.
//!
//! Tasks: one, every ten seconds. What was set aside is compressed, all but the newest; old ones are removed.

pub(crate) mod plan;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::{clock, node::Node, paths, spec::PodRef};
use plan::{Action, Limits};

const PERIOD: Duration = Duration::from_secs(10);

/// A running container's log.
struct Log {
    id: String,
    path: PathBuf,
}

/// Rotates until `shutdown`.
pub(crate) async fn run(node: Arc<Node>, limits: Limits, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        for log in running(&node) {
            if let Err(error) = rotate(&node, &log, limits).await {
                tracing::warn!(path = ?log.path, error = %error, "log not rotated; will retry");
            }
        }
    }
}

fn running(node: &Node) -> Vec<Log> {
    let pods = node.pods.lock().expect("no holder panics");
    let mut all = Vec::new();
    for known in pods.values() {
        let folder = paths::pod_logs(&node.config.log_dir, &PodRef::of(&known.pod));
        let Some(status) = &known.status else { continue };
        let entries = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ];
        for entry in entries.into_iter().flatten().flatten() {
            let runs = entry.state.as_ref().is_some_and(|s| s.running.is_some());
            let id = entry.container_id.as_deref().and_then(|id| id.split_once("://"));
            if let (true, Some((_, id))) = (runs, id) {
                let attempt = u32::try_from(entry.restart_count).unwrap_or_default();
                let path = folder.join(paths::container_log(&entry.name, attempt));
                all.push(Log { id: id.to_owned(), path });
            }
        }
    }
    all
}

async fn rotate(node: &Node, log: &Log, limits: Limits) -> io::Result<()> {
    let Ok(metadata) = fs::metadata(&log.path) else { return Ok(()) };
    if metadata.len() <= limits.bytes {
        return Ok(());
    }
    let name = log.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = log.path.parent().unwrap_or(Path::new("/")).to_owned();
    let aside = folder.join(format!("{name}.{}", clock::now().strftime("%Y%m%d-%H%M%S")));
    fs::rename(&log.path, &aside)?;
    if let Err(error) = node.runtime.reopen_log(&log.id).await {
        // The runtime goes on writing to the file it has; it gets its name back.
        fs::rename(&aside, &log.path)?;
        return Err(io::Error::other(error));
    }
    tokio::task::spawn_blocking(move || tidy(&folder, &name, limits)).await.map_err(io::Error::other)?
}

/// Compresses and removes what was set aside.
fn tidy(folder: &Path, name: &str, limits: Limits) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for action in plan::tidy(name, &files, limits) {
        match action {
            Action::Remove(file) => fs::remove_file(folder.join(file))?,
            Action::Compress(file) => compress(&folder.join(file))?,
        }
    }
    Ok(())
}

fn compress(path: &Path) -> io::Result<()> {
    let mut whole = path.as_os_str().to_owned();
    whole.push(".gz");
    let mut partial = path.as_os_str().to_owned();
    partial.push(".tmp");
    let mut encoder = GzEncoder::new(File::create(&partial)?, Compression::fast());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::rename(partial, whole)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_was_set_aside_is_compressed_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in
            [("0.log", "now"), ("0.log.3", "c"), ("0.log.2", "b"), ("0.log.1.gz", "a"), ("1.log", "x")]
        {
            fs::write(dir.path().join(name), text).unwrap();
        }
        tidy(dir.path(), "0.log", Limits { bytes: 1, files: 3 }).unwrap();
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, ["0.log", "0.log.2.gz", "0.log.3", "1.log"]);
        let mut text = String::new();
        let packed = File::open(dir.path().join("0.log.2.gz")).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "b");
    }
}
