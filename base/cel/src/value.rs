//! What expressions work on: objects by reference, seen through their schema, and what expressions made of them.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::authorizer::Authorization;
use crate::error::EvalError;
use crate::functions::format::Format;
use crate::functions::network::{Address, Network};
use crate::functions::quantity::Amount;
use crate::functions::semver::Semver;
use crate::functions::url::Url;
use crate::kind::Type;
use crate::list::List;
use crate::map::{Key, Map};
use crate::schema::{Schema, Shape};
use crate::text::Text;
use crate::time::{Moment, parse_date, parse_date_time, parse_schema_duration};

/// A value, of an object that lives as long as `'a` or made by an expression.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` and `false`.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Uint(u64),
    /// A number of floating point.
    Double(f64),
    /// Text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A moment.
    Timestamp(Moment),
    /// Nanoseconds.
    Duration(i64),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A type, as `type()` tells it.
    Type(Type),
    /// A value or none.
    Optional(Option<Arc<Value<'a>>>),
    /// `kubernetes.Quantity`.
    Quantity(Amount),
    /// `kubernetes.URL`.
    Url(Arc<Url>),
    /// `net.IP`.
    Ip(Address),
    /// `net.CIDR`.
    Cidr(Network),
    /// `kubernetes.Semver`.
    Semver(Arc<Semver>),
    /// `kubernetes.NamedFormat`.
    Format(&'static Format),
    /// The authorizer of a request, and the questions that are being put to it.
    Authorization(Authorization<'a>),
    /// What a schema does not know but keeps: equal to itself, and nothing else can be done with it.
    Preserved(&'a Json),
}

impl<'a> Value<'a> {
    /// A value without a schema, as policies see objects whose kind is not known.
    pub fn json(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => number_value(number),
            Json::String(text) => Value::String(Text::Borrowed(text)),
            Json::Array(items) => Value::List(List::Json(items)),
            Json::Object(entries) => Value::Map(Map::Json(entries)),
        }
    }

    /// A value through its schema.
    pub fn typed(json: &'a Json, schema: &'a Schema) -> Result<Value<'a>, EvalError> {
        if json.is_null() {
            return match schema.is_nullable() {
                true => Ok(Value::Null),
                false => Err(EvalError::new("invalid data, got null for schema with nullable=false")),
            };
        }
        if !schema.is_exposed() && matches!(schema.shape(), Shape::Dyn) {
            return Ok(Value::Preserved(json));
        }
        match (schema.shape(), json) {
            (Shape::Dyn | Shape::Any, _) => Ok(Value::json(json)),
            (Shape::IntOrString, Json::String(text)) | (Shape::String, Json::String(text)) => {
                Ok(Value::String(Text::Borrowed(text)))
            }
            (Shape::IntOrString | Shape::Int, Json::Number(number)) if number.is_i64() => {
                Ok(number_value(number))
            }
            (Shape::Double, Json::Number(number)) => Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN))),
            (Shape::Bool, Json::Bool(value)) => Ok(Value::Bool(*value)),
            (Shape::Bytes, Json::String(text)) => bytes(text),
            (Shape::Duration, Json::String(text)) => parse_schema_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| EvalError::new(format!("Invalid duration {text}"))),
            (Shape::Date, Json::String(text)) => parse_date(text)
                .map(Value::Timestamp)
                .ok_or_else(|| EvalError::new(format!("Invalid date formatted string {text}"))),
            (Shape::DateTime, Json::String(text)) => parse_date_time(text)
                .map(Value::Timestamp)
                .ok_or_else(|| EvalError::new(format!("Invalid date-time formatted string {text}"))),
            (Shape::List { items, kind }, Json::Array(values)) => {
                Ok(Value::List(List::Typed { values, items, kind }))
            }
            (Shape::Map { .. } | Shape::Object { .. }, Json::Object(entries)) => {
                Ok(Value::Map(Map::Typed { entries, schema }))
            }
            (Shape::Quantity, Json::String(text)) => {
                Amount::parse(text).map(Value::Quantity).map_err(|error| EvalError::new(error.to_string()))
            }
            (shape, _) => Err(EvalError::new(expected(shape))),
        }
    }

    /// A text.
    pub fn text(text: impl Into<Text<'a>>) -> Value<'a> {
        Value::String(text.into())
    }

    /// A list of values.
    pub fn list(values: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Made(Arc::new(values)))
    }

    /// Its type, without parameters.
    pub fn kind(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Duration(_) => Type::Duration,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Type(_) => Type::Type(None),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Quantity(_) => Type::Library("kubernetes.Quantity"),
            Value::Url(_) => Type::Library("kubernetes.URL"),
            Value::Ip(_) => Type::Opaque("net.IP"),
            Value::Cidr(_) => Type::Opaque("net.CIDR"),
            Value::Semver(_) => Type::Library("kubernetes.Semver"),
            Value::Format(_) => Type::Library("kubernetes.NamedFormat"),
            Value::Authorization(value) => Type::Library(value.kind()),
            Value::Preserved(_) => Type::Dyn,
        }
    }

    /// What `size()` says; `None` for what has no size.
    pub fn size(&self) -> Option<usize> {
        match self {
            Value::String(text) => Some(text.chars().count()),
            Value::Bytes(bytes) => Some(bytes.len()),
            Value::List(list) => Some(list.len()),
            Value::Map(map) => Some(map.len()),
            Value::Ip(address) => Some(if address.is_ipv4() { 4 } else { 16 }),
            Value::Cidr(network) => Some(network.prefix_bytes()),
            _ => None,
        }
    }

    /// Whether it is what `optional.ofNonZeroValue` takes for none.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Timestamp(moment) => moment.is_zero(),
            Value::Duration(nanos) => *nanos == 0,
            Value::List(List::Typed { .. }) | Value::Map(Map::Typed { .. }) => false,
            Value::List(list) => list.len() == 0,
            Value::Map(map) => map.len() == 0,
            _ => false,
        }
    }

    /// The same value without its life time, for what was made from literals alone.
    pub(crate) fn into_static(self) -> Option<Value<'static>> {
        Some(match self {
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(value),
            Value::Int(value) => Value::Int(value),
            Value::Uint(value) => Value::Uint(value),
            Value::Double(value) => Value::Double(value),
            Value::String(text) => Value::String(Text::from(text.to_string())),
            Value::Bytes(bytes) => Value::Bytes(bytes),
            Value::Timestamp(moment) => Value::Timestamp(moment),
            Value::Duration(nanos) => Value::Duration(nanos),
            Value::Type(kind) => Value::Type(kind),
            Value::List(list) => {
                let values =
                    list.iter().map(|value| value.ok()?.into_static()).collect::<Option<Vec<_>>>()?;
                Value::list(values)
            }
            Value::Map(map) => {
                let entries = map.entries().map(|(key, value)| {
                    Some((Key::of(&key.value().into_static()?)?, value.ok()?.into_static()?))
                });
                Value::Map(Map::Made(Arc::new(entries.collect::<Option<_>>()?)))
            }
            _ => return None,
        })
    }
}

