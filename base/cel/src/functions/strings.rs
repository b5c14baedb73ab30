//! Functions of strings: the standard ones and the extension.

use super::{Native, Res, lists, unfit};
use crate::error::EvalError;
use crate::functions::formatting;
use crate::value::Value;

/// Characters that a text may have that a function makes larger than what it was given.
const LONGEST: usize = 16 << 20;

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "contains" => |args| both(args, |text, part| text.contains(part)),
        "startsWith" => |args| both(args, |text, part| text.starts_with(part)),
        "endsWith" => |args| both(args, |text, part| text.ends_with(part)),
        "charAt" => char_at,
        "indexOf" => index_of,
        "lastIndexOf" => last_index_of,
        "lowerAscii" => |args| mapped(args, |text| text.to_ascii_lowercase()),
        "upperAscii" => |args| mapped(args, |text| text.to_ascii_uppercase()),
        "trim" => |args| mapped(args, |text| text.trim_matches(is_space).to_owned()),
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "strings.quote" => |args| mapped(args, quote),
        "format" => |args| match args {
            [Value::String(text), Value::List(list)] => formatting::format(text, list).map(Value::text),
            _ => unfit(),
        },
        _ => return None,
    })
}

/// Go's idea of white space, which knows the next line but not the separators of information.
fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn both<'a>(args: &mut [Value<'a>], test: fn(&str, &str) -> bool) -> Res<'a> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(test(text, part))),
        _ => unfit(),
    }
}

fn mapped<'a>(args: &mut [Value<'a>], map: fn(&str) -> String) -> Res<'a> {
    match args {
        [Value::String(text)] => Ok(Value::text(map(text))),
        _ => unfit(),
    }
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

fn number<'a>(place: usize) -> Value<'a> {
    Value::Int(i64::try_from(place).unwrap_or(i64::MAX))
}

fn char_at<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::String(text), Value::Int(index)] = args else { return unfit() };
    let count = text.chars().count();
    match usize::try_from(*index) {
        Ok(place) if place <= count => {
            Ok(Value::text(text.chars().nth(place).map(String::from).unwrap_or_default()))
        }
        _ => Err(out_of_range(*index)),
    }
}

fn index_of<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let (text, part, from) = match args {
        [Value::List(_), ..] => return lists::index_of(args),
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return unfit(),
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let from = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let Some((start, _)) = text.char_indices().nth(from) else { return Ok(Value::Int(-1)) };
    match text[start..].find(&**part) {
        Some(at) => Ok(number(from + text[start..start + at].chars().count())),
        None => Ok(Value::Int(-1)),
    }
}

fn last_index_of<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let (text, part, until) = match args {
        [Value::List(_), ..] => return lists::last_index_of(args),
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(until)] => (text, part, Some(*until)),
        _ => return unfit(),
    };
    let count = text.chars().count();
    if part.is_empty() {
        return Ok(until.map_or_else(|| number(count), Value::Int));
    }
    let until = match until {
        None if text.len() < part.len() => return Ok(Value::Int(-1)),
        None => count - 1,
        Some(until) => usize::try_from(until).map_err(|_| out_of_range(until))?,
    };
    if until >= count {
        return Ok(Value::Int(-1));
    }
    // A match may begin at `until` at the latest.
    let end = text.char_indices().nth(until + part.chars().count()).map_or(text.len(), |(at, _)| at);
    match text[..end].rfind(&**part) {
        Some(at) => Ok(number(text[..at].chars().count())),
        None => Ok(Value::Int(-1)),
    }
}

fn too_long<'a>() -> Res<'a> {
    Err(EvalError::TooExpensive)
}

fn replace<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let (text, old, new, most) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(most)] => {
            (text, old, new, *most)
        }
        _ => return unfit(),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = text.matches(&**old).count().min(most);
    if count.saturating_mul(new.len()).saturating_add(text.len()) > LONGEST {
        return too_long();
    }
    Ok(Value::text(text.replacen(&**old, new, count)))
}

fn split<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let (text, separator, most) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(most)] => (text, separator, *most),
        _ => return unfit(),
    };
    let most = match usize::try_from(most) {
        Ok(0) => return Ok(Value::list(Vec::new())),
        Ok(most) => most,
        Err(_) => usize::MAX,
    };
    let part = |part: &str| Value::text(part.to_owned());
    if !separator.is_empty() {
        return Ok(Value::list(text.splitn(most, &**separator).map(part).collect()));
    }
    // Without a separator it is split into characters, the last part being the rest.
    let mut parts = Vec::new();
    let mut rest: &str = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == most {
            parts.push(part(rest));
            break;
        }
        parts.push(part(&rest[..c.len_utf8()]));
        rest = &rest[c.len_utf8()..];
    }
    Ok(Value::list(parts))
}

fn substring<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let (text, from, to) = match args {
        [Value::String(text), Value::Int(from)] => (text, *from, None),
        [Value::String(text), Value::Int(from), Value::Int(to)] => (text, *from, Some(*to)),
        _ => return unfit(),
    };
    if let Some(to) = to.filter(|to| from > *to) {
        let message = format!("invalid substring range. start: {from}, end: {to}");
        return Err(EvalError::new(message));
    }
    let count = text.chars().count();
    let place = |index: i64| {
        usize::try_from(index).ok().filter(|place| *place <= count).ok_or_else(|| out_of_range(index))
    };
    let start = place(from)?;
    let end = to.map_or(Ok(count), place)?;
    Ok(Value::text(text.chars().skip(start).take(end - start).collect::<String>()))
}

fn join<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return unfit(),
    };
    let mut out = String::new();
    for (place, value) in list.iter().enumerate() {
        if place > 0 {
            out.push_str(separator);
        }
        match value? {
            Value::String(text) => out.push_str(&text),
            other => return Err(EvalError::new(format!("join: invalid input: {other}"))),
        }
        if out.len() > LONGEST {
            return too_long();
        }
    }
    Ok(Value::text(out))
}

/// A text in quotes, with escapes for what would not be seen.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
