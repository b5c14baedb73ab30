//! From the JSON of a schema to the tree.

use serde_json::Value;

use super::{Additional, Kind, ListType, Node, Pattern, Rule, formats};

/// A schema that has the API's shape; what is not structural in it is left out.
pub(super) fn node(schema: &Value) -> Node {
    let flag = |name: &str| schema[name].as_bool() == Some(true);
    let kind = match schema["type"].as_str().unwrap_or_default() {
        "array" => Kind::Array,
        "boolean" => Kind::Boolean,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "object" => Kind::Object,
        "string" => Kind::String,
        _ => Kind::Any,
    };
    let list_type = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map,
        _ => ListType::Atomic,
    };
    let mut properties: Vec<(Box<str>, Node)> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, schema)| (name.as_str().into(), node(schema)))
        .collect();
    properties.sort_by(|one, other| one.0.cmp(&other.0));
    let items = schema.get("items").filter(|items| items.is_object()).map(|items| Box::new(node(items)));
    let additional = match schema.get("additionalProperties") {
        None => Additional::Unsaid,
        Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
        Some(schema) => Additional::Schema(Box::new(node(schema))),
    };
    let embedded = flag("x-kubernetes-embedded-resource");
    let below = properties.iter().map(|(_, node)| node).chain(items.as_deref());
    let holds_embedded = embedded
        || below
            .chain(if let Additional::Schema(node) = &additional { Some(&**node) } else { None })
            .any(|node| node.holds_embedded);
    Node {
        kind,
        nullable: flag("nullable"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded,
        holds_embedded,
        atomic: schema["x-kubernetes-map-type"] == "atomic",
        list_type,
        properties: properties.into(),
        items,
        additional,
        default: schema.get("default").filter(|value| !value.is_null()).map(|value| Box::new(value.clone())),
        rules: rules(schema, kind).into(),
    }
}

/// The rules, in the order in which they are asked.
fn rules(schema: &Value, kind: Kind) -> Vec<Rule> {
    let number = |name: &str| schema[name].as_i64();
    let float = |name: &str| schema[name].as_f64();
    let flag = |name: &str| schema[name].as_bool() == Some(true);
    let nodes = |name: &str| -> Option<Box<[Node]>> {
        let list = schema[name].as_array().filter(|list| !list.is_empty())?;
        Some(list.iter().map(node).collect())
    };
    let names = |name: &str| -> Option<Box<[Box<str>]>> {
        let list = schema[name].as_array().filter(|list| !list.is_empty())?;
        Some(list.iter().filter_map(Value::as_str).map(Into::into).collect())
    };
    let text = |name: &str| schema[name].as_str().filter(|text| !text.is_empty());
    let format = text("format").filter(|format| formats::is_recognized(kind.as_str(), format));
    let all = [
        nodes("anyOf").map(Rule::AnyOf),
        nodes("oneOf").map(Rule::OneOf),
        nodes("allOf").map(Rule::AllOf),
        schema.get("not").map(|schema| Rule::Not(Box::new(node(schema)))),
        number("maxLength").map(Rule::MaxLength),
        number("minLength").map(Rule::MinLength),
        text("pattern").map(|text| Rule::Pattern(Pattern::new(text))),
        format.map(|format| Rule::Format(format.into())),
        float("multipleOf").map(Rule::MultipleOf),
        float("minimum").map(|least| Rule::Minimum(least, flag("exclusiveMinimum"))),
        float("maximum").map(|most| Rule::Maximum(most, flag("exclusiveMaximum"))),
        number("minItems").map(Rule::MinItems),
        number("maxItems").map(Rule::MaxItems),
        schema["enum"].as_array().filter(|list| !list.is_empty()).map(|list| Rule::Enum(list.clone().into())),
        number("minProperties").map(Rule::MinProperties),
        number("maxProperties").map(Rule::MaxProperties),
        names("required").map(Rule::Required),
        names("x-kubernetes-list-map-keys").map(Rule::Keys),
    ];
    all.into_iter().flatten().collect()
}
