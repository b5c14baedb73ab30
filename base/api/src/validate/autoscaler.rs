//! Rules of autoscalers, in the shape of `autoscaling/v2`.

use serde_json::Value;

use super::error::{Errors, list, text};
use super::pod;
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

/// A reference may lack the group, or be whatever it was.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    WithGroup,
    Any,
    Unchecked,
}

/// An autoscaler, new or changed from `old`.
pub(crate) fn autoscaler(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &new["spec"];
    let least = old.is_none_or(|old| old["spec"]["minReplicas"] != 0);
    let least = i64::from(least);
    let (min, max) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or(0));
    if let Some(min) = min.filter(|min| *min < least) {
        errors.invalid(&path.child("minReplicas"), min, &format!("must be greater than or equal to {least}"));
    }
    let here = path.child("maxReplicas");
    if max == 0 {
        errors.required(&here, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&here, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(&here, max, "must be greater than or equal to `minReplicas`");
    }
    let target = &spec["scaleTargetRef"];
    let same = |old: &Value| {
        let before = &old["spec"]["scaleTargetRef"];
        ["apiVersion", "kind"].iter().all(|key| text(&before[*key]) == text(&target[*key]))
    };
    let version = match text(&target["kind"]) {
        _ if old.is_some_and(same) => Version::Unchecked,
        // The only kind of the legacy group that scales.
        "ReplicationController" => Version::Any,
        _ => Version::WithGroup,
    };
    reference(target, version, &path.child("scaleTargetRef"), errors);
    metrics(spec, old, &path.child("metrics"), errors);
    let behavior = path.child("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        rules(&spec["behavior"][direction], &behavior.child(direction), errors);
    }
}

fn reference(target: &Value, version: Version, path: &Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        match text(&target[field]) {
            "" => errors.required(&path.child(field), ""),
            name => errors.all_invalid(&path.child(field), name, syntax::path_segment(name)),
        }
    }
    let given = text(&target["apiVersion"]);
    if let Some(words) = version_complaint(given, version) {
        errors.invalid(&path.child("apiVersion"), given, &words);
    }
}

fn version_complaint(given: &str, version: Version) -> Option<String> {
    let slashes = given.matches('/').count();
    match version {
        Version::Unchecked => None,
        _ if slashes > 1 => Some(format!("unexpected GroupVersion string: {given}")),
        Version::WithGroup if slashes == 0 || given.starts_with('/') => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}

fn metrics(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let before = old.map_or(&[][..], |old| list(&old["spec"]["metrics"]));
    let bad = |metric: &Value| {
        let version = text(&metric["object"]["describedObject"]["apiVersion"]);
        metric["type"] == "Object" && version_complaint(version, Version::Any).is_some()
    };
    let version = if before.iter().any(bad) { Version::Unchecked } else { Version::Any };
    let all = list(&spec["metrics"]);
    for (i, metric) in all.iter().enumerate() {
        metric_source(metric, version, &path.index(i), errors);
    }
    let wakes = |metric: &Value| matches!(text(&metric["type"]), "Object" | "External");
    if spec["minReplicas"] == 0 && !all.iter().any(wakes) {
        let words = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, words);
    }
}

/// Types of metrics, each with its field, in the order in which upstream looks at the fields.
const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

