//! Maps and objects: borrowed from JSON, seen through a schema, or made.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::compare::{equal, json_equal};
use crate::error::EvalError;
use crate::names;
use crate::schema::{Schema, Shape};
use crate::text::Text;
use crate::value::Value;

/// A map or an object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// An object without a schema.
    Json(&'a serde_json::Map<String, Json>),
    /// An object or a map with one.
    Typed {
        /// The entries as they are stored.
        entries: &'a serde_json::Map<String, Json>,
        /// Its schema.
        schema: &'a Schema,
    },
    /// A map that was made.
    Made(Arc<BTreeMap<Key<'a>, Value<'a>>>),
    /// A map in which whatever is missing is an empty map.
    WithDefault(Arc<BTreeMap<Key<'a>, Value<'a>>>),
}

/// A key of a map that was made.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    /// `true` and `false`.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Uint(u64),
    /// A number of floating point.
    Double(f64),
    /// Text.
    String(Text<'a>),
}

impl<'a> Key<'a> {
    /// The key that a value is, if it can be one.
    pub(crate) fn of(value: &Value<'a>) -> Option<Key<'a>> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Int(*value),
            Value::Uint(value) => Key::Uint(*value),
            Value::Double(value) => Key::Double(*value),
            Value::String(text) => Key::String(text.clone()),
            _ => return None,
        })
    }

    /// The value that a key is.
    pub fn value(&self) -> Value<'a> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Uint(value) => Value::Uint(*value),
            Key::Double(value) => Value::Double(*value),
            Key::String(text) => Value::String(text.clone()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Key::Bool(_) => 0,
            Key::Int(_) => 1,
            Key::Uint(_) => 2,
            Key::Double(_) => 3,
            Key::String(_) => 4,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::Bool(left), Key::Bool(right)) => left.cmp(right),
            (Key::Int(left), Key::Int(right)) => left.cmp(right),
            (Key::Uint(left), Key::Uint(right)) => left.cmp(right),
            (Key::Double(left), Key::Double(right)) => left.total_cmp(right),
            (Key::String(left), Key::String(right)) => (**left).cmp(&**right),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

/// What is found under a key.
pub(crate) type Found<'a> = Option<Result<Value<'a>, EvalError>>;

impl<'a> Map<'a> {
    /// How many entries there are.
    #[allow(clippy::len_without_is_empty, reason = "it is not a collection of Rust's")]
    pub fn len(&self) -> usize {
        match self {
            Map::Json(entries) | Map::Typed { entries, .. } => entries.len(),
            Map::Made(entries) | Map::WithDefault(entries) => entries.len(),
        }
    }

    /// What is under `key`.
    pub fn get(&self, key: &Value<'a>) -> Found<'a> {
        match self {
            Map::Json(_) | Map::Typed { .. } => match key {
                Value::String(text) => self.text_key(text),
                _ if matches!(self, Map::Json(_)) => None,
                _ => Some(Err(EvalError::no_such_overload())),
            },
            Map::Made(entries) => find(entries, key).map(Ok),
            Map::WithDefault(entries) => {
                let empty = || Value::Map(Map::Made(Arc::default()));
                Some(Ok(find(entries, key).unwrap_or_else(empty)))
            }
        }
    }

    /// Whether a key is there, whatever stands in for it if it is not.
    pub(crate) fn contains(&self, key: &Value<'a>) -> Result<bool, EvalError> {
        match self {
            Map::WithDefault(entries) => Ok(find(entries, key).is_some()),
            other => other.get(key).transpose().map(|found| found.is_some()),
        }
    }

    /// What is under a text.
    pub(crate) fn text_key(&self, key: &str) -> Found<'a> {
        match self {
            Map::Json(entries) => entries.get(key).map(|value| Ok(Value::json(value))),
            Map::Typed { entries, schema } => match schema.shape() {
                Shape::Map { values, .. } => entries.get(key).map(|value| Value::typed(value, values)),
                _ => {
                    let value = entries.get(&*names::unescape(key)?).filter(|value| !value.is_null())?;
                    Some(Value::typed(value, schema.field(key)?))
                }
            },
            Map::Made(entries) | Map::WithDefault(entries) => {
                // The keys may live shorter than the values, so that the text need not be copied.
                let entries: &BTreeMap<Key<'_>, Value<'a>> = entries;
                entries.get(&Key::String(Text::Borrowed(key))).cloned().map(Ok)
            }
        }
    }

    /// The keys, in their order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Json(entries) => entries.keys().map(|key| Value::String(Text::Borrowed(key))).collect(),
            Map::Typed { entries, schema } => {
                let named = |key: &'a String| match schema.shape() {
                    Shape::Map { .. } => Some(Text::Borrowed(key.as_str())),
                    _ => match names::escape(key)? {
                        std::borrow::Cow::Borrowed(name) => Some(Text::Borrowed(name)),
                        std::borrow::Cow::Owned(name) => Some(Text::from(name)),
                    }
                    .filter(|name| schema.field(name).is_some()),
                };
                entries.keys().filter_map(named).map(Value::String).collect()
            }
            Map::Made(entries) | Map::WithDefault(entries) => entries.keys().map(Key::value).collect(),
        }
    }

    /// The keys with what is under them.
    pub fn entries(&self) -> impl Iterator<Item = (Key<'a>, Result<Value<'a>, EvalError>)> + '_ {
        self.keys().into_iter().filter_map(|key| {
            let value = self.get(&key)?;
            Some((Key::of(&key)?, value))
        })
    }

    pub(crate) fn equals(&self, other: &Map<'a>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        if let (Map::Typed { entries, schema }, Map::Typed { entries: others, .. }) = (self, other) {
            return entries.iter().all(|(key, value)| {
                let known = match schema.shape() {
                    Shape::Map { .. } => true,
                    _ => names::escape(key).is_some_and(|name| schema.field(&name).is_some()),
                };
                match known {
                    true => self.same_under(other, &Value::String(Text::Borrowed(key))),
                    false => others.get(key).is_none_or(|other| json_equal(value, other)),
                }
            });
        }
        self.keys().iter().all(|key| self.same_under(other, key))
    }

    fn same_under(&self, other: &Map<'a>, key: &Value<'a>) -> bool {
        match (self.get(key), other.get(key)) {
            (Some(Ok(left)), Some(Ok(right))) => equal(&left, &right),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Numbers find each other whatever their type, if they are equal.
fn find<'a>(entries: &BTreeMap<Key<'a>, Value<'a>>, key: &Value<'a>) -> Option<Value<'a>> {
    let key = Key::of(key)?;
    if let Some(value) = entries.get(&key) {
        return Some(value.clone());
    }
    let others = match key {
        Key::Int(value) => [u64::try_from(value).ok().map(Key::Uint), None],
        Key::Uint(value) => [i64::try_from(value).ok().map(Key::Int), None],
        Key::Double(value) => [whole(value).map(Key::Int), positive(value).map(Key::Uint)],
        _ => [None, None],
    };
    others.into_iter().flatten().find_map(|key| entries.get(&key)).cloned()
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a cast of a float saturates, and what is not the same is not used"
)]
pub(crate) fn whole(value: f64) -> Option<i64> {
    let number = value as i64;
    #[allow(clippy::cast_precision_loss, reason = "compared with what it was made from")]
    let same = number as f64 == value && number != i64::MAX;
    same.then_some(number)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and what is not the same is not used"
)]
fn positive(value: f64) -> Option<u64> {
    let number = value as u64;
    #[allow(clippy::cast_precision_loss, reason = "compared with what it was made from")]
    let same = number as f64 == value && number != u64::MAX;
    same.then_some(number)
}
