//! Rules of resource names, requests and limits.

use std::collections::HashSet;

use serde_json::Value;

use super::super::error::{Errors, Seen, list, text};
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

fn is_quota_hugepages(name: &str) -> bool {
    is_hugepages(name) || name.starts_with("requests.hugepages-")
}

/// Whether a resource is one of Kubernetes' own.
pub(in crate::validate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource is one that a node advertises beyond its own.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && syntax::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether a node has pieces of it, and no parts of pieces.
pub(in crate::validate) fn is_counted(name: &str) -> bool {
    const COUNTED: &[&str] = &[
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTED.contains(&name) || is_extended(name)
}

/// Whether requests may be below limits.
pub(in crate::validate) fn overcommits(name: &str) -> bool {
    is_native(name) && !is_hugepages(name)
}

/// A resource name as nodes may have it.
pub(in crate::validate) fn resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = syntax::qualified_name(name);
    if complaints.is_empty() {
        if !name.contains('/') && !STANDARD.contains(&name) && !is_quota_hugepages(name) {
            errors.invalid(path, name, "must be a standard resource type or fully qualified");
        }
    } else {
        errors.all_invalid(path, name, complaints);
    }
}

/// A resource name as containers may have it.
pub(in crate::validate) fn container_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
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
pub(in crate::validate) fn amounts(amounts: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let here = path.key(name);
        container_resource_name(name, &here, errors);
        let Ok(quantity) = Quantity::parse(text(amount)) else { continue };
        if quantity.is_negative() {
            errors.invalid(&here, text(amount), "must be greater than or equal to 0");
        }
        if let Some(size) = name.strip_prefix("hugepages-").and_then(|s| Quantity::parse(s).ok())
            && (size.value() <= 0 || quantity.value() % size.value() != 0)
        {
            errors.invalid(
                &here,
                text(amount),
                &format!("{quantity} is not positive integer multiple of {name}"),
            );
        }
        if is_extended(name) && !quantity.is_integer() {
            errors.invalid(&here, text(amount), "must be an integer");
        }
    }
}

/// The claims that a pod names.
pub(super) struct Claims<'a> {
    names: Vec<&'a str>,
    known: HashSet<&'a str>,
}

impl<'a> Claims<'a> {
    pub(super) fn of(spec: &'a Value) -> Claims<'a> {
        let names: Vec<&str> = list(&spec["resourceClaims"]).iter().map(|c| text(&c["name"])).collect();
        Claims { known: names.iter().copied().collect(), names }
    }
}

pub(super) fn requirements(resources: &Value, claims: &Claims<'_>, path: &Path<'_>, errors: &mut Errors) {
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
    let mut seen = Seen::default();
    for (i, claim) in given.iter().enumerate() {
        let name = text(&claim["name"]);
        if name.is_empty() {
            errors.required(&here.index(i), "");
            continue;
        }
        if seen.again((name, text(&claim["request"]))) {
            errors.duplicate(&here.index(i), name);
        }
        if !claims.known.contains(name) && !errors.are_full() {
            let known = if claims.names.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", claims.names.join(", "))
            };
            let words = format!("must be one of the names in pod.spec.resourceClaims{known}");
            errors.not_found_because(&here.index(i), name, &words);
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
    divisor(reference, resource, path, errors);
}

fn divisor(reference: &Value, resource: &str, path: &Path<'_>, errors: &mut Errors) {
    const SIZES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let Some(given) =
        reference["divisor"].as_str().and_then(|d| Quantity::parse(d).ok()).filter(|d| !d.is_zero())
    else {
        return;
    };
    let name = resource.split_once('.').map_or("", |(_, name)| name);
    let (allowed, words) = match name {
        "cpu" => ("1m 1", "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()),
        "memory" => (SIZES, format!("only divisor's values {SIZES} memory resource")),
        "ephemeral-storage" => {
            (SIZES, format!("only divisor's values {SIZES} local ephemeral storage resource"))
        }
        n if is_hugepages(n) => (SIZES, format!("only divisor's values {SIZES} hugepages resource")),
        _ => return,
    };
    let shown = given.to_string();
    if !allowed.split([' ', ',']).any(|a| a == shown) {
        errors.invalid(&path.child("divisor"), resource, &words);
    }
}

/// Requests and limits of the pod as a whole.
pub(super) fn of_pod(spec: &Value, claims: &Claims<'_>, path: &Path<'_>, errors: &mut Errors) {
    let resources = &spec["resources"];
    if !resources.is_object() {
        return;
    }
    if !resources["claims"].is_null() {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    let mut known = resources.clone();
    for side in ["limits", "requests"] {
        let here = path.child(side);
        let Some(amounts) = known.get_mut(side).and_then(Value::as_object_mut) else { continue };
        amounts.retain(|name, _| {
            let fine = matches!(name.as_str(), "cpu" | "memory") || is_hugepages(name);
            if !fine {
                errors.not_supported(&here.key(name), name.as_str(), &["cpu", "hugepages-", "memory"]);
            }
            fine
        });
    }
    requirements(&known, claims, path, errors);
}
