//! The byte layout of the log and the snapshot: file headers, frames, changes. Pure.
//!
//! A file is a header and then frames. A frame is what one sync made durable: it names its own offset
//! and carries a checksum, so that a frame found *behind* a damaged one proves that the damaged one had
//! been synced before. That tells a torn tail (forgivable) from rot (an error).
//!
//! All integers are little endian.
//! - header: magic `[u8; 8]`, version `u32`, segment `u64`, revision `u64`, crc32c `u32`
//! - frame: magic `[u8; 4]`, body length `u32`, offset `u64`, crc32c `u32`, body
//! - change: tag `u8`, revision `u64`, create revision `u64`, expiry `u64` (Unix ms, 0 = never),
//!   key length `u32`, value length `u32`, key, value

use std::sync::Arc;

use bytes::Bytes;

use crate::Revision;

/// Version of both file formats.
pub(crate) const VERSION: u32 = 1;
/// First bytes of a log segment.
pub(crate) const LOG_MAGIC: [u8; 8] = *b"PODWLOG\0";
/// First bytes of a snapshot.
pub(crate) const SNAPSHOT_MAGIC: [u8; 8] = *b"PODWSNAP";
/// Bytes of a file header.
pub(crate) const HEADER_LEN: usize = 32;
/// Largest key and value together that one change may carry.
pub(crate) const MAX_CHANGE: usize = 16 << 20;

/// The largest revision there can be: clients know them as signed numbers.
pub(crate) const MAX_REVISION: Revision = i64::MAX as Revision;

const FRAME_MAGIC: [u8; 4] = *b"pwfr";
const FRAME_HEADER_LEN: usize = 20;
const CHANGE_HEADER_LEN: usize = 33;

/// The start of a log segment or snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// A log's own number; in a snapshot the first segment that must be replayed onto it.
    pub(crate) segment: u64,
    /// A log: the last revision before it. A snapshot: every change up to here is in it.
    pub(crate) revision: Revision,
}

/// What is wrong with a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// The file ends inside the header.
    Short,
    /// Not one of our files, or a damaged one.
    Damaged,
    /// Written by another version.
    Version(u32),
}

impl Header {
    /// The header's bytes.
    pub(crate) fn encode(self, magic: [u8; 8]) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(&magic);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..20].copy_from_slice(&self.segment.to_le_bytes());
        out[20..28].copy_from_slice(&self.revision.to_le_bytes());
        let crc = crc32c::crc32c(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header at the start of `file`.
    pub(crate) fn decode(magic: [u8; 8], file: &[u8]) -> Result<Self, HeaderFault> {
        let head = file.get(..HEADER_LEN).ok_or(HeaderFault::Short)?;
        if head[..8] != magic || crc32c::crc32c(&head[..28]) != u32_at(head, 28) {
            return Err(HeaderFault::Damaged);
        }
        match u32_at(head, 8) {
            VERSION => Ok(Self { segment: u64_at(head, 12), revision: u64_at(head, 20) }),
            found => Err(HeaderFault::Version(found)),
        }
    }
}

/// What a change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// The key now holds the value.
    Put = 1,
    /// The key is gone.
    Delete = 2,
    /// Revisions up to this one are used up, although no change carries them.
    Advance = 3,
    /// The last change of a snapshot; `create_revision` holds the number of keys in it.
    End = 4,
}

/// One entry of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) tag: Tag,
    pub(crate) revision: Revision,
    pub(crate) create_revision: Revision,
    /// Unix milliseconds; 0 means never.
    pub(crate) expires_ms: u64,
    pub(crate) key: Arc<str>,
    pub(crate) value: Bytes,
}

impl Change {
    /// A change that only moves the revision (`Advance`, `End`).
    pub(crate) fn marker(tag: Tag, revision: Revision, count: u64) -> Self {
        Self { tag, revision, create_revision: count, expires_ms: 0, key: "".into(), value: Bytes::new() }
    }

    /// Bytes this change takes in a frame.
    pub(crate) fn encoded_len(&self) -> usize {
        CHANGE_HEADER_LEN + self.key.len() + self.value.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag as u8);
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&self.create_revision.to_le_bytes());
        out.extend_from_slice(&self.expires_ms.to_le_bytes());
        out.extend_from_slice(&len32(self.key.len()).to_le_bytes());
        out.extend_from_slice(&len32(self.value.len()).to_le_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(&self.value);
    }

    fn decode(body: &[u8]) -> Option<(Self, usize)> {
        let head = body.get(..CHANGE_HEADER_LEN)?;
        let tag = match head[0] {
            1 => Tag::Put,
            2 => Tag::Delete,
            3 => Tag::Advance,
            4 => Tag::End,
            _ => return None,
        };
        let (key_len, value_len) = (u32_at(head, 25) as usize, u32_at(head, 29) as usize);
        let key_end = CHANGE_HEADER_LEN.checked_add(key_len)?;
        let end = key_end.checked_add(value_len)?;
        let key = std::str::from_utf8(body.get(CHANGE_HEADER_LEN..key_end)?).ok()?;
        let change = Self {
            tag,
            revision: u64_at(head, 1),
            create_revision: u64_at(head, 9),
            expires_ms: u64_at(head, 17),
            key: key.into(),
            value: Bytes::copy_from_slice(body.get(key_end..end)?),
        };
        Some((change, end))
    }
}

