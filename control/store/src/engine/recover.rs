//! From the files of a directory to the state they describe: newest snapshot, then the log behind it.
//!
//! Only the end of the last segment may be damaged (a crash in the middle of a write that nobody was
//! told about, or zeros that were made room with); it is cut off and its revisions are never given out again. Damage anywhere else is an
//! error that names the file and the offset.

use std::path::Path;
use std::sync::Arc;

use super::disk::DataFile;
use super::files::{self, segment_path};
use super::index::{Index, NO_FILE};
use super::key::Place;
use super::log::Log;
use super::record::{
    Change, HEADER_LEN, Header, HeaderFault, LOG_MAGIC, MAX_REVISION, OLD_VERSION, Placed, Tag, VERSION,
    decode_frame, is_sound, sound_frame_behind,
};
use super::snapshot::{self, Loaded};
use crate::{Revision, StoreError};

/// No batch holds more revisions than this; a torn tail burns this many.
pub(crate) const MAX_BATCH: usize = 1024;

/// A store that was restored.
pub(crate) struct Recovered {
    /// Where to go on writing.
    pub(crate) log: Log,
    /// The number of the log's file in the index.
    pub(crate) file: u32,
    /// Bytes of the log since the last snapshot, without the open segment's.
    pub(crate) log_bytes: u64,
}

/// What was found in one segment.
struct Segment {
    changes: Vec<Placed>,
    version: u32,
    /// Where the sound part ends.
    end: u64,
    /// Whether something unsound follows there.
    torn: bool,
}

/// Restores `index` and opens the log behind it; a new store begins at `first`.
pub(crate) fn recover(
    dir: &Path,
    index: &mut Index,
    first: Revision,
    now_ms: u64,
) -> Result<Recovered, StoreError> {
    let mut contents = files::contents(dir)?;
    contents.unfinished.iter().for_each(|path| files::remove(path));
    let newest = contents.snapshots.last().copied();
    let loaded = match newest {
        Some(segment) => {
            snapshot::remove_older(dir, segment)?;
            contents.segments.retain(|old| *old >= segment);
            snapshot::load(dir, segment, index, now_ms)?
        }
        None => Loaded { fuzzy_until: 0, compacted: None },
    };
    if newest.is_none() && contents.segments.is_empty() {
        index.settle(first);
        return opened(Log::create(dir, 1, first)?, index, 0);
    }
    let expected = newest.unwrap_or(1);
    for (expected, found) in (expected..).zip(&contents.segments) {
        if expected != *found {
            return Err(StoreError::corrupt(segment_path(dir, expected), 0, "the segment is missing"));
        }
    }
    let Some((last, earlier)) = contents.segments.split_last() else {
        return Err(StoreError::corrupt(segment_path(dir, expected), 0, "the segment is missing"));
    };
    let snapshot_at = index.revision();
    index.put_in_order();
    let mut replay = Replay { dir, index, loaded, now_ms, last: None, log_bytes: 0 };
    for segment in earlier {
        let found = replay.segment(*segment)?;
        if found.torn {
            let path = segment_path(dir, *segment);
            return Err(StoreError::corrupt(
                path,
                found.end,
                "no sound frame, and this is not the last segment",
            ));
        }
        replay.log_bytes += found.end;
    }
    let found = replay.segment(*last)?;
    let (reached, log_bytes) = (replay.last.unwrap_or(0), replay.log_bytes);
    if reached < snapshot_at {
        let reason = format!("the log ends at revision {reached}, the snapshot at {snapshot_at}");
        return Err(StoreError::corrupt(segment_path(dir, *last), found.end, reason));
    }
    replay.finish();
    reopen(dir, *last, &found, index, log_bytes)
}

fn opened(log: Log, index: &mut Index, log_bytes: u64) -> Result<Recovered, StoreError> {
    let file = index.add_file(log.reader()?);
    Ok(Recovered { log, file, log_bytes })
}

fn reopen(
    dir: &Path,
    segment: u64,
    found: &Segment,
    index: &mut Index,
    log_bytes: u64,
) -> Result<Recovered, StoreError> {
    let path = segment_path(dir, segment);
    let mut log = if found.end < HEADER_LEN as u64 {
        Log::create(dir, segment, index.revision())?
    } else {
        Log::resume(dir, segment, found.end)?
    };
    let mut log_bytes = log_bytes;
    if found.version == OLD_VERSION && found.end >= HEADER_LEN as u64 {
        // Nothing is added to a file of another version.
        log_bytes += log.len();
        log.rotate(index.revision())?;
    }
    if found.torn {
        tracing::warn!(?path, offset = found.end, "cut off a torn tail; it was never acknowledged");
        let burnt = index.revision() + MAX_BATCH as u64;
        log.append(&[Change::marker(Tag::Advance, burnt)])?;
        index.settle_unused(burnt);
    }
    index.drop_files(|file| !file.snapshot && file.segment == log.segment());
    opened(log, index, log_bytes)
}

