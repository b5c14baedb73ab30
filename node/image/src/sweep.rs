//! Removal of what nothing uses: layers and blobs named by no image and no snapshot.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::Ordering;

use crate::error::{Error, IoContext};
use crate::layout::read_record;
use crate::record::{SNAPSHOT_MAGIC, SnapshotRecord};
use crate::store::ImageStore;
use podwire_trace::chain;

impl ImageStore {
    /// Sweeps if something may be unused and nothing is being added; else a later call will.
    pub(crate) fn sweep(&self) {
        if !self.inner.sweep_wanted.swap(false, Ordering::Relaxed) {
            return;
        }
        match self.try_sweep() {
            Ok(true) => {}
            Ok(false) => self.inner.sweep_wanted.store(true, Ordering::Relaxed),
            Err(error) => {
                self.inner.sweep_wanted.store(true, Ordering::Relaxed);
                tracing::warn!(error = %chain(&error), "unused layers not swept; will retry");
            }
        }
    }

    /// False if something is being added and the sweep was put off.
    fn try_sweep(&self) -> Result<bool, Error> {
        let layout = &self.inner.layout;
        let mut doomed = Vec::new();
        {
            let Some(_exclusive) = layout.try_exclusive()? else { return Ok(false) };
            self.refresh(true)?;
            let (layers, blobs) = self.in_use()?;
            for (folder, used) in [("layers", &layers), ("blobs", &blobs)] {
                let folder = layout.root().join(folder);
                for entry in fs::read_dir(&folder).at("list", &folder)? {
                    let entry = entry.at("list", &folder)?;
                    if used.contains(entry.file_name().to_string_lossy().as_ref()) {
                        continue;
                    }
                    let temp = layout.temp();
                    fs::rename(entry.path(), &temp).at("move away", &entry.path())?;
                    doomed.push(temp);
                }
            }
        }
        // Deleting a large layer takes a while; nobody has to wait for it.
        for path in doomed {
            layout.discard(&path)?;
        }
        Ok(true)
    }

    /// The ids of images that snapshots were made from.
    pub fn images_in_use(&self) -> Result<HashSet<String>, Error> {
        let mut used = HashSet::new();
        for id in self.snapshots() {
            let path = self.inner.layout.snapshot(&id).join("record");
            match read_record::<SnapshotRecord>(SNAPSHOT_MAGIC, &path) {
                Ok(record) => {
                    used.insert(record.image);
                }
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }

    /// The names of layers and blobs that an image or a snapshot uses.
    fn in_use(&self) -> Result<(HashSet<String>, HashSet<String>), Error> {
        let (mut layers, mut blobs) = (HashSet::new(), HashSet::new());
        self.read(|index| {
            for entry in index.entries() {
                let record = &entry.record;
                blobs.insert(record.config.hex());
                blobs.extend(record.manifest.as_ref().map(crate::digest::Digest::hex));
                for layer in &record.layers {
                    layers.insert(layer.dir.clone());
                    blobs.insert(layer.blob.hex());
                }
            }
        });
        for id in self.snapshots() {
            let path = self.inner.layout.snapshot(&id).join("record");
            match read_record::<SnapshotRecord>(SNAPSHOT_MAGIC, &path) {
                Ok(record) => layers.extend(record.layers),
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                // A snapshot that cannot say what it uses keeps everything.
                Err(error) => return Err(error),
            }
        }
        Ok((layers, blobs))
    }
}
