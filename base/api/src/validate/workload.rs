//! Rules of kinds beyond the spine: services, claims, and the kinds that make pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::error::{Errors, Seen, Shown, list, text};
use super::{budget, claim, meta, pod};
use crate::path::Path;
use crate::selector::LabelSelector;
use crate::syntax;

/// Rules of a template of pods; `words` are said about a deadline, which only jobs have.
fn template(template: &Value, path: &Path<'_>, words: &str, errors: &mut Errors) {
    template_spec(template, path, errors);
    only_always(template, path, words, errors);
}

pub(super) fn template_spec(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    template_metadata(template, path, errors);
    let spec = path.child("spec");
    pod::spec(&template["spec"], &spec, errors);
    if !list(&template["spec"]["ephemeralContainers"]).is_empty() {
        let words = "ephemeral containers not allowed in pod template";
        errors.forbidden(&spec.child("ephemeralContainers"), words);
    }
}

fn template_metadata(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    meta::labels(&template["metadata"]["labels"], &path.child("labels"), errors);
    meta::annotations(&template["metadata"]["annotations"], &path.child("annotations"), errors);
}

/// Pods that run for ever are always started again, and have no deadline.
fn only_always(template: &Value, path: &Path<'_>, words: &str, errors: &mut Errors) {
    let spec = path.child("spec");
    let policy = text(&template["spec"]["restartPolicy"]);
    if policy != "Always" {
        errors.not_supported(&spec.child("restartPolicy"), policy, &["Always"]);
    }
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        errors.forbidden(&spec.child("activeDeadlineSeconds"), words);
    }
}

/// A selector that is needed, and selects something; whether one can be made of it.
fn needed_selector(spec: &Value, owner: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let (here, selector) = (path.child("selector"), &spec["selector"]);
    if selector.is_null() {
        errors.required(&here, "");
        return true;
    }
    meta::label_selector(selector, &here, errors);
    if selects_nothing(selector) {
        let shown = Shown(meta::shown_selector(selector));
        errors.invalid(&here, shown, &format!("empty selector is invalid for {owner}"));
    }
    !meta::is_bad_selector(selector)
}

fn selects_nothing(selector: &Value) -> bool {
    let none = selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty);
    selector.is_object() && none && list(&selector["matchExpressions"]).is_empty()
}

/// The labels of a template are those that are selected; no selector at all matches nothing.
fn matching(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let labels = spec["template"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    if LabelSelector::from_object(&spec["selector"]).is_ok_and(|selector| !selector.matches(&labels)) {
        let template = path.child("template");
        let metadata = template.child("metadata");
        let shown = &spec["template"]["metadata"]["labels"];
        errors.invalid(&metadata.child("labels"), shown, "`selector` does not match template `labels`");
    }
}

const REPLICAS_DEADLINE: &str = "activeDeadlineSeconds in ReplicaSet is not Supported";

/// Rules that deployments and replica sets share; upstream says deployment for both.
fn selected_template(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !needed_selector(spec, "deployment", path, errors) {
        let shown = Shown(meta::shown_selector(&spec["selector"]));
        return errors.invalid(&path.child("selector"), shown, "invalid label selector");
    }
    if !selects_nothing(&spec["selector"]) {
        matching(spec, path, errors);
    }
    template(&spec["template"], &path.child("template"), REPLICAS_DEADLINE, errors);
}

/// A replica set.
pub(crate) fn replica_set(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    for field in ["replicas", "minReadySeconds"] {
        errors.nonnegative(&path.child(field), &spec[field]);
    }
    selected_template(spec, &path, errors);
}

/// A deployment.
pub(crate) fn deployment(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    errors.nonnegative(&path.child("replicas"), &spec["replicas"]);
    selected_template(spec, &path, errors);
    deployment_strategy(&spec["strategy"], &path.child("strategy"), errors);
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        errors.nonnegative(&path.child(field), &spec[field]);
    }
    let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64().filter(|deadline| *deadline <= ready) {
        let here = path.child("progressDeadlineSeconds");
        errors.invalid(&here, deadline, "must be greater than minReadySeconds");
    }
}

/// What a number or percentage amounts to, as upstream counts it.
fn amount_of(value: &Value) -> i64 {
    let percent = value.as_str().filter(|given| syntax::percent(given).is_empty());
    let percent = percent.and_then(|given| given.strip_suffix('%')).and_then(|digits| digits.parse().ok());
    value.as_i64().or(percent).unwrap_or(0)
}

/// How pods are replaced, as upstream's internal types print it.
fn shown_strategy(strategy: &Value, fields: &[(&str, &str)]) -> Shown {
    let rolling = &strategy["rollingUpdate"];
    let fields: Vec<String> = fields.iter().map(|(go, key)| format!("\"{go}\":{}", rolling[*key])).collect();
    let rolling = if rolling.is_object() { format!("{{{}}}", fields.join(",")) } else { "null".to_owned() };
    Shown(format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(text(&strategy["type"]))))
}

const ROLLING: &[(&str, &str)] = &[("MaxUnavailable", "maxUnavailable"), ("MaxSurge", "maxSurge")];

