//! Makes an image's parts durable before its record is written.
//!
//! A small image is synced file by file: syncing the whole file system would wait for everything
//! that other programs have written. Beyond that, one sync of the file system is cheaper.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext};
use crate::layout::{Layout, read_record};
use crate::record::{LAYER_MAGIC, LayerMeta, LayerRef};

/// The most inodes that are synced one by one.
const FEW: u64 = 512;

/// Makes the layers, their blobs and the further `blobs` durable.
pub(crate) fn make_durable(layout: &Layout, layers: &[LayerRef], blobs: &[PathBuf]) -> Result<(), Error> {
    let mut inodes = 0;
    for layer in layers {
        let meta: LayerMeta = read_record(LAYER_MAGIC, &layout.layer(&layer.dir).join("meta"))?;
        inodes += meta.inodes;
    }
    if inodes > FEW {
        return layout.sync();
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
    Ok(())
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
