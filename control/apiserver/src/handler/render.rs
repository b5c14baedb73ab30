//! Objects in the representation the client asked for.

use bytes::BytesMut;
use http::StatusCode;
use podwire_api::protobuf;
use podwire_api::{Kind, table};
use podwire_store::KeyValue;
use serde_json::{Value, json};

use super::Call;
use crate::body::{Response, respond, to_bytes};
use crate::codec;
use crate::context;
use crate::negotiate::{Encoding, PROTOBUF, Representation, Shape};
use crate::status::{ApiError, Result};
use crate::traced;

/// Renders stored bytes; plain JSON is a copy with the version put in, nothing is parsed.
pub(crate) async fn stored(
    call: &Call,
    code: StatusCode,
    rep: Representation,
    kv: KeyValue,
) -> Result<Response> {
    let kv = call.context.served(&call.kind, kv).await?;
    let mut response = bytes_of(call, code, rep, &kv)?;
    if traced::is_traced(&call.kind) {
        response.extensions_mut().insert(traced::Shown(kv));
    }
    Ok(response)
}

fn bytes_of(call: &Call, code: StatusCode, rep: Representation, kv: &KeyValue) -> Result<Response> {
    let plain = rep.encoding == Encoding::Json && rep.shape == Shape::Object && !rep.pretty;
    if !plain || call.kind.strategy.is_converted() {
        return Ok(object(call, code, rep, context::read(&call.kind, kv)?));
    }
    let tail = codec::tail(kv).map_err(|error| ApiError::internal(crate::error_chain(&error)))?;
    let mut out = BytesMut::with_capacity(tail.len() + 128);
    codec::write_object(&mut out, &call.kind, kv.mod_revision, &tail);
    out.extend_from_slice(b"\n");
    Ok(respond(code, "application/json", out.freeze()))
}

/// Renders a parsed object of the call's kind.
pub(crate) fn object(call: &Call, code: StatusCode, rep: Representation, object: Value) -> Response {
    match rep.shape {
        Shape::Object => value(code, rep, &call.kind, &object),
        Shape::Partial => value(code, rep, &call.kind, &partial(object)),
        Shape::Table => {
            let version = object["metadata"]["resourceVersion"].clone();
            let include = call.query.get("includeObject");
            let rows = vec![row(&call.kind, object, include, jiff::Timestamp::now())];
            value(
                code,
                rep,
                &call.kind,
                &make_table(&call.kind, json!({"resourceVersion": version}), rows, true),
            )
        }
    }
}

/// Encodes a value as it is.
pub(crate) fn value(code: StatusCode, rep: Representation, kind: &Kind, value: &Value) -> Response {
    match rep.encoding {
        Encoding::Json if rep.pretty => {
            let mut text = serde_json::to_vec_pretty(value).expect("a JSON value can be written as JSON");
            text.push(b'\n');
            respond(code, "application/json", text)
        }
        Encoding::Json => respond(code, "application/json", to_bytes(value)),
        Encoding::Yaml => {
            let text = serde_yaml_ng::to_string(value).unwrap_or_else(|_| value.to_string());
            respond(code, "application/yaml", text)
        }
        Encoding::Protobuf => respond(code, PROTOBUF, protobuf::encode(kind, value)),
    }
}

/// Only the metadata of an object.
pub(crate) fn partial(mut object: Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"].take()})
}

/// One row of a table.
pub(crate) fn row(kind: &Kind, object: Value, include: Option<&str>, now: jiff::Timestamp) -> Value {
    let cells = table::row(kind, &object, now);
    let shown = match include {
        Some("None") => return json!({"cells": cells}),
        Some("Object") => object,
        _ => partial(object),
    };
    json!({"cells": cells, "object": shown})
}

/// A table; the columns are left out of all but the first event of a watch.
pub(crate) fn make_table(kind: &Kind, metadata: Value, rows: Vec<Value>, columns: bool) -> Value {
    let columns = if columns { table::columns(kind) } else { json!([]) };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}
