//! Rules of nodes: taints, ranges of addresses, and what they say they have.

use std::collections::HashSet;

use serde_json::Value;

use super::error::{Errors, Seen, Shown, list, text};
use super::{address, pod};
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

/// A node, new or changed.
pub(crate) fn node(object: &Value, errors: &mut Errors) {
    taints(&object["spec"]["taints"], errors);
    resources(&object["status"], errors);
    let swap = object["status"]["nodeInfo"]["swap"]["capacity"].as_i64();
    if let Some(swap) = swap.filter(|swap| *swap <= 0) {
        let metadata = Path::root("metadata");
        let here = metadata.child("nodeSwapStatus");
        errors.invalid(&here.child("capacity"), swap, "must be greater than zero");
    }
    features(&object["status"]["declaredFeatures"], errors);
    ranges(&object["spec"]["podCIDRs"], errors);
}

fn taints(taints: &Value, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    let path = metadata.child("taints");
    let mut seen = Seen::default();
    for (i, taint) in list(taints).iter().enumerate() {
        let here = path.index(i);
        let (key, effect, value) = (text(&taint["key"]), text(&taint["effect"]), text(&taint["value"]));
        errors.all_invalid(&here.child("key"), key, syntax::qualified_name(key));
        let complaints = syntax::label_value(value);
        if !complaints.is_empty() {
            errors.invalid(&here.child("value"), value, &complaints.join(";"));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        errors.one_of(&here.child("effect"), &taint["effect"], &effects);
        if seen.again((key, effect)) {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}",
                Value::from(key),
                Value::from(value),
                Value::from(effect),
                taint["timeAdded"],
            );
            errors.duplicate_because(&here, Shown(shown), "taints must be unique by key and effect pair");
        }
    }
}

fn resources(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    for field in ["capacity", "allocatable"] {
        let here = path.child(field);
        for (name, amount) in status[field].as_object().into_iter().flatten() {
            let Ok(quantity) = Quantity::parse(text(amount)) else { continue };
            if quantity.is_negative() {
                errors.invalid(&here.child(name), text(amount), "must be greater than or equal to 0");
            }
            if pod::is_counted(name) && !quantity.is_integer() {
                errors.invalid(&here.child(name), text(amount), "must be an integer");
            }
        }
    }
}

fn features(features: &Value, errors: &mut Errors) {
    const MOST: usize = 253;
    let status = Path::root("status");
    let path = status.child("declaredFeatures");
    let names: Vec<&str> = list(features).iter().map(text).collect();
    for (i, name) in names.iter().enumerate() {
        if name.len() > MOST {
            let words = format!("invalid feature name {name:?}: must be no more than {MOST} characters");
            errors.invalid(&path.index(i), *name, &words);
        } else if !is_feature(name) {
            let words = format!(
                "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            );
            errors.invalid(&path.index(i), *name, &words);
        }
        match names.get(i + 1) {
            Some(next) if next == name => errors.duplicate(&path.index(i + 1), *next),
            Some(next) if next < name => {
                errors.invalid(&path.index(i + 1), *next, "list must be sorted alphabetically");
            }
            _ => {}
        }
    }
}

fn is_feature(name: &str) -> bool {
    let word = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(word)
}

fn ranges(ranges: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let path = spec.child("podCIDRs");
    let cidrs: Vec<&str> = list(ranges).iter().map(text).collect();
    for (i, cidr) in cidrs.iter().enumerate() {
        address::legacy_range(cidr, &HashSet::new(), &path.index(i), errors);
    }
    let families: Vec<bool> =
        cidrs.iter().filter_map(|cidr| address::parse_range(cidr)).map(|range| range.is_v4()).collect();
    let both = families.contains(&true) && families.contains(&false) && families.len() == cidrs.len();
    if cidrs.len() > 1 && (!both || cidrs.len() > 2) {
        errors.invalid(&path, ranges, "may specify no more than one CIDR for each IP family");
    }
}

/// What changes in a node or its status; upstream looks at some of it a second time.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    resources(&new["status"], errors);
    features(&new["status"]["declaredFeatures"], errors);
    let status = Path::root("status");
    let path = status.child("addresses");
    let mut seen = Seen::default();
    for (i, address) in list(&new["status"]["addresses"]).iter().enumerate() {
        let (kind, value) = (text(&address["type"]), text(&address["address"]));
        if seen.again((kind, value)) {
            let shown = format!("{{\"Type\":{},\"Address\":{}}}", Value::from(kind), Value::from(value));
            errors.duplicate(&path.index(i), Shown(shown));
        }
    }
    let spec = Path::root("spec");
    let words = |field: &str| format!("node updates may not change {field} except from \"\" to valid");
    let (before, now) = (list(&old["spec"]["podCIDRs"]), list(&new["spec"]["podCIDRs"]));
    let changed = match before.len() {
        0 => 0,
        length if length != now.len() => 1,
        _ => before.iter().zip(now).filter(|(before, now)| before != now).count(),
    };
    for _ in 0..changed {
        errors.forbidden(&spec.child("podCIDRs"), &words("podCIDR"));
    }
    let (before, now) = (text(&old["spec"]["providerID"]), text(&new["spec"]["providerID"]));
    if !before.is_empty() && before != now {
        errors.forbidden(&spec.child("providerID"), &words("providerID"));
    }
    taints(&new["spec"]["taints"], errors);
    if text(&old["spec"]["externalID"]) != text(&new["spec"]["externalID"]) {
        errors.forbidden(&spec.child("externalID"), "may not be updated");
    }
}
