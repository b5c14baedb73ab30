//! What the collector asks of the API server about one object; all of it can be asked again.

use std::collections::HashMap;

use podwire_client::api::{
    Api, ApiResource, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use podwire_client::discovery::Scope;
use podwire_client::{Client, Meta, ResourceExt};
use serde_json::{Value, json};

use super::graph::{Object, Owner, Place, Policy, Standing, Step, Waits, decide};
use super::{object_of, waits_of};
use crate::FIELD_MANAGER;
use crate::watching::is_status;

/// A resource that has owners and dependents.
#[derive(Clone)]
pub(super) struct Resource {
    pub(super) api: ApiResource,
    pub(super) scope: Scope,
    /// Whether it still is; its place in the list stays in any case.
    pub(super) served: bool,
}

/// All resources by their place, and a way to find one by what an owner reference says.
pub(super) struct Resources(pub(super) Vec<Resource>);

impl Resources {
    fn find(&self, owner: &Owner) -> Option<&Resource> {
        // Of whichever version a reference speaks, it is the same object.
        let (group, _) = podwire_api::split_api_version(&owner.api_version);
        self.0.iter().find(|one| one.served && one.api.group == group && one.api.kind == owner.kind)
    }

    fn api(&self, client: &Client, place: &Place) -> Api<Meta> {
        let resource = &self.0[place.resource];
        match resource.scope {
            Scope::Namespaced => Api::namespaced_with(client.clone(), &place.namespace, &resource.api),
            Scope::Cluster => Api::all_with(client.clone(), &resource.api),
        }
    }
}

/// What the graph knows of an object whose turn it is.
pub(super) struct Job {
    pub(super) uid: String,
    pub(super) object: Object,
    /// How those of its owners stand that are known.
    pub(super) standings: HashMap<String, Standing>,
    /// Where its dependents are.
    pub(super) dependents: Vec<Place>,
    pub(super) is_blocked: bool,
}

/// Does what is due for one object.
pub(super) async fn act(
    client: &Client,
    resources: &Resources,
    job: &Job,
) -> Result<(), podwire_client::Error> {
    let api = resources.api(client, &job.object.place);
    let Some(live) = api.get_opt(&job.object.place.name).await? else { return Ok(()) };
    if live.uid().as_deref() != Some(job.uid.as_str()) {
        return Ok(());
    }
    if live.metadata.deletion_timestamp.is_some() {
        match waits_of(&live.metadata) {
            Some(Waits::Orphan) => {
                for dependent in &job.dependents {
                    let api = resources.api(client, dependent);
                    if let Some(found) = api.get_opt(&dependent.name).await? {
                        strike_out(&api, &found, std::slice::from_ref(&job.uid)).await?;
                    }
                }
                finish(&api, &live, Waits::Orphan).await?;
            }
            Some(Waits::Foreground) if !job.is_blocked => finish(&api, &live, Waits::Foreground).await?,
            Some(Waits::Foreground) | None => {}
        }
        return Ok(());
    }
    let now = object_of(&live.metadata, job.object.place.clone());
    let mut standings = Vec::new();
    for owner in &now.owners {
        standings.push(match job.standings.get(&owner.uid) {
            Some(known) => *known,
            None => ask(client, resources, &now.place, owner).await?,
        });
    }
    match decide(&now.owners, &standings, now.waits, !job.dependents.is_empty()) {
        Step::Nothing => Ok(()),
        Step::StrikeOut(owners) => strike_out(&api, &live, &owners).await,
        Step::Delete(policy) => delete(&api, &live, policy).await,
    }
}

/// Asks the server how an owner stands that no watch has shown.
async fn ask(
    client: &Client,
    resources: &Resources,
    dependent: &Place,
    owner: &Owner,
) -> Result<Standing, podwire_client::Error> {
    // Of a kind that nobody serves nothing can be said, so what it owns stays.
    let Some(resource) = resources.find(owner) else { return Ok(Standing::Solid) };
    let api: Api<Meta> = match resource.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource.api),
        // An owner in a namespace cannot own what is in none.
        Scope::Namespaced if dependent.namespace.is_empty() => return Ok(Standing::Solid),
        Scope::Namespaced => Api::namespaced_with(client.clone(), &dependent.namespace, &resource.api),
    };
    let found = api.get_opt(&owner.name).await?;
    let Some(found) = found.filter(|found| found.uid().as_deref() == Some(owner.uid.as_str())) else {
        return Ok(Standing::Absent);
    };
    let waits =
        found.metadata.deletion_timestamp.is_some() && waits_of(&found.metadata) == Some(Waits::Foreground);
    Ok(if waits { Standing::Waiting } else { Standing::Solid })
}

/// Takes owners out of an object's references, if it is still as it was read.
async fn strike_out(api: &Api<Meta>, live: &Meta, owners: &[String]) -> Result<(), podwire_client::Error> {
    let left: Vec<_> = live.owner_references().iter().filter(|owner| !owners.contains(&owner.uid)).collect();
    if left.len() == live.owner_references().len() {
        return Ok(());
    }
    patch(api, live, json!({"ownerReferences": left})).await
}

/// Takes off the finalizer that made a terminating object wait for the collector.
async fn finish(api: &Api<Meta>, live: &Meta, waits: Waits) -> Result<(), podwire_client::Error> {
    let left: Vec<_> = live.finalizers().iter().filter(|name| *name != waits.finalizer()).collect();
    patch(api, live, json!({"finalizers": left})).await
}

async fn patch(api: &Api<Meta>, live: &Meta, mut metadata: Value) -> Result<(), podwire_client::Error> {
    metadata["uid"] = json!(live.uid());
    metadata["resourceVersion"] = json!(live.resource_version());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let body = Patch::Merge(json!({"metadata": metadata}));
    unless_gone(api.patch(&live.name_any(), &params, &body).await.map(drop))
}

async fn delete(api: &Api<Meta>, live: &Meta, policy: Policy) -> Result<(), podwire_client::Error> {
    let propagation = match policy {
        Policy::Background => PropagationPolicy::Background,
        Policy::Foreground => PropagationPolicy::Foreground,
        Policy::Orphan => PropagationPolicy::Orphan,
    };
    let conditions = Preconditions { uid: live.uid(), resource_version: live.resource_version() };
    let params = DeleteParams {
        propagation_policy: Some(propagation),
        preconditions: Some(conditions),
        ..DeleteParams::default()
    };
    tracing::info!(name = live.name_any(), namespace = live.namespace(), "nobody owns it any more; deleting");
    unless_gone(api.delete(&live.name_any(), &params).await)
}

fn unless_gone(done: Result<(), podwire_client::Error>) -> Result<(), podwire_client::Error> {
    match done {
        Err(error) if is_status(&error, 404) => Ok(()),
        other => other,
    }
}
