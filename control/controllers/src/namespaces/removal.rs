//! Empties one namespace and lets it go: pods first, then everything else, then the finalizer.
//!
//! Runs as one task per namespace until it is gone. Between rounds it waits for a deletion among what is
//! left, not for a clock; the clock only bounds the wait.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use podwire_client::api::{
    Api, ApiResource, DeleteParams, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use podwire_client::discovery::{self, ApiCapabilities, Scope, verbs};
use podwire_client::{Client, Meta, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::plan::{FINALIZER, Remains};
use crate::FIELD_MANAGER;
use crate::watching::is_status;

/// The longest wait between two rounds.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The pause after a round that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// Resources emptied at the same time.
const AT_ONCE: usize = 8;

/// Empties and finalizes `name`; returns early only on `shutdown`.
pub(crate) async fn remove(client: Client, name: &str, shutdown: &CancellationToken) {
    let mut said = Value::Null;
    while !shutdown.is_cancelled() {
        match one_round(&client, name, &mut said).await {
            Ok(Round::Gone) => {
                tracing::info!(namespace = name, "namespace removed");
                return;
            }
            Ok(Round::Waiting(left, since)) => {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = a_deletion(&client, name, &left, &since) => {}
                }
            }
            Ok(Round::Failed) => pause(shutdown).await,
            Err(error) => {
                tracing::warn!(namespace = name, %error, "namespace not emptied; will retry");
                pause(shutdown).await;
            }
        }
    }
}

async fn pause(shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(AFTER_FAILURE) => {}
    }
}

enum Round {
    /// The namespace is finalized.
    Gone,
    /// Objects of this resource are left, as of this resource version.
    Waiting(ApiResource, String),
    /// Something failed; the conditions say what.
    Failed,
}

/// A deletable namespaced resource.
struct Target {
    resource: ApiResource,
    collection: bool,
}

/// What was left of one resource.
struct Left {
    resource: ApiResource,
    version: String,
    objects: Vec<Meta>,
}

async fn one_round(client: &Client, name: &str, said: &mut Value) -> Result<Round, podwire_client::Error> {
    let mut remains = Remains::default();
    let targets = match discover(client).await {
        Ok(targets) => targets,
        Err(error) => {
            remains.undiscovered = Some(error.to_string());
            Vec::new()
        }
    };
    let (pods, others): (Vec<_>, Vec<_>) =
        targets.into_iter().partition(|one| one.resource.group.is_empty() && one.resource.plural == "pods");
    let mut left = empty_all(client, name, pods, &mut remains).await;
    // Services, secrets and volumes must outlive the pods that use them.
    if left.is_empty() {
        left = empty_all(client, name, others, &mut remains).await;
    }
    say(client, name, &remains, said).await?;
    if remains.is_empty() {
        finalize(client, name).await?;
        return Ok(Round::Gone);
    }
    let left = left.into_iter().next();
    Ok(left.map_or(Round::Failed, |left| Round::Waiting(left.resource, left.version)))
}

async fn discover(client: &Client) -> Result<Vec<Target>, podwire_client::Error> {
    let usable = |caps: &ApiCapabilities| {
        caps.scope == Scope::Namespaced
            && caps.supports_operation(verbs::LIST)
            && caps.supports_operation(verbs::DELETE)
    };
    let all = discovery::resources(client).await?;
    Ok(all
        .into_iter()
        .filter(|(_, caps)| usable(caps))
        .map(|(resource, caps)| Target {
            resource,
            collection: caps.supports_operation(verbs::DELETE_COLLECTION),
        })
        .collect())
}