/// Replaces `out` by one frame that will lie at `offset` of its file.
pub(crate) fn encode_frame(changes: &[Change], offset: u64, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0; FRAME_HEADER_LEN]);
    for change in changes {
        change.encode(out);
    }
    seal_frame(offset, out);
}

/// Fills in the header of the frame in `out`, whose body is behind the room for it.
fn seal_frame(offset: u64, out: &mut [u8]) {
    let body_len = len32(out.len() - FRAME_HEADER_LEN);
    out[..4].copy_from_slice(&FRAME_MAGIC);
    out[4..8].copy_from_slice(&body_len.to_le_bytes());
    out[8..16].copy_from_slice(&offset.to_le_bytes());
    let crc = frame_crc(out);
    out[16..20].copy_from_slice(&crc.to_le_bytes());
}

/// A frame with any body, for `hostile`.
pub(super) fn frame_of(body: &[u8], offset: u64) -> Vec<u8> {
    let mut out = [&[0; FRAME_HEADER_LEN], body].concat();
    seal_frame(offset, &mut out);
    out
}

/// The body of a frame with these changes, for `hostile`.
pub(super) fn body_of(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    changes.iter().for_each(|change| change.encode(&mut out));
    out
}

/// Reads the frame at `offset` of `file`; `None` if there is no whole, sound frame.
pub(crate) fn decode_frame(file: &[u8], offset: usize) -> Option<(Vec<Change>, usize)> {
    let frame = sound_frame(file, offset)?;
    let (mut changes, mut at) = (Vec::new(), FRAME_HEADER_LEN);
    while at < frame.len() {
        let (change, used) = Change::decode(&frame[at..])?;
        changes.push(change);
        at += used;
    }
    Some((changes, offset + frame.len()))
}

/// Whether a sound frame lies at `offset`, understood or not: then it had been synced.
pub(crate) fn is_sound(file: &[u8], offset: usize) -> bool {
    sound_frame(file, offset).is_some()
}

/// Whether any sound frame begins behind `offset`: then the bytes at `offset` had been synced once.
pub(crate) fn sound_frame_behind(file: &[u8], offset: usize) -> bool {
    let rest = file.get(offset + 1..).unwrap_or_default();
    rest.windows(FRAME_MAGIC.len())
        .enumerate()
        .any(|(at, window)| window == FRAME_MAGIC && sound_frame(file, offset + 1 + at).is_some())
}

fn sound_frame(file: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = file.get(offset..)?;
    let head = rest.get(..FRAME_HEADER_LEN)?;
    let frame = rest.get(..FRAME_HEADER_LEN.checked_add(u32_at(head, 4) as usize)?)?;
    let sound =
        head[..4] == FRAME_MAGIC && u64_at(head, 8) == offset as u64 && frame_crc(frame) == u32_at(head, 16);
    sound.then_some(frame)
}

fn frame_crc(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..16]), &frame[FRAME_HEADER_LEN..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were sliced"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were sliced"))
}

fn len32(len: usize) -> u32 {
    u32::try_from(len).expect("batches and changes are bounded well below 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: Revision, key: &str, value: &'static [u8]) -> Change {
        Change {
            tag: Tag::Put,
            revision,
            create_revision: 1,
            expires_ms: 9,
            key: key.into(),
            value: Bytes::from_static(value),
        }
    }

    #[test]
    fn a_frame_reads_back_as_written() {
        let changes = vec![put(7, "/a", b"one"), Change::marker(Tag::Advance, 12, 0)];
        let mut frame = Vec::new();
        encode_frame(&changes, 3, &mut frame);
        let file = [b"abc".as_slice(), &frame].concat();
        let (read, end) = decode_frame(&file, 3).expect("sound");
        assert_eq!((read, end), (changes, file.len()));
    }

    #[test]
    fn a_flip_of_any_bit_is_noticed() {
        let mut frame = Vec::new();
        encode_frame(&[put(7, "/a", b"one")], 0, &mut frame);
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(&bad, 0).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_copied_elsewhere_is_not_sound_there() {
        let mut frame = Vec::new();
        encode_frame(&[put(7, "/a", b"one")], 0, &mut frame);
        let file = [b"x".as_slice(), &frame].concat();
        assert!(decode_frame(&file, 1).is_none());
        assert!(!sound_frame_behind(&file, 0));
    }

    #[test]
    fn a_header_names_a_foreign_version() {
        let header = Header { segment: 3, revision: 9 };
        let mut bytes = header.encode(LOG_MAGIC);
        assert_eq!(Header::decode(LOG_MAGIC, &bytes), Ok(header));
        assert_eq!(Header::decode(SNAPSHOT_MAGIC, &bytes), Err(HeaderFault::Damaged));
        bytes[8] = 77;
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(LOG_MAGIC, &bytes), Err(HeaderFault::Version(77)));
        assert_eq!(Header::decode(LOG_MAGIC, &bytes[..31]), Err(HeaderFault::Short));
    }
}
