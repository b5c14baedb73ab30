//! How objects lie in the store, and how they are read back without parsing.
//!
//! A stored value is a four-byte header, `pw` + format + version, and the object as canonical JSON
//! (sorted keys, no spaces) that has no `apiVersion`, `kind` or `metadata.resourceVersion` and begins
//! with its metadata. Between the two, custom resources have the version that they are in. A reader therefore puts the missing parts in front: no scan, no copy of the rest.

use bytes::{Bytes, BytesMut};
use podwire_api::Kind;
use podwire_store::KeyValue;
use serde_json::{Map, Value};

/// Magic, format (`J`: canonical JSON) and version of a stored value.
const HEADER: &[u8; 4] = b"pwJ\x01";
/// The same of a value that says the version that it is in: a byte with the length of its name, and the name.
const MARKED: &[u8; 4] = b"pwJ\x02";
/// What every stored JSON text begins with.
const OPENING: &[u8] = b"{\"metadata\":{";
/// The largest request etcd takes unless it is told otherwise.
const MOST_STORED: usize = 1_572_864;
/// What a transaction of upstream's API server adds to the key, which it names three times, and the value.
const TRANSACTION: usize = 64;

/// Why stored bytes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value does not begin as this server writes values.
    #[error("the value of {key} has an unknown format")]
    UnknownFormat {
        /// The key.
        key: String,
    },
    /// The JSON in it is broken.
    #[error("the value of {key} is not readable")]
    Json {
        /// The key.
        key: String,
        /// What the parser said.
        source: serde_json::Error,
    },
}

/// Encodes an object for the store; `version` is the one that it is in, of a kind that has several.
pub(crate) fn encode(object: &Value, version: Option<&str>) -> Bytes {
    let mut out = begun(version);
    out.reserve(1024);
    out.extend_from_slice(OPENING);
    let mut first = true;
    let none = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&none);
    for (key, value) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
        write_member(&mut out, key, value, &mut first);
    }
    out.push(b'}');
    for (key, value) in object.as_object().unwrap_or(&none) {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            write_member(&mut out, key, value, &mut false);
        }
    }
    out.push(b'}');
    // Kept for as long as the object lives: what the buffer has too much would be kept as well.
    out.shrink_to_fit();
    out.into()
}

/// A value with its header.
fn begun(version: Option<&str>) -> Vec<u8> {
    let Some((version, length)) = version.and_then(|name| Some((name, u8::try_from(name.len()).ok()?)))
    else {
        return HEADER.to_vec();
    };
    let mut out = MARKED.to_vec();
    out.push(length);
    out.extend_from_slice(version.as_bytes());
    out
}

/// The version that a stored value says it is in.
pub(crate) fn version(kv: &KeyValue) -> Option<&str> {
    let (length, rest) = kv.value.strip_prefix(MARKED.as_slice())?.split_first()?;
    str::from_utf8(rest.get(..usize::from(*length))?).ok()
}

/// Where the JSON text of a stored value begins.
fn text_start(kv: &KeyValue) -> Option<usize> {
    if kv.value.starts_with(HEADER) {
        return Some(HEADER.len());
    }
    Some(MARKED.len() + 1 + version(kv)?.len())
}

/// The stored value of which [`tail`] gave this.
pub(crate) fn whole(version: Option<&str>, tail: &[u8]) -> Bytes {
    let mut out = begun(version);
    out.extend_from_slice(OPENING);
    out.extend_from_slice(tail);
    out.into()
}

/// Whether etcd would take a value, which lies there as protobuf: what is stored here can move there.
///
/// JSON is the larger of the two, so that all but huge objects are told by their length alone.
pub(crate) fn fits(kind: &Kind, key: &str, value: &Bytes) -> bool {
    let around = 3 * key.len() + TRANSACTION;
    if value.len() + around <= MOST_STORED {
        return true;
    }
    // Definitions and what they define lie there as JSON.
    if kind.schema.is_structural() || kind.strategy.defines_kinds() {
        return false;
    }
    let text = value.strip_prefix(HEADER.as_slice()).unwrap_or(value);
    let Ok(object) = serde_json::from_slice::<Value>(text) else { return false };
    podwire_api::protobuf::encode(kind, &object).len() + around <= MOST_STORED
}

fn write_member(out: &mut Vec<u8>, key: &str, value: &Value, first: &mut bool) {
    if !std::mem::replace(first, false) {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, key).expect("a string can be written to memory");
    out.push(b':');
    serde_json::to_writer(&mut *out, value).expect("a JSON value can be written to memory");
}

/// The part of a stored value that follows `{"metadata":{`.
pub(crate) fn tail(kv: &KeyValue) -> Result<Bytes, CodecError> {
    match text_start(kv).filter(|start| kv.value[*start..].starts_with(OPENING)) {
        Some(start) => Ok(kv.value.slice(start + OPENING.len()..)),
        None => Err(CodecError::UnknownFormat { key: kv.key.to_string() }),
    }
}

/// The JSON text of a stored value, still without its resource version.
pub(crate) fn json_text(kv: &KeyValue) -> Result<&[u8], CodecError> {
    match text_start(kv) {
        Some(start) => Ok(&kv.value[start..]),
        None => Err(CodecError::UnknownFormat { key: kv.key.to_string() }),
    }
}

/// What an object begins with in a list: nothing about what it is, unless its kind was defined at run time.
pub(crate) fn item_start(kind: &Kind) -> Vec<u8> {
    if !kind.schema.is_structural() {
        return OPENING.to_vec();
    }
    let mut out =
        format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", kind.api_version(), kind.kind).into_bytes();
    out.extend_from_slice(&OPENING[1..]);
    out
}

