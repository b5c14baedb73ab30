//! Paths: what can be done where, with the parameters clients look for.

use serde_json::{Map, Value, json};

use super::schemas::{Dialect, list_of};
use crate::{Kind, Part, Verb, Verbs};

/// Adds the paths of a kind and its subresources.
pub(super) fn add(kind: &Kind, out: &mut Map<String, Value>, dialect: Dialect) {
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let collection = if kind.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", kind.resource)
    } else {
        format!("{root}/{}", kind.resource)
    };
    let gvk = json!({"group": kind.group, "kind": kind.kind, "version": kind.version});
    let body = dialect.reference(&kind.schema.name);
    let list = dialect.reference(&list_of(kind));
    let here = Place { dialect, gvk, body, list };
    let verbs = |names: &[(Verb, &str)], allowed: Verbs| {
        let mut operations = Map::new();
        for (verb, method) in names.iter().filter(|(verb, _)| allowed.contains(*verb)) {
            operations.insert((*method).to_owned(), here.operation(*verb));
        }
        Value::Object(operations)
    };
    let many = [(Verb::List, "get"), (Verb::Create, "post"), (Verb::DeleteCollection, "delete")];
    let one = [(Verb::Get, "get"), (Verb::Update, "put"), (Verb::Patch, "patch"), (Verb::Delete, "delete")];
    out.insert(collection.clone(), verbs(&many, kind.verbs));
    if kind.namespaced && kind.allows(Verb::List) {
        out.insert(format!("{root}/{}", kind.resource), verbs(&[(Verb::List, "get")], kind.verbs));
    }
    if kind.allows(Verb::Get) {
        out.insert(format!("{collection}/{{name}}"), verbs(&one, kind.verbs));
    }
    let sub = [(Verb::Get, "get"), (Verb::Create, "post"), (Verb::Update, "put"), (Verb::Patch, "patch")];
    for entry in kind
        .subresources
        .iter()
        .filter(|s| matches!(s.part, Part::Status | Part::EphemeralContainers | Part::Resize))
    {
        out.insert(format!("{collection}/{{name}}/{}", entry.part), verbs(&sub, entry.verbs));
    }
}

struct Place {
    dialect: Dialect,
    gvk: Value,
    body: Value,
    list: Value,
}

impl Place {
    fn operation(&self, verb: Verb) -> Value {
        let parameters: Vec<Value> = parameters(verb).iter().map(|name| self.parameter(name)).collect();
        let answer = if verb == Verb::List { &self.list } else { &self.body };
        let mut out = json!({
            "parameters": parameters,
            "responses": {"200": self.response(answer)},
            "x-kubernetes-action": match verb { Verb::Create => "post", Verb::Update => "put", other => other.as_str() },
            "x-kubernetes-group-version-kind": self.gvk,
        });
        let types: &[&str] = match verb {
            Verb::Create | Verb::Update => {
                &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
            }
            Verb::Patch => &[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ],
            _ => return out,
        };
        if self.dialect == Dialect::V2 {
            out["consumes"] = json!(types);
            if let Value::Array(list) = &mut out["parameters"] {
                list.push(json!({"in": "body", "name": "body", "required": true, "schema": self.body}));
            }
        } else {
            let schema = if verb == Verb::Patch { json!({"type": "object"}) } else { self.body.clone() };
            let content: Map<String, Value> =
                types.iter().map(|t| ((*t).to_owned(), json!({"schema": schema}))).collect();
            out["requestBody"] = json!({"content": content, "required": true});
        }
        out
    }

    fn parameter(&self, name: &str) -> Value {
        let kind = match name {
            "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
            "watch" | "allowWatchBookmarks" | "sendInitialEvents" | "force" => "boolean",
            _ => "string",
        };
        if self.dialect == Dialect::V2 {
            json!({"name": name, "in": "query", "type": kind, "uniqueItems": true})
        } else {
            json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
        }
    }

    fn response(&self, schema: &Value) -> Value {
        if self.dialect == Dialect::V2 {
            json!({"description": "OK", "schema": schema})
        } else {
            json!({"description": "OK", "content": {"application/json": {"schema": schema}}})
        }
    }
}

fn parameters(verb: Verb) -> &'static [&'static str] {
    match verb {
        Verb::List => &[
            "allowWatchBookmarks",
            "continue",
            "fieldSelector",
            "labelSelector",
            "limit",
            "resourceVersion",
            "resourceVersionMatch",
            "sendInitialEvents",
            "timeoutSeconds",
            "watch",
        ],
        Verb::Create | Verb::Update => &["pretty", "dryRun", "fieldManager", "fieldValidation"],
        Verb::Patch => &["pretty", "dryRun", "fieldManager", "fieldValidation", "force"],
        Verb::Delete => &["pretty", "dryRun", "gracePeriodSeconds", "propagationPolicy"],
        Verb::DeleteCollection => {
            &["fieldSelector", "labelSelector", "dryRun", "gracePeriodSeconds", "propagationPolicy"]
        }
        _ => &["pretty"],
    }
}
