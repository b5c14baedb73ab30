//! The byte layout of the log and the snapshot: file headers, frames, changes. Pure.
//!
//! A file is a header and then frames. A frame is what one sync made durable: it names its own offset
//! and carries a checksum, so that a frame found *behind* a damaged one proves that the damaged one had
//! been synced before. That tells a torn tail (forgivable) from rot (an error).
//!
//! All integers are little endian.
//! - header: magic `[u8; 8]`, version `u32`, segment `u64`, revision `u64`, crc32c `u32`
//! - frame: magic `[u8; 4]`, body length `u32`, offset `u64`, crc32c `u32`, body
//! - change, version 2: tag `u8`, revision `u64`, sub revision `u32`, create revision `u64`, version `u64`, lease `i64`, expiry `u64`
//!   (Unix ms, 0 = never), key length `u32`, value length `u32`, crc32c `u32` of all of it but itself, key, value. It has a checksum of its
//!   own because old versions are read from their place, without the frame around them.
//! - change, version 1: tag, revision, create revision, expiry, key length, value length, key, value

use std::sync::Arc;

use bytes::Bytes;

use super::key::{Key, Kv};
use crate::Revision;

/// Version of both file formats, as they are written.
pub(crate) const VERSION: u32 = 2;
/// The version before, which is still read.
pub(crate) const OLD_VERSION: u32 = 1;
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
const CHANGE_HEADER_LEN: usize = 57;
/// Where the checksum of a change is; it is the last of its header.
const CHANGE_CRC: usize = 53;
const OLD_CHANGE_HEADER_LEN: usize = 33;
/// Bytes of a frame before its first change.
pub(crate) const FRAME_HEADER: u64 = FRAME_HEADER_LEN as u64;

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

    /// Reads the header at the start of `file`, and the version it is written in.
    pub(crate) fn decode(magic: [u8; 8], file: &[u8]) -> Result<(Self, u32), HeaderFault> {
        let head = file.get(..HEADER_LEN).ok_or(HeaderFault::Short)?;
        if head[..8] != magic || crc32c::crc32c(&head[..28]) != u32_at(head, 28) {
            return Err(HeaderFault::Damaged);
        }
        match u32_at(head, 8) {
            known @ (OLD_VERSION | VERSION) => {
                Ok((Self { segment: u64_at(head, 12), revision: u64_at(head, 20) }, known))
            }
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
    /// The last change of a snapshot: `create` is the number of changes before it, `version` one more than the compacted revision.
    End = 4,
    /// What is older than `main` is forgotten.
    Compact = 5,
    /// A lease `lease` of `version` seconds is granted.
    Grant = 6,
    /// The lease `lease` is no more; deletions of its keys go before it.
    Revoke = 7,
}

impl Tag {
    fn read(byte: u8, version: u32) -> Option<Self> {
        Some(match (byte, version) {
            (1, _) => Self::Put,
            (2, _) => Self::Delete,
            (3, _) => Self::Advance,
            (4, _) => Self::End,
            (5, VERSION) => Self::Compact,
            (6, VERSION) => Self::Grant,
            (7, VERSION) => Self::Revoke,
            _ => return None,
        })
    }

    /// Whether its `main` is a point of the sequence of writes.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Put | Self::Delete | Self::Advance)
    }
}

/// One entry of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) tag: Tag,
    /// Which change of its revision it is.
    pub(crate) sub: u32,
    /// The key and what it holds; what a tag does not need is zero.
    pub(crate) kv: Arc<Kv>,
}

impl Change {
    /// A change without a key.
    pub(crate) fn marker(tag: Tag, main: Revision) -> Self {
        Self::of(tag, 0, Kv::nothing(main))
    }

    /// The grant of a lease of so many seconds.
    pub(crate) fn grant(lease: i64, ttl: i64) -> Self {
        Self::of(Tag::Grant, 0, Kv { lease, version: u64::try_from(ttl).unwrap_or(0), ..Kv::nothing(0) })
    }

    /// The end of a lease.
    pub(crate) fn revoke(lease: i64) -> Self {
        Self::of(Tag::Revoke, 0, Kv { lease, ..Kv::nothing(0) })
    }

