//! Structural schemas: the shape and the rules of objects whose kind was defined at run time.
//!
//! One tree for all that is done with them: pruning and defaulting (`structural/shape.rs`), validation
//! (`structural/check.rs`), merging ([`crate::apply`]). Descriptions are not in it; who wants to read them reads the
//! definition. Whether a schema is structural at all is asked before, by [`crate::definition`].

mod check;
mod formats;
mod lists;
mod parse;
mod pattern;
mod shape;

use serde_json::Value;

pub use formats::is_recognized as is_recognized_format;
pub use pattern::Pattern;

pub(crate) use check::Check;
pub(crate) use lists::{embedded_metadata, sets_and_maps};

/// The JSON type that a node asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any.
    Any,
    /// `array`.
    Array,
    /// `boolean`.
    Boolean,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `object`.
    Object,
    /// `string`.
    String,
}

impl Kind {
    /// The word of a schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Any => "",
            Kind::Array => "array",
            Kind::Boolean => "boolean",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Object => "object",
            Kind::String => "string",
        }
    }
}

/// How the elements of a list are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// They are not: the list is one value.
    Atomic,
    /// By themselves.
    Set,
    /// By their keys.
    Map,
}

/// What the entries of an object are that no property names.
#[derive(Debug)]
pub enum Additional {
    /// Nothing is said about them.
    Unsaid,
    /// There may be any, or none.
    Allowed(bool),
    /// Each has this schema.
    Schema(Box<Node>),
}

/// One schema.
#[derive(Debug)]
pub struct Node {
    /// The JSON type.
    pub kind: Kind,
    /// Whether null is a value.
    pub nullable: bool,
    /// Integer or string (`x-kubernetes-int-or-string`).
    pub int_or_string: bool,
    /// Whether fields that it does not name are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserves_unknown: bool,
    /// Whether it is a whole object with metadata of its own: the root, or `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// Whether a whole object may be in it, or is it.
    holds_embedded: bool,
    /// Whether the object is one value for server-side apply (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// `x-kubernetes-list-type`.
    pub list_type: ListType,
    /// Properties, sorted by name.
    pub properties: Box<[(Box<str>, Node)]>,
    /// The schema of each element.
    pub items: Option<Box<Node>>,
    /// `additionalProperties`.
    pub additional: Additional,
    /// What an absent value becomes.
    pub default: Option<Box<Value>>,
    /// Rules of the value, in the order in which they are asked.
    pub rules: Box<[Rule]>,
}

/// One rule of a value.
#[derive(Debug)]
pub enum Rule {
    /// One of these has to hold (`anyOf`).
    AnyOf(Box<[Node]>),
    /// Exactly one of these has to hold (`oneOf`).
    OneOf(Box<[Node]>),
    /// All of these have to hold (`allOf`).
    AllOf(Box<[Node]>),
    /// This must not hold (`not`).
    Not(Box<Node>),
    /// Characters of a text, at most.
    MaxLength(i64),
    /// Characters of a text, at least.
    MinLength(i64),
    /// What a text has to look like.
    Pattern(Pattern),
    /// A named format.
    Format(Box<str>),
    /// What a number is a multiple of.
    MultipleOf(f64),
    /// The least number, and whether that itself is too small.
    Minimum(f64, bool),
    /// The largest number, and whether that itself is too large.
    Maximum(f64, bool),
    /// Elements of a list, at least.
    MinItems(i64),
    /// Elements of a list, at most.
    MaxItems(i64),
    /// The values there are.
    Enum(Box<[Value]>),
    /// Entries of an object, at least.
    MinProperties(i64),
    /// Entries of an object, at most.
    MaxProperties(i64),
    /// Entries that have to be there.
    Required(Box<[Box<str>]>),
    /// The keys of a list's elements (`x-kubernetes-list-map-keys`).
    Keys(Box<[Box<str>]>),
}

impl Node {
    /// The schema of whole objects, from its JSON as the API has it.
    pub fn root(schema: &Value) -> Node {
        Node { embedded: true, holds_embedded: true, ..parse::node(schema) }
    }

    /// A schema, from its JSON as the API has it.
    pub fn of(schema: &Value) -> Node {
        parse::node(schema)
    }

    /// The property of this name.
    pub fn property(&self, name: &str) -> Option<&Node> {
        let at = self.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// The schema of entries that no property names, when there is one.
    pub fn additional_schema(&self) -> Option<&Node> {
        match &self.additional {
            Additional::Schema(node) => Some(node),
            _ => None,
        }
    }

    /// The schema of an entry.
    pub fn entry(&self, name: &str) -> Option<&Node> {
        self.property(name).or_else(|| self.additional_schema())
    }

    /// The keys of a list's elements.
    pub fn keys(&self) -> &[Box<str>] {
        self.rules
            .iter()
            .find_map(|rule| if let Rule::Keys(keys) = rule { Some(&**keys) } else { None })
            .unwrap_or_default()
    }

    /// The schema at a path of names such as `.spec.color`.
    pub fn at(&self, path: &str) -> Option<&Node> {
        path.trim_start_matches('.').split('.').try_fold(self, |node, name| node.entry(name))
    }
}

/// Names that every whole object has, whatever its schema says.
pub(crate) fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}
