//! What is wrong with policies and PodNetworks, told where people look: an event of a NetworkPolicy, which has no status, and
//! a condition of a ClusterNetworkPolicy or a PodNetwork. Each names the field.
//!
//! One task writes, beside everybody's path. Nodes tell the same thing in the same words: what one has written the others find
//! there. What is still to be written when the plugin ends is told by the next one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use podwire_api::condition::{self, Condition};
use podwire_client::api::{Api, ApiResource, Patch, PatchParams, PostParams};
use podwire_client::{Client, DynamicObject, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::plan::name_of;

/// Notices that may wait.
const BACKLOG: usize = 256;
/// How often one is tried, and the pause after the first time; it doubles.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// How much of what is wrong is told.
const LONGEST: usize = 1024;
/// Events that are remembered, so that they are not written again and again.
const REMEMBERED: usize = 10_000;
/// Who tells.
const COMPONENT: &str = "podwire-netplugin";

enum Notice {
    Event { namespace: String, event: Value },
    Condition { resource: ApiResource, namespace: Option<String>, name: String, condition: Value },
}

/// Tells what is wrong.
#[derive(Clone)]
pub(crate) struct Notices {
    told: mpsc::Sender<Notice>,
    events: Arc<Mutex<HashSet<String>>>,
}

/// Writes what was told.
pub(crate) struct Writer(mpsc::Receiver<Notice>);

/// Who tells and who writes.
pub(crate) fn channel() -> (Notices, Writer) {
    let (told, heard) = mpsc::channel(BACKLOG);
    (Notices { told, events: Arc::default() }, Writer(heard))
}

impl Notices {
    /// Parts of a NetworkPolicy are not understood.
    pub(crate) fn policy(&self, policy: &ObjectMeta, mistakes: &[String]) {
        if mistakes.is_empty() {
            return;
        }
        let (Some(namespace), Some(name), Some(uid)) = (&policy.namespace, &policy.name, &policy.uid) else {
            return;
        };
        let message = message(mistakes);
        // The same name from every node: the second finds the first one's.
        let event = format!("{}.{}", &name[..name.len().min(200)], name_of(&[uid, &message]));
        let new = {
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            if events.len() >= REMEMBERED {
                events.clear();
            }
            events.insert(event.clone())
        };
        if !new {
            return;
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": event, "namespace": namespace},
            "involvedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "namespace": namespace, "name": name, "uid": uid},
            "type": "Warning", "reason": "NotUnderstood", "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": COMPONENT}, "reportingComponent": COMPONENT, "reportingInstance": COMPONENT,
        });
        self.send(Notice::Event { namespace: namespace.clone(), event });
    }

    /// What there is to say of an object in its condition of this kind, if that is not said already.
    pub(crate) fn condition(
        &self,
        resource: &ApiResource,
        object: &DynamicObject,
        kind: &str,
        mistakes: &[String],
    ) {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Some(condition) = wanted(&object.data, kind, mistakes, &now) else { return };
        self.send(Notice::Condition {
            resource: resource.clone(),
            namespace: object.namespace(),
            name: object.name_any(),
            condition,
        });
    }

    fn send(&self, notice: Notice) {
        if let Err(error) = self.told.try_send(notice) {
            tracing::warn!(%error, "too much is to be told; what is wrong with an object is only in this log");
        }
    }
}

fn message(mistakes: &[String]) -> String {
    let text = format!("{}; what is not understood allows nothing", mistakes.join("; "));
    text.chars().take(LONGEST).collect()
}

/// The condition that an object should have and has not; one that nothing is wrong with has none, or a mended one.
fn wanted(object: &Value, kind: &str, mistakes: &[String], now: &str) -> Option<Value> {
    let before = condition::find(condition::of(object), kind);
    let (status, reason, message) = match mistakes {
        [] => {
            before.filter(|before| before.status() == "False")?;
            ("True", "Understood", "all of it is understood".to_owned())
        }
        _ => ("False", "NotUnderstood", message(mistakes)),
    };
    let generation = &object["metadata"]["generation"];
    let mut new = json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now, "observedGeneration": generation});
    condition::keep_transition_time(before, &mut new);
    (before != Some(&new)).then_some(new)
}

