//! Reading: one object, or the objects of a collection, page by page.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use podwire_api::Kind;
use podwire_api::protobuf;
use podwire_api::selector::{FieldSelector, LabelSelector};
use serde_json::{Map, Value, json};

use super::page::{Page, encode_token};
use super::{Call, render};
use crate::body::{Response, respond_pieces};
use crate::cache::{Entry, Scope};
use crate::codec;
use crate::context;
use crate::negotiate::{Encoding, PROTOBUF, Representation, Shape};
use crate::status::{ApiError, Result};

/// Lists are written in pieces of about this size.
const PIECE: usize = 64 << 10;

/// What upstream says about a page whose revision is forgotten.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. \
You can start a new list without the continue parameter, or use the continue token in this response to retrieve \
the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that \
were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// One object.
pub(crate) async fn get(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let kv = call.context.stored(&call.kind, call.namespace(), call.name()).await?;
    render::stored(call, StatusCode::OK, rep, kv).await
}

/// Which objects of a collection a request is about.
pub(crate) struct Selection {
    pub(crate) scope: Scope,
    pub(crate) labels: Option<LabelSelector>,
    pub(crate) fields: Option<FieldSelector>,
}

impl Selection {
    /// Reads the selectors of a request.
    pub(crate) fn read(call: &Call) -> Result<Self> {
        let bad = |error: &dyn std::fmt::Display| ApiError::bad_request(error.to_string());
        let labels = match call.query.text("labelSelector") {
            Some(text) => Some(LabelSelector::parse(text).map_err(|error| bad(&error))?),
            None => None,
        };
        let mut fields = None;
        if let Some(text) = call.query.text("fieldSelector") {
            let mut selector = FieldSelector::parse(text).map_err(|error| bad(&error))?;
            selector.check(&call.kind).map_err(|error| bad(&error))?;
            fields = Some(stored_fields(&call.kind, selector, text)?);
        }
        let fields = only_named(&call.target.name, fields)?;
        let scope = scope(call, fields.as_ref());
        Ok(Self { scope, labels, fields })
    }

    /// Whether nothing was selected beyond the namespace.
    fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Whether an entry is chosen.
    pub(crate) fn takes(&self, entry: &Entry) -> bool {
        entry.matches(self.labels.as_ref(), self.fields.as_ref())
    }
}

/// What was authorized for one name is about that name, however it was asked for.
fn only_named(name: &str, fields: Option<FieldSelector>) -> Result<Option<FieldSelector>> {
    match fields.filter(|selector| !selector.is_empty()) {
        fields if name.is_empty() => Ok(fields),
        None => Ok(Some(FieldSelector::exactly("metadata.name", name))),
        Some(selector) if selector.exact("metadata.name") == Some(name) => Ok(Some(selector)),
        Some(_) => Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name")),
    }
}

/// Selectors on a kind that is stored in another shape speak of that shape's fields.
fn stored_fields(kind: &Kind, selector: FieldSelector, text: &str) -> Result<FieldSelector> {
    if !kind.strategy.is_converted() || kind.schema.is_structural() {
        return Ok(selector);
    }
    let stored =
        text.replace("regarding.", "involvedObject.").replace("reportingController", "reportingComponent");
    FieldSelector::parse(&stored).map_err(|error| ApiError::bad_request(error.to_string()))
}

fn scope(call: &Call, fields: Option<&FieldSelector>) -> Scope {
    let equal = |name: &str| {
        let requirements = fields.map(FieldSelector::requirements).unwrap_or_default();
        requirements.iter().find(|r| r.equals && r.field == name).map(|r| r.value.clone())
    };
    let namespace = match call.namespace() {
        "" => equal("metadata.namespace").filter(|_| call.kind.namespaced).unwrap_or_default(),
        namespace => namespace.to_owned(),
    };
    let prefix = &call.kind.storage_prefix;
    let prefix = if namespace.is_empty() { prefix.to_string() } else { format!("{prefix}{namespace}/") };
    let single = !namespace.is_empty() || !call.kind.namespaced;
    let key =
        equal("metadata.name").filter(|_| single).map(|name| context::key(&call.kind, &namespace, &name));
    // What is converted may have its node elsewhere.
    let by_node = call.kind.strategy.conversion().is_none();
    Scope { prefix, node: equal("spec.nodeName").filter(|node| by_node && !node.is_empty()), key }
}

/// The result of a list, before it is rendered.
pub(crate) struct Listed {
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) revision: u64,
    token: Option<String>,
    remaining: Option<u64>,
}

/// The objects of a collection.
pub(crate) async fn list(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let selection = Selection::read(call)?;
    let page = Page::read(call)?;
    let listed = read_page(call, &selection, &page).await?;
    render_list(call, rep, listed)
}

