//! The shape of every API message: fields, types, list and patch behaviour, protobuf numbers.
//!
//! One form for both: the messages of the built-in kinds, whose rows `cargo xtask gen kinds` writes into
//! `schema/generated.rs` from the published Go modules, and the structural schemas of kinds that are made at run time
//! ([`Message::structural`]).

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::kinds::Text;

#[rustfmt::skip]
mod generated;

pub(crate) use generated::{MESSAGES, index};

/// A message that is shared: one of the table, or one that was made at run time.
#[derive(Debug, Clone)]
pub enum Schema {
    /// A message of the table.
    Builtin(&'static Message),
    /// A structural schema.
    Made(Arc<Message>),
}

impl Deref for Schema {
    type Target = Message;

    fn deref(&self) -> &Message {
        match self {
            Schema::Builtin(message) => message,
            Schema::Made(message) => message,
        }
    }
}

/// One API struct, or one object of a structural schema.
#[derive(Debug, Clone)]
pub struct Message {
    /// Name of its OpenAPI definition, e.g. `io.k8s.api.core.v1.Pod`.
    pub name: Text,
    /// Place in the table; [`MADE`] for structural schemas.
    index: u16,
    /// Whether server-side apply treats it as one value.
    pub atomic: bool,
    /// Whether fields that it does not name are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserves_unknown: bool,
    /// Whether it is a whole object with metadata of its own (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// Fields sorted by JSON name, inlined ones included.
    pub fields: Cow<'static, [Field]>,
}

/// The index of a message that is not in the table.
const MADE: u16 = u16::MAX;

/// One field of a message.
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name.
    pub name: Text,
    /// Protobuf number, 0 when the field is not on the wire.
    pub number: u32,
    /// Protobuf number(s) of the inlined message that carries the field (`outer*100+inner` for two levels), 0 when none.
    pub via: u32,
    /// Type of the value, or of each element.
    pub ty: Type,
    /// One value, a list or a map with string keys.
    pub cardinality: Cardinality,
    flags: u16,
    /// Keys of a `map` list.
    pub keys: Keys,
    /// Merge key of a strategic merge patch.
    pub merge_key: &'static str,
    /// Declared default as JSON text, empty when there is none.
    pub default: Text,
}

/// The keys that identify an element of a list.
#[derive(Debug, Clone)]
pub enum Keys {
    /// Those of the table.
    Builtin(&'static [&'static str]),
    /// Those of a structural schema.
    Made(Arc<[String]>),
}

impl Keys {
    /// The keys in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (builtin, made): (&[&str], &[String]) = match self {
            Keys::Builtin(keys) => (keys, &[]),
            Keys::Made(keys) => (&[], keys),
        };
        builtin.iter().copied().chain(made.iter().map(String::as_str))
    }
}

/// Type of a value.
#[derive(Debug, Clone)]
pub enum Type {
    /// String.
    Str,
    /// Boolean.
    Bool,
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// Floating point number.
    F64,
    /// Bytes, base64 in JSON.
    Bytes,
    /// Resource quantity.
    Quantity,
    /// Integer or string.
    IntOrString,
    /// RFC 3339 time, seconds.
    Time,
    /// RFC 3339 time, microseconds.
    MicroTime,
    /// Go duration text.
    Duration,
    /// Field set of managedFields.
    Fields,
    /// Any object, stored raw.
    Raw,
    /// Any JSON value.
    Json,
    /// List of strings (as a map value).
    Strs,
    /// Message with this index in the table.
    Message(u16),
    /// Object of a structural schema.
    Object(Arc<Message>),
    /// A list or map inside a list or map of a structural schema; the field has no name.
    Nested(Arc<Field>),
}

impl Type {
    /// The message of the table with this name.
    pub fn named(name: &str) -> Option<Type> {
        Message::named(name).map(|message| Type::Message(message.index))
    }

    /// The metadata of an object.
    pub const fn object_meta() -> Type {
        Type::Message(index::META_V1_OBJECTMETA)
    }
}

/// How many values a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    /// One value.
    One,
    /// A list.
    List,
    /// A map with string keys.
    Map,
}

/// Declared merge behaviour of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Elements identified by [`Field::keys`].
    Map,
}

