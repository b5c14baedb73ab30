//! `RuntimeClass`: the class that a pod names must exist.
//!
//! What a class says about overhead and scheduling is not added.

use futures::future::BoxFuture;
use http::StatusCode;
use podwire_api::builtin;
use serde_json::Value;

use super::{Mutating, Operation, Request};
use crate::context::Context;
use crate::status::{ApiError, Result};

/// The plugin.
pub(super) struct RuntimeClass;

impl Mutating for RuntimeClass {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && request.is_whole("", "Pod")
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, pod: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(exists(request.context, pod))
    }
}

/// Refuses a pod whose runtime class nobody has made.
async fn exists(context: &Context, pod: &Value) -> Result<()> {
    let Some(class) = pod["spec"]["runtimeClassName"].as_str().filter(|class| !class.is_empty()) else {
        return Ok(());
    };
    let classes = builtin::runtime_classes();
    context.stored(classes, "", class).await.map(drop).map_err(|error| match error.code {
        StatusCode::NOT_FOUND => {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let why = format!("pod rejected: RuntimeClass \"{class}\" not found");
            ApiError::forbidden("", "pods", name, &why)
        }
        _ => error,
    })
}
