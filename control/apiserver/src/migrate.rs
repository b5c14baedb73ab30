//! Moving house: every object of one store into another, as it is.
//!
//! Versions are those of the new store. They must be larger than all of the old one, so that nobody who knew it takes the new one for
//! the old at an earlier time: the target is brought that far before anything is copied.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use podwire_api::{builtin, protobuf};
use podwire_store::{Guard, KeyValue, Op, Outcome, Revision, Store, StoreError};

use crate::upstream::{builtin_at, prefix_of};
use crate::{codec, encryption};

/// Objects that are read at once.
const PAGE: usize = 1_000;
/// Writes on their way at once.
const WRITES: usize = 64;
const ROOT: &str = "/registry/";
/// What is given out, which lies the same on every store.
const ALLOCATIONS: &str = "/registry/ranges/";

/// What became of a move.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Objects that were copied.
    pub objects: u64,
    /// Values that are no objects of this server, by where they are: they were left behind.
    pub left: BTreeMap<String, u64>,
}

/// Why a move was not made, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// One of the stores.
    #[error("a store failed")]
    Store(#[from] StoreError),
    /// The target is not empty.
    #[error("the target holds {key} already; objects are moved to where there are none")]
    NotEmpty {
        /// An object that is there.
        key: String,
    },
    /// There is nothing to move.
    #[error("the source holds no objects")]
    Nothing,
    /// Something was written while it was copied.
    #[error("{key} was written to meanwhile; stop the API servers of both stores and begin again")]
    Disturbed {
        /// By which object it was noticed.
        key: String,
    },
}

/// Writes `key` until `target` is at `revision` or later: one revision for each write.
pub async fn advance(target: &dyn Store, key: &str, revision: Revision) -> Result<(), MoveError> {
    loop {
        let now = target.revision().await?;
        if now >= revision {
            break;
        }
        let put = || Op::Put { value: Bytes::from_static(b"x"), ttl: None };
        let missing = (revision - now).min(100_000);
        let writes = (0..missing).map(|_| target.txn(key, Guard::Any, put()));
        futures::stream::iter(writes).buffer_unordered(WRITES).try_for_each(|_| async { Ok(()) }).await?;
    }
    // A conflict says that nothing had to be written.
    target.txn(key, Guard::Any, Op::Delete).await?;
    Ok(())
}

/// Copies every object of `source` into the empty `target`. Nobody else may write to either.
pub async fn copy(source: &dyn Store, target: &dyn Store) -> Result<Moved, MoveError> {
    if let Some(kv) = target.list(ROOT, None, Some(1), None).await?.items.first() {
        return Err(MoveError::NotEmpty { key: kv.key.to_string() });
    }
    let begun = source.list(ROOT, None, Some(1), None).await?;
    if begun.items.is_empty() {
        return Err(MoveError::Nothing);
    }
    let mut moved = Moved::default();
    // What they define is written only where their names are known.
    let definitions = &*builtin::custom_resource_definitions().storage_prefix;
    let mut defined = BTreeSet::new();
    pages(source, target, definitions, begun.revision, &mut moved, &mut defined).await?;
    pages(source, target, ROOT, begun.revision, &mut moved, &mut defined).await?;
    if let Some(kv) =
        source.list(ROOT, None, None, None).await?.items.iter().find(|kv| kv.mod_revision > begun.revision)
    {
        return Err(MoveError::Disturbed { key: kv.key.to_string() });
    }
    Ok(moved)
}

/// Whether a value is an object of a kind that every server has, or of one of those that are `defined`.
fn is_object(kv: &KeyValue, defined: &BTreeSet<String>) -> bool {
    if kv.key.starts_with(ALLOCATIONS) {
        return protobuf::is_envelope(&kv.value);
    }
    let is_known = || prefix_of(&kv.key).is_some_and(|prefix| defined.contains(prefix));
    codec::json_text(kv).is_ok() && (builtin_at(&kv.key).is_some() || is_known())
}