struct Replay<'a> {
    dir: &'a Path,
    index: &'a mut Index,
    loaded: Loaded,
    now_ms: u64,
    /// The last revision seen in the log.
    last: Option<Revision>,
    log_bytes: u64,
}

impl Replay<'_> {
    /// Reads a segment and enters its changes.
    fn segment(&mut self, segment: u64) -> Result<Segment, StoreError> {
        let mut found = read_segment(self.dir, segment, &mut self.last)?;
        let number = if found.version == OLD_VERSION || found.changes.is_empty() {
            NO_FILE
        } else {
            let path = segment_path(self.dir, segment);
            let file = std::fs::File::open(&path).map_err(|source| StoreError::io("open", &path, source))?;
            self.index.add_file(Arc::new(DataFile { path, segment, snapshot: false, file }))
        };
        for (change, offset, len) in std::mem::take(&mut found.changes) {
            self.change(&change, found.version, Place { offset, len, file: number });
        }
        Ok(found)
    }

    fn change(&mut self, change: &Change, version: u32, place: Place) {
        let kv = &change.kv;
        match change.tag {
            Tag::Put | Tag::Delete if version == OLD_VERSION => {
                let previous = self.index.current(kv.key.as_bytes()).cloned();
                let counted = snapshot::counted(change, previous.as_deref());
                if kv.main <= self.loaded.fuzzy_until {
                    self.index.load_over(&counted);
                } else {
                    self.index.enter(&counted, place);
                    self.index.publish(self.now_ms);
                }
            }
            Tag::Put | Tag::Delete => {
                self.index.enter(change, place);
                self.index.publish(self.now_ms);
            }
            Tag::Advance => self.index.settle_unused(kv.main),
            Tag::Compact => self.loaded.compacted = self.loaded.compacted.max(Some(kv.main)),
            Tag::Grant => {
                self.index.leases.grant(kv.lease, i64::try_from(kv.version).unwrap_or(0), self.now_ms)
            }
            Tag::Revoke => {
                self.index.leases.remove(kv.lease);
            }
            Tag::End => {}
        }
    }

    fn finish(self) {
        self.index.settle_unused(self.last.unwrap_or(0));
        if let Some(compacted) = self.loaded.compacted {
            self.index.compact(compacted.min(self.index.revision()));
            self.index.forget(usize::MAX);
        }
        self.index.attach_leases();
    }
}

/// Reads one segment; `last` is the revision before it and becomes the last one in it.
fn read_segment(dir: &Path, segment: u64, last: &mut Option<Revision>) -> Result<Segment, StoreError> {
    let path = segment_path(dir, segment);
    let file = files::read(&path)?;
    let (header, version) = match Header::decode(LOG_MAGIC, &file) {
        Ok(header) => header,
        Err(HeaderFault::Short) => {
            return Ok(Segment { changes: Vec::new(), version: VERSION, end: 0, torn: true });
        }
        Err(HeaderFault::Version(found)) => {
            return Err(StoreError::UnsupportedVersion { path, found, supported: VERSION });
        }
        Err(HeaderFault::Damaged) => return Err(StoreError::corrupt(path, 0, "not a log header")),
    };
    if header.segment != segment {
        return Err(StoreError::corrupt(path, 12, "the header names another segment than the file"));
    }
    if header.revision > MAX_REVISION {
        return Err(StoreError::corrupt(path, 20, "there is no such revision"));
    }
    if last.is_some_and(|last| last != header.revision) {
        let reason = format!("it follows revision {}, the one before ends elsewhere", header.revision);
        return Err(StoreError::corrupt(path, 20, reason));
    }
    let (mut changes, mut offset) = (Vec::new(), HEADER_LEN);
    // The sub revision that must follow; a revision of a version 1 file has only one change.
    let mut reached = Reached { main: header.revision, sub: None };
    while offset < file.len() {
        let Some((frame, end)) = decode_frame(&file, offset, version) else {
            // Room that was made and not used yet: nothing was ever written there.
            if file[offset..].iter().all(|byte| *byte == 0) {
                break;
            }
            if is_sound(&file, offset) {
                return Err(StoreError::corrupt(path, offset as u64, "a sound frame that is not understood"));
            }
            if sound_frame_behind(&file, offset) {
                return Err(StoreError::corrupt(
                    path,
                    offset as u64,
                    "unsound frame in front of a sound one",
                ));
            }
            *last = Some(reached.main);
            return Ok(Segment { changes, version, end: offset as u64, torn: true });
        };
        for (change, ..) in &frame {
            if let Err(reason) = reached.follow(change) {
                return Err(StoreError::corrupt(path, offset as u64, reason));
            }
        }
        changes.extend(frame);
        offset = end;
    }
    *last = Some(reached.main);
    Ok(Segment { changes, version, end: offset as u64, torn: false })
}