impl Writer {
    /// Writes until `shutdown`.
    pub(crate) async fn run(mut self, client: Client, shutdown: CancellationToken) {
        loop {
            let notice = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                notice = self.0.recv() => notice,
            };
            let Some(notice) = notice else { return };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = write(&client, &notice) => {}
            }
        }
    }
}

async fn write(client: &Client, notice: &Notice) {
    let mut pause = PAUSE;
    for left in (0..TRIES).rev() {
        let written = match notice {
            Notice::Event { namespace, event } => {
                let api: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client.clone(), namespace);
                api.create(&PostParams::default(), event).await
            }
            Notice::Condition { resource, namespace, name, condition } => {
                let api: Api<DynamicObject> = match namespace {
                    Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
                    None => Api::all_with(client.clone(), resource),
                };
                let status = json!({"apiVersion": resource.api_version, "kind": resource.kind,
                    "metadata": {"name": name}, "status": {"conditions": [condition]}});
                api.patch_status(name, &PatchParams::apply(COMPONENT).force(), &Patch::Apply(status)).await
            }
        };
        match written {
            Ok(_) => return,
            // Gone, there already, or not to be written: none of it becomes better.
            Err(podwire_client::Error::Api(status))
                if (400..500).contains(&status.code) && status.code != 429 =>
            {
                if !matches!(status.code, 404 | 409) {
                    tracing::warn!(
                        status = status.code,
                        message = status.message,
                        "what is wrong with an object was not taken"
                    );
                }
                return;
            }
            Err(error) if left == 0 => tracing::warn!(%error, "what is wrong with an object was not written"),
            Err(_) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policys_event_is_told_once_and_names_the_field() {
        let (notices, mut writer) = channel();
        let policy = ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("p".into()),
            uid: Some("u".into()),
            ..ObjectMeta::default()
        };
        notices.policy(&policy, &[]);
        assert!(writer.0.try_recv().is_err(), "nothing is wrong");
        for _ in 0..2 {
            notices.policy(&policy, &["spec.ingress[0].from[1]: names nobody".into()]);
        }
        let Ok(Notice::Event { namespace, event }) = writer.0.try_recv() else { panic!("an event") };
        assert_eq!((namespace.as_str(), &event["involvedObject"]["name"]), ("shop", &json!("p")));
        assert!(event["message"].as_str().unwrap().starts_with("spec.ingress[0].from[1]: names nobody"));
        assert!(writer.0.try_recv().is_err(), "once");
    }

    #[test]
    fn a_condition_is_written_when_it_says_something_new() {
        let kind = "Accepted";
        let mut object = json!({"metadata": {"generation": 3}});
        let mistake = ["spec.mtu: is no number".to_owned()];
        assert_eq!(wanted(&object, kind, &[], "now"), None, "nothing is wrong, and nobody said so");
        let wrong = wanted(&object, kind, &mistake, "now").unwrap();
        assert_eq!((&wrong["status"], &wrong["observedGeneration"]), (&json!("False"), &json!(3)));
        assert!(wrong["message"].as_str().unwrap().starts_with("spec.mtu: is no number"));
        object["status"] = json!({"conditions": [wrong]});
        assert_eq!(wanted(&object, kind, &mistake, "later"), None, "it is said already");
        object["metadata"]["generation"] = json!(4);
        let again = wanted(&object, kind, &mistake, "later").unwrap();
        assert_eq!(again["lastTransitionTime"], "now", "it was wrong before");
        let mended = wanted(&object, kind, &[], "later").unwrap();
        assert_eq!((&mended["status"], &mended["lastTransitionTime"]), (&json!("True"), &json!("later")));
    }
}