async fn read_page(call: &Call, selection: &Selection, page: &Page) -> Result<Listed> {
    match (&page.from, page.version) {
        (Some((revision, start)), _) if *revision > 0 => {
            let revision = revision.unsigned_abs();
            let listed = at_revision(call, selection, page, revision, Some(start)).await;
            listed.map_err(|mut error| {
                if error.reason == "Expired" {
                    error.message = CONTINUE_EXPIRED.into();
                    let last = format!("{}{}", selection.scope.prefix, start.trim_end_matches('\0'));
                    error.continue_token = Some(encode_token(-1, &selection.scope.prefix, &last));
                }
                error
            })
        }
        (None, Some(version)) if page.exact && version > 0 => {
            let current = call.context.store.revision().await?;
            if version > current {
                return Err(ApiError::version_too_large(version, current));
            }
            at_revision(call, selection, page, version, None).await
        }
        (from, version) => {
            newest(call, selection, page, from.as_ref().map(|(_, start)| start), version).await
        }
    }
}

/// Reads from the cache once it is fresh enough.
async fn newest(
    call: &Call,
    selection: &Selection,
    page: &Page,
    start: Option<&String>,
    version: Option<u64>,
) -> Result<Listed> {
    let wanted = match version {
        Some(version) => version,
        None => call.context.store.revision().await?,
    };
    call.context.caches.wait_for(wanted).await?;
    let applied = call.context.caches.applied();
    let snapshot = call.context.caches.of(&call.kind).snapshot(&selection.scope);
    let revision = applied.max(snapshot.newest);
    let mut entries = snapshot.entries;
    if let Some(start) = start {
        let from = format!("{}{start}", selection.scope.prefix);
        entries.retain(|entry| *entry.key >= *from);
    }
    if !selection.is_everything() {
        // Labels and fields are those of the version that is asked for.
        entries = call.context.served_entries(&call.kind, entries).await?;
        entries.retain(|entry| selection.takes(entry));
    }
    let (mut token, mut remaining) = (None, None);
    if let Some(limit) = page.limit.filter(|limit| *limit < entries.len()) {
        let last = &entries[limit - 1].key;
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        token = Some(encode_token(revision, &selection.scope.prefix, last));
        remaining = selection.is_everything().then_some((entries.len() - limit) as u64);
        entries.truncate(limit);
    }
    if selection.is_everything() {
        entries = call.context.served_entries(&call.kind, entries).await?;
    }
    Ok(Listed { entries, revision, token, remaining })
}

/// Reads from the store's history.
async fn at_revision(
    call: &Call,
    selection: &Selection,
    page: &Page,
    revision: u64,
    start: Option<&String>,
) -> Result<Listed> {
    let cache = call.context.caches.of(&call.kind);
    let prefix = &selection.scope.prefix;
    let mut after = start.map(|start| format!("{prefix}{}", start.trim_end_matches('\0')));
    let mut entries = Vec::new();
    loop {
        let listing = call.context.store.list(prefix, after.as_deref(), page.limit, Some(revision)).await?;
        let last = listing.items.last().map(|kv| kv.key.to_string());
        let read = listing.items.iter().enumerate();
        let (places, read): (Vec<usize>, Vec<Arc<Entry>>) =
            read.filter_map(|(at, kv)| Some((at, cache.read_entry(kv)?))).unzip();
        let read = call.context.served_entries(&call.kind, read).await?;
        for (at, entry) in places.into_iter().zip(read).filter(|(_, entry)| selection.takes(entry)) {
            entries.push(entry);
            if page.limit == Some(entries.len()) {
                let behind = listing.remaining + (listing.items.len() - at - 1) as u64;
                let signed = i64::try_from(revision).unwrap_or(i64::MAX);
                let token = (behind > 0).then(|| encode_token(signed, prefix, &listing.items[at].key));
                let remaining = (behind > 0 && selection.is_everything()).then_some(behind);
                return Ok(Listed { entries, revision, token, remaining });
            }
        }
        if !listing.more {
            return Ok(Listed { entries, revision, token: None, remaining: None });
        }
        after = last;
    }
}

fn render_list(call: &Call, rep: Representation, listed: Listed) -> Result<Response> {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), listed.revision.to_string().into());
    match &listed.token {
        Some(token) => drop(metadata.insert("continue".into(), token.as_str().into())),
        // Lists of kinds that were defined at run time always say where they go on.
        None if call.kind.schema.is_structural() && rep.shape == Shape::Object => {
            metadata.insert("continue".into(), "".into());
        }
        None => {}
    }
    if let Some(remaining) = listed.remaining {
        metadata.insert("remainingItemCount".into(), remaining.into());
    }
    let metadata = Value::Object(metadata);
    let kind = &call.kind;
    match (rep.shape, rep.encoding) {
        (Shape::Object, Encoding::Json) if !rep.pretty && !kind.strategy.is_converted() => {
            let pieces = plain_list(kind, &metadata, listed);
            Ok(respond_pieces(StatusCode::OK, "application/json", pieces))
        }
        (Shape::Object, Encoding::Protobuf) => {
            let pieces = binary_list(kind, &metadata, &listed);
            Ok(respond_pieces(StatusCode::OK, PROTOBUF, pieces))
        }
        (shape, _) => {
            let value = shaped_list(call, shape, metadata, &listed);
            Ok(render::value(StatusCode::OK, rep, kind, &value))
        }
    }
}

