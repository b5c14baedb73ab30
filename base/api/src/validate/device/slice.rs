//! Rules of slices: what a driver says its devices are.

use serde_json::Value;

use super::capacity::{capacity, node_resources};
use super::{EFFECTS, LONGEST_LABEL, LONGEST_QUALIFIED, binding_conditions, each, entries, label};
use super::{label_name, meta, named, node_name, node_selector, pool_name, qualified_name, shown};
use crate::path::Path;
use crate::syntax;
use crate::validate::error::{Errors, Shown, list, text};
use crate::validate::volume::driver_name;

const MOST_DEVICES: usize = 128;
/// So many where one has taints, counters, or lists of values.
const MOST_COMPLEX_DEVICES: usize = 64;
const MOST_FACTS: usize = 32;
const MOST_VALUES: usize = 48;
const LONGEST_VALUE: usize = 64;
const MOST_TAINTS: usize = 16;
const MOST_COUNTER_SETS: usize = 8;
const MOST_COUNTERS: usize = 32;
const MOST_CONSUMED_SETS: usize = 2;
/// Attributes that have many values.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// A new slice.
pub(crate) fn slice_object(object: &Value, errors: &mut Errors) {
    slice(&object["spec"], &Value::Null, errors);
}

/// A slice that was changed: it stays with its driver, pool and node.
pub(crate) fn slice_change(new: &Value, old: &Value, errors: &mut Errors) {
    meta::update_known(new, old, errors);
    slice(&new["spec"], &old["spec"], errors);
}

