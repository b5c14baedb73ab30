//! All live keys in one file, so that older log segments can go.
//!
//! It is written while writes go on, a piece at a time: a key may be in it as of a later revision than
//! the header names. Replaying the log from the header's segment on makes it exact again, because the
//! replay skips what a key already includes (see `Index::restore`).

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Shared;
use super::files::{self, Draft, snapshot_path};
use super::index::Index;
use super::record::{
    Change, HEADER_LEN, Header, HeaderFault, MAX_REVISION, SNAPSHOT_MAGIC, Tag, VERSION, decode_frame,
    encode_frame,
};
use crate::{Revision, StoreError};

/// How many bytes of keys are copied under one lock.
const PIECE: usize = 256 << 10;

/// Writes a snapshot onto which segments from `header.segment` on are to be replayed, then removes
/// what it replaces. `stop` abandons it.
pub(crate) fn write(
    shared: &Shared,
    dir: &Path,
    header: Header,
    stop: &AtomicBool,
) -> Result<(), StoreError> {
    let mut draft = Draft::create(snapshot_path(dir, header.segment))?;
    match fill(shared, &mut draft, header, stop) {
        Ok(true) => draft.publish()?,
        Ok(false) => {
            draft.discard();
            return Ok(());
        }
        Err(error) => {
            draft.discard();
            return Err(error);
        }
    };
    remove_older(dir, header.segment)
}

fn fill(shared: &Shared, draft: &mut Draft, header: Header, stop: &AtomicBool) -> Result<bool, StoreError> {
    draft.write(&header.encode(SNAPSHOT_MAGIC))?;
    let (mut offset, mut count, mut frame) = (HEADER_LEN as u64, 0, Vec::new());
    let mut last = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let (piece, revision) = {
            let index = shared.read();
            (piece_after(&index, last.as_deref()), index.revision())
        };
        let end = piece.is_empty();
        count += piece.len() as u64;
        let changes = if end { vec![Change::marker(Tag::End, revision, count)] } else { piece };
        encode_frame(&changes, offset, &mut frame);
        draft.write(&frame)?;
        offset += frame.len() as u64;
        if end {
            return Ok(true);
        }
        last = changes.last().map(|change| change.key.clone());
    }
}

fn piece_after(index: &Index, after: Option<&str>) -> Vec<Change> {
    let mut bytes = 0;
    index
        .entries_after(after)
        .take_while(|entry| {
            let fits = bytes < PIECE;
            bytes += entry.kv.key.len() + entry.kv.value.len();
            fits
        })
        .map(|entry| Change {
            tag: Tag::Put,
            revision: entry.kv.mod_revision,
            create_revision: entry.kv.create_revision,
            expires_ms: entry.expires_ms,
            key: entry.kv.key.clone(),
            value: entry.kv.value.clone(),
        })
        .collect()
}

/// Removes segments and snapshots that a snapshot numbered `segment` makes superfluous.
pub(crate) fn remove_older(dir: &Path, segment: u64) -> Result<(), StoreError> {
    let contents = files::contents(dir)?;
    for old in contents.segments.into_iter().filter(|old| *old < segment) {
        files::remove(&files::segment_path(dir, old));
    }
    for old in contents.snapshots.into_iter().filter(|old| *old < segment) {
        files::remove(&snapshot_path(dir, old));
    }
    Ok(())
}

/// Fills `index` from the snapshot numbered `segment`; returns the revision from which on the log
/// is exact history.
pub(crate) fn load(dir: &Path, segment: u64, index: &mut Index) -> Result<Revision, StoreError> {
    let path = snapshot_path(dir, segment);
    let file = files::read(&path)?;
    let header = match Header::decode(SNAPSHOT_MAGIC, &file) {
        Ok(header) => header,
        Err(HeaderFault::Version(found)) => {
            return Err(StoreError::UnsupportedVersion { path, found, supported: VERSION });
        }
        Err(_) => return Err(StoreError::corrupt(path, 0, "not a snapshot header")),
    };
    if header.segment != segment {
        return Err(StoreError::corrupt(path, 12, "the header names another segment than the file"));
    }
    if header.revision > MAX_REVISION {
        return Err(StoreError::corrupt(path, 20, "there is no such revision"));
    }
    let (mut offset, mut count) = (HEADER_LEN, 0);
    loop {
        let Some((changes, end)) = decode_frame(&file, offset) else {
            return Err(StoreError::corrupt(path, offset as u64, "no sound frame"));
        };
        for change in &changes {
            if change.revision > MAX_REVISION {
                return Err(StoreError::corrupt(path, offset as u64, "there is no such revision"));
            }
            if change.tag == Tag::End {
                if change.create_revision != count || end != file.len() {
                    return Err(StoreError::corrupt(path, offset as u64, "the end comes too early"));
                }
                return Ok(change.revision.max(header.revision));
            }
            index.restore(change);
            count += 1;
        }
        offset = end;
    }
}
