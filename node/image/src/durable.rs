//! Makes an image's parts durable.
//!
//! A small image is synced file by file: syncing the whole file system would wait for everything
//! that other programs have written. Beyond that, one sync of the file system is cheaper.
//!
//! A pull of a large image does not wait for the disk: its record carries the boot's id until a
//! sync has passed. Within the boot the page cache holds the image, whatever happens to the daemon;
//! after a power cut before the sync, the record is dropped at open and the image is pulled again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext};
use crate::layout::{Layout, read_record};
use crate::record::{IMAGE_MAGIC, ImageRecord, LAYER_MAGIC, LayerMeta, LayerRef};
use crate::store::ImageStore;

/// The most inodes that are synced one by one.
const FEW: u64 = 512;

/// When an image must be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the call returns.
    Now,
    /// At once if that is cheap, else soon after.
    Soon,
}

/// Makes the layers, their blobs and the further `blobs` durable; false if that is left for later.
pub(crate) fn make_durable(
    layout: &Layout,
    layers: &[LayerRef],
    blobs: &[PathBuf],
    when: When,
) -> Result<bool, Error> {
    let mut inodes = 0;
    for layer in layers {
        let meta: LayerMeta = read_record(LAYER_MAGIC, &layout.layer(&layer.dir).join("meta"))?;
        inodes += meta.inodes;
    }
    if inodes > FEW {
        return match when {
            When::Now => layout.sync().map(|()| true),
            When::Soon => Ok(false),
        };
    }
    for layer in layers {
        sync_tree(&layout.layer(&layer.dir))?;
        let blob = layout.blob(&layer.blob);
        // A layer shared with an image of other compression has a blob of another name.
        if blob.exists() {
            sync(&blob)?;
        }
    }
    for blob in blobs {
        sync(blob)?;
    }
    for folder in ["layers", "blobs"] {
        sync(&layout.root().join(folder))?;
    }
    Ok(true)
}

impl ImageStore {
    /// Drops records of another boot whose images never reached the disk; true if some of this boot
    /// still have to.
    pub(crate) fn drop_lost(&self) -> Result<bool, Error> {
        let layout = &self.inner.layout;
        let dir = layout.images();
        let mut unsynced = false;
        for entry in fs::read_dir(&dir).at("list", &dir)? {
            let path = entry.at("list", &dir)?.path();
            // A record that a power cut left empty says nothing.
            let empty = fs::metadata(&path).is_ok_and(|meta| meta.len() == 0);
            let pending =
                read_record::<ImageRecord>(IMAGE_MAGIC, &path).ok().and_then(|record| record.pending);
            if empty || pending.as_deref().is_some_and(|boot| boot != layout.boot()) {
                tracing::warn!(path = %path.display(), "image was not on disk when the machine went down; dropped");
                layout.discard(&path)?;
            } else {
                unsynced |= pending.is_some();
            }
        }
        Ok(unsynced)
    }

    /// Syncs the store and clears the marks of all images that were waiting for it.
    pub(crate) fn settle_pending(&self) -> Result<(), Error> {
        let waiting: Vec<_> = self.read(|index| {
            let pending = index.entries().filter(|entry| entry.record.pending.is_some());
            pending.map(|entry| (entry.record.config, entry.record.stamp)).collect()
        });
        if waiting.is_empty() {
            return Ok(());
        }
        self.inner.layout.sync()?;
        self.clear_pending(&waiting)
    }
}

fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).at("sync", path)
}

/// Syncs the files and directories below `root`; links and nodes live in their directories.
fn sync_tree(root: &Path) -> Result<(), Error> {
    let mut stack = vec![root.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).at("list", &dir)? {
            let entry = entry.at("list", &dir)?;
            let kind = entry.file_type().at("look at", &entry.path())?;
            if kind.is_dir() {
                stack.push(entry.path());
            } else if kind.is_file() {
                sync(&entry.path())?;
            }
        }
        sync(&dir)?;
    }
    Ok(())
}
