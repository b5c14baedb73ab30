//! Validation: every complaint Kubernetes would make about an object, with its field path, reason and words.
//!
//! Objects have the kind's shape and defaults when they come here. Kinds without rules of their own get those of
//! metadata alone.

mod certificate;
mod cluster;
mod core;
mod device;
mod error;
mod meta;
mod pod;
mod rbac;
mod workload;

use serde_json::Value;

use crate::Kind;
use crate::path::Path;
use error::Errors;
pub(crate) use error::Seen;

pub use error::{Cause, FieldError, summary};
pub use meta::{generate_name, object_name};

/// Complaints about a new object.
pub fn create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if !kind.is("", "Event") {
        meta::create(kind, object, &mut errors);
    }
    own_rules(kind, object, &mut errors);
    if kind.is("", "Pod") {
        pod::only_on_create(object, &mut errors);
    }
    errors.done()
}

/// Complaints about an update of the main resource.
pub fn update(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if !kind.is("", "Event") {
        // Upstream looks at the metadata for all kinds and then once more for each, and clients see both.
        meta::update(new, old, &mut errors);
        meta::update(new, old, &mut errors);
    }
    own_rules(kind, new, &mut errors);
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::update(new, old, &mut errors),
        ("", "ConfigMap" | "Secret") => core::data_update(kind, new, old, &mut errors),
        ("", "Node") => core::node_update(new, old, &mut errors),
        ("", "Service") => workload::service_update(new, old, &mut errors),
        ("apps" | "batch", _) => workload::update(kind, new, old, &mut errors),
        ("resource.k8s.io", _) => device::update(kind, new, old, &mut errors),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            rbac::binding_update(new, old, &mut errors);
        }
        _ => {}
    }
    errors.done()
}

/// Complaints about an update of `/status`.
pub fn update_status(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::update(new, old, &mut errors);
    meta::update(new, old, &mut errors);
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::update_status(new, old, &mut errors),
        ("", "Node") => core::node_update(new, old, &mut errors),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            certificate::update(new, old, false, &mut errors);
        }
        _ => {}
    }
    errors.done()
}

/// Complaints about an update of `/approval` of a certificate request.
pub fn update_approval(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::update(new, old, &mut errors);
    meta::update(new, old, &mut errors);
    certificate::update(new, old, true, &mut errors);
    errors.done()
}

/// Complaints about an update through a subresource of pods other than status.
pub fn update_pod_subresource(name: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    match name {
        "ephemeralcontainers" => pod::update_ephemeral(new, old, &mut errors),
        "resize" => pod::update_resize(new, old, &mut errors),
        _ => {}
    }
    errors.done()
}

/// Complaints about a `Binding`.
pub fn binding(object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let target = Path::root("target");
    let kind = object["target"]["kind"].as_str().unwrap_or_default();
    if !kind.is_empty() && kind != "Node" {
        errors.not_supported(&target.child("kind"), kind, &["Node", "<empty>"]);
    }
    if object["target"]["name"].as_str().unwrap_or_default().is_empty() {
        errors.required(&target.child("name"), "");
    }
    errors.done()
}

fn own_rules(kind: &Kind, object: &Value, errors: &mut Errors) {
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::pod(object, errors),
        ("", "ConfigMap") => core::config_map(object, errors),
        ("", "Secret") => core::secret(object, errors),
        ("", "Node") => core::node(object, errors),
        ("", "Namespace") => core::namespace(object, errors),
        ("", "Event") => core::event(object, errors),
        ("events.k8s.io", "Event") => core::new_event(object, errors),
        ("coordination.k8s.io", "Lease") => core::lease(object, errors),
        ("", "Service") => workload::service(object, errors),
        ("", "PersistentVolumeClaim") => workload::claim(object, errors),
        ("", "PersistentVolume") => cluster::persistent_volume(object, errors),
        ("", "PodTemplate") => workload::pod_template_object(object, errors),
        ("storage.k8s.io", "StorageClass") => cluster::storage_class(object, errors),
        ("networking.k8s.io", "Ingress") => cluster::ingress(object, errors),
        ("networking.k8s.io", "IngressClass") => cluster::ingress_class(object, errors),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => rbac::role(object, !kind.namespaced, errors),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            rbac::binding(object, !kind.namespaced, errors);
        }
        ("", "ReplicationController") | ("apps" | "batch", _) => workload::workload(kind, object, errors),
        ("resource.k8s.io", _) => device::rules(kind, object, errors),
        ("policy", "PodDisruptionBudget") => workload::disruption_budget(object, errors),
        ("scheduling.k8s.io", "PriorityClass") => workload::priority_class(object, errors),
        ("discovery.k8s.io", "EndpointSlice") => workload::endpoint_slice(object, errors),
        ("autoscaling", "HorizontalPodAutoscaler") => workload::autoscaler(object, errors),
        ("node.k8s.io", "RuntimeClass") => workload::runtime_class(object, errors),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
