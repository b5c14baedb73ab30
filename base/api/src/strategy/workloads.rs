//! Kinds that make pods, and the autoscaler that sizes them.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Facts, Generation, Object, Strategy, copy, job_selector, part, reset_status};
use crate::defaults::{self, absent, child, pod_template, workload};
use crate::table::{self, Column};
use crate::validate::workload::Counts;
use crate::validate::{self, Errors};
use crate::{Kind, Part, convert, fields, syntax, warnings};

/// Facts of kinds whose generation counts.
const COUNTED: Facts = Facts { generation: Generation::Counted, ..Facts::PLAIN };

/// Where daemon sets still carry the generation of their template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// What holds among the numbers of each status.
const REPLICAS: Counts = Counts {
    all: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    available: "cannot be greater than readyReplicas",
    collides: false,
};
const DEPLOYED: Counts = Counts {
    all: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    parts: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    available: "cannot be greater than readyReplicas",
    collides: true,
};
const STATEFUL: Counts = Counts {
    all: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    parts: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    available: "cannot be greater than status.readyReplicas",
    collides: true,
};
const DAEMONS: Counts = Counts {
    all: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    parts: &[],
    available: "",
    collides: true,
};

/// Templates of pods.
#[derive(Debug)]
pub(crate) struct PodTemplates;

impl Strategy for PodTemplates {
    fn facts(&self) -> Facts {
        Facts { deletion_shows_object: true, ..COUNTED }
    }

    fn defaults(&self, object: &mut Object) {
        pod_template(child(object, "template"));
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::pod_template_object(object, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::POD_TEMPLATE
    }
}

/// Replication controllers.
#[derive(Debug)]
pub(crate) struct ReplicationControllers;

impl Strategy for ReplicationControllers {
    fn facts(&self) -> Facts {
        Facts { orphans_by_default: true, ..COUNTED }
    }

    fn defaults(&self, object: &mut Object) {
        workload::replication_controller(object);
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::replication_controller(object, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::workload::counts(new, old, &REPLICAS, errors);
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::REPLICAS
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        number(object, field, "status.replicas", &object["status"]["replicas"])
    }
}

/// Replica sets.
#[derive(Debug)]
pub(crate) struct ReplicaSets;

impl Strategy for ReplicaSets {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        absent(child(object, "spec"), "replicas", 1);
        pod_template(child(child(object, "spec"), "template"));
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::replica_set(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::workload::keep_selector(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::workload::counts(new, old, &REPLICAS, errors);
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings::pod_template(object)
    }

    fn columns(&self) -> &[Column] {
        table::columns::REPLICAS
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        number(object, field, "status.replicas", &object["status"]["replicas"])
    }
}

/// Deployments.
#[derive(Debug)]
pub(crate) struct Deployments;

impl Strategy for Deployments {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        workload::deployment(object);
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::deployment(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::workload::keep_selector(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::workload::counts(new, old, &DEPLOYED, errors);
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings::pod_template(object)
    }

    fn columns(&self) -> &[Column] {
        table::columns::DEPLOYMENT
    }
}

/// Stateful sets.
#[derive(Debug)]
pub(crate) struct StatefulSets;

impl Strategy for StatefulSets {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        workload::stateful_set(object);
    }

    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::dns_label(name)
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::workload::stateful_set(object, false, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::workload::stateful_set(new, true, errors);
        validate::workload::stateful_set_update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::workload::counts(new, old, &STATEFUL, errors);
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings::pod_template(object)
    }

    fn columns(&self) -> &[Column] {
        table::columns::STATEFUL_SET
    }
}

/// Daemon sets: their template has a generation of its own.
#[derive(Debug)]
pub(crate) struct DaemonSets;

impl Strategy for DaemonSets {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        workload::daemon_set(object);
    }

    fn prepare_create(&self, kind: &Kind, object: &mut Object) {
        reset_status(kind, object);
        template_generation(object, 1);
    }

