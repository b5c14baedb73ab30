//! Rules of pods: the spec as a whole, and which parts live in which file below.

mod container;
mod probe;
pub(in crate::validate) mod resources;
mod scheduling;
mod security;
mod update;
mod volume;

use serde_json::Value;

use super::error::{Errors, Internal, Seen, list, text};
use super::meta;
use crate::path::Path;
use crate::syntax;

pub(super) use probe::port_or_name;
pub(super) use resources::{amounts, container_resource_name, is_counted, is_native};
pub(super) use scheduling::{node_selector, tolerations};
pub(crate) use update::{update, update_ephemeral, update_resize, update_status};
pub(super) use volume::{host_path, no_backsteps};

const CLAIM: &[(&str, &str)] = &[
    ("Name", "name"),
    ("ResourceClaimName", "resourceClaimName"),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName"),
];

/// A pod object.
pub(crate) fn pod(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    spec(&object["spec"], &path, errors);
    let given = &object["spec"];
    if given["hostNetwork"] == true {
        let containers = path.child("containers");
        for (i, container) in list(&given["containers"]).iter().enumerate() {
            let here = containers.index(i);
            let ports = here.child("ports");
            for (j, port) in list(&container["ports"]).iter().enumerate() {
                let host = port["hostPort"].as_i64().unwrap_or(0);
                if port["containerPort"].as_i64().unwrap_or(0) != host {
                    let words = "must match `containerPort` when `hostNetwork` is true";
                    errors.invalid(&ports.index(j).child("hostPort"), host, words);
                }
            }
        }
    }
    if text(&given["serviceAccountName"]).is_empty() {
        let volumes = path.child("volumes");
        for (i, volume) in list(&given["volumes"]).iter().enumerate() {
            let here = volumes.index(i);
            let projected = here.child("projected");
            let sources = projected.child("sources");
            for (j, source) in list(&volume["projected"]["sources"]).iter().enumerate() {
                if source["serviceAccountToken"].is_object() {
                    let words = "must not be specified when serviceAccountName is not set";
                    errors.forbidden(&sources.index(j).child("serviceAccountToken"), words);
                }
            }
        }
    }
    for field in ["containers", "initContainers"] {
        let list_path = path.child(field);
        for (i, container) in list(&given[field]).iter().enumerate() {
            let image = text(&container["image"]);
            if image.trim() != image {
                let words = "must not have leading or trailing whitespace";
                errors.invalid(&list_path.index(i).child("image"), image, words);
            }
        }
    }
}

