//! What a definition has to be, apart from its schemas.
//!
//! What all versions agree on is complained about in the place where upstream's internal type keeps it: `spec.validation`
//! for the schemas, `spec.subresources`, `spec.additionalPrinterColumns` and `spec.selectableFields`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{list, schema_rules, storage_version, text, versions};
use crate::path::Path;
use crate::structural::{Kind, Node, is_recognized_format};
use crate::syntax;
use crate::validate::{self, Errors, Seen, Shown};

const APPROVED: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MOST_SELECTABLE: usize = 8;

/// Complaints about a new definition.
pub(crate) fn create(definition: &Value, errors: &mut Errors) {
    named(definition, errors);
    spec(definition, errors);
    stored_versions(definition, errors);
    approval(definition, None, errors);
    if definition["spec"]["preserveUnknownFields"] == true {
        let words = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&Path::root("spec").child("preserveUnknownFields"), &Value::Bool(true), words);
    }
}

/// Complaints about a changed definition.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    // What was right stays right.
    if new["spec"] != old["spec"] {
        spec(new, errors);
    }
    let path = Path::root("spec");
    let names = path.child("names");
    if super::conditions::is_true(old, "Established") {
        errors.immutable(&path.child("scope"), &new["spec"]["scope"], &old["spec"]["scope"]);
        errors.immutable(&names.child("kind"), &new["spec"]["names"]["kind"], &old["spec"]["names"]["kind"]);
    }
    errors.immutable(&path.child("group"), &new["spec"]["group"], &old["spec"]["group"]);
    errors.immutable(
        &names.child("plural"),
        &new["spec"]["names"]["plural"],
        &old["spec"]["names"]["plural"],
    );
    authorities(new, old, errors);
    stored_versions(new, errors);
    approval(new, Some(old), errors);
}

/// The authorities that a conversion webhook is known by: where there were right ones, they are right.
fn authorities(new: &Value, old: &Value, errors: &mut Errors) {
    let bundle = |definition: &Value| {
        text(&definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]).to_owned()
    };
    let (given, before) = (bundle(new), bundle(old));
    if !super::conditions::is_true(old, "Established") || given.is_empty() || is_bundle(&given) {
        return;
    }
    if before.is_empty() || is_bundle(&before) {
        let path = Path::root("spec");
        let path = path.child("conversion");
        let path = path.child("webhookClientConfig");
        let words = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.invalid(&path.child("caBundle"), given.as_str(), words);
    }
}

/// Whether a bundle of authorities has at least one certificate.
pub(super) fn is_bundle(given: &str) -> bool {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let Ok(pem) = STANDARD.decode(given) else { return false };
    let pem = String::from_utf8_lossy(&pem);
    pem.split(BEGIN).skip(1).any(|rest| {
        let body: String = rest.split(END).next().unwrap_or_default().split_whitespace().collect();
        rest.contains(END) && STANDARD.decode(body).is_ok_and(|der| der.first() == Some(&0x30))
    })
}

fn named(definition: &Value, errors: &mut Errors) {
    let name = text(&definition["metadata"]["name"]);
    let wanted = format!("{}.{}", text(&definition["spec"]["names"]["plural"]), super::group(definition));
    if !name.is_empty() && name != wanted {
        let words = "must be spec.names.plural+\".\"+spec.group";
        errors.invalid(&Path::root("metadata").child("name"), name, words);
    }
}

/// A part of all versions, when they agree on it.
fn hoisted<'a>(definition: &'a Value, part: &str) -> Option<&'a Value> {
    let all = versions(definition);
    let first = all.first()?;
    all.iter().all(|version| version[part] == first[part]).then(|| &first[part])
}

