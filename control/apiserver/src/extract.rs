//! Reads only the wanted paths out of a JSON text, skipping everything else without building it.
//!
//! The watch cache needs labels and selectable fields of every object it hears of; a full parse of a
//! pod costs ten times as much.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// A tree of wanted keys; a leaf wants everything below it.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    children: Vec<(String, Wanted)>,
}

impl Wanted {
    /// Builds the tree from dotted paths.
    pub(crate) fn new<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut root = Self::default();
        for path in paths {
            let mut node = &mut root;
            for part in path.split('.') {
                let at = node.children.iter().position(|(key, _)| key == part).unwrap_or_else(|| {
                    node.children.push((part.to_owned(), Self::default()));
                    node.children.len() - 1
                });
                node = &mut node.children[at].1;
            }
        }
        root
    }

    /// Reads the wanted parts of `text`.
    pub(crate) fn read(&self, text: &[u8]) -> Result<Value, serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_slice(text);
        Seed(self).deserialize(&mut parser)
    }
}

struct Seed<'a>(&'a Wanted);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0.children.is_empty() {
            return serde::Deserialize::deserialize(deserializer);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.children.iter().find(|(wanted, _)| *wanted == key) {
                Some((_, child)) => {
                    let value = map.next_value_seed(Seed(child))?;
                    out.insert(key.into_owned(), value);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(out))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_wanted_paths_are_built() {
        let wanted = Wanted::new(["metadata.labels", "metadata.name", "spec.nodeName", "status.phase"]);
        let text = br#"{"metadata":{"name":"a","labels":{"x":"y"},"uid":"u"},"spec":{"nodeName":"n","containers":[{"name":"c"}]},"status":null}"#;
        let read = wanted.read(text).unwrap();
        assert_eq!(
            read,
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"nodeName": "n"}, "status": null})
        );
    }
}
