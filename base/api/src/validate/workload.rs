//! Rules of kinds beyond the spine: services, claims, and the kinds that make pods.

use serde_json::Value;

use super::error::{Errors, Seen, list, text};
use super::{meta, pod};
use crate::path::Path;
use crate::selector::LabelSelector;
use crate::syntax;

/// Numbers that no kind that makes pods may have below zero.
fn counts(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in [
        "replicas",
        "minReadySeconds",
        "revisionHistoryLimit",
        "parallelism",
        "completions",
        "backoffLimit",
        "progressDeadlineSeconds",
    ] {
        errors.nonnegative(&path.child(field), &spec[field]);
    }
}

/// Rules of sets of pods that run for ever; `owner` is how upstream calls the kind.
pub(crate) fn replicated(object: &Value, owner: &str, needs_selector: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    counts(spec, &path, errors);
    selector(spec, owner, needs_selector, &path, errors);
    pod_template(&spec["template"], &path.child("template"), &["Always"], errors);
}

pub(crate) fn revision(object: &Value, errors: &mut Errors) {
    if !object["data"].is_object() {
        errors.required(&Path::root("data"), "data is mandatory");
    }
    errors.nonnegative(&Path::root("revision"), &object["revision"]);
}

pub(crate) fn revision_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable(&Path::root("data"), &new["data"], &old["data"]);
}

pub(crate) fn replication_controller(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    counts(spec, &path, errors);
    if !spec["template"].is_null() {
        return pod_template(&spec["template"], &path.child("template"), &["Always"], errors);
    }
    if spec["selector"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(&path.child("selector"), "");
    }
    errors.required(&path.child("template"), "");
}

pub(crate) fn job(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    counts(spec, &path, errors);
    pod_template(&spec["template"], &path.child("template"), &["OnFailure", "Never"], errors);
}

pub(crate) fn cron_job(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    if text(&spec["schedule"]).is_empty() {
        errors.required(&path.child("schedule"), "");
    }
    errors.one_of(
        &path.child("concurrencyPolicy"),
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Replace"],
    );
    let template = path.child("jobTemplate");
    let inner = template.child("spec");
    pod_template(
        &spec["jobTemplate"]["spec"]["template"],
        &inner.child("template"),
        &["OnFailure", "Never"],
        errors,
    );
}

