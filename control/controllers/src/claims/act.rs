//! What the claim controller writes, and what it asks of the server; all of it can be done again.

use k8s_openapi::api::core::v1::Pod;
use podwire_api::condition;
use podwire_client::api::{
    Api, ApiResource, DeleteParams, GroupVersionKind, Patch, PatchParams, PostParams, Preconditions,
};
use podwire_client::{Client, DynamicObject, Error, Meta, ResourceExt};
use serde_json::{Value, json};

use super::plan::{self, ClaimPlan, Generated, Owner, PodPlan, Use};
use super::view::{ClaimView, Place, pod_of};
use crate::FIELD_MANAGER;
use crate::watching::is_status;

/// Upstream's name for who writes which claims were made for a pod.
const POD_STATUS_MANAGER: &str = "ResourceClaimController";

/// A resource of the group of claims.
pub(super) fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("resource.k8s.io", "v1", kind), plural)
}

fn claims(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource("ResourceClaim", "resourceclaims"))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

/// What came of a pod's plan.
#[derive(Debug, Default)]
pub(super) struct PodDone {
    /// The claims that were made: for which of the pod's, under which name, at which version.
    pub(super) made: Vec<(String, String, u64)>,
    /// What the pod's owner must know.
    pub(super) trouble: Option<String>,
    /// Whether it is to be tried again.
    pub(super) failed: bool,
}

/// Makes what a pod lacks, says so in its status, and reserves what it uses already.
pub(super) async fn pod(client: &Client, place: &Place, uid: &str, plan: PodPlan) -> PodDone {
    let mut done = PodDone::default();
    let mut names = Vec::new();
    for generated in plan.generated {
        let (pod_claim, object) = match generated {
            Generated::There { pod_claim, name } => {
                names.push((pod_claim, name));
                continue;
            }
            Generated::Missing { pod_claim, object } => (pod_claim, object),
        };
        match make(client, place, uid, &pod_claim, object).await {
            Ok((name, version)) => {
                tracing::debug!(pod = %place, claim = name, "claim made");
                done.made.push((pod_claim.clone(), name.clone(), version));
                names.push((pod_claim, name));
            }
            Err(error) => {
                // The name that upstream says is not known before the claim is made.
                let why = format!("create ResourceClaim : {}", words(&error));
                return failed(done, place, &pod_claim, &why);
            }
        }
    }
    if let Some((pod_claim, why)) = plan.trouble {
        return failed(done, place, &pod_claim, &why);
    }
    let mut written = Ok(());
    if plan.tells {
        written = tell(client, place, uid, &names).await;
    }
    for reservation in plan.reservations {
        if written.is_ok() {
            let api = claims(client, &reservation.claim.namespace);
            let patch = Patch::Merge(reservation.patch);
            written = api.patch_status(&reservation.claim.name, &params(), &patch).await.map(drop);
        }
    }
    if let Err(error) = unless_gone(written) {
        tracing::debug!(pod = %place, %error, "claims of a pod not settled; will retry");
        done.failed = true;
    }
    done
}

/// Makes a claim, or finds the one that somebody made for the same purpose meanwhile; its name and version.
async fn make(
    client: &Client,
    place: &Place,
    uid: &str,
    pod_claim: &str,
    mut object: Value,
) -> Result<(String, u64), Error> {
    let api = claims(client, &place.namespace);
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let taken = match api.create(&params, &object).await {
        Err(Error::Api(status)) if status.reason == "AlreadyExists" => object["metadata"]["name"].take(),
        made => return made.map(|made| (made.name_any(), version_of(made.resource_version()))),
    };
    let taken = taken.as_str().unwrap_or_default();
    if let Some(found) = api.get_opt(taken).await? {
        let view = ClaimView::new(&found.data);
        if view.controller == uid && view.pod_claim.as_deref() == Some(pod_claim) {
            return Ok((taken.to_owned(), version_of(found.resource_version())));
        }
    }
    // Somebody else has the name.
    api.create(&params, &object).await.map(|made| (made.name_any(), version_of(made.resource_version())))
}

