//! `NamespaceLifecycle`: objects go into namespaces that exist and stay, and three namespaces are never deleted.

use futures::future::BoxFuture;
use podwire_api::{Kind, builtin};
use serde_json::Value;

use super::{Mutating, Operation, Request};
use crate::context;
use crate::status::{ApiError, Result};

/// Namespaces that are never deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The plugin.
pub(super) struct NamespaceLifecycle;

impl Mutating for NamespaceLifecycle {
    fn handles(&self, request: &Request<'_>) -> bool {
        match request.operation {
            Operation::Create => {
                request.part.is_none() && request.kind.namespaced && request.kind.is_stored()
            }
            Operation::Delete => request.kind.is("", "Namespace"),
            Operation::Update | Operation::Connect => false,
        }
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        if request.operation == Operation::Create {
            return Box::pin(exists(request, object));
        }
        let verdict = if IMMORTAL.contains(&request.name) {
            let Kind { group, resource, .. } = request.kind;
            Err(ApiError::forbidden(group, resource, request.name, "this namespace may not be deleted"))
        } else {
            Ok(())
        };
        Box::pin(std::future::ready(verdict))
    }
}

/// Objects go into namespaces that exist and are not on their way out.
async fn exists(request: &Request<'_>, object: &Value) -> Result<()> {
    let context = request.context;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let namespaces = builtin::namespaces();
    let stored = context.stored(namespaces, "", namespace).await?;
    // The cache may lag behind the store by a moment, in which a namespace can begin to go.
    let terminating = match context.caches.of(namespaces).get(&stored.key) {
        Some(entry) if entry.revision == stored.mod_revision => {
            entry.field("status.phase") == Some("Terminating")
        }
        _ => context::read(namespaces, &stored)?["metadata"]["deletionTimestamp"].is_string(),
    };
    if !terminating {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let error = request.forbidden(object, &why);
    let message = format!("namespace {namespace} is being terminated");
    Err(error.cause("NamespaceTerminating", &message, "metadata.namespace"))
}
