//! Kubernetes' protobuf encoding: the `k8s\0` envelope and a transcoder between messages and JSON values.

mod read;
pub(crate) mod wire;
mod write;

use std::cell::Cell;

use serde_json::{Map, Value};

use crate::Kind;
use crate::kinds::{by_gvk, split_api_version};
use crate::schema::Message;
use crate::strict::{self, TypeError};

const MAGIC: &[u8] = b"k8s\0";

/// Bytes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body does not start with the envelope's magic.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoEnvelope,
    /// The bytes end inside a field.
    #[error("unexpected EOF")]
    Truncated,
    /// A field has a wire type its number does not allow.
    #[error("proto: wrong wireType = {wire_type} for field {number}")]
    WireType {
        /// Number of the field.
        number: u32,
        /// Its wire type.
        wire_type: u8,
    },
    /// Text is not UTF-8.
    #[error("proto: field {number} contains invalid UTF-8")]
    Utf8 {
        /// Number of the field.
        number: u32,
    },
    /// The envelope names a kind that is not served.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// Version in the envelope.
        api_version: String,
        /// Kind in the envelope.
        kind: String,
    },
    /// The object would take too much memory: 413.
    #[error("the object takes more than {} bytes of memory", strict::MOST_MEMORY)]
    TooLarge,
    /// A value does not fit its field.
    #[error("{0}")]
    Value(String),
}

impl From<TypeError> for ProtobufError {
    fn from(error: TypeError) -> ProtobufError {
        ProtobufError::Value(error.to_string())
    }
}

/// Whether a body is a protobuf envelope.
pub fn is_envelope(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Decodes an envelope as an object of this kind, whatever the envelope says; `kind` and `apiVersion` are filled in.
pub fn decode(kind: &Kind, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = read::envelope(bytes)?;
    let mut value = decode_message(&kind.schema, envelope.raw)?;
    name(&mut value, &envelope, &kind.api_version(), &kind.kind);
    Ok(value)
}

/// Decodes an envelope by the kind it names; also the types of `meta.k8s.io` such as `DeleteOptions`.
pub fn decode_any(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = read::envelope(bytes)?;
    let schema = schema_of(&envelope.api_version, &envelope.kind).ok_or_else(|| {
        ProtobufError::UnknownKind { api_version: envelope.api_version.clone(), kind: envelope.kind.clone() }
    })?;
    let mut value = decode_message(schema, envelope.raw)?;
    name(&mut value, &envelope, "", "");
    Ok(value)
}

/// Kind and version an envelope names.
pub fn envelope_kind(bytes: &[u8]) -> Result<(String, String), ProtobufError> {
    let envelope = read::envelope(bytes)?;
    Ok((envelope.api_version, envelope.kind))
}

/// Decodes a bare message.
pub fn decode_message(schema: &Message, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut map = Map::new();
    let memory = Cell::new(strict::MOST_MEMORY);
    read::message(schema, 0, bytes, &mut map, read::At::root(&memory))?;
    let mut value = Value::Object(map);
    strict::conform_message(schema, &mut value)?;
    Ok(value)
}

fn name(value: &mut Value, envelope: &read::Envelope<'_>, api_version: &str, kind: &str) {
    let pick =
        |given: &str, otherwise: &str| if given.is_empty() { otherwise.to_owned() } else { given.to_owned() };
    value["apiVersion"] = pick(&envelope.api_version, api_version).into();
    value["kind"] = pick(&envelope.kind, kind).into();
}

/// The message a version and kind stand for: a served kind, its list, a subresource's body or a meta type.
pub fn schema_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    let (group, version) = split_api_version(api_version);
    if let Some(found) = by_gvk(group, version, kind) {
        return Some(&found.schema);
    }
    let package = match group {
        "" => "core",
        g => g.split('.').next().unwrap_or(g),
    };
    let extensions = "io.k8s.apiextensions-apiserver.pkg.apis";
    strict::message(&format!("io.k8s.api.{package}.{version}.{kind}"))
        .or_else(|| strict::message(&format!("{extensions}.{package}.{version}.{kind}")))
        .or_else(|| strict::message(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")))
}

/// Encodes an object in its envelope.
pub fn encode(kind: &Kind, value: &Value) -> Vec<u8> {
    envelope(&kind.api_version(), &kind.kind, &encode_message(&kind.schema, value))
}

/// Encodes a bare message.
pub fn encode_message(schema: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    if let Value::Object(map) = value {
        write::message(schema, map, &mut out);
    }
    out
}

/// Puts a bare message into an envelope.
pub fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    wire::bytes(1, api_version.as_bytes(), &mut meta);
    wire::bytes(2, kind.as_bytes(), &mut meta);
    let mut out = Vec::with_capacity(raw.len() + meta.len() + 24);
    out.extend_from_slice(MAGIC);
    wire::bytes(1, &meta, &mut out);
    wire::bytes(2, raw, &mut out);
    wire::bytes(3, b"", &mut out);
    wire::bytes(4, b"", &mut out);
    out
}

/// What comes before the items of a list in its envelope; `items` is the sum of their [`list_item_len`].
pub fn list_head(kind: &Kind, metadata: &Value, items: usize) -> Vec<u8> {
    let schema =
        strict::message("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta").expect("the table has ListMeta");
    let mut meta = Vec::new();
    wire::bytes(1, kind.api_version().as_bytes(), &mut meta);
    wire::bytes(2, kind.list_kind.as_bytes(), &mut meta);
    let mut first = Vec::new();
    wire::bytes(1, &encode_message(schema, metadata), &mut first);
    let mut out = MAGIC.to_vec();
    wire::bytes(1, &meta, &mut out);
    wire::head(2, first.len() + items, &mut out);
    out.extend_from_slice(&first);
    out
}

/// What an item of a list takes, given the length of its bare message.
pub fn list_item_len(message: usize) -> usize {
    let mut head = Vec::with_capacity(16);
    wire::head(2, message, &mut head);
    head.len() + message
}

/// Adds an item, given as its bare message, to a list.
pub fn list_item(message: &[u8], out: &mut Vec<u8>) {
    wire::bytes(2, message, out);
}

/// What comes behind the items of a list.
pub fn list_tail(out: &mut Vec<u8>) {
    wire::bytes(3, b"", out);
    wire::bytes(4, b"", out);
}

/// A list in its envelope, from its `metadata` and already encoded bare items.
pub fn encode_list<'a>(
    kind: &Kind,
    metadata: &Value,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Vec<u8> {
    let total = items.clone().map(|item| list_item_len(item.len())).sum();
    let mut out = list_head(kind, metadata, total);
    items.for_each(|item| list_item(item, &mut out));
    list_tail(&mut out);
    out
}

/// A `Status` in its envelope.
pub fn encode_status(status: &Value) -> Vec<u8> {
    let schema =
        strict::message("io.k8s.apimachinery.pkg.apis.meta.v1.Status").expect("the table has Status");
    envelope("v1", "Status", &encode_message(schema, status))
}

/// A watch event as the stream carries it: four bytes of length, then a bare `WatchEvent`.
pub fn watch_event(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(object.len() + 8);
    wire::bytes(1, object, &mut raw);
    let mut event = Vec::with_capacity(raw.len() + 16);
    wire::bytes(1, kind.as_bytes(), &mut event);
    wire::bytes(2, &raw, &mut event);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(&event);
    out
}

#[cfg(test)]
mod tests;
