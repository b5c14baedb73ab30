//! JSON text to a value, within bounds of depth and memory, with Go's texts for syntax errors.
//!
//! What the fields mean is not looked at here: see [`super::conform`] and [`super::complaints`].

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Values nest this deep and no deeper.
///
/// Upstream stops at 10,000, but everything here that walks a value recurses, and so do the clients. `serde_json` stops
/// at 127, and a watch, a list or a table wraps an object in up to five more levels: what is accepted here can be read
/// back by everybody. The deepest served kind has some thirty levels.
pub const DEEPEST: usize = 100;
/// A decoded body may take this much memory: an object that is read in good faith needs some twelve times its text,
/// a hostile one (`[{},{},...]`) two hundred times.
pub const MOST_MEMORY: usize = 64 << 20;

/// What is said of a value that nests too deeply, in Go's words.
pub const TOO_DEEP: &str = "exceeded max depth";
/// What is said of a value that takes more than [`MOST_MEMORY`].
pub const TOO_LARGE: &str = "the object takes too much memory";
/// What is said of too many aliases, in upstream's words.
pub const TOO_MANY: &str = "document contains excessive aliasing";

/// What a value costs wherever it stands; lists grow by doubling.
const VALUE: usize = 2 * size_of::<Value>();
/// What the first member of a map costs: a whole node of the tree.
const FIRST_MEMBER: usize = 640;
/// What each further member costs, on average.
const MEMBER: usize = 110;

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The value; of duplicate fields the last one.
    pub value: Value,
    /// Whether there were any.
    pub has_duplicates: bool,
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
    /// The value would take too much memory: 413.
    #[error("the object takes more than {MOST_MEMORY} bytes of memory")]
    TooLarge,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// How much more of a body may be decoded.
#[derive(Debug)]
pub(crate) struct Room {
    depth: usize,
    memory: usize,
    nodes: usize,
    has_duplicates: bool,
}

impl Room {
    pub(crate) fn new(depth: usize, memory: usize, nodes: usize) -> Room {
        Room { depth, memory, nodes, has_duplicates: false }
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    fn take<E: serde::de::Error>(&mut self, memory: usize) -> Result<(), E> {
        self.memory = self.memory.checked_sub(memory).ok_or_else(|| E::custom(TOO_LARGE))?;
        Ok(())
    }

    fn node<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.nodes = self.nodes.checked_sub(1).ok_or_else(|| E::custom(TOO_MANY))?;
        Ok(())
    }

    fn deeper<E: serde::de::Error>(&mut self, open: char) -> Result<(), E> {
        let left = self.depth.checked_sub(1);
        self.depth = left.ok_or_else(|| E::custom(format_args!("{TOO_DEEP} at '{open}'")))?;
        Ok(())
    }
}

/// Decodes JSON text.
pub fn decode_json(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut room = Room::new(DEEPEST, MOST_MEMORY, usize::MAX);
    let value = decode_within(bytes, &mut room)?;
    Ok(Decoded { value, has_duplicates: room.has_duplicates })
}

/// Decodes JSON text that is part of something larger.
pub(crate) fn decode_within(bytes: &[u8], room: &mut Room) -> Result<Value, DecodeError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    Seed(room).deserialize(&mut reader).and_then(|v| reader.end().map(|()| v)).map_err(|e| explain(bytes, &e))
}

/// Decodes another format of the same data model, in which one value may stand for many (YAML's aliases): at most
/// `nodes` of them.
pub fn decode_from<'de, D: Deserializer<'de>>(deserializer: D, nodes: usize) -> Result<Value, D::Error> {
    Seed(&mut Room::new(DEEPEST, MOST_MEMORY, nodes)).deserialize(deserializer)
}

fn explain(bytes: &[u8], error: &serde_json::Error) -> DecodeError {
    if error.is_eof() {
        return DecodeError::End;
    }
    let text = error.to_string();
    if text.starts_with(TOO_LARGE) {
        return DecodeError::TooLarge;
    }
    if let Some(at) = text.strip_prefix(TOO_DEEP) {
        let found = if at.starts_with(" at '{'") { "'{'" } else { "'['" };
        return DecodeError::Character { found: found.to_owned(), context: TOO_DEEP };
    }
    let line = bytes.split(|b| *b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let Some(found) = line.get(error.column().saturating_sub(1)) else {
        return DecodeError::Other(text);
    };
    let found = match found {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b => format!("'{}'", char::from(*b).escape_default()),
    };
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

struct Seed<'a>(&'a mut Room);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.node()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
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

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Value, E> {
        self.0.take(v.len())?;
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, v: String) -> Result<Value, E> {
        self.0.take(v.len())?;
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let room = self.0;
        room.deeper('[')?;
        let mut out = Vec::new();
        while let Some(value) = access.next_element_seed(Seed(room))? {
            // An empty object in a list is one that gets its fields later.
            let fields = if value.as_object().is_some_and(Map::is_empty) { FIRST_MEMBER } else { 0 };
            room.take(if out.is_empty() { 4 * VALUE } else { VALUE } + fields)?;
            out.push(value);
        }
        room.depth += 1;
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let room = self.0;
        room.deeper('{')?;
        let mut out = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            room.node()?;
            room.take(if out.is_empty() { FIRST_MEMBER } else { MEMBER } + key.len())?;
            let value = access.next_value_seed(Seed(room))?;
            room.has_duplicates |= out.insert(key, value).is_some();
        }
        room.depth += 1;
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_duplicates_the_last_one_counts() {
        let decoded = decode_json(br#"{"data":{"a":"1","a":"2"}}"#).unwrap();
        assert!(decoded.has_duplicates);
        assert_eq!(decoded.value["data"]["a"], "2");
        assert!(!decode_json(br#"{"a":{"a":1}}"#).unwrap().has_duplicates);
    }

    #[test]
    fn values_that_nest_too_deeply_are_refused_before_anything_recurses_into_them() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        decode_json(nested(DEEPEST).as_bytes()).unwrap();
        // One after the other is not one inside the other.
        decode_json(format!("[{0},{0}]", nested(DEEPEST - 1)).as_bytes()).unwrap();
        for depth in [DEEPEST + 1, 1_000_000] {
            let error = decode_json(nested(depth).as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "invalid character '[' exceeded max depth");
        }
        let maps = "{\"a\":".repeat(DEEPEST + 1);
        let error = decode_json(maps.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "invalid character '{' exceeded max depth");
    }

    #[test]
    fn a_small_text_that_takes_much_memory_is_refused() {
        for piece in ["{},", "{\"\":0},", "[[]],", "0,"] {
            let mut text = "[".to_owned() + &piece.repeat((3 << 20) / piece.len());
            text.pop();
            text.push(']');
            assert_eq!(decode_json(text.as_bytes()).unwrap_err(), DecodeError::TooLarge, "{piece}");
        }
        let text = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(3 << 20));
        decode_json(text.as_bytes()).unwrap();
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