fn spec(definition: &Value, errors: &mut Errors) {
    let spec = &definition["spec"];
    let path = Path::root("spec");
    let group = text(&spec["group"]);
    let complaints = syntax::dns_subdomain(group);
    match group {
        "" => errors.required(&path.child("group"), ""),
        group if !complaints.is_empty() => errors.invalid(&path.child("group"), group, &complaints.join(",")),
        group if !group.contains('.') => {
            errors.invalid(&path.child("group"), group, "should be a domain with at least one dot");
        }
        _ => {}
    }
    errors.one_of(&path.child("scope"), &spec["scope"], &["Cluster", "Namespaced"]);
    let all = path.child("versions");
    let schema = hoisted(definition, "schema");
    for (at, version) in versions(definition).iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            errors.required(&all.index(at).child("schema").child("openAPIV3Schema"), "");
        }
    }
    version_list(definition, errors);
    let names = path.child("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][key]).is_empty() {
            errors.required(&names.child(key), "");
        }
    }
    accepted_names(&spec["names"], &names, errors);
    if let Some(schema) = schema {
        let any_status =
            versions(definition).iter().any(|version| version["subresources"].get("status").is_some());
        schema_of(schema, &path.child("validation"), any_status, errors);
    }
    let hoisted = |part| hoisted(definition, part).unwrap_or(&Value::Null);
    subresources(hoisted("subresources"), &path.child("subresources"), errors);
    columns(hoisted("additionalPrinterColumns"), &path.child("additionalPrinterColumns"), errors);
    let selectable = hoisted("selectableFields");
    if !list(selectable).is_empty() {
        let at = path.child("selectableFields");
        match schema {
            None => errors.invalid(&at, "", "may only be set when validations.schema is included"),
            Some(schema) => selectable_fields(selectable, &schema["openAPIV3Schema"], &at, errors),
        }
    }
    conversion(&spec["conversion"], &path.child("conversion"), errors);
}

fn schema_of(schema: &Value, path: &Path<'_>, has_status: bool, errors: &mut Errors) {
    if let Some(schema) = schema.get("openAPIV3Schema") {
        schema_rules::root(schema, &path.child("openAPIV3Schema"), has_status, errors);
    }
}

/// The versions one by one, and as a list.
fn version_list(definition: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let all = path.child("versions");
    let apart = |part| hoisted(definition, part).is_none();
    for (at, version) in versions(definition).iter().enumerate() {
        let here = all.index(at);
        let name = text(&version["name"]);
        let complaints = syntax::dns_1035_label(name);
        if !complaints.is_empty() {
            errors.invalid(&here.child("name"), name, &complaints.join(","));
        }
        deprecation(version, &here.child("deprecationWarning"), errors);
        let has_status = version["subresources"].get("status").is_some();
        if apart("schema") {
            schema_of(&version["schema"], &here.child("schema"), has_status, errors);
        }
        if apart("subresources") {
            subresources(&version["subresources"], &here.child("subresources"), errors);
        }
        if apart("additionalPrinterColumns") {
            columns(&version["additionalPrinterColumns"], &here.child("additionalPrinterColumns"), errors);
        }
        if apart("selectableFields") {
            let schema = &version["schema"]["openAPIV3Schema"];
            selectable_fields(&version["selectableFields"], schema, &here.child("selectableFields"), errors);
        }
    }
    let mut seen = Seen::default();
    let first = versions(definition).first().map_or("", |version| text(&version["name"]));
    if versions(definition).iter().any(|version| seen.again(text(&version["name"]))) {
        errors.invalid(&all, internal(definition), "must contain unique version names");
    }
    if versions(definition).iter().filter(|version| version["storage"] == true).count() != 1 {
        errors.invalid(&all, internal(definition), "must have exactly one version marked as storage version");
    }
    // The first version also stands for itself, in a place that only older clients know.
    let complaints = syntax::dns_1035_label(first);
    if !first.is_empty() && !complaints.is_empty() {
        errors.invalid(&path.child("version"), first, &complaints.join(","));
    }
}

/// The versions as upstream's internal type prints them.
fn internal(definition: &Value) -> Shown {
    let flag = |version: &Value, name: &str| Value::Bool(version[name] == true);
    let part = |version: &Value, name: &str| match hoisted(definition, name) {
        Some(_) => Value::Null,
        None => version[name].clone(),
    };
    let one = |version: &Value| {
        let fields = [
            ("Name", version["name"].clone()),
            ("Served", flag(version, "served")),
            ("Storage", flag(version, "storage")),
            ("Deprecated", flag(version, "deprecated")),
            ("DeprecationWarning", version["deprecationWarning"].clone()),
            ("Schema", part(version, "schema")),
            ("Subresources", part(version, "subresources")),
            ("AdditionalPrinterColumns", part(version, "additionalPrinterColumns")),
            ("SelectableFields", part(version, "selectableFields")),
        ];
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let all: Vec<String> = versions(definition).iter().map(one).collect();
    Shown(format!("[{}]", all.join(",")))
}

fn deprecation(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    if version["deprecated"] != true {
        return errors.invalid(path, warning, "can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        errors.invalid(path, warning, "must be <= 256 characters long");
    }
    if warning.is_empty() {
        errors.invalid(path, warning, "must not be an empty string");
    }
    if let Some((at, _)) =
        warning.char_indices().find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' '))
    {
        let words = "must only contain printable UTF-8 characters; non-printable character found at index";
        errors.invalid(path, warning, &format!("{words} {at}"));
    }
}

