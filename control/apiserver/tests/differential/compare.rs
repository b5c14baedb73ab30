//! Where two answers differ, apart from what has to: uids, times, versions, addresses, random names.

use serde_json::Value;

const VOLATILE: &[&str] = &[
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "time",
    "deletionTimestamp",
    "lastTransitionTime",
    "continue",
    "expirationTimestamp",
    "token",
    "clusterIPs",
    "storageVersionHash",
    "description",
];

/// One line for each difference.
pub(crate) fn differences(ours: &Value, upstream: &Value) -> Vec<String> {
    let mut out = Vec::new();
    walk("", &normal(ours), &normal(upstream), &mut out);
    out
}

fn normal(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| key.as_str() != "storageVersionHash")
            .map(|(key, value)| {
                let volatile = VOLATILE.contains(&key.as_str()) && !value.is_null();
                let address = key == "clusterIP" && value.as_str().is_some_and(|ip| ip.starts_with("10.96."));
                let plain = if key == "cells" { ageless(value) } else { normal(value) };
                (key.clone(), if volatile || address { "*".into() } else { plain })
            })
            .collect(),
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::String(text) => plain(text).into(),
        other => other.clone(),
    }
}

/// The cells of a table's row; the two servers are asked one after the other, so ages differ by what that takes.
fn ageless(cells: &Value) -> Value {
    let is_age = |text: &str| {
        let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < text.len() && matches!(digits, "s" | "m" | "h" | "d")
    };
    let one = |cell: &Value| match cell {
        Value::String(text) if is_age(text) => "AGE".into(),
        other => normal(other),
    };
    cells.as_array().into_iter().flatten().map(one).collect()
}

/// Text with everything random in it made the same.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = [uid(rest), timestamp(rest), suffix(rest, "kube-api-access-"), suffix(rest, "gen-")];
        match taken.into_iter().flatten().next() {
            Some((length, mark)) => {
                out.push_str(mark);
                rest = &rest[length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// Matches a pattern of `x` (hexadecimal), `d` (digit) and literal characters.
fn shaped(text: &str, shape: &str) -> bool {
    text.len() >= shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, want)| match want {
            b'x' => byte.is_ascii_hexdigit(),
            b'd' => byte.is_ascii_digit(),
            literal => byte == literal,
        })
}

fn uid(text: &str) -> Option<(usize, &'static str)> {
    shaped(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx").then_some((36, "UID"))
}

fn timestamp(text: &str) -> Option<(usize, &'static str)> {
    shaped(text, "dddd-dd-ddTdd:dd:ddZ").then_some((20, "TIME"))
}

fn suffix(text: &str, prefix: &'static str) -> Option<(usize, &'static str)> {
    let random = text.strip_prefix(prefix)?.get(..5)?;
    random.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some((prefix.len() + 5, prefix))
}

fn walk(path: &str, ours: &Value, upstream: &Value, out: &mut Vec<String>) {
    match (ours, upstream) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => walk(&path, x, y, out),
                    (Some(x), None) => out.push(format!("{path}: only ours {x}")),
                    (None, Some(y)) => out.push(format!("{path}: only upstream {y}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (x, y)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{at}]"), x, y, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{path}: ours {a}, upstream {b}")),
    }
}
