//! Objects of kinds whose versions a webhook converts: from the version that they are stored in to the one that a client
//! speaks, and back.
//!
//! Reading one object and writing it ask the webhook each time. What lists and watches show is kept with the cached
//! object, in the version of the kind it was made for: a definition that changes makes other kinds. Nothing is locked
//! while a webhook is asked, and what it does not answer fails alone.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::StatusCode;
use podwire_api::definition::Conversion;
use podwire_api::{Kind, strict};
use podwire_store::KeyValue;
use serde_json::Value;

use crate::cache::{Entry, Told, wanted};
use crate::callout::Client;
use crate::codec;
use crate::context::Context;
use crate::handler::create::{encode, new_uid};
use crate::handler::decode::no_object;
use crate::status::{ApiError, Result};

/// How long a webhook may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Who asks.
const AGENT: &str = "kube-apiserver";
/// No more objects than this are in one review.
const MOST_OBJECTS: usize = 500;
/// And no more than about this many bytes of them, but for the first.
const MOST_ASKED: usize = 4 << 20;
/// A longer answer is refused.
const MOST_ANSWERED: usize = 16 << 20;

/// The webhooks of the definitions that have one for conversion, made when they are first asked.
#[derive(Default)]
pub(crate) struct Converters(Mutex<HashMap<String, (u64, Arc<Client>)>>);

impl Converters {
    /// The webhook of a definition as it is now.
    fn of(&self, kind: &Kind, conversion: &Conversion) -> Arc<Client> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = kind.strategy.revision();
        if let Some((_, client)) = known.get(conversion.name()).filter(|(of, _)| *of == revision) {
            return client.clone();
        }
        let client = Arc::new(Client::read(conversion.client(), TIMEOUT, MOST_ANSWERED, AGENT));
        known.insert(conversion.name().to_owned(), (revision, client.clone()));
        client
    }

    /// Forgets the webhook of a definition that is gone.
    pub(crate) fn forget(&self, kind: &Kind) {
        if let Some(conversion) = kind.strategy.conversion() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(conversion.name());
        }
    }
}

/// 500 about objects that are in the wrong version; upstream has no reason for it.
fn failed(why: String) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why)
}

impl Context {
    /// Stored bytes as those of an object in the version of `kind`.
    pub(crate) async fn served(&self, kind: &Kind, kv: KeyValue) -> Result<KeyValue> {
        let Some(conversion) = kind.strategy.conversion() else { return Ok(kv) };
        let stored = stored(kind, conversion, &kv)?;
        let made = convert(self, kind, conversion, vec![stored], &kind.version).await?;
        let value = codec::encode(made.first().unwrap_or(&Value::Null), None);
        Ok(KeyValue { value, ..kv })
    }

