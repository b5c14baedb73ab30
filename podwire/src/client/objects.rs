//! Objects as YAML and JSON, byte for byte as kubectl writes them.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

/// JSON text with the characters escaped that Go escapes.
/// <https://pkg.go.dev/encoding/json#HTMLEscape>
pub fn as_go_writes(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Takes out who set which field: kubectl shows it only when asked.
pub fn without_managed_fields(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

/// Indented by four, as kubectl does it.
pub fn json(value: &Value) -> Result<String> {
    let mut text = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, form))?;
    Ok(as_go_writes(&String::from_utf8(text)?))
}

/// YAML with Go's choice of quotes.
/// <https://pkg.go.dev/sigs.k8s.io/yaml>
pub fn yaml(value: &Value) -> Result<String> {
    let text = serde_yaml_ng::to_string(value)?;
    let mut shown = String::new();
    let mut literal: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        // The lines of a literal block are the value itself.
        if literal.is_some_and(|outside| indent > outside || line.trim().is_empty()) {
            shown.push_str(line);
        } else {
            let item = line.trim_start();
            let dashes = item.len() - item.trim_start_matches("- ").len();
            literal = is_literal(line).then_some(indent + dashes);
            shown.push_str(&requoted(line));
        }
        shown.push('\n');
    }
    Ok(shown)
}

fn is_literal(line: &str) -> bool {
    [": |", ": |-", ": |+", "- |", "- |-", "- |+"].iter().any(|end| line.ends_with(end))
}

/// A line whose value has the quotes that Go's library gives it.
fn requoted(line: &str) -> String {
    let Some(at) = line.find(": ").map(|at| at + 2).or_else(|| line.rfind("- ").map(|at| at + 2)) else {
        return line.to_owned();
    };
    let (head, value) = line.split_at(at);
    let inner = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match inner {
        Some(inner) if !inner.contains('\'') && is_other_type(inner) => format!("{head}\"{inner}\""),
        None if is_time(value) => format!("{head}\"{value}\""),
        _ => line.to_owned(),
    }
}

/// Words that would be read as something else than text without quotes.
fn is_other_type(text: &str) -> bool {
    let word = text.to_ascii_lowercase();
    ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&word.as_str())
        || text.parse::<f64>().is_ok()
        || text.starts_with("0x")
        || is_time(text)
}

/// A time as RFC 3339 writes it.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[..10].iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && (bytes.len() == 10 || bytes[10] == b'T')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quotes_and_indents_are_gos() {
        let object = json!({"a": {"at": "2026-11-15T15:29:38Z", "n": "1", "yes": "true", "list": ["80", "x"]},
            "text": "{\"at\":\"2026\"}\nat: 2026-11-15T00:00:00Z\n", "empty": ""});
        let text = yaml(&object).unwrap();
        assert_eq!(
            text,
            "a:\n  at: \"2026-11-15T15:29:38Z\"\n  list:\n  - \"80\"\n  - x\n  n: \"1\"\n  yes: \"true\"\nempty: \"\"\ntext: |\n  {\"at\":\"2026\"}\n  at: 2026-11-15T00:00:00Z\n"
        );
        assert_eq!(json(&json!({"a": "<"})).unwrap(), "{\n    \"a\": \"\\u003c\"\n}");
    }
}
