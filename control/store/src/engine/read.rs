//! Reads: what is gathered from the index under its lock, and the answer that is made of it without.

use podwire_wire::etcd::range_request::{SortOrder, SortTarget};
use podwire_wire::etcd::{KeyValue, RangeRequest, RangeResponse, ResponseHeader};

use super::disk::Found;
use super::index::{Index, Page};
use super::key::{Kv, Span};
use super::refused::Refused;
use crate::{Revision, StoreError};

/// A revision as the wire tells it.
pub(crate) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// A header that says only the revision.
pub(crate) fn header(revision: Revision) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision: signed(revision), ..ResponseHeader::default() })
}

/// A version as the wire tells it.
pub(crate) fn message(kv: &Kv) -> KeyValue {
    KeyValue {
        key: bytes::Bytes::copy_from_slice(kv.key.as_bytes()),
        value: kv.value.clone(),
        create_revision: signed(kv.create),
        mod_revision: signed(kv.main),
        version: signed(kv.version),
        lease: kv.lease,
    }
}

/// What a request found, before what is on disk is read.
#[derive(Debug)]
pub(crate) struct Gathered {
    page: Page,
    revision: Revision,
}

impl Gathered {
    /// Whether the answer must wait for the disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.page.found.iter().any(Found::is_on_disk)
    }
}

/// The revision that a request asks for, if it can be had; `newest` is what the reader may see.
pub(crate) fn revision(index: &Index, asked: i64, newest: Revision) -> Result<Revision, Refused> {
    let Some(asked) = u64::try_from(asked).ok().filter(|asked| *asked != 0) else { return Ok(newest) };
    if asked > newest {
        Err(Refused::FutureRevision)
    } else if index.compacted().is_some_and(|compacted| asked < compacted) {
        Err(Refused::Compacted)
    } else {
        Ok(asked)
    }
}

fn filters(request: &RangeRequest) -> bool {
    request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0
}

/// Looks up what a request asks for.
pub(crate) fn gather(index: &Index, request: &RangeRequest, newest: Revision) -> Result<Gathered, Refused> {
    let at = revision(index, request.revision, newest)?;
    let limit = match usize::try_from(request.limit) {
        _ if request.count_only => 0,
        _ if request.sort_order() != SortOrder::None || filters(request) => usize::MAX,
        Ok(0) | Err(_) => usize::MAX,
        // One more tells whether there are more.
        Ok(limit) => limit.saturating_add(1),
    };
    let span = Span::new(&request.key, &request.range_end);
    Ok(Gathered { page: index.range(&span, at, limit), revision: newest })
}

/// Makes the answer; may wait for the disk.
pub(crate) fn answer(gathered: Gathered, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
    let Gathered { page: Page { found, count }, revision } = gathered;
    let mut kvs = Vec::with_capacity(found.len());
    for one in found {
        kvs.push(message(&*one.read()?));
    }
    let within =
        |number: i64, least: i64, most: i64| (least == 0 || number >= least) && (most == 0 || number <= most);
    if filters(request) {
        kvs.retain(|kv| {
            within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
                && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
        });
    }
    sort(&mut kvs, request);
    let mut more = false;
    if let Ok(limit) = usize::try_from(request.limit)
        && limit > 0
        && kvs.len() > limit
    {
        kvs.truncate(limit);
        more = true;
    }
    if request.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value.clear());
    }
    Ok(RangeResponse { header: header(revision), kvs, more, count: i64::try_from(count).unwrap_or(i64::MAX) })
}

/// Without an order everything but keys is ascending: keys are so already.
fn sort(kvs: &mut [KeyValue], request: &RangeRequest) {
    let (order, target) = (request.sort_order(), request.sort_target());
    if target == SortTarget::Key && order != SortOrder::Descend {
        return;
    }
    kvs.sort_by(|a, b| {
        let ascending = match target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        if order == SortOrder::Descend { ascending.reverse() } else { ascending }
    });
}