fn accepted_names(names: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut label = |path: &Path<'_>, name: &str, mixed: bool| {
        let lower = name.to_lowercase();
        let complaints = syntax::dns_1035_label(if mixed { &lower } else { name });
        let words = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
        if !complaints.is_empty() {
            errors.invalid(path, name, &format!("{words}{}", complaints.join(",")));
        }
    };
    for (key, mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let name = text(&names[key]);
        if !name.is_empty() {
            label(&path.child(key), name, mixed);
        }
    }
    for key in ["shortNames", "categories"] {
        let here = path.child(key);
        for (at, name) in list(&names[key]).iter().enumerate() {
            label(&here.index(at), text(name), false);
        }
    }
    let kind = text(&names["kind"]);
    if !kind.is_empty() && names["kind"] == names["listKind"] {
        errors.invalid(&path.child("listKind"), kind, "kind and listKind may not be the same");
    }
}

fn is_simple_path(given: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let simple = given.starts_with('.');
    if !simple {
        errors.invalid(path, given, "must be a simple json path starting with .");
    }
    simple
}

fn subresources(subresources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(scale) = subresources.get("scale") else { return };
    for (key, parents, words) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let name = format!("scale.{key}");
        let here = path.child(&name);
        match text(&scale[key]) {
            "" if key == "labelSelectorPath" => {}
            "" => errors.required(&here, ""),
            given => {
                let below = parents.iter().any(|parent| given.starts_with(parent));
                if is_simple_path(given, &here, errors) && !below {
                    errors.invalid(&here, given, words);
                }
            }
        }
    }
}

fn columns(columns: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (at, column) in list(columns).iter().enumerate() {
        let here = path.index(at);
        if text(&column["name"]).is_empty() {
            errors.required(&here.child("name"), "");
        }
        let words = format!("must be one of {}", COLUMN_TYPES.join(","));
        match text(&column["type"]) {
            "" => errors.required(&here.child("type"), &words),
            kind if !COLUMN_TYPES.contains(&kind) => errors.invalid(&here.child("type"), kind, &words),
            _ => {}
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let words = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(&here.child("format"), format, &words);
        }
        match text(&column["jsonPath"]) {
            "" => errors.required(&here.child("JSONPath"), ""),
            given => drop(is_simple_path(given, &here.child("JSONPath"), errors)),
        }
    }
}

fn selectable_fields(fields: &Value, schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if list(fields).is_empty() {
        return;
    }
    let node = Node::root(schema);
    let mut seen = Vec::new();
    for (at, field) in list(fields).iter().enumerate() {
        let element = path.index(at);
        let here = element.child("jsonPath");
        let given = text(&field["jsonPath"]);
        if given.is_empty() {
            errors.required(&here, "");
            continue;
        }
        let found = match find(&node, given) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&here, given, &format!("is an invalid path: {why}"));
                continue;
            }
        };
        if given.starts_with(".metadata") {
            errors.invalid(&here, given, "must not point to fields in metadata");
        }
        if !matches!(found.kind, Kind::String | Kind::Boolean | Kind::Integer) {
            let words = "must point to a field of type string, boolean or integer. \
                         Enum string fields and strings with formats are allowed.";
            errors.invalid(&here, given, words);
        }
        match seen.contains(&given) {
            true => errors.duplicate(&here, given),
            false => seen.push(given),
        }
    }
    if seen.len() > MOST_SELECTABLE {
        errors.too_many(path, seen.len(), MOST_SELECTABLE);
    }
}

