//! What can be asked of moments and spans of time.

use jiff::civil::DateTime;

use super::{Native, Res, unfit};
use crate::error::EvalError;
use crate::value::Value;

const HOUR: i64 = 60 * MINUTE;
const MINUTE: i64 = 60 * SECOND;
const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "getFullYear" => |args| asked(args, |at| i64::from(at.year()), None),
        "getMonth" => |args| asked(args, |at| i64::from(at.month()) - 1, None),
        "getDayOfYear" => |args| asked(args, |at| i64::from(at.day_of_year()) - 1, None),
        "getDayOfMonth" => |args| asked(args, |at| i64::from(at.day()) - 1, None),
        "getDate" => |args| asked(args, |at| i64::from(at.day()), None),
        "getDayOfWeek" => |args| asked(args, |at| i64::from(at.weekday().to_sunday_zero_offset()), None),
        "getHours" => |args| asked(args, |at| i64::from(at.hour()), Some(HOUR)),
        "getMinutes" => |args| asked(args, |at| i64::from(at.minute()), Some(MINUTE)),
        "getSeconds" => |args| asked(args, |at| i64::from(at.second()), Some(SECOND)),
        "getMilliseconds" => |args| asked(args, |at| i64::from(at.millisecond()), Some(MILLISECOND)),
        _ => return None,
    })
}

/// A part of a moment, at a place or in UTC; of a duration, how many of a `unit` it has.
fn asked<'a>(args: &mut [Value<'a>], part: fn(&DateTime) -> i64, unit: Option<i64>) -> Res<'a> {
    match (&*args, unit) {
        ([Value::Timestamp(moment)], _) => {
            Ok(Value::Int(part(&moment.at_zone("UTC").map_err(EvalError::new)?)))
        }
        ([Value::Timestamp(moment), Value::String(zone)], _) => {
            Ok(Value::Int(part(&moment.at_zone(zone).map_err(EvalError::new)?)))
        }
        ([Value::Duration(nanos)], Some(unit)) => Ok(Value::Int(nanos / unit)),
        _ => unfit(),
    }
}