    /// Cached objects in the version of `kind`.
    pub(crate) async fn served_entries(
        &self,
        kind: &Arc<Kind>,
        entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<Arc<Entry>>> {
        let Some(conversion) = kind.strategy.conversion() else { return Ok(entries) };
        let mut out: Vec<Option<Arc<Entry>>> = entries.iter().map(|entry| entry.served(kind)).collect();
        let missing: Vec<usize> = (0..out.len()).filter(|at| out[*at].is_none()).collect();
        let objects: Result<Vec<Value>> =
            missing.iter().map(|at| stored(kind, conversion, &entries[*at].to_stored())).collect();
        let made = convert(self, kind, conversion, objects?, &kind.version).await?;
        let wanted = wanted(kind);
        for (at, object) in missing.into_iter().zip(made) {
            let before = &entries[at];
            let value = codec::encode(&object, None);
            let kv = KeyValue { value, ..before.to_stored() };
            let unreadable = || ApiError::internal("a converted object is not readable");
            let entry = Entry::read_like(before, kind, &wanted, &kv).ok_or_else(unreadable)?;
            before.keep_served(entry.clone());
            out[at] = Some(entry);
        }
        Ok(out.into_iter().flatten().collect())
    }

    /// Changes as changes of objects in the version of `kind`.
    pub(crate) async fn served_changes(
        &self,
        kind: &Arc<Kind>,
        changes: Vec<Arc<Told>>,
    ) -> Result<Vec<Arc<Told>>> {
        if kind.strategy.conversion().is_none() {
            return Ok(changes);
        }
        let entries = changes.iter().flat_map(|told| [Some(&told.entry), told.previous.as_ref()]).flatten();
        let mut made = self.served_entries(kind, entries.cloned().collect()).await?.into_iter();
        let served = changes.iter().filter_map(|told| {
            let entry = made.next()?;
            let previous = told.previous.as_ref().and_then(|_| made.next());
            Some(Told::new(told.with(entry, previous)))
        });
        Ok(served.collect())
    }

    /// The bytes of an object of `kind` as they are stored.
    pub(crate) async fn bytes_to_store(&self, kind: &Kind, object: &Value) -> Result<Bytes> {
        let Some(conversion) = kind.strategy.conversion() else { return Ok(encode(kind, object)) };
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let made = convert(self, kind, conversion, vec![object], conversion.storage()).await?;
        Ok(codec::encode(made.first().unwrap_or(&Value::Null), Some(conversion.storage())))
    }

    /// An object of one version of a kind as one of another.
    pub(crate) async fn in_version(&self, from: &Kind, to: &Kind, mut object: Value) -> Result<Value> {
        let Some(conversion) = from.strategy.conversion() else {
            from.strategy.to_storage(&mut object);
            to.strategy.to_served(&mut object);
            object["apiVersion"] = to.api_version().into();
            return Ok(object);
        };
        let mut made = convert(self, from, conversion, vec![object], &to.version).await?;
        Ok(made.pop().unwrap_or_default())
    }
}

/// A stored object in the version that it is stored in.
fn stored(kind: &Kind, conversion: &Conversion, kv: &KeyValue) -> Result<Value> {
    let unreadable = |error: codec::CodecError| ApiError::internal(crate::error_chain(&error));
    let mut object = codec::decode(kind, kv).map_err(unreadable)?;
    let version = codec::version(kv).unwrap_or(conversion.unmarked());
    object["apiVersion"] = conversion.api_version(version).into();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    conversion.restore(&mut object);
    Ok(object)
}

/// Objects, each of which says its version, in one version; those that are in it already stay as they are. Boxed, as
/// the compiler cannot prove the plain future to be `Send` inside a larger one.
fn convert<'a>(
    context: &'a Context,
    kind: &'a Kind,
    conversion: &'a Conversion,
    mut objects: Vec<Value>,
    version: &'a str,
) -> BoxFuture<'a, Result<Vec<Value>>> {
    Box::pin(async move {
        let desired = conversion.api_version(version);
        let foreign: Vec<usize> =
            (0..objects.len()).filter(|at| objects[*at]["apiVersion"] != *desired).collect();
        for at in &foreign {
            conversion.check(&objects[*at], &desired).map_err(failed)?;
        }
        let sizes: Vec<usize> = match foreign.len() {
            0 => return Ok(objects),
            1 => vec![0],
            _ => foreign.iter().map(|at| objects[*at].to_string().len()).collect(),
        };
        let client = context.converters.of(kind, conversion);
        for batch in batches(&sizes) {
            let places = &foreign[batch];
            let asked: Vec<Value> = places.iter().map(|at| objects[*at].take()).collect();
            let made = ask(context, &client, conversion, asked, &desired).await.map_err(failed)?;
            for (at, object) in places.iter().zip(made) {
                objects[*at] = object;
            }
        }
        Ok(objects)
    })
}

async fn ask(
    context: &Context,
    client: &Client,
    conversion: &Conversion,
    asked: Vec<Value>,
    desired: &str,
) -> std::result::Result<Vec<Value>, String> {
    let uid = new_uid();
    let review = conversion.ask(&uid, &asked, desired)?;
    let answer = client.post(context, &review).await.map_err(|why| conversion.failed(&asked, &why))?;
    read(conversion, &answer, &uid, &asked, desired)
}

/// The objects of an answer.
pub(crate) fn read(
    conversion: &Conversion,
    answer: &[u8],
    uid: &str,
    asked: &[Value],
    desired: &str,
) -> std::result::Result<Vec<Value>, String> {
    let unreadable = |why: String| {
        conversion.failed(asked, &format!("couldn't get version/kind; json parse error: {why}"))
    };
    let review = strict::decode_json(answer).map_err(|error| unreadable(error.to_string()))?.value;
    if !review.is_object() && !review.is_null() {
        return Err(unreadable(no_object(&review)));
    }
    let mut made = conversion.read(review, uid, asked, desired)?;
    made.iter_mut().for_each(|object| conversion.conform(object));
    Ok(made)
}

/// What of a list goes into one review after the other.
fn batches(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (at, size) in sizes.iter().enumerate() {
        match out.last_mut() {
            Some(last) if last.len() < MOST_OBJECTS && bytes + size <= MOST_ASKED => {
                last.end = at + 1;
                bytes += size;
            }
            _ => {
                out.push(at..at + 1);
                bytes = *size;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_holds_many_objects_but_not_too_many_and_not_too_large_ones() {
        assert!(batches(&[]).is_empty());
        assert_eq!(batches(&[1; 500]), std::slice::from_ref(&(0..500)));
        assert_eq!(batches(&[1; 501]), [0..500, 500..501]);
        assert_eq!(batches(&[MOST_ASKED + 1, 1, MOST_ASKED - 1, 1]), [0..1, 1..3, 3..4]);
    }
}
