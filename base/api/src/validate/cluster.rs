//! Rules of volumes, storage classes and ingresses.

use serde_json::Value;

use super::error::{Errors, list, text};
use crate::path::Path;
use crate::syntax;

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(crate) fn persistent_volume(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if list(&spec["accessModes"]).is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    for mode in list(&spec["accessModes"]).iter().filter(|m| !MODES.contains(&text(m))) {
        errors.not_supported(&path.child("accessModes"), text(mode), MODES);
    }
    let capacity = spec["capacity"].as_object();
    if capacity.is_none_or(serde_json::Map::is_empty) {
        errors.required(&path.child("capacity"), "");
    }
    if capacity.is_none_or(|c| !c.contains_key("storage") || c.len() > 1) {
        errors.not_supported(&path.child("capacity"), &spec["capacity"], &["storage"]);
    }
    let policy = text(&spec["persistentVolumeReclaimPolicy"]);
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        errors.not_supported(
            &path.child("persistentVolumeReclaimPolicy"),
            policy,
            &["Delete", "Recycle", "Retain"],
        );
    }
    let sources = [
        "hostPath",
        "local",
        "nfs",
        "csi",
        "iscsi",
        "fc",
        "rbd",
        "cephfs",
        "cinder",
        "glusterfs",
        "flexVolume",
        "azureDisk",
        "azureFile",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "vsphereVolume",
        "portworxVolume",
        "scaleIO",
        "storageos",
        "quobyte",
        "flocker",
        "photonPersistentDisk",
    ];
    let given: Vec<&str> = sources.into_iter().filter(|s| spec[*s].is_object()).collect();
    if given.is_empty() {
        errors.required(&path, "must specify a volume type");
    }
    for extra in given.iter().skip(1) {
        errors.forbidden(&path.child(extra), "may not specify more than 1 volume type");
    }
}

pub(crate) fn storage_class(object: &Value, errors: &mut Errors) {
    match text(&object["provisioner"]) {
        "" => errors.required(&Path::root("provisioner"), ""),
        name => {
            errors.all_invalid(&Path::root("provisioner"), name, syntax::qualified_name(&name.to_lowercase()))
        }
    }
    for (field, supported) in [
        ("reclaimPolicy", &["Delete", "Retain"]),
        ("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
    ] {
        if let Some(value) = object[field].as_str().filter(|v| !supported.contains(v)) {
            errors.not_supported(&Path::root(field), value, supported);
        }
    }
}

pub(crate) fn ingress(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if list(&spec["rules"]).is_empty() && spec["defaultBackend"].is_null() {
        errors.invalid(&path, &spec["rules"], "either `defaultBackend` or `rules` must be specified");
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        errors.all_invalid(&path.child("ingressClassName"), class, syntax::dns_subdomain(class));
    }
}

pub(crate) fn ingress_class(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let here = path.child("controller");
    let controller = text(&object["spec"]["controller"]);
    match controller.split_once('/') {
        _ if controller.is_empty() => errors.required(&here, ""),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.all_invalid(&here, domain, syntax::dns_subdomain(domain));
        }
        _ => errors.invalid(&here, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}
