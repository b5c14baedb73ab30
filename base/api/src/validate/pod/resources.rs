//! Rules of resource names, requests and limits.

use serde_json::Value;

use super::super::error::{Errors, list, text};
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "storage",
    "pods",
    "services",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "resourcequotas",
    "replicationcontrollers",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_hugepages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && syntax::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether requests may be below limits.
fn overcommits(name: &str) -> bool {
    is_native(name) && !is_hugepages(name)
}

/// A resource name as nodes may have it.
pub(in crate::validate) fn resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = syntax::qualified_name(name);
    if complaints.is_empty() {
        if !name.contains('/') && !STANDARD.contains(&name) && !is_hugepages(name) {
            errors.invalid(path, name, "must be a standard resource type or fully qualified");
        }
    } else {
        errors.all_invalid(path, name, complaints);
    }
}

fn container_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    resource_name(name, path, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_hugepages(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// A list of amounts by resource name.
pub(super) fn amounts(amounts: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let here = path.key(name);
        container_resource_name(name, &here, errors);
        let Ok(quantity) = Quantity::parse(text(amount)) else { continue };
        if quantity.is_negative() {
            errors.invalid(&here, text(amount), "must be greater than or equal to 0");
        }
        if is_extended(name) && !quantity.is_integer() {
            errors.invalid(&here, text(amount), "must be an integer");
        }
    }
}

pub(super) fn requirements(resources: &Value, claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    amounts(&resources["limits"], &limits, errors);
    for (name, amount) in resources["requests"].as_object().into_iter().flatten() {
        let one = serde_json::json!({name: amount});
        amounts(&one, &requests, errors);
        let Ok(request) = Quantity::parse(text(amount)) else { continue };
        match resources["limits"].get(name).and_then(|l| Quantity::parse(text(l)).ok()) {
            Some(limit) if request != limit && !overcommits(name) => {
                errors.invalid(&requests, text(amount), &format!("must be equal to {name} limit of {limit}"));
            }
            Some(limit) if request > limit => {
                errors.invalid(
                    &requests,
                    text(amount),
                    &format!("must be less than or equal to {name} limit of {limit}"),
                );
            }
            None if !overcommits(name) => {
                errors.required(&limits, "Limit must be set for non overcommitable resources")
            }
            _ => {}
        }
    }
    let here = path.child("claims");
    let given = list(&resources["claims"]);
    for (i, claim) in given.iter().enumerate() {
        let name = text(&claim["name"]);
        if name.is_empty() {
            errors.required(&here.index(i).child("name"), "");
        } else if given[..i].iter().any(|c| c == claim) {
            errors.duplicate(&here.index(i), name);
        } else if !claims.contains(&name) {
            errors.not_found(&here.index(i), name);
        }
    }
    let any = |name: &str| ["limits", "requests"].iter().any(|l| resources[*l].get(name).is_some());
    let huge = ["limits", "requests"]
        .iter()
        .any(|l| resources[*l].as_object().is_some_and(|m| m.keys().any(|k| is_hugepages(k))));
    if huge && !any("cpu") && !any("memory") {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

/// A reference to a container's own requests or limits.
pub(super) fn field_ref(reference: &Value, in_volume: bool, path: &Path<'_>, errors: &mut Errors) {
    const KNOWN: &[&str] = &[
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = text(&reference["resource"]);
    if in_volume && text(&reference["containerName"]).is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !KNOWN.contains(&resource)
        && !["limits.hugepages-", "requests.hugepages-"].iter().any(|p| resource.starts_with(p))
    {
        errors.not_supported(&path.child("resource"), resource, KNOWN);
    }
}