/// Writes an object as it stands in a list, behind what [`item_start`] says.
pub(crate) fn write_started(out: &mut BytesMut, start: &[u8], revision: u64, tail: &[u8]) {
    out.extend_from_slice(start);
    write_version(out, revision, tail);
}

/// Writes an object without `apiVersion` and `kind`.
pub(crate) fn write_item(out: &mut BytesMut, revision: u64, tail: &[u8]) {
    write_started(out, OPENING, revision, tail);
}

/// Writes an object as it stands alone.
pub(crate) fn write_object(out: &mut BytesMut, kind: &Kind, revision: u64, tail: &[u8]) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(kind.api_version().as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(&OPENING[1..]);
    write_version(out, revision, tail);
}

/// Writes an object's metadata alone, as `PartialObjectMetadata`.
pub(crate) fn write_partial(out: &mut BytesMut, revision: u64, tail: &[u8]) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",");
    out.extend_from_slice(&OPENING[1..]);
    write_version(out, revision, &tail[..metadata_end(tail)]);
    out.extend_from_slice(b"}");
}

/// Where the metadata ends that a tail begins with, its closing brace included.
fn metadata_end(tail: &[u8]) -> usize {
    let (mut depth, mut in_text, mut at) = (1, false, 0);
    while at < tail.len() && depth > 0 {
        match (in_text, tail[at]) {
            // What follows is part of the text, whatever it is.
            (true, b'\\') => at += 1,
            (_, b'"') => in_text = !in_text,
            (false, b'{') => depth += 1,
            (false, b'}') => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    at.min(tail.len())
}

fn write_version(out: &mut BytesMut, revision: u64, tail: &[u8]) {
    out.extend_from_slice(b"\"resourceVersion\":\"");
    out.extend_from_slice(revision.to_string().as_bytes());
    out.extend_from_slice(if tail.first() == Some(&b'}') { b"\"" } else { b"\"," });
    out.extend_from_slice(tail);
}

/// Parses a stored value into the object a client would see.
pub(crate) fn decode(kind: &Kind, kv: &KeyValue) -> Result<Value, CodecError> {
    let mut object: Value = serde_json::from_slice(json_text(kv)?)
        .map_err(|source| CodecError::Json { key: kv.key.to_string(), source })?;
    stamp(kind, &mut object, version(kv), kv.mod_revision);
    Ok(object)
}

/// Sets `apiVersion`, `kind` and the resource version. An object that says its version has that one.
fn stamp(kind: &Kind, object: &mut Value, version: Option<&str>, revision: u64) {
    let api_version = match version {
        Some(version) => format!("{}/{version}", kind.group),
        None => kind.api_version(),
    };
    object["apiVersion"] = api_version.into();
    object["kind"] = (*kind.kind).into();
    object["metadata"]["resourceVersion"] = revision.to_string().into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_api::builtin;
    use serde_json::json;

    fn stored(object: &Value, revision: u64) -> KeyValue {
        KeyValue { key: "/k".into(), value: encode(object, None), create_revision: 1, mod_revision: revision }
    }

    #[test]
    fn metadata_is_cut_out_whatever_is_in_it() {
        let hard =
            json!({"name": "x", "annotations": {"a{": "}\"}\\", "b\\": "{[", "c": "\\\""}, "labels": {}});
        for metadata in [json!({}), json!({"name": "x"}), hard] {
            let object = json!({"metadata": metadata, "data": {"metadata": "}"}, "spec": {"a": {}}});
            let kv = stored(&object, 42);
            let mut out = BytesMut::new();
            write_partial(&mut out, kv.mod_revision, &tail(&kv).unwrap());
            let read: Value = serde_json::from_slice(&out).unwrap();
            let mut wanted = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
            wanted["metadata"]["resourceVersion"] = "42".into();
            assert_eq!(read, wanted);
        }
    }

    #[test]
    fn a_reader_sees_the_revision_without_parsing() {
        let kind = builtin::config_maps();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"},
            "metadata": {"name": "x", "resourceVersion": "3"}});
        let kv = stored(&object, 42);
        let mut out = BytesMut::new();
        write_object(&mut out, kind, kv.mod_revision, &tail(&kv).unwrap());
        let read: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read["metadata"], json!({"name": "x", "resourceVersion": "42"}));
        assert_eq!((read["kind"].as_str(), read["data"]["a"].as_str()), (Some("ConfigMap"), Some("1")));
        assert_eq!(decode(kind, &kv).unwrap(), read);
    }

    #[test]
    fn a_value_says_the_version_that_it_is_in() {
        let object = json!({"metadata": {"name": "x"}, "spec": {"a": 1}});
        let (plain, marked) = (encode(&object, None), encode(&object, Some("v1beta1")));
        let kv = |value: &Bytes| KeyValue { value: value.clone(), ..stored(&object, 1) };
        assert_eq!((version(&kv(&plain)), version(&kv(&marked))), (None, Some("v1beta1")));
        assert_eq!(tail(&kv(&plain)).unwrap(), tail(&kv(&marked)).unwrap());
        for value in [plain, marked] {
            let kv = kv(&value);
            assert_eq!(whole(version(&kv), &tail(&kv).unwrap()), value);
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for value in [
            &b"k8s\0"[..],
            b"pwJ",
            b"pwJ\x02",
            b"pwJ\x02\x09v1{}",
            b"pwJ\x02\x01\xff{\"metadata\":{}}",
            b"pwJ\x03{}",
        ] {
            let value = Bytes::from_static(value);
            let kv = KeyValue { key: "/k".into(), value, create_revision: 1, mod_revision: 1 };
            assert!(matches!(tail(&kv), Err(CodecError::UnknownFormat { .. })));
        }
    }
}