/// Copies what begins with `prefix`: first only the definitions, and then all but those.
async fn pages(
    source: &dyn Store,
    target: &dyn Store,
    prefix: &str,
    at: Revision,
    moved: &mut Moved,
    defined: &mut BTreeSet<String>,
) -> Result<(), MoveError> {
    let definitions = &*builtin::custom_resource_definitions().storage_prefix;
    let wanted = |key: &str| prefix == definitions || !key.starts_with(definitions);
    let mut after: Option<String> = None;
    loop {
        let page = source.list(prefix, after.as_deref(), Some(PAGE), Some(at)).await?;
        after = page.items.last().map(|kv| kv.key.to_string());
        let (objects, others): (Vec<KeyValue>, Vec<KeyValue>) =
            page.items.into_iter().filter(|kv| wanted(&kv.key)).partition(|kv| is_object(kv, defined));
        others.iter().try_for_each(|kv| encryption::refuse(&kv.key, &kv.value))?;
        for kv in objects.iter().filter(|_| prefix == definitions) {
            if let Some(Ok(definition)) =
                codec::json_text(kv).ok().map(serde_json::from_slice::<serde_json::Value>)
            {
                defined.insert(podwire_api::definition::storage_prefix(&definition));
            }
        }
        for kv in others {
            let place = prefix_of(&kv.key).unwrap_or(&kv.key).to_owned();
            *moved.left.entry(place).or_default() += 1;
        }
        moved.objects += objects.len() as u64;
        let writes = objects.into_iter().map(|kv| write(target, kv));
        futures::stream::iter(writes).buffer_unordered(WRITES).try_for_each(|()| async { Ok(()) }).await?;
        if !page.more {
            return Ok(());
        }
    }
}

async fn write(target: &dyn Store, kv: KeyValue) -> Result<(), MoveError> {
    let ttl = builtin_at(&kv.key).and_then(|kind| kind.strategy.facts().ttl);
    match target.txn(&kv.key, Guard::Absent, Op::Put { value: kv.value, ttl }).await? {
        Outcome::Committed { .. } => Ok(()),
        Outcome::Conflict { .. } => Err(MoveError::Disturbed { key: kv.key.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use podwire_store::{Embedded, EmbeddedConfig};
    use serde_json::json;

    use super::*;

    fn store(dir: &std::path::Path, name: &str, first: Revision) -> Embedded {
        EmbeddedConfig { first, ..EmbeddedConfig::new(dir.join(name)) }.open().unwrap()
    }

    #[tokio::test]
    async fn every_object_is_there_at_a_later_version_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let source = store(dir.path(), "source", 0);
        let put = async |key: String, value: Bytes| {
            source.txn(&key, Guard::Any, Op::Put { value, ttl: None }).await
        };
        for number in 0..1_500 {
            let object = json!({"metadata": {"name": format!("c{number}"), "namespace": "d"}, "data": {"n": number.to_string()}});
            put(format!("/registry/configmaps/d/c{number:04}"), codec::encode(&object, None)).await.unwrap();
        }
        put("/registry/ranges/servicenodeports".into(), Bytes::from_static(b"k8s\0")).await.unwrap();
        // Of upstream's aggregation, which no definition here knows.
        let foreign = codec::encode(&json!({"metadata": {"name": "v1."}}), Some("v1"));
        put("/registry/apiregistration.k8s.io/apiservices/v1.".into(), foreign).await.unwrap();
        let newest = source.revision().await.unwrap();
        let target = store(dir.path(), "target", 0);
        assert!(matches!(copy(&target, &source).await, Err(MoveError::NotEmpty { .. })));
        advance(&target, "/podwire/moving", newest).await.unwrap();
        let moved = copy(&source, &target).await.unwrap();
        let left = BTreeMap::from([("/registry/apiregistration.k8s.io/apiservices/".to_owned(), 1)]);
        assert_eq!((moved.objects, moved.left), (1_501, left));
        let ports = target.get("/registry/ranges/servicenodeports").await.unwrap();
        assert_eq!(ports.map(|kv| kv.value), Some(Bytes::from_static(b"k8s\0")), "as it is");
        let list = |store: &Embedded| {
            let store = store.clone();
            async move { store.list("/registry/configmaps/", None, None, None).await }
        };
        let (old, new) = (list(&source), list(&target));
        let (old, new) = (old.await.unwrap().items, new.await.unwrap().items);
        assert_eq!(old.len(), new.len());
        for (old, new) in old.iter().zip(&new) {
            assert_eq!((&old.key, &old.value), (&new.key, &new.value));
            assert!(new.mod_revision > newest);
        }
        assert!(matches!(copy(&source, &target).await, Err(MoveError::NotEmpty { .. })));
        // A store that is made for it begins where the old one ended.
        let later = store(dir.path(), "later", newest);
        copy(&source, &later).await.unwrap();
        assert!(
            later.list(ROOT, None, None, None).await.unwrap().items.iter().all(|kv| kv.mod_revision > newest)
        );
    }
}
