//! What strict decoding complains about: fields nobody knows and fields given twice, in the order of the text.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::path::Path;
use crate::schema::{Cardinality, Field, Message, Type};

/// Upstream names this many and no more.
const MOST: usize = 100;
/// Names can be as long as the body; beyond this many bytes in all no more are given.
const MOST_BYTES: usize = 64 << 10;

/// A list of complaints, each given once.
#[derive(Default)]
pub(super) struct Complaints {
    list: Vec<String>,
    bytes: usize,
}

impl Complaints {
    /// Adds a complaint (`unknown field`) about a place.
    pub(super) fn add(&mut self, what: &str, path: &Path<'_>) {
        if self.list.len() >= MOST || self.bytes > MOST_BYTES {
            return;
        }
        let mut text = String::new();
        // Ignored: text can always be written to.
        write!(text, "{what} {:?}", path.to_string()).ok();
        if !self.list.contains(&text) {
            self.bytes += text.len();
            self.list.push(text);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn sort_from(&mut self, start: usize) {
        self.list[start..].sort();
    }

    pub(super) fn into_list(self) -> Vec<String> {
        self.list
    }
}

/// Complaints about a body that was decoded already; of one that was not, those up to the mistake.
///
/// As upstream's decoder does, nothing is said about what is inside a field that nobody knows.
pub fn complaints(schema: &Message, bytes: &[u8]) -> Vec<String> {
    all(Place::Message(schema), bytes)
}

/// Complaints about what is in a body twice, whatever its shape.
pub fn duplicates(bytes: &[u8]) -> Vec<String> {
    all(Place::Anything, bytes)
}

fn all(place: Place<'_>, bytes: &[u8]) -> Vec<String> {
    let mut out = Complaints::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let root = Path::root("");
    // Ignored: whoever decoded the body has told about mistakes in it.
    Seed { place, path: &root, out: &mut out }.deserialize(&mut reader).ok();
    out.into_list()
}

/// What is expected at a place.
#[derive(Clone, Copy)]
enum Place<'s> {
    Message(&'s Message),
    List(&'s Field),
    Map(&'s Field),
    /// Anything, in which only what is there twice counts.
    Anything,
    /// Anything, nothing of which is looked at.
    Opaque,
}

impl<'s> Place<'s> {
    fn of(field: &'s Field) -> Place<'s> {
        match field.cardinality {
            Cardinality::One => Place::element(field),
            Cardinality::List => Place::List(field),
            Cardinality::Map => Place::Map(field),
        }
    }

    fn element(field: &'s Field) -> Place<'s> {
        match &field.ty {
            Type::SchemaOr(index, _) => Place::Message(Message::at(*index)),
            _ => field.message().map_or(Place::Opaque, Place::Message),
        }
    }
}

struct Seed<'a, 'p> {
    place: Place<'p>,
    path: &'p Path<'p>,
    out: &'a mut Complaints,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.place {
            Place::Opaque => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let place = match self.place {
            Place::List(field) => Place::element(field),
            Place::Anything => Place::Anything,
            _ => Place::Opaque,
        };
        for at in 0.. {
            let path = self.path.index(at);
            if access.next_element_seed(Seed { place, path: &path, out: self.out })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = self.path.child(&key);
            let place = match self.place {
                Place::Message(schema) => schema.field(&key).map(Place::of),
                Place::Map(field) => Some(Place::element(field)),
                Place::Anything => Some(Place::Anything),
                Place::List(_) | Place::Opaque => Some(Place::Opaque),
            };
            if place.is_none() {
                self.out.add("unknown field", &path);
            } else if seen.contains(&key) {
                self.out.add("duplicate field", &path);
            }
            let place = place.unwrap_or(Place::Opaque);
            access.next_value_seed(Seed { place, path: &path, out: self.out })?;
            seen.insert(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        complaints(&crate::by_resource("", "v1", "pods").unwrap().schema, text.as_bytes())
    }

    #[test]
    fn complaints_come_in_the_order_of_the_text() {
        let text = r#"{"zoo":{"b":1,"b":2},"metadata":{"labels":{"a":"1","a":"2"},"name":"x","name":"y"},
                       "spec":{"containers":[{"name":"a","bar":2,"bar":3}]},"kind":"Pod","kind":"Pod","app":1}"#;
        assert_eq!(
            of(text),
            [
                "unknown field \"zoo\"",
                "duplicate field \"metadata.labels.a\"",
                "duplicate field \"metadata.name\"",
                "unknown field \"spec.containers[0].bar\"",
                "duplicate field \"kind\"",
                "unknown field \"app\"",
            ]
        );
    }

    #[test]
    fn neither_many_nor_long_names_make_a_long_list() {
        let many: String = (0..20_000).map(|i| format!("\"u{i}\":0,")).collect();
        assert_eq!(of(&format!("{{{many}\"kind\":\"Pod\"}}")).len(), MOST);
        let long = "k".repeat(1 << 20);
        let text: String = (0..100).map(|i| format!("\"{long}{i}\":0,")).collect();
        assert_eq!(of(&format!("{{{text}\"kind\":\"Pod\"}}")).len(), 1);
    }
}