    /// The end of a snapshot with so many changes.
    pub(crate) fn end(main: Revision, count: u64, compacted: Option<Revision>) -> Self {
        let version = compacted.map_or(0, |compacted| compacted + 1);
        Self::of(Tag::End, 0, Kv { create: count, version, ..Kv::nothing(main) })
    }

    /// A change of a key.
    pub(crate) fn of(tag: Tag, sub: u32, kv: Kv) -> Self {
        Self { tag, sub, kv: Arc::new(kv) }
    }

    /// Bytes this change takes in a frame.
    pub(crate) fn encoded_len(&self) -> usize {
        CHANGE_HEADER_LEN + self.kv.key.len() + self.kv.value.len()
    }

    /// Adds the change to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kv, start) = (&self.kv, out.len());
        out.push(self.tag as u8);
        out.extend_from_slice(&kv.main.to_le_bytes());
        out.extend_from_slice(&self.sub.to_le_bytes());
        out.extend_from_slice(&kv.create.to_le_bytes());
        out.extend_from_slice(&kv.version.to_le_bytes());
        out.extend_from_slice(&kv.lease.to_le_bytes());
        out.extend_from_slice(&kv.expires_ms.to_le_bytes());
        out.extend_from_slice(&len32(kv.key.len()).to_le_bytes());
        out.extend_from_slice(&len32(kv.value.len()).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(kv.key.as_bytes());
        out.extend_from_slice(&kv.value);
        let crc = change_crc(&out[start..]);
        out[start + CHANGE_CRC..start + CHANGE_HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the change at the start of `body`, in a file of `version`; also how many bytes it has.
    pub(crate) fn decode(body: &[u8], version: u32) -> Option<(Self, usize)> {
        if version == OLD_VERSION {
            return Self::decode_old(body);
        }
        let head = body.get(..CHANGE_HEADER_LEN)?;
        let tag = Tag::read(head[0], version)?;
        let (key_len, value_len) = (u32_at(head, 45) as usize, u32_at(head, 49) as usize);
        let key_end = CHANGE_HEADER_LEN.checked_add(key_len)?;
        let end = key_end.checked_add(value_len)?;
        if change_crc(body.get(..end)?) != u32_at(head, CHANGE_CRC) {
            return None;
        }
        let kv = Kv {
            key: Key::copy(&body[CHANGE_HEADER_LEN..key_end]),
            value: Bytes::copy_from_slice(&body[key_end..end]),
            create: u64_at(head, 13),
            main: u64_at(head, 1),
            version: u64_at(head, 21),
            lease: i64::from_le_bytes(head[29..37].try_into().ok()?),
            expires_ms: u64_at(head, 37),
        };
        Some((Self { tag, sub: u32_at(head, 9), kv: Arc::new(kv) }, end))
    }

    fn decode_old(body: &[u8]) -> Option<(Self, usize)> {
        let head = body.get(..OLD_CHANGE_HEADER_LEN)?;
        let tag = Tag::read(head[0], OLD_VERSION)?;
        let (key_len, value_len) = (u32_at(head, 25) as usize, u32_at(head, 29) as usize);
        let key_end = OLD_CHANGE_HEADER_LEN.checked_add(key_len)?;
        let end = key_end.checked_add(value_len)?;
        let kv = Kv {
            key: Key::from(std::str::from_utf8(body.get(OLD_CHANGE_HEADER_LEN..key_end)?).ok()?),
            value: Bytes::copy_from_slice(body.get(key_end..end)?),
            main: u64_at(head, 1),
            create: u64_at(head, 9),
            version: 0,
            lease: 0,
            expires_ms: u64_at(head, 17),
        };
        Some((Self { tag, sub: 0, kv: Arc::new(kv) }, end))
    }
}

fn change_crc(change: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&change[..CHANGE_CRC]), &change[CHANGE_HEADER_LEN..])
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
pub(crate) fn frame_of(body: &[u8], offset: u64) -> Vec<u8> {
    let mut out = [&[0; FRAME_HEADER_LEN], body].concat();
    seal_frame(offset, &mut out);
    out
}

/// The body of a frame with these changes, for `hostile`.
pub(crate) fn body_of(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    changes.iter().for_each(|change| change.encode(&mut out));
    out
}

/// A change and where it lies: its offset in the file and how many bytes it has.
pub(crate) type Placed = (Change, u64, u32);

/// Reads the frame at `offset` of `file`; `None` if there is no whole, sound frame.
pub(crate) fn decode_frame(file: &[u8], offset: usize, version: u32) -> Option<(Vec<Placed>, usize)> {
    let frame = sound_frame(file, offset)?;
    let (mut changes, mut at) = (Vec::new(), FRAME_HEADER_LEN);
    while at < frame.len() {
        let (change, used) = Change::decode(&frame[at..], version)?;
        changes.push((change, (offset + at) as u64, len32(used)));
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

    fn put(main: Revision, key: &str, value: &'static [u8]) -> Change {
        let value = Bytes::from_static(value);
        let kv = Kv { key: key.into(), value, create: 1, main, version: 3, lease: -4, expires_ms: 9 };
        Change::of(Tag::Put, 5, kv)
    }

    /// A change as version 1 wrote it.
    fn old_put(main: Revision, key: &str, value: &[u8]) -> Vec<u8> {
        let lengths = [len32(key.len()), len32(value.len())].map(u32::to_le_bytes).concat();
        let numbers = [main, 2, 9].map(u64::to_le_bytes).concat();
        [&[1], numbers.as_slice(), &lengths, key.as_bytes(), value].concat()
    }

    #[test]
    fn a_change_of_version_1_is_read() {
        let (change, end) = Change::decode(&old_put(7, "/a", b"one"), OLD_VERSION).expect("sound");
        assert_eq!(end, 33 + 5);
        let kv =
            Kv { key: "/a".into(), value: "one".into(), create: 2, main: 7, expires_ms: 9, ..Kv::nothing(0) };
        assert_eq!(change, Change::of(Tag::Put, 0, kv));
        assert!(Change::decode(&old_put(7, "/a", b"one"), VERSION).is_none());
    }

    #[test]
    fn a_frame_reads_back_as_written() {
        let changes = vec![put(7, "/a", b"one"), Change::marker(Tag::Advance, 12), Change::grant(-8, 60)];
        let mut frame = Vec::new();
        encode_frame(&changes, 3, &mut frame);
        let file = [b"abc".as_slice(), &frame].concat();
        let (read, end) = decode_frame(&file, 3, VERSION).expect("sound");
        for (change, offset, len) in &read {
            let at = usize::try_from(*offset).unwrap();
            let alone = Change::decode(&file[at..at + *len as usize], VERSION).expect("sound alone");
            assert_eq!(alone, (change.clone(), *len as usize));
        }
        assert_eq!((read.into_iter().map(|(change, ..)| change).collect(), end), (changes, file.len()));
    }

    #[test]
    fn a_flip_of_any_bit_is_noticed() {
        let mut frame = Vec::new();
        encode_frame(&[put(7, "/a", b"one")], 0, &mut frame);
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(&bad, 0, VERSION).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_copied_elsewhere_is_not_sound_there() {
        let mut frame = Vec::new();
        encode_frame(&[put(7, "/a", b"one")], 0, &mut frame);
        let file = [b"x".as_slice(), &frame].concat();
        assert!(decode_frame(&file, 1, VERSION).is_none());
        assert!(!sound_frame_behind(&file, 0));
    }

    #[test]
    fn a_header_names_a_foreign_version() {
        let header = Header { segment: 3, revision: 9 };
        let mut bytes = header.encode(LOG_MAGIC);
        assert_eq!(Header::decode(LOG_MAGIC, &bytes), Ok((header, VERSION)));
        assert_eq!(Header::decode(SNAPSHOT_MAGIC, &bytes), Err(HeaderFault::Damaged));
        bytes[8] = 77;
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(LOG_MAGIC, &bytes), Err(HeaderFault::Version(77)));
        assert_eq!(Header::decode(LOG_MAGIC, &bytes[..31]), Err(HeaderFault::Short));
    }
}
