//! JSON values to messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::wire;
use crate::schema::{Cardinality, Field, Message, Or, Type};
use crate::time;

pub(super) fn message(schema: &Message, map: &Map<String, Value>, out: &mut Vec<u8>) {
    // Messages that Go embeds: their fields sit in this object in JSON, but in a message of their own here.
    let mut embedded: Vec<(u32, Vec<u8>)> =
        schema.wire().embedded.iter().map(|via| (*via, Vec::new())).collect();
    for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        let Some(field) = schema.field(name).filter(|f| f.number != 0) else { continue };
        if field.via == 0 {
            write_field(field, value, out);
        } else if let Some((_, inner)) = embedded.iter_mut().find(|(via, _)| *via == field.via) {
            write_field(field, value, inner);
        }
    }
    // The deepest come last in the list, and go into the ones before them.
    while let Some((via, inner)) = embedded.pop() {
        match embedded.iter_mut().find(|(outer, _)| via >= 100 && *outer == via / 100) {
            Some((_, outer)) => wire::bytes(via % 100, &inner, outer),
            None => wire::bytes(via, &inner, out),
        }
    }
}

fn write_field(field: &Field, value: &Value, out: &mut Vec<u8>) {
    match (field.cardinality, value) {
        (Cardinality::One, value) => write_value(&field.ty, field.number, value, out),
        (Cardinality::List, Value::Array(items)) => {
            for item in items {
                write_value(&field.ty, field.number, item, out);
            }
        }
        (Cardinality::Map, Value::Object(entries)) => {
            for (key, entry) in entries {
                let mut pair = Vec::new();
                wire::bytes(1, key.as_bytes(), &mut pair);
                write_value(&field.ty, 2, entry, &mut pair);
                wire::bytes(field.number, &pair, out);
            }
        }
        _ => {}
    }
}

fn signed(value: i64) -> u64 {
    u64::from_ne_bytes(value.to_ne_bytes())
}

fn whole(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_f64().and_then(|f| format!("{f:.0}").parse().ok())).unwrap_or(0)
}

fn write_value(ty: &Type, number: u32, value: &Value, out: &mut Vec<u8>) {
    let text = || value.as_str().unwrap_or_default();
    match ty {
        Type::Str => wire::bytes(number, text().as_bytes(), out),
        Type::Bool => wire::number(number, u64::from(value.as_bool().unwrap_or(false)), out),
        Type::I32 | Type::I64 => wire::number(number, signed(whole(value)), out),
        Type::F64 => wire::double(number, value.as_f64().unwrap_or(0.0), out),
        Type::Bytes => wire::bytes(number, &STANDARD.decode(text()).unwrap_or_default(), out),
        Type::Message(index) => {
            let mut inner = Vec::new();
            if let Value::Object(map) = value {
                message(Message::at(*index), map, &mut inner);
            }
            wire::bytes(number, &inner, out);
        }
        Type::SchemaOr(index, or) => {
            let mut inner = Vec::new();
            schema_or(*index, *or, value, &mut inner);
            wire::bytes(number, &inner, out);
        }
        _ => {
            let mut inner = Vec::new();
            special(ty, value, &mut inner);
            wire::bytes(number, &inner, out);
        }
    }
}

/// A schema, or what may stand in its place.
fn schema_or(index: u16, or: Or, value: &Value, out: &mut Vec<u8>) {
    let of_schema = if or == Or::Bool { 2 } else { 1 };
    match value {
        Value::Bool(allowed) => wire::number(1, u64::from(*allowed), out),
        Value::Array(items) if or == Or::Strings => {
            items.iter().for_each(|item| write_value(&Type::Str, 2, item, out))
        }
        Value::Array(items) => items.iter().for_each(|item| write_value(&Type::Message(index), 2, item, out)),
        schema => {
            if or == Or::Bool {
                wire::number(1, 1, out);
            }
            write_value(&Type::Message(index), of_schema, schema, out);
        }
    }
}

/// Types that are messages on the wire and something simpler in JSON.
fn special(ty: &Type, value: &Value, out: &mut Vec<u8>) {
    match ty {
        Type::Quantity => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            wire::bytes(1, text.as_bytes(), out);
        }
        Type::IntOrString => match value {
            Value::String(text) => {
                wire::number(1, 1, out);
                wire::number(2, 0, out);
                wire::bytes(3, text.as_bytes(), out);
            }
            number => {
                wire::number(1, 0, out);
                wire::number(2, signed(whole(number)), out);
                wire::bytes(3, b"", out);
            }
        },
        Type::Time | Type::MicroTime => {
            if let Some(at) = value.as_str().and_then(|t| t.parse::<Timestamp>().ok()) {
                wire::number(1, signed(at.as_second()), out);
                let nanos = if matches!(ty, Type::Time) { 0 } else { at.subsec_nanosecond() };
                wire::number(2, signed(i64::from(nanos)), out);
            }
        }
        Type::Duration => {
            let nanos = value.as_str().and_then(time::parse_duration).unwrap_or(0);
            wire::number(1, signed(nanos), out);
        }
        Type::Fields | Type::Raw | Type::Json => wire::bytes(1, value.to_string().as_bytes(), out),
        Type::Strs => {
            for item in value.as_array().into_iter().flatten() {
                wire::bytes(1, item.as_str().unwrap_or_default().as_bytes(), out);
            }
        }
        _ => {}
    }
}
