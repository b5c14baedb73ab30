//! What the scheduler writes: bindings, the `PodScheduled` condition, events, claims. Only subresources and patches.

pub(crate) mod claims;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{
    Event, EventSeries, EventSource, ObjectReference, PersistentVolumeClaim, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use podwire_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use podwire_client::watcher::{self, watcher};
use podwire_client::{Client, DynamicObject};
use podwire_trace::{Arrow, Outcome, Participant, Side, What};
use serde_json::{Value, json};

use crate::cluster::storage::{Claim, SELECTED_NODE};
use crate::framework::{Journey, StepError};
use crate::plugins::volume_binding::VolumePlan;
use crate::pod::PodInfo;
use crate::watches::Kind;

/// Who is recorded as the manager of the fields written here.
const FIELD_MANAGER: &str = "kube-scheduler";

/// Between two questions about a binding of which nothing is known.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How many events are remembered for counting repetitions.
const REMEMBERED: usize = 1024;

/// Binds a pod to a node.
pub(crate) async fn bind(client: Client, pod: &PodInfo, node: &str) -> Result<(), podwire_client::Error> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": &*pod.uid},
        "target": {"kind": "Node", "name": node},
    });
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
    let what = What::Http { method: "POST", path: &path };
    let arrow = Arrow::new(pod.traced(), Participant::Scheduler, Participant::ApiServer, what);
    let bound = async { api.create_subresource("binding", &pod.name, &params, &binding).await.map(drop) };
    let outcome = |bound: &Result<(), podwire_client::Error>| Outcome::of(bound, |()| "201".to_owned());
    Arrow { side: Side::Client, ..arrow }.around_async(bound, outcome).await
}

/// Whether an error leaves open what became of a write: there was no answer, or none that says.
pub(crate) fn is_open(error: &podwire_client::Error) -> bool {
    match error {
        podwire_client::Error::Api(status) => status.code >= 500,
        podwire_client::Error::Request(_) => false,
        _ => true,
    }
}

/// Asks until there is an answer whether a pod is on a node.
pub(crate) async fn is_bound(client: Client, pod: &PodInfo, node: &str) -> bool {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let mut pause = FIRST_PAUSE;
    loop {
        match api.get_value(&pod.name).await {
            Ok(found) => {
                let is = |found: &Value| {
                    found["metadata"]["uid"] == *pod.uid && found["spec"]["nodeName"] == *node
                };
                return found.as_ref().is_some_and(is);
            }
            Err(error) if !is_open(&error) => return false,
            Err(error) => {
                tracing::debug!(pod = %pod.reference(), %error, "binding not known; will ask again")
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Patches parts of a pod's status.
pub(crate) async fn patch_status(
    client: Client,
    pod: &PodInfo,
    status: &Value,
) -> Result<(), podwire_client::Error> {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    api.patch_status(&pod.name, &params, &Patch::Strategic(patch)).await.map(drop)
}

/// Marks a pod as removed for a more important one, and deletes it.
pub(crate) async fn evict(
    client: Client,
    victim: &PodInfo,
    scheduler: &str,
) -> Result<(), podwire_client::Error> {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": seconds(jiff::Timestamp::now()),
        "observedGeneration": victim.generation,
    });
    patch_status(client.clone(), victim, &json!({"conditions": [condition]})).await?;
    let api: Api<Pod> = Api::namespaced(client, &victim.namespace);
    let preconditions = Some(Preconditions { uid: Some(victim.uid.to_string()), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    api.delete(&victim.name, &params).await.map(drop)
}

/// Binds volumes to claims, or asks for volumes to be made on the node, and waits until all claims are bound.
pub(crate) async fn bind_volumes(
    journey: Journey,
    plan: VolumePlan,
    timeout: Duration,
) -> Result<(), StepError> {
    let Journey { client, pod, node, lounge, .. } = journey;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    for (claim, volume) in &plan.taken {
        let reference = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace, "name": claim.name, "uid": claim.uid,
        });
        let patch = json!({
            "metadata": {
                // Somebody else may have taken it meanwhile.
                "resourceVersion": volume.resource_version,
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {"claimRef": reference},
        });
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &Kind::Volume.api());
        api.patch(&volume.name, &params, &Patch::Merge(patch)).await?;
    }
    for claim in plan.made.iter().filter(|claim| claim.selected_node.is_none()) {
        let patch = json!({"metadata": {"uid": claim.uid, "annotations": {SELECTED_NODE: &*node}}});
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace);
        api.patch(&claim.name, &params, &Patch::Merge(patch)).await?;
    }
    let all = plan.taken.iter().map(|(claim, _)| claim).chain(&plan.made);
    let _waits = lounge.enter();
    let waiting = async {
        for claim in all {
            until_bound(client.clone(), claim, &node).await?;
        }
        Ok(())
    };
    match tokio::time::timeout(timeout, waiting).await {
        Ok(bound) => bound,
        Err(_) => {
            let text = format!("timed out waiting for volumes of pod {} to be bound", pod.reference());
            Err(StepError::Plugin(text))
        }
    }
}

/// Waits until a claim is bound; fails if another node is chosen for it, or none any more.
async fn until_bound(client: Client, wanted: &Claim, node: &str) -> Result<(), StepError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client, &wanted.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", wanted.name));
    let mut events = watcher(api, only);
    let mut selected = false;
    while let Some(event) = events.next().await {
        let claim = match event {
            Ok(watcher::Event::Apply(claim) | watcher::Event::InitApply(claim)) => claim,
            Ok(watcher::Event::Delete(_)) => {
                return Err(StepError::Plugin(format!("persistentvolumeclaim {:?} is gone", wanted.name)));
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) => {
                tracing::debug!(%error, claim = wanted.name, "watch of a claim interrupted");
                continue;
            }
        };
        let annotations = claim.metadata.annotations.unwrap_or_default();
        let bound = claim.status.and_then(|status| status.phase).is_some_and(|phase| phase == "Bound");
        if bound || annotations.contains_key("pv.kubernetes.io/bind-completed") {
            return Ok(());
        }
        match annotations.get(SELECTED_NODE) {
            Some(chosen) if chosen != node => {
                let text =
                    format!("selectedNode annotation value {chosen:?} not set to scheduled node {node:?}");
                return Err(StepError::Plugin(text));
            }
            // The maker of volumes gave up on this node.
            None if selected => {
                return Err(StepError::Plugin(format!(
                    "no volume can be made for {:?} on {node}",
                    wanted.name
                )));
            }
            found => selected |= found.is_some(),
        }
    }
    Err(StepError::Plugin("the watch of a claim ended".to_owned()))
}

fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The condition that says why a pod has no node.
pub(crate) fn not_scheduled(pod: &PodInfo, reason: &str, message: &str) -> Value {
    json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": seconds(jiff::Timestamp::now()),
        "observedGeneration": pod.generation,
    })
}

/// An event to be written.
#[derive(Debug)]
pub(crate) enum Record {
    /// One that was not seen lately.
    New(Box<Event>),
    /// One more of the same.
    Again { namespace: String, name: String, series: Value },
}

struct Known {
    name: String,
    count: i32,
    used: u64,
}

/// Names events and counts repetitions, so that a pod that keeps failing has one event with a count.
pub(crate) struct Recorder {
    component: String,
    known: BTreeMap<(Arc<str>, &'static str, String), Known>,
    counter: u64,
}

impl Recorder {
    /// A recorder that speaks as `component`.
    pub(crate) fn new(component: &str) -> Self {
        Self { component: component.to_owned(), known: BTreeMap::new(), counter: 0 }
    }

    /// Words an event about a pod.
    pub(crate) fn record(
        &mut self,
        pod: &PodInfo,
        normal: bool,
        reason: &'static str,
        action: &str,
        message: &str,
    ) -> Record {
        let now = jiff::Timestamp::now();
        self.counter += 1;
        let key = (pod.uid.clone(), reason, message.to_owned());
        if let Some(known) = self.known.get_mut(&key) {
            known.count += 1;
            known.used = self.counter;
            let series = json!({"count": known.count, "lastObservedTime": micro(now)});
            return Record::Again { namespace: pod.namespace.clone(), name: known.name.clone(), series };
        }
        let stamp = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let name = format!("{}.{stamp:x}", pod.name);
        if !normal {
            self.make_room();
            self.known.insert(key, Known { name: name.clone(), count: 1, used: self.counter });
        }
        Record::New(Box::new(self.event(pod, name, normal, reason, action, message, now)))
    }

    fn make_room(&mut self) {
        if self.known.len() < REMEMBERED {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.known.remove(&key);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "they are the columns of one event")]
    fn event(
        &self,
        pod: &PodInfo,
        name: String,
        normal: bool,
        reason: &str,
        action: &str,
        message: &str,
        now: jiff::Timestamp,
    ) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(pod.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.name.to_string()),
                namespace: Some(pod.namespace.clone()),
                uid: Some(pod.uid.to_string()),
                resource_version: Some(pod.resource_version.to_string()),
                ..ObjectReference::default()
            },
            reason: Some(reason.to_owned()),
            action: Some(action.to_owned()),
            message: Some(message.to_owned()),
            type_: Some(if normal { "Normal" } else { "Warning" }.to_owned()),
            event_time: Some(MicroTime(now)),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(format!("{}-podwire", self.component)),
            source: Some(EventSource::default()),
            series: None::<EventSeries>,
            ..Event::default()
        }
    }
}

fn micro(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Writes an event; a failure only costs the event.
pub(crate) async fn write(client: Client, record: Record) {
    let written = match record {
        Record::New(event) => {
            let namespace = event.metadata.namespace.clone().unwrap_or_default();
            let api: Api<Event> = Api::namespaced(client, &namespace);
            api.create(&PostParams::default(), &event).await.map(drop)
        }
        Record::Again { namespace, name, series } => {
            let api: Api<Event> = Api::namespaced(client, &namespace);
            let patch = Patch::Merge(json!({"series": series}));
            api.patch(&name, &PatchParams::default(), &patch).await.map(drop)
        }
    };
    if let Err(error) = written {
        tracing::debug!(%error, "event not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn a_repeated_failure_becomes_a_series_of_the_first_event() {
        let mut recorder = Recorder::new("default-scheduler");
        let pod = pod(json!({}));
        let Record::New(first) = recorder.record(&pod, false, "FailedScheduling", "Scheduling", "no") else {
            panic!("the first one is new")
        };
        let Record::Again { name, series, .. } =
            recorder.record(&pod, false, "FailedScheduling", "Scheduling", "no")
        else {
            panic!("the second one is counted")
        };
        assert_eq!((Some(name), &series["count"]), (first.metadata.name, &json!(2)));
        assert!(matches!(
            recorder.record(&pod, false, "FailedScheduling", "Scheduling", "other"),
            Record::New(_)
        ));
    }
}
