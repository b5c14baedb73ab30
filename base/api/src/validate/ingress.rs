//! Rules of ingresses and their classes.

use std::collections::HashSet;

use serde_json::Value;

use super::address;
use super::error::{Errors, list, text};
use crate::path::Path;
use crate::syntax;

/// The annotation that named the class before there was a field for it.
const CLASS: &str = "kubernetes.io/ingress.class";
const NO_ADDRESS: &str = "must be a DNS name, not an IP address";

/// What of the stored ingress is let be.
#[derive(Default)]
struct Before {
    /// Names of secrets are.
    secrets: bool,
    /// Rules for hosts with a wildcard are.
    wildcards: bool,
}

/// A new ingress.
pub(crate) fn create(object: &Value, errors: &mut Errors) {
    ingress(object, &Before::default(), errors);
    let annotation = object["metadata"]["annotations"][CLASS].as_str();
    let class = object["spec"]["ingressClassName"].as_str();
    if let (Some(annotation), Some(class)) = (annotation, class)
        && annotation != class
    {
        let root = Path::root("annotations");
        errors.invalid(
            &root.child(CLASS),
            annotation,
            "must match `ingressClassName` when both are specified",
        );
    }
}

/// A changed ingress: what was there before it was looked at so closely may stay.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let spec = &old["spec"];
    let bad_secret = |tls: &Value| {
        let name = text(&tls["secretName"]);
        !name.is_empty() && !syntax::dns_subdomain(name).is_empty()
    };
    let bad_rule = |rule: &Value| {
        let mut errors = Errors::default();
        paths(&rule["http"], &Path::root(""), &mut errors);
        text(&rule["host"]).contains('*') && !errors.is_empty()
    };
    let before = Before {
        secrets: list(&spec["tls"]).iter().any(bad_secret),
        wildcards: list(&spec["rules"]).iter().any(bad_rule),
    };
    ingress(new, &before, errors);
}

fn ingress(object: &Value, before: &Before, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if list(&spec["rules"]).is_empty() && spec["defaultBackend"].is_null() {
        errors.invalid(&path, &spec["rules"], "either `defaultBackend` or `rules` must be specified");
    }
    if spec["defaultBackend"].is_object() {
        backend(&spec["defaultBackend"], &path.child("defaultBackend"), errors);
    }
    let here = path.child("rules");
    for (i, rule) in list(&spec["rules"]).iter().enumerate() {
        rule_of(rule, before, &here.index(i), errors);
    }
    let here = path.child("tls");
    for (i, tls) in list(&spec["tls"]).iter().enumerate() {
        let at = here.index(i);
        let hosts = at.child("hosts");
        for (j, host) in list(&tls["hosts"]).iter().map(text).enumerate() {
            errors.all_invalid(&hosts.index(j), host, host_complaints(host));
        }
        let secret = text(&tls["secretName"]);
        if !before.secrets && !secret.is_empty() {
            errors.all_invalid(&at.child("secretName"), secret, syntax::dns_subdomain(secret));
        }
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        errors.all_invalid(&path.child("ingressClassName"), class, syntax::dns_subdomain(class));
    }
}

fn host_complaints(host: &str) -> Vec<String> {
    if host.contains('*') { syntax::wildcard_subdomain(host) } else { syntax::dns_subdomain(host) }
}

fn rule_of(rule: &Value, before: &Before, path: &Path<'_>, errors: &mut Errors) {
    let (here, host) = (path.child("host"), text(&rule["host"]));
    if !host.is_empty() {
        if address::parse(host).is_some() {
            errors.invalid(&here, host, NO_ADDRESS);
        }
        errors.all_invalid(&here, host, host_complaints(host));
    }
    if !(before.wildcards && host.contains('*')) {
        paths(&rule["http"], path, errors);
    }
}

fn paths(http: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !http.is_object() {
        return;
    }
    let here = path.child("http");
    let here = here.child("paths");
    if list(&http["paths"]).is_empty() {
        errors.required(&here, "");
    }
    for (i, one) in list(&http["paths"]).iter().enumerate() {
        http_path(one, &here.index(i), errors);
    }
}

fn http_path(one: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(kind) = one["pathType"].as_str() else {
        return errors.required(&path.child("pathType"), "pathType must be specified");
    };
    let (here, value) = (path.child("path"), text(&one["path"]));
    let mut absolute = || {
        if !value.starts_with('/') {
            errors.invalid(&here, value, "must be an absolute path");
        }
    };
    match kind {
        "Exact" | "Prefix" => {
            absolute();
            for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| value.contains(**part)) {
                errors.invalid(&here, value, &format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].iter().filter(|end| value.ends_with(**end)) {
                errors.invalid(&here, value, &format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" if value.is_empty() => {}
        "ImplementationSpecific" => absolute(),
        other => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), other, &supported);
        }
    }
    backend(&one["backend"], &path.child("backend"), errors);
}

