//! Conversions between types.

use super::{Native, Res, taken, unfit};
use crate::error::EvalError;
use crate::time::{Moment, NoMoment, parse_duration, parse_timestamp, print_duration};
use crate::value::Value;

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "bool" => to_bool,
        "bytes" => to_bytes,
        "double" => to_double,
        "duration" => to_duration,
        "dyn" => |args| Ok(taken(&mut args[0])),
        "int" => to_int,
        "string" => to_string,
        "timestamp" => to_timestamp,
        "type" => |args| Ok(Value::Type(args[0].kind())),
        "uint" => to_uint,
        _ => return None,
    })
}

fn refused<'a>(from: &str, to: &str) -> Res<'a> {
    Err(EvalError::new(format!("type conversion error from '{from}' to '{to}'")))
}

fn to_bool<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match &mut args[0] {
        value @ Value::Bool(_) => Ok(taken(value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => refused("string", "bool"),
        },
        _ => unfit(),
    }
}

fn to_bytes<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match &mut args[0] {
        value @ Value::Bytes(_) => Ok(taken(value)),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => unfit(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "that is what the conversion is")]
fn to_double<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match &mut args[0] {
        value @ Value::Double(_) => Ok(taken(value)),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => {
            parse_double(text).map_or_else(|| refused("string", "double"), |v| Ok(Value::Double(v)))
        }
        _ => unfit(),
    }
}

/// A number as Go's `ParseFloat` takes it, but for hexadecimal ones.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => return Some(sign * f64::INFINITY),
        "nan" if unsigned.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    let plain = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
    if unsigned.is_empty() || !unsigned.bytes().all(plain) {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

fn to_duration<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match &mut args[0] {
        value @ Value::Duration(_) => Ok(taken(value)),
        Value::Int(_) => refused("int", "google.protobuf.Duration"),
        Value::String(text) => match parse_duration(text) {
            Some(nanos) => Ok(Value::Duration(nanos)),
            None => refused("string", "google.protobuf.Duration"),
        },
        _ => unfit(),
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "checked before")]
fn to_int<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let overflow = || EvalError::new("integer overflow");
    match &mut args[0] {
        value @ Value::Int(_) => Ok(taken(value)),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        Value::Double(value) => {
            if value.is_nan() || *value <= i64::MIN as f64 || *value >= i64::MAX as f64 {
                return Err(overflow());
            }
            Ok(Value::Int(*value as i64))
        }
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(moment) => Ok(Value::Int(moment.seconds)),
        Value::String(text) => text.parse().map(Value::Int).or_else(|_| refused("string", "int")),
        _ => unfit(),
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked before"
)]
fn to_uint<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let overflow = || EvalError::new("unsigned integer overflow");
    match &mut args[0] {
        value @ Value::Uint(_) => Ok(taken(value)),
        Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(value) => {
            if value.is_nan() || *value < 0.0 || *value >= u64::MAX as f64 {
                return Err(overflow());
            }
            Ok(Value::Uint(*value as u64))
        }
        // Go takes no sign here.
        Value::String(text) if text.starts_with('+') => refused("string", "uint"),
        Value::String(text) => text.parse().map(Value::Uint).or_else(|_| refused("string", "uint")),
        _ => unfit(),
    }
}

fn to_timestamp<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let overflow = || EvalError::new("timestamp overflow");
    match &mut args[0] {
        value @ Value::Timestamp(_) => Ok(taken(value)),
        Value::Int(seconds) => Moment::from_seconds(*seconds).map(Value::Timestamp).ok_or_else(overflow),
        Value::String(text) => match parse_timestamp(text) {
            Ok(moment) => Ok(Value::Timestamp(moment)),
            Err(NoMoment::Range) => Err(overflow()),
            Err(NoMoment::Format) => refused("string", "google.protobuf.Timestamp"),
        },
        _ => unfit(),
    }
}

fn to_string<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let text = match &mut args[0] {
        value @ Value::String(_) => return Ok(taken(value)),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => print_double(*value),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => print_duration(*nanos),
        Value::Timestamp(moment) => moment.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(network) => network.to_string(),
        _ => return unfit(),
    };
    Ok(Value::text(text))
}

/// A number as Go's `%g` prints it: the shortest digits, with an exponent from a million on.
pub(crate) fn print_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value}")
}
