//! Component schemas: one per message that a kind reaches.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::published;
use crate::schema::{Cardinality, Field, ListType, Message, Type};
use crate::{Kind, Registry};

/// Which OpenAPI version is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Dialect {
    pub(super) fn reference(self, name: &str) -> Value {
        let prefix = if self == Dialect::V2 { "#/definitions/" } else { "#/components/schemas/" };
        json!({"$ref": format!("{prefix}{name}")})
    }

    /// A reference that may get siblings; in OpenAPI 3 it must be wrapped for that.
    pub(super) fn alone(self, name: &str) -> Value {
        let reference = self.reference(name);
        if self == Dialect::V3 { json!({"allOf": [reference]}) } else { reference }
    }
}

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

pub(super) struct Schemas {
    dialect: Dialect,
    out: Map<String, Value>,
    pending: Vec<&'static Message>,
    seen: BTreeSet<&'static str>,
}

impl Schemas {
    pub(super) fn new(dialect: Dialect) -> Schemas {
        let mut schemas = Schemas { dialect, out: Map::new(), pending: Vec::new(), seen: BTreeSet::new() };
        for name in ["Status", "DeleteOptions"] {
            schemas.reach(builtin(&format!("{META}{name}")));
        }
        schemas
    }

    pub(super) fn add_kind(&mut self, kind: &Kind) {
        match kind.strategy.published() {
            Some(schema) => self.add_published(kind, schema),
            None => {
                self.reach(builtin(&kind.schema.name));
                self.reach(builtin(&list_of(kind)));
            }
        }
        for sub in &kind.subresources {
            if let Some(schema) = sub_schema(&sub.group, &sub.version, &sub.kind) {
                self.reach(Some(schema));
            }
        }
    }