/// How far the changes of a log go.
struct Reached {
    main: Revision,
    sub: Option<u32>,
}

impl Reached {
    /// Checks that a change follows what was reached.
    fn follow(&mut self, change: &Change) -> Result<(), &'static str> {
        let (main, sub) = (change.kv.main, change.sub);
        if main > MAX_REVISION {
            return Err("there is no such revision");
        }
        if !change.tag.is_write() {
            return Ok(());
        }
        let same = main == self.main && self.sub.is_some_and(|last| sub == last + 1);
        if main <= self.main && !same || main > self.main && sub != 0 {
            return Err("revisions do not grow");
        }
        (self.main, self.sub) = (main, Some(sub));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::files::snapshot_path;
    use super::super::record::{SNAPSHOT_MAGIC, frame_of};
    use super::*;

    /// A change as version 1 wrote it.
    fn old(tag: Tag, main: Revision, create: u64, key: &str, value: &str) -> Vec<u8> {
        let lengths = [key.len(), value.len()].map(|len| u32::try_from(len).unwrap().to_le_bytes()).concat();
        let numbers = [main, create, 0].map(u64::to_le_bytes).concat();
        [&[tag as u8], numbers.as_slice(), &lengths, key.as_bytes(), value.as_bytes()].concat()
    }

    /// A file as version 1 wrote it.
    fn old_file(magic: [u8; 8], header: Header, bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut file = header.encode(magic).to_vec();
        file[8..12].copy_from_slice(&OLD_VERSION.to_le_bytes());
        let crc = crc32c::crc32c(&file[..28]);
        file[28..].copy_from_slice(&crc.to_le_bytes());
        for body in bodies {
            let frame = frame_of(body, file.len() as u64);
            file.extend(frame);
        }
        file
    }

    fn restored(dir: &Path) -> (Index, Recovered) {
        let mut index = Index::new(super::super::tests::retention());
        let recovered = recover(dir, &mut index, 0, 1).unwrap();
        (index, recovered)
    }

    fn shown(index: &Index) -> Vec<(String, Bytes, Revision, u64)> {
        let (found, _) = index.page("", None, usize::MAX, index.revision());
        let read = found.into_iter().map(|one| one.read().unwrap());
        read.map(|kv| (kv.key.text().to_string(), kv.value.clone(), kv.main, kv.version)).collect()
    }

    #[test]
    fn a_folder_of_version_1_is_read_and_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let header = Header { segment: 2, revision: 4 };
        // Taken while writes went on: /a is newer in it than where the log begins.
        let kept =
            [old(Tag::Put, 6, 1, "/a", "six"), old(Tag::Put, 2, 2, "/b", "two"), old(Tag::End, 7, 2, "", "")];
        std::fs::write(snapshot_path(dir, 2), old_file(SNAPSHOT_MAGIC, header, &kept)).unwrap();
        let log = [
            old(Tag::Put, 5, 1, "/a", "five"),
            old(Tag::Put, 6, 1, "/a", "six"),
            old(Tag::Delete, 7, 0, "/b", ""),
            old(Tag::Put, 8, 1, "/a", "eight"),
            old(Tag::Put, 9, 9, "/c", "nine"),
        ];
        std::fs::write(segment_path(dir, 2), old_file(LOG_MAGIC, header, &log)).unwrap();
        let expected = vec![("/a".to_owned(), "eight".into(), 8, 2), ("/c".to_owned(), "nine".into(), 9, 1)];
        for _ in 0..2 {
            let (index, recovered) = restored(dir);
            assert_eq!((shown(&index), index.revision(), index.floor()), (expected.clone(), 9, 7));
            assert_eq!(recovered.log.segment(), 3, "nothing is added to a file of another version");
            let live: u64 = expected.iter().map(|(key, value, ..)| (key.len() + value.len()) as u64).sum();
            assert_eq!(index.live_bytes(), live);
        }
        let (_, mut recovered) = restored(dir);
        let kv = crate::engine::key::Kv {
            key: "/d".into(),
            create: 10,
            version: 1,
            ..crate::engine::key::Kv::nothing(10)
        };
        recovered.log.append(&[Change::of(Tag::Put, 0, kv)]).unwrap();
        let (index, _) = restored(dir);
        assert_eq!((shown(&index).len(), index.revision()), (3, 10));
    }
}
