//! Any bytes as the reply of a conversion webhook: what is believed keeps the identity of what was asked.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use podwire_apiserver::hostile::Defined;
use serde_json::{Value, json};

/// The same definition with a webhook of each version of reviews.
static DEFINED: LazyLock<[Defined; 2]> = LazyLock::new(|| ["v1", "v1beta1"].map(defined));

fn defined(review: &str) -> Defined {
    let version = |name: &str, storage: bool, field: &str| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}}}}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "as.ex.com"}, "spec": {"group": "ex.com", "scope": "Namespaced",
            "names": {"plural": "as", "kind": "A"}, "versions": [version("v1", true, "s"), version("v2", false, "t")],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": [review],
                "clientConfig": {"url": "https://127.0.0.1:1/x"}}}}});
    Defined::read(definition.to_string().as_bytes()).expect("the definition is right")
}

static ASKED: LazyLock<Vec<Value>> = LazyLock::new(|| vec![object("ex.com/v1", "a"), object("ex.com/v1", "b")]);

fn object(version: &str, name: &str) -> Value {
    json!({"apiVersion": version, "kind": "A", "metadata": {"name": name, "namespace": "n", "uid": "u",
        "labels": {"a": "b"}, "annotations": {"c": "d"}, "generation": 1}, "spec": {"s": "x"}})
}

fuzz_target!(init: {
    let review = |response: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}).to_string()
    };
    podwire_fuzz::seeds(&[
        review(json!({"uid": "u", "result": {"status": "Success"},
            "convertedObjects": [object("ex.com/v2", "a"), object("ex.com/v2", "b")]})),
        review(json!({"uid": "u", "result": {"status": "Failed", "message": "no"}, "convertedObjects": null})),
        review(json!({"uid": "u", "result": {"status": "Success"},
            "convertedObjects": [{"apiVersion": "ex.com/v2", "kind": "A", "metadata": "x"}, 5]})),
    ]);
}, |reply: &[u8]| {
    for defined in DEFINED.iter() {
        let Some(made) = defined.converted(reply, "u", &ASKED) else { continue };
        assert_eq!(made.len(), ASKED.len());
        for (made, asked) in made.iter().zip(ASKED.iter()) {
            assert_eq!((&made["apiVersion"], &made["kind"]), (&json!("ex.com/v2"), &asked["kind"]));
            for key in ["name", "namespace", "uid", "generation"] {
                assert_eq!(made["metadata"][key], asked["metadata"][key]);
            }
        }
    }
});
