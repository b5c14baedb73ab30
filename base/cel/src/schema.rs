//! The declared shape of an object: which fields expressions see, of which types, and how large they can be.
//!
//! Made once from an OpenAPI schema and shared; values are looked at through it without being copied. How large something may
//! be decides the estimated cost: what has no bound of its own is bounded by the largest request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::kind::Type;
use crate::limits::{
    DATE_BYTES, LEAST_BOOL_BYTES, LEAST_DATE_TIME_BYTES, LEAST_DURATION_BYTES, LEAST_NUMBER_BYTES,
    LEAST_STRING_BYTES, LONGEST_DATE_TIME, LONGEST_DURATION, REQUEST_BYTES,
};
use crate::names;

/// How deep a schema is followed.
const DEEPEST: usize = 200;

/// A declared shape.
#[derive(Debug)]
pub struct Schema {
    name: String,
    shape: Shape,
    /// How many characters, elements or entries a value has at most; 0 for what has no size.
    most: u64,
    /// The fewest bytes that a value takes in JSON.
    least_bytes: u64,
    nullable: bool,
    /// Whether expressions can see it.
    exposed: bool,
}

/// What kind of value a schema describes.
#[derive(Debug)]
pub enum Shape {
    /// Whatever it is; what is unknown to the schema is one, unseen by expressions.
    Dyn,
    /// DRA's attributes.
    Any,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A number.
    Double,
    /// Text.
    String,
    /// Text that is base64.
    Bytes,
    /// Text that is a duration.
    Duration,
    /// Text that is a date.
    Date,
    /// Text that is a date with a time.
    DateTime,
    /// A quantity of DRA's capacities.
    Quantity,
    /// A list.
    List {
        /// Of what.
        items: Arc<Schema>,
        /// What makes two of them equal.
        kind: ListKind,
    },
    /// A map from text.
    Map {
        /// The keys.
        keys: Arc<Schema>,
        /// To what.
        values: Arc<Schema>,
    },
    /// An object with named fields.
    Object {
        /// By the name that expressions use.
        fields: BTreeMap<String, Arc<Schema>>,
    },
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// Order counts.
    Atomic,
    /// Order does not count; adding is a union.
    Set,
    /// Elements have keys; adding replaces those with the same keys.
    Map(Vec<String>),
}

impl Schema {
    /// A shape with the size that its values have at most.
    pub fn new(name: impl Into<String>, shape: Shape, most: u64) -> Schema {
        let least_bytes = match &shape {
            Shape::Dyn | Shape::Any | Shape::IntOrString | Shape::Int | Shape::Double => LEAST_NUMBER_BYTES,
            Shape::Bool => LEAST_BOOL_BYTES,
            Shape::Duration => LEAST_DURATION_BYTES,
            Shape::Date => DATE_BYTES,
            Shape::DateTime => LEAST_DATE_TIME_BYTES,
            Shape::Quantity => 8,
            Shape::String | Shape::Bytes => LEAST_STRING_BYTES,
            Shape::List { .. } | Shape::Map { .. } | Shape::Object { .. } => 2,
        };
        Schema { name: name.into(), shape, most, least_bytes, nullable: false, exposed: true }
    }

    /// The shape of an OpenAPI schema (version 3, structural, as CustomResourceDefinitions have them); nothing if
    /// expressions cannot see such values.
    ///
    /// `name` is what messages call the object; `root` says that it is a resource, which has `apiVersion`, `kind` and
    /// `metadata` in any case.
    pub fn from_openapi(schema: &Json, name: &str, root: bool) -> Option<Arc<Schema>> {
        let schema = Reader { depth: 0 }.read(schema, name, root);
        schema.exposed.then(|| Arc::new(schema))
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What kind of value it describes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How many characters, elements or entries a value has at most; 0 for what has no size.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Whether `null` is a value of it.
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// The field that expressions call `name`.
    pub fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        match &self.shape {
            Shape::Object { fields } => {
                // A word of the language may also stand there as it is.
                let word = || names::is_reserved(name).then(|| fields.get(&format!("__{name}__"))).flatten();
                fields.get(name).or_else(word)
            }
            _ => None,
        }
    }

    /// The type that expressions see.
    pub fn kind(self: &Arc<Self>) -> Type {
        match &self.shape {
            Shape::Dyn | Shape::IntOrString => Type::Dyn,
            Shape::Any => Type::Any,
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Duration => Type::Duration,
            Shape::Date | Shape::DateTime => Type::Timestamp,
            Shape::Quantity => Type::Library("kubernetes.Quantity"),
            Shape::List { items, .. } => Type::list(items.kind()),
            Shape::Map { keys, values } => Type::map(keys.kind(), values.kind()),
            Shape::Object { .. } => Type::Object(Arc::clone(self)),
        }
    }

    /// How often a rule at this schema's elements can run, when one at the schema itself runs `times`.
    pub fn elements(&self, times: u64) -> u64 {
        match &self.shape {
            Shape::List { .. } | Shape::Map { .. } => times.saturating_mul(self.most),
            _ => times,
        }
    }
}

struct Reader {
    depth: usize,
}

impl Reader {
    fn read(&mut self, schema: &Json, name: &str, root: bool) -> Schema {
        let flag = |key: &str| schema.get(key).and_then(Json::as_bool) == Some(true);
        let text = |key: &str| schema.get(key).and_then(Json::as_str).unwrap_or_default();
        self.depth += 1;
        let mut made = if self.depth > DEEPEST {
            hidden()
        } else if flag("x-kubernetes-int-or-string") {
            Schema::new("dyn", Shape::IntOrString, length(schema).unwrap_or(REQUEST_BYTES - 2))
        } else {
            match text("type") {
                "array" => self.list(schema, name),
                "object" => {
                    let root = root || flag("x-kubernetes-embedded-resource");
                    self.map(schema, name, root).unwrap_or_else(|| self.object(schema, name, root))
                }
                "string" => string(schema, text("format")),
                "boolean" => Schema::new("bool", Shape::Bool, 0),
                "number" => Schema::new("double", Shape::Double, 0),
                "integer" => Schema::new("int", Shape::Int, 0),
                _ => hidden(),
            }
        };
        self.depth -= 1;
        made.nullable = flag("nullable");
        made
    }

