//! The open log segment: append a batch durably, or leave no trace of it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::DataFile;
use super::files::{Draft, segment_path};
use super::record::{Change, HEADER_LEN, Header, LOG_MAGIC, encode_frame};
use crate::{Revision, StoreError};

/// Room is made in steps of this size, once a segment has grown as large: a sync that need not record a new length
/// does not wait for the journal of the file system, which carries everybody's writes.
const ROOM: u64 = 1 << 20;

/// The segment that is being written.
pub(crate) struct Log {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    segment: u64,
    /// Everything before this offset is durable.
    end: u64,
    /// The length of the file; zeros lie between `end` and here.
    room: u64,
    /// Set once the durability of something already written is unknown.
    poison: Option<StoreError>,
    frame: Vec<u8>,
    /// Whether a batch is made durable before it is acknowledged.
    sync: bool,
}

impl Log {
    /// Starts segment number `segment`, which follows after `last`.
    pub(crate) fn create(dir: &Path, segment: u64, last: Revision) -> Result<Self, StoreError> {
        let mut draft = Draft::create(segment_path(dir, segment))?;
        let header = Header { segment, revision: last }.encode(LOG_MAGIC);
        if let Err(error) = draft.write(&header) {
            draft.discard();
            return Err(error);
        }
        let (path, file) = draft.publish()?;
        Ok(Self::at(dir, path, file, segment, HEADER_LEN as u64))
    }

    /// Continues an existing segment at `end`; what follows there is cut off.
    pub(crate) fn resume(dir: &Path, segment: u64, end: u64) -> Result<Self, StoreError> {
        let path = segment_path(dir, segment);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| StoreError::io("open", &path, source))?;
        let cut = file.set_len(end).and_then(|()| file.sync_all());
        cut.map_err(|source| StoreError::io("truncate", &path, source))?;
        Ok(Self::at(dir, path, file, segment, end))
    }

    pub(super) fn at(dir: &Path, path: PathBuf, file: File, segment: u64, end: u64) -> Self {
        Self {
            dir: dir.into(),
            path,
            file,
            segment,
            end,
            room: end,
            poison: None,
            frame: Vec::new(),
            sync: true,
        }
    }

    /// Leaves it to the operating system when a batch becomes durable: a power cut loses what was acknowledged.
    pub(crate) fn without_sync(mut self, without: bool) -> Self {
        self.sync = !without;
        self
    }

    /// The segment as versions are read from it.
    pub(crate) fn reader(&self) -> Result<Arc<DataFile>, StoreError> {
        let file =
            self.file.try_clone().map_err(|source| StoreError::io("open again", &self.path, source))?;
        Ok(Arc::new(DataFile { path: self.path.clone(), segment: self.segment, snapshot: false, file }))
    }

    /// The number of this segment.
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    /// Durable bytes in this segment.
    pub(crate) fn len(&self) -> u64 {
        self.end
    }

    /// Ends this segment and goes on in the next one.
    pub(crate) fn rotate(&mut self, last: Revision) -> Result<(), StoreError> {
        if let Some(poison) = &self.poison {
            return Err(poison.clone());
        }
        self.trim();
        *self = Self::create(&self.dir, self.segment + 1, last)?.without_sync(!self.sync);
        Ok(())
    }

    /// Gives back the room that is not needed.
    pub(crate) fn trim(&mut self) {
        if self.room > self.end && self.file.set_len(self.end).is_ok() {
            self.room = self.end;
        }
    }

    /// Makes room behind the frame that is about to be synced, so that the next ones overwrite zeros.
    fn make_room(&mut self, end: u64) {
        if end <= self.room {
            return;
        }
        self.room = end;
        if end >= ROOM {
            let zeros = vec![0; usize::try_from(ROOM).unwrap_or_default()];
            // Ignored: without room the next sync records a new length, which only takes longer.
            if self.file.write_all_at(&zeros, end).is_ok() {
                self.room = end + ROOM;
            }
        }
    }

    /// Appends `changes` as one frame and returns when it is durable.
    ///
    /// After an error nothing of the frame counts: a failed write is taken back, a failed sync
    /// poisons the log, because then nobody can know what a later crash would leave.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if let Some(poison) = &self.poison {
            return Err(poison.clone());
        }
        encode_frame(changes, self.end, &mut self.frame);
        if let Err(error) = self.file.write_all_at(&self.frame, self.end) {
            return Err(self.take_back(error));
        }
        self.make_room(self.end + self.frame.len() as u64);
        if self.sync
            && let Err(error) = self.file.sync_data()
        {
            return Err(self.poisoned(error));
        }
        self.end += self.frame.len() as u64;
        if self.frame.capacity() > 1 << 20 {
            self.frame = Vec::new();
        }
        Ok(())
    }

    fn take_back(&mut self, error: io::Error) -> StoreError {
        if let Err(truncate) = self.file.set_len(self.end) {
            return self.poisoned(truncate);
        }
        self.room = self.end;
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                StoreError::Full { path: self.path.clone(), source: Arc::new(error) }
            }
            _ => StoreError::io("append to", &self.path, error),
        }
    }

    fn poisoned(&mut self, error: io::Error) -> StoreError {
        let poison = StoreError::Poisoned { path: self.path.clone(), source: Arc::new(error) };
        self.poison.insert(poison).clone()
    }
}
