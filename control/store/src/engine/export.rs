//! Everything that can be asked for at one moment, as one file that stands alone: what a snapshot of an etcd is for its users.
//!
//! The file is a snapshot of the engine (`snapshot`, `record`) for a store whose log begins behind it, then zeros up to a multiple of 512
//! bytes, then the SHA-256 of all that: by this tail etcd's clients tell a whole file from a part of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Shared;
use super::disk::DataFile;
use super::index::Then;
use super::key::{Key, Kv, Version};
use super::record::{
    Change, HEADER_LEN, Header, HeaderFault, SNAPSHOT_MAGIC, Tag, VERSION, decode_frame, encode_frame,
};
use crate::{Revision, StoreError};

/// About how many bytes of versions are in one frame.
const PIECE: u64 = 256 << 10;
/// The part before the checksum is a multiple of this.
const BLOCK: usize = 512;
/// Bytes of the checksum.
const DIGEST: usize = 32;
/// The segment that a restored store begins with.
pub(crate) const SEGMENT: u64 = 1;

/// What is written next.
enum Next {
    Header,
    Leases,
    Versions,
    Tail,
    Nothing,
}

/// A file on its way: piece by piece, all of one moment.
pub(crate) struct Export {
    revision: Revision,
    compacted: Option<Revision>,
    leases: Vec<Change>,
    versions: std::vec::IntoIter<(Key, Version)>,
    /// The files that old versions are in stay open.
    files: BTreeMap<u32, Arc<DataFile>>,
    next: Next,
    offset: u64,
    count: u64,
    digest: Sha256,
}

impl Export {
    /// Takes note of all versions; their values are read later.
    pub(crate) fn begin(shared: &Shared) -> Self {
        let index = shared.read();
        let revision = index.revision();
        let newest = index.then() == Then::Forgotten;
        let (mut versions, mut files, mut last) = (Vec::new(), BTreeMap::new(), None);
        loop {
            let (found, reached) = index.versions_after(last.as_ref(), revision, newest, u64::MAX);
            for (_, version) in &found {
                if version.kv.is_none()
                    && let Some(file) = index.file(version.place)
                {
                    files.entry(version.place.file).or_insert(file);
                }
            }
            versions.extend(found);
            let Some(reached) = reached else { break };
            last = Some(reached);
        }
        let leases = index.leases.iter().map(|(id, lease)| Change::grant(id, lease.ttl)).collect();
        let compacted = if newest { Some(revision) } else { index.compacted() };
        Self {
            revision,
            compacted,
            leases,
            versions: versions.into_iter(),
            files,
            next: Next::Header,
            offset: 0,
            count: 0,
            digest: Sha256::new(),
        }
    }

