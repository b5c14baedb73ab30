//! `format` of strings: the clauses of a format, and what they do with values.
//!
//! Numbers of floating point are printed as the library that upstream uses does it for American English.

use crate::error::EvalError;
use crate::functions::convert::print_double;
use crate::list::List;
use crate::map::Map;
use crate::time::print_duration;
use crate::value::Value;

const DEFAULT_PRECISION: usize = 6;
/// Digits behind the point that are printed.
const MOST_PRECISION: usize = 1000;

/// A part of a format.
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

/// What comes next in a format, and the rest behind it.
pub(crate) enum Part<'f> {
    Text(&'f str),
    Clause(Clause),
}

/// Splits a format at its next clause.
pub(crate) fn next_part(format: &str) -> Result<Option<(Part<'_>, &str)>, String> {
    if format.is_empty() {
        return Ok(None);
    }
    let Some(behind) = format.strip_prefix('%') else {
        let end = format.find('%').unwrap_or(format.len());
        return Ok(Some((Part::Text(&format[..end]), &format[end..])));
    };
    if let Some(rest) = behind.strip_prefix('%') {
        return Ok(Some((Part::Text("%"), rest)));
    }
    if behind.is_empty() {
        return Err("unexpected end of string".to_owned());
    }
    clause(behind)
        .map(|(clause, rest)| Some((Part::Clause(clause), rest)))
        .map_err(|why| format!("could not parse formatting clause: {why}"))
}

fn clause(text: &str) -> Result<(Clause, &str), String> {
    let (precision, text) = match text.strip_prefix('.') {
        None => (None, text),
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == rest.len() {
                return Err(
                    "error while parsing precision: could not find end of precision specifier".to_owned()
                );
            }
            let precision = rest[..digits].parse::<usize>().map_err(|_| {
                "error while parsing precision: error while converting precision to integer".to_owned()
            })?;
            (Some(precision), &rest[digits..])
        }
    };
    let letter = text.chars().next().ok_or("unexpected end of string")?;
    let clause = match letter {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision.unwrap_or(DEFAULT_PRECISION)),
        'e' => Clause::Scientific,
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        other => return Err(format!("unrecognized formatting clause \"{other}\"")),
    };
    Ok((clause, &text[letter.len_utf8()..]))
}

/// A format with its values put in.
pub(crate) fn format(format: &str, values: &List<'_>) -> Result<String, EvalError> {
    let mut out = String::new();
    let mut rest = format;
    let mut next = 0;
    while !rest.is_empty() {
        let missing = || EvalError::new(format!("index {next} out of range"));
        let is_clause = rest.starts_with('%') && !rest.starts_with("%%");
        let value = match is_clause {
            true => Some(values.get(next).ok_or_else(missing)??),
            false => None,
        };
        let Some((part, behind)) = next_part(rest).map_err(EvalError::new)? else { break };
        rest = behind;
        match (part, value) {
            (Part::Text(text), _) => out.push_str(text),
            (Part::Clause(clause), Some(value)) => {
                next += 1;
                out.push_str(
                    &print(&clause, &value)
                        .map_err(|why| EvalError::new(format!("error during formatting: {why}")))?,
                );
            }
            (Part::Clause(_), None) => {}
        }
    }
    Ok(out)
}

/// What is wrong with a value of that type under a clause.
pub(crate) fn refusal(clause: &Clause, found: &str) -> String {
    let what = match clause {
        Clause::String => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        Clause::Decimal => "decimal clause can only be used on integers",
        Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
        Clause::Scientific => "scientific clause can only be used on doubles",
        Clause::Binary => "only integers and bools can be formatted as binary",
        Clause::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
        Clause::Octal => "octal clause can only be used on integers",
    };
    format!("{what}, was given {found}")
}

