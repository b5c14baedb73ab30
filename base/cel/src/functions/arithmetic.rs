//! Operators: arithmetic with checks for overflow, comparison, membership, size.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Native, Res, taken, unfit};
use crate::compare::{equal, order};
use crate::error::EvalError;
use crate::map::{Key, Map};
use crate::value::Value;

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => negate,
        "!_" => |args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(!*value)),
            _ => unfit(),
        },
        "_==_" => |args| match args {
            [left, right] if is_incomparable(left, right) => unfit(),
            [left, right] => Ok(Value::Bool(equal(left, right))),
            _ => unfit(),
        },
        "_!=_" => |args| match args {
            [left, right] => Ok(Value::Bool(is_incomparable(left, right) || !equal(left, right))),
            _ => unfit(),
        },
        "_<_" => |args| ordered(args, Ordering::is_lt),
        "_<=_" => |args| ordered(args, Ordering::is_le),
        "_>_" => |args| ordered(args, Ordering::is_gt),
        "_>=_" => |args| ordered(args, Ordering::is_ge),
        "@in" => contains,
        "@not_strictly_false" => |args| Ok(taken(&mut args[0])),
        "size" => |args| match args {
            [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
                let size = value.size().unwrap_or(0);
                Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
            }
            _ => unfit(),
        },
        "cel.@mapInsert" => insert,
        _ => return None,
    })
}

/// Whether upstream fails over the equality of two values: those of its libraries know only their own type, a quantity that
/// was added up is none of those on the right, and questions to the authorizer know nothing.
fn is_incomparable(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (_, Value::Null) => false,
        (Value::Quantity(_), Value::Quantity(right)) => right.summed,
        (Value::Authorization(_), _) => true,
        (
            Value::Quantity(_)
            | Value::Url(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Semver(_)
            | Value::Format(_),
            right,
        ) => std::mem::discriminant(left) != std::mem::discriminant(right),
        _ => false,
    }
}

fn int<'a>(value: Option<i64>) -> Res<'a> {
    value.map(Value::Int).ok_or_else(|| EvalError::new("integer overflow"))
}

fn uint<'a>(value: Option<u64>) -> Res<'a> {
    value.map(Value::Uint).ok_or_else(|| EvalError::new("unsigned integer overflow"))
}

fn duration<'a>(nanos: Option<i64>) -> Res<'a> {
    nanos.map(Value::Duration).ok_or_else(|| EvalError::new("integer overflow"))
}

fn add<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [left, right] = args else { return unfit() };
    match (left, &*right) {
        (Value::Int(left), Value::Int(right)) => int(left.checked_add(*right)),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_add(*right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(*left + right)),
        (Value::String(left), Value::String(right)) => Ok(Value::text(format!("{left}{right}"))),
        (Value::Bytes(left), Value::Bytes(right)) => Ok(Value::Bytes([&**left, &**right].concat().into())),
        (Value::Duration(left), Value::Duration(right)) => duration(left.checked_add(*right)),
        (Value::Timestamp(moment), Value::Duration(nanos)) => later(moment.plus(*nanos)),
        (Value::Duration(nanos), Value::Timestamp(moment)) => later(moment.plus(*nanos)),
        (left @ Value::List(_), Value::List(right)) => {
            let Value::List(left) = taken(left) else { return unfit() };
            left.plus(right).map(Value::List)
        }
        _ => unfit(),
    }
}

fn later<'a>(moment: Option<crate::time::Moment>) -> Res<'a> {
    moment.map(Value::Timestamp).ok_or_else(|| EvalError::new("timestamp overflow"))
}

fn subtract<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_sub(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_sub(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(*left - *right)),
        [Value::Duration(left), Value::Duration(right)] => duration(left.checked_sub(*right)),
        [Value::Timestamp(left), Value::Timestamp(right)] => duration(left.minus(right)),
        [Value::Timestamp(moment), Value::Duration(nanos)] => match nanos.checked_neg() {
            Some(nanos) => later(moment.plus(nanos)),
            None => duration(None),
        },
        _ => unfit(),
    }
}

fn multiply<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match args {
        [Value::Int(left), Value::Int(right)] => int(left.checked_mul(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_mul(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(*left * *right)),
        _ => unfit(),
    }
}

fn divide<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::new("division by zero"))
        }
        [Value::Int(left), Value::Int(right)] => int(left.checked_div(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_div(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(*left / *right)),
        _ => unfit(),
    }
}

fn modulo<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::new("modulus by zero"))
        }
        [Value::Int(left), Value::Int(right)] => int(left.checked_rem(*right)),
        [Value::Uint(left), Value::Uint(right)] => uint(left.checked_rem(*right)),
        _ => unfit(),
    }
}

fn negate<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match args {
        [Value::Int(value)] => int(value.checked_neg()),
        [Value::Double(value)] => Ok(Value::Double(-*value)),
        [Value::Duration(nanos)] => duration(nanos.checked_neg()),
        _ => unfit(),
    }
}

fn ordered<'a>(args: &mut [Value<'a>], wanted: fn(Ordering) -> bool) -> Res<'a> {
    Ok(Value::Bool(wanted(order(&args[0], &args[1])?)))
}

fn contains<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    match args {
        [value, Value::List(list)] => {
            Ok(Value::Bool(list.iter().any(|one| one.is_ok_and(|one| equal(&one, value)))))
        }
        [key, Value::Map(map)] => map.contains(key).map(Value::Bool),
        _ => unfit(),
    }
}

/// A map with more entries; none may be there already.
fn insert<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let Value::Map(map) = taken(&mut args[0]) else { return unfit() };
    let mut entries = match map {
        Map::Made(entries) => entries,
        other => {
            let all = other.entries().map(|(key, value)| Ok((key, value?)));
            Arc::new(all.collect::<Result<_, EvalError>>()?)
        }
    };
    let made = Arc::make_mut(&mut entries);
    let mut one = |key: Key<'a>, value: Value<'a>| {
        let shown = key.value();
        if made.insert(key, value).is_some() {
            return Err(EvalError::new(format!("insert failed: key {shown} already exists")));
        }
        Ok(())
    };
    match args {
        [_, Value::Map(more)] => {
            for (key, value) in more.entries() {
                one(key, value?)?;
            }
        }
        [_, key, value] => {
            let key = Key::of(key).ok_or_else(EvalError::no_such_overload)?;
            one(key, taken(value))?;
        }
        _ => return unfit(),
    }
    Ok(Value::Map(Map::Made(entries)))
}
