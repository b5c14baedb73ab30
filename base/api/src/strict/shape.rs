//! The walk of a value along its schema.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{Complaints, TypeError};
use crate::path::Path;
use crate::quantity::{Quantity, QuantityError};
use crate::schema::{Cardinality, Field, Message, Or, Type};
use crate::time;

/// A walk that brings a value into shape, with what it has complained about.
#[derive(Default)]
pub(crate) struct Shaping {
    unknown: Complaints,
}

type Checked = Result<(), TypeError>;

impl Shaping {
    /// Complains about a field that nobody knows.
    pub(crate) fn unknown(&mut self, path: &Path<'_>) {
        self.unknown.add("unknown field", path);
    }

    /// How many complaints there are.
    pub(crate) fn told(&self) -> usize {
        self.unknown.len()
    }

    /// Sorts the complaints from one on.
    pub(crate) fn sort_from(&mut self, start: usize) {
        self.unknown.sort_from(start);
    }

    pub(crate) fn into_list(self) -> Vec<String> {
        self.unknown.into_list()
    }

    pub(super) fn root(&mut self, schema: &Message, value: &mut Value) -> Checked {
        let path = Path::root("");
        match value {
            Value::Object(map) => match &schema.structural {
                Some(node) => node.conform(map, self),
                None => self.message(schema, map, &path),
            },
            Value::Null => {
                *value = Value::Object(Map::new());
                self.root(schema, value)
            }
            other => Err(TypeError(format!(
                "json: cannot unmarshal {} into Go value of type {}",
                json_type(other),
                go_message(schema)
            ))),
        }
    }

    /// Brings a struct into shape.
    pub(crate) fn message(
        &mut self,
        schema: &Message,
        map: &mut Map<String, Value>,
        path: &Path<'_>,
    ) -> Checked {
        let mut gone: Vec<String> = Vec::new();
        for (name, value) in map.iter_mut() {
            let child = path.child(name);
            match schema.field(name) {
                None => {
                    self.unknown.add("unknown field", &child);
                    gone.push(name.clone());
                }
                Some(_) if value.is_null() => gone.push(name.clone()),
                Some(field) => {
                    self.field(schema, field, value, &child)?;
                    if omitted(field, value) {
                        gone.push(name.clone());
                    } else if is_stored_as_nothing(field, value) {
                        *value = Value::Null;
                    }
                }
            }
        }
        for name in &gone {
            map.remove(name);
        }
        for field in schema.fields.iter() {
            if let Some(zero) = always_written(field)
                && !map.contains_key(field.name)
            {
                let mut value = zero;
                if let (Some(inner), Value::Object(empty)) = (field.message(), &mut value) {
                    self.message(inner, empty, path)?;
                }
                map.insert(field.name.to_string(), value);
            }
        }
        Ok(())
    }

    /// A schema, or what may stand in its place.
    fn schema_or(&mut self, schema: &Message, or: Or, value: &mut Value, path: &Path<'_>) -> Checked {
        match (or, value) {
            (_, Value::Object(map)) => self.message(schema, map, path),
            (Or::Bool, Value::Bool(_)) => Ok(()),
            (Or::Strings, Value::Array(list)) if list.iter().all(Value::is_string) => Ok(()),
            (Or::Schemas, Value::Array(list)) => {
                list.iter_mut().enumerate().try_for_each(|(at, item)| match item {
                    Value::Object(map) => self.message(schema, map, &path.index(at)),
                    other => Err(unfit_schema(schema, other)),
                })
            }
            (Or::Bool, _) => Err(TypeError("boolean or JSON schema expected".to_owned())),
            (_, other) => Err(unfit_schema(schema, other)),
        }
    }

    fn field(&mut self, owner: &Message, field: &Field, value: &mut Value, path: &Path<'_>) -> Checked {
        match field.cardinality {
            Cardinality::One => self.value(owner, field, value, path),
            Cardinality::List => match value {
                Value::Array(items) => {
                    for (i, item) in items.iter_mut().enumerate() {
                        let path = path.index(i);
                        if item.is_null() {
                            *item = null_element(&field.ty);
                        }
                        self.value(owner, field, item, &path)?;
                    }
                    Ok(())
                }
                other => Err(mismatch(owner, other, path, &go_type(field))),
            },
            Cardinality::Map => match value {
                Value::Object(entries) => {
                    for (key, entry) in entries.iter_mut() {
                        if entry.is_null() {
                            *entry = null_element(&field.ty);
                        }
                        match &field.ty {
                            Type::Message(_) => self.value(owner, field, entry, &path.entry(key))?,
                            _ => self.value(owner, field, entry, path)?,
                        }
                    }
                    Ok(())
                }
                other => Err(mismatch(owner, other, path, &go_type(field))),
            },
        }
    }