async fn empty_all(client: &Client, name: &str, targets: Vec<Target>, remains: &mut Remains) -> Vec<Left> {
    let emptied: Vec<_> = stream::iter(targets)
        .map(|target| async move {
            let result = empty(client, name, &target).await;
            (target, result)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut left = Vec::new();
    for (target, result) in emptied {
        let called = format!("{}.{}", target.resource.plural, target.resource.group);
        match result {
            Ok(None) => {}
            Ok(Some(found)) => {
                remains.resources.insert(called, found.objects.len());
                for finalizer in found.objects.iter().flat_map(|object| object.finalizers()) {
                    *remains.finalizers.entry(finalizer.clone()).or_default() += 1;
                }
                left.push(found);
            }
            Err(error) => remains.failures.push(format!("{called}: {error}")),
        }
    }
    left
}

/// Asks for the deletion of all objects of one resource; what is still there afterwards is returned.
async fn empty(client: &Client, name: &str, target: &Target) -> Result<Option<Left>, podwire_client::Error> {
    let api: Api<Meta> = Api::namespaced_with(client.clone(), name, &target.resource);
    let before = match api.list(&ListParams::default()).await {
        Ok(before) => before,
        // Not served after all.
        Err(error) if is_status(&error, 404) || is_status(&error, 405) => return Ok(None),
        Err(error) => return Err(error),
    };
    if before.items.is_empty() {
        return Ok(None);
    }
    let fresh = before.items.iter().any(|object| object.metadata.deletion_timestamp.is_none());
    if fresh && target.collection {
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
    } else if fresh {
        for object in before.items.iter().filter(|object| object.metadata.deletion_timestamp.is_none()) {
            match api.delete(&object.name_any(), &DeleteParams::background()).await {
                Err(error) if !is_status(&error, 404) => return Err(error),
                _ => {}
            }
        }
    }
    let after = if fresh { api.list(&ListParams::default()).await? } else { before };
    let version = after.metadata.resource_version.clone().unwrap_or_default();
    let resource = target.resource.clone();
    Ok((!after.items.is_empty()).then_some(Left { resource, version, objects: after.items }))
}

/// Waits until an object of the resource is deleted, or for the longest wait.
async fn a_deletion(client: &Client, name: &str, resource: &ApiResource, since: &str) {
    let api: Api<Meta> = Api::namespaced_with(client.clone(), name, resource);
    let watching = async {
        let params = WatchParams::default().timeout(10);
        let Ok(events) = api.watch(&params, since).await else { return false };
        let mut events = events;
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                WatchEvent::Deleted(_) => return true,
                WatchEvent::Error(_) => return false,
                _ => {}
            }
        }
        false
    };
    match tokio::time::timeout(LONGEST_WAIT, watching).await {
        Ok(true) | Err(_) => {}
        // The watch did not work: do not spin.
        Ok(false) => tokio::time::sleep(AFTER_FAILURE).await,
    }
}

fn namespaces(client: &Client) -> Api<Meta> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace")))
}

/// Writes the conditions if they differ from what was said last.
async fn say(
    client: &Client,
    name: &str,
    remains: &Remains,
    said: &mut Value,
) -> Result<(), podwire_client::Error> {
    let unstamped = remains.conditions("");
    // A namespace that goes in the first round needs no words.
    if *said == unstamped || (said.is_null() && remains.is_empty()) {
        return Ok(());
    }
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = Patch::Strategic(json!({"status": {"conditions": remains.conditions(&now)}}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    match namespaces(client).patch_status(name, &params, &patch).await {
        Err(error) if !is_status(&error, 404) => return Err(error),
        _ => {}
    }
    *said = unstamped;
    Ok(())
}

/// Takes our finalizer off, which lets the namespace go.
async fn finalize(client: &Client, name: &str) -> Result<(), podwire_client::Error> {
    let api = namespaces(client);
    let Some(mut namespace) = api.get_value(name).await? else { return Ok(()) };
    if let Some(held) = namespace["spec"]["finalizers"].as_array_mut() {
        held.retain(|one| one != FINALIZER);
    }
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    match api.replace_subresource("finalize", name, &params, &namespace).await {
        Err(error) if is_status(&error, 404) => Ok(()),
        other => other.map(drop),
    }
}
