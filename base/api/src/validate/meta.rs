//! Rules of object metadata: names, labels, annotations, owners, finalizers, and what no update may change.

use serde_json::Value;

use super::error::{Bad, Errors, list, text};
use crate::Kind;
use crate::path::Path;
use crate::syntax;

const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Complaints about an object's name.
pub fn object_name(kind: &Kind, name: &str) -> Vec<String> {
    kind.strategy.name_complaints(name)
}

/// Complaints about a `generateName` prefix: a trailing dash is fine, as random characters follow.
pub fn generate_name(kind: &Kind, prefix: &str) -> Vec<String> {
    // Upstream replaces the dash and the character before it.
    let completed = match prefix.strip_suffix('-').and_then(|rest| rest.char_indices().next_back()) {
        Some((at, _)) => format!("{}a", &prefix[..at]),
        None => prefix.to_owned(),
    };
    object_name(kind, &completed)
}

/// What most kinds look at in the metadata of a new object.
pub(super) fn create(kind: &Kind, object: &Value, errors: &mut Errors) {
    create_any(kind, object, errors);
    if kind.strategy.has_core_finalizers() {
        known_finalizers(&object["metadata"]["finalizers"], errors);
    }
}

/// What most kinds look at in the metadata of a changed object.
pub(super) fn update_known(new: &Value, old: &Value, errors: &mut Errors) {
    update(new, old, errors);
    known_finalizers(&new["metadata"]["finalizers"], errors);
}

/// What is looked at in the metadata of a new object whatever its kind.
pub(super) fn create_any(kind: &Kind, object: &Value, errors: &mut Errors) {
    let path = Path::root("metadata");
    let meta = &object["metadata"];
    let prefix = text(&meta["generateName"]);
    if !prefix.is_empty() && kind.strategy.looks_at_name_prefix() {
        errors.all_invalid(&path.child("generateName"), prefix, generate_name(kind, prefix));
    }
    match text(&meta["name"]) {
        "" => errors.required(&path.child("name"), "name or generateName is required"),
        name => errors.all_invalid(&path.child("name"), name, object_name(kind, name)),
    }
    common(kind, meta, &path, errors);
}

fn common(kind: &Kind, meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    let namespace = text(&meta["namespace"]);
    match (kind.namespaced, namespace) {
        (true, "") => errors.required(&path.child("namespace"), ""),
        (true, name) => errors.all_invalid(&path.child("namespace"), name, syntax::dns_label(name)),
        (false, "") => {}
        (false, _) => errors.forbidden(&path.child("namespace"), "not allowed on this type"),
    }
    errors.nonnegative(&path.child("generation"), &meta["generation"]);
    changeable(meta, path, errors);
    finalizers(&meta["finalizers"], &path.child("finalizers"), errors);
}

/// Complaints about a whole object inside of another.
pub(crate) fn embedded(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["apiVersion", "kind"] {
        match object.get(name) {
            None => errors.required(&path.child(name), ""),
            Some(value) if value == "" => errors.invalid(&path.child(name), "", "must not be empty"),
            Some(_) => {}
        }
    }
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if version.matches('/').count() > 1 {
        let words = format!("unexpected GroupVersion string: {version}");
        errors.invalid(&path.child("apiVersion"), version, &words);
    }
    let complaints = syntax::dns_1035_label(&kind.to_lowercase());
    if !kind.is_empty() && !complaints.is_empty() {
        let words = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
        errors.invalid(&path.child("kind"), kind, &words);
    }
    let (meta, here) = (&object["metadata"], path.child("metadata"));
    let name = text(&meta["name"]);
    errors.all_invalid(&here.child("name"), name, syntax::path_segment(name));
    let namespace = text(&meta["namespace"]);
    if !namespace.is_empty() {
        errors.all_invalid(&here.child("namespace"), namespace, syntax::dns_label(namespace));
    }
    changeable(meta, &here, errors);
    finalizers(&meta["finalizers"], &here.child("finalizers"), errors);
}

fn changeable(meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels(&meta["labels"], &path.child("labels"), errors);
    annotations(&meta["annotations"], &path.child("annotations"), errors);
    owners(&meta["ownerReferences"], &path.child("ownerReferences"), errors);
}

pub(crate) fn labels(labels: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.all_invalid(path, key, syntax::qualified_name(key));
        errors.all_invalid(path, text(value), syntax::label_value(text(value)));
    }
}

pub(crate) fn annotations(annotations: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + text(value).len();
        errors.all_invalid(path, key, syntax::qualified_name(&key.to_lowercase()));
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(path, ANNOTATIONS_LIMIT);
    }
}

/// Owner references in the order upstream prints their fields.
struct Owners<'a>(&'a Value);

impl Bad for Owners<'_> {
    fn show(&self) -> String {
        let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
        let one = |owner: &Value| {
            let given = order.iter().filter(|k| !owner[**k].is_null());
            format!("{{{}}}", given.map(|k| format!("\"{k}\":{}", owner[*k])).collect::<Vec<_>>().join(","))
        };
        format!("[{}]", list(self.0).iter().map(one).collect::<Vec<_>>().join(","))
    }
}