/// The schema at a path, or why there is none.
fn find<'n>(node: &'n Node, path: &str) -> Result<&'n Node, String> {
    let Some(names) = path.strip_prefix('.') else {
        let first = path.split(['.', '[']).next().unwrap_or_default();
        return Err(format!("expected [ or . but got: {first}"));
    };
    let mut at = node;
    for name in names.split('.') {
        if name.contains('[') {
            return Err("array notation is not supported".to_owned());
        }
        at = at.property(name).ok_or("does not refer to a valid field")?;
    }
    Ok(at)
}

fn conversion(conversion: &Value, path: &Path<'_>, errors: &mut Errors) {
    if conversion.is_null() {
        return;
    }
    errors.one_of(&path.child("strategy"), &conversion["strategy"], &["None", "Webhook"]);
    let (client, reviews) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let (given, wanted) =
        (&conversion["webhook"]["clientConfig"], &conversion["webhook"]["conversionReviewVersions"]);
    if conversion["strategy"] == "Webhook" {
        match given.is_object() {
            true => validate::webhook::client(given, &client, errors),
            false => errors.required(&client, "required when strategy is set to Webhook"),
        }
        return validate::webhook::review_versions(wanted, "", &reviews, errors);
    }
    let words = "should not be set when strategy is not set to Webhook";
    if given.is_object() {
        errors.forbidden(&client, words);
    }
    if !list(wanted).is_empty() {
        errors.forbidden(&reviews, words);
    }
}

fn stored_versions(definition: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let path = status.child("storedVersions");
    let stored = &definition["status"]["storedVersions"];
    if list(stored).is_empty() {
        return errors.invalid(&path, stored, "must have at least one stored version");
    }
    let storage = storage_version(definition);
    if !storage.is_empty() && !list(stored).iter().any(|version| version == storage) {
        errors.invalid(&path, stored, &format!("must have the storage version {storage}"));
    }
    for (at, version) in list(stored).iter().enumerate() {
        if versions(definition).iter().any(|known| known["name"] == *version) {
            continue;
        }
        let name = text(version);
        let words = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a \
             storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.invalid(&path.index(at), name, &words);
    }
}

/// How the owners of a protected group have agreed to a definition.
#[derive(Debug, PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    Given,
}

fn approval_of(definition: &Value) -> Approval {
    let given = text(&definition["metadata"]["annotations"][APPROVED]);
    match given {
        "" => Approval::Missing,
        given if given.starts_with("unapproved") => Approval::Given,
        given => match given.split_once("://") {
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => Approval::Given,
            _ => Approval::Invalid,
        },
    }
}

fn approval(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let group = super::group(definition);
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|owner| group == *owner || group.ends_with(&format!(".{owner}")));
    let state = approval_of(definition);
    if !protected || old.is_some_and(|old| approval_of(old) == state) {
        return;
    }
    let metadata = Path::root("metadata");
    let annotations = metadata.child("annotations");
    let path = annotations.key(APPROVED);
    let link = "https://github.com/kubernetes/enhancements/pull/1111";
    match state {
        Approval::Missing => {
            errors.required(
                &path,
                &format!("protected groups must have approval annotation \"{APPROVED}\", see {link}"),
            );
        }
        Approval::Invalid => {
            let given = text(&definition["metadata"]["annotations"][APPROVED]);
            let words = format!(
                "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting with \
                 \"unapproved\", see {link}"
            );
            errors.invalid(&path, given, &words);
        }
        Approval::Given => {}
    }
}

/// The formats of a definition's schemas that mean nothing.
pub(crate) fn unrecognized_formats(definition: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let schemas: Vec<&Value> = match hoisted(definition, "schema") {
        Some(schema) => vec![schema],
        None => versions(definition).iter().map(|version| &version["schema"]).collect(),
    };
    schemas.into_iter().for_each(|schema| formats(&schema["openAPIV3Schema"], &mut out));
    out
}

fn formats(schema: &Value, out: &mut Vec<String>) {
    let format = text(&schema["format"]);
    if !format.is_empty() && !is_recognized_format(text(&schema["type"]), format) && out.len() < 100 {
        out.push(format.to_owned());
    }
    for part in ["items", "not", "additionalProperties"] {
        if schema[part].is_object() {
            formats(&schema[part], out);
        }
    }
    for part in ["allOf", "anyOf", "oneOf"] {
        list(&schema[part]).iter().for_each(|schema| formats(schema, out));
    }
    schema["properties"].as_object().into_iter().flatten().for_each(|(_, schema)| formats(schema, out));
}
