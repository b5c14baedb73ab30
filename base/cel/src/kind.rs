//! The types of expressions: what the checker gives to every node, and how messages name them.

use std::fmt;
use std::sync::Arc;

use crate::schema::Schema;

/// The type of an expression.
#[derive(Clone, Debug)]
pub enum Type {
    /// Known only at run time.
    Dyn,
    /// The same, under the name that DRA's attributes have.
    Any,
    /// Of an expression that was refused; stands in so that checking goes on.
    Error,
    /// `null`.
    Null,
    /// `bool`.
    Bool,
    /// 64 bits, signed.
    Int,
    /// 64 bits, unsigned.
    Uint,
    /// 64 bits of floating point.
    Double,
    /// Unicode text.
    String,
    /// Bytes.
    Bytes,
    /// A moment.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of one type of elements.
    List(Arc<Type>),
    /// A map of one type of keys to one type of values.
    Map(Arc<(Type, Type)>),
    /// A type as a value; of an unknown type when there is none.
    Type(Option<Arc<Type>>),
    /// `optional_type`.
    Optional(Arc<Type>),
    /// A type of Kubernetes' libraries that compares like an object (`kubernetes.Quantity`).
    Library(&'static str),
    /// A type of Kubernetes' libraries that compares only with itself (`net.IP`).
    Opaque(&'static str),
    /// An object with declared fields.
    Object(Arc<Schema>),
    /// A parameter of a declaration.
    Param(char),
    /// A parameter of one call, to be found out.
    Free(u32),
}

impl Type {
    /// A list of `element`.
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// A map of `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// An optional of `value`.
    pub fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    /// Whether anything may be done with it until run time.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || matches!(self, Type::Error)
    }

    /// The same type, parameters included.
    pub fn is_exactly(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(left), Type::List(right)) => left.is_exactly(right),
            (Type::Map(left), Type::Map(right)) => left.0.is_exactly(&right.0) && left.1.is_exactly(&right.1),
            (Type::Optional(left), Type::Optional(right)) => left.is_exactly(right),
            (Type::Type(left), Type::Type(right)) => match (left, right) {
                (Some(left), Some(right)) => left.is_exactly(right),
                (None, None) => true,
                _ => false,
            },
            (Type::Library(left), Type::Library(right)) | (Type::Opaque(left), Type::Opaque(right)) => {
                left == right
            }
            (Type::Object(left), Type::Object(right)) => left.name() == right.name(),
            (Type::Param(left), Type::Param(right)) => left == right,
            (Type::Free(left), Type::Free(right)) => left == right,
            (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
        }
    }

    /// The name that `type()` gives to a value of it.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Any => "any",
            Type::Error => "!error!",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Duration => "google.protobuf.Duration",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Type(_) => "type",
            Type::Optional(_) => "optional_type",
            Type::Library(name) | Type::Opaque(name) => name,
            Type::Object(schema) => schema.name(),
            Type::Param(_) | Type::Free(_) => "",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Null => out.write_str("null"),
            Type::Timestamp => out.write_str("timestamp"),
            Type::Duration => out.write_str("duration"),
            Type::List(element) => write!(out, "list({element})"),
            Type::Map(both) => write!(out, "map({}, {})", both.0, both.1),
            Type::Type(Some(of)) => write!(out, "type({of})"),
            Type::Optional(value) => write!(out, "optional_type({value})"),
            Type::Param(name) => write!(out, "{name}"),
            Type::Free(number) => write!(out, "_var{number}"),
            other => out.write_str(other.name()),
        }
    }
}