fn deployment_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, rolling) = (path.child("rollingUpdate"), &strategy["rollingUpdate"]);
    match text(&strategy["type"]) {
        "Recreate" if rolling.is_object() => {
            errors.forbidden(&here, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            budget::amount(unavailable, &here.child("maxUnavailable"), errors);
            budget::amount(surge, &here.child("maxSurge"), errors);
            if amount_of(unavailable) == 0 && amount_of(surge) == 0 {
                let words = "may not be 0 when `maxSurge` is 0";
                errors.invalid(&here.child("maxUnavailable"), unavailable, words);
            }
            budget::at_most_all(unavailable, &here.child("maxUnavailable"), errors);
        }
        _ => errors.not_supported(path, shown_strategy(strategy, ROLLING), &["Recreate", "RollingUpdate"]),
    }
}

/// A daemon set; `lenient` does not look at values of the selector.
pub(crate) fn daemon_set(object: &Value, lenient: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    let (here, selector) = (path.child("selector"), &spec["selector"]);
    if selector.is_object() {
        meta::label_selector_with(selector, lenient, &here, errors);
    }
    matching(spec, &path, errors);
    if selects_nothing(selector) {
        let shown = Shown(meta::shown_selector(selector));
        errors.invalid(&here, shown, "empty selector is invalid for daemonset");
    }
    let words = "activeDeadlineSeconds in DaemonSet is not Supported";
    template(&spec["template"], &path.child("template"), words, errors);
    errors.nonnegative(&path.child("minReadySeconds"), &spec["minReadySeconds"]);
    daemon_strategy(&spec["updateStrategy"], &path.child("updateStrategy"), errors);
    errors.nonnegative(&path.child("revisionHistoryLimit"), &spec["revisionHistoryLimit"]);
}

/// A changed daemon set.
pub(crate) fn daemon_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    keep_selector(new, old, errors);
    daemon_set(new, meta::is_bad_selector(&old["spec"]["selector"]), errors);
}

fn daemon_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, rolling) = (path.child("rollingUpdate"), &strategy["rollingUpdate"]);
    match text(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_object() => errors.required(&here, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (at_unavailable, at_surge) = (here.child("maxUnavailable"), here.child("maxSurge"));
            budget::amount(unavailable, &at_unavailable, errors);
            budget::amount(surge, &at_surge, errors);
            budget::at_most_all(unavailable, &at_unavailable, errors);
            budget::at_most_all(surge, &at_surge, errors);
            match (amount_of(unavailable), amount_of(surge)) {
                (0, 0) => errors.required(&at_unavailable, "cannot be 0 when maxSurge is 0"),
                (0, _) | (_, 0) => {}
                _ => errors.invalid(&at_surge, surge, "may not be set when maxUnavailable is non-zero"),
            }
        }
        _ => errors.not_supported(path, shown_strategy(strategy, ROLLING), &["RollingUpdate", "OnDelete"]),
    }
}