/// An entry as an object of `kind`.
pub(crate) fn decoded(kind: &Kind, entry: &Entry) -> Value {
    let mut object = entry.decode(kind);
    context::to_version(kind, &mut object);
    object
}

/// A list as text: cached bytes one after the other, in pieces that are made when they are wanted, so that a long list
/// is on its way before its end is written, and never lies in memory as a whole.
fn plain_list(kind: &Kind, metadata: &Value, listed: Listed) -> impl Iterator<Item = Bytes> + Send + use<> {
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        kind.list_kind,
        kind.api_version()
    );
    let mut entries = listed.entries.into_iter().peekable();
    let mut head = Some(head);
    let start = codec::item_start(kind);
    std::iter::from_fn(move || {
        let mut out = BytesMut::with_capacity(PIECE + 4096);
        if let Some(head) = head.take() {
            out.extend_from_slice(head.as_bytes());
        } else {
            entries.peek()?;
        }
        while let Some(entry) = entries.next() {
            codec::write_started(&mut out, &start, entry.revision, &entry.tail);
            if entries.peek().is_some() {
                out.extend_from_slice(b",");
                if out.len() >= PIECE {
                    return Some(out.freeze());
                }
            }
        }
        out.extend_from_slice(b"]}\n");
        Some(out.freeze())
    })
}

/// A list in protobuf, in pieces like the one above; what is not encoded yet is encoded before the first of them,
/// because the list begins with its length.
fn binary_list(kind: &Kind, metadata: &Value, listed: &Listed) -> impl Iterator<Item = Bytes> + Send + use<> {
    let message = |entry: &Arc<Entry>| match kind.strategy.is_converted() {
        true => protobuf::encode_message(&kind.schema, &decoded(kind, entry)).into(),
        false => entry.binary(kind),
    };
    let items: Vec<Bytes> = listed.entries.iter().map(message).collect();
    let total = items.iter().map(|item| protobuf::list_item_len(item.len())).sum();
    let mut head = Some(protobuf::list_head(kind, metadata, total));
    let mut items = items.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut out = match head.take() {
            Some(head) => head,
            None => {
                items.peek()?;
                Vec::with_capacity(PIECE + 4096)
            }
        };
        while let Some(item) = items.next() {
            protobuf::list_item(&item, &mut out);
            if out.len() >= PIECE && items.peek().is_some() {
                return Some(out.into());
            }
        }
        protobuf::list_tail(&mut out);
        Some(out.into())
    })
}

fn shaped_list(call: &Call, shape: Shape, metadata: Value, listed: &Listed) -> Value {
    let kind = &call.kind;
    let objects = listed.entries.iter().map(|entry| decoded(kind, entry));
    match shape {
        Shape::Table => {
            let now = jiff::Timestamp::now();
            let include = call.query.get("includeObject");
            let rows = objects.map(|object| render::row(kind, object, include, now)).collect();
            render::make_table(kind, metadata, rows, true)
        }
        Shape::Partial => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "items": objects.map(render::partial).collect::<Vec<_>>(),
        }),
        Shape::Object => {
            let items = objects.map(|mut object| {
                strip(kind, &mut object);
                object
            });
            json!({
                "kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata,
                "items": items.collect::<Vec<_>>(),
            })
        }
    }
}

/// In lists, objects do not say what they are, but for those whose kind was defined at run time.
fn strip(kind: &Kind, object: &mut Value) {
    if let Value::Object(map) = object
        && !kind.schema.is_structural()
    {
        map.remove("apiVersion");
        map.remove("kind");
    }
}

/// Everything a selection chooses, for handlers that work on collections.
pub(crate) async fn select_all(call: &Call) -> Result<Listed> {
    let selection = Selection::read(call)?;
    let page = Page { limit: None, from: None, version: None, exact: false };
    read_page(call, &selection, &page).await
}

/// A rendered list of parsed objects.
pub(crate) fn respond_objects(
    call: &Call,
    rep: Representation,
    revision: u64,
    mut objects: Vec<Value>,
) -> Response {
    let kind = &call.kind;
    objects.iter_mut().for_each(|object| strip(kind, object));
    let mut list = json!({
        "kind": kind.list_kind, "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": revision.to_string()}, "items": objects,
    });
    if kind.schema.is_structural() {
        list["metadata"]["continue"] = "".into();
    }
    let rep = Representation { encoding: Encoding::Json, ..rep };
    render::value(StatusCode::OK, rep, kind, &list)
}