fn number_value<'a>(number: &serde_json::Number) -> Value<'a> {
    match (number.as_i64(), number.as_u64()) {
        (Some(value), _) => Value::Int(value),
        (None, Some(value)) => Value::Uint(value),
        _ => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn bytes<'a>(text: &str) -> Result<Value<'a>, EvalError> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map(|bytes| Value::Bytes(bytes.into()))
        .map_err(|error| EvalError::new(format!("Invalid byte formatted string {text}: {error}")))
}

fn expected(shape: &Shape) -> &'static str {
    match shape {
        Shape::IntOrString => "invalid data, expected XIntOrString value to be either a string or integer",
        Shape::List { .. } => "invalid data, expected an array for the provided schema with type=array",
        Shape::Map { .. } | Shape::Object { .. } => {
            "invalid data, expected a map for the provided schema with type=object"
        }
        Shape::Double => "invalid data, expected float",
        Shape::Int => "invalid data, expected int",
        Shape::Bool => "invalid data, expected bool",
        _ => "invalid data, expected string",
    }
}

/// As messages print it.
impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => out.write_str("null"),
            Value::Bool(value) => write!(out, "{value}"),
            Value::Int(value) => write!(out, "{value}"),
            Value::Uint(value) => write!(out, "{value}"),
            Value::Double(value) => write!(out, "{value}"),
            Value::String(text) => out.write_str(text),
            Value::Type(kind) => out.write_str(kind.name()),
            other => out.write_str(other.kind().name()),
        }
    }
}