fn metric_source(metric: &Value, version: Version, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(&metric["type"]);
    let here = path.child("type");
    if kind.is_empty() {
        errors.required(&here, "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        errors.not_supported(&here, kind, TYPES);
    }
    let given: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| metric[*field].is_object()).collect();
    if let Some(field) = given.first() {
        source(field, &metric[*field], version, &path.child(field), errors);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    match expected {
        Some(field) if !metric[field].is_object() => {
            errors.required(&path.child(field), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errors.not_supported(&here, kind, TYPES),
    }
    if given.len() != 1 {
        for field in given.into_iter().filter(|field| Some(*field) != expected) {
            errors.forbidden(&path.child(field), "must populate the given metric source only");
        }
    }
}

fn source(field: &str, source: &Value, version: Version, path: &Path<'_>, errors: &mut Errors) {
    let (target, at) = (&source["target"], path.child("target"));
    let has = |field: &str| !target[field].is_null();
    match field {
        "object" => {
            reference(&source["describedObject"], version, &path.child("describedObject"), errors);
            identifier(source, path, errors);
            metric_target(target, &at, errors);
            if !has("value") && !has("averageValue") {
                let words = "must set either a target value or averageValue";
                errors.required(&at.child("averageValue"), words);
            }
        }
        "external" => {
            identifier(source, path, errors);
            metric_target(target, &at, errors);
            if !has("value") && !has("averageValue") {
                let words = "must set either a target value for metric or a per-pod target";
                errors.required(&at.child("averageValue"), words);
            }
            if has("value") && has("averageValue") {
                let words = "may not set both a target value for metric and a per-pod target";
                errors.forbidden(&at.child("value"), words);
            }
        }
        "pods" => {
            identifier(source, path, errors);
            metric_target(target, &at, errors);
            if !has("averageValue") {
                let words = "must specify a positive target averageValue";
                errors.required(&at.child("averageValue"), words);
            }
        }
        _ => resource_source(field, source, path, errors),
    }
}

fn resource_source(field: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (target, at) = (&source["target"], path.child("target"));
    let has = |field: &str| !target[field].is_null();
    match text(&source["name"]) {
        "" => errors.required(&path.child("name"), "must specify a resource name"),
        name if field == "containerResource" => {
            pod::container_resource_name(name, &path.child("name"), errors);
        }
        _ => {}
    }
    if field == "containerResource" {
        match text(&source["container"]) {
            "" => errors.required(&path.child("container"), "must specify a container"),
            name => errors.all_invalid(&path.child("container"), name, syntax::dns_label(name)),
        }
    }
    metric_target(target, &at, errors);
    if !has("averageUtilization") && !has("averageValue") {
        let words = "must set either a target raw value or a target utilization";
        errors.required(&at.child("averageUtilization"), words);
    }
    if has("averageUtilization") && has("averageValue") {
        let words = "may not set both a target raw value and a target utilization";
        errors.forbidden(&at.child("averageValue"), words);
    }
}

fn identifier(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let metric = path.child("metric");
    match text(&source["metric"]["name"]) {
        "" => errors.required(&metric.child("name"), "must specify a metric name"),
        name => errors.all_invalid(&metric.child("name"), name, syntax::path_segment(name)),
    }
}

fn metric_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, kind) = (path.child("type"), text(&target["type"]));
    if kind.is_empty() {
        errors.required(&here, "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&here, kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = text(&target[field]);
        if Quantity::parse(amount).is_ok_and(|quantity| !quantity.is_positive()) {
            errors.invalid(&path.child(field), amount, "must be positive");
        }
    }
    if let Some(percent) = target["averageUtilization"].as_i64().filter(|percent| *percent < 1) {
        errors.invalid(&path.child("averageUtilization"), percent, "must be greater than 0");
    }
}

fn rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !rules.is_object() {
        return;
    }
    let here = path.child("stabilizationWindowSeconds");
    match rules["stabilizationWindowSeconds"].as_i64() {
        Some(window) if window < 0 => {
            errors.invalid(&here, window, "must be greater than or equal to zero");
        }
        Some(window) if window > 3600 => {
            errors.invalid(&here, window, "must be less than or equal to 3600");
        }
        _ => {}
    }
    let selects = ["Disabled", "Max", "Min"];
    if let Some(select) = rules["selectPolicy"].as_str().filter(|select| !selects.contains(select)) {
        errors.not_supported(&path.child("selectPolicy"), select, &selects);
    }
    let (here, policies) = (path.child("policies"), list(&rules["policies"]));
    if policies.is_empty() {
        errors.required(&here, "must specify at least one Policy");
    }
    for (i, policy) in policies.iter().enumerate() {
        scaling_policy(policy, &here.index(i), errors);
    }
    let tolerance = text(&rules["tolerance"]);
    if Quantity::parse(tolerance).is_ok_and(|quantity| quantity.is_negative()) {
        errors.invalid(&path.child("tolerance"), tolerance, "must be greater than or equal to 0");
    }
}

fn scaling_policy(policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(&policy["type"]);
    if !matches!(kind, "Pods" | "Percent") {
        errors.not_supported(&path.child("type"), kind, &["Percent", "Pods"]);
    }
    let value = policy["value"].as_i64().unwrap_or(0);
    if value <= 0 {
        errors.invalid(&path.child("value"), value, "must be greater than zero");
    }
    let (here, period) = (path.child("periodSeconds"), policy["periodSeconds"].as_i64().unwrap_or(0));
    if period <= 0 {
        errors.invalid(&here, period, "must be greater than zero");
    }
    if period > 1800 {
        errors.invalid(&here, period, "must be less than or equal to 1800");
    }
}

/// The status of an autoscaler.
pub(crate) fn status(new: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    for field in ["currentReplicas", "desiredReplicas"] {
        errors.nonnegative(&path.child(field), &new["status"][field]);
    }
}
