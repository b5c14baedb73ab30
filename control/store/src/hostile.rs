//! Log segments and snapshots with any contents, and what is restored from them, for fuzzing and for tests.
//!
//! Checksums are right however wrong the contents are: what is behind them is tried, not they.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;

use crate::engine::files::{segment_path, snapshot_path};
use crate::engine::index::{Index, Retention, Then};
use crate::engine::key::Kv;
use crate::engine::record::{
    Change, HEADER_LEN, Header, LOG_MAGIC, SNAPSHOT_MAGIC, Tag, VERSION, body_of, decode_frame, encode_frame,
    frame_of,
};
use crate::engine::recover;
use crate::{Revision, StoreError};

/// Bytes of the header of both files.
pub const HEADER: usize = HEADER_LEN;

/// What is restored from a directory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The newest revision.
    pub revision: Revision,
    /// Every live key with its value.
    pub keys: BTreeMap<String, Vec<u8>>,
}

/// The body of a frame that puts a value.
pub fn put(revision: Revision, key: &str, value: &[u8]) -> Vec<u8> {
    let value = Bytes::copy_from_slice(value);
    let kv = Kv { key: key.into(), value, create: revision, version: 1, ..Kv::nothing(revision) };
    body_of(&[Change::of(Tag::Put, 0, kv)])
}

/// The body of the last frame of a snapshot with `count` keys.
pub fn end(revision: Revision, count: u64) -> Vec<u8> {
    body_of(&[Change::end(revision, count, None)])
}

/// Writes a log segment with these frames.
pub fn write_log(dir: &Path, segment: u64, last: Revision, bodies: &[Vec<u8>]) -> std::io::Result<()> {
    std::fs::write(segment_path(dir, segment), file(LOG_MAGIC, segment, last, bodies))
}

/// Writes a snapshot with these frames.
pub fn write_snapshot(
    dir: &Path,
    segment: u64,
    revision: Revision,
    bodies: &[Vec<u8>],
) -> std::io::Result<()> {
    std::fs::write(snapshot_path(dir, segment), file(SNAPSHOT_MAGIC, segment, revision, bodies))
}

fn file(magic: [u8; 8], segment: u64, revision: Revision, bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Header { segment, revision }.encode(magic).to_vec();
    for body in bodies {
        let frame = frame_of(body, file.len() as u64);
        check_frame(&frame, body);
        file.extend(frame);
    }
    file
}

/// A frame that can be read is written again to the letter.
fn check_frame(frame: &[u8], body: &[u8]) {
    // Only at its own offset is a frame sound.
    let at = frame_of(body, 0);
    assert_eq!(at.len(), frame.len(), "a frame is as long wherever it lies");
    if let Some((changes, end)) = decode_frame(&at, 0, VERSION) {
        assert_eq!(end, at.len(), "a frame ends with its body");
        let changes: Vec<Change> = changes.into_iter().map(|(change, ..)| change).collect();
        let length: usize = changes.iter().map(Change::encoded_len).sum();
        assert_eq!(length, body.len(), "nothing of a body is left out");
        let mut again = Vec::new();
        encode_frame(&changes, 0, &mut again);
        assert_eq!(again, at, "what was read is written the same");
    }
}

/// Restores a directory as a start does.
pub fn restore(dir: &Path) -> Result<Restored, StoreError> {
    let retention = Retention {
        events: 100,
        bytes: 1 << 20,
        age_ms: 1000,
        settles_ms: 100,
        settled_bytes: 1 << 10,
        then: Then::Forgotten,
    };
    let mut index = Index::new(retention);
    recover::recover(dir, &mut index, 0, 1)?;
    let (found, remaining) = index.page("", None, usize::MAX, index.revision());
    assert_eq!(remaining, 0, "a page without a limit is all");
    let mut keys = BTreeMap::new();
    for one in found {
        let kv = one.read()?;
        keys.insert(kv.key.text().to_string(), kv.value.to_vec());
    }
    let live: usize = keys.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!(index.live_bytes(), live as u64, "the running sum is right");
    assert!(index.floor() <= index.revision(), "no history is promised that is still to come");
    Ok(Restored { revision: index.revision(), keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_frame_by_frame_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        write_snapshot(dir.path(), 2, 5, &[put(3, "/a", b"1"), end(5, 1)]).unwrap();
        write_log(dir.path(), 2, 5, &[put(6, "/b", b"2"), put(7, "/a", b"3")]).unwrap();
        let restored = restore(dir.path()).unwrap();
        let keys = [("/a", b"3"), ("/b", b"2")].map(|(key, value)| (key.to_owned(), value.to_vec()));
        assert_eq!(restored, Restored { revision: 7, keys: keys.into() });
    }

    #[test]
    fn a_synced_frame_that_is_not_understood_is_not_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        write_log(dir.path(), 1, 0, &[put(1, "/a", b"1"), b"of a later version".to_vec()]).unwrap();
        let before = std::fs::read(segment_path(dir.path(), 1)).unwrap();
        assert!(matches!(restore(dir.path()), Err(StoreError::Corrupt { .. })));
        assert_eq!(std::fs::read(segment_path(dir.path(), 1)).unwrap(), before);
    }

    #[test]
    fn revisions_that_cannot_be_are_refused_wherever_they_are() {
        let (dir, most) = (tempfile::tempdir().unwrap(), u64::MAX);
        let is_refused = || matches!(restore(dir.path()), Err(StoreError::Corrupt { .. }));
        for (last, bodies) in [(0, vec![put(most, "/a", b"1")]), (most, Vec::new())] {
            write_log(dir.path(), 1, last, &bodies).unwrap();
            assert!(is_refused());
        }
        write_log(dir.path(), 1, 0, &[]).unwrap();
        for (revision, bodies) in
            [(0, vec![put(most, "/a", b"1"), end(0, 1)]), (0, vec![end(most, 0)]), (most, vec![end(0, 0)])]
        {
            write_snapshot(dir.path(), 1, revision, &bodies).unwrap();
            assert!(is_refused());
        }
    }
}