    fn value(&mut self, owner: &Message, field: &Field, value: &mut Value, path: &Path<'_>) -> Checked {
        if let Some(schema) = field.message() {
            return match value {
                Value::Object(map) => self.message(schema, map, path),
                other => Err(mismatch(owner, other, path, &go_message(schema))),
            };
        }
        if let Type::SchemaOr(index, or) = field.ty {
            return self.schema_or(Message::at(index), or, value, path);
        }
        if scalar(&field.ty, value)? {
            Ok(())
        } else {
            Err(mismatch(owner, value, path, go_scalar(&field.ty)))
        }
    }
}

/// Checks and normalises a scalar; false when the JSON type is wrong.
fn scalar(ty: &Type, value: &mut Value) -> Result<bool, TypeError> {
    Ok(match ty {
        Type::Str => value.is_string(),
        Type::Bool => value.is_boolean(),
        Type::I32 => integer(value).is_some_and(|n| i32::try_from(n).is_ok()),
        Type::I64 => integer(value).is_some(),
        Type::F64 => {
            whole_if_possible(value);
            value.is_number()
        }
        Type::Bytes => match value.as_str() {
            Some(text) => {
                bytes(text)?;
                true
            }
            None => false,
        },
        Type::Quantity => quantity(value)?,
        Type::IntOrString => {
            if !value.is_string() && integer(value).is_none_or(|n| i32::try_from(n).is_err()) {
                let found = json_type(value);
                return Err(TypeError(format!("json: cannot unmarshal {found} into Go value of type int32")));
            }
            true
        }
        Type::Time => instant(value, time::to_seconds)?,
        Type::MicroTime => instant(value, time::to_micros)?,
        Type::Duration => value.as_str().is_some_and(|text| time::parse_duration(text).is_some()),
        Type::Fields => value.is_object() || value.is_array(),
        Type::Raw | Type::Json => true,
        Type::Strs => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        Type::Message(_) => value.is_object(),
        Type::SchemaOr(..) => true,
    })
}

/// Go reads an integer only from digits: `1.0` is none.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64()
}

/// Go prints a whole number without a point, so that is how it is kept.
fn whole_if_possible(value: &mut Value) {
    let whole = value.as_f64().filter(|f| value.is_f64() && f.fract() == 0.0 && f.abs() < 1e15);
    if let Some(number) = whole.and_then(|f| format!("{f:.0}").parse::<i64>().ok()) {
        *value = Value::from(number);
    }
}

fn bytes(text: &str) -> Checked {
    match STANDARD.decode(text) {
        Ok(_) => Ok(()),
        Err(base64::DecodeError::InvalidByte(at, _)) => {
            Err(TypeError(format!("illegal base64 data at input byte {at}")))
        }
        Err(_) => Err(TypeError(format!(
            "illegal base64 data at input byte {}",
            text.len().saturating_sub(1) / 4 * 4
        ))),
    }
}

fn quantity(value: &mut Value) -> Result<bool, TypeError> {
    let refused = |error: QuantityError| TypeError(error.to_string());
    let stored = match &*value {
        Value::String(text) => {
            let stored = Quantity::stored(text.trim()).map_err(refused)?;
            (stored != *text).then(|| stored.into_owned())
        }
        Value::Number(number) => Some(Quantity::stored(&number.to_string()).map_err(refused)?.into_owned()),
        _ => return Ok(false),
    };
    if let Some(stored) = stored {
        *value = Value::String(stored);
    }
    Ok(true)
}

fn instant(value: &mut Value, normalize: fn(&str) -> Option<Option<String>>) -> Result<bool, TypeError> {
    let Some(text) = value.as_str() else { return Ok(false) };
    match normalize(text) {
        None => Err(TypeError(format!(
            "parsing time \"\\\"{text}\\\"\" as \"\\\"2006-01-02T15:04:05Z07:00\\\"\": cannot parse \"{text}\\\"\" as \"2006\""
        ))),
        Some(None) => Ok(true),
        Some(Some(changed)) => {
            *value = Value::String(changed);
            Ok(true)
        }
    }
}