fn selector(spec: &Value, owner: &str, needed: bool, path: &Path<'_>, errors: &mut Errors) {
    let here = path.child("selector");
    let selector = &spec["selector"];
    if !selector.is_null() {
        meta::label_selector(selector, &here, errors);
    } else if needed {
        errors.required(&here, "");
    }
    let empty = |field: &str| {
        selector[field].as_object().is_none_or(serde_json::Map::is_empty) && list(&selector[field]).is_empty()
    };
    if selector.is_object() && empty("matchLabels") && empty("matchExpressions") {
        errors.invalid(&here, selector, &format!("empty selector is invalid for {owner}"));
        return;
    }
    let labels = spec["template"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    if LabelSelector::from_object(selector).is_ok_and(|s| !s.matches(&labels)) {
        let template = path.child("template");
        let metadata = template.child("metadata");
        let shown = &spec["template"]["metadata"]["labels"];
        errors.invalid(&metadata.child("labels"), shown, "`selector` does not match template `labels`");
    }
}

fn pod_template(template: &Value, path: &Path<'_>, policies: &[&str], errors: &mut Errors) {
    let metadata = path.child("metadata");
    meta::labels(&template["metadata"]["labels"], &metadata.child("labels"), errors);
    meta::annotations(&template["metadata"]["annotations"], &metadata.child("annotations"), errors);
    let spec = path.child("spec");
    pod::spec(&template["spec"], &spec, errors);
    let policy = text(&template["spec"]["restartPolicy"]);
    if policies.contains(&policy) || !["Always", "OnFailure", "Never"].contains(&policy) {
        return;
    }
    if policies.contains(&"Always") {
        errors.not_supported(&spec.child("restartPolicy"), policy, policies);
    } else {
        let words: Vec<String> = policies.iter().map(|p| format!("{p:?}")).collect();
        errors.required(&spec.child("restartPolicy"), &format!("valid values: {}", words.join(", ")));
    }
}

/// Fields of the specification that stay as they are.
pub(crate) fn keep(fields: &[&str], new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    for field in fields {
        errors.immutable(&path.child(field), &new["spec"][field], &old["spec"][field]);
    }
}

pub(crate) fn stateful_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    let mutable = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let frozen = |spec: &Value| {
        let mut copy = spec.clone();
        if let Value::Object(map) = &mut copy {
            map.retain(|key, _| !mutable.contains(&key.as_str()));
        }
        copy
    };
    if frozen(&new["spec"]) != frozen(&old["spec"]) {
        errors.forbidden(
            &Path::root("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

pub(crate) fn service(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    let kind = text(&spec["type"]);
    errors.one_of(
        &path.child("type"),
        &spec["type"],
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    errors.one_of(&path.child("sessionAffinity"), &spec["sessionAffinity"], &["ClientIP", "None"]);
    let ports = list(&spec["ports"]);
    let headless = text(&spec["clusterIP"]) == "None";
    if ports.is_empty() && kind != "ExternalName" && !headless {
        errors.required(&path.child("ports"), "");
    }
    if kind == "ExternalName" {
        let name = text(&spec["externalName"]).trim_end_matches('.');
        if name.is_empty() {
            errors.required(&path.child("externalName"), "");
        } else {
            errors.all_invalid(&path.child("externalName"), name, syntax::dns_subdomain(name));
        }
    }
    meta::labels(&spec["selector"], &path.child("selector"), errors);
    let here = path.child("ports");
    let (mut seen, mut names, mut nodes) = (Seen::default(), Seen::default(), Seen::default());
    for (i, port) in ports.iter().enumerate() {
        service_port(port, ports.len() > 1, &here.index(i), errors);
        if seen.again((port["port"].to_string(), text(&port["protocol"]))) {
            let shown = serde_json::json!({"port": port["port"], "protocol": port["protocol"]});
            errors.duplicate(&here.index(i), &shown);
        }
        let name = text(&port["name"]);
        if names.again(name) && !name.is_empty() {
            errors.duplicate(&here.index(i).child("name"), name);
        }
        node_port(kind, port, &mut nodes, &here.index(i).child("nodePort"), errors);
    }
}

fn node_port<'a>(
    kind: &str,
    port: &'a Value,
    seen: &mut Seen<(i64, &'a str)>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(number) = port["nodePort"].as_i64().filter(|number| *number != 0) else { return };
    if kind == "ClusterIP" {
        errors.forbidden(path, "may not be used when `type` is 'ClusterIP'");
    }
    if seen.again((number, text(&port["protocol"]))) {
        errors.duplicate(path, &serde_json::json!(number));
    }
}

fn service_port(port: &Value, named: bool, path: &Path<'_>, errors: &mut Errors) {
    let name = text(&port["name"]);
    if named && name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if !name.is_empty() {
        errors.all_invalid(&path.child("name"), name, syntax::dns_label(name));
    }
    let number = port["port"].as_i64().unwrap_or(0);
    if let Some(words) = syntax::port_number(number) {
        errors.invalid(&path.child("port"), number, words);
    }
    errors.one_of(&path.child("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    pod::port_or_name(&port["targetPort"], &path.child("targetPort"), errors);
}

pub(crate) fn service_update(new: &Value, old: &Value, errors: &mut Errors) {
    let before = text(&old["spec"]["clusterIP"]);
    let external = |s: &Value| text(&s["spec"]["type"]) == "ExternalName";
    if !before.is_empty() && !external(new) && !external(old) && text(&new["spec"]["clusterIP"]) != before {
        let path = Path::root("spec");
        let ips = path.child("clusterIPs");
        errors.invalid(&ips.index(0), &new["spec"]["clusterIPs"], "may not change once set");
    }
}

pub(crate) fn priority_class(object: &Value, errors: &mut Errors) {
    let name = text(&object["metadata"]["name"]);
    let system = matches!(name, "system-node-critical" | "system-cluster-critical");
    if name.starts_with("system-") && !system {
        let path = Path::root("metadata");
        let words =
            "priority class names with 'system-' prefix are reserved for system use only. error: ".to_owned();
        errors.forbidden(&path.child("name"), &format!("{words}{name} is not a known system priority class"));
    }
    if object["value"].as_i64().unwrap_or(0) > 1_000_000_000 && !system {
        errors.forbidden(
            &Path::root("value"),
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
}

pub(crate) fn runtime_class(object: &Value, errors: &mut Errors) {
    let handler = text(&object["handler"]);
    if handler.is_empty() {
        return errors.required(&Path::root("handler"), "");
    }
    errors.all_invalid(&Path::root("handler"), handler, syntax::dns_label(handler));
}

pub(crate) fn pod_template_object(object: &Value, errors: &mut Errors) {
    pod_template(&object["template"], &Path::root("template"), &["Always", "OnFailure", "Never"], errors);
}
