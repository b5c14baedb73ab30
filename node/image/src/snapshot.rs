//! Snapshots: a container's writable directory above an image's layers.
//!
//! On a pod's path: a few directory operations, no fsync. A snapshot dies with its container, and
//! after another boot the runtime discards those it does not know.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use rustix::fs::{Gid, Mode, Uid};

use crate::error::{Error, IoContext};
use crate::layout::{encode_record, read_record};
use crate::record::{Image, LAYER_MAGIC, LayerMeta, SNAPSHOT_MAGIC, SnapshotRecord};
use crate::store::ImageStore;

/// What overlayfs needs to make a container's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Read-only directories, top first.
    pub lower: Vec<PathBuf>,
    /// The container's own files.
    pub upper: PathBuf,
    /// Overlayfs' scratch directory, on the same file system as `upper`.
    pub work: PathBuf,
}

impl ImageStore {
    /// Makes the writable part of container `container_id` over `image`.
    pub fn prepare(&self, container_id: &str, image: &Image) -> Result<Snapshot, Error> {
        check_id(container_id)?;
        let layout = &self.inner.layout;
        let _hold = layout.hold()?;
        let entry =
            self.find_entry(&image.id).ok_or_else(|| Error::NotFound { reference: image.id.clone() })?;
        let record = SnapshotRecord {
            image: image.id.clone(),
            layers: entry.record.layers.iter().map(|layer| layer.dir.clone()).collect(),
        };
        let temp = layout.temp();
        fs::create_dir(&temp).at("make directory", &temp)?;
        let made = self.fill(&temp, entry.image.layers.first(), &record).and_then(|()| {
            let home = layout.snapshot(container_id);
            // Renaming onto an empty directory would succeed; a snapshot is never empty.
            match fs::rename(&temp, &home) {
                Ok(()) => Ok(home),
                Err(error) if is_taken(&error) => Err(Error::SnapshotExists { id: container_id.to_owned() }),
                Err(source) => Err(Error::Io { action: "rename to", path: home, source }),
            }
        });
        match made {
            Ok(home) => Ok(Snapshot {
                lower: entry.image.layers.clone(),
                upper: home.join("upper"),
                work: home.join("work"),
            }),
            Err(error) => {
                crate::unpack::remove_tree(&temp).at("remove", &temp)?;
                Err(error)
            }
        }
    }

    fn fill(
        &self,
        dir: &std::path::Path,
        top: Option<&PathBuf>,
        record: &SnapshotRecord,
    ) -> Result<(), Error> {
        let (upper, work, file) = (dir.join("upper"), dir.join("work"), dir.join("record"));
        fs::create_dir(&upper).at("make directory", &upper)?;
        fs::create_dir(&work).at("make directory", &work)?;
        // The container's root directory is the upper one: it takes after the image's.
        if let Some(top) = top {
            let stat = rustix::fs::stat(top).at("look at", top)?;
            if stat.st_uid != 0 || stat.st_gid != 0 {
                rustix::fs::chown(&upper, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))
                    .at("set owner of", &upper)?;
            }
            rustix::fs::chmod(&upper, Mode::from_raw_mode(stat.st_mode & 0o7777))
                .at("set mode of", &upper)?;
        }
        fs::write(&file, encode_record(SNAPSHOT_MAGIC, record)).at("write", &file)
    }

    /// Removes a container's writable part; one that is not there is fine.
    pub fn discard(&self, container_id: &str) -> Result<(), Error> {
        check_id(container_id)?;
        let home = self.inner.layout.snapshot(container_id);
        let image =
            read_record::<SnapshotRecord>(SNAPSHOT_MAGIC, &home.join("record")).map(|record| record.image);
        self.inner.layout.discard(&home)?;
        if let Ok(image) = image
            && self.find_entry(&image).is_none()
        {
            self.inner.sweep_wanted.store(true, Ordering::Relaxed);
            self.sweep();
        }
        Ok(())
    }

    /// The containers that have a writable part.
    pub fn snapshots(&self) -> Vec<String> {
        let dir = self.inner.layout.root().join("snapshots");
        let mut ids: Vec<String> = match fs::read_dir(&dir) {
            Ok(entries) => {
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            }
            Err(error) => {
                tracing::error!(path = %dir.display(), %error, "snapshots cannot be listed");
                Vec::new()
            }
        };
        ids.sort();
        ids
    }

    /// The paths of an existing snapshot, for a runtime that takes over running containers.
    pub fn snapshot(&self, container_id: &str) -> Result<Snapshot, Error> {
        check_id(container_id)?;
        let layout = &self.inner.layout;
        let home = layout.snapshot(container_id);
        let record: SnapshotRecord = read_record(SNAPSHOT_MAGIC, &home.join("record"))?;
        let mut lower = Vec::with_capacity(record.layers.len());
        for dir in record.layers.iter().rev() {
            let dir = layout.layer(dir);
            lower.push(dir.join("fs"));
            if read_record::<LayerMeta>(LAYER_MAGIC, &dir.join("meta"))?.root_opaque {
                break;
            }
        }
        if lower.is_empty() {
            lower.push(layout.empty());
        }
        Ok(Snapshot { lower, upper: home.join("upper"), work: home.join("work") })
    }

    /// Bytes and inodes of a container's own files, counted now.
    pub fn snapshot_usage(&self, container_id: &str) -> Result<(u64, u64), Error> {
        check_id(container_id)?;
        let upper = self.inner.layout.snapshot(container_id).join("upper");
        let (mut bytes, mut inodes) = (0, 0);
        let mut stack = vec![upper];
        while let Some(dir) = stack.pop() {
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                // A running container removes directories while they are counted.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(Error::Io { action: "list", path: dir, source }),
            };
            for entry in entries.flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                bytes += std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
                inodes += 1;
                if meta.is_dir() {
                    stack.push(entry.path());
                }
            }
        }
        Ok((bytes, inodes))
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

/// An id becomes a directory name.
fn check_id(id: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if id.is_empty() || id.len() > 128 || id.starts_with('.') || !id.bytes().all(plain) {
        return Err(Error::InvalidSnapshotId { id: id.chars().take(128).collect() });
    }
    Ok(())
}
