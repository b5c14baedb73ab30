//! From the files of a directory to the state they describe: newest snapshot, then the log behind it.
//!
//! Only the end of the last segment may be damaged (a crash in the middle of a write that nobody was
//! told about, or zeros that were made room with); it is cut off and its revisions are never given out again. Damage anywhere else is an
//! error that names the file and the offset.

use std::path::Path;

use super::files::{self, segment_path};
use super::index::Index;
use super::log::Log;
use super::record::{
    Change, HEADER_LEN, Header, HeaderFault, LOG_MAGIC, MAX_REVISION, Tag, VERSION, decode_frame, is_sound,
    sound_frame_behind,
};
use super::snapshot;
use crate::{Revision, StoreError};

/// No batch holds more changes than this; a torn tail burns this many revisions.
pub(crate) const MAX_BATCH: usize = 1024;

/// What was found in one segment.
struct Segment {
    changes: Vec<Change>,
    /// Where the sound part ends.
    end: u64,
    /// Whether something unsound follows there.
    torn: bool,
}

/// Restores `index` and opens the log behind it.
pub(crate) fn recover(dir: &Path, index: &mut Index, now_ms: u64) -> Result<Log, StoreError> {
    let mut contents = files::contents(dir)?;
    contents.unfinished.iter().for_each(|path| files::remove(path));
    let newest = contents.snapshots.last().copied();
    let first = newest.unwrap_or(1);
    // Keys in the snapshot may be as new as this; only behind it is the log exact history.
    let exact = match newest {
        Some(segment) => {
            snapshot::remove_older(dir, segment)?;
            contents.segments.retain(|old| *old >= segment);
            let exact = snapshot::load(dir, segment, index)?;
            index.settle(exact);
            exact
        }
        None => 0,
    };
    if newest.is_none() && contents.segments.is_empty() {
        return Log::create(dir, 1, 0);
    }
    for (expected, found) in (first..).zip(&contents.segments) {
        if expected != *found {
            return Err(StoreError::corrupt(segment_path(dir, expected), 0, "the segment is missing"));
        }
    }
    let Some((last, earlier)) = contents.segments.split_last() else {
        return Err(StoreError::corrupt(segment_path(dir, first), 0, "the segment is missing"));
    };
    let mut replay = Replay { index, exact, now_ms, last: None };
    for segment in earlier {
        let found = read_segment(dir, *segment, &mut replay.last)?;
        if found.torn {
            let path = segment_path(dir, *segment);
            return Err(StoreError::corrupt(
                path,
                found.end,
                "no sound frame, and this is not the last segment",
            ));
        }
        replay.all(&found.changes);
    }
    let found = read_segment(dir, *last, &mut replay.last)?;
    replay.all(&found.changes);
    let reached = replay.last.unwrap_or(0);
    if reached < exact {
        let reason = format!("the log ends at revision {reached}, the snapshot at {exact}");
        return Err(StoreError::corrupt(segment_path(dir, *last), found.end, reason));
    }
    reopen(dir, *last, &found, index, now_ms)
}

fn reopen(
    dir: &Path,
    segment: u64,
    found: &Segment,
    index: &mut Index,
    now_ms: u64,
) -> Result<Log, StoreError> {
    if !found.torn {
        return Log::resume(dir, segment, found.end);
    }
    let path = segment_path(dir, segment);
    tracing::warn!(?path, offset = found.end, "cut off a torn tail; it was never acknowledged");
    let mut log = if found.end < HEADER_LEN as u64 {
        Log::create(dir, segment, index.revision())?
    } else {
        Log::resume(dir, segment, found.end)?
    };
    let burnt = Change::marker(Tag::Advance, index.revision() + MAX_BATCH as u64, 0);
    log.append(std::slice::from_ref(&burnt))?;
    index.apply(&burnt, now_ms);
    Ok(log)
}

struct Replay<'a> {
    index: &'a mut Index,
    exact: Revision,
    now_ms: u64,
    /// The last revision seen in the log.
    last: Option<Revision>,
}

impl Replay<'_> {
    fn all(&mut self, changes: &[Change]) {
        for change in changes {
            if change.revision <= self.exact {
                self.index.restore(change);
            } else {
                self.index.apply(change, self.now_ms);
            }
        }
    }
}

/// Reads one segment; `last` is the revision before it and becomes the last one in it.
fn read_segment(dir: &Path, segment: u64, last: &mut Option<Revision>) -> Result<Segment, StoreError> {
    let path = segment_path(dir, segment);
    let file = files::read(&path)?;
    let header = match Header::decode(LOG_MAGIC, &file) {
        Ok(header) => header,
        Err(HeaderFault::Short) => return Ok(Segment { changes: Vec::new(), end: 0, torn: true }),
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
    let (mut changes, mut offset, mut reached) = (Vec::new(), HEADER_LEN, header.revision);
    while offset < file.len() {
        let Some((frame, end)) = decode_frame(&file, offset) else {
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
            *last = Some(reached);
            return Ok(Segment { changes, end: offset as u64, torn: true });
        };
        for change in &frame {
            if change.revision <= reached {
                return Err(StoreError::corrupt(path, offset as u64, "revisions do not grow"));
            }
            if change.revision > MAX_REVISION {
                return Err(StoreError::corrupt(path, offset as u64, "there is no such revision"));
            }
            reached = change.revision;
        }
        changes.extend(frame);
        offset = end;
    }
    *last = Some(reached);
    Ok(Segment { changes, end: offset as u64, torn: false })
}
