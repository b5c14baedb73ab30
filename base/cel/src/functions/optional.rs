//! Functions of optional values.

use std::sync::Arc;

use super::{Native, Res, taken, unfit};
use crate::error::EvalError;
use crate::value::Value;

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "optional.of" => |args| Ok(some(taken(&mut args[0]))),
        "optional.ofNonZeroValue" => |args| match taken(&mut args[0]) {
            value if value.is_zero() => Ok(Value::Optional(None)),
            value => Ok(some(value)),
        },
        "optional.none" => |_| Ok(Value::Optional(None)),
        "value" => |args| match args {
            [Value::Optional(Some(value))] => Ok((**value).clone()),
            [Value::Optional(None)] => Err(EvalError::new("optional.none() dereference")),
            _ => unfit(),
        },
        "hasValue" => |args| match args {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => unfit(),
        },
        "optional.unwrap" | "unwrapOpt" => unwrap,
        _ => return None,
    })
}

fn some(value: Value<'_>) -> Value<'_> {
    Value::Optional(Some(Arc::new(value)))
}

fn unwrap<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut values = Vec::new();
    for value in list.iter() {
        match value? {
            Value::Optional(inner) => values.extend(inner.map(|inner| (*inner).clone())),
            other => return Err(EvalError::new(format!("value {other} is not optional"))),
        }
    }
    Ok(Value::list(values))
}
