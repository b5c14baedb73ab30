//! Rules of config maps, secrets, namespaces and leases.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::{Errors, list, text};
use crate::path::Path;
use crate::syntax;

const DATA_LIMIT: usize = 1024 * 1024;

/// Bytes that base64 text stands for.
fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count()
}

pub(crate) fn config_map(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    for (field, other) in [("data", Some("binaryData")), ("binaryData", None)] {
        let path = Path::root(field);
        for (key, value) in object[field].as_object().into_iter().flatten() {
            let here = path.key(key);
            errors.all_invalid(&here, key, syntax::config_key(key));
            if other.is_some_and(|o| object[o].get(key).is_some()) {
                errors.invalid(&here, key, "duplicate of key present in binaryData");
            }
            size += if other.is_some() { text(value).len() } else { decoded_len(text(value)) };
        }
    }
    if size > DATA_LIMIT {
        // So upstream writes that the whole object is meant.
        errors.too_long(&Path::root("[]"), DATA_LIMIT);
    }
}

pub(crate) fn secret(object: &Value, errors: &mut Errors) {
    let path = Path::root("data");
    let data = &object["data"];
    let mut size = 0;
    for (key, value) in data.as_object().into_iter().flatten() {
        errors.all_invalid(&path.key(key), key, syntax::config_key(key));
        size += decoded_len(text(value));
    }
    if size > DATA_LIMIT {
        errors.too_long(&path, DATA_LIMIT);
    }
    match text(&object["type"]) {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if text(&object["metadata"]["annotations"][name]).is_empty() {
                errors.required(&Path::root("metadata").child("annotations").key(name), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => docker_config(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            errors.required(&path.key("username"), "");
            errors.required(&path.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if text(&data["ssh-privatekey"]).is_empty() => {
            errors.required(&path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if data.get(key).is_none() {
                    errors.required(&path.key(key), "");
                }
            }
        }
        _ => {}
    }
}

fn docker_config(data: &Value, key: &str, errors: &mut Errors) {
    let path = Path::root("data");
    let Some(value) = data.get(key) else {
        errors.required(&path.key(key), "");
        return;
    };
    let bytes = STANDARD.decode(text(value)).unwrap_or_default();
    let decoded = crate::strict::decode_json(&bytes);
    let complaint = match &decoded {
        Err(error) => error.to_string(),
        Ok(decoded) => match &decoded.value {
            Value::Object(_) | Value::Null => return,
            other => {
                let kind = match other {
                    Value::Array(_) => "array",
                    Value::String(_) => "string",
                    Value::Bool(_) => "bool",
                    _ => "number",
                };
                format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
            }
        },
    };
    errors.invalid(&path.key(key), "<secret contents redacted>", &complaint);
}

/// A secret keeps its type.
pub(crate) fn secret_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable(&Path::root("type"), &new["type"], &old["type"]);
    data_update(new, old, errors);
}

/// Immutable config maps and secrets stay as they are.
pub(crate) fn data_update(new: &Value, old: &Value, errors: &mut Errors) {
    const WORDS: &str = "field is immutable when `immutable` is set";
    if old["immutable"] == true {
        if new["immutable"] != true {
            errors.forbidden(&Path::root("immutable"), WORDS);
        }
        for field in ["data", "binaryData"] {
            if new[field] != old[field] {
                errors.forbidden(&Path::root(field), WORDS);
            }
        }
    }
}

pub(crate) fn namespace(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    for finalizer in list(&object["spec"]["finalizers"]) {
        namespace_finalizer(text(finalizer), &path, errors);
    }
}

/// The finalizers that are left of a namespace; upstream says here which one is meant.
pub(crate) fn namespace_finalizers(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    for (i, finalizer) in list(&object["spec"]["finalizers"]).iter().enumerate() {
        namespace_finalizer(text(finalizer), &path.index(i), errors);
    }
}

fn namespace_finalizer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.all_invalid(path, name, syntax::qualified_name(name));
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        errors.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

/// A namespace ends when it is deleted, and not before.
pub(crate) fn namespace_status(object: &Value, errors: &mut Errors) {
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    let (phase, words) = if deleted {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    let given = text(&object["status"]["phase"]);
    if given != phase {
        errors.invalid(&Path::root("status").child("Phase"), given, words);
    }
}

pub(crate) fn lease(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|s| *s <= 0) {
        errors.invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    errors.nonnegative(&path.child("leaseTransitions"), &spec["leaseTransitions"]);
}
