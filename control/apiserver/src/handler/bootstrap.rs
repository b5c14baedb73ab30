//! The objects every cluster has from the first moment.

mod roles;

use std::sync::Arc;
use std::time::Duration;

use podwire_api::{Kind, Part, apply, builtin, condition};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::create::{self, Insert, Inserted};
use super::options::{FieldValidation, WriteOptions};
use super::update::{Change, Extent};
use crate::admission::service::{self, Repair};
use crate::context::{self, Context};
use crate::identity::{Identity, MASTERS};
use crate::status::Result;

/// The first range of services' addresses.
const RANGE: &str = "kubernetes";
/// How long another server may take between the address of a service and the service.
const PEER: Duration = Duration::from_secs(5);

/// Creates what is missing; what is there stays as it is, but for what services hold.
pub(crate) async fn run(context: &Context, repair: &mut Repair) -> Result<()> {
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"];
    let namespaces = namespaces.map(|name| (builtin::namespaces(), json!({"metadata": {"name": name}})));
    ensure_all(context, namespaces.into()).await?;
    let objects = ensure_all(context, objects(context));
    futures::future::try_join4(objects, roles::run(context), range(context), repair.round(context)).await?;
    Ok(())
}

/// The range that addresses of services are given out of, ready.
async fn range(context: &Context) -> Result<()> {
    let (kind, cidrs) = (builtin::service_cidrs(), json!([context.services.cidr()]));
    ensure(context, kind, json!({"metadata": {"name": RANGE}, "spec": {"cidrs": cidrs}})).await?;
    let stored = context.object(kind, "", RANGE).await?;
    if stored["spec"]["cidrs"] != cidrs {
        let (stored, own) = (stored["spec"]["cidrs"].to_string(), context.services.cidr());
        tracing::warn!(
            stored,
            own,
            "services have addresses of the stored range, not of the one of this server"
        );
        return Ok(());
    }
    if condition::find(condition::of(&stored), "Ready").is_some() {
        return Ok(());
    }
    let ready = json!({"type": "Ready", "status": "True", "reason": "", "lastTransitionTime": create::now(),
        "message": "Kubernetes default Service CIDR is ready"});
    let with = |old: &Value| {
        let mut new = old.clone();
        if condition::find(condition::of(old), "Ready").is_none() {
            new["status"]["conditions"] = json!([ready]);
        }
        Ok(new)
    };
    let (place, extent) = (("", RANGE), Extent::Part(Part::Status));
    change(context, kind, place, extent, "kubernetes-service-cidr-controller", with).await
}

/// Changes an object as the server itself.
async fn change(
    context: &Context,
    kind: &Kind,
    (namespace, name): (&str, &str),
    extent: Extent,
    manager: &str,
    make: impl FnMut(&Value) -> Result<Value>,
) -> Result<()> {
    let (identity, mut options) = (server(), options());
    options.manager = manager.into();
    let change = Change {
        context,
        identity: &identity,
        kind,
        namespace,
        name,
        verb: "update",
        extent,
        options: &options,
        // Whose object says its version is told of others' writes.
        retry: true,
        untracked: false,
        check_uid: false,
    };
    change.run(make).await.map(|_| ())
}

/// Replaces an object at its version as the server itself.
pub(crate) async fn replace(context: &Context, kind: &Kind, object: &Value, manager: &str) -> Result<()> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let place = (text("namespace"), text("name"));
    change(context, kind, place, Extent::Main, manager, |_| Ok(object.clone())).await
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

/// The port that is listened on.
pub(crate) fn port(context: &Context) -> u16 {
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
async fn creation(context: &Context, kind: &Kind, object: Value) -> Result<()> {
    let (begun, key) = (Instant::now(), key_of(kind, &object));
    let mut orphans = 0;
    loop {
        let error = match insert(context, kind, object.clone(), "podwire").await {
            Ok(_) => return Ok(()),
            Err(error) if error.reason == "AlreadyExists" => return Ok(()),
            Err(error) => error,
        };
        // Another server of the same cluster may have made it a moment ago, with the address that this one asked for.
        if context.store.get(&key).await?.is_some() {
            return Ok(());
        }
        let services = builtin::services();
        if !kind.is(&services.group, &services.kind) || error.reason != "Invalid" || orphans > 1 {
            return Err(error);
        }
        if begun.elapsed() > PEER {
            // It has ended in between.
            service::deleted(context, kind, &object).await;
            orphans += 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Creates an object as the server itself.
pub(crate) async fn insert(
    context: &Context,
    kind: &Kind,
    mut object: Value,
    manager: &str,
) -> Result<Inserted> {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = (*kind.kind).into();
    let (identity, mut options) = (server(), options());
    options.manager = manager.into();
    let insert =
        Insert { context, identity: &identity, kind, options: &options, operation: apply::Operation::Update };
    insert.run(object).await
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
