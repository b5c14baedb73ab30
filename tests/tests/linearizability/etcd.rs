//! Keys of an etcd as registers: transactions that compare the revision of the last change.

use std::collections::BTreeMap;

use anyhow::Result;
use podwire_wire::etcd::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest,
    compare::TargetUnion, kv_client::KvClient, request_op::Request as Op,
};
use tonic::transport::{Channel, Endpoint};

use super::history::{Registers, Seen, Unknown};

/// How `Compare` says "equal" and "the revision of the last change".
const EQUAL_MOD: (i32, i32) = (0, 2);

/// A client of one etcd.
#[derive(Clone)]
pub(crate) struct Keys(KvClient<Channel>);

impl Keys {
    /// Connects when something is asked, and again when it must.
    pub(crate) fn of(url: &str) -> Result<Keys> {
        Ok(Keys(KvClient::new(Endpoint::from_shared(url.to_owned())?.connect_lazy())))
    }
}

fn words(kv: &KeyValue) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&kv.key), text(&kv.value))
}

impl Registers for Keys {
    async fn read(&self, key: &str) -> Result<Seen, Unknown> {
        let request = RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() };
        let told = self.0.clone().range(request).await.map_err(|_| Unknown)?.into_inner();
        Ok(told.kvs.first().map(|kv| (words(kv).1, kv.mod_revision)))
    }

    async fn swap(&self, key: &str, seen: &Seen, put: Option<&str>) -> Result<Option<i64>, Unknown> {
        let key: bytes::Bytes = key.to_owned().into();
        let op = match put {
            Some(value) => Op::RequestPut(PutRequest {
                key: key.clone(),
                value: value.to_owned().into(),
                ..PutRequest::default()
            }),
            None => Op::RequestDeleteRange(DeleteRangeRequest {
                key: key.clone(),
                ..DeleteRangeRequest::default()
            }),
        };
        let revision = seen.as_ref().map_or(0, |seen| seen.1);
        let compare = Compare {
            result: EQUAL_MOD.0,
            target: EQUAL_MOD.1,
            key,
            target_union: Some(TargetUnion::ModRevision(revision)),
            ..Compare::default()
        };
        let success = vec![RequestOp { request: Some(op) }];
        let request = TxnRequest { compare: vec![compare], success, failure: Vec::new() };
        let told = self.0.clone().txn(request).await.map_err(|_| Unknown)?.into_inner();
        Ok(told.succeeded.then(|| told.header.map_or(0, |header| header.revision)))
    }

    async fn list(&self) -> Result<(BTreeMap<String, String>, i64), Unknown> {
        let all = bytes::Bytes::from_static(b"\0");
        let request = RangeRequest { key: all.clone(), range_end: all, ..RangeRequest::default() };
        let told = self.0.clone().range(request).await.map_err(|_| Unknown)?.into_inner();
        let revision = told.header.map_or(0, |header| header.revision);
        Ok((told.kvs.iter().map(words).collect(), revision))
    }
}
