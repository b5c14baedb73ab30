//! Rules of dynamic resource allocation: claims, claim templates, device classes and slices.

use serde_json::Value;

use super::error::{Errors, Seen, list, text};
use crate::path::Path;
use crate::syntax;

const MOST_REQUESTS: usize = 32;
const MOST_DEVICES: usize = 128;
const MOST_FACTS: usize = 32;

pub(crate) fn claim_object(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    claim(&object["spec"]["devices"], &spec.child("devices"), errors);
}

pub(crate) fn claim_template(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let inner = spec.child("spec");
    claim(&object["spec"]["spec"]["devices"], &inner.child("devices"), errors);
}

/// Neither a claim nor its template changes once it is stored.
pub(crate) fn claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable(&Path::root("spec"), &new["spec"], &old["spec"]);
}

pub(crate) fn class(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    selectors(&object["spec"]["selectors"], &spec.child("selectors"), errors);
    configs(&object["spec"]["config"], &spec.child("config"), errors);
}

pub(crate) fn slice_object(object: &Value, errors: &mut Errors) {
    slice(&object["spec"], &Path::root("spec"), errors);
}

/// A slice stays with its driver, pool and node.
pub(crate) fn slice_update(new: &Value, old: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let pool = spec.child("pool");
    errors.immutable(&pool.child("name"), &new["spec"]["pool"]["name"], &old["spec"]["pool"]["name"]);
    for field in ["driver", "nodeName"] {
        errors.immutable(&spec.child(field), &new["spec"][field], &old["spec"][field]);
    }
}

fn too_many(given: usize, most: usize, path: &Path<'_>, errors: &mut Errors) {
    if given > most {
        errors.too_many(path, given, most);
    }
}

fn label(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(value) {
        "" => errors.required(path, ""),
        name => errors.all_invalid(path, name, syntax::dns_label(name)),
    }
}

fn unique<'a>(
    items: &'a [Value],
    path: &Path<'_>,
    errors: &mut Errors,
    mut each: impl FnMut(&'a Value, &Path<'_>, &mut Errors),
) {
    let mut seen = Seen::default();
    for (i, item) in items.iter().enumerate() {
        let here = path.index(i);
        each(item, &here, errors);
        let name = text(&item["name"]);
        if seen.again(name) {
            errors.duplicate(&here, name);
        }
    }
}

fn claim(devices: &Value, path: &Path<'_>, errors: &mut Errors) {
    let requests = list(&devices["requests"]);
    let here = path.child("requests");
    too_many(requests.len(), MOST_REQUESTS, &here, errors);
    unique(requests, &here, errors, request);
    let names: Vec<String> = requests
        .iter()
        .flat_map(|r| {
            let name = text(&r["name"]).to_owned();
            let below = list(&r["firstAvailable"])
                .iter()
                .map(|s| format!("{name}/{}", text(&s["name"])))
                .collect::<Vec<_>>();
            std::iter::once(name).chain(below)
        })
        .collect();
    for field in ["constraints", "config"] {
        let here = path.child(field);
        for (i, entry) in list(&devices[field]).iter().enumerate() {
            let at = here.index(i);
            let requests = at.child("requests");
            for (j, name) in list(&entry["requests"])
                .iter()
                .enumerate()
                .filter(|(_, n)| !names.iter().any(|k| k == text(n)))
            {
                let words = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
                errors.invalid(&requests.index(j), text(name), words);
            }
            if field == "constraints"
                && entry["matchAttribute"].is_null()
                && entry["distinctAttribute"].is_null()
            {
                errors.required(&at.child("matchAttribute"), "");
            }
        }
    }
    configs(&devices["config"], &path.child("config"), errors);
}

fn request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    label(&request["name"], &path.child("name"), errors);
    let alternatives = list(&request["firstAvailable"]);
    match (request["exactly"].is_object(), !alternatives.is_empty()) {
        (false, false) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let words =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(path, &Value::Null, words);
        }
        (true, false) => exact(&request["exactly"], &path.child("exactly"), errors),
        (false, true) => {
            let here = path.child("firstAvailable");
            unique(alternatives, &here, errors, |sub, at, errors| {
                label(&sub["name"], &at.child("name"), errors);
                exact(sub, at, errors);
            });
        }
    }
}

