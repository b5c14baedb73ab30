//! Snapshots of a store as files: saved while it runs, looked at, and made a store again.
//!
//! What is saved is the same whether it comes from a folder or over etcd's API from `podwire etcd`; `engine/export` says how it looks. A
//! snapshot of the real etcd is a file of another kind: it can be saved, and etcd's own tools restore it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::export::{self, Export, SEGMENT};
use crate::engine::files::{self, DirLock, Draft, segment_path, snapshot_path};
use crate::engine::log::Log;
use crate::{EmbeddedConfig, Remote, Revision, StoreError};

/// How often a folder whose files are being replaced is read anew.
const ATTEMPTS: usize = 10;

/// What a snapshot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// The revision it is of.
    pub revision: Revision,
    /// Keys that are there.
    pub keys: u64,
    /// What cannot be asked for any more, if anything was compacted.
    pub compacted: Option<Revision>,
    /// Bytes of the file.
    pub size: u64,
}

/// What a snapshot holds; all of it is read and checked.
pub fn status(file: &Path) -> Result<SnapshotStatus, StoreError> {
    let bytes = files::read(file)?;
    let contents = export::check(&bytes).map_err(|reason| StoreError::corrupt(file, 0, reason))?;
    let (revision, keys, compacted) = (contents.revision, contents.keys, contents.compacted);
    Ok(SnapshotStatus { revision, keys, compacted, size: bytes.len() as u64 })
}

/// Saves what the embedded store in `dir` holds, also while another process has it open: what was acknowledged before this
/// began is in it. Blocks.
pub fn save_folder(dir: &Path, file: &Path) -> Result<SnapshotStatus, StoreError> {
    let mut copy = file.as_os_str().to_owned();
    copy.push(format!(".{}.tmp", std::process::id()));
    let copy = PathBuf::from(copy);
    let saved = copied(dir, &copy).and_then(|()| {
        let store = EmbeddedConfig::new(&copy).open()?;
        let mut export = Export::begin(store.shared());
        written(file, || export.piece())
    });
    // Ignored: what is left of the copy is in the way of nobody, and the snapshot is what was asked for.
    fs::remove_dir_all(&copy).ok();
    saved?;
    status(file)
}

/// Saves what an etcd holds, as it gives it.
pub async fn save_cluster(cluster: &Remote, file: &Path) -> Result<(), StoreError> {
    let mut pieces = cluster.snapshot().await?;
    let mut draft = Draft::create(file.to_owned())?;
    loop {
        match pieces.next().await {
            Ok(Some(piece)) => draft.write(&piece)?,
            Ok(None) => return draft.publish().map(|_| ()),
            Err(error) => {
                draft.discard();
                return Err(error);
            }
        }
    }
}

/// Makes a store of a snapshot, in a folder that has none; `bump` revisions are skipped, so that nobody who knew the old store takes
/// the new one for it at an earlier time.
pub fn restore(file: &Path, dir: &Path, bump: u64) -> Result<SnapshotStatus, StoreError> {
    let bytes = files::read(file)?;
    let contents = export::check(&bytes).map_err(|reason| StoreError::corrupt(file, 0, reason))?;
    let _lock = DirLock::take(dir)?;
    let there = files::contents(dir)?;
    if let Some(segment) = there.segments.first().map(|segment| segment_path(dir, *segment)) {
        return Err(StoreError::Occupied { path: segment });
    }
    if let Some(snapshot) = there.snapshots.first().map(|segment| snapshot_path(dir, *segment)) {
        return Err(StoreError::Occupied { path: snapshot });
    }
    let begins = contents.revision.saturating_add(bump);
    // Without its log a snapshot is refused, without its snapshot a log would be an empty store: so it comes first.
    let mut draft = Draft::create(snapshot_path(dir, SEGMENT))?;
    draft.write(&bytes[..contents.length])?;
    draft.publish()?;
    Log::create(dir, SEGMENT, begins)?;
    let (keys, compacted) = (contents.keys, contents.compacted);
    Ok(SnapshotStatus { revision: begins, keys, compacted, size: bytes.len() as u64 })
}

fn written(
    file: &Path,
    mut piece: impl FnMut() -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<(), StoreError> {
    let mut draft = Draft::create(file.to_owned())?;
    loop {
        match piece().and_then(|piece| piece.map(|piece| draft.write(&piece)).transpose()) {
            Ok(Some(())) => {}
            Ok(None) => return draft.publish().map(|_| ()),
            Err(error) => {
                draft.discard();
                return Err(error);
            }
        }
    }
}

/// Copies a store's files as a power cut would leave them; the folder may be in use.
fn copied(dir: &Path, copy: &Path) -> Result<(), StoreError> {
    let mut left = ATTEMPTS;
    loop {
        // Ignored: there is none, unless an attempt before this one failed.
        fs::remove_dir_all(copy).ok();
        fs::create_dir_all(copy).map_err(|source| StoreError::io("create directory", copy, source))?;
        let contents = files::contents(dir)?;
        let newest = contents.snapshots.last().copied();
        let needed =
            contents.segments.iter().filter(|segment| newest.is_none_or(|newest| **segment >= newest));
        let paths = newest.iter().map(|segment| snapshot_path(dir, *segment));
        let paths = paths.chain(needed.map(|segment| segment_path(dir, *segment)));
        let mut gone = None;
        for path in paths {
            let to = copy.join(path.file_name().unwrap_or_default());
            match fs::copy(&path, &to) {
                Ok(_) => {}
                // A newer snapshot has replaced it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => gone = Some((path, error)),
                Err(error) => return Err(StoreError::io("copy", path, error)),
            }
        }
        match gone {
            None if contents.segments.is_empty() => {
                let error = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(StoreError::io("find a store in", dir, error));
            }
            None => return Ok(()),
            Some((path, error)) if left == 0 => {
                return Err(StoreError::Io { attempt: "copy", path, source: Arc::new(error) });
            }
            Some(_) => left -= 1,
        }
    }
}
