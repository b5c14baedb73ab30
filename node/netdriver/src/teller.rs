//! What became of claims, told in their status, and what went wrong, in events.
//!
//! Of a claim only the last word is kept until it is written, and it is tried until it is written or the claim is gone; a claim
//! that cannot be written keeps no other waiting. One task.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::{core::v1::Event, resource::v1::ResourceClaim};
use podwire_client::{
    Api, Client, Error,
    api::{Patch, PatchParams, PostParams},
};
use podwire_trace::{Arrow, Outcome, Participant, What};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    book::Pod,
    plan::status::{Told, patch},
};

/// Between rounds while something could not be written: at first, and at most.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// How long one write may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Events that may wait; more are only in the log.
const EVENTS: usize = 256;
/// How much of an event's message is told.
const MESSAGE: usize = 1024;

#[derive(Default)]
struct Waiting {
    claims: BTreeMap<String, Told>,
    events: Vec<(String, Value)>,
}

/// Tells.
#[derive(Clone)]
pub(crate) struct Teller {
    driver: String,
    waiting: Arc<Mutex<Waiting>>,
    came: Arc<Notify>,
}

impl Teller {
    pub(crate) fn new(driver: &str) -> Teller {
        Teller { driver: driver.to_owned(), waiting: Arc::default(), came: Arc::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells what became of a claim.
    pub(crate) fn tell(&self, told: Told) {
        self.with(|waiting| waiting.claims.insert(told.uid.clone(), told));
        self.came.notify_one();
    }

    /// Warns at a pod.
    pub(crate) fn event(&self, pod: &Pod, reason: &str, message: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid});
        self.warn(&pod.namespace, &pod.name, object, reason, message);
    }

    /// Warns at a claim.
    pub(crate) fn claim_event(
        &self,
        (namespace, name, uid): (&str, &str, &str),
        reason: &str,
        message: &str,
    ) {
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "namespace": namespace, "name": name, "uid": uid});
        self.warn(namespace, name, object, reason, message);
    }

    fn warn(&self, namespace: &str, name: &str, object: Value, reason: &str, message: &str) {
        let now = jiff::Timestamp::now();
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let message: String = message.chars().take(MESSAGE).collect();
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": format!("{:.200}.{:x}", name, now.as_nanosecond())},
            "involvedObject": object, "type": "Warning", "reason": reason, "message": message, "count": 1,
            "firstTimestamp": at, "lastTimestamp": at, "source": {"component": self.driver},
            "reportingComponent": self.driver, "reportingInstance": self.driver,
        });
        self.with(|waiting| {
            if waiting.events.len() < EVENTS {
                waiting.events.push((namespace.to_owned(), event));
            } else {
                tracing::warn!(reason, message, "too much is to be told; this is only in the log");
            }
        });
        self.came.notify_one();
    }

    /// Writes until `shutdown`; what is not written then is told by whoever comes after, who looks at every device anew.
    pub(crate) async fn run(self, client: Client, shutdown: CancellationToken) {
        let mut pause = FIRST;
        loop {
            let (claims, events) = self
                .with(|waiting| (std::mem::take(&mut waiting.claims), std::mem::take(&mut waiting.events)));
            let written = async {
                for (namespace, event) in events {
                    write_event(&client, &namespace, &event).await;
                }
                let mut left = Vec::new();
                for (_, told) in claims {
                    if let Err(error) = write_claim(&client, &self.driver, &told).await {
                        tracing::warn!(claim = %format!("{}/{}", told.namespace, told.name), error, "the status of a claim is not written; will try again");
                        left.push(told);
                    }
                }
                left
            };
            let left = tokio::select! {
                () = shutdown.cancelled() => return,
                left = written => left,
            };
            let again = !left.is_empty();
            self.with(|waiting| {
                for told in left {
                    // What was told meanwhile is newer.
                    waiting.claims.entry(told.uid.clone()).or_insert(told);
                }
            });
            let now = pause;
            let wait = async {
                if again {
                    tokio::time::sleep(now).await;
                } else {
                    self.came.notified().await;
                }
            };
            pause = if again { (pause * 2).min(LONGEST) } else { FIRST };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = wait => {}
            }
        }
    }
}

async fn write_claim(client: &Client, driver: &str, told: &Told) -> Result<(), String> {
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &told.namespace);
    let written = async {
        let Some(claim) = api.get_value(&told.name).await? else { return Ok(()) };
        if claim.pointer("/metadata/uid").is_none_or(|uid| uid != told.uid.as_str()) {
            return Ok(());
        }
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Some(patch) = patch(told, &claim, &now) else { return Ok(()) };
        let params = PatchParams::apply(driver).force();
        drawn(driver, told, api.patch_status(&told.name, &params, &Patch::Apply(patch))).await.map(drop)
    };
    match tokio::time::timeout(LIMIT, written).await {
        Ok(Ok(())) => Ok(()),
        // It is gone meanwhile, or another one has its name.
        Ok(Err(Error::Api(status))) if [404, 409].contains(&status.code) => Ok(()),
        // Nothing of ours is allocated to it any more.
        Ok(Err(Error::Api(status))) if status.code == 422 => {
            tracing::info!(
                claim = told.name,
                message = status.message,
                "what became of a claim is not taken"
            );
            Ok(())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the API server does not answer".to_owned()),
    }
}

/// Awaits the write of a claim's status, and draws it on the path of the claim's pod.
async fn drawn<T>(
    driver: &str,
    told: &Told,
    write: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(pod) = &told.pod else { return write.await };
    let (namespace, name) = (&told.namespace, &told.name);
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status");
    let what = What::Http { method: "PATCH", path: &path };
    let arrow = Arrow::new(pod.traced(), Participant::Driver(driver), Participant::ApiServer, what);
    arrow.around_async(write, |answer| Outcome::of(answer, |_| "200".to_owned())).await
}

async fn write_event(client: &Client, namespace: &str, event: &Value) {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match tokio::time::timeout(LIMIT, api.create(&PostParams::default(), event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "an event is not written"),
        Err(_) => tracing::warn!("an event is not written: the API server does not answer"),
    }
}
