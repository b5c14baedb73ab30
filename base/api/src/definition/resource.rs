//! How custom resources behave: one strategy for each served version of a definition.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::made::{Rules, Source};
use super::{Conversion, list, text, versions};
use crate::json_path::JsonPath;
use crate::path::Path;
use crate::strategy::{Facts, Generation, Object, ScalePaths, Strategy};
use crate::structural::{Check, Node, embedded_metadata, sets_and_maps};
use crate::table::{Column, age};
use crate::validate::{Errors, go_float};
use crate::{Kind, Part, fields, syntax};

/// The objects of one version of a definition.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) node: Arc<Node>,
    /// The schema of the version that objects are stored in, when it is another.
    pub(super) storage: Option<Arc<Node>>,
    pub(super) has_status: bool,
    pub(super) scale: Option<ScalePaths>,
    pub(super) columns: Vec<PrinterColumn>,
    pub(super) rules: Option<Arc<dyn Rules>>,
    pub(super) is_converted: bool,
    /// The version that objects are stored in; none when they stay in the one that they are in.
    pub(super) stored_as: Option<String>,
    pub(super) conversion: Option<Arc<Conversion>>,
    pub(super) terminating: bool,
    pub(super) deprecation: Option<String>,
    pub(super) version: String,
    pub(super) revision: u64,
    pub(super) source: Arc<dyn Source>,
}

/// A column that a definition asks for.
#[derive(Debug)]
pub(super) struct PrinterColumn {
    definition: Value,
    kind: String,
    path: Option<JsonPath>,
}

impl PrinterColumn {
    pub(super) fn of(column: &Value) -> PrinterColumn {
        let path = text(&column["jsonPath"]);
        let description = match text(&column["description"]) {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            given => given.to_owned(),
        };
        PrinterColumn {
            definition: json!({
                "name": column["name"], "type": column["type"], "format": text(&column["format"]),
                "description": description, "priority": column["priority"].as_i64().unwrap_or(0),
            }),
            kind: text(&column["type"]).to_owned(),
            path: JsonPath::parse(path),
        }
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.as_ref().and_then(|path| path.first(object)).unwrap_or(&Value::Null);
        match (self.kind.as_str(), found) {
            (_, Value::Null) => Value::Null,
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", other) => other.to_string().into(),
            ("integer", Value::Number(number)) => {
                number.as_i64().map_or_else(|| whole(number.as_f64().unwrap_or_default()), Value::from)
            }
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => found.clone(),
            ("date", Value::String(given)) => match given.parse::<Timestamp>() {
                Ok(_) => age(found, now).into(),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

/// A number without its fraction.
fn whole(number: f64) -> Value {
    format!("{:.0}", number.trunc()).parse::<i64>().map_or(Value::Null, Value::from)
}

pub(super) fn conform(node: &Node, object: &mut Value) {
    let Value::Object(map) = object else { return };
    // Ignored: what cannot be metadata was refused when it was written.
    node.conform(map, &mut crate::strict::Shaping::default()).ok();
}

/// The value at a path of names such as `.spec.replicas`.
fn at<'v>(object: &'v Value, path: &str) -> &'v Value {
    path.trim_start_matches('.').split('.').fold(object, |at, name| &at[name])
}

impl Resource {
    /// The rules of the scale: numbers that can be replicas, a selector that is text.
    fn scale_rules(&self, object: &Value, with_spec: bool, errors: &mut Errors) {
        let Some(scale) = &self.scale else { return };
        let mut replicas = |path: &str| {
            let here = Path::root(path);
            let found = match reach(object, path) {
                Ok(found) => found,
                Err(why) => return errors.invalid(&here, 0, &why),
            };
            match found.as_i64() {
                None if found.is_null() => {}
                None => {
                    let words = format!(
                        "{path} accessor error: {} is of the type {}, expected int64",
                        go_value(found),
                        go_type(found)
                    );
                    errors.invalid(&here, 0, &words);
                }
                Some(count) if count < 0 => errors.invalid(&here, count, "should be a non-negative integer"),
                Some(count) if count > i64::from(i32::MAX) => {
                    errors.invalid(&here, count, "should be less than or equal to 2147483647");
                }
                Some(_) => {}
            }
        };
        if with_spec {
            replicas(&scale.spec_replicas);
        }
        replicas(&scale.status_replicas);
        let selector = at(object, &scale.label_selector);
        if !scale.label_selector.is_empty() && !selector.is_null() && !selector.is_string() {
            let path = &scale.label_selector;
            let words = format!(
                "{path} accessor error: {} is of the type {}, expected string",
                go_value(selector),
                go_type(selector)
            );
            errors.invalid(&Path::root(path), "", &words);
        }
    }

    fn type_meta(&self, object: &Value, errors: &mut Errors) -> bool {
        let before = errors.len();
        for (field, wanted) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            let given = text(&object[field]);
            if given != wanted {
                errors.invalid(&Path::root(field), given, &format!("must be {wanted}"));
            }
        }
        errors.len() == before
    }

    fn check(&self, new: &Value, old: Option<&Value>, errors: &mut Errors) {
        if !self.type_meta(new, errors) {
            return;
        }
        Check::new("").run(&self.node, new, old).into_iter().for_each(|error| errors.add(error));
        self.scale_rules(new, true, errors);
        embedded_metadata(&self.node, new, &Path::root(""), errors, true);
        self.lists(new, old, errors);
        self.ask_rules(new, old, errors);
    }

    /// Rules are only asked about what has the shape that they were written for.
    fn ask_rules(&self, new: &Value, old: Option<&Value>, errors: &mut Errors) {
        let Some(rules) = &self.rules else { return };
        if errors.block() {
            let words = "some validation rules were not checked because the object was invalid; correct the existing \
                         errors to complete validation";
            return errors.invalid(&Path::root(""), &Value::Null, words);
        }
        rules.complaints(new, old).into_iter().for_each(|error| errors.add(error));
    }

    /// Nothing is said about lists of an object that was not better before.
    fn lists(&self, new: &Value, old: Option<&Value>, errors: &mut Errors) {
        let complaints = |object: &Value| {
            let mut errors = Errors::default();
            sets_and_maps(&self.node, object, &Path::root(""), &mut errors);
            errors.done()
        };
        let found = complaints(new);
        if !found.is_empty() && old.is_none_or(|old| complaints(old).is_empty()) {
            found.into_iter().for_each(|error| errors.add(error));
        }
    }
}

/// The value at a path, or why there can be none.
fn reach<'v>(object: &'v Value, path: &str) -> Result<&'v Value, String> {
    path.trim_start_matches('.').split('.').try_fold(object, |at, name| match at {
        Value::Object(_) | Value::Null => Ok(&at[name]),
        other => Err(format!(
            "{path} accessor error: {} is of the type {}, expected map[string]interface{{}}",
            go_value(other),
            go_type(other)
        )),
    })
}