fn slice(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    driver_name(text(&spec["driver"]), &path.child("driver"), errors);
    pool(&spec["pool"], &path.child("pool"), errors);
    if old.is_object() {
        let here = path.child("pool");
        errors.immutable(&here.child("name"), &spec["pool"]["name"], &old["pool"]["name"]);
        for field in ["driver", "nodeName"] {
            errors.immutable(&path.child(field), &spec[field], &old[field]);
        }
    }
    reached_from(spec, &path, errors);
    if !spec["sharedCounters"].is_null() && !spec["devices"].is_null() {
        errors.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = list(&spec["devices"]);
    let most = if devices.iter().any(is_complex) { MOST_COMPLEX_DEVICES } else { MOST_DEVICES };
    let by_device = spec["perDeviceNodeSelection"] == true;
    named(&spec["devices"], "name", most, &path.child("devices"), errors, |one, path, errors| {
        let before = list(&old["devices"]).iter().find(|before| text(&before["name"]) == text(&one["name"]));
        device(one, before, by_device, path, errors);
    });
    let here = path.child("sharedCounters");
    named(&spec["sharedCounters"], "name", MOST_COUNTER_SETS, &here, errors, |one, path, errors| {
        counter_set(one, "name", path, errors);
    });
}

fn is_complex(device: &Value) -> bool {
    let has = |field: &str| !list(&device[field]).is_empty();
    let mut attributes = device["attributes"].as_object().into_iter().flatten();
    has("taints")
        || has("consumesCounters")
        || attributes.any(|(_, value)| LISTS.iter().any(|list| !value[*list].is_null()))
}

fn pool(pool: &Value, path: &Path<'_>, errors: &mut Errors) {
    pool_name(text(&pool["name"]), &path.child("name"), errors);
    let number = |field: &str| pool[field].as_i64().unwrap_or(0);
    let (count, generation) = (number("resourceSliceCount"), number("generation"));
    if count <= 0 {
        errors.invalid(&path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    if generation < 0 {
        errors.invalid(&path.child("generation"), generation, "must be greater than or equal to zero");
    }
}

/// Exactly one way to say which nodes reach the devices.
fn reached_from(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut given = nodes(spec, "must be either unset or set to a non-empty string", true, path, errors);
    flag("perDeviceNodeSelection", "`perDeviceNodeSelection`", spec, &mut given, path, errors);
    match given.len() {
        0 => errors.required(path, ONE),
        1 => {}
        _ => {
            let words = format!("{ONE}, but multiple fields are set");
            errors.invalid(path, format!("{{{}}}", given.join(", ")).as_str(), &words);
        }
    }
}

/// What a slice or a device says about the nodes that reach it: the fields that are set.
fn nodes(
    given: &Value,
    unnamed: &str,
    one_term: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Vec<&'static str> {
    let mut set = Vec::new();
    match given["nodeName"].as_str() {
        None => {}
        Some("") => errors.invalid(&path.child("nodeName"), "", unnamed),
        Some(name) => {
            set.push("`nodeName`");
            node_name(name, &path.child("nodeName"), errors);
        }
    }
    let (selector, here) = (&given["nodeSelector"], path.child("nodeSelector"));
    if selector.is_object() {
        set.push("`nodeSelector`");
        node_selector(selector, &here, errors);
        let terms = &selector["nodeSelectorTerms"];
        if one_term && list(terms).len() != 1 {
            let here = here.child("nodeSelectorTerms");
            errors.invalid(&here, shown::node_terms(terms), "must have exactly one node selector term");
        }
    }
    flag("allNodes", "`allNodes`", given, &mut set, path, errors);
    set
}

/// A flag that is only ever set.
fn flag(
    field: &str,
    shown: &'static str,
    given: &Value,
    set: &mut Vec<&'static str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match given[field].as_bool() {
        Some(true) => set.push(shown),
        Some(false) => {
            errors.invalid(&path.child(field), &given[field], "must be either unset or set to true");
        }
        None => {}
    }
}

fn device(device: &Value, before: Option<&Value>, by_device: bool, path: &Path<'_>, errors: &mut Errors) {
    label(text(&device["name"]), &path.child("name"), errors);
    how_much(device, path, errors);
    let here = path.child("attributes");
    entries(&device["attributes"], LONGEST_QUALIFIED, &here, errors, qualified_name, attribute);
    let shares = device["allowMultipleAllocations"] == true;
    let here = path.child("capacity");
    entries(&device["capacity"], LONGEST_QUALIFIED, &here, errors, qualified_name, |one, path, errors| {
        capacity(one, shares, path, errors);
    });
    if before.is_none_or(|before| before["taints"] != device["taints"]) {
        each(&device["taints"], MOST_TAINTS, &path.child("taints"), errors, taint);
    }
    let here = path.child("consumesCounters");
    named(
        &device["consumesCounters"],
        "counterSet",
        MOST_CONSUMED_SETS,
        &here,
        errors,
        |one, path, errors| {
            counter_set(one, "counterSet", path, errors);
        },
    );
    device_nodes(device, by_device, path, errors);
    binding_conditions(device, path, errors);
    let here = path.child("nodeAllocatableResourceMappings");
    node_resources(&device["nodeAllocatableResourceMappings"], &device["capacity"], &here, errors);
}

/// How many facts and values a device may have.
fn how_much(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let size = |field: &str| device[field].as_object().map_or(0, serde_json::Map::len);
    let values =
        |attribute: &Value| LISTS.iter().map(|key| list(&attribute[*key]).len()).sum::<usize>().max(1);
    let attributes = device["attributes"].as_object().into_iter().flatten();
    let all = [
        (size("attributes") + size("capacity"), MOST_FACTS, "attributes and capacities"),
        (attributes.map(|(_, one)| values(one)).sum(), MOST_VALUES, "attribute values"),
    ];
    for (given, most, what) in all {
        if given > most {
            let words = format!("the total number of {what} must not exceed {most}");
            errors.invalid(path, Shown(given.to_string()), &words);
        }
    }
}

fn attribute(attribute: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ONES: [&str; 4] = ["bool", "int", "string", "version"];
    let is_given = |key: &&&str| !attribute[**key].is_null();
    let given = ONES.iter().chain(&LISTS).filter(is_given).count();
    string(&attribute["string"], &path.child("string"), errors);
    version(&attribute["version"], &path.child("version"), errors);
    for (key, one) in [("strings", string as fn(&Value, &Path<'_>, &mut Errors)), ("versions", version)] {
        let here = path.child(key);
        for (i, item) in list(&attribute[key]).iter().enumerate() {
            one(item, &here.index(i), errors);
        }
    }
    let words = "exactly one value must be specified";
    match given {
        0 => errors.invalid(path, "", words),
        1 => {}
        _ => errors.invalid(path, shown::attribute(attribute), words),
    }
}

fn string(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(value).len() > LONGEST_VALUE {
        errors.too_long(path, LONGEST_VALUE);
    }
}

fn version(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(version) = value.as_str() else { return };
    if !syntax::is_semantic_version(version) {
        errors.invalid(path, version, "must be a string compatible with semver.org spec 2.0.0");
    }
    string(value, path, errors);
}

fn taint(taint: &Value, path: &Path<'_>, errors: &mut Errors) {
    label_name(text(&taint["key"]), &path.child("key"), errors);
    let value = text(&taint["value"]);
    errors.all_invalid(&path.child("value"), value, syntax::label_value(value));
    errors.one_of(&path.child("effect"), &taint["effect"], EFFECTS);
}

/// Counters of a set, or what a device takes of them.
fn counter_set(set: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    match text(&set[name]) {
        "" => errors.required(&path.child(name), ""),
        given => label(given, &path.child(name), errors),
    }
    let here = path.child("counters");
    match set["counters"].as_object().map_or(0, serde_json::Map::len) {
        0 => errors.required(&here, ""),
        given if given > MOST_COUNTERS => errors.too_many(&here, given, MOST_COUNTERS),
        _ => entries(&set["counters"], LONGEST_LABEL, &here, errors, label, |_, _, _| {}),
    }
}

/// Which nodes reach a device, where each says so for itself.
fn device_nodes(device: &Value, by_device: bool, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if by_device {
        let given = nodes(device, "must not be empty", false, path, errors);
        match given.len() {
            0 => errors.required(path, ONE),
            1 => {}
            _ => errors.invalid(path, format!("{{{}}}", given.join(", ")).as_str(), ONE),
        }
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| !device[*field].is_null()) {
        let words = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        errors.invalid(path, &Value::Null, words);
    }
}
