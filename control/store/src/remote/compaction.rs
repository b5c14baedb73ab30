//! Compaction as upstream's API servers agree on it: whoever finds the key `compact_rev_key` as he left it compacts.
//!
//! What is forgotten is what was there a round ago, so history lasts between one round and two.

use bytes::Bytes;
use podwire_wire::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use podwire_wire::etcd::request_op::Request as Wanted;
use podwire_wire::etcd::response_op::Response as Given;
use podwire_wire::etcd::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use tokio_util::sync::CancellationToken;

use super::failure::Attempt;
use super::{Inner, Remote, revision_of};
use crate::{Revision, StoreError};

/// What the servers of one cluster agree by; it is outside of every prefix.
const KEY: &[u8] = b"compact_rev_key";

/// What a server remembers from round to round.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Round {
    /// The version of the key that this server knows.
    version: i64,
    /// The newest revision a round ago; 0 before the first.
    revision: Revision,
}

impl Remote {
    /// Compacts history until `shutdown`; returns at once if that is left to others.
    pub async fn run(&self, shutdown: CancellationToken) {
        let interval = self.inner.interval;
        if interval.is_zero() {
            return;
        }
        let mut round = Round::default();
        loop {
            let done = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                done = self.inner.compact_round(round) => done,
            };
            match done {
                Ok(next) => round = next,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "history not compacted; will retry"
                    );
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(interval) => {}
            }
        }
    }
}

impl Inner {
    async fn compact_round(&self, round: Round) -> Result<Round, StoreError> {
        let request = request(round);
        let answer = self.members.call(Attempt::Write, |members| {
            let request = request.clone();
            async move { members.kv().txn(request).await }
        });
        let (next, mine) = match answer.await {
            Ok(answer) => after(round, &answer),
            // Nothing can be written any more, and compacting is what helps against that.
            Err(StoreError::Refused { reason }) if reason.contains("database space exceeded") => {
                tracing::error!("etcd is out of space: compacting without the other API servers' consent");
                (Round { revision: self.newest().await?, ..round }, true)
            }
            Err(error) => return Err(error),
        };
        if mine && round.revision != 0 {
            self.compact(round.revision).await?;
            tracing::debug!(revision = round.revision, "history compacted");
        }
        Ok(next)
    }
}

fn request(round: Round) -> TxnRequest {
    let key = Bytes::from_static(KEY);
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Version.into(),
        key: key.clone(),
        range_end: Bytes::new(),
        target_union: Some(TargetUnion::Version(round.version)),
    };
    let value = Bytes::from(round.revision.to_string());
    let put = Wanted::RequestPut(PutRequest { key: key.clone(), value, ..PutRequest::default() });
    let get = Wanted::RequestRange(RangeRequest { key, ..RangeRequest::default() });
    let only = |request| vec![RequestOp { request: Some(request) }];
    TxnRequest { compare: vec![compare], success: only(put), failure: only(get) }
}

/// The next round, and whether this one is ours to compact.
fn after(round: Round, answer: &TxnResponse) -> (Round, bool) {
    let revision = revision_of(answer.header.as_ref());
    if answer.succeeded {
        return (Round { version: round.version + 1, revision }, true);
    }
    let version = match answer.responses.first().and_then(|one| one.response.as_ref()) {
        Some(Given::ResponseRange(found)) => found.kvs.first().map_or(0, |kv| kv.version),
        _ => 0,
    };
    (Round { version, revision }, false)
}

#[cfg(test)]
mod tests {
    use podwire_wire::etcd::{KeyValue, RangeResponse, ResponseHeader, ResponseOp};

    use super::*;

    #[test]
    fn who_was_overtaken_learns_the_version_and_does_not_compact() {
        let header = Some(ResponseHeader { revision: 90, ..ResponseHeader::default() });
        let won = TxnResponse { header, succeeded: true, responses: Vec::new() };
        let round = Round { version: 3, revision: 40 };
        assert_eq!(after(round, &won), (Round { version: 4, revision: 90 }, true));
        let kvs = vec![KeyValue { version: 8, ..KeyValue::default() }];
        let response = Some(Given::ResponseRange(RangeResponse { kvs, ..RangeResponse::default() }));
        let lost = TxnResponse { header, succeeded: false, responses: vec![ResponseOp { response }] };
        assert_eq!(after(round, &lost), (Round { version: 8, revision: 90 }, false));
    }
}
