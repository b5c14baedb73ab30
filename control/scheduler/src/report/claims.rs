//! Writes what was decided into claims, waits for drivers, and takes reservations back.
//!
//! A write names the version of the claim that it is about: what somebody else changed meanwhile is looked at first. If the
//! API server does not say what became of a write, the claim is asked until it is known; only then is anything given up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::serde::Deserialize;
use podwire_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use podwire_client::watcher::{self, watcher};
use podwire_client::{Client, DynamicObject, Error};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FIELD_MANAGER, seconds};
use crate::cluster::devices::{Claim, version};
use crate::framework::{Journey, StepError};
use crate::plugins::dynamic_resources::readiness::{self, Readiness};
use crate::plugins::dynamic_resources::{ClaimPlan, PlannedClaim};
use crate::pod::PodInfo;
use crate::watches::Kind;

/// Keeps a claim with devices from vanishing.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often somebody else may be faster.
const CONFLICTS: usize = 5;
/// A request is answered within this time or never carried out.
const DOUBT: Duration = Duration::from_secs(60);
/// The first wait after a failure, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

type Claims = Api<DynamicObject>;

fn claims(client: &Client, claim: &Claim) -> Claims {
    Api::namespaced_with(client.clone(), &claim.key.0, &Kind::DeviceClaim.api())
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

/// What is written in place of what.
struct Current {
    version: String,
    deleting: bool,
    finalizers: Vec<String>,
    users: Vec<Value>,
    allocation: Option<Value>,
}

impl Current {
    fn read(object: &Value) -> Self {
        let (meta, status) = (&object["metadata"], &object["status"]);
        let finalizers = meta["finalizers"].as_array().into_iter().flatten();
        Self {
            version: meta["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            deleting: !meta["deletionTimestamp"].is_null(),
            finalizers: finalizers.filter_map(|one| Some(one.as_str()?.to_owned())).collect(),
            users: status["reservedFor"].as_array().cloned().unwrap_or_default(),
            allocation: Some(&status["allocation"]).filter(|it| !it.is_null()).cloned(),
        }
    }

    fn has_user(&self, pod: &PodInfo) -> bool {
        self.users.iter().any(|one| one["uid"] == *pod.uid)
    }
}

fn plugin(text: String) -> StepError {
    StepError::Plugin(text)
}

fn has_code(error: &StepError, code: u16) -> bool {
    matches!(error, StepError::Api(error) if matches!(&**error, Error::Api(status) if status.code == code))
}

fn gone(claim: &Claim) -> StepError {
    plugin(format!("claim {} got deleted in the meantime", claim.reference()))
}

/// Writes allocations and reservations of a pod that has a node, and waits until drivers have made ready what they must.
pub(crate) async fn write(journey: &Journey, plan: &ClaimPlan, timeout: Duration) -> Result<(), StepError> {
    let missing = plan.claims.iter().filter(|one| !one.claim.is_reserved_for(&journey.pod.uid));
    let written = join_all(missing.map(|one| write_or_make(journey, one))).await;
    written.into_iter().collect::<Result<Vec<()>, _>>()?;
    let awaited: Vec<_> = plan
        .claims
        .iter()
        .filter(|one| one.devices().is_some_and(readiness::is_waited_for))
        .map(|one| until_ready(&journey.client, &one.claim, timeout))
        .collect();
    if awaited.is_empty() {
        return Ok(());
    }
    let _waits = journey.lounge.enter();
    let waited = join_all(awaited).await;
    waited.into_iter().collect::<Result<Vec<()>, _>>().map(drop)
}

async fn write_or_make(journey: &Journey, planned: &PlannedClaim) -> Result<(), StepError> {
    let Some(special) = &planned.special else { return write_one(journey, planned, &planned.claim).await };
    let (pod, thought) = (&journey.pod, &planned.claim.object);
    let mut object = json!(thought);
    let meta = json!({"generateName": format!("{}-extended-resources-", pod.name), "namespace": pod.namespace,
        "ownerReferences": thought.metadata.owner_references, "annotations": thought.metadata.annotations,
        "finalizers": [FINALIZER]});
    object["metadata"] = meta.clone();
    let creation = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let made = claims(&journey.client, &planned.claim).create(&creation, &object).await?;
    let claim = Claim::new(ResourceClaim { metadata: made.metadata, ..thought.clone() });
    // Ignored: it is set once, here.
    special.made.set((claim.key.clone(), claim.uid().to_owned())).ok();
    write_one(journey, planned, &claim).await?;
    let mappings = special.mappings.iter().map(|one| {
        json!({"containerName": one.container, "resourceName": one.resource, "requestName": one.request})
    });
    let mappings: Vec<Value> = mappings.collect();
    let told = json!({"extendedResourceClaimStatus":
        {"requestMappings": mappings, "resourceClaimName": claim.key.1}});
    Ok(super::patch_status(journey.client.clone(), pod, &told).await?)
}

async fn write_one(journey: &Journey, planned: &PlannedClaim, claim: &Claim) -> Result<(), StepError> {
    let api = claims(&journey.client, claim);
    let mut current = Current::read(&json!(claim.object));
    let (mut conflicts, mut doubt, mut wait) = (0, None, FIRST_WAIT);
    loop {
        let error = match try_once(&api, journey, planned, claim, current, doubt.is_some()).await {
            Ok(version) => {
                planned.reserved.store(true, Ordering::Relaxed);
                if planned.allocation.is_some() {
                    // Ignored: it is set once, here.
                    planned.written.set(version).ok();
                }
                return Ok(());
            }
            // What is not there is the claim, not the pod.
            Err(error) if has_code(&error, 404) => return Err(gone(claim)),
            Err(error) => error,
        };
        if has_code(&error, 409) && conflicts + 1 < CONFLICTS {
            conflicts += 1;
        } else if error.is_doubtful() {
            let since = *doubt.get_or_insert_with(Instant::now);
            tracing::debug!(claim = claim.reference(), %error, "claim perhaps not written; it is asked");
            if since.elapsed() > DOUBT {
                return Err(error);
            }
        } else {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
        wait = if doubt.is_some() { (wait * 2).min(LONGEST_WAIT) } else { wait };
        current = again(&api, claim, &mut doubt).await?;
    }
}

/// The claim as it is now; while the API server cannot say, it is asked again.
async fn again(api: &Claims, claim: &Claim, doubt: &mut Option<Instant>) -> Result<Current, StepError> {
    loop {
        match api.get_value(&claim.key.1).await {
            Ok(Some(object)) if object["metadata"]["uid"] == *claim.uid() => {
                return Ok(Current::read(&object));
            }
            Ok(_) => return Err(gone(claim)),
            Err(error) => {
                let (error, since) = (StepError::from(error), *doubt.get_or_insert_with(Instant::now));
                if !error.is_doubtful() || since.elapsed() > DOUBT {
                    return Err(error);
                }
                tokio::time::sleep(LONGEST_WAIT).await;
            }
        }
    }
}

/// Writes once; says the version of the claim then. `doubt`: it may have been written before.
async fn try_once(
    api: &Claims,
    journey: &Journey,
    planned: &PlannedClaim,
    claim: &Claim,
    current: Current,
    doubt: bool,
) -> Result<u64, StepError> {
    let pod = &journey.pod;
    let reference = claim.reference();
    if current.deleting {
        return Err(gone(claim));
    }
    if doubt && current.allocation.is_some() && current.has_user(pod) {
        return Ok(version(Some(&current.version)));
    }
    let mut on = current.version.clone();
    let mut status = json!({});
    match (&planned.allocation, &current.allocation) {
        (Some(_), Some(_)) => {
            return Err(plugin(format!("claim {reference} got allocated elsewhere in the meantime")));
        }
        (None, None) => {
            return Err(plugin(format!("claim {reference} got deallocated elsewhere in the meantime")));
        }
        (None, Some(_)) => {}
        (Some(allocation), None) => {
            if !current.finalizers.iter().any(|one| one == FINALIZER) {
                let mut all = current.finalizers.clone();
                all.push(FINALIZER.to_owned());
                let meta = json!({"uid": claim.uid(), "resourceVersion": on, "finalizers": all});
                let patch = Patch::Merge(json!({"metadata": meta}));
                let done = api.patch(&claim.key.1, &params(), &patch).await?;
                on = done.metadata.resource_version.unwrap_or_default();
            }
            status["allocation"] = json!(**allocation);
            status["allocation"]["allocationTimestamp"] = seconds(jiff::Timestamp::now()).into();
        }
    }
    let mut users = current.users;
    users.retain(|one| one["uid"] != *pod.uid);
    users.push(json!({"resource": "pods", "name": pod.name, "uid": &*pod.uid}));
    status["reservedFor"] = users.into();
    let meta = json!({"uid": claim.uid(), "resourceVersion": on});
    let patch = Patch::Merge(json!({"metadata": meta, "status": status}));
    let done = api.patch_status(&claim.key.1, &params(), &patch).await?;
    Ok(version(done.metadata.resource_version.as_deref()))
}

/// Waits until the devices of a claim are ready; fails if a driver gives up, or takes too long.
async fn until_ready(client: &Client, claim: &Claim, timeout: Duration) -> Result<(), StepError> {
    let only = watcher::Config::default().fields(&format!("metadata.name={}", claim.key.1));
    let mut events = watcher(claims(client, claim), only);
    let name = &claim.key.1;
    let late = || plugin(format!("device binding timeout: claim={name}"));
    let mut deadline = Instant::now() + timeout;
    loop {
        let Ok(event) = tokio::time::timeout_at(deadline, events.next()).await else { return Err(late()) };
        let object = match event {
            Some(Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => object,
            Some(Ok(watcher::Event::Delete(_))) | None => return Err(gone(claim)),
            Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => continue,
            Some(Err(error)) => {
                tracing::debug!(%error, claim = claim.reference(), "watch of a claim interrupted");
                continue;
            }
        };
        let read = ResourceClaim::deserialize(&object.data);
        let read = read.map_err(|error| plugin(format!("claim {name} not understood: {error}")))?;
        if read.metadata.uid.as_deref() != Some(claim.uid()) {
            return Err(gone(claim));
        }
        match readiness::of(&read) {
            Readiness::Ready => return Ok(()),
            Readiness::Failed(why) => return Err(plugin(why)),
            Readiness::Waiting => {
                let left = readiness::patience(&read, jiff::Timestamp::now(), timeout).ok_or_else(late)?;
                deadline = Instant::now() + left;
            }
        }
    }
}

/// Takes a pod that was not bound from the users of its claims; what they have they keep, for its next attempt.
pub(crate) async fn unreserve(journey: &Journey, plan: &ClaimPlan) {
    let pod = &journey.pod;
    // It may have been bound all the same, by an earlier attempt or by somebody else: then it needs them.
    let api: Api<Pod> = Api::namespaced(journey.client.clone(), &pod.namespace);
    match api.get_value(&pod.name).await {
        Ok(Some(object)) if object["spec"]["nodeName"].as_str().is_none_or(str::is_empty) => {}
        Ok(None) => {}
        _ => return,
    }
    for planned in plan.claims.iter().filter(|one| one.special.is_some() || one.is_used_by(&pod.uid)) {
        let claim = &planned.claim;
        if let Some(special) = &planned.special {
            if let Some(((_, name), uid)) = special.made.get()
                && let Err(error) = delete(&claims(&journey.client, claim), name, uid).await
            {
                // The next attempt finds it by its owner.
                tracing::debug!(claim = name, %error, "claim for extended resources not deleted");
            }
            continue;
        }
        let gone = json!([{"$patch": "delete", "uid": &*pod.uid}]);
        let patch = json!({"metadata": {"uid": claim.uid()}, "status": {"reservedFor": gone}});
        let api = claims(&journey.client, claim);
        if let Err(error) = api.patch_status(&claim.key.1, &params(), &Patch::Strategic(patch)).await {
            // The next attempt finds the pod among the users and goes on from there.
            tracing::debug!(claim = claim.reference(), %error, "claim not given up");
        }
    }
}

/// Deletes a claim that keeps its devices from being given back by nobody but us.
async fn delete(api: &Claims, name: &str, uid: &str) -> Result<(), Error> {
    let patch = Patch::Merge(json!({"metadata": {"uid": uid, "finalizers": null}}));
    api.patch(name, &params(), &patch).await?;
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    api.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await
}

/// Gives back the devices of a claim that nobody uses; one that was made for extended resources goes.
pub(crate) async fn deallocate(client: Client, claim: &Claim) -> Result<(), Error> {
    if claim.resources_of().is_some() {
        return delete(&claims(&client, claim), &claim.key.1, claim.uid()).await;
    }
    let meta = json!({"uid": claim.uid(), "resourceVersion": claim.object.metadata.resource_version});
    let status = json!({"allocation": null, "reservedFor": null, "devices": null});
    let patch = Patch::Merge(json!({"metadata": meta, "status": status}));
    claims(&client, claim).patch_status(&claim.key.1, &params(), &patch).await.map(drop)
}
