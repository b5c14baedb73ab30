//! The OpenAPI v2 document in the protobuf form that kubectl and client-go ask for (gnostic's openapi.v2 messages).
//!
//! Field numbers are wire facts of `OpenAPIv2.proto`; only what our own document contains is written.

use serde_json::{Map, Value};

use crate::protobuf::wire::{bytes, number};

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(mut self, field: u32, value: &Value) -> Self {
        if let Some(text) = value.as_str() {
            bytes(field, text.as_bytes(), &mut self.0);
        }
        self
    }

    fn texts(mut self, field: u32, value: &Value) -> Self {
        for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
            bytes(field, text.as_bytes(), &mut self.0);
        }
        self
    }

    fn flag(mut self, field: u32, value: &Value) -> Self {
        if value == &Value::Bool(true) {
            number(field, 1, &mut self.0);
        }
        self
    }

    fn nested(mut self, field: u32, inner: Message) -> Self {
        bytes(field, &inner.0, &mut self.0);
        self
    }

    /// A message when there is a value for it.
    fn maybe(self, field: u32, value: &Value, write: impl Fn(&Value) -> Message) -> Self {
        if value.is_null() { self } else { self.nested(field, write(value)) }
    }

    /// One message per entry, each with its name first.
    fn named(self, field: u32, map: &Value, write: impl Fn(&Value) -> Message) -> Self {
        map.as_object().into_iter().flatten().fold(self, |out, (name, value)| {
            let name = Message::default().text(1, &Value::String(name.clone()));
            out.nested(field, name.nested(2, write(value)))
        })
    }

    /// The `x-` members.
    fn extensions(self, field: u32, value: &Value) -> Self {
        let own: Map<String, Value> = value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| name.starts_with("x-"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        self.named(field, &Value::Object(own), any)
    }
}

/// Any value: its text, JSON being YAML.
fn any(value: &Value) -> Message {
    Message::default().text(2, &Value::String(value.to_string()))
}

/// The whole document.
pub(super) fn document(v2: &Value) -> Vec<u8> {
    let info = Message::default().text(1, &v2["info"]["title"]).text(2, &v2["info"]["version"]);
    Message::default()
        .text(1, &v2["swagger"])
        .nested(2, info)
        .nested(8, Message::default().named(2, &v2["paths"], path))
        .nested(9, Message::default().named(1, &v2["definitions"], schema))
        .0
}

fn schema(value: &Value) -> Message {
    let one_text = |text: &Value| Message::default().text(1, text);
    let out = Message::default()
        .text(1, &value["$ref"])
        .text(2, &value["format"])
        .text(4, &value["description"])
        .maybe(5, &value["default"], any)
        .texts(19, &value["required"])
        .maybe(21, &value["additionalProperties"], |inner| Message::default().nested(1, schema(inner)))
        .maybe(22, &value["type"], one_text)
        .maybe(23, &value["items"], |inner| Message::default().nested(1, schema(inner)));
    let all_of = value["allOf"].as_array().into_iter().flatten();
    all_of
        .fold(out, |out, part| out.nested(24, schema(part)))
        .maybe(25, &value["properties"], |map| Message::default().named(1, map, schema))
        .extensions(31, value)
}

fn path(value: &Value) -> Message {
    let methods = [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)];
    methods
        .iter()
        .fold(Message::default(), |out, (method, field)| out.maybe(*field, &value[*method], operation))
}

fn operation(value: &Value) -> Message {
    let out = Message::default().texts(7, &value["consumes"]);
    let parameters = value["parameters"].as_array().into_iter().flatten();
    parameters
        .fold(out, |out, given| out.nested(8, Message::default().nested(1, parameter(given))))
        .nested(9, Message::default().named(1, &value["responses"], response))
        .extensions(13, value)
}

fn parameter(value: &Value) -> Message {
    if value["in"] == "body" {
        let body = Message::default()
            .text(2, &value["name"])
            .text(3, &value["in"])
            .flag(4, &value["required"])
            .maybe(5, &value["schema"], schema);
        return Message::default().nested(1, body);
    }
    let query = Message::default()
        .flag(1, &value["required"])
        .text(2, &value["in"])
        .text(4, &value["name"])
        .text(6, &value["type"])
        .flag(20, &value["uniqueItems"]);
    Message::default().nested(2, Message::default().nested(3, query))
}

fn response(value: &Value) -> Message {
    let inner = Message::default()
        .text(1, &value["description"])
        .maybe(2, &value["schema"], |it| Message::default().nested(1, schema(it)));
    Message::default().nested(1, inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::wire::{Payload, Reader};
    use serde_json::json;

    /// The length-delimited fields with this number.
    fn fields(message: &[u8], wanted: u32) -> Vec<&[u8]> {
        let mut reader = Reader::new(message);
        let mut found = Vec::new();
        while let Some((number, payload)) = reader.field().unwrap() {
            if let (true, Payload::Bytes(inner)) = (number == wanted, payload) {
                found.push(inner);
            }
        }
        found
    }

    #[test]
    fn definitions_carry_types_references_and_extensions() {
        let bytes = document(&json!({
            "swagger": "2.0", "info": {"title": "t", "version": "v"}, "paths": {},
            "definitions": {"a.B": {
                "type": "object", "required": ["list"],
                "properties": {"list": {"type": "array", "items": {"$ref": "#/definitions/a.C"}}},
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "B"}],
            }},
        }));
        assert_eq!(fields(&bytes, 1), [b"2.0"]);
        let definition = fields(fields(&bytes, 9)[0], 1)[0];
        assert_eq!(fields(definition, 1), [b"a.B"]);
        let schema = fields(definition, 2)[0];
        assert_eq!(fields(schema, 19), [b"list"]);
        assert_eq!(fields(fields(schema, 22)[0], 1), [b"object"]);
        let property = fields(fields(schema, 25)[0], 1)[0];
        let items = fields(fields(fields(property, 2)[0], 23)[0], 1)[0];
        assert_eq!(fields(items, 1), [b"#/definitions/a.C"]);
        let extension = fields(schema, 31)[0];
        assert_eq!(fields(extension, 1), [b"x-kubernetes-group-version-kind"]);
        let yaml = fields(fields(extension, 2)[0], 2)[0];
        assert_eq!(
            serde_json::from_slice::<Value>(yaml).unwrap(),
            json!([{"group": "", "version": "v1", "kind": "B"}])
        );
    }
}