fn print(clause: &Clause, value: &Value<'_>) -> Result<String, String> {
    let refused = || Err(refusal(clause, value.kind().name()));
    match clause {
        Clause::String => string(value),
        Clause::Decimal => match value {
            Value::Int(value) => Ok(value.to_string()),
            Value::Uint(value) => Ok(value.to_string()),
            _ => refused(),
        },
        Clause::Fixed(precision) => match double(value) {
            Some(value) => Ok(fixed(value, (*precision).min(MOST_PRECISION))),
            None => refused(),
        },
        Clause::Scientific => match double(value) {
            Some(value) => Ok(scientific(value)),
            None => refused(),
        },
        Clause::Binary => match value {
            Value::Int(value) => Ok(signed(*value, |magnitude| format!("{magnitude:b}"))),
            Value::Uint(value) => Ok(format!("{value:b}")),
            Value::Bool(value) => Ok(if *value { "1" } else { "0" }.to_owned()),
            _ => refused(),
        },
        Clause::Hex { upper } => {
            let text = match value {
                Value::Int(value) => signed(*value, |magnitude| format!("{magnitude:x}")),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => hex(text.as_bytes()),
                Value::Bytes(bytes) => hex(bytes),
                _ => return refused(),
            };
            Ok(if *upper { text.to_ascii_uppercase() } else { text })
        }
        Clause::Octal => match value {
            Value::Int(value) => Ok(signed(*value, |magnitude| format!("{magnitude:o}"))),
            Value::Uint(value) => Ok(format!("{value:o}")),
            _ => refused(),
        },
    }
}

fn signed(value: i64, print: fn(u64) -> String) -> String {
    let magnitude = print(value.unsigned_abs());
    if value < 0 { format!("-{magnitude}") } else { magnitude }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn infinite(value: f64) -> Option<&'static str> {
    match (value.is_nan(), value.is_infinite(), value > 0.0) {
        (true, ..) => Some("NaN"),
        (_, true, true) => Some("∞"),
        (_, true, false) => Some("-∞"),
        _ => None,
    }
}

fn fixed(value: f64, precision: usize) -> String {
    if let Some(text) = infinite(value) {
        return text.to_owned();
    }
    let plain = format!("{value:.precision$}");
    let (sign, plain) = match plain.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", plain.as_str()),
    };
    let (whole, fraction) = plain.split_once('.').map_or((plain, ""), |(whole, fraction)| (whole, fraction));
    let mut out = sign.to_owned();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

fn scientific(value: f64) -> String {
    if let Some(text) = infinite(value) {
        return format!("{text:>6}");
    }
    let plain = format!("{value:.6e}");
    let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let raised = |c: char| match c {
        '-' => '⁻',
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        _ => '⁹',
    };
    let sign = if exponent < 0 { "-" } else { "" };
    let power: String = format!("{sign}{:02}", exponent.abs()).chars().map(raised).collect();
    format!("{digits}×10{power}")
}

/// A value as `%s` prints it.
fn string(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => print_double(*value),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err("could not convert argument to string".to_owned()),
        },
        Value::Timestamp(moment) => moment.to_string(),
        Value::Duration(nanos) => print_duration(*nanos),
        Value::Type(kind) => kind.name().to_owned(),
        Value::List(list) => list_text(list)?,
        Value::Map(map) => map_text(map)?,
        other => return Err(refusal(&Clause::String, other.kind().name())),
    })
}

/// A value inside of a list or a map.
fn inner(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::String(text) => quoted(text),
        Value::Bytes(_) => format!("b{}", quoted(&string(value)?)),
        Value::Timestamp(moment) => format!("timestamp({})", quoted(&moment.to_string())),
        Value::Duration(nanos) => format!("duration({})", quoted(&print_duration(*nanos))),
        Value::Double(value) => match infinite(*value) {
            Some("∞") => "\"+Inf\"".to_owned(),
            Some("-∞") => "\"-Inf\"".to_owned(),
            Some(_) => "\"NaN\"".to_owned(),
            None => format!("{value:.6}"),
        },
        Value::List(list) => list_text(list)?,
        Value::Map(map) => map_text(map)?,
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Type(_) => string(value)?,
        other => return Err(format!("no formatting function for {}", other.kind().name())),
    })
}

/// A text in quotes as Go writes it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn list_text(list: &List<'_>) -> Result<String, String> {
    let parts = list.iter().map(|value| inner(&value.map_err(|error| error.to_string())?));
    Ok(format!("[{}]", parts.collect::<Result<Vec<_>, _>>()?.join(", ")))
}

fn map_text(map: &Map<'_>) -> Result<String, String> {
    let mut pairs = Vec::new();
    for (key, value) in map.entries() {
        let key = key.value();
        if let Value::Double(_) = key {
            return Err("no formatting function for map key of type double".to_owned());
        }
        pairs.push((inner(&key)?, inner(&value.map_err(|error| error.to_string())?)?));
    }
    pairs.sort();
    let parts: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", parts.join(", ")))
}