    /// The schema of a kind that was defined at run time, as its definition has it, and that of its list.
    fn add_published(&mut self, kind: &Kind, schema: Value) {
        for name in ["ObjectMeta", "ListMeta"] {
            self.reach(builtin(&format!("{META}{name}")));
        }
        let mut schema = schema;
        published::whole(&mut schema, self.dialect);
        if !kind.selectable_fields.is_empty() {
            let fields = kind.selectable_fields.iter().map(|field| json!({"fieldPath": field}));
            schema["x-kubernetes-selectable-fields"] = fields.collect();
        }
        self.out.insert(kind.schema.name.to_string(), schema);
        let items = self.dialect.reference(&kind.schema.name);
        let list = json!({
            "type": "object", "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "items": {"type": "array", "items": items},
                "metadata": self.dialect.alone(&format!("{META}ListMeta")),
            },
        });
        self.out.insert(list_of(kind), list);
    }

    fn reach(&mut self, schema: Option<&'static Message>) {
        if let Some(schema) = schema
            && self.seen.insert(&schema.name)
        {
            self.pending.push(schema);
        }
    }

    pub(super) fn finish(mut self, kinds: &Registry) -> Value {
        while let Some(schema) = self.pending.pop() {
            let written = self.message(schema);
            self.out.insert(schema.name.to_string(), written);
        }
        self.specials();
        for kind in kinds.kinds() {
            self.tag(&kind.schema.name, &kind.group, &kind.version, &kind.kind);
            self.tag(&list_of(kind), &kind.group, &kind.version, &kind.list_kind);
            for sub in &kind.subresources {
                if let Some(schema) = sub_schema(&sub.group, &sub.version, &sub.kind) {
                    self.tag(&schema.name, &sub.group, &sub.version, &sub.kind);
                }
            }
        }
        for kind in ["Status", "DeleteOptions"] {
            self.tag(&format!("{META}{kind}"), "", "v1", kind);
        }
        Value::Object(self.out)
    }

    fn tag(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        if let Some(Value::Object(schema)) = self.out.get_mut(name) {
            let entry = json!({"group": group, "kind": kind, "version": version});
            let list = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
            if let Value::Array(items) = list
                && !items.contains(&entry)
            {
                items.push(entry);
            }
        }
    }

    fn specials(&mut self) {
        let v3 = self.dialect == Dialect::V3;
        let quantity = if v3 {
            json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        } else {
            json!({"type": "string"})
        };
        let port = if v3 {
            json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"})
        } else {
            json!({"type": "string", "format": "int-or-string"})
        };
        let time = json!({"type": "string", "format": "date-time"});
        for (name, schema) in [
            (QUANTITY.to_owned(), quantity),
            (INT_OR_STRING.to_owned(), port),
            (RAW.to_owned(), json!({"type": "object"})),
            (format!("{META}FieldsV1"), json!({"type": "object"})),
            (format!("{META}Duration"), json!({"type": "string"})),
            (format!("{META}Time"), time.clone()),
            (format!("{META}MicroTime"), time),
        ] {
            self.out.insert(name, schema);
        }
    }

    fn message(&mut self, schema: &Message) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in schema.fields.iter() {
            properties.insert(field.name.to_string(), self.field(field));
            if field.is_required() {
                required.push(field.name);
            }
        }
        let mut out = json!({"type": "object"});
        if !properties.is_empty() {
            out["properties"] = Value::Object(properties);
        }
        if !required.is_empty() {
            out["required"] = json!(required);
        }
        if schema.atomic {
            out["x-kubernetes-map-type"] = json!("atomic");
        }
        out
    }

    fn field(&mut self, field: &Field) -> Value {
        let element = self.value(&field.ty, field.cardinality == Cardinality::One);
        let mut out = match field.cardinality {
            Cardinality::One => element,
            Cardinality::List => json!({"type": "array", "items": element}),
            Cardinality::Map => json!({"type": "object", "additionalProperties": element}),
        };
        if field.cardinality == Cardinality::List && field.declares_list_type() {
            out["x-kubernetes-list-type"] = json!(match field.list_type() {
                ListType::Atomic => "atomic",
                ListType::Set => "set",
                ListType::Map => "map",
            });
            if !field.keys.is_empty() {
                out["x-kubernetes-list-map-keys"] = json!(field.keys);
            }
        }
        if field.is_atomic() {
            out["x-kubernetes-map-type"] = json!("atomic");
        }
        if !field.merge_key.is_empty() {
            out["x-kubernetes-patch-merge-key"] = json!(field.merge_key);
        }
        let strategy = match (field.patch_merges(), field.patch_retains_keys()) {
            (true, true) => "merge,retainKeys",
            (true, false) => "merge",
            (false, true) => "retainKeys",
            _ => "",
        };
        if !strategy.is_empty() {
            out["x-kubernetes-patch-strategy"] = json!(strategy);
        }
        if !field.default.is_empty()
            && let Ok(default) = serde_json::from_str::<Value>(field.default)
        {
            out["default"] = default;
        }
        out
    }

    /// A value's schema; in OpenAPI 3 a reference with siblings must be wrapped.
    fn value(&mut self, ty: &Type, alone: bool) -> Value {
        let name = match ty {
            Type::Str => return json!({"type": "string"}),
            Type::Bool => return json!({"type": "boolean"}),
            Type::I32 => return json!({"type": "integer", "format": "int32"}),
            Type::I64 => return json!({"type": "integer", "format": "int64"}),
            Type::F64 => return json!({"type": "number", "format": "double"}),
            Type::Bytes => return json!({"type": "string", "format": "byte"}),
            Type::Strs => return json!({"type": "array", "items": {"type": "string"}}),
            Type::Json | Type::SchemaOr(..) => return json!({}),
            Type::Quantity => QUANTITY.to_owned(),
            Type::IntOrString => INT_OR_STRING.to_owned(),
            Type::Raw => RAW.to_owned(),
            Type::Time => format!("{META}Time"),
            Type::MicroTime => format!("{META}MicroTime"),
            Type::Duration => format!("{META}Duration"),
            Type::Fields => format!("{META}FieldsV1"),
            Type::Message(index) => {
                let schema = Message::at(*index);
                self.reach(Some(schema));
                schema.name.to_string()
            }
        };
        if alone { self.dialect.alone(&name) } else { self.dialect.reference(&name) }
    }
}

/// Name of the schema of a kind's list.
pub(super) fn list_of(kind: &Kind) -> String {
    format!("{}List", kind.schema.name)
}

fn builtin(name: &str) -> Option<&'static Message> {
    Message::named(name)
}

/// Message of a subresource's body.
fn sub_schema(group: &str, version: &str, kind: &str) -> Option<&'static Message> {
    let package = match group {
        "" => "core".to_owned(),
        g => g.split('.').next().unwrap_or(g).to_owned(),
    };
    builtin(&format!("io.k8s.api.{package}.{version}.{kind}"))
}
