//! Rules of claims on volumes: what is asked for, and how little of it may change.

use serde_json::{Map, Value};

use super::error::{Errors, Shown, list, text};
use super::{meta, volume};
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

/// The annotation that named the class before there was a field for it.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A new claim.
pub(crate) fn create(object: &Value, errors: &mut Errors) {
    spec(&object["spec"], &Path::root("spec"), &Before::default(), errors);
}

/// The specification of a claim that is made from a template.
pub(super) fn template(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    spec(given, path, &Before::default(), errors);
}

/// What of the stored claim is let be.
#[derive(Default)]
struct Before {
    /// Values of the selector are.
    selector: bool,
    /// Groups of the data source are.
    groups: bool,
}

/// Fills in the older or the newer of the two fields that say where the data come from, when the other is given.
///
/// `old` is the stored claim; as long as that has none, an old field that names what was never allowed there is dropped.
pub(crate) fn normalize_sources(spec: &mut Map<String, Value>, old: Option<&Value>) {
    let given = |spec: &Map<String, Value>, key: &str| spec.get(key).is_some_and(Value::is_object);
    let in_use = |key: &str| old.is_some_and(|old| old[key].is_object());
    // Sources in other namespaces are behind a feature gate that is off.
    let foreign = spec.get("dataSourceRef").is_some_and(|source| !text(&source["namespace"]).is_empty());
    if foreign && !in_use("dataSourceRef") {
        spec.remove("dataSourceRef");
    }
    if !in_use("dataSource") && !in_use("dataSourceRef") && !given(spec, "dataSourceRef") {
        let legal = spec.get("dataSource").is_some_and(|source| {
            matches!(
                (text(&source["kind"]), text(&source["apiGroup"])),
                ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
            )
        });
        if !legal {
            spec.remove("dataSource");
        }
    }
    complete_sources(spec);
}

fn complete_sources(spec: &mut Map<String, Value>) {
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        let Some(source) = spec.get(from).filter(|source| source.is_object()) else { continue };
        let foreign = !text(&source["namespace"]).is_empty();
        if spec.get(to).is_some_and(Value::is_object) || foreign {
            return;
        }
        let mut copy = source.clone();
        if let Value::Object(copy) = &mut copy {
            copy.remove("namespace");
        }
        spec.insert(to.to_owned(), copy);
    }
}

