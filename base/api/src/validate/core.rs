//! Rules of config maps, secrets, nodes, namespaces, events and leases.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::{Errors, Seen, list, text};
use crate::path::Path;
use crate::quantity::Quantity;
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

pub(crate) fn node(object: &Value, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    taints(&object["spec"]["taints"], &metadata.child("taints"), errors);
    let status = Path::root("status");
    for list_name in ["capacity", "allocatable"] {
        let path = status.child(list_name);
        for (name, amount) in object["status"][list_name].as_object().into_iter().flatten() {
            let here = path.key(name);
            super::pod::resource_name(name, &here, errors);
            match Quantity::parse(text(amount)) {
                Ok(quantity) if quantity.is_negative() => {
                    errors.invalid(&here, text(amount), "must be greater than or equal to 0");
                }
                _ => {}
            }
        }
    }
    let spec = Path::root("spec");
    let path = spec.child("podCIDRs");
    for (i, cidr) in list(&object["spec"]["podCIDRs"]).iter().enumerate() {
        if !is_cidr(text(cidr)) {
            errors.invalid(
                &path.index(i),
                text(cidr),
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            );
        }
    }
}

fn is_cidr(value: &str) -> bool {
    let Some((address, length)) = value.split_once('/') else { return false };
    match (address.parse::<std::net::IpAddr>(), length.parse::<u8>()) {
        (Ok(ip), Ok(n)) => n <= if ip.is_ipv4() { 32 } else { 128 },
        _ => false,
    }
}

fn taints(taints: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for (i, taint) in list(taints).iter().enumerate() {
        let here = path.index(i);
        let (key, effect) = (text(&taint["key"]), text(&taint["effect"]));
        errors.all_invalid(&here.child("key"), key, syntax::qualified_name(key));
        let complaints = syntax::label_value(text(&taint["value"]));
        if !complaints.is_empty() {
            errors.invalid(&here.child("value"), text(&taint["value"]), &complaints.join(";"));
        }
        errors.one_of(
            &here.child("effect"),
            &taint["effect"],
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
        if seen.again((key, effect)) {
            errors.duplicate(&here, taint);
        }
    }
}

pub(crate) fn node_update(new: &Value, old: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let path = status.child("addresses");
    let addresses = list(&new["status"]["addresses"]);
    let mut seen = Seen::default();
    for (i, address) in addresses.iter().enumerate() {
        if seen.again((text(&address["type"]), text(&address["address"]))) {
            errors.duplicate(&path.index(i), address);
        }
    }
    let spec = Path::root("spec");
    for field in ["podCIDRs", "providerID"] {
        let before = &old["spec"][field];
        let given = !list(before).is_empty() || !text(before).is_empty();
        if given && before != &new["spec"][field] {
            let shown = if field == "podCIDRs" { "podCIDR" } else { field };
            let words = format!("node updates may not change {shown} except from \"\" to valid");
            errors.forbidden(&spec.child(field), &words);
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

/// Rules that hold for events of both groups.
pub(crate) fn event(object: &Value, errors: &mut Errors) {
    let namespace = text(&object["metadata"]["namespace"]);
    let involved = text(&object["involvedObject"]["namespace"]);
    let root = Path::root("involvedObject");
    let mismatch = |errors: &mut Errors| {
        errors.invalid(&root.child("namespace"), involved, "does not match event.namespace")
    };
    if object["eventTime"].is_null() {
        let fits =
            if involved.is_empty() { matches!(namespace, "" | "default") } else { involved == namespace };
        if !fits {
            mismatch(errors);
        }
    } else {
        if involved.is_empty() && !matches!(namespace, "default" | "kube-system") {
            mismatch(errors);
        }
        reported(object, "reportingComponent", "message", errors);
    }
    errors.all_invalid(&Path::root("namespace"), namespace, syntax::dns_subdomain(namespace));
}

/// Fields an event with a micro-second time must carry.
fn reported(object: &Value, reporter: &str, message: &str, errors: &mut Errors) {
    let name = text(&object[reporter]);
    if name.is_empty() {
        errors.required(&Path::root(reporter), "");
    }
    errors.all_invalid(&Path::root(reporter), name, syntax::qualified_name(name));
    for (field, must, most) in [
        ("reportingInstance", true, 128),
        ("action", true, 128),
        ("reason", true, 128),
        (message, false, 1024),
    ] {
        let value = text(&object[field]);
        if must && value.is_empty() {
            errors.required(&Path::root(field), "");
        }
        if value.len() > most {
            errors.invalid(&Path::root(field), "", &format!("can have at most {most} characters"));
        }
    }
}

/// Rules of `events.k8s.io/v1` on top: no deprecated fields, a time and a known type.
pub(crate) fn new_event(object: &Value, errors: &mut Errors) {
    if object["eventTime"].is_null() {
        errors.required(&Path::root("eventTime"), "");
    } else {
        reported(object, "reportingController", "note", errors);
    }
    let kind = text(&object["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&Path::root("type"), "", &format!("has invalid value: {kind}"));
    }
    for (field, old) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if !object[field].is_null() && object[field].as_i64() != Some(0) {
            errors.invalid(&Path::root(old), "", "needs to be unset");
        }
    }
    if !text(&object["deprecatedSource"]["component"]).is_empty() {
        errors.invalid(&Path::root("source"), "", "needs to be unset");
    }
    if object["series"].is_object() && object["series"]["count"].as_i64().unwrap_or(0) < 2 {
        errors.invalid(&Path::root("series.count"), "", "should be at least 2");
    }
}

pub(crate) fn lease(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|s| *s <= 0) {
        errors.invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    errors.nonnegative(&path.child("leaseTransitions"), &spec["leaseTransitions"]);
    if !text(&spec["preferredHolder"]).is_empty() && text(&spec["strategy"]).is_empty() {
        errors.forbidden(&path.child("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}
