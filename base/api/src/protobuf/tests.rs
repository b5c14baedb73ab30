//! Round trips of every kind, and bytes checked by hand.

use super::*;
use crate::schema::{Cardinality, Message, Or, Type};
use serde_json::json;

/// A value in which every field of the message is set.
fn full(schema: &Message, depth: usize) -> Value {
    let mut map = Map::new();
    for field in schema.fields.iter().filter(|f| f.number != 0) {
        let Some(one) = sample(&field.ty, field.name, depth) else { continue };
        let value = match field.cardinality {
            Cardinality::One => one,
            Cardinality::List => json!([one.clone(), one]),
            Cardinality::Map => json!({"key": one}),
        };
        map.insert(field.name.to_string(), value);
    }
    Value::Object(map)
}

fn sample(ty: &Type, name: &str, depth: usize) -> Option<Value> {
    // Schemas have schemas in many places: one level is as good as all.
    let schema = crate::schema::Message::named(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    );
    let of_schema = |index: u16, depth: usize| {
        let at = Message::at(index);
        if schema.is_some_and(|schema| schema.name == at.name) { depth.max(13) + 1 } else { depth + 1 }
    };
    Some(match ty {
        Type::Str => json!(format!("{name}-é")),
        Type::Bool => json!(true),
        Type::I32 => json!(-7),
        Type::I64 => json!(-5_000_000_000i64),
        Type::F64 => json!(1.5),
        Type::Bytes => json!("aGVsbG8="),
        Type::Quantity => json!("1500m"),
        Type::IntOrString => json!(if name.len().is_multiple_of(2) { json!(-3) } else { json!("25%") }),
        Type::Time => json!("2026-11-15T11:22:33Z"),
        Type::MicroTime => json!("2026-11-15T11:22:33.123456Z"),
        Type::Duration => json!("1h2m3.5s"),
        Type::Fields => json!({"f:a": {}}),
        Type::Raw => json!({"apiVersion": "x/v1", "kind": "Y", "n": [1, null]}),
        Type::Strs => json!(["a", ""]),
        Type::Json => json!({"any": [1, "x"]}),
        Type::SchemaOr(_, Or::Bool) => json!(name.len().is_multiple_of(2)),
        Type::SchemaOr(_, Or::Strings) => json!(["a"]),
        Type::SchemaOr(index, Or::Schemas) => {
            if depth > 14 {
                return None;
            }
            full(Message::at(*index), of_schema(*index, depth))
        }
        Type::Message(index) => {
            if depth > 14 {
                return None;
            }
            full(Message::at(*index), of_schema(*index, depth))
        }
    })
}

#[test]
fn every_kind_survives_the_round_trip() {
    for kind in crate::kinds() {
        for whole in [full(&kind.schema, 0), json!({"metadata": {"name": "only"}})] {
            let mut object = whole;
            strict::conform(kind, &mut object).unwrap();
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind.as_ref().into();
            let bytes = encode(kind, &object);
            assert_eq!(decode(kind, &bytes).unwrap(), object, "{}", kind.kind);
            assert_eq!(decode_any(&bytes).unwrap(), object, "{}", kind.kind);
        }
    }
}

#[test]
fn every_message_survives_the_round_trip() {
    for schema in
        Message::all().iter().filter(|m| !m.name.ends_with("Table") && !m.name.ends_with("TableRow"))
    {
        // List options and the like have JSON names only.
        if schema.fields.iter().all(|f| f.number == 0) {
            continue;
        }
        let mut object = full(schema, 0);
        strict::conform_message(schema, &mut object).unwrap();
        let back = decode_message(schema, &encode_message(schema, &object)).unwrap();
        assert_eq!(back, object, "{}", schema.name);
    }
}

#[test]
fn bytes_are_those_of_upstream() {
    let kind = crate::by_resource("", "v1", "configmaps").unwrap();
    let bytes = encode(kind, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    let mut expected = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d".to_vec();
    expected.extend_from_slice(b"\x12\x06\x0a\x01k\x12\x01v\x0a\x03\x0a\x01a");
    expected.extend_from_slice(b"\x1a\0\x22\0");
    assert_eq!(bytes, expected);
    // Go writes every plain field, empty ones too.
    let go = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1b\x0a\x11\x0a\x01a\x12\0\x1a\0\x22\0\x2a\0\x32\08\0B\0\x12\x06\x0a\x01k\x12\x01v\x1a\0\"\0";
    assert_eq!(
        decode(kind, go).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
    );
}

#[test]
fn lists_and_events_are_framed() {
    let kind = crate::by_resource("", "v1", "configmaps").unwrap();
    let item = encode_message(&kind.schema, &json!({"metadata": {"name": "a"}}));
    let list =
        encode_list(kind, &json!({"resourceVersion": "7"}), [item.as_slice(), item.as_slice()].into_iter());
    let decoded = decode_any(&list).unwrap();
    assert_eq!(decoded["kind"], "ConfigMapList");
    assert_eq!(decoded["metadata"]["resourceVersion"], "7");
    assert_eq!(decoded["items"].as_array().unwrap().len(), 2);
    let event = watch_event("ADDED", &encode(kind, &json!({"metadata": {"name": "a"}})));
    assert_eq!(u32::from_be_bytes(event[..4].try_into().unwrap()) as usize, event.len() - 4);
    let schema = strict::message("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent").unwrap();
    let decoded = decode_message(schema, &event[4..]).unwrap();
    assert_eq!(
        (decoded["type"].as_str(), decoded["object"]["kind"].as_str()),
        (Some("ADDED"), Some("ConfigMap"))
    );
}

#[test]
fn broken_bytes_are_refused_without_panic() {
    let kind = crate::by_resource("", "v1", "pods").unwrap();
    assert_eq!(decode(kind, b"{}").unwrap_err(), ProtobufError::NoEnvelope);
    let good = encode(kind, &full(&kind.schema, 0));
    for length in (0..good.len()).step_by(97) {
        // Any prefix either decodes to less or is refused.
        decode(kind, &good[..length]).ok();
    }
    for at in (4..good.len()).step_by(211) {
        let mut spoiled = good.clone();
        spoiled[at] ^= 0x55;
        decode(kind, &spoiled).ok();
    }
    assert!(decode_any(b"k8s\0\x0a\x08\x0a\x02v1\x12\x02Xy").is_err());
}