pub(crate) mod flag {
    pub(crate) const P: u16 = 1;
    pub(crate) const E: u16 = 2;
    pub(crate) const Z: u16 = 4;
    pub(crate) const R: u16 = 8;
    pub(crate) const A: u16 = 16;
    pub(crate) const PM: u16 = 32;
    pub(crate) const PR: u16 = 64;
    pub(crate) const PX: u16 = 128;
    pub(crate) const LM: u16 = 256;
    pub(crate) const LS: u16 = 512;
    pub(crate) const LA: u16 = 1024;
}

#[allow(clippy::too_many_arguments, reason = "one argument per column of the generated table")]
const fn f(
    name: &'static str,
    number: u32,
    via: u32,
    ty: Type,
    cardinality: Cardinality,
    flags: u16,
    keys: &'static [&'static str],
    merge_key: &'static str,
    default: &'static str,
) -> Field {
    Field {
        name: Cow::Borrowed(name),
        number,
        via,
        ty,
        cardinality,
        flags,
        keys: Keys::Builtin(keys),
        merge_key,
        default: Cow::Borrowed(default),
    }
}

const fn m(name: &'static str, index: u16, atomic: bool, fields: &'static [Field]) -> Message {
    Message {
        name: Cow::Borrowed(name),
        index,
        atomic,
        preserves_unknown: false,
        embedded: false,
        fields: Cow::Borrowed(fields),
    }
}

impl Message {
    /// An object of a structural schema with these fields.
    pub fn structural(name: impl Into<Text>, mut fields: Vec<Field>) -> Message {
        fields.sort_by(|one, other| one.name.cmp(&other.name));
        Message {
            name: name.into(),
            index: MADE,
            atomic: false,
            preserves_unknown: false,
            embedded: false,
            fields: Cow::Owned(fields),
        }
    }

    /// Whether it is part of a structural schema: then nothing is left out or written as Go's structs would.
    pub fn is_structural(&self) -> bool {
        self.index == MADE
    }

    /// The field with this JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let at = self.fields.binary_search_by(|f| (*f.name).cmp(name)).ok()?;
        Some(&self.fields[at])
    }

    /// What the wire needs to know about the message; structural schemas are never on it.
    pub(crate) fn wire(&self) -> &'static Wire {
        static ALL: OnceLock<Vec<Wire>> = OnceLock::new();
        static NOTHING: Wire = Wire { by_number: Vec::new(), embedded: Vec::new() };
        let all = ALL.get_or_init(|| Message::all().iter().map(Wire::of).collect());
        all.get(usize::from(self.index)).unwrap_or(&NOTHING)
    }

    /// Name without the package, as Go prints it in errors (`Pod`).
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Message at this index of the table.
    pub fn at(index: u16) -> &'static Message {
        &generated::MESSAGES[usize::from(index)]
    }

    /// The message of the table with this name.
    pub fn named(name: &str) -> Option<&'static Message> {
        generated::MESSAGES.iter().find(|message| message.name == name)
    }

    /// All messages of the table.
    pub fn all() -> &'static [Message] {
        &generated::MESSAGES
    }
}

/// A message as the protobuf transcoder sees it.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Fields of the message itself, by number.
    by_number: Vec<Option<&'static Field>>,
    /// The embedded messages: see [`Field::via`].
    pub(crate) embedded: Vec<u32>,
}

impl Wire {
    fn of(message: &'static Message) -> Wire {
        let mut wire = Wire { by_number: Vec::new(), embedded: Vec::new() };
        for field in message.fields.iter().filter(|f| f.number != 0) {
            let mut via = field.via;
            while via != 0 && !wire.embedded.contains(&via) {
                wire.embedded.push(via);
                via /= 100;
            }
            if field.via == 0 {
                let at = field.number as usize;
                if wire.by_number.len() <= at {
                    wire.by_number.resize(at + 1, None);
                }
                wire.by_number[at] = Some(field);
            }
        }
        wire.embedded.sort_unstable();
        wire
    }

    /// The field with this number that is no part of an embedded message.
    pub(crate) fn field(&self, number: u32) -> Option<&'static Field> {
        self.by_number.get(number as usize).copied().flatten()
    }
}

impl Field {
    /// A field of a structural schema.
    pub fn structural(name: impl Into<Text>, ty: Type, cardinality: Cardinality) -> Field {
        Field {
            name: name.into(),
            number: 0,
            via: 0,
            ty,
            cardinality,
            flags: 0,
            keys: Keys::Builtin(&[]),
            merge_key: "",
            default: Cow::Borrowed(""),
        }
    }

    /// The field with a default.
    #[must_use]
    pub fn with_default(self, default: &serde_json::Value) -> Field {
        Field { default: default.to_string().into(), ..self }
    }