fn failed(mut done: PodDone, place: &Place, pod_claim: &str, why: &str) -> PodDone {
    tracing::debug!(pod = %place, claim = pod_claim, why, "claim not made; will retry");
    done.trouble = Some(format!("PodResourceClaim {pod_claim}: {why}"));
    done.failed = true;
    done
}

fn version_of(text: Option<String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What the server said, without the code that the client adds.
fn words(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Writes which claims were made for a pod, all of them: what is left out of an apply goes.
async fn tell(client: &Client, place: &Place, uid: &str, names: &[(String, String)]) -> Result<(), Error> {
    let one = |(name, claim): &(String, String)| json!({"name": name, "resourceClaimName": claim});
    let statuses: Vec<Value> = names.iter().map(one).collect();
    let body = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": place.name, "namespace": place.namespace, "uid": uid},
        "status": {"resourceClaimStatuses": statuses},
    });
    let api: Api<Pod> = Api::namespaced(client.clone(), &place.namespace);
    let params = PatchParams::apply(POD_STATUS_MANAGER).force();
    api.patch_status(&place.name, &params, &Patch::Apply(body)).await.map(drop)
}

/// Takes those who use a claim no longer out of it, and does what follows.
pub(super) async fn claim(
    client: &Client,
    place: &Place,
    claim: &ClaimView,
    mut uses: Vec<Use>,
    owner: Owner,
) -> Result<(), Error> {
    for (consumer, one) in claim.reserved.iter().zip(&mut uses).filter(|(_, one)| **one == Use::Unknown) {
        let Some((name, uid)) = pod_of(consumer) else { continue };
        let pods = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
        let api: Api<Meta> = Api::namespaced_with(client.clone(), &place.namespace, &pods);
        let live = api.get_opt(name).await?;
        let same = live.is_some_and(|live| live.uid().as_deref() == Some(uid));
        *one = if same { Use::Stays } else { Use::Ends };
    }
    let plan = plan::claim(claim, &uses, owner);
    unless_gone(carry_out(client, place, claim, plan).await)
}

async fn carry_out(client: &Client, place: &Place, claim: &ClaimView, plan: ClaimPlan) -> Result<(), Error> {
    let api = claims(client, &place.namespace);
    let mut version = claim.version.clone();
    if let Some(status) = plan.status {
        let patch = json!({"metadata": plan::version(claim, &version), "status": status});
        let written = api.patch_status(&place.name, &params(), &Patch::Merge(patch)).await?;
        version = written.resource_version().unwrap_or(version);
    }
    if let Some(finalizers) = plan.finalizers {
        let mut metadata = plan::version(claim, &version);
        metadata["finalizers"] = json!(finalizers);
        api.patch(&place.name, &params(), &Patch::Merge(json!({"metadata": metadata}))).await?;
    }
    if plan.deletes {
        tracing::debug!(claim = %place, "the pod that it was made for is done; deleting");
        let conditions = Preconditions { uid: Some(claim.uid.clone()), resource_version: None };
        let params = DeleteParams { preconditions: Some(conditions), ..DeleteParams::default() };
        api.delete(&place.name, &params).await?;
    }
    Ok(())
}

/// Removes a pod from a device that is tainted; says whether it was there to be removed.
pub(super) async fn evict(client: &Client, place: &Place, uid: &str) -> Result<bool, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &place.namespace);
    let Some(live) = api.get_opt(&place.name).await? else { return Ok(false) };
    if live.metadata.uid.as_deref() != Some(uid) || live.metadata.deletion_timestamp.is_some() {
        return Ok(false);
    }
    let conditions = live.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let reason = "DeletionByDeviceTaintManager";
    let said = condition::find(conditions, "DisruptionTarget")
        .is_some_and(|one| one.status == "True" && one.reason.as_deref() == Some(reason));
    if !said {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": reason,
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        unless_gone(api.patch_status(&place.name, &params(), &Patch::Strategic(patch)).await.map(drop))?;
    }
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let done = api.delete(&place.name, &DeleteParams { preconditions, ..DeleteParams::default() }).await;
    unless_gone(done).map(|()| true)
}

fn unless_gone(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(error) if is_status(&error, 404) => Ok(()),
        other => other,
    }
}
