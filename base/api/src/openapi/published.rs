//! Schemas of definitions as they are published: whole objects get their metadata, and the older dialect loses what it
//! cannot say.

use serde_json::{Map, Value, json};

use super::schemas::Dialect;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schema of whole objects.
pub(super) fn whole(schema: &mut Value, dialect: Dialect) {
    node(schema, dialect);
    let Value::Object(map) = schema else { return };
    // What keeps everything has nothing to say in the older dialect, and has its metadata all the same.
    map.entry("type").or_insert_with(|| "object".into());
    with_metadata(map, dialect);
}

/// The parts that every whole object has.
fn with_metadata(schema: &mut Map<String, Value>, dialect: Dialect) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    for name in ["apiVersion", "kind"] {
        properties[name] = json!({"type": "string"});
    }
    properties["metadata"] = dialect.alone(OBJECT_META);
}

fn node(schema: &mut Value, dialect: Dialect) {
    let Value::Object(map) = schema else { return };
    let keeps_all = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let mixed = map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    if dialect == Dialect::V2 {
        for name in ["allOf", "anyOf", "oneOf", "not", "default"] {
            map.remove(name);
        }
        if map.get("nullable") == Some(&Value::Bool(true)) {
            for name in ["type", "nullable", "items", "properties"] {
                map.remove(name);
            }
        }
        if keeps_all {
            for name in ["items", "properties", "type"] {
                map.remove(name);
            }
        }
    } else if mixed && !map.contains_key("anyOf") && !map.contains_key("allOf") {
        map.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(|schema| node(schema, dialect));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(schema) = map.get_mut(name) {
            node(schema, dialect);
        }
    }
    let embedded = map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    if embedded && !(keeps_all && dialect == Dialect::V2) {
        with_metadata(map, dialect);
    }
}
