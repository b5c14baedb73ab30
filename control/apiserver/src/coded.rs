//! A store in front of another one, where values lie in another form: what all such stores have in common.
//!
//! Keys, revisions and guards are the same on both sides.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use podwire_store::{
    Event, EventKind, Guard, KeyValue, Listing, News, Op, Outcome, Revision, Store, StoreError, WatchStream,
};

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// How values lie there.
pub trait Coding: Send + Sync + 'static {
    /// A value as it is to lie there.
    fn outward(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError>;

    /// A value that somebody asks for.
    fn asked(&self, kv: KeyValue) -> Result<KeyValue, StoreError>;

    /// One of many that are listed.
    fn listed(&self, kv: KeyValue) -> Result<KeyValue, StoreError>;

    /// What a watch tells: what cannot be read is logged and handed on as it is, so that the rest goes on.
    fn told(&self, kv: KeyValue) -> KeyValue;
}

/// A store whose values lie in another one as a coding writes them.
pub struct Coded<S, C> {
    pub(crate) store: S,
    pub(crate) coding: Arc<C>,
}

fn event<C: Coding>(coding: &C, event: Arc<Event>) -> Arc<Event> {
    let Event { kind, kv, previous } = Arc::unwrap_or_clone(event);
    let kv = coding.told(kv);
    // Of a deletion both are the same value.
    let previous = match (kind, previous) {
        (EventKind::Delete, Some(previous)) => Some(KeyValue { value: kv.value.clone(), ..previous }),
        (_, previous) => previous.map(|previous| coding.told(previous)),
    };
    Arc::new(Event { kind, kv, previous })
}

impl<S: Store, C: Coding> Store for Coded<S, C> {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyValue>> {
        async move { self.store.get(key).await?.map(|kv| self.coding.asked(kv)).transpose() }.boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> Answer<'a, Listing> {
        async move {
            let mut listing = self.store.list(prefix, after, limit, at).await?;
            let read = listing.items.into_iter().map(|kv| self.coding.listed(kv));
            listing.items = read.collect::<Result<_, _>>()?;
            Ok(listing)
        }
        .boxed()
    }

    fn txn<'a>(&'a self, key: &'a str, guard: Guard, op: Op) -> Answer<'a, Outcome> {
        async move {
            let op = match op {
                Op::Put { value, ttl } => Op::Put { value: self.coding.outward(key, value)?, ttl },
                Op::Delete => Op::Delete,
            };
            Ok(match self.store.txn(key, guard, op).await? {
                // It is done, whether or not what was there before can be read.
                Outcome::Committed { revision, previous } => {
                    Outcome::Committed { revision, previous: previous.map(|kv| self.coding.told(kv)) }
                }
                Outcome::Conflict { current } => {
                    Outcome::Conflict { current: current.map(|kv| self.coding.asked(kv)).transpose()? }
                }
            })
        }
        .boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, after: Revision) -> Answer<'a, WatchStream> {
        async move {
            let coding = self.coding.clone();
            let stream = self.store.watch(prefix, after).await?;
            let read = move |news| match news {
                News::Events(events) => {
                    News::Events(events.into_iter().map(|one| event(&*coding, one)).collect())
                }
                News::Progress(revision) => News::Progress(revision),
            };
            Ok(stream.map(move |news| news.map(&read)).boxed())
        }
        .boxed()
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