fn exact(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(&request["deviceClassName"]) {
        "" => errors.required(&path.child("deviceClassName"), ""),
        name => errors.all_invalid(&path.child("deviceClassName"), name, syntax::dns_subdomain(name)),
    }
    selectors(&request["selectors"], &path.child("selectors"), errors);
    let count = request["count"].as_i64().unwrap_or(0);
    match text(&request["allocationMode"]) {
        "All" if count != 0 => {
            errors.invalid(&path.child("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => {
            errors.invalid(&path.child("count"), count, "must be greater than zero")
        }
        "All" | "ExactCount" => {}
        other => errors.not_supported(&path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
}

fn selectors(selectors: &Value, path: &Path<'_>, errors: &mut Errors) {
    too_many(list(selectors).len(), MOST_REQUESTS, path, errors);
    for (i, selector) in list(selectors).iter().enumerate() {
        let here = path.index(i);
        if !selector["cel"].is_object() {
            errors.required(&here.child("cel"), "");
        } else if text(&selector["cel"]["expression"]).is_empty() {
            errors.required(&here.child("cel").child("expression"), "");
        }
    }
}

fn configs(configs: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, config) in list(configs).iter().enumerate() {
        let here = path.index(i);
        let opaque = &config["opaque"];
        if !opaque.is_object() {
            errors.required(&here.child("opaque"), "");
            continue;
        }
        let at = here.child("opaque");
        driver(&opaque["driver"], &at.child("driver"), errors);
        if opaque["parameters"].is_null() {
            errors.required(&at.child("parameters"), "");
        } else if !opaque["parameters"].is_object() {
            errors.invalid(&at.child("parameters"), "<value omitted>", "must be a valid JSON object");
        }
    }
}

fn driver(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(value);
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.all_invalid(path, name, syntax::dns_subdomain(&name.to_lowercase()));
}

fn slice(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    driver(&spec["driver"], &path.child("driver"), errors);
    let pool = path.child("pool");
    match text(&spec["pool"]["name"]) {
        "" => errors.required(&pool.child("name"), ""),
        name => {
            for part in name.split('/') {
                errors.all_invalid(&pool.child("name"), part, syntax::dns_subdomain(part));
            }
        }
    }
    let count = spec["pool"]["resourceSliceCount"].as_i64().unwrap_or(0);
    if count <= 0 {
        errors.invalid(&pool.child("resourceSliceCount"), count, "must be greater than zero");
    }
    if let Some(generation) = spec["pool"]["generation"].as_i64().filter(|g| *g < 0) {
        errors.invalid(&pool.child("generation"), generation, "must be greater than or equal to zero");
    }
    where_from(spec, path, errors);
    let devices = list(&spec["devices"]);
    too_many(devices.len(), MOST_DEVICES, &path.child("devices"), errors);
    unique(devices, &path.child("devices"), errors, device);
}

/// Exactly one way to say which nodes reach the devices.
fn where_from(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut given = Vec::new();
    if let Some(name) = spec["nodeName"].as_str() {
        if name.is_empty() {
            errors.invalid(
                &path.child("nodeName"),
                name,
                "must be either unset or set to a non-empty string",
            );
        } else {
            given.push("`nodeName`");
            errors.all_invalid(&path.child("nodeName"), name, syntax::dns_subdomain(name));
        }
    }
    if spec["nodeSelector"].is_object() {
        given.push("`nodeSelector`");
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match spec[field].as_bool() {
            Some(true) => given.push(shown),
            Some(false) => {
                errors.invalid(&path.child(field), &spec[field], "must be either unset or set to true")
            }
            None => {}
        }
    }
    match given.len() {
        0 => errors.required(path, ONE),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", given.join(", "));
            errors.invalid(path, &shown, &format!("{ONE}, but multiple fields are set"));
        }
    }
}

fn device(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    label(&device["name"], &path.child("name"), errors);
    let size = |field: &str| device[field].as_object().map_or(0, serde_json::Map::len);
    let facts = size("attributes") + size("capacity");
    if facts > MOST_FACTS {
        let words = format!("the total number of attributes and capacities must not exceed {MOST_FACTS}");
        errors.invalid(path, i64::try_from(facts).unwrap_or(i64::MAX), &words);
    }
    let attributes = path.child("attributes");
    for (name, value) in device["attributes"].as_object().into_iter().flatten() {
        let here = attributes.key(name);
        let kinds = ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];
        match kinds.iter().filter(|k| !value[**k].is_null()).count() {
            0 => errors.invalid(&here, "", "exactly one value must be specified"),
            1 => {}
            _ => errors.invalid(&here, value, "exactly one value must be specified"),
        }
    }
}