    fn prepare_update(&self, _: &Kind, new: &mut Object, old: &Value) {
        copy(new, old, "status");
        let before: i64 = old["metadata"]["annotations"][TEMPLATE_GENERATION]
            .as_str()
            .and_then(|t| t.parse().ok())
            .unwrap_or(1);
        let changed = part(new, "spec")["template"] != old["spec"]["template"];
        template_generation(new, if changed { before.saturating_add(1) } else { before });
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::workload::daemon_set(object, false, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::workload::daemon_set_update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::workload::counts(new, old, &DAEMONS, errors);
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings::pod_template(object)
    }

    fn columns(&self) -> &[Column] {
        table::columns::DAEMON_SET
    }
}

fn template_generation(map: &mut Map<String, Value>, generation: i64) {
    let annotations = child(child(map, "metadata"), "annotations");
    annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
}

/// Revisions of stateful sets and daemon sets.
#[derive(Debug)]
pub(crate) struct Revisions;

impl Strategy for Revisions {
    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::revision(object, errors);
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::workload::revision_data(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::workload::revision_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::CONTROLLER_REVISION
    }
}

/// Jobs.
#[derive(Debug)]
pub(crate) struct Jobs;

impl Strategy for Jobs {
    fn facts(&self) -> Facts {
        Facts { orphans_by_default: true, ..COUNTED }
    }

    fn defaults(&self, object: &mut Object) {
        workload::job(object);
    }

    fn complete(&self, object: &mut Value) {
        job_selector::select_by_uid(object);
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::job::job(object, false, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::job::job_update(new, old, errors);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings::pod_template(object)
    }

    fn columns(&self) -> &[Column] {
        table::columns::JOB
    }

    fn field_sources<'a>(&self, _: &'a Kind) -> Vec<&'a str> {
        vec!["status.succeeded"]
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        number(object, field, "status.successful", &object["status"]["succeeded"])
    }

    fn orphan_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set \
             propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        )
    }
}

/// Cron jobs.
#[derive(Debug)]
pub(crate) struct CronJobs;

impl Strategy for CronJobs {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        workload::cron_job(object);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::job::cron_job(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::job::cron_job(new, Some(old), errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::CRON_JOB
    }
}

/// Autoscalers of `autoscaling/v2`.
#[derive(Debug)]
pub(crate) struct Autoscalers;

impl Strategy for Autoscalers {
    fn defaults(&self, object: &mut Object) {
        let spec = child(object, "spec");
        absent(spec, "minReplicas", 1);
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        absent(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
        if let Some(Value::Object(behavior)) = spec.get_mut("behavior") {
            workload::scaling_rules(behavior);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::autoscaler::autoscaler(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::autoscaler::autoscaler(new, Some(old), errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::autoscaler::status(new, errors);
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::AUTOSCALER
    }
}

/// Autoscalers of `autoscaling/v1`, stored as those of `v2`.
#[derive(Debug)]
pub(crate) struct LegacyAutoscalers;

impl Strategy for LegacyAutoscalers {
    fn defaults(&self, object: &mut Object) {
        defaults::workload::legacy_autoscaler(object);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::autoscaler::autoscaler(&in_v2(object), None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::autoscaler::autoscaler(&in_v2(new), Some(&in_v2(old)), errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::autoscaler::status(new, errors);
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::AUTOSCALER
    }

    fn is_converted(&self) -> bool {
        true
    }

    fn to_storage(&self, object: &mut Value) {
        convert::autoscaler::to_v2(object);
    }

    fn to_served(&self, object: &mut Value) {
        convert::autoscaler::to_v1(object);
    }
}

/// An autoscaler of `v1` in the shape in which all are judged.
fn in_v2(object: &Value) -> Value {
    let mut object = object.clone();
    convert::autoscaler::to_v2(&mut object);
    object
}

/// A field that is a number, zero when it is absent.
fn number<'a>(object: &'a Value, field: &str, numeric: &str, value: &'a Value) -> Option<Cow<'a, str>> {
    if field != numeric {
        return fields::plain(object, field);
    }
    Some(fields::word(value).unwrap_or(Cow::Borrowed("0")))
}
