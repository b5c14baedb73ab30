//! The hash of everything that can be asked for up to a revision: as etcd computes it, so that two stores can be compared.

use prost::Message;

use crate::engine::index::Index;
use crate::engine::key::{Key, Version};
use crate::engine::read;
use crate::{Revision, StoreError};

/// How etcd names a change in its files: main and sub revision, and whether it is a deletion.
pub(super) fn name(main: Revision, sub: u32, gone: bool) -> Vec<u8> {
    let mut name = main.to_be_bytes().to_vec();
    name.push(b'_');
    name.extend(u64::from(sub).to_be_bytes());
    if gone {
        name.push(b't');
    }
    name
}

/// A change as etcd keeps it in its files.
pub(super) fn value(index: &Index, key: &Key, version: &Version) -> Result<Vec<u8>, StoreError> {
    let message = match (&version.kv, index.file(version.place)) {
        (Some(kv), _) => read::message(kv),
        (None, _) if version.gone => podwire_wire::etcd::KeyValue {
            key: bytes::Bytes::copy_from_slice(key.as_bytes()),
            ..podwire_wire::etcd::KeyValue::default()
        },
        (None, Some(file)) => read::message(&file.read(version.place)?.kv),
        (None, None) => {
            return Err(StoreError::corrupt("", version.place.offset, "a version without its file"));
        }
    };
    Ok(message.encode_to_vec())
}

/// Every change up to `revision` that can be asked for, in order.
pub(super) fn changes(index: &Index, revision: Revision) -> Vec<(Key, Version)> {
    let mut all = Vec::new();
    let mut last = None;
    loop {
        let (piece, reached) = index.versions_after(last.as_ref(), revision, false, u64::MAX);
        all.extend(piece);
        if reached.is_none() {
            break;
        }
        last = reached;
    }
    if let Some(compacted) = index.compacted() {
        // Of what was compacted only that counts which its key still holds at `revision`; when no key holds anything then, what it
        // held when it was compacted.
        let last_until = |at: usize, until: Revision| {
            let (key, version) = &all[at];
            version.main <= until
                && !version.gone
                && all.get(at + 1).is_none_or(|(next, later)| next != key || later.main > until)
        };
        let mut keep: Vec<bool> = (0..all.len()).map(|at| last_until(at, revision)).collect();
        if !keep.contains(&true) {
            keep = (0..all.len()).map(|at| last_until(at, compacted)).collect();
        }
        let mut keep = keep.into_iter();
        all.retain(|(_, version)| keep.next().unwrap_or(false) || version.main > compacted);
    }
    all.sort_unstable_by_key(|(_, version)| (version.main, version.sub));
    all
}

/// The checksum of all changes up to `revision`.
pub(super) fn hash(index: &Index, revision: Revision) -> Result<u32, StoreError> {
    let mut crc = crc32c::crc32c(b"key");
    for (key, version) in changes(index, revision) {
        crc = crc32c::crc32c_append(crc, &name(version.main, version.sub, version.gone));
        crc = crc32c::crc32c_append(crc, &value(index, &key, &version)?);
    }
    Ok(crc)
}
