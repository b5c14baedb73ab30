//! JSON text to a value, noting duplicate fields, with Go's texts for syntax errors.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::path::Path;

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The value; of duplicate fields the last one.
    pub value: Value,
    /// Complaints, e.g. `duplicate field "data.a"`.
    pub duplicates: Vec<String>,
}

/// The body is no JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text ends too early.
    #[error("unexpected end of JSON input")]
    End,
    /// A character is out of place.
    #[error("invalid character {found} {context}")]
    Character {
        /// The character in Go's quotes.
        found: String,
        /// What was expected.
        context: &'static str,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Decodes JSON text.
pub fn decode_json(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let root = Path::root("");
    let value = Seed { path: &root, duplicates: &mut duplicates }
        .deserialize(&mut reader)
        .and_then(|v| reader.end().map(|()| v))
        .map_err(|e| explain(bytes, &e))?;
    Ok(Decoded { value, duplicates })
}

fn explain(bytes: &[u8], error: &serde_json::Error) -> DecodeError {
    if error.is_eof() {
        return DecodeError::End;
    }
    let line = bytes.split(|b| *b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let Some(found) = line.get(error.column().saturating_sub(1)) else {
        return DecodeError::Other(error.to_string());
    };
    let found = match found {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b => format!("'{}'", char::from(*b).escape_default()),
    };
    let text = error.to_string();
    let context = if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else if text.starts_with("trailing characters") {
        "after top-level value"
    } else if text.starts_with("key must be a string") || text.starts_with("trailing comma") {
        "looking for beginning of object key string"
    } else if text.starts_with("expected value") {
        "looking for beginning of value"
    } else if text.starts_with("control character") {
        "in string literal"
    } else {
        return DecodeError::Other(text);
    };
    DecodeError::Character { found, context }
}

struct Seed<'a, 'p> {
    path: &'p Path<'p>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            let path = self.path.index(out.len());
            match access.next_element_seed(Seed { path: &path, duplicates: self.duplicates })? {
                Some(value) => out.push(value),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = self.path.child(&key);
            let value = access.next_value_seed(Seed { path: &path, duplicates: self.duplicates })?;
            if out.contains_key(&key) {
                let complaint = format!("duplicate field \"{path}\"");
                if !self.duplicates.contains(&complaint) {
                    self.duplicates.push(complaint);
                }
            }
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_reported_with_their_path() {
        let decoded = decode_json(br#"{"data":{"a":"1","a":"2"},"x":[{"b":1,"b":2}]}"#).unwrap();
        assert_eq!(decoded.duplicates, ["duplicate field \"data.a\"", "duplicate field \"x[0].b\""]);
        assert_eq!(decoded.value["data"]["a"], "2");
    }

    #[test]
    fn syntax_errors_read_like_gos() {
        for (text, error) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ] {
            assert_eq!(decode_json(text.as_bytes()).unwrap_err().to_string(), error, "{text}");
        }
    }
}