fn spec(spec: &Value, path: &Path<'_>, before: &Before, errors: &mut Errors) {
    let modes = list(&spec["accessModes"]);
    if modes.is_empty() {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    if spec["selector"].is_object() {
        meta::label_selector_with(&spec["selector"], before.selector, &path.child("selector"), errors);
    }
    volume::which_modes(modes, &path.child("accessModes"), errors);
    let resources = path.child("resources");
    let here = resources.key("storage");
    let asked = text(&spec["resources"]["requests"]["storage"]);
    match Quantity::parse(asked) {
        Ok(quantity) => volume::positive_quantity(&quantity, asked, &here, errors),
        Err(_) => errors.required(&here, ""),
    }
    let class = text(&spec["storageClassName"]);
    if !class.is_empty() {
        errors.all_invalid(&path.child("storageClassName"), class, syntax::dns_subdomain(class));
    }
    if let Some(mode) = spec["volumeMode"].as_str().filter(|mode| !matches!(*mode, "Block" | "Filesystem")) {
        errors.not_supported(&path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    sources(spec, path, before.groups, errors);
    let class = text(&spec["volumeAttributesClassName"]);
    if !class.is_empty() {
        errors.all_invalid(&path.child("volumeAttributesClassName"), class, syntax::dns_subdomain(class));
    }
}

fn sources(spec: &Value, path: &Path<'_>, any_group: bool, errors: &mut Errors) {
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    for (field, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        if source.is_object() {
            data_source(source, &path.child(field), any_group, errors);
        }
    }
    if !source.is_object() || !reference.is_object() {
        return;
    }
    // Upstream gives the path as the value, and that prints as nothing.
    let shown = || Shown("{}".to_owned());
    if !text(&reference["namespace"]).is_empty() {
        errors.invalid(path, shown(), "may not be specified when dataSourceRef.namespace is specified");
    } else if ["apiGroup", "kind", "name"].iter().any(|key| source[*key] != reference[*key]) {
        errors.invalid(path, shown(), "must match dataSourceRef");
    }
}

fn data_source(source: &Value, path: &Path<'_>, any_group: bool, errors: &mut Errors) {
    for field in ["name", "kind"] {
        if text(&source[field]).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    let (kind, group) = (text(&source["kind"]), text(&source["apiGroup"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() && !any_group {
        errors.all_invalid(&path.child("apiGroup"), group, syntax::dns_subdomain(group));
    }
    let namespace = text(&source["namespace"]);
    if !namespace.is_empty() {
        errors.all_invalid(&path.child("namespace"), namespace, syntax::dns_label(namespace));
    }
}

/// A changed claim: bound ones may ask for more, all may be bound, and a class may be chosen once.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let root = Path::root("spec");
    let mut old_spec = old["spec"].clone();
    if let Value::Object(old_spec) = &mut old_spec {
        complete_sources(old_spec);
    }
    let before = Before {
        selector: old_spec["selector"].is_object() && meta::is_bad_selector(&old_spec["selector"]),
        groups: ["dataSource", "dataSourceRef"].iter().any(|key| old_spec[*key]["apiGroup"].is_string()),
    };
    spec(&new["spec"], &root, &before, errors);

    let mut new_spec = new["spec"].clone();
    if text(&old_spec["volumeName"]).is_empty() {
        set(&mut old_spec, "volumeName", &new_spec["volumeName"]);
    }
    class_update(new, old, &mut new_spec, errors);
    if text(&new["status"]["phase"]) == "Bound" {
        if let Some(requests) = new_spec["resources"]["requests"].as_object_mut() {
            let kept = old_spec["resources"]["requests"]["storage"].clone();
            requests.insert("storage".to_owned(), kept);
        }
        set(&mut new_spec, "volumeAttributesClassName", &old_spec["volumeAttributesClassName"]);
    }
    if !same(&new_spec, &old_spec) {
        let words = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&root, words);
    }
    size_update(new, old, errors);
    errors.immutable(&Path::root("volumeMode"), &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
    let class = &new["spec"]["volumeAttributesClassName"];
    let current = &old["status"]["currentVolumeAttributesClassName"];
    if class != &old["spec"]["volumeAttributesClassName"] && current.is_string() {
        let here = root.child("volumeAttributesClassName");
        let words = |what: &str| {
            format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil")
        };
        match class.as_str() {
            None => errors.forbidden(&here, &words("nil")),
            Some("") => errors.forbidden(&here, &words("empty string")),
            Some(_) => {}
        }
    }
}

fn set(spec: &mut Value, key: &str, value: &Value) {
    if let Value::Object(spec) = spec {
        spec.insert(key.to_owned(), value.clone());
    }
}

/// Whether two specifications say the same; amounts may be written in different ways, and null is as good as nothing.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let absent = |value: Option<&Value>| value.is_none_or(Value::is_null);
            a.keys().chain(b.keys()).all(|key| match (a.get(key), b.get(key)) {
                (Some(a), Some(b)) if matches!(key.as_str(), "storage") => {
                    a == b || Quantity::parse(text(a)).ok() == Quantity::parse(text(b)).ok()
                }
                (Some(a), Some(b)) => same(a, b),
                (a, b) => absent(a) && absent(b),
            })
        }
        _ => a == b,
    }
}

/// The class may move from the annotation to the field, and come where there was none.
fn class_update(new: &Value, old: &Value, new_spec: &mut Value, errors: &mut Errors) {
    let annotation = |object: &Value| object["metadata"]["annotations"][CLASS].as_str().map(str::to_owned);
    let (now, before) = (annotation(new), annotation(old));
    let class = new["spec"]["storageClassName"].as_str();
    let was = old["spec"]["storageClassName"].as_str();
    let moved = before.is_some() && was.is_none() && class == before.as_deref();
    if moved && (now.is_none() || now == before) {
        return set(new_spec, "storageClassName", &Value::Null);
    }
    if now.as_deref().unwrap_or_default() != before.as_deref().unwrap_or_default() {
        let metadata = Path::root("metadata");
        let annotations = metadata.child("annotations");
        errors.invalid(&annotations.child(CLASS), now.as_deref().unwrap_or_default(), "field is immutable");
    }
    if class.is_some() && was.is_none() && (before.is_none() || class == before.as_deref()) {
        set(new_spec, "storageClassName", &Value::Null);
    }
}

/// A claim may ask for less only as long as it never got that much.
fn size_update(new: &Value, old: &Value, errors: &mut Errors) {
    let size = |amount: &Value| Quantity::parse(text(amount)).ok();
    let asked = |object: &Value| size(&object["spec"]["resources"]["requests"]["storage"]);
    let (Some(now), Some(before)) = (asked(new), asked(old)) else { return };
    let got = size(&old["status"]["capacity"]["storage"]);
    let too_little = match got {
        Some(got) => now <= got,
        None => !now.is_positive(),
    };
    if now < before && too_little {
        let spec = Path::root("spec");
        let (resources, requests) = ("resources", "requests");
        let resources = spec.child(resources);
        let requests = resources.child(requests);
        errors.forbidden(&requests.child("storage"), "field can not be less than status.capacity");
    }
}

const RESIZES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// The status: amounts, and how far a change of size has come.
pub(crate) fn status(new: &Value, errors: &mut Errors) {
    if list(&new["spec"]["accessModes"]).is_empty() {
        errors.required(&Path::root("Spec").child("accessModes"), "");
    }
    let root = Path::root("status");
    let status = &new["status"];
    let amounts = |field: &str| status[field].as_object().into_iter().flatten();
    let here = root.child("capacity");
    for (name, amount) in amounts("capacity") {
        if let Ok(quantity) = Quantity::parse(text(amount)) {
            volume::basic_quantity(&quantity, &here.key(name), errors);
        }
    }
    let here = root.child("allocatedResourceStatuses");
    for (name, resize) in amounts("allocatedResourceStatuses") {
        resource_key(name, &here, errors);
        if !RESIZES.contains(&text(resize)) {
            errors.not_supported(&here, name, RESIZES);
        }
    }
    let here = root.child("allocatedResources");
    for (name, amount) in amounts("allocatedResources") {
        if resource_key(name, &here, errors)
            && let Ok(quantity) = Quantity::parse(text(amount))
        {
            volume::basic_quantity(&quantity, &here.key(name), errors);
        }
    }
}

/// Of Kubernetes' own resources only storage is there.
fn resource_key(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let complaints = syntax::qualified_name(name);
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if !complaints.is_empty() {
        errors.all_invalid(path, name, complaints);
        return false;
    }
    if native && name != "storage" {
        errors.not_supported(path, name, &["storage"]);
        return false;
    }
    true
}
