//! Lists: borrowed from JSON, seen through a schema, or made.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::compare::equal;
use crate::error::EvalError;
use crate::names;
use crate::schema::{ListKind, Schema};
use crate::value::Value;

/// A list of values.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// An array of an object without a schema.
    Json(&'a [Json]),
    /// An array of an object with one.
    Typed {
        /// The elements as they are stored.
        values: &'a [Json],
        /// The schema of each.
        items: &'a Schema,
        /// What makes two of them equal.
        kind: &'a ListKind,
    },
    /// Elements that were made. They may be values of a list with keys or a set, to which more was added.
    Made(Arc<Vec<Value<'a>>>),
}

impl<'a> List<'a> {
    /// How many elements there are.
    #[allow(clippy::len_without_is_empty, reason = "it is not a collection of Rust's")]
    pub fn len(&self) -> usize {
        match self {
            List::Json(values) | List::Typed { values, .. } => values.len(),
            List::Made(values) => values.len(),
        }
    }

    /// The element at `index`.
    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            List::Json(values) => values.get(index).map(|value| Ok(Value::json(value))),
            List::Typed { values, items, .. } => values.get(index).map(|value| Value::typed(value, items)),
            List::Made(values) => values.get(index).cloned().map(Ok),
        }
    }

    /// The elements in their order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, EvalError>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Both lists one behind the other; a union or a merge when this one is a set or has keys.
    pub(crate) fn plus(self, other: &List<'a>) -> Result<List<'a>, EvalError> {
        let kind = match &self {
            List::Typed { kind, .. } => *kind,
            _ => &ListKind::Atomic,
        };
        let mut values = match self {
            List::Made(values) => values,
            list => Arc::new(list.iter().collect::<Result<Vec<_>, _>>()?),
        };
        let all = Arc::make_mut(&mut values);
        match kind {
            ListKind::Atomic => {
                for value in other.iter() {
                    all.push(value?);
                }
            }
            ListKind::Set => {
                for value in other.iter() {
                    let value = value?;
                    if !all.iter().any(|one| equal(one, &value)) {
                        all.push(value);
                    }
                }
            }
            ListKind::Map(keys) => {
                let mut places: HashMap<String, usize> =
                    all.iter().enumerate().map(|(place, value)| (key_of(value, keys), place)).collect();
                for value in other.iter() {
                    let value = value?;
                    match places.get(&key_of(&value, keys)) {
                        Some(place) => all[*place] = value,
                        None => {
                            places.insert(key_of(&value, keys), all.len());
                            all.push(value);
                        }
                    }
                }
            }
        }
        Ok(List::Made(values))
    }

    /// Equal as the left one's kind has it.
    pub(crate) fn equals(&self, other: &List<'a>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let same = |left: &Result<Value<'a>, EvalError>, right: &Result<Value<'a>, EvalError>| matches!((left, right), (Ok(left), Ok(right)) if equal(left, right));
        match self {
            List::Typed { kind: ListKind::Set, .. } => {
                let own: Vec<_> = self.iter().collect();
                other.iter().all(|value| own.iter().any(|one| same(one, &value)))
            }
            List::Typed { kind: ListKind::Map(keys), .. } => {
                let own: HashMap<String, Value<'a>> =
                    self.iter().flatten().map(|value| (key_of(&value, keys), value)).collect();
                other.iter().all(|value| {
                    let Ok(value) = value else { return false };
                    own.get(&key_of(&value, keys)).is_some_and(|one| equal(one, &value))
                })
            }
            _ => self.iter().zip(other.iter()).all(|(left, right)| same(&left, &right)),
        }
    }
}

/// The values of the keys of an element of a list with keys, as one text.
fn key_of(value: &Value<'_>, keys: &[String]) -> String {
    let Value::Map(map) = value else { return String::new() };
    let mut out = String::new();
    for key in keys {
        let spelled = names::escape(key);
        let found = map.text_key(spelled.as_deref().unwrap_or(key));
        match found {
            Some(Ok(Value::String(text))) => out.push_str(&format!("{:?},", &*text)),
            Some(Ok(other)) => out.push_str(&format!("{other},")),
            _ => out.push_str("-,"),
        }
    }
    out
}