/// What only a new pod must respect.
pub(crate) fn only_on_create(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if !list(&spec["ephemeralContainers"]).is_empty() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(&spec["nodeName"]).is_empty() && !list(&spec["schedulingGates"]).is_empty() {
        errors
            .forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// A pod spec, of a pod or of a template.
pub(crate) fn spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if spec["terminationGracePeriodSeconds"].is_null() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::volumes(&spec["volumes"], &path.child("volumes"), errors);
    claims(spec, path, errors);
    let claims = resources::Claims::of(spec);
    let context = container::Context { spec, volumes: &volumes, claims: &claims };
    context.containers(&path.child("containers"), errors);
    context.init_containers(&path.child("initContainers"), errors);
    context.ephemeral_containers(&path.child("ephemeralContainers"), errors);
    resources::of_pod(spec, &claims, &path.child("resources"), errors);
    errors.one_of(&path.child("restartPolicy"), &spec["restartPolicy"], &["Always", "OnFailure", "Never"]);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(&path.child("dnsPolicy"), &spec["dnsPolicy"], &policies);
    meta::labels(&spec["nodeSelector"], &path.child("nodeSelector"), errors);
    security::pod(spec, path, errors);
    scheduling::affinity(&spec["affinity"], &path.child("affinity"), errors);
    dns_config(spec, path, errors);
    scheduling::gates(spec, path, errors);
    scheduling::spread(&spec["topologySpreadConstraints"], &path.child("topologySpreadConstraints"), errors);
    names(spec, path, errors);
    scheduling::tolerations(&spec["tolerations"], &path.child("tolerations"), errors);
    host_aliases(&spec["hostAliases"], &path.child("hostAliases"), errors);
    if !spec["preemptionPolicy"].is_null() {
        errors.one_of(
            &path.child("preemptionPolicy"),
            &spec["preemptionPolicy"],
            &["PreemptLowerPriority", "Never"],
        );
    }
    if spec["overhead"].is_object() {
        resources::amounts(&spec["overhead"], &path.child("overhead").child("limits"), errors);
    }
    match text(&spec["os"]["name"]) {
        "" if spec["os"].is_object() => errors.required(&path.child("os").child("name"), ""),
        "" | "linux" | "windows" => {}
        other => errors.not_supported(&path.child("os"), other, &["linux", "windows"]),
    }
}

fn names(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    type Rule = fn(&str) -> Vec<String>;
    let rules: [(&str, Rule); 6] = [
        ("serviceAccountName", syntax::dns_subdomain),
        ("nodeName", syntax::dns_subdomain),
        ("hostname", syntax::dns_label),
        ("subdomain", syntax::dns_label),
        ("priorityClassName", syntax::dns_subdomain),
        ("runtimeClassName", syntax::dns_subdomain),
    ];
    for (field, rule) in rules {
        let value = text(&spec[field]);
        if !value.is_empty() || spec[field].is_string() && field == "runtimeClassName" {
            errors.all_invalid(&path.child(field), value, rule(value));
        }
    }
    if let Some(name) = spec["hostnameOverride"].as_str() {
        let here = path.child("hostnameOverride");
        for (field, words) in [("setHostnameAsFQDN", "setHostnameAsFQDN"), ("hostNetwork", "hostNetwork")] {
            if spec[field] == true {
                errors.forbidden(&here, &format!("may not be specified when {words} is true"));
            }
        }
        if name.len() > 64 {
            errors.too_long(&here, 64);
        }
        errors.all_invalid(&here, name, syntax::dns_subdomain(name));
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.invalid(
            &path.child("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
}

fn claims(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("resourceClaims");
    let claims = list(&spec["resourceClaims"]);
    let mut seen = Seen::default();
    for (i, claim) in claims.iter().enumerate() {
        let here = path.index(i);
        let name = text(&claim["name"]);
        let again = seen.again(name);
        if name.is_empty() {
            errors.required(&here.child("name"), "");
        } else if again {
            errors.duplicate(&here.child("name"), name);
        } else {
            errors.all_invalid(&here.child("name"), name, syntax::dns_label(name));
        }
        match (claim["resourceClaimName"].as_str(), claim["resourceClaimTemplateName"].as_str()) {
            (Some(_), Some(_)) => {
                errors.invalid(
                    &here,
                    Internal(claim, CLAIM),
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
                );
            }
            (None, None) => {
                errors.invalid(
                    &here,
                    Internal(claim, CLAIM),
                    "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
                );
            }
            (Some(given), None) => {
                errors.all_invalid(&here.child("resourceClaimName"), given, syntax::dns_subdomain(given))
            }
            (None, Some(given)) => {
                errors.all_invalid(
                    &here.child("resourceClaimTemplateName"),
                    given,
                    syntax::dns_subdomain(given),
                );
            }
        }
    }
}

fn dns_config(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("dnsConfig");
    let config = &spec["dnsConfig"];
    let servers = list(&config["nameservers"]);
    if text(&spec["dnsPolicy"]) == "None" {
        if config.is_null() {
            errors.required(&path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let words = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&path.child("nameservers"), words);
            return;
        }
    }
    if servers.len() > 3 {
        errors.invalid(
            &path.child("nameservers"),
            &config["nameservers"],
            "must not have more than 3 nameservers",
        );
    }
    let here = path.child("nameservers");
    for (i, server) in servers.iter().enumerate() {
        ip(text(server), &here.index(i), errors);
    }
    let searches = list(&config["searches"]);
    if searches.len() > 32 {
        errors.invalid(
            &path.child("searches"),
            &config["searches"],
            "must not have more than 32 search paths",
        );
    }
    let here = path.child("searches");
    for (i, search) in searches.iter().enumerate().filter(|(_, s)| text(s) != ".") {
        let name = text(search).trim_end_matches('.');
        errors.all_invalid(&here.index(i), name, syntax::dns_search(name));
    }
    let here = path.child("options");
    for (i, _) in list(&config["options"]).iter().enumerate().filter(|(_, o)| text(&o["name"]).is_empty()) {
        errors.required(&here.index(i), "must not be empty");
    }
}

fn host_aliases(aliases: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, alias) in list(aliases).iter().enumerate() {
        let here = path.index(i);
        ip(text(&alias["ip"]), &here.child("ip"), errors);
        let names = here.child("hostnames");
        for (j, name) in list(&alias["hostnames"]).iter().enumerate() {
            errors.all_invalid(&names.index(j), text(name), syntax::dns_subdomain(text(name)));
        }
    }
}

fn ip(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.parse::<std::net::IpAddr>().is_err() {
        errors.invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
}
