//! The shape of every API message: fields, types, list and patch behaviour, protobuf numbers.
//!
//! The messages of the built-in kinds, whose rows `cargo xtask gen kinds` writes into `schema/generated.rs` from the
//! published Go modules. A kind that is made at run time has a structural schema instead ([`Message::structural`]).

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::kinds::Text;
use crate::structural::Node;

#[rustfmt::skip]
mod generated;

pub(crate) use generated::{MESSAGES, index};

/// A message that is shared: one of the table, or one that was made at run time.
#[derive(Debug, Clone)]
pub enum Schema {
    /// A message of the table.
    Builtin(&'static Message),
    /// One with a structural schema.
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

/// One API struct, or what stands for the objects of a structural schema.
#[derive(Debug, Clone)]
pub struct Message {
    /// Name of its OpenAPI definition, e.g. `io.k8s.api.core.v1.Pod`.
    pub name: Text,
    /// Place in the table; [`MADE`] for structural schemas.
    index: u16,
    /// Whether server-side apply treats it as one value.
    pub atomic: bool,
    /// Fields sorted by JSON name, inlined ones included; none where there is a structural schema.
    pub fields: &'static [Field],
    /// The structural schema.
    pub structural: Option<Arc<Node>>,
}

/// The index of a message that is not in the table.
const MADE: u16 = u16::MAX;

/// One field of a message.
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name.
    pub name: &'static str,
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
    pub keys: &'static [&'static str],
    /// Merge key of a strategic merge patch.
    pub merge_key: &'static str,
    /// Declared default as JSON text, empty when there is none.
    pub default: &'static str,
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
    /// The message with this index in the table, or something simpler.
    SchemaOr(u16, Or),
}

/// What may stand in place of a schema in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Or {
    /// Whether anything is allowed.
    Bool,
    /// A list of schemas.
    Schemas,
    /// A list of names.
    Strings,
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
    Field { name, number, via, ty, cardinality, flags, keys, merge_key, default }
}

const fn m(name: &'static str, index: u16, atomic: bool, fields: &'static [Field]) -> Message {
    Message { name: Cow::Borrowed(name), index, atomic, fields, structural: None }
}

impl Message {
    /// What stands for the objects of a structural schema.
    pub fn structural(name: impl Into<Text>, schema: Arc<Node>) -> Message {
        Message { name: name.into(), index: MADE, atomic: false, fields: &[], structural: Some(schema) }
    }

    /// Whether the objects have a structural schema: then nothing is left out or written as Go's structs would.
    pub fn is_structural(&self) -> bool {
        self.structural.is_some()
    }

    /// The metadata of an object.
    pub(crate) fn object_meta() -> &'static Message {
        Message::at(index::META_V1_OBJECTMETA)
    }

    /// The field with this JSON name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let at = self.fields.binary_search_by(|f| f.name.cmp(name)).ok()?;
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
    /// Schema of the value or element when it is a message.
    pub fn message(&self) -> Option<&'static Message> {
        match self.ty {
            Type::Message(index) => Some(Message::at(index)),
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