/// A value as Go prints it.
fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if !number.is_i64() => go_float(number.as_f64().unwrap_or_default()),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let members: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    }
}

impl Strategy for Resource {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, updates_unconditionally: false, ..Facts::PLAIN }
    }

    fn has_core_finalizers(&self) -> bool {
        false
    }

    fn refuses_creation(&self) -> Option<&'static str> {
        self.terminating.then_some("create not allowed while custom resource definition is terminating")
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        if self.has_status {
            object.remove("status");
        }
    }

    fn prepare_status(&self, new: &mut Object, old: &Value) {
        let status = new.remove("status");
        let owners = new.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
        let version = new.get("metadata").and_then(|metadata| metadata.get("resourceVersion")).cloned();
        *new = old.as_object().cloned().unwrap_or_default();
        new.remove("status");
        if let Some(status) = status {
            new.insert("status".to_owned(), status);
        }
        if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            for (key, value) in [("managedFields", owners), ("resourceVersion", version)] {
                match value {
                    Some(value) => metadata.insert(key.to_owned(), value),
                    None => metadata.remove(key),
                };
            }
        }
    }

    fn differs(&self, _: &Kind, new: &Value, old: &Value) -> bool {
        let counts = |key: &str| key != "metadata" && !(self.has_status && key == "status");
        let rest = |object: &Value| -> Vec<(String, Value)> {
            let members = object.as_object().into_iter().flatten().filter(|(key, _)| counts(key));
            members.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        rest(new) != rest(old)
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        self.check(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        self.check(new, Some(old), errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part != Part::Status || !self.type_meta(new, errors) {
            return;
        }
        if let (Some(status), Some(node)) = (new.get("status"), self.node.property("status")) {
            let found = Check::new("status").run(node, status, old.get("status"));
            found.into_iter().for_each(|error| errors.add(error));
        }
        self.scale_rules(new, false, errors);
        self.lists(new, Some(old), errors);
        self.ask_rules(new, Some(old), errors);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut out = Vec::new();
        for finalizer in list(&object["metadata"]["finalizers"]).iter().map(text) {
            let words = syntax::qualified_name(finalizer).into_iter();
            out.extend(words.map(|why| format!("metadata.finalizers: {finalizer:?}: {why}")));
            if finalizer.contains('/') || matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes")
            {
                continue;
            }
            let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
            out.push(format!(
                "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name{path} to avoid accidental \
                 conflicts with other finalizer writers"
            ));
        }
        out
    }

    fn columns(&self) -> &[Column] {
        crate::table::PLAIN
    }

    fn column_definitions(&self) -> Value {
        if self.columns.is_empty() {
            let mut definitions = crate::table::definitions(self.columns());
            definitions[1]["type"] = "date".into();
            return definitions;
        }
        let name =
            json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
        [name].into_iter().chain(self.columns.iter().map(|column| column.definition.clone())).collect()
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        if self.columns.is_empty() {
            return crate::table::cells(self.columns(), object, now);
        }
        let name = object["metadata"]["name"].clone();
        [name].into_iter().chain(self.columns.iter().map(|column| column.cell(object, now))).collect()
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        Some(fields::plain(object, field).unwrap_or_default())
    }

    fn is_converted(&self) -> bool {
        self.is_converted
    }

    fn stored_as<'a>(&'a self, object: &'a Value) -> Option<&'a str> {
        let own = || text(&object["apiVersion"]).rsplit_once('/').map(|(_, version)| version);
        self.stored_as.as_deref().or_else(own)
    }

    fn conversion(&self) -> Option<&Conversion> {
        self.conversion.as_deref()
    }

    fn to_storage(&self, object: &mut Value) {
        if let Some(node) = &self.storage {
            conform(node, object);
        }
    }

    fn to_served(&self, object: &mut Value) {
        // What is stored has the defaults of the version that it is stored in, and no others.
        match &self.storage {
            Some(storage) => {
                conform(storage, object);
                storage.fill(object);
                conform(&self.node, object);
            }
            None => {
                conform(&self.node, object);
                self.node.fill(object);
            }
        }
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn published(&self) -> Option<Value> {
        let definition = self.source.definition()?;
        let version = versions(&definition).iter().find(|version| version["name"] == self.version)?;
        Some(version["schema"]["openAPIV3Schema"].clone())
    }
}
