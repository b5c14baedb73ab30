//! The store with its transactions on pods drawn.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::future::BoxFuture;
use podwire_api::builtin;
use podwire_store::{Guard, KeyValue, Listing, Op, Outcome, Revision, Store, StoreError, WatchStream};
use podwire_trace::{Arrow, Note, Participant, What};
use serde_json::Value;

use super::pod_at;
use crate::codec;
use crate::extract::Wanted;

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A store whose transactions on pods are drawn while somebody listens.
pub(crate) struct TracedStore {
    store: Arc<dyn Store>,
    uid: Wanted,
}

impl TracedStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, uid: Wanted::new(["metadata.uid"]) }
    }

    /// The uid in a stored value.
    fn uid_of(&self, kv: &KeyValue) -> Option<String> {
        // Ignored: what cannot be read is somebody else's to tell.
        let read = self.uid.read(codec::json_text(kv).ok()?).ok()?;
        read.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned)
    }

    async fn drawn(&self, key: &str, guard: Guard, op: Op) -> Result<Outcome, StoreError> {
        let (verb, written) = match &op {
            Op::Put { value, .. } => ("put", Some(value.clone())),
            Op::Delete => ("delete", None),
        };
        let written = written.and_then(|value: Bytes| {
            self.uid_of(&KeyValue { key: key.into(), value, create_revision: 0, mod_revision: 0 })
        });
        if matches!(guard, Guard::Absent)
            && let Some(pod) = written.as_deref().and_then(|uid| pod_at(key, uid))
        {
            Arrow::note(pod, Participant::ApiServer, Note::Validated);
        }
        let begun = Instant::now();
        let answer = self.store.txn(key, guard, op).await;
        let took = begun.elapsed();
        let there = match &answer {
            Ok(Outcome::Committed { previous, .. }) => previous.as_ref(),
            Ok(Outcome::Conflict { current }) => current.as_ref(),
            Err(_) => None,
        };
        let uid = written.or_else(|| self.uid_of(there?));
        if let Some(pod) = uid.as_deref().and_then(|uid| pod_at(key, uid)) {
            let outcome = match &answer {
                Ok(Outcome::Committed { revision, .. }) => {
                    podwire_trace::Outcome::reply(format!("revision {revision}"))
                }
                Ok(Outcome::Conflict { .. }) => {
                    podwire_trace::Outcome::Failed("somebody else wrote in between".to_owned())
                }
                Err(error) => podwire_trace::Outcome::Failed(crate::error_chain(error)),
            };
            let what = What::Store { verb };
            Arrow::new(pod, Participant::ApiServer, Participant::Etcd, what).draw(took, &outcome);
        }
        answer
    }
}

impl Store for TracedStore {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyValue>> {
        self.store.get(key)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> Answer<'a, Listing> {
        self.store.list(prefix, after, limit, at)
    }

    fn txn<'a>(&'a self, key: &'a str, guard: Guard, op: Op) -> Answer<'a, Outcome> {
        if podwire_trace::is_heard() && key.starts_with(&*builtin::pods().storage_prefix) {
            return Box::pin(self.drawn(key, guard, op));
        }
        self.store.txn(key, guard, op)
    }

    fn watch<'a>(&'a self, prefix: &'a str, after: Revision) -> Answer<'a, WatchStream> {
        self.store.watch(prefix, after)
    }

    fn revision(&self) -> Answer<'_, Revision> {
        self.store.revision()
    }

    fn health(&self) -> Answer<'_, ()> {
        self.store.health()
    }

    fn compact<'a>(&'a self, before: Revision) -> Answer<'a, ()> {
        self.store.compact(before)
    }
}
