//! The objects every cluster has from the first moment.

mod roles;

use std::sync::Arc;

use podwire_api::{Kind, apply, builtin};
use serde_json::{Value, json};

use super::create::Insert;
use super::options::{FieldValidation, WriteOptions};
use crate::context::{self, Context};
use crate::identity::{Identity, MASTERS};
use crate::status::Result;

/// Creates what is missing; what is there stays as it is.
pub(crate) async fn run(context: &Context) -> Result<()> {
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"];
    let namespaces = namespaces.map(|name| (builtin::namespaces(), json!({"metadata": {"name": name}})));
    ensure_all(context, namespaces.into()).await?;
    futures::future::try_join(ensure_all(context, objects(context)), roles::run(context)).await?;
    Ok(())
}

/// Everything beside the namespaces.
fn objects(context: &Context) -> Vec<(&'static Arc<Kind>, Value)> {
    let class = |name: &str, value: u32, description: &str| json!({"metadata": {"name": name}, "value": value, "description": description});
    // The controllers would make accounts a moment later; the first pod need not wait for them.
    let account = |namespace: &str| json!({"metadata": {"name": "default", "namespace": namespace}});
    let service = json!({
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": context.services.first().to_string(), "sessionAffinity": "None",
                 "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port(context)}]},
    });
    let cluster = class("system-cluster-critical", 2_000_000_000, "for pods the cluster cannot work without");
    let node = class("system-node-critical", 2_000_001_000, "for pods their node cannot work without");
    vec![
        (builtin::priority_classes(), cluster),
        (builtin::priority_classes(), node),
        (builtin::service_accounts(), account("default")),
        (builtin::service_accounts(), account("kube-system")),
        (builtin::services(), service),
    ]
}

/// Creates several objects side by side, so that they share the store's commits.
async fn ensure_all(context: &Context, objects: Vec<(&'static Arc<Kind>, Value)>) -> Result<()> {
    let tasks = objects.into_iter().map(|(kind, object)| ensure(context, kind, object));
    futures::future::try_join_all(tasks).await?;
    Ok(())
}

fn port(context: &Context) -> u16 {
    context.advertised.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(6443)
}

async fn ensure(context: &Context, kind: &Kind, object: Value) -> Result<()> {
    if context.caches.of(kind).get(&key_of(kind, &object)).is_some() {
        return Ok(());
    }
    creation(context, kind, object).await
}

fn key_of(kind: &Kind, object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    context::key(kind, text("namespace"), text("name"))
}

/// Creates an object unless somebody else did.
async fn creation(context: &Context, kind: &Kind, mut object: Value) -> Result<()> {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = (*kind.kind).into();
    let (identity, options, key) = (server(), options(), key_of(kind, &object));
    let insert =
        Insert { context, identity: &identity, kind, options: &options, operation: apply::Operation::Update };
    match insert.run(object).await {
        Err(error) if error.reason == "AlreadyExists" => Ok(()),
        // Another server of the same cluster may have made it a moment ago, with the address that this one asked for.
        Err(error) => context.store.get(&key).await?.map(|_| ()).ok_or(error),
        Ok(_) => Ok(()),
    }
}

/// The server itself, as it writes its own objects.
fn server() -> Identity {
    Identity::new("system:apiserver", &[MASTERS])
}

fn options() -> WriteOptions {
    WriteOptions {
        dry_run: false,
        validation: FieldValidation::Ignore,
        manager: "podwire".into(),
        manager_given: true,
        told: std::sync::Arc::default(),
        by_server: true,
    }
}
