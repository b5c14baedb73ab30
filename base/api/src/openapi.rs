//! OpenAPI documents, generated from the registry of kinds: enough for kubectl's validation, apply and explain.
//!
//! There are no descriptions: those of Kubernetes are its own text.

mod gnostic;
mod paths;
mod published;
mod schemas;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::Registry;
use schemas::{Dialect, Schemas};

/// `GET /openapi/v3`: where the document of each group and version is.
pub fn v3_index(kinds: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in kinds.groups() {
        for version in versions {
            let path =
                if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let url = format!("/openapi/v3/{path}?hash={}", fingerprint(kinds, group, version));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// `GET /openapi/v3/...` for one group and version.
pub fn v3(kinds: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut schemas = Schemas::new(Dialect::V3);
    let mut all_paths = Map::new();
    for kind in kinds.of_group_version(group, version) {
        schemas.add_kind(kind);
        paths::add(kind, &mut all_paths, Dialect::V3);
    }
    if all_paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": all_paths,
        "components": {"schemas": schemas.finish(kinds)},
    }))
}

/// `GET /openapi/v2`: all groups in one document.
pub fn v2(kinds: &Registry) -> Value {
    let mut schemas = Schemas::new(Dialect::V2);
    let mut all_paths = Map::new();
    for kind in kinds.kinds() {
        schemas.add_kind(kind);
        paths::add(kind, &mut all_paths, Dialect::V2);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": all_paths,
        "definitions": schemas.finish(kinds),
    })
}

/// `GET /openapi/v2` in protobuf.
pub fn v2_protobuf(kinds: &Registry) -> Vec<u8> {
    gnostic::document(&v2(kinds))
}

/// A value that changes whenever the kinds of a group and version do, so that clients may cache documents forever.
fn fingerprint(kinds: &Registry, group: &str, version: &str) -> String {
    static MESSAGES: OnceLock<u64> = OnceLock::new();
    let messages = MESSAGES.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        for message in crate::schema::Message::all() {
            message.name.hash(&mut hasher);
            for field in message.fields {
                (field.name, field.number, field.merge_key, field.keys).hash(&mut hasher);
            }
        }
        hasher.finish()
    });
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), messages).hash(&mut hasher);
    for kind in kinds.of_group_version(group, version) {
        (&kind.group, &kind.version, &kind.kind, kind.verbs, kind.strategy.revision()).hash(&mut hasher);
    }
    format!("{:016X}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_schema_tells_kubectl_how_to_patch() {
        let document = v3(Registry::builtin(), "", "v1").unwrap();
        let schemas = &document["components"]["schemas"];
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(
            schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
            json!([{"group": "", "kind": "Pod", "version": "v1"}])
        );
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Pod");
        let parameters = patch["parameters"].as_array().unwrap();
        assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"));
    }

    #[test]
    fn every_reference_resolves() {
        fn references<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(target)) = map.get("$ref") {
                        out.push(target);
                    }
                    map.values().for_each(|v| references(v, out));
                }
                Value::Array(items) => items.iter().for_each(|v| references(v, out)),
                _ => {}
            }
        }
        let index = v3_index(Registry::builtin());
        for (path, entry) in index["paths"].as_object().unwrap() {
            assert!(entry["serverRelativeURL"].as_str().unwrap().contains("?hash="), "{path}");
            let mut parts = path.split('/').skip(1);
            let (first, second) = (parts.next().unwrap(), parts.next());
            let document = second
                .map_or_else(
                    || v3(Registry::builtin(), "", first),
                    |version| v3(Registry::builtin(), first, version),
                )
                .unwrap();
            let mut found = Vec::new();
            references(&document, &mut found);
            for target in found {
                let name = target.strip_prefix("#/components/schemas/").unwrap();
                assert!(document["components"]["schemas"].get(name).is_some(), "{path}: {name}");
            }
        }
        let document = v2(Registry::builtin());
        let mut found = Vec::new();
        references(&document, &mut found);
        for target in found {
            let name = target.strip_prefix("#/definitions/").unwrap();
            assert!(document["definitions"].get(name).is_some(), "v2: {name}");
        }
    }
}
