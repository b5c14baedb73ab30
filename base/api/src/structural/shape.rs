//! Bringing an object into the shape of its schema: metadata, unknown fields, nulls, defaults.

use serde_json::{Map, Value};

use super::{Additional, Node, is_meta};
use crate::path::Path;
use crate::schema::Message;
use crate::strict::{Shaping, TypeError};

type Checked = Result<(), TypeError>;

impl Node {
    /// Brings a whole object into shape; what was dropped is told in `shaping`, in upstream's order.
    pub(crate) fn conform(&self, object: &mut Map<String, Value>, shaping: &mut Shaping) -> Checked {
        let root = Path::root("");
        own_metadata(object, &root, shaping)?;
        let start = shaping.told();
        self.prune(object, &root, shaping);
        shaping.sort_from(start);
        self.drop_nulls(object);
        let start = shaping.told();
        self.metadata_inside(object, &root, shaping)?;
        shaping.sort_from(start);
        Ok(())
    }

    /// Metadata of whole objects inside of this one takes the shape that all metadata has.
    fn metadata_inside(
        &self,
        object: &mut Map<String, Value>,
        path: &Path<'_>,
        shaping: &mut Shaping,
    ) -> Checked {
        for (name, value) in object.iter_mut() {
            if let Some(node) = self.entry(name).filter(|node| node.holds_embedded) {
                node.metadata_below(value, &path.child(name), shaping)?;
            }
        }
        Ok(())
    }

    fn metadata_below(&self, value: &mut Value, path: &Path<'_>, shaping: &mut Shaping) -> Checked {
        match (value, &self.items) {
            (Value::Object(object), _) => {
                if self.embedded {
                    own_metadata(object, path, shaping)?;
                }
                self.metadata_inside(object, path, shaping)
            }
            (Value::Array(list), Some(items)) => {
                let mut list = list.iter_mut().enumerate();
                list.try_for_each(|(at, item)| items.metadata_below(item, &path.index(at), shaping))
            }
            _ => Ok(()),
        }
    }

    fn prune(&self, object: &mut Map<String, Value>, path: &Path<'_>, shaping: &mut Shaping) {
        let mut gone: Vec<String> = Vec::new();
        for (name, value) in object.iter_mut() {
            if self.embedded && is_meta(name) {
                continue;
            }
            let child = path.child(name);
            match (self.property(name), &self.additional) {
                (Some(node), _) => node.prune_value(value, &child, shaping),
                (None, Additional::Schema(node)) => node.prune_value(value, &child, shaping),
                (None, _) if self.preserves_unknown => {}
                // Entries of any kind are kept, and nothing that is in them.
                (None, Additional::Allowed(_)) => hollow(value, &child, shaping),
                (None, Additional::Unsaid) => {
                    shaping.unknown(&child);
                    gone.push(name.clone());
                }
            }
        }
        for name in &gone {
            object.remove(name);
        }
    }

    fn prune_value(&self, value: &mut Value, path: &Path<'_>, shaping: &mut Shaping) {
        match (value, &self.items) {
            (Value::Object(object), _) => self.prune(object, path, shaping),
            (Value::Array(list), Some(items)) => {
                for (at, item) in list.iter_mut().enumerate() {
                    items.prune_value(item, &path.index(at), shaping);
                }
            }
            (value @ Value::Array(_), None) if !self.preserves_unknown => hollow(value, path, shaping),
            _ => {}
        }
    }

    /// A null where there cannot be one is as good as nothing.
    fn drop_nulls(&self, object: &mut Map<String, Value>) {
        object.retain(|name, value| {
            let Some(node) = self.entry(name) else { return true };
            node.drop_nulls_below(value);
            !value.is_null() || node.nullable
        });
    }

    fn drop_nulls_below(&self, value: &mut Value) {
        match (value, &self.items) {
            (Value::Object(object), _) => self.drop_nulls(object),
            (Value::Array(list), Some(items)) => {
                list.iter_mut().for_each(|item| items.drop_nulls_below(item))
            }
            _ => {}
        }
    }