    /// The field as one that must be given.
    #[must_use]
    pub fn required(self) -> Field {
        Field { flags: self.flags | flag::R, ..self }
    }

    /// The field as a value that server-side apply never looks into.
    #[must_use]
    pub fn whole(self) -> Field {
        Field { flags: self.flags | flag::A, ..self }
    }

    /// The list as a set.
    #[must_use]
    pub fn set(self) -> Field {
        Field { flags: self.flags | flag::LS, ..self }
    }

    /// The list as a map whose elements have these keys.
    #[must_use]
    pub fn map_by(self, keys: impl IntoIterator<Item = String>) -> Field {
        Field { flags: self.flags | flag::LM, keys: Keys::Made(keys.into_iter().collect()), ..self }
    }

    /// Schema of the value or element when it is a message.
    pub fn message(&self) -> Option<&Message> {
        match &self.ty {
            Type::Message(index) => Some(Message::at(*index)),
            Type::Object(message) => Some(message),
            _ => None,
        }
    }

    /// The schema of the value or element when that can be shared.
    pub fn schema(&self) -> Option<Schema> {
        match &self.ty {
            Type::Message(index) => Some(Schema::Builtin(Message::at(*index))),
            Type::Object(message) => Some(Schema::Made(message.clone())),
            _ => None,
        }
    }

    fn has(&self, bit: u16) -> bool {
        self.flags & bit != 0
    }

    /// Whether Go holds it behind a pointer, so that a zero differs from absence.
    pub fn is_pointer(&self) -> bool {
        self.has(flag::P)
    }

    /// Whether an empty value is left out of JSON.
    pub fn omits_empty(&self) -> bool {
        self.has(flag::E)
    }

    /// Whether a zero struct is left out of JSON.
    pub fn omits_zero(&self) -> bool {
        self.has(flag::Z)
    }

    /// Whether the field must be given.
    pub fn is_required(&self) -> bool {
        self.has(flag::R)
    }

    /// Whether server-side apply treats the struct or map as one value.
    pub fn is_atomic(&self) -> bool {
        self.has(flag::A)
    }

    /// Whether a strategic merge patch merges the list instead of replacing it.
    pub fn patch_merges(&self) -> bool {
        self.has(flag::PM)
    }

    /// Whether a strategic merge patch understands `$retainKeys` here.
    pub fn patch_retains_keys(&self) -> bool {
        self.has(flag::PR)
    }

    /// Whether a strategic merge patch replaces the value.
    pub fn patch_replaces(&self) -> bool {
        self.has(flag::PX)
    }

    /// List behaviour under server-side apply.
    pub fn list_type(&self) -> ListType {
        if self.has(flag::LM) {
            ListType::Map
        } else if self.has(flag::LS) {
            ListType::Set
        } else {
            ListType::Atomic
        }
    }

    /// Whether the list type was declared at all.
    pub fn declares_list_type(&self) -> bool {
        self.has(flag::LM | flag::LS | flag::LA)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_structural_schema_is_walked_as_the_table_is() {
        let leaf = Message::structural("", vec![Field::structural("a", Type::I64, Cardinality::One)]);
        let mut free = leaf.clone();
        free.preserves_unknown = true;
        let row = Field::structural("", Type::Object(Arc::new(leaf)), Cardinality::List);
        let schema = Message::structural(
            "x",
            vec![
                Field::structural("metadata", Type::object_meta(), Cardinality::One),
                Field::structural("rows", Type::Nested(Arc::new(row)), Cardinality::Map),
                Field::structural("free", Type::Object(Arc::new(free)), Cardinality::One),
                Field::structural("absent", Type::Str, Cardinality::List).with_default(&json!(["b"])),
            ],
        );
        let mut object = json!({
            "metadata": {"name": "n", "nowhere": 1},
            "rows": {"k": [{"a": 1, "b": 2}, "odd"]},
            "free": {"a": 0, "b": {"c": null}},
        });
        let complaints = crate::strict::conform_message(&schema, &mut object).unwrap();
        assert_eq!(
            complaints,
            ["unknown field \"metadata.nowhere\"", "unknown field \"rows.k[0].b\""],
            "what the schema does not name"
        );
        assert_eq!(
            object,
            json!({"metadata": {"name": "n"}, "rows": {"k": [{"a": 1}, "odd"]},
                   "free": {"a": 0, "b": {"c": null}}}),
            "nothing is written or left out as Go would"
        );
    }
}
