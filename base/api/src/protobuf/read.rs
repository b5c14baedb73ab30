//! Messages to JSON values.

use std::cell::Cell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value, json};

use super::wire::{Payload, Reader};
use super::{MAGIC, ProtobufError};
use crate::schema::{Cardinality, Field, Message, Or, Type};
use crate::strict::{self, DecodeError, Room};
use crate::time;

/// Objects in raw extensions may be envelopes themselves; this deep and no deeper. Each message can be two levels of
/// JSON, a list and its element.
const DEEPEST: u32 = 40;
/// What an element of a list takes in memory, before it has any fields.
const ELEMENT: usize = 704;

/// Where in the message we are, and how much more memory may be taken.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    depth: u32,
    memory: &'a Cell<usize>,
}

impl<'a> At<'a> {
    pub(super) fn root(memory: &'a Cell<usize>) -> At<'a> {
        At { depth: 0, memory }
    }

    fn deeper(self) -> At<'a> {
        At { depth: self.depth + 1, ..self }
    }

    fn take(self, bytes: usize) -> Result<(), ProtobufError> {
        let left = self.memory.get().checked_sub(bytes);
        self.memory.set(left.ok_or(ProtobufError::TooLarge)?);
        Ok(())
    }
}

/// The parts of an envelope.
pub(super) struct Envelope<'a> {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) raw: &'a [u8],
}

pub(super) fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::NoEnvelope)?;
    let mut out = Envelope { api_version: String::new(), kind: String::new(), raw: &[] };
    let mut reader = Reader::new(body);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Bytes(meta)) => {
                let mut inner = Reader::new(meta);
                while let Some((number, payload)) = inner.field()? {
                    match number {
                        1 => out.api_version = text(number, payload)?,
                        2 => out.kind = text(number, payload)?,
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(raw)) => out.raw = raw,
            _ => {}
        }
    }
    Ok(out)
}

/// Reads a message into the object; `via` selects the fields of an embedded message.
pub(super) fn message(
    schema: &Message,
    via: u32,
    bytes: &[u8],
    out: &mut Map<String, Value>,
    at: At<'_>,
) -> Result<(), ProtobufError> {
    if at.depth > DEEPEST {
        return Err(ProtobufError::Value("the object is nested too deeply".to_owned()));
    }
    let wire = schema.wire();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        let own = match via {
            0 => wire.field(number),
            _ => schema.fields.iter().find(|f| f.via == via && f.number == number),
        };
        if let Some(field) = own {
            read_field(field, payload, out, at)?;
            continue;
        }
        let below = via * 100 + number;
        if wire.embedded.contains(&below)
            && let Payload::Bytes(inner) = payload
        {
            message(schema, below, inner, out, at.deeper())?;
        }
    }
    Ok(())
}

fn read_field(
    field: &Field,
    payload: Payload<'_>,
    out: &mut Map<String, Value>,
    at: At<'_>,
) -> Result<(), ProtobufError> {
    match field.cardinality {
        Cardinality::One => {
            let value = read_value(&field.ty, field.number, payload, at)?;
            out.insert(field.name.to_string(), value);
        }
        Cardinality::List => {
            let packed = matches!(field.ty, Type::I32 | Type::I64 | Type::Bool);
            let mut items = Vec::new();
            match payload {
                Payload::Bytes(inner) if packed => {
                    let mut reader = Reader::new(inner);
                    while !reader.is_empty() {
                        at.take(2 * size_of::<Value>())?;
                        let number = Payload::Varint(reader.varint()?);
                        items.push(read_value(&field.ty, field.number, number, at)?);
                    }
                }
                other => {
                    at.take(if field.message().is_some() { ELEMENT } else { 2 * size_of::<Value>() })?;
                    items.push(read_value(&field.ty, field.number, other, at)?);
                }
            }
            match out.entry(field.name).or_insert_with(|| json!([])) {
                Value::Array(list) => list.extend(items),
                other => *other = Value::Array(items),
            }
        }
        Cardinality::Map => {
            at.take(ELEMENT)?;
            let (key, value) = pair(field, payload, at)?;
            if let Value::Object(map) = out.entry(field.name).or_insert_with(|| json!({})) {
                map.insert(key, value);
            }
        }
    }
    Ok(())
}

fn pair(field: &Field, payload: Payload<'_>, at: At<'_>) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader::new(bytes(field.number, payload)?);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => key = text(number, payload)?,
            2 => value = Some(read_value(&field.ty, number, payload, at)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => match field.ty {
            Type::Bool => json!(false),
            Type::I32 | Type::I64 => json!(0),
            Type::F64 => json!(0.0),
            _ => read_value(&field.ty, 2, Payload::Bytes(&[]), at)?,
        },
    };
    Ok((key, value))
}

fn bytes(number: u32, payload: Payload<'_>) -> Result<&[u8], ProtobufError> {
    match payload {
        Payload::Bytes(bytes) => Ok(bytes),
        other => Err(ProtobufError::WireType { number, wire_type: other.wire_type() }),
    }
}

fn text(number: u32, payload: Payload<'_>) -> Result<String, ProtobufError> {
    let bytes = bytes(number, payload)?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ProtobufError::Utf8 { number })
}

