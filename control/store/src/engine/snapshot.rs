//! Everything that can still be asked for in one file, so that older files can go.
//!
//! It is written while writes go on, a piece at a time, and holds versions up to the revision at which the log was rotated;
//! what came later is in the log from the header's segment on. What was compacted while it was written may be in it or
//! not: its end says up to where.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Shared;
use super::disk::DataFile;
use super::files::{self, Draft, snapshot_path};
use super::index::{Index, NO_FILE, Then};
use super::key::{Key, Kv, Place, Version};
use super::record::{
    Change, FRAME_HEADER, HEADER_LEN, Header, HeaderFault, MAX_REVISION, OLD_VERSION, SNAPSHOT_MAGIC, Tag,
    VERSION, decode_frame, encode_frame,
};
use crate::{Revision, StoreError};

/// About how many bytes of versions are in one frame.
const PIECE: u64 = 256 << 10;

/// Writes a snapshot onto which segments from `header.segment` on are to be replayed, then removes
/// what it replaces; how long it is. `stop` abandons it.
pub(crate) fn write(
    shared: &Shared,
    dir: &Path,
    header: Header,
    stop: &AtomicBool,
) -> Result<Option<u64>, StoreError> {
    let mut draft = Draft::create(snapshot_path(dir, header.segment))?;
    let length = match fill(shared, &mut draft, header, stop) {
        Ok(Some(length)) => {
            draft.publish()?;
            length
        }
        Ok(None) => {
            draft.discard();
            return Ok(None);
        }
        Err(error) => {
            draft.discard();
            return Err(error);
        }
    };
    remove_older(dir, header.segment)?;
    shared.write().drop_files(|file| file.segment < header.segment);
    Ok(Some(length))
}

fn fill(
    shared: &Shared,
    draft: &mut Draft,
    header: Header,
    stop: &AtomicBool,
) -> Result<Option<u64>, StoreError> {
    draft.write(&header.encode(SNAPSHOT_MAGIC))?;
    // Versions are read from here as soon as they are written; should the snapshot fail, the open file goes on to hold them.
    let path = snapshot_path(Path::new(""), header.segment);
    let file = draft.file.try_clone().map_err(|source| StoreError::io("open again", &path, source))?;
    let file = Arc::new(DataFile { path, segment: header.segment, snapshot: true, file });
    let number = shared.write().add_file(file);
    let (mut offset, mut count, mut frame) = (HEADER_LEN as u64, 0, Vec::new());
    let leases: Vec<Change> = {
        let index = shared.read();
        index.leases.iter().map(|(id, lease)| Change::grant(id, lease.ttl)).collect()
    };
    for piece in leases.chunks(4096) {
        count += piece.len() as u64;
        encode_frame(piece, offset, &mut frame);
        draft.write(&frame)?;
        offset += frame.len() as u64;
    }
    let mut last: Option<Key> = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (piece, reached) = piece_after(shared, last.as_ref(), header.revision)?;
        if !piece.is_empty() {
            count += piece.len() as u64;
            encode_frame(&piece, offset, &mut frame);
            draft.write(&frame)?;
            shared.write().relocate(&moved(&piece, number, offset + FRAME_HEADER));
            offset += frame.len() as u64;
        }
        let Some(reached) = reached else { break };
        last = Some(reached);
    }
    let (then, compacted, revision) = {
        let index = shared.read();
        (index.then(), index.compacted(), index.revision())
    };
    let compacted = match then {
        Then::OnDisk => compacted,
        // Only the newest versions are here, as of some moment until now.
        Then::Forgotten => Some(revision),
    };
    encode_frame(&[Change::end(header.revision, count, compacted)], offset, &mut frame);
    draft.write(&frame)?;
    Ok(Some(offset + frame.len() as u64))
}

