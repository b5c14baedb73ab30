//! Keeps container logs small: a log beyond its limit is set aside, and the runtime opens a new one.
//!
//! Tasks: one, every ten seconds. What was set aside is compressed, all but the newest; old ones are removed. Others may
//! write to a folder of logs: no link is followed, and nothing but regular files is read.

pub(crate) mod plan;

use std::{
    ffi::{CString, OsStr},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use podwire_linux::beneath;
use rustix::fs::{Dir, Mode, OFlags};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use podwire_wire::ids::ContainerId;

use crate::{clock, node::Node, paths, spec::PodRef, volumes::plain};
use plan::{Action, Limits};

const PERIOD: Duration = Duration::from_secs(10);

/// A running container's log.
struct Log {
    id: ContainerId,
    /// Below the folder of logs.
    below: PathBuf,
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
                tracing::warn!(log = ?log.below, error = %error, "log not rotated; will retry");
            }
        }
    }
}

fn running(node: &Node) -> Vec<Log> {
    let pods = node.pods.lock().expect("no holder panics");
    let mut all = Vec::new();
    for known in pods.values() {
        let folder = paths::pod_logs(Path::new(""), &PodRef::of(&known.pod));
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
                let below = folder.join(paths::container_log(&entry.name, attempt));
                all.push(Log { id: id.into(), below });
            }
        }
    }
    all
}

async fn rotate(node: &Node, log: &Log, limits: Limits) -> io::Result<()> {
    let (base, below) = (node.config.log_dir.clone(), log.below.clone());
    let date = clock::now().strftime("%Y%m%d-%H%M%S").to_string();
    let set_aside =
        blocking(move || Large::find(&base, &below, limits)?.map(|l| l.set_aside(&date)).transpose());
    let Some((large, aside)) = set_aside.await? else { return Ok(()) };
    if let Err(error) = node.runtime.reopen_log(&log.id).await {
        // The runtime goes on writing to the file it has; it gets its name back.
        blocking(move || Ok(rustix::fs::renameat(&large.folder, &aside, &large.folder, &large.name)?))
            .await?;
        return Err(io::Error::other(error));
    }
    blocking(move || tidy(&large.folder, &large.name, limits)).await
}

/// Runs something that may block where it holds nobody up.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// A log that is beyond its limit, in its open folder.
struct Large {
    folder: OwnedFd,
    name: String,
}

impl Large {
    /// The log at `below`, if it is one and too large; links and whatever else may lie there are left alone.
    fn find(base: &Path, below: &Path, limits: Limits) -> io::Result<Option<Large>> {
        let parent = below.parent().unwrap_or(Path::new("."));
        let folder = beneath::folder(base).and_then(|base| beneath::subfolder(base, parent));
        let folder = match folder {
            Err(error) if error.is_absent() => return Ok(None),
            other => other.map_err(plain)?,
        };
        let name = below.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let length = match beneath::open(&folder, Path::new(&name)) {
            Err(error) if error.is_absent() => return Ok(None),
            other => other.map_err(plain)?.metadata()?.len(),
        };
        Ok((length > limits.bytes).then_some(Large { folder, name }))
    }

    fn set_aside(self, date: &str) -> io::Result<(Large, String)> {
        let aside = format!("{}.{date}", self.name);
        rustix::fs::renameat(&self.folder, &self.name, &self.folder, &aside)?;
        Ok((self, aside))
    }
}

/// Compresses and removes what was set aside.
fn tidy(folder: &OwnedFd, name: &str, limits: Limits) -> io::Result<()> {
    let mut files = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(rustix::fs::openat(folder, ".", flags, Mode::empty())?)? {
        files.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for action in plan::tidy(name, &files, limits) {
        match action {
            Action::Remove(file) => beneath::remove(folder, &CString::new(file)?)?,
            Action::Compress(file) => compress(folder, &file)?,
        }
    }
    Ok(())
}

fn compress(folder: &OwnedFd, name: &str) -> io::Result<()> {
    let (whole, partial) = (format!("{name}.gz"), format!("{name}.tmp"));
    let Ok(mut text) = beneath::open(folder, Path::new(name)) else {
        // No log was ever set aside as a link or device: somebody planted it.
        return beneath::remove(folder, &CString::new(name)?);
    };
    let packed = beneath::make::file(folder, OsStr::new(&partial), 0o640).map_err(plain)?;
    let mut encoder = GzEncoder::new(packed, Compression::fast());
    io::copy(&mut text, &mut encoder)?;
    encoder.finish()?;
    rustix::fs::renameat(folder, &partial, folder, &whole)?;
    Ok(rustix::fs::unlinkat(folder, name, rustix::fs::AtFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Read,
        os::unix::fs::symlink,
    };

    use super::*;

    #[test]
    fn what_was_set_aside_is_compressed_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in
            [("0.log", "now"), ("0.log.3", "c"), ("0.log.2", "b"), ("0.log.1.gz", "a"), ("1.log", "x")]
        {
            fs::write(dir.path().join(name), text).unwrap();
        }
        tidy(&beneath::folder(dir.path()).unwrap(), "0.log", Limits { bytes: 1, files: 3 }).unwrap();
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

    #[test]
    fn what_somebody_planted_among_the_logs_is_neither_followed_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("victim"), "safe").unwrap();
        fs::create_dir(dir.path().join("pod")).unwrap();
        symlink(outside.path().join("victim"), dir.path().join("pod/0.log")).unwrap();
        symlink(outside.path(), dir.path().join("way")).unwrap();
        let limits = Limits { bytes: 1, files: 3 };
        for below in ["pod/0.log", "way/victim"] {
            assert!(Large::find(dir.path(), Path::new(below), limits).is_err(), "{below}");
        }
        assert!(Large::find(dir.path(), Path::new("pod/absent"), limits).unwrap().is_none());
        fs::write(dir.path().join("pod/1.log"), "large").unwrap();
        let (large, aside) =
            Large::find(dir.path(), Path::new("pod/1.log"), limits).unwrap().unwrap().set_aside("3").unwrap();
        assert_eq!(aside, "1.log.3");
        // An older one to be compressed is a link, and its compressed form is planted to lead elsewhere.
        symlink(outside.path().join("victim"), dir.path().join("pod/1.log.2")).unwrap();
        tidy(&large.folder, "1.log", limits).unwrap();
        assert!(dir.path().join("pod/1.log.2").symlink_metadata().is_err(), "it is taken away");
        fs::write(dir.path().join("pod/1.log.2"), "old").unwrap();
        symlink(outside.path().join("victim"), dir.path().join("pod/1.log.2.tmp")).unwrap();
        tidy(&large.folder, "1.log", limits).unwrap();
        assert!(dir.path().join("pod/1.log.2.gz").is_file());
        assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "safe");
    }
}
