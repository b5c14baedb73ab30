//! Defaults of the kinds that make pods: apps, batch, replication controllers.

use serde_json::{Value, json};

use super::{Object, absent, child, each, pod_template, set, text};

pub(crate) fn job(map: &mut Object) {
    job_spec(child(map, "spec"));
    labels_from_template(map);
    pod_template(child(child(map, "spec"), "template"));
}

pub(crate) fn cron_job(map: &mut Object) {
    let spec = child(map, "spec");
    set(spec, "concurrencyPolicy", "Allow");
    absent(spec, "suspend", false);
    absent(spec, "successfulJobsHistoryLimit", 3);
    absent(spec, "failedJobsHistoryLimit", 1);
    let job = child(child(spec, "jobTemplate"), "spec");
    pod_template(child(job, "template"));
}

pub(crate) fn replication_controller(map: &mut Object) {
    let spec = child(map, "spec");
    absent(spec, "replicas", 1);
    if !spec.get("template").is_some_and(Value::is_object) {
        return;
    }
    let labels = child(child(spec, "template"), "metadata").get("labels").cloned();
    if let Some(labels) = labels {
        absent(spec, "selector", labels);
        labels_from_template(map);
    }
    pod_template(child(child(map, "spec"), "template"));
}

fn labels_from_template(map: &mut Object) {
    let labels = child(child(child(map, "spec"), "template"), "metadata").get("labels").cloned();
    if let Some(labels) = labels {
        absent(child(map, "metadata"), "labels", labels);
    }
}

pub(crate) fn deployment(map: &mut Object) {
    let spec = child(map, "spec");
    absent(spec, "replicas", 1);
    let strategy = child(spec, "strategy");
    set(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        absent(rolling, "maxUnavailable", "25%");
        absent(rolling, "maxSurge", "25%");
    }
    absent(spec, "revisionHistoryLimit", 10);
    absent(spec, "progressDeadlineSeconds", 600);
    pod_template(child(spec, "template"));
}

pub(crate) fn daemon_set(map: &mut Object) {
    // A field of old that now travels as an annotation; the strategy counts it up.
    absent(
        child(child(map, "metadata"), "annotations"),
        crate::strategy::workloads::TEMPLATE_GENERATION,
        "0",
    );
    let spec = child(map, "spec");
    let strategy = child(spec, "updateStrategy");
    set(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        absent(rolling, "maxUnavailable", 1);
        absent(rolling, "maxSurge", 0);
    }
    absent(spec, "revisionHistoryLimit", 10);
    pod_template(child(spec, "template"));
}

/// Replicas, and the metric that is meant when none is named.
pub(crate) fn legacy_autoscaler(map: &mut Object) {
    let others = map.get("metadata").is_some_and(|m| m["annotations"][crate::convert::METRICS].is_string());
    let spec = child(map, "spec");
    absent(spec, "minReplicas", 1);
    if !others {
        absent(spec, "targetCPUUtilizationPercentage", 80);
    }
}

/// How fast an autoscaler goes when it says something about that, but not all.
pub(crate) fn scaling_rules(behavior: &mut Object) {
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    for (direction, policies) in
        [("scaleUp", json!([pods, percent.clone()])), ("scaleDown", json!([percent]))]
    {
        let rules = child(behavior, direction);
        absent(rules, "selectPolicy", "Max");
        absent(rules, "policies", policies);
        if direction == "scaleUp" {
            absent(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

pub(crate) fn stateful_set(map: &mut Object) {
    let spec = child(map, "spec");
    set(spec, "podManagementPolicy", "OrderedReady");
    let strategy = child(spec, "updateStrategy");
    if text(strategy, "type").is_empty() {
        strategy.insert("type".to_owned(), json!("RollingUpdate"));
        child(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(Value::Object(rolling)) = strategy.get_mut("rollingUpdate")
    {
        absent(rolling, "partition", 0);
    }
    each(spec, "volumeClaimTemplates", |claim| {
        absent(child(claim, "spec"), "volumeMode", "Filesystem");
        set(child(claim, "status"), "phase", "Pending");
    });
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    set(retention, "whenDeleted", "Retain");
    set(retention, "whenScaled", "Retain");
    absent(spec, "replicas", 1);
    absent(spec, "revisionHistoryLimit", 10);
    pod_template(child(spec, "template"));
}

fn job_spec(spec: &mut Object) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        spec.insert("completions".to_owned(), json!(1));
    }
    absent(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    absent(spec, "backoffLimit", limit);
    absent(spec, "completionMode", "NonIndexed");
    absent(spec, "suspend", false);
    let replacement = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    absent(spec, "podReplacementPolicy", replacement);
    absent(spec, "manualSelector", false);
}
