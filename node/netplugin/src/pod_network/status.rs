//! What a PodNetwork's status says of each pod. Written beside the pods' own path, which does not depend on it.
//!
//! One task writes, entry by entry in the order they were told, and tries again when the API server does not take one. What
//! is still to be written when the plugin ends is lost. Why a pod was refused stays until it succeeds or is gone: its sandbox
//! goes at once, and with it nobody would read the reason.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use podwire_client::api::{Api, Patch, PatchParams};
use podwire_client::{Client, DynamicObject};
use podwire_nri::api::PodSandbox;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::attach::{VERSION, resource};
use crate::policy::ObjectKey;

/// Entries that may wait.
const BACKLOG: usize = 1024;
/// How often an entry is tried, and the pause after the first time; it doubles.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(100);
/// How much of a message is told.
const LONGEST: usize = 1024;

/// One pod's entry, or that it is to go.
#[derive(Clone)]
struct Entry {
    namespace: String,
    network: String,
    uid: String,
    pods: Vec<Value>,
}

/// Tells what became of pods.
#[derive(Clone)]
pub(crate) struct Statuses {
    told: mpsc::Sender<Entry>,
    /// Pods that were refused, with what takes their entry away.
    refused: Arc<Mutex<HashMap<ObjectKey, Entry>>>,
    /// What pods have, by their uid.
    given: Arc<Mutex<HashMap<String, String>>>,
}

/// Writes what was told.
pub(crate) struct Writer(mpsc::Receiver<Entry>);

/// Who tells and who writes.
pub(crate) fn channel() -> (Statuses, Writer) {
    let (told, heard) = mpsc::channel(BACKLOG);
    (Statuses { told, refused: Arc::default(), given: Arc::default() }, Writer(heard))
}

impl Statuses {
    /// What became of a pod that names a PodNetwork, or that one chooses.
    pub(super) fn tell(&self, network: &str, pod: &PodSandbox, done: &Result<Vec<String>, String>) {
        let (applied, message) = match done {
            Ok(steps) => (true, steps.join("; ")),
            Err(reason) => (false, reason.clone()),
        };
        let message: String = message.chars().take(LONGEST).collect();
        let gone = entry(network, pod);
        let pods = vec![json!({"uid": pod.uid, "name": pod.name, "applied": applied, "message": message})];
        self.send(Entry { pods, ..gone.clone() });
        if applied {
            self.with_given(|given| given.insert(pod.uid.clone(), network.to_owned()));
        }
        self.with_refused(|refused| match applied {
            true => refused.remove(&key(pod)),
            false => refused.insert(key(pod), gone),
        });
    }

    /// What was given to a pod.
    pub(super) fn network_of(&self, pod: &PodSandbox) -> Option<String> {
        self.with_given(|given| given.get(&pod.uid).cloned())
    }

    fn with_given<T>(&self, change: impl FnOnce(&mut HashMap<String, String>) -> T) -> T {
        change(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sandbox of a pod is gone, and what was applied in it.
    pub(super) fn sandbox_gone(&self, network: &str, pod: &PodSandbox) {
        self.with_given(|given| given.remove(&pod.uid));
        if !self.with_refused(|refused| refused.contains_key(&key(pod))) {
            self.send(entry(network, pod));
        }
    }

    /// A pod is gone.
    pub(crate) fn pod_gone(&self, pod: &ObjectKey) {
        if let Some(entry) = self.with_refused(|refused| refused.remove(pod)) {
            self.send(entry);
        }
    }

    /// Of a list that is complete: whatever pod is not in it is gone.
    pub(crate) fn keep(&self, listed: &HashSet<ObjectKey>) {
        let gone = |refused: &mut HashMap<ObjectKey, Entry>| -> Vec<Entry> {
            refused.extract_if(|key, _| !listed.contains(key)).map(|(_, entry)| entry).collect()
        };
        self.with_refused(gone).into_iter().for_each(|entry| self.send(entry));
    }

    fn with_refused<T>(&self, change: impl FnOnce(&mut HashMap<ObjectKey, Entry>) -> T) -> T {
        change(&mut self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn send(&self, entry: Entry) {
        if let Err(error) = self.told.try_send(entry) {
            tracing::warn!(%error, "too much is to be told; the status of a PodNetwork is not written");
        }
    }
}

fn key(pod: &PodSandbox) -> ObjectKey {
    ObjectKey { namespace: pod.namespace.clone(), name: pod.name.clone() }
}

/// That a pod is not in the status.
fn entry(network: &str, pod: &PodSandbox) -> Entry {
    let (namespace, network) = (pod.namespace.clone(), network.to_owned());
    Entry { namespace, network, uid: pod.uid.clone(), pods: Vec::new() }
}

impl Writer {
    /// Writes until `shutdown`.
    pub(crate) async fn run(mut self, client: Client, shutdown: CancellationToken) {
        loop {
            let entry = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                entry = self.0.recv() => entry,
            };
            let Some(entry) = entry else { return };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = write(&client, &entry) => {}
            }
        }
    }
}

/// Each pod's entry is applied by a name of its own, so that one does not take another's away.
async fn write(client: &Client, entry: &Entry) {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &entry.namespace, &resource());
    let status = json!({"apiVersion": VERSION, "kind": "PodNetwork",
        "metadata": {"name": entry.network, "namespace": entry.namespace}, "status": {"pods": entry.pods}});
    let params = PatchParams::apply(&format!("podwire-netplugin-{}", entry.uid)).force();
    let mut pause = PAUSE;
    for left in (0..TRIES).rev() {
        match api.patch_status(&entry.network, &params, &Patch::Apply(status.clone())).await {
            Ok(_) => return,
            // Gone, and its status with it.
            Err(podwire_client::Error::Api(status)) if status.code == 404 => return,
            Err(error) if left == 0 => {
                tracing::warn!(network = entry.network, %error, "the status of a PodNetwork was not written");
            }
            Err(_) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
    }
}