    /// Fills in what is absent, and then in all that is there.
    pub(crate) fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(object) => {
                for (name, node) in &self.properties {
                    let Some(default) = &node.default else { continue };
                    let given = object.get(&**name).is_some_and(|value| !value.is_null() || node.nullable);
                    if !given {
                        object.insert(name.to_string(), Value::clone(default));
                    }
                }
                for (name, value) in object.iter_mut() {
                    let Some(node) = self.entry(name) else { continue };
                    node.fill_null(value);
                    node.fill(value);
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for item in list {
                    items.fill_null(item);
                    items.fill(item);
                }
            }
            _ => {}
        }
    }

    fn fill_null(&self, value: &mut Value) {
        if let (Value::Null, false, Some(default)) = (&*value, self.nullable, &self.default) {
            *value = Value::clone(default);
        }
    }

    /// Whether a default keeps all that is in it when it is pruned.
    pub(crate) fn keeps(&self, value: &Value) -> bool {
        let mut copy = value.clone();
        let mut shaping = Shaping::default();
        self.prune_value(&mut copy, &Path::root(""), &mut shaping);
        copy == *value
    }
}

/// The metadata of a whole object takes the shape that all metadata has.
fn own_metadata(object: &mut Map<String, Value>, path: &Path<'_>, shaping: &mut Shaping) -> Checked {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = object.get(name).filter(|value| !value.is_string()) {
            return Err(TypeError(format!("{}: Invalid value: {value}: must be a string", path.child(name))));
        }
    }
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return Ok(()) };
    let here = path.child("metadata");
    shaping.message(Message::object_meta(), metadata, &here).map_err(|error| {
        // Go decodes it on its own, and names no place outside of it.
        TypeError(error.0.replace(&format!("ObjectMeta.{}.", here.names()), "ObjectMeta."))
    })?;
    if metadata.get("creationTimestamp").is_some_and(Value::is_null) {
        metadata.remove("creationTimestamp");
    }
    Ok(())
}

/// Takes everything out of a value that no schema names.
fn hollow(value: &mut Value, path: &Path<'_>, shaping: &mut Shaping) {
    match value {
        Value::Object(object) => {
            object.keys().for_each(|name| shaping.unknown(&path.child(name)));
            object.clear();
        }
        Value::Array(list) => {
            for (at, item) in list.iter_mut().enumerate() {
                hollow(item, &path.index(at), shaping);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_take_the_shape_of_their_schema() {
        let schema = Node::root(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 3},
                "color": {"type": "string", "nullable": true},
                "rows": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
                "any": {"type": "object", "additionalProperties": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                         "properties": {"known": {"type": "object"}}},
                "inner": {"type": "object", "x-kubernetes-embedded-resource": true,
                          "x-kubernetes-preserve-unknown-fields": true},
            }},
        }}));
        let mut object = json!({
            "apiVersion": "e/v1", "kind": "W", "metadata": {"name": "w", "odd": 1}, "top": 1,
            "spec": {"size": null, "color": null, "rows": [{"a": 1, "b": 2}, null], "any": {"k": {"x": 1}, "l": 2},
                "free": {"x": {"y": null}, "known": {"z": 1}}, "inner": {"metadata": {"name": "i", "bad": 2}, "spec": {"f": 1}}},
        });
        let mut shaping = Shaping::default();
        schema.conform(object.as_object_mut().unwrap(), &mut shaping).unwrap();
        schema.fill(&mut object);
        assert_eq!(
            object,
            json!({
                "apiVersion": "e/v1", "kind": "W", "metadata": {"name": "w"},
                "spec": {"size": 3, "color": null, "rows": [{"a": 1}, null], "any": {"k": {}, "l": 2},
                    "free": {"x": {"y": null}, "known": {}}, "inner": {"metadata": {"name": "i"}, "spec": {"f": 1}}},
            })
        );
        let mut told = shaping.into_list();
        told.sort();
        assert_eq!(
            told,
            [
                "unknown field \"metadata.odd\"",
                "unknown field \"spec.any.k.x\"",
                "unknown field \"spec.free.known.z\"",
                "unknown field \"spec.inner.metadata.bad\"",
                "unknown field \"spec.rows[0].b\"",
                "unknown field \"top\"",
            ]
        );
    }
}
