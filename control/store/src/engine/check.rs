//! What a request must be before it is looked at: keys, orders, numbers of operations, no key written twice. Pure.

use std::collections::HashSet;

use bytes::Bytes;
use podwire_wire::etcd::request_op::Request as Op;
use podwire_wire::etcd::{PutRequest, RangeRequest, RequestOp, TxnRequest, range_request};

use super::key::Span;
use super::refused::Refused;

/// Checks a read.
pub(crate) fn range(request: &RangeRequest) -> Result<(), Refused> {
    if request.key.is_empty() {
        return Err(Refused::EmptyKey);
    }
    let order = range_request::SortOrder::try_from(request.sort_order);
    let target = range_request::SortTarget::try_from(request.sort_target);
    if order.is_err() || target.is_err() { Err(Refused::InvalidSortOption) } else { Ok(()) }
}

/// Checks a write.
pub(crate) fn put(request: &PutRequest) -> Result<(), Refused> {
    if request.key.is_empty() {
        Err(Refused::EmptyKey)
    } else if request.ignore_value && !request.value.is_empty() {
        Err(Refused::ValueProvided)
    } else if request.ignore_lease && request.lease != 0 {
        Err(Refused::LeaseProvided)
    } else {
        Ok(())
    }
}

/// Checks a transaction of at most `most` operations, and those in it.
pub(crate) fn txn(request: &TxnRequest, most: usize) -> Result<(), Refused> {
    shape(request, most)?;
    intervals(&request.success)?;
    intervals(&request.failure)?;
    Ok(())
}

fn shape(request: &TxnRequest, most: usize) -> Result<(), Refused> {
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = most.checked_sub(longest).ok_or(Refused::TooManyOps)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Refused::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Op::RequestRange(request)) => range(request)?,
            Some(Op::RequestPut(request)) => put(request)?,
            Some(Op::RequestDeleteRange(request)) if request.key.is_empty() => return Err(Refused::EmptyKey),
            Some(Op::RequestDeleteRange(_)) => {}
            Some(Op::RequestTxn(request)) => shape(request, left)?,
            None => return Err(Refused::KeyNotFound),
        }
    }
    Ok(())
}

/// What one branch of a transaction writes and deletes.
#[derive(Default)]
struct Writes {
    puts: HashSet<Bytes>,
    deletes: Vec<Span>,
}

impl Writes {
    fn clashes(&self, key: &Bytes) -> bool {
        self.deletes.iter().any(|span| span.contains(key))
    }
}

/// A key is written at most once, and not deleted in the same transaction; of two branches only one is carried out.
/// Deletions of this level and of earlier transactions in it count, as upstream looks at them in that order. Upstream overlooks
/// deletions without an end (`\0`) and then writes and deletes a key at one revision; here that is refused too. It also refuses some
/// ranges whose end is before their start, which delete nothing.
fn intervals(ops: &[RequestOp]) -> Result<Writes, Refused> {
    let mut all = Writes::default();
    for op in ops {
        if let Some(Op::RequestDeleteRange(request)) = &op.request {
            all.deletes.push(Span::new(&request.key, &request.range_end));
        }
    }
    for op in ops {
        let Some(Op::RequestTxn(request)) = &op.request else { continue };
        let (then, other) = (intervals(&request.success)?, intervals(&request.failure)?);
        for key in &then.puts {
            if all.puts.contains(key) || all.clashes(key) {
                return Err(Refused::DuplicateKey);
            }
        }
        all.puts.extend(then.puts.iter().cloned());
        for key in &other.puts {
            if (all.puts.contains(key) && !then.puts.contains(key)) || all.clashes(key) {
                return Err(Refused::DuplicateKey);
            }
        }
        all.puts.extend(other.puts);
        all.deletes.extend(then.deletes);
        all.deletes.extend(other.deletes);
    }
    for op in ops {
        let Some(Op::RequestPut(request)) = &op.request else { continue };
        if all.clashes(&request.key) || !all.puts.insert(request.key.clone()) {
            return Err(Refused::DuplicateKey);
        }
    }
    Ok(all)
}

/// Whether a transaction only reads, whichever way it goes.
pub(crate) fn is_read_only(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).all(|op| match &op.request {
        Some(Op::RequestRange(_)) | None => true,
        Some(Op::RequestTxn(request)) => is_read_only(request),
        Some(Op::RequestPut(_) | Op::RequestDeleteRange(_)) => false,
    })
}

/// Whether a transaction may write a value.
pub(crate) fn puts(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).any(|op| match &op.request {
        Some(Op::RequestPut(_)) => true,
        Some(Op::RequestTxn(request)) => puts(request),
        Some(Op::RequestRange(_) | Op::RequestDeleteRange(_)) | None => false,
    })
}
