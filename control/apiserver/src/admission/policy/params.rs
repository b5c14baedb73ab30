//! The parameters that a binding names: objects of any kind, as they are stored now.
//!
//! Whoever may write objects of such a kind decides how many there are and how large, so that they are read one at a time.

use std::sync::Arc;

use podwire_api::Kind;
use serde_json::Value;

use super::super::Request;
use super::binding::{Binding, Chosen};
use crate::cache::{Entry, Scope};
use crate::context;
use crate::status::Result;

/// A parameter to evaluate a policy with.
pub(super) enum Param {
    /// The policy is evaluated without any.
    None,
    Object(Value),
    Cached(Arc<Kind>, Arc<Entry>),
}

impl Param {
    /// How many bytes there are to be read.
    pub(super) fn len(&self) -> usize {
        match self {
            Param::None | Param::Object(_) => 0,
            Param::Cached(_, entry) => entry.len(),
        }
    }

    /// The object, or null.
    pub(super) fn read(self) -> Value {
        match self {
            Param::None => Value::Null,
            Param::Object(object) => object,
            Param::Cached(kind, entry) => named(&kind, entry.decode(&kind)),
        }
    }
}

/// The parameters to evaluate a policy with, each once. The inner error is one of configuration.
pub(super) async fn collect(
    request: &Request<'_>,
    object: &Value,
    kind: Option<&Arc<Kind>>,
    binding: &Binding,
) -> Result<Result<Vec<Param>, String>> {
    let (Some(kind), Some(wanted)) = (kind, &binding.params) else { return Ok(Ok(vec![Param::None])) };
    let namespace = match (kind.namespaced, wanted.namespace.as_str()) {
        (true, "") => match request.placed(object) {
            "" => {
                let words =
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Ok(Err(words.to_owned()));
            }
            namespace => namespace,
        },
        (true, namespace) => namespace,
        (false, "") => "",
        (false, _) => {
            let words = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
            return Ok(Err(words.to_owned()));
        }
    };
    let context = request.context;
    let found = match &wanted.chosen {
        Chosen::Name(name) => {
            let stored = context.store.get(&context::key(kind, namespace, name)).await?;
            match stored {
                Some(stored) => {
                    let served = context.served(kind, stored).await?;
                    vec![Param::Object(named(kind, context::read(kind, &served)?))]
                }
                None => Vec::new(),
            }
        }
        Chosen::Labels(labels) => {
            context.caches.wait_for(context.store.revision().await?).await?;
            let prefix = match kind.namespaced {
                true => context::key(kind, namespace, ""),
                false => kind.storage_prefix.to_string(),
            };
            let snapshot = context.caches.of(kind).snapshot(&Scope { prefix, node: None, key: None });
            let served = context.served_entries(kind, snapshot.entries).await?;
            let chosen = served.into_iter().filter(|entry| entry.matches(Some(labels), None));
            chosen.map(|entry| Param::Cached(kind.clone(), entry)).collect()
        }
    };
    if found.is_empty() && wanted.required {
        return Ok(Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()));
    }
    Ok(Ok(found))
}

fn named(kind: &Kind, mut object: Value) -> Value {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.as_ref().into();
    object
}
