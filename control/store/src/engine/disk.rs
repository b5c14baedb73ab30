//! Versions that are on disk only: the open files they are in, and how they are read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::index::{Event, Told};
use super::key::{Kv, Place};
use super::record::{Change, VERSION};
use crate::StoreError;

/// A log segment or a snapshot that versions are read from; it stays readable after it was removed.
#[derive(Debug)]
pub(crate) struct DataFile {
    /// What it was called.
    pub(crate) path: PathBuf,
    /// Where it is in the order of files: versions in files before a snapshot's number are in the snapshot too.
    pub(crate) segment: u64,
    /// Whether it is a snapshot.
    pub(crate) snapshot: bool,
    /// The open file.
    pub(crate) file: File,
}

impl DataFile {
    /// The bytes of the change at a place.
    pub(crate) fn bytes(&self, place: Place) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; place.len as usize];
        self.file
            .read_exact_at(&mut bytes, place.offset)
            .map_err(|source| StoreError::io("read an old version from", &self.path, source))?;
        Ok(bytes)
    }

    /// The change at a place.
    pub(crate) fn read(&self, place: Place) -> Result<Change, StoreError> {
        match Change::decode(&self.bytes(place)?, VERSION) {
            Some((change, _)) => Ok(change),
            None => Err(StoreError::corrupt(&self.path, place.offset, "no sound change")),
        }
    }
}

/// A version that was found.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// It is in memory.
    Memory(Arc<Kv>),
    /// It must be read.
    Disk(Arc<DataFile>, Place),
}

impl Found {
    /// Whether it must be read.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self, Self::Disk(..))
    }

    /// The version; may wait for the disk.
    pub(crate) fn read(self) -> Result<Arc<Kv>, StoreError> {
        match self {
            Self::Memory(kv) => Ok(kv),
            Self::Disk(file, place) => Ok(file.read(place)?.kv),
        }
    }
}

impl Told {
    /// The event; may wait for the disk.
    pub(crate) fn read(self) -> Result<Arc<Event>, StoreError> {
        match self {
            Self::Ready(event) => Ok(event),
            Self::Stored { key, main, kv, previous } => {
                let kv = kv.map(Found::read).transpose()?;
                let previous = previous.map(Found::read).transpose()?;
                Ok(Arc::new(Event { key, main, kv, previous }))
            }
        }
    }
}
