//! What the functions do.
//!
//! Each looks at the values that it gets: the checker has seen to it that they fit, unless their types were not known then.

pub(crate) mod arithmetic;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod formatting;
pub(crate) mod lists;
pub(crate) mod network;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod semver;
pub(crate) mod strings;
pub(crate) mod times;
pub(crate) mod url;

use crate::authorizer;
use crate::error::EvalError;
use crate::pattern::{self, Matching};
use crate::value::Value;

/// The result of a function.
pub(crate) type Res<'a> = Result<Value<'a>, EvalError>;

/// A function on the values of its arguments, which it may use up.
pub(crate) type Native = for<'a> fn(&mut [Value<'a>]) -> Res<'a>;

/// The function of a name.
pub(crate) fn native(name: &str) -> Option<Native> {
    arithmetic::native(name)
        .or_else(|| convert::native(name))
        .or_else(|| strings::native(name))
        .or_else(|| lists::native(name))
        .or_else(|| optional::native(name))
        .or_else(|| times::native(name))
        .or_else(|| quantity::native(name))
        .or_else(|| network::native(name))
        .or_else(|| semver::native(name))
        .or_else(|| url::native(name))
        .or_else(|| format::native(name))
        .or_else(|| authorizer::native(name))
        .or_else(|| regular(name))
}

fn regular(name: &str) -> Option<Native> {
    Some(match name {
        "matches" => |args| pattern::call(Matching::Matches, args),
        "find" => |args| pattern::call(Matching::Find, args),
        "findAll" => |args| pattern::call(Matching::FindAll, args),
        _ => return None,
    })
}

/// The error of a call with values that no overload takes.
pub(crate) fn unfit<'a>() -> Res<'a> {
    Err(EvalError::no_such_overload())
}

/// A value out of its place.
pub(crate) fn taken<'a>(value: &mut Value<'a>) -> Value<'a> {
    std::mem::replace(value, Value::Null)
}
