//! What all handlers share: the store, the kinds and their caches, the authority, the doors to the nodes.

use std::sync::Arc;

use podwire_api::Kind;
use podwire_store::{KeyValue, Store};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::authz::Authorizer;
use crate::cache::{Caches, Scope};
use crate::codec;
use crate::definitions::Definitions;
use crate::encryption::Encryption;
use crate::handler::proxy::KubeletClient;
use crate::kinds::Kinds;
use crate::limits::{Gates, Limits};
use crate::pki::Pki;
use crate::status::{ApiError, Result};
use crate::token::Tokens;

/// What all handlers share.
pub(crate) struct Context {
    /// Where objects live.
    pub(crate) store: Arc<dyn Store>,
    /// What kinds of objects there are.
    pub(crate) kinds: Kinds,
    /// Their bytes in memory.
    pub(crate) caches: Caches,
    /// Decides who may do what.
    pub(crate) authorizer: Authorizer,
    /// The certificate authority.
    pub(crate) pki: Arc<Pki>,
    /// Signs and checks service-account tokens.
    pub(crate) tokens: Tokens,
    /// Talks to kubelets.
    pub(crate) kubelets: KubeletClient,
    /// The address clients are told in discovery.
    pub(crate) advertised: String,
    /// Cluster addresses of services.
    pub(crate) services: crate::admission::service::Allocator,
    /// Turns definitions into kinds.
    pub(crate) definitions: Definitions,
    /// Whom admission asks.
    pub(crate) webhooks: crate::admission::webhook::Webhooks,
    /// By what policies requests are admitted.
    pub(crate) policies: crate::admission::policy::Policies,
    /// Who converts custom resources.
    pub(crate) converters: crate::conversion::Converters,
    /// What is taken of quotas.
    pub(crate) quotas: crate::admission::resource_quota::Ledger,
    /// How much is served at once, and for how long.
    pub(crate) limits: Limits,
    /// Counts it.
    pub(crate) gates: Gates,
    /// Whether pods are given service accounts.
    pub(crate) service_accounts: bool,
    /// How the values of the store are encrypted.
    pub(crate) encryption: Option<Arc<Encryption>>,
    /// Ends watches.
    pub(crate) shutdown: CancellationToken,
}

/// Whether every server has a kind at this place; none that is defined at run time takes it.
pub(crate) fn is_builtin(kind: &Kind) -> bool {
    let builtin = podwire_api::Registry::builtin();
    builtin.by_resource(&kind.group, &kind.version, &kind.resource).is_some()
        || builtin.by_gvk(&kind.group, &kind.version, &kind.kind).is_some()
        || builtin.kinds().iter().any(|known| known.storage_prefix == kind.storage_prefix)
}

/// The key of an object.
pub(crate) fn key(kind: &Kind, namespace: &str, name: &str) -> String {
    if kind.namespaced {
        format!("{}{namespace}/{name}", kind.storage_prefix)
    } else {
        format!("{}{name}", kind.storage_prefix)
    }
}

impl Context {
    /// Serves one kind more, or another in place of the one of the same name.
    pub(crate) async fn serve_kind(&self, kind: Arc<Kind>) -> Result<()> {
        if is_builtin(&kind) {
            return Err(ApiError::internal(format!("{} is a built-in kind", kind.qualified_resource())));
        }
        let anew = self.caches.of(&kind).kind().selectable_fields != kind.selectable_fields;
        self.caches.add(&kind, anew).await?;
        self.kinds.change(&[], &[kind]);
        Ok(())
    }

    /// Serves kinds no more; their watches end, their objects stay in the store.
    pub(crate) fn withdraw_kinds(&self, gone: &[Arc<Kind>]) {
        self.kinds.change(gone, &[]);
        let kinds = self.kinds.now();
        for kind in gone {
            if !kinds.registry.kinds().iter().any(|other| other.storage_prefix == kind.storage_prefix) {
                self.caches.remove(&kind.storage_prefix);
                self.converters.forget(kind);
            }
        }
    }

    /// All objects of a kind in a namespace, as the cache has them.
    pub(crate) fn cached(&self, kind: &Kind, namespace: &str) -> Vec<Value> {
        let prefix = if kind.namespaced { key(kind, namespace, "") } else { kind.storage_prefix.to_string() };
        let snapshot = self.caches.of(kind).snapshot(&Scope { prefix, node: None, key: None });
        snapshot.entries.iter().map(|entry| entry.decode(kind)).collect()
    }

    /// Whether an object is to be written again although nothing of it changes: with another key than it was.
    pub(crate) fn is_stale(&self, stored: &KeyValue) -> bool {
        self.encryption.as_ref().is_some_and(|encryption| encryption.is_stale(stored))
    }

    /// The stored bytes of an object, or 404.
    pub(crate) async fn stored(&self, kind: &Kind, namespace: &str, name: &str) -> Result<KeyValue> {
        let key = key(kind, namespace, name);
        self.store.get(&key).await?.ok_or_else(|| ApiError::not_found(kind, name))
    }

    /// A parsed object, or 404.
    pub(crate) async fn object(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value> {
        let kv = self.stored(kind, namespace, name).await?;
        read(kind, &self.served(kind, kv).await?)
    }
}

/// Parses stored bytes into the version of `kind`; those of a kind that a webhook converts have been there.
pub(crate) fn read(kind: &Kind, kv: &KeyValue) -> Result<Value> {
    let mut object =
        codec::decode(kind, kv).map_err(|error| ApiError::internal(crate::error_chain(&error)))?;
    to_version(kind, &mut object);
    Ok(object)
}

/// Turns the stored shape into the one of `kind`.
pub(crate) fn to_version(kind: &Kind, object: &mut Value) {
    if kind.strategy.is_converted() {
        kind.strategy.to_served(object);
        object["apiVersion"] = kind.api_version().into();
    }
}