fn varint(number: u32, payload: Payload<'_>) -> Result<i64, ProtobufError> {
    match payload {
        Payload::Varint(value) => Ok(i64::from_ne_bytes(value.to_ne_bytes())),
        other => Err(ProtobufError::WireType { number, wire_type: other.wire_type() }),
    }
}

fn read_value(ty: &Type, number: u32, payload: Payload<'_>, at: At<'_>) -> Result<Value, ProtobufError> {
    Ok(match ty {
        Type::Str => Value::String(text(number, payload)?),
        Type::Bool => Value::Bool(varint(number, payload)? != 0),
        Type::I32 | Type::I64 => json!(varint(number, payload)?),
        Type::F64 => match payload {
            Payload::Fixed64(bits) => {
                Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number)
            }
            Payload::Fixed32(bits) => json!(f32::from_bits(bits)),
            other => return Err(ProtobufError::WireType { number, wire_type: other.wire_type() }),
        },
        Type::Bytes => Value::String(STANDARD.encode(bytes(number, payload)?)),
        Type::Message(index) => {
            let mut map = Map::new();
            message(Message::at(*index), 0, bytes(number, payload)?, &mut map, at.deeper())?;
            Value::Object(map)
        }
        Type::SchemaOr(index, or) => schema_or(*index, *or, bytes(number, payload)?, at)?,
        _ => special(ty, bytes(number, payload)?, at)?,
    })
}

/// A schema, or what may stand in its place.
fn schema_or(index: u16, or: Or, bytes: &[u8], at: At<'_>) -> Result<Value, ProtobufError> {
    let mut reader = Reader::new(bytes);
    let (mut allowed, mut schema, mut items) = (false, None, Vec::new());
    while let Some((number, payload)) = reader.field()? {
        match (or, number) {
            (Or::Bool, 1) => allowed = varint(number, payload)? != 0,
            (Or::Bool, 2) | (Or::Schemas | Or::Strings, 1) => {
                schema = Some(read_value(&Type::Message(index), number, payload, at)?);
            }
            (Or::Schemas, 2) => {
                at.take(ELEMENT)?;
                items.push(read_value(&Type::Message(index), number, payload, at)?);
            }
            (Or::Strings, 2) => {
                at.take(2 * size_of::<Value>())?;
                items.push(Value::String(text(number, payload)?));
            }
            _ => {}
        }
    }
    Ok(match (schema, or) {
        (Some(schema), _) => schema,
        (None, Or::Bool) => Value::Bool(allowed),
        (None, _) => Value::Array(items),
    })
}

/// Types that are messages on the wire and something simpler in JSON.
fn special(ty: &Type, bytes: &[u8], at: At<'_>) -> Result<Value, ProtobufError> {
    let mut numbers = [0i64; 3];
    let mut texts: Vec<&[u8]> = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match payload {
            Payload::Varint(value) if (1..=2).contains(&number) => {
                numbers[number as usize] = i64::from_ne_bytes(value.to_ne_bytes());
            }
            Payload::Bytes(inner) => texts.push(inner),
            _ => {}
        }
    }
    let first = texts.first().copied().unwrap_or_default();
    let utf8 = |bytes: &[u8]| {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ProtobufError::Utf8 { number: 1 })
    };
    Ok(match ty {
        Type::Quantity => {
            let text = utf8(first)?;
            Value::String(if text.is_empty() { "0".to_owned() } else { text })
        }
        Type::IntOrString if numbers[1] == 1 => Value::String(utf8(first)?),
        Type::IntOrString => json!(numbers[2]),
        Type::Time | Type::MicroTime if bytes.is_empty() => Value::Null,
        Type::Time | Type::MicroTime => {
            let nanos = i32::try_from(numbers[2]).unwrap_or(0);
            let at = Timestamp::new(numbers[1], nanos).map_err(|e| ProtobufError::Value(e.to_string()))?;
            Value::String(if matches!(ty, Type::Time) { time::seconds(at) } else { time::micros(at) })
        }
        Type::Duration => Value::String(time::format_duration(numbers[1])),
        Type::Strs => {
            texts.into_iter().map(|t| utf8(t).map(Value::String)).collect::<Result<Vec<_>, _>>()?.into()
        }
        _ => raw(first, at)?,
    })
}

/// A raw object: JSON, or an envelope of its own.
fn raw(bytes: &[u8], at: At<'_>) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if bytes.starts_with(MAGIC) {
        let envelope = envelope(bytes)?;
        let schema = super::schema_of(&envelope.api_version, &envelope.kind).ok_or_else(|| {
            ProtobufError::UnknownKind {
                api_version: envelope.api_version.clone(),
                kind: envelope.kind.clone(),
            }
        })?;
        let mut map = Map::new();
        message(schema, 0, envelope.raw, &mut map, at.deeper())?;
        map.insert("apiVersion".to_owned(), envelope.api_version.into());
        map.insert("kind".to_owned(), envelope.kind.into());
        return Ok(Value::Object(map));
    }
    let levels = usize::try_from(at.depth).unwrap_or(usize::MAX).saturating_mul(2);
    let mut room = Room::new(strict::DEEPEST.saturating_sub(levels), at.memory.get(), usize::MAX);
    let value = strict::decode_within(bytes, &mut room).map_err(|error| match error {
        DecodeError::TooLarge => ProtobufError::TooLarge,
        other => ProtobufError::Value(other.to_string()),
    });
    at.memory.set(room.memory());
    value
}
