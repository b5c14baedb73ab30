//! Equality and order of values: numbers of every type compare by what they are worth.

use std::cmp::Ordering;

use serde_json::Value as Json;

use crate::error::EvalError;
use crate::value::Value;

/// Whether two values are equal. Values of different types are not, unless they are numbers.
pub fn equal<'a>(left: &Value<'a>, right: &Value<'a>) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Bytes(left), Value::Bytes(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left.as_nanos() == right.as_nanos(),
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::List(left), Value::List(right)) => left.equals(right),
        (Value::Map(left), Value::Map(right)) => left.equals(right),
        (Value::Type(left), Value::Type(right)) => left.name() == right.name(),
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (None, None) => true,
            (Some(left), Some(right)) => equal(left, right),
            _ => false,
        },
        (Value::Quantity(left), Value::Quantity(right)) => left.quantity == right.quantity,
        (Value::Url(left), Value::Url(right)) => left.to_string() == right.to_string(),
        (Value::Ip(left), Value::Ip(right)) => left == right,
        (Value::Cidr(left), Value::Cidr(right)) => left == right,
        (Value::Semver(left), Value::Semver(right)) => left.cmp(right).is_eq(),
        (Value::Format(left), Value::Format(right)) => left.name == right.name,
        (Value::Authorization(left), Value::Authorization(right)) => left.same(right),
        (Value::Preserved(left), Value::Preserved(right)) => json_equal(left, right),
        (left, right) => numbers(left, right) == Some(Ordering::Equal),
    }
}

/// Upstream's equality of what a schema does not know.
pub(crate) fn json_equal(left: &Json, right: &Json) -> bool {
    left == right
}

/// How two numbers compare; nothing if one is none or not a number.
fn numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::Uint(left), Value::Uint(right)) => left.cmp(right),
        (Value::Int(left), Value::Uint(right)) => i128::from(*left).cmp(&i128::from(*right)),
        (Value::Uint(left), Value::Int(right)) => i128::from(*left).cmp(&i128::from(*right)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right)?,
        (Value::Double(left), Value::Int(right)) => double_int(*left, *right)?,
        (Value::Int(left), Value::Double(right)) => double_int(*right, *left)?.reverse(),
        (Value::Double(left), Value::Uint(right)) => double_uint(*left, *right)?,
        (Value::Uint(left), Value::Double(right)) => double_uint(*right, *left)?.reverse(),
        _ => return None,
    })
}

#[allow(clippy::cast_precision_loss, reason = "upstream compares as floating point, too")]
fn double_int(left: f64, right: i64) -> Option<Ordering> {
    if left < i64::MIN as f64 {
        return Some(Ordering::Less);
    }
    if left > i64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    left.partial_cmp(&(right as f64))
}

#[allow(clippy::cast_precision_loss, reason = "upstream compares as floating point, too")]
fn double_uint(left: f64, right: u64) -> Option<Ordering> {
    if left < 0.0 {
        return Some(Ordering::Less);
    }
    if left > u64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    left.partial_cmp(&(right as f64))
}

/// How two values compare that have an order.
pub fn order(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, EvalError> {
    Ok(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => (**left).cmp(&**right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.as_nanos().cmp(&right.as_nanos()),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(left, right).ok_or_else(|| EvalError::new("NaN values cannot be ordered"))?,
        _ => return Err(EvalError::no_such_overload()),
    })
}