/// A stateful set, new or changed: what never changes is not looked at again.
pub(crate) fn stateful_set(object: &Value, changed: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    let (here, policy) = (path.child("podManagementPolicy"), text(&spec["podManagementPolicy"]));
    match policy {
        "" => errors.required(&here, ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&here, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    stateful_strategy(&spec["updateStrategy"], &path.child("updateStrategy"), errors);
    let here = path.child("persistentVolumeClaimRetentionPolicy");
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for field in ["whenDeleted", "whenScaled"].iter().filter(|_| retention.is_object()) {
        let policy = text(&retention[*field]);
        if !matches!(policy, "Retain" | "Delete") {
            errors.not_supported(&here.child(field), policy, &["Retain", "Delete"]);
        }
    }
    let here = path.child("volumeClaimTemplates");
    for (i, template) in list(&spec["volumeClaimTemplates"]).iter().enumerate().filter(|_| !changed) {
        claim::template(&template["spec"], &here.index(i).child("spec"), errors);
    }
    for field in ["replicas", "minReadySeconds"] {
        errors.nonnegative(&path.child(field), &spec[field]);
    }
    errors.nonnegative(&path.child("ordinals.start"), &spec["ordinals"]["start"]);
    let service = text(&spec["serviceName"]);
    if !changed && !service.is_empty() {
        errors.all_invalid(&path.child("serviceName"), service, syntax::dns_label(service));
    }
    if needed_selector(spec, "statefulset", &path, errors) {
        stateful_template(spec, &path, errors);
    } else {
        let shown = Shown(meta::shown_selector(&spec["selector"]));
        errors.invalid(&path.child("selector"), shown, "");
    }
    let words = "activeDeadlineSeconds in StatefulSet is not Supported";
    only_always(&spec["template"], &path.child("template"), words, errors);
}

/// The template as pods will have it: with the volumes of the claims, and without the names that the set gives.
fn stateful_template(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !selects_nothing(&spec["selector"]) {
        matching(spec, path, errors);
    }
    let mut template = spec["template"].clone();
    if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) {
        pod.remove("subdomain");
        pod.remove("hostname");
        let claims = list(&spec["volumeClaimTemplates"]).iter();
        let claims: BTreeSet<&str> = claims.map(|claim| text(&claim["metadata"]["name"])).collect();
        let own = pod.get("volumes").map(list).unwrap_or_default();
        let own = own.iter().filter(|volume| !claims.contains(text(&volume["name"]))).cloned();
        let claimed =
            claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        let volumes: Vec<Value> = claimed.chain(own).collect();
        if !volumes.is_empty() {
            pod.insert("volumes".to_owned(), volumes.into());
        }
    }
    let here = path.child("template");
    template_spec(&template, &here, errors);
    // Upstream looks at these twice, and clients see both.
    template_metadata(&template, &here, errors);
}

fn stateful_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, rolling) = (path.child("rollingUpdate"), &strategy["rollingUpdate"]);
    let shown = || {
        format!("{{\"Partition\":{},\"MaxUnavailable\":{}}}", rolling["partition"], rolling["maxUnavailable"])
    };
    match text(&strategy["type"]) {
        "" => errors.required(path, ""),
        "OnDelete" if rolling.is_object() => {
            errors.invalid(&here, Shown(shown()), "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            errors.nonnegative(&here.child("partition"), &rolling["partition"]);
            let (here, unavailable) = (here.child("maxUnavailable"), &rolling["maxUnavailable"]);
            if !unavailable.is_null() {
                budget::amount(unavailable, &here, errors);
                if amount_of(unavailable) == 0 {
                    errors.invalid(&here, unavailable, "cannot be 0");
                }
                budget::at_most_all(unavailable, &here, errors);
            }
        }
        kind => {
            let rolling = if rolling.is_object() { shown() } else { "null".to_owned() };
            let shown = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(kind));
            errors.invalid(path, Shown(shown), "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

/// What a set of pods selects stays.
pub(crate) fn keep_selector(new: &Value, old: &Value, errors: &mut Errors) {
    let selector = &new["spec"]["selector"];
    if selector != &old["spec"]["selector"] {
        let spec = Path::root("spec");
        let shown = Shown(meta::shown_selector(selector));
        errors.invalid(&spec.child("selector"), shown, "field is immutable");
    }
}

/// What holds among the numbers of a status.
pub(crate) struct Counts {
    /// None of these is negative.
    pub(crate) all: &'static [&'static str],
    /// None of these is more than the replicas.
    pub(crate) parts: &'static [&'static str],
    /// What is said when more are available than ready; empty when nobody looks.
    pub(crate) available: &'static str,
    /// Whether there is a count of collisions, which never falls.
    pub(crate) collides: bool,
}

/// The status of a set of pods.
pub(crate) fn counts(new: &Value, old: &Value, counts: &Counts, errors: &mut Errors) {
    let path = Path::root("status");
    let (status, before) = (&new["status"], &old["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    for field in counts.all {
        errors.nonnegative(&path.child(field), &status[*field]);
    }
    for field in counts.parts.iter().filter(|field| number(field) > number("replicas")) {
        errors.invalid(&path.child(field), number(field), "cannot be greater than status.replicas");
    }
    if !counts.available.is_empty() && number("availableReplicas") > number("readyReplicas") {
        errors.invalid(&path.child("availableReplicas"), number("availableReplicas"), counts.available);
    }
    let collisions = before["collisionCount"].as_i64();
    if counts.collides && collisions.is_some_and(|before| number("collisionCount") < before) {
        errors.invalid(&path.child("collisionCount"), number("collisionCount"), "cannot be decremented");
    }
}

/// A revision.
pub(crate) fn revision(object: &Value, errors: &mut Errors) {
    errors.nonnegative(&Path::root("revision"), &object["revision"]);
}

/// A new revision has data.
pub(crate) fn revision_data(object: &Value, errors: &mut Errors) {
    match &object["data"] {
        Value::Object(_) => {}
        Value::Null => errors.required(&Path::root("data"), "data is mandatory"),
        _ => errors.required(&Path::root("data"), "data must be a valid JSON object"),
    }
}

pub(crate) fn revision_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable(&Path::root("data"), &new["data"], &old["data"]);
}

/// A replication controller.
pub(crate) fn replication_controller(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    errors.nonnegative(&path.child("minReadySeconds"), &spec["minReadySeconds"]);
    let selector = spec["selector"].as_object().filter(|selector| !selector.is_empty());
    if selector.is_none() {
        errors.required(&path.child("selector"), "");
    }
    if spec["replicas"].is_null() {
        errors.required(&path.child("replicas"), "");
    }
    errors.nonnegative(&path.child("replicas"), &spec["replicas"]);
    let here = path.child("template");
    if spec["template"].is_null() {
        return errors.required(&here, "");
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if selector.is_some_and(|selector| selector.iter().any(|(key, value)| labels.get(key) != Some(value))) {
        let metadata = here.child("metadata");
        errors.invalid(&metadata.child("labels"), labels, "`selector` does not match template `labels`");
    }
    let words = "activeDeadlineSeconds in ReplicationController is not Supported";
    template(&spec["template"], &here, words, errors);
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

pub(crate) fn pod_template_object(object: &Value, errors: &mut Errors) {
    template_spec(&object["template"], &Path::root("template"), errors);
}
