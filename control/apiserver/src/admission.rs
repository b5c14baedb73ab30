//! Admission: the server's own changes and refusals, between decoding and validation.

pub(crate) mod escalation;
pub(crate) mod node_restriction;
mod nodes;
pub(crate) mod pods;
pub(crate) mod service;

use podwire_api::{Kind, builtin};
use serde_json::Value;

use self::service::Held;
use crate::core::{self, Core};
use crate::handler::update::Extent;
use crate::identity::Identity;
use crate::status::{ApiError, Result};

/// Admits a new object, completing it.
///
/// What it was given goes back unless the caller keeps it.
pub(crate) async fn create<'a>(
    core: &'a Core,
    identity: &Identity,
    kind: &Kind,
    object: &mut Value,
) -> Result<Held<'a>> {
    namespace_exists(core, kind, object).await?;
    node_restriction::create(core, identity, kind, object).await?;
    if kind.is("", "Pod") {
        pods::create(core, object).await?;
    }
    if kind.is("", "Node") {
        nodes::taint(object);
    }
    if kind.is("scheduling.k8s.io", "PriorityClass") {
        pods::only_default(core, object, true).await?;
    }
    if kind.is("certificates.k8s.io", "CertificateSigningRequest") {
        sign_with_requester(identity, object);
    }
    if kind.is("", "Service") {
        return core.services.assign(core, object);
    }
    Ok(core.services.nothing())
}

/// Writes down who asks for a certificate; what the client says about that counts for nothing.
fn sign_with_requester(identity: &Identity, object: &mut Value) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    spec.insert("username".into(), identity.user.as_str().into());
    spec.insert("groups".into(), identity.groups.clone().into());
    spec.remove("uid");
    spec.remove("extra");
    if !identity.uid.is_empty() {
        spec.insert("uid".into(), identity.uid.as_str().into());
    }
    if !identity.extra.is_empty() {
        spec.insert("extra".into(), serde_json::json!(identity.extra));
    }
}

/// Admits a change; what the object was given goes back unless the caller keeps it.
pub(crate) async fn update<'a>(
    core: &'a Core,
    identity: &Identity,
    kind: &Kind,
    extent: Extent,
    new: &mut Value,
    old: &Value,
) -> Result<Held<'a>> {
    node_restriction::update(identity, kind, extent, new, old)?;
    if kind.is("", "Pod") && extent == Extent::Main {
        pods::update(new, old);
    }
    if kind.is("scheduling.k8s.io", "PriorityClass") {
        pods::only_default(core, new, false).await?;
    }
    if kind.is("", "Service") && extent == Extent::Main {
        return core.services.reassign(core, new, old);
    }
    Ok(core.services.nothing())
}

/// Admits a deletion.
pub(crate) fn delete(identity: &Identity, kind: &Kind, object: &Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if kind.resource == "namespaces" && matches!(name, "default" | "kube-system" | "kube-public") {
        return Err(ApiError::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    node_restriction::delete(identity, kind, object)
}

/// Gives back what a removed object held.
pub(crate) fn deleted(core: &Core, kind: &Kind, object: &Value) {
    if kind.is("", "Service") {
        core.services.release(object);
    }
}

/// Gives back what a changed object holds no more.
pub(crate) fn changed(core: &Core, kind: &Kind, new: &Value, old: &Value) {
    if kind.is("", "Service") {
        core.services.changed(new, old);
    }
}

/// Objects go into namespaces that exist and are not on their way out.
async fn namespace_exists(core: &Core, kind: &Kind, object: &Value) -> Result<()> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if !kind.namespaced || !kind.is_stored() {
        return Ok(());
    }
    let namespaces = builtin::namespaces();
    let stored = core.stored(namespaces, "", namespace).await?;
    // The cache may lag behind the store by a moment, in which a namespace can begin to go.
    let terminating = match core.caches.of(namespaces).get(&stored.key) {
        Some(entry) if entry.revision == stored.mod_revision => {
            entry.field("status.phase") == Some("Terminating")
        }
        _ => core::read(namespaces, &stored)?["metadata"]["deletionTimestamp"].is_string(),
    };
    if !terminating {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let error = ApiError::forbidden(&kind.group, &kind.resource, name, &why);
    let message = format!("namespace {namespace} is being terminated");
    Err(error.cause("NamespaceTerminating", &message, "metadata.namespace"))
}
