//! Functions of lists and sets.

use std::cmp::Ordering;

use super::{Native, Res, unfit};
use crate::compare::{equal, order};
use crate::error::EvalError;
use crate::list::List;
use crate::value::Value;

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "max" => |args| extreme(args, "max", Ordering::is_gt),
        "min" => |args| extreme(args, "min", Ordering::is_lt),
        "slice" => slice,
        "flatten" => |args| match args {
            [Value::List(list)] => flatten(list, 1).map(Value::list),
            [Value::List(list), Value::Int(depth)] if *depth >= 0 => flatten(list, *depth).map(Value::list),
            [Value::List(_), Value::Int(_)] => Err(EvalError::new("level must be non-negative")),
            _ => unfit(),
        },
        "sort" => |args| match args {
            [Value::List(list)] => sorted(list, list),
            _ => unfit(),
        },
        "@sortByAssociatedKeys" => |args| match args {
            [Value::List(list), Value::List(keys)] => sorted(list, keys),
            _ => unfit(),
        },
        "lists.range" => |args| match args {
            [Value::Int(count)] => Ok(Value::list((0..*count).map(Value::Int).collect())),
            _ => unfit(),
        },
        "reverse" => |args| match args {
            [Value::List(list)] => {
                let mut values = all(list)?;
                values.reverse();
                Ok(Value::list(values))
            }
            _ => unfit(),
        },
        "distinct" => |args| match args {
            [Value::List(list)] => {
                let mut unique: Vec<Value<'_>> = Vec::new();
                for value in list.iter() {
                    let value = value?;
                    if !unique.iter().any(|one| equal(&value, one)) {
                        unique.push(value);
                    }
                }
                Ok(Value::list(unique))
            }
            _ => unfit(),
        },
        "first" => |args| match args {
            [Value::List(list)] => optional(list.get(0)),
            _ => unfit(),
        },
        "last" => |args| match args {
            [Value::List(list)] => optional(list.len().checked_sub(1).and_then(|last| list.get(last))),
            _ => unfit(),
        },
        "sets.contains" => |args| sets(args, contains_all),
        "sets.equivalent" => {
            |args| sets(args, |left, right| contains_all(left, right) && contains_all(right, left))
        }
        "sets.intersects" => |args| sets(args, |left, right| left.iter().any(|value| among(right, value))),
        "includes" => includes,
        _ => return None,
    })
}

fn all<'a>(list: &List<'a>) -> Result<Vec<Value<'a>>, EvalError> {
    list.iter().collect()
}

fn optional<'a>(value: Option<Res<'a>>) -> Res<'a> {
    Ok(Value::Optional(value.transpose()?.map(std::sync::Arc::new)))
}

fn is_sorted<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut before: Option<Value<'a>> = None;
    for value in list.iter() {
        let value = value?;
        if let Some(before) = &before
            && order(before, &value)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
        before = Some(value);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut sum: Option<Value<'a>> = None;
    let add = super::native("_+_").ok_or_else(EvalError::no_such_overload)?;
    for value in list.iter() {
        let value = value?;
        sum = Some(match sum {
            None if !matches!(
                value,
                Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)
            ) =>
            {
                return unfit();
            }
            None => value,
            Some(sum) => add(&mut [sum, value])?,
        });
    }
    Ok(sum.unwrap_or(Value::Int(0)))
}

fn extreme<'a>(args: &mut [Value<'a>], name: &str, better: fn(Ordering) -> bool) -> Res<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut best: Option<Value<'a>> = None;
    for value in list.iter() {
        let value = value?;
        match &best {
            Some(before) if !better(order(&value, before)?) => {}
            _ => best = Some(value),
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn place<'a>(found: Option<usize>) -> Res<'a> {
    Ok(Value::Int(found.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1)))
}

pub(super) fn index_of<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::List(list), wanted] = args else { return unfit() };
    place(all(list)?.iter().position(|value| equal(value, wanted)))
}

pub(super) fn last_index_of<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::List(list), wanted] = args else { return unfit() };
    place(all(list)?.iter().rposition(|value| equal(value, wanted)))
}

fn slice<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::List(list), Value::Int(from), Value::Int(to)] = args else { return unfit() };
    let refused = |why: String| Err(EvalError::new(format!("cannot slice({from}, {to}), {why}")));
    let (Ok(start), Ok(end)) = (usize::try_from(*from), usize::try_from(*to)) else {
        return refused("negative indexes not supported".to_owned());
    };
    if start > end {
        return refused("start index must be less than or equal to end index".to_owned());
    }
    if list.len() < end {
        return refused(format!("list is length {}", list.len()));
    }
    let values: Result<Vec<_>, _> = (start..end).filter_map(|place| list.get(place)).collect();
    Ok(Value::list(values?))
}

fn flatten<'a>(list: &List<'a>, depth: i64) -> Result<Vec<Value<'a>>, EvalError> {
    let mut out = Vec::new();
    for value in list.iter() {
        match value? {
            Value::List(inner) if depth > 0 => out.extend(flatten(&inner, depth - 1)?),
            other => out.push(other),
        }
    }
    Ok(out)
}

fn sorted<'a>(list: &List<'a>, keys: &List<'a>) -> Res<'a> {
    if list.len() != keys.len() {
        let message = format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        );
        return Err(EvalError::new(message));
    }
    let keys = all(keys)?;
    let Some(first) = keys.first() else { return Ok(Value::List(list.clone())) };
    if order(first, first).is_err() && !matches!(first, Value::Double(_)) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    if keys.iter().any(|key| key.kind().name() != first.kind().name()) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut places: Vec<usize> = (0..keys.len()).collect();
    places.sort_by(|left, right| order(&keys[*left], &keys[*right]).unwrap_or(Ordering::Equal));
    let values: Result<Vec<_>, _> = places.into_iter().filter_map(|place| list.get(place)).collect();
    Ok(Value::list(values?))
}

fn among<'a>(values: &[Value<'a>], wanted: &Value<'a>) -> bool {
    values.iter().any(|value| equal(value, wanted))
}

fn contains_all<'a>(values: &[Value<'a>], wanted: &[Value<'a>]) -> bool {
    wanted.iter().all(|wanted| among(values, wanted))
}

fn sets<'a>(args: &mut [Value<'a>], test: fn(&[Value<'a>], &[Value<'a>]) -> bool) -> Res<'a> {
    let [Value::List(left), Value::List(right)] = args else { return unfit() };
    Ok(Value::Bool(test(&all(left)?, &all(right)?)))
}

/// The most values that an attribute of a device may have.
const MOST_VALUES: usize = 48;

/// Whether an attribute of a device is a value, or has it among its values.
fn includes<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [of, wanted] = args else { return unfit() };
    let Value::List(list) = of else { return Ok(Value::Bool(equal(of, wanted))) };
    for (place, value) in list.iter().enumerate() {
        if place >= MOST_VALUES {
            let message =
                format!("'includes' function cannot be applied to lists longer than {MOST_VALUES} values");
            return Err(EvalError::new(message));
        }
        if equal(&value?, wanted) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