fn null_element(ty: &Type) -> Value {
    match ty {
        Type::Str | Type::Bytes => Value::String(String::new()),
        Type::Bool => Value::Bool(false),
        Type::I32 | Type::I64 | Type::F64 | Type::IntOrString => Value::from(0),
        Type::Quantity => Value::String("0".to_owned()),
        Type::Strs => Value::Array(Vec::new()),
        Type::Message(_) | Type::Raw | Type::Fields => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

/// Whether Go leaves the value out when it prints the struct.
fn omitted(field: &Field, value: &Value) -> bool {
    if field.omits_zero() && field.cardinality == Cardinality::One && !field.is_pointer() {
        match value {
            Value::Object(map) if field.message().is_some() => return map.values().all(is_zero),
            _ => {}
        }
    }
    if !field.omits_empty() {
        return false;
    }
    match value {
        Value::Array(items) => items.is_empty() && !matches!(field.ty, Type::Raw | Type::Json),
        Value::Object(map) => map.is_empty() && field.cardinality == Cardinality::Map,
        _ if field.is_pointer() => false,
        Value::String(text) => text.is_empty() && matches!(field.ty, Type::Str | Type::Bytes),
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0) && matches!(field.ty, Type::I32 | Type::I64 | Type::F64),
        _ => false,
    }
}

/// An empty list or map that Go always writes comes back from the store as null.
fn is_stored_as_nothing(field: &Field, value: &Value) -> bool {
    match (field.cardinality, value) {
        (Cardinality::List, Value::Array(items)) => items.is_empty(),
        (Cardinality::Map, Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.values().all(is_zero),
    }
}

/// The zero value Go prints for an absent field, if it prints one.
fn always_written(field: &Field) -> Option<Value> {
    if field.omits_zero() {
        return None;
    }
    if field.is_pointer() || field.cardinality != Cardinality::One {
        return if field.omits_empty() { None } else { Some(Value::Null) };
    }
    let omits = field.omits_empty();
    match &field.ty {
        Type::Message(_) => Some(Value::Object(Map::new())),
        Type::Quantity => Some(Value::String("0".to_owned())),
        Type::IntOrString => Some(Value::from(0)),
        Type::Duration => Some(Value::String("0s".to_owned())),
        Type::Time | Type::MicroTime | Type::Fields | Type::Raw => Some(Value::Null),
        _ if omits => None,
        Type::Str => Some(Value::String(String::new())),
        Type::Bool => Some(Value::Bool(false)),
        Type::I32 | Type::I64 | Type::F64 => Some(Value::from(0)),
        Type::Bytes | Type::Json | Type::Strs | Type::SchemaOr(..) => Some(Value::Null),
    }
}

fn unfit_schema(schema: &Message, value: &Value) -> TypeError {
    TypeError(format!(
        "json: cannot unmarshal {} into Go value of type {}",
        json_type(value),
        go_message(schema)
    ))
}

fn mismatch(owner: &Message, value: &Value, path: &Path<'_>, expected: &str) -> TypeError {
    let found = match value {
        Value::Number(n) if matches!(expected, "int32" | "int64") => format!("number {n}"),
        other => json_type(other).to_owned(),
    };
    TypeError(format!(
        "json: cannot unmarshal {found} into Go struct field {}.{} of type {expected}",
        owner.short_name(),
        path.names()
    ))
}

/// How Go names the type of a JSON value that it does not decode.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_message(schema: &Message) -> String {
    format!("v1.{}", schema.short_name())
}

fn go_scalar(ty: &Type) -> &'static str {
    match ty {
        Type::Str => "string",
        Type::Bool => "bool",
        Type::I32 => "int32",
        Type::I64 => "int64",
        Type::F64 => "float64",
        Type::Bytes => "[]uint8",
        Type::Quantity => "resource.Quantity",
        Type::IntOrString => "intstr.IntOrString",
        Type::Time => "v1.Time",
        Type::MicroTime => "v1.MicroTime",
        Type::Duration => "v1.Duration",
        Type::Fields => "v1.FieldsV1",
        Type::Raw | Type::Json => "runtime.RawExtension",
        Type::Strs => "[]string",
        Type::Message(_) | Type::SchemaOr(..) => "struct",
    }
}

fn go_type(field: &Field) -> String {
    let element = field.message().map_or_else(|| go_scalar(&field.ty).to_owned(), go_message);
    match field.cardinality {
        Cardinality::One => element,
        Cardinality::List => format!("[]{element}"),
        Cardinality::Map => format!("map[string]{element}"),
    }
}