/// The next versions to write, and the last key that was looked at.
fn piece_after(
    shared: &Shared,
    after: Option<&Key>,
    revision: Revision,
) -> Result<(Vec<Change>, Option<Key>), StoreError> {
    let (versions, files, reached) = {
        let index = shared.read();
        let newest = index.then() == Then::Forgotten;
        let (versions, reached) = index.versions_after(after, revision, newest, PIECE);
        let files: Vec<_> = versions.iter().map(|(_, version)| index.file(version.place)).collect();
        (versions, files, reached)
    };
    let mut piece = Vec::with_capacity(versions.len());
    for ((key, version), file) in versions.into_iter().zip(files) {
        let Version { main, sub, gone, kv, place } = version;
        piece.push(match (kv, file) {
            (Some(kv), _) => Change { tag: Tag::Put, sub, kv },
            (None, _) if gone => Change::of(Tag::Delete, sub, Kv { key, ..Kv::nothing(main) }),
            (None, Some(file)) => file.read(place)?,
            (None, None) => return Err(StoreError::corrupt("", place.offset, "a version without its file")),
        });
    }
    Ok((piece, reached))
}

/// Where the changes of a frame lie whose first one is at `offset`.
fn moved(piece: &[Change], file: u32, mut offset: u64) -> Vec<(Key, Revision, Place)> {
    let mut moved = Vec::with_capacity(piece.len());
    for change in piece {
        let len = u32::try_from(change.encoded_len()).expect("a change is bounded well below 4 GiB");
        moved.push((change.kv.key.clone(), change.kv.main, Place { offset, len, file }));
        offset += u64::from(len);
    }
    moved
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

/// What a snapshot said about itself.
pub(crate) struct Loaded {
    /// Changes of the log up to here may be in the keys already; later ones are not.
    pub(crate) fuzzy_until: Revision,
    /// What cannot be asked for any more.
    pub(crate) compacted: Option<Revision>,
}

/// Fills `index` from the snapshot numbered `segment`.
pub(crate) fn load(dir: &Path, segment: u64, index: &mut Index, now_ms: u64) -> Result<Loaded, StoreError> {
    let path = snapshot_path(dir, segment);
    let file = files::read(&path)?;
    let (header, version) = match Header::decode(SNAPSHOT_MAGIC, &file) {
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
    let number = if version == OLD_VERSION {
        NO_FILE
    } else {
        let open = std::fs::File::open(&path).map_err(|source| StoreError::io("open", &path, source))?;
        index.add_file(Arc::new(DataFile { path: path.clone(), segment, snapshot: true, file: open }))
    };
    let (mut at, mut count) = (HEADER_LEN, 0);
    loop {
        let Some((changes, end)) = decode_frame(&file, at, version) else {
            return Err(StoreError::corrupt(path, at as u64, "no sound frame"));
        };
        for (change, offset, len) in &changes {
            let kv = &change.kv;
            if kv.main > MAX_REVISION || kv.create > MAX_REVISION && change.tag != Tag::End {
                return Err(StoreError::corrupt(path, at as u64, "there is no such revision"));
            }
            match change.tag {
                Tag::End => {
                    if kv.create != count || end != file.len() {
                        return Err(StoreError::corrupt(path, at as u64, "the end comes too early"));
                    }
                    index.settle(kv.main.max(header.revision));
                    return Ok(loaded(&header, version, kv));
                }
                Tag::Grant => index.leases.grant(kv.lease, i64::try_from(kv.version).unwrap_or(0), now_ms),
                Tag::Put | Tag::Delete if version == OLD_VERSION => index.load_over(&counted(change, None)),
                Tag::Put | Tag::Delete => {
                    let place = Place { offset: *offset, len: *len, file: number };
                    if !index.load(change, place) {
                        return Err(StoreError::corrupt(path, *offset, "versions of a key are out of order"));
                    }
                }
                _ => return Err(StoreError::corrupt(path, at as u64, "a change that is not of a snapshot")),
            }
            count += 1;
        }
        at = end;
    }
}

fn loaded(header: &Header, version: u32, end: &Kv) -> Loaded {
    if version == OLD_VERSION {
        let exact = end.main.max(header.revision);
        Loaded { fuzzy_until: exact, compacted: Some(exact) }
    } else {
        let compacted = end.version.checked_sub(1).map(|compacted| compacted.min(MAX_REVISION));
        Loaded { fuzzy_until: 0, compacted }
    }
}

/// A change of version 1 with the number of writes that it did not say: counted on from what is known.
pub(crate) fn counted(change: &Change, previous: Option<&Kv>) -> Change {
    let mut kv = Kv::clone(&change.kv);
    kv.version = match previous {
        Some(previous) if kv.create != kv.main => previous.version + 1,
        _ => 1,
    };
    Change::of(change.tag, change.sub, kv)
}
