//! Any definition of a custom resource and any object of it: compiling, defaulting, pruning, converting and checking must not
//! panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_apiserver::hostile::Defined;
use serde_json::{Value, json};

/// A definition of this schema and an object, as one input.
fn input(schema: &Value, object: &Value) -> Vec<u8> {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
            "selectableFields": [{"jsonPath": ".spec.s"}],
            "additionalPrinterColumns": [{"name": "S", "type": "string", "jsonPath": ".spec.s"}]})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "as.ex.com"}, "spec": {"group": "ex.com", "scope": "Cluster",
            "names": {"plural": "as", "kind": "A"}, "versions": [version("v1", true), version("v2", false)]}});
    format!("{definition}\n{object}").into_bytes()
}

fuzz_target!(init: {
    let object = |spec: Value| json!({"apiVersion": "ex.com/v1", "kind": "A", "metadata": {"name": "a"}, "spec": spec});
    let of = |spec: Value| json!({"type": "object", "properties": {
        "spec": spec, "status": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    podwire_fuzz::seeds(&[
        input(
            &of(json!({"type": "object", "required": ["s"], "properties": {
                "s": {"type": "string", "default": "x", "enum": ["x", "y"], "maxLength": 9, "pattern": "^[a-z]+$"},
                "n": {"type": "integer", "format": "int32", "minimum": 0, "multipleOf": 2, "nullable": true},
                "p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}})),
            &object(json!({"n": null, "p": "80", "unknown": [1]})),
        ),
        input(
            &of(json!({"type": "object", "properties": {"s": {"type": "string", "format": "date-time"},
                "n": {"type": "integer"},
                "l": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {
                        "k": {"type": "string"}, "v": {"type": "number", "default": 1.5}}}},
                "t": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "m": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}}}})),
            &object(json!({"l": [{"k": "a"}, {"k": "a", "v": 2}], "t": ["b", "b"], "m": {"x": "long", "y": null}})),
        ),
        input(
            &of(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "s": {"type": "string"}, "n": {"type": "integer"},
                "e": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true}},
                "oneOf": [{"required": ["s"]}, {"required": ["e"]}], "not": {"required": ["n"]},
                "x-kubernetes-validations": [{"rule": "!has(self.s) || self.s.size() < 5", "message": "short"}]})),
            &object(json!({"e": {"apiVersion": "v1", "kind": "B", "metadata": {"name": "b", "labels": {"c": 1}}}, "free": {}})),
        ),
    ]);
}, |input: &[u8]| {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (definition, object) = input.split_at(end);
    let Some(defined) = Defined::read(definition) else { return };
    for taken in defined.objects(object) {
        assert!(taken.is_object(), "{taken}");
    }
});