fn backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (resource, service) = (&backend["resource"], &backend["service"]);
    match (resource.is_object(), service.is_object()) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => reference(resource, &path.child("resource"), errors),
        (false, true) => backend_service(service, path, errors),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn backend_service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    let here = path.child("service");
    match text(&service["name"]) {
        "" => errors.required(&here.child("name"), ""),
        name => errors.all_invalid(&here.child("name"), name, syntax::dns_label(name)),
    }
    let port = here.child("port");
    match (text(&service["port"]["name"]), service["port"]["number"].as_i64().unwrap_or(0)) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => {
            if let Some(words) = syntax::port_number(number) {
                errors.invalid(&port.child("number"), number, words);
            }
        }
        (name, 0) => errors.all_invalid(&port.child("name"), name, syntax::port_name(name)),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

/// A reference to an object of any kind.
fn reference(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = object["apiGroup"].as_str() {
        errors.all_invalid(&path.child("apiGroup"), group, syntax::dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        match text(&object[field]) {
            "" => errors.required(&path.child(field), ""),
            name => errors.all_invalid(&path.child(field), name, syntax::path_segment(name)),
        }
    }
}

/// Where an ingress is reached.
pub(crate) fn status(new: &Value, old: &Value, errors: &mut Errors) {
    let at = |object: &'_ Value| list(&object["status"]["loadBalancer"]["ingress"]).to_vec();
    let (now, before) = (at(new), at(old));
    let before: HashSet<&str> =
        before.iter().map(|place| text(&place["ip"])).filter(|ip| !ip.is_empty()).collect();
    let status = Path::root("status");
    let path = status.child("loadBalancer");
    let path = path.child("ingress");
    for (i, place) in now.iter().enumerate() {
        let here = path.index(i);
        let (ip, name) = (text(&place["ip"]), text(&place["hostname"]));
        if !ip.is_empty() {
            address::legacy(ip, &before, &here.child("ip"), errors);
        }
        if !name.is_empty() {
            errors.all_invalid(&here.child("hostname"), name, syntax::dns_subdomain(name));
            if address::parse(name).is_some() {
                errors.invalid(&here.child("hostname"), name, NO_ADDRESS);
            }
        }
    }
}

/// A class.
pub(crate) fn class(object: &Value, errors: &mut Errors) {
    const MOST: usize = 250;
    let path = Path::root("spec");
    let (here, controller) = (path.child("controller"), text(&object["spec"]["controller"]));
    if controller.len() > MOST {
        errors.too_long(&here, MOST);
    }
    domain_prefixed_path(controller, &here, errors);
    let parameters = &object["spec"]["parameters"];
    if !parameters.is_object() {
        return;
    }
    let here = path.child("parameters");
    reference(parameters, &here, errors);
    let namespace = parameters["namespace"].as_str();
    match (parameters["scope"].as_str(), namespace) {
        (None, _) => errors.required(&here.child("scope"), ""),
        (Some("Namespace"), None) => {
            errors.required(&here.child("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(namespace)) => {
            errors.all_invalid(&here.child("namespace"), namespace, syntax::dns_label(namespace));
        }
        (Some("Cluster"), Some(_)) => {
            errors.forbidden(&here.child("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        (Some("Cluster"), None) => {}
        (Some(scope), _) => errors.not_supported(&here.child("scope"), scope, &["Cluster", "Namespace"]),
    }
}

/// A name such as `acme.io/foo`.
pub(super) fn domain_prefixed_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let words = "must be a domain-prefixed path (such as \"acme.io/foo\")";
    match value.split_once('/') {
        _ if value.is_empty() => errors.required(path, ""),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.all_invalid(path, domain, syntax::dns_subdomain(domain));
            errors.all_invalid(path, rest, syntax::url_path(rest));
        }
        _ => errors.invalid(path, value, words),
    }
}

/// The controller of a class stays.
pub(crate) fn class_update(new: &Value, old: &Value, errors: &mut Errors) {
    let root = Path::root("spec");
    errors.immutable_text(&root.child("controller"), &new["spec"]["controller"], &old["spec"]["controller"]);
    class(new, errors);
}