    /// The revision of the moment.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// About how many bytes are still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.versions.as_slice().iter().map(|(_, version)| u64::from(version.place.len)).sum()
    }

    /// The next piece of the file; may wait for the disk.
    pub(crate) fn piece(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut out = Vec::new();
        match self.next {
            Next::Header => {
                let header = Header { segment: SEGMENT, revision: self.revision };
                out.extend_from_slice(&header.encode(SNAPSHOT_MAGIC));
                self.next = if self.leases.is_empty() { Next::Versions } else { Next::Leases };
            }
            Next::Leases => {
                let leases = std::mem::take(&mut self.leases);
                self.count += leases.len() as u64;
                encode_frame(&leases, self.offset, &mut out);
                self.next = Next::Versions;
            }
            Next::Versions => {
                let piece = self.versions()?;
                if piece.is_empty() {
                    self.next = Next::Tail;
                    return self.piece();
                }
                self.count += piece.len() as u64;
                encode_frame(&piece, self.offset, &mut out);
            }
            Next::Tail => {
                let end = Change::end(self.revision, self.count, self.compacted);
                encode_frame(&[end], self.offset, &mut out);
                let length = self.offset + out.len() as u64;
                let short = usize::try_from(length % BLOCK as u64).unwrap_or(0);
                out.resize(out.len() + (BLOCK - short) % BLOCK, 0);
                self.digest.update(&out);
                out.extend_from_slice(&std::mem::take(&mut self.digest).finalize());
                self.next = Next::Nothing;
                return Ok(Some(out));
            }
            Next::Nothing => return Ok(None),
        }
        self.offset += out.len() as u64;
        self.digest.update(&out);
        Ok(Some(out))
    }

    fn versions(&mut self) -> Result<Vec<Change>, StoreError> {
        let (mut piece, mut size) = (Vec::new(), 0);
        while size < PIECE
            && let Some((key, version)) = self.versions.next()
        {
            let Version { main, sub, gone, kv, place } = version;
            size += u64::from(place.len);
            piece.push(match (kv, self.files.get(&place.file)) {
                (Some(kv), _) => Change { tag: Tag::Put, sub, kv },
                (None, _) if gone => Change::of(Tag::Delete, sub, Kv { key, ..Kv::nothing(main) }),
                (None, Some(file)) => file.read(place)?,
                (None, None) => {
                    return Err(StoreError::corrupt("", place.offset, "a version without its file"));
                }
            });
        }
        Ok(piece)
    }
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) revision: Revision,
    /// Keys that are there at that revision.
    pub(crate) keys: u64,
    /// What cannot be asked for any more.
    pub(crate) compacted: Option<Revision>,
    /// Bytes of the engine's snapshot in it.
    pub(crate) length: usize,
}

/// Reads a whole file, checks all of it, and says what it holds; the reason if it is not whole or not one of ours.
pub(crate) fn check(file: &[u8]) -> Result<Contents, String> {
    if file.get(16..20) == Some(&[0xed, 0xda, 0x0c, 0xed]) {
        return Err("it is a snapshot of the real etcd, which etcdutl reads".into());
    }
    let Some(body) = file.len().checked_sub(DIGEST).filter(|length| length % BLOCK == 0 && *length > 0)
    else {
        return Err("it is no whole snapshot: its length is not that of one".into());
    };
    if Sha256::digest(&file[..body]).as_slice() != &file[body..] {
        return Err("it is damaged: its checksum does not agree".into());
    }
    let header = match Header::decode(SNAPSHOT_MAGIC, file) {
        Ok((header, VERSION)) if header.segment == SEGMENT => header,
        Ok(_) => return Err("it is a file of a store's folder, not a snapshot that stands alone".into()),
        Err(HeaderFault::Version(found)) => {
            return Err(format!("it has format version {found}, this program reads {VERSION}"));
        }
        Err(HeaderFault::Short | HeaderFault::Damaged) => {
            return Err("it does not begin as a snapshot".into());
        }
    };
    let (mut at, mut count, mut keys) = (HEADER_LEN, 0, 0);
    // Versions of a key follow each other, so a key lives if its last one here is none of a deletion.
    let mut last: Option<(Key, bool)> = None;
    loop {
        let (changes, end) = decode_frame(&file[..body], at, VERSION)
            .ok_or_else(|| format!("it has no sound frame at {at}"))?;
        for (change, ..) in changes {
            match change.tag {
                Tag::End if change.kv.create == count && file[end..body].iter().all(|byte| *byte == 0) => {
                    keys += u64::from(last.is_some_and(|(_, lives)| lives));
                    let compacted = change.kv.version.checked_sub(1);
                    return Ok(Contents { revision: header.revision, keys, compacted, length: end });
                }
                Tag::End => return Err("its end comes too early".into()),
                Tag::Put | Tag::Delete => {
                    let lives = change.tag == Tag::Put;
                    let before = last.replace((change.kv.key.clone(), lives));
                    keys += u64::from(before.is_some_and(|(key, lived)| lived && key != change.kv.key));
                }
                _ => {}
            }
            count += 1;
        }
        at = end;
    }
}
