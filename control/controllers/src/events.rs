//! Events about pods: worded and counted here, written by whoever runs the controller.
//!
//! One that says the same again adds to the count of the first.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Event;
use podwire_client::api::{Api, Patch, PatchParams, PostParams};
use podwire_client::{Client, Meta};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;

/// Events that are remembered to count them.
const REMEMBERED: usize = 1024;
/// The longest message that the API takes.
const LONGEST: usize = 1024;

/// A pod that an event is about.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What there is to say.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// `Normal` or `Warning`.
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// An event to be written.
#[derive(Debug)]
pub(crate) enum Record {
    /// One that was not said lately.
    New { namespace: String, event: Value },
    /// One more of the same.
    Again { namespace: String, name: String, patch: Value },
}

struct Known {
    name: String,
    count: u32,
    used: u64,
}

/// Words events and counts repetitions.
pub(crate) struct Recorder {
    component: &'static str,
    known: HashMap<(String, &'static str, String), Known>,
    used: u64,
}

impl Recorder {
    /// A recorder that speaks as `component`.
    pub(crate) fn new(component: &'static str) -> Self {
        Self { component, known: HashMap::new(), used: 0 }
    }

    /// Words an event.
    pub(crate) fn record(&mut self, about: &About, said: Said, now: jiff::Timestamp) -> Record {
        self.used += 1;
        let message: String = said.message.chars().take(LONGEST).collect();
        let (namespace, time) = (about.namespace.clone(), now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let key = (about.uid.clone(), said.reason, message.clone());
        if let Some(known) = self.known.get_mut(&key) {
            known.count += 1;
            known.used = self.used;
            let patch = json!({"count": known.count, "lastTimestamp": time});
            return Record::Again { namespace, name: known.name.clone(), patch };
        }
        if self.known.len() >= REMEMBERED {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
            oldest.map(|key| self.known.remove(&key));
        }
        let stamp = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let name = format!("{}.{stamp:x}", about.name);
        self.known.insert(key, Known { name: name.clone(), count: 1, used: self.used });
        let event = json!({
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": about.name,
                "uid": about.uid},
            "type": said.kind, "reason": said.reason, "message": message, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
            "source": {"component": self.component}, "reportingComponent": self.component, "reportingInstance": "",
        });
        Record::New { namespace, event }
    }
}

/// Writes an event; a failure only costs the event.
pub(crate) async fn write(client: Client, record: Record) {
    let written: podwire_client::Result<Meta> = match record {
        Record::New { namespace, event } => {
            let api: Api<Event> = Api::namespaced(client, &namespace);
            let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
            api.create(&params, &event).await
        }
        Record::Again { namespace, name, patch } => {
            let api: Api<Event> = Api::namespaced(client, &namespace);
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
            api.patch(&name, &params, &Patch::Merge(patch)).await
        }
    };
    if let Err(error) = written {
        tracing::debug!(%error, "event not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_is_counted_and_what_is_long_ago_forgotten() {
        let mut recorder = Recorder::new("resource_claim");
        let about =
            |name: &str| About { namespace: "ns".into(), name: name.into(), uid: format!("u-{name}") };
        let said =
            || Said { kind: "Warning", reason: "FailedResourceClaimCreation", message: "é".repeat(2000) };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let Record::New { event, .. } = recorder.record(&about("a"), said(), now) else { panic!("new") };
        assert_eq!(event["message"].as_str().map(|text| text.chars().count()), Some(1024));
        let Record::Again { name, patch, .. } = recorder.record(&about("a"), said(), now) else {
            panic!("again")
        };
        assert_eq!((json!(name), &patch["count"]), (event["metadata"]["name"].clone(), &json!(2)));
        for number in 0..REMEMBERED {
            recorder.record(&about(&number.to_string()), said(), now);
        }
        assert_eq!(recorder.known.len(), REMEMBERED);
        assert!(matches!(recorder.record(&about("a"), said(), now), Record::New { .. }));
    }
}