    fn list(&mut self, schema: &Json, name: &str) -> Schema {
        let Some(items) = schema.get("items") else { return hidden() };
        let items = self.read(items, &format!("{name}.@idx"), false);
        let most = bound(schema, "maxItems").unwrap_or((REQUEST_BYTES - 2) / (items.least_bytes + 1));
        let kind = match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
            Some("set") => ListKind::Set,
            Some("map") => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
                let keys = keys.into_iter().flatten().filter_map(Json::as_str);
                ListKind::Map(keys.map(str::to_owned).collect())
            }
            _ => ListKind::Atomic,
        };
        let exposed = items.exposed;
        let shape = Shape::List { items: Arc::new(items), kind };
        Schema { exposed, ..Schema::new("list", shape, most) }
    }

    fn map(&mut self, schema: &Json, name: &str, root: bool) -> Option<Schema> {
        let values = schema.get("additionalProperties").filter(|values| values.is_object() && !root)?;
        let values = self.read(values, &format!("{name}.@elem"), false);
        let most = bound(schema, "maxProperties").unwrap_or((REQUEST_BYTES - 2) / (values.least_bytes + 6));
        let exposed = values.exposed;
        let keys = Arc::new(Schema::new("string", Shape::String, 0));
        let shape = Shape::Map { keys, values: Arc::new(values) };
        Some(Schema { exposed, ..Schema::new("map", shape, most) })
    }

    fn object(&mut self, schema: &Json, name: &str, root: bool) -> Schema {
        let required = schema.get("required").and_then(Json::as_array);
        let is_required =
            |key: &str| required.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(key)));
        let mut fields = BTreeMap::new();
        let mut least_bytes = 2;
        let none = serde_json::Map::new();
        let properties = schema.get("properties").and_then(Json::as_object).unwrap_or(&none);
        let meta = root.then(|| with_meta(properties)).flatten();
        for (key, property) in meta.as_ref().unwrap_or(properties) {
            let spelled = names::escape(key);
            let field = self.read(property, &format!("{name}.{}", spelled.as_deref().unwrap_or(key)), false);
            if field.exposed && is_required(key) && property.get("default").is_none() {
                least_bytes += key.len() as u64 + field.least_bytes + 4;
            }
            if let Some(spelled) = spelled {
                fields.insert(spelled.into_owned(), Arc::new(field));
            }
        }
        Schema { least_bytes, ..Schema::new(name, Shape::Object { fields }, 0) }
    }
}

impl Schema {
    /// Whether expressions can see it.
    pub(crate) fn is_exposed(&self) -> bool {
        self.exposed
    }
}

/// What no expression sees.
fn hidden() -> Schema {
    Schema { exposed: false, ..Schema::new("unknown", Shape::Dyn, 0) }
}

fn bound(schema: &Json, key: &str) -> Option<u64> {
    let value = schema.get(key)?;
    value.as_u64().or_else(|| value.as_i64().map(|_| 0))
}

/// Bytes that a text may have, by its length in characters.
fn length(schema: &Json) -> Option<u64> {
    bound(schema, "maxLength").map(|characters| characters.saturating_mul(4))
}

fn string(schema: &Json, format: &str) -> Schema {
    match format {
        "byte" => Schema::new("bytes", Shape::Bytes, bound(schema, "maxLength").unwrap_or(REQUEST_BYTES - 2)),
        "duration" => Schema::new("duration", Shape::Duration, LONGEST_DURATION),
        "date" => Schema::new("timestamp", Shape::Date, DATE_BYTES),
        "date-time" => Schema::new("timestamp", Shape::DateTime, LONGEST_DATE_TIME),
        _ => {
            let values = schema.get("enum").and_then(Json::as_array).filter(|values| !values.is_empty());
            let longest = values.map(|values| {
                let lengths = values.iter().filter_map(Json::as_str).map(|value| value.len() as u64);
                lengths.max().unwrap_or(0)
            });
            Schema::new("string", Shape::String, length(schema).or(longest).unwrap_or(REQUEST_BYTES - 2))
        }
    }
}

/// The properties of a resource, with those that every resource has; nothing if they are all there.
fn with_meta(properties: &serde_json::Map<String, Json>) -> Option<serde_json::Map<String, Json>> {
    let is = |schema: Option<&Json>, kind: &str| {
        schema.and_then(|schema| schema.get("type")).and_then(Json::as_str) == Some(kind)
    };
    let meta = properties.get("metadata");
    let inner = meta.and_then(|meta| meta.get("properties"));
    if is(properties.get("kind"), "string")
        && is(properties.get("apiVersion"), "string")
        && is(meta, "object")
        && is(inner.and_then(|inner| inner.get("name")), "string")
        && is(inner.and_then(|inner| inner.get("generateName")), "string")
    {
        return None;
    }
    let text = serde_json::json!({"type": "string"});
    let mut all = properties.clone();
    all.insert("kind".to_owned(), text.clone());
    all.insert("apiVersion".to_owned(), text.clone());
    let meta = serde_json::json!({"type": "object", "properties": {"name": text, "generateName": text}});
    all.insert("metadata".to_owned(), meta);
    Some(all)
}