fn owners(owners: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for owner in list(owners) {
        let version = text(&owner["apiVersion"]);
        if version.is_empty() || version.ends_with('/') {
            errors.invalid(&path.child("apiVersion"), version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(&owner[field]).is_empty() {
                errors.invalid(&path.child(field), "", "must not be empty");
            }
        }
        if version == "v1" && owner["kind"] == "Event" {
            errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", text(&owner["kind"]), text(&owner["name"]));
            match &controller {
                Some(first) => {
                    let words = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    errors.invalid(path, Owners(owners), &words);
                }
                None => controller = Some(name),
            }
        }
    }
}

fn finalizers(finalizers: &Value, path: &Path<'_>, errors: &mut Errors) {
    for finalizer in list(finalizers) {
        errors.all_invalid(path, text(finalizer), syntax::qualified_name(text(finalizer)));
    }
    let has = |name: &str| list(finalizers).iter().any(|f| f == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// Finalizers without a prefix are known ones.
pub(super) fn known_finalizers(finalizers: &Value, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    let path = metadata.child("finalizers");
    for (i, finalizer) in list(finalizers).iter().enumerate() {
        let standard = ["orphan", "foregroundDeletion", "kubernetes"];
        if !text(finalizer).contains('/') && !standard.contains(&text(finalizer)) {
            errors.invalid(
                &path.index(i),
                text(finalizer),
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

/// What is looked at in the metadata of a changed object whatever its kind.
pub(super) fn of_any(new: &Value, errors: &mut Errors) {
    let path = Path::root("metadata");
    changeable(&new["metadata"], &path, errors);
    finalizers(&new["metadata"]["finalizers"], &path.child("finalizers"), errors);
}

pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("metadata");
    let (meta, before) = (&new["metadata"], &old["metadata"]);
    if !before["deletionTimestamp"].is_null() {
        let added: Vec<String> = list(&meta["finalizers"])
            .iter()
            .filter(|f| !list(&before["finalizers"]).contains(f))
            .map(|f| format!("{:?}", text(f)))
            .collect();
        if !added.is_empty() {
            let words = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.forbidden(&path.child("finalizers"), &words);
        }
    }
    if meta["generation"].as_i64() < before["generation"].as_i64() {
        errors.invalid(
            &path.child("generation"),
            meta["generation"].as_i64().unwrap_or(0),
            "must not be decremented",
        );
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        errors.immutable(&path.child(field), &meta[field], &before[field]);
    }
    changeable(meta, &path, errors);
}

/// The operators that all selectors have and how many values each takes; false for one that is not among them.
pub(super) fn operator_and_values(
    operator: &str,
    values: &[Value],
    path: &Path<'_>,
    errors: &mut Errors,
) -> bool {
    let at = path.child("values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => return false,
    }
    true
}

/// A `LabelSelector` object.
pub(super) fn label_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    label_selector_with(selector, false, path, errors);
}

/// A `LabelSelector` object; `lenient` does not look at values, for one that was there before they were looked at.
pub(super) fn label_selector_with(selector: &Value, lenient: bool, path: &Path<'_>, errors: &mut Errors) {
    labels(&selector["matchLabels"], &path.child("matchLabels"), errors);
    let expressions = path.child("matchExpressions");
    for (i, expression) in list(&selector["matchExpressions"]).iter().enumerate() {
        let here = expressions.index(i);
        let values = list(&expression["values"]);
        let operator = text(&expression["operator"]);
        if !operator_and_values(operator, values, &here, errors) {
            errors.invalid(&here.child("operator"), operator, "not a valid selector operator");
        }
        let key = text(&expression["key"]);
        errors.all_invalid(&here.child("key"), key, syntax::qualified_name(key));
        let path = here.child("values");
        for (j, value) in values.iter().enumerate().filter(|_| !lenient) {
            errors.all_invalid(&path.index(j), text(value), syntax::label_value(text(value)));
        }
    }
}

/// Whether a `LabelSelector` object breaks a rule.
pub(super) fn is_bad_selector(selector: &Value) -> bool {
    let mut errors = Errors::default();
    label_selector(selector, &Path::root(""), &mut errors);
    !errors.is_empty()
}

/// A `LabelSelector` as upstream prints it.
pub(super) fn shown_selector(selector: &Value) -> String {
    if selector.is_null() {
        return "null".to_owned();
    }
    let expression = |e: &Value| {
        let values =
            if e["values"].is_null() { String::new() } else { format!(",\"values\":{}", e["values"]) };
        format!("{{\"key\":{},\"operator\":{}{values}}}", e["key"], e["operator"])
    };
    let mut fields = Vec::new();
    if !selector["matchLabels"].is_null() {
        fields.push(format!("\"matchLabels\":{}", selector["matchLabels"]));
    }
    if !selector["matchExpressions"].is_null() {
        let all: Vec<String> = list(&selector["matchExpressions"]).iter().map(expression).collect();
        fields.push(format!("\"matchExpressions\":[{}]", all.join(",")));
    }
    format!("{{{}}}", fields.join(","))
}
