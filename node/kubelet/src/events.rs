//! Events about pods and the node: recorded without waiting, aggregated, written by one task.
//!
//! Tasks: one writer. Inputs: a bounded queue; what does not fit is dropped and counted. Outputs: POST of new
//! events, PATCH of the count of repeated ones.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{api::Api, clock, spec::Kind};

const QUEUE: usize = 4096;
/// Events that are remembered for counting repeats.
const REMEMBERED: usize = 4096;
/// Different events about one object within the window before they are merged.
const SPAM_BURST: u32 = 25;
const SPAM_REFILL_SECONDS: u64 = 300;

#[derive(Debug, Hash)]
struct Key {
    object: String,
    field: String,
    kind: &'static str,
    reason: String,
    message: String,
}

struct Record {
    key: Key,
    involved: Value,
    namespace: String,
    at: jiff::Timestamp,
}

impl Record {
    /// The name of the event that was first written at this moment.
    fn name(&self, stamp: i128) -> String {
        format!("{}.{stamp:x}", self.involved["name"].as_str().unwrap_or_default())
    }
}

/// Where events are dropped in.
#[derive(Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Record>,
    node: String,
    dropped: AtomicU64,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.key.fmt(f)
    }
}

/// The part of a pod an event is about.
pub type Part<'a> = Option<(Kind, &'a str)>;

impl Recorder {
    /// A recorder and the task that must run for it.
    pub fn new(api: Api, node: &str) -> (Recorder, Writer) {
        let (queue, records) = mpsc::channel(QUEUE);
        let recorder = Recorder { queue, node: node.to_owned(), dropped: AtomicU64::new(0) };
        let writer = Writer {
            api,
            node: node.to_owned(),
            records,
            hashes: RandomState::new(),
            seen: HashMap::new(),
            spam: HashMap::new(),
            serial: 0,
        };
        (recorder, writer)
    }

    /// Something normal happened to the pod.
    pub fn normal(&self, pod: &Pod, part: Part<'_>, reason: &str, message: &str) {
        self.pod(pod, part, "Normal", reason, message);
    }

    /// Something is wrong with the pod.
    pub fn warning(&self, pod: &Pod, part: Part<'_>, reason: &str, message: &str) {
        self.pod(pod, part, "Warning", reason, message);
    }

    fn pod(&self, pod: &Pod, part: Part<'_>, kind: &'static str, reason: &str, message: &str) {
        let meta = &pod.metadata;
        let field = part.map(|(kind, name)| {
            let list = match kind {
                Kind::Init | Kind::Sidecar => "initContainers",
                Kind::App => "containers",
                Kind::Ephemeral => "ephemeralContainers",
            };
            format!("spec.{list}{{{name}}}")
        });
        let mut involved = json!({
            "kind": "Pod", "apiVersion": "v1", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        });
        if let Some(field) = &field {
            involved["fieldPath"] = json!(field);
        }
        self.record(
            involved,
            meta.namespace.clone().unwrap_or_default(),
            field.unwrap_or_default(),
            kind,
            reason,
            message,
        );
    }

    /// Something happened to the node.
    pub fn node(&self, kind: &'static str, reason: &str, message: &str) {
        let involved = json!({"kind": "Node", "apiVersion": "v1", "name": self.node, "uid": self.node});
        self.record(involved, "default".to_owned(), String::new(), kind, reason, message);
    }

    fn record(
        &self,
        involved: Value,
        namespace: String,
        field: String,
        kind: &'static str,
        reason: &str,
        message: &str,
    ) {
        let object = format!("{}/{namespace}/{}/{}", involved["kind"], involved["name"], involved["uid"]);
        let message: String = message.chars().take(1024).collect();
        let key = Key { object, field, kind, reason: reason.to_owned(), message };
        tracing::debug!(object = key.object, reason = key.reason, message = key.message, "event");
        if self.queue.try_send(Record { key, involved, namespace, at: clock::now_seconds() }).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed);
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "events dropped: the API server takes them too slowly");
            }
        }
    }
}

/// What was written before. Keys are hashes, and a name is made again from its stamp: a burst of pods is remembered for
/// minutes, in thousands of texts otherwise.
struct Seen {
    stamp: i128,
    count: u64,
    touched: Instant,
}

/// Writes events to the API server.
pub struct Writer {
    api: Api,
    node: String,
    records: mpsc::Receiver<Record>,
    hashes: RandomState,
    seen: HashMap<u64, Seen>,
    spam: HashMap<u64, (u32, Instant)>,
    serial: u64,
}

impl Writer {
    /// Writes until `shutdown`; what is queued by then gets one short moment.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let record = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                record = self.records.recv() => record,
            };
            let Some(record) = record else { return };
            self.write(record).await;
        }
        let until = Instant::now() + std::time::Duration::from_millis(500);
        while let Ok(record) = self.records.try_recv() {
            if tokio::time::timeout_at(until, self.write(record)).await.is_err() {
                return;
            }
        }
    }

    async fn write(&mut self, record: Record) {
        if !self.within_budget(&record.key.object) {
            return;
        }
        let now = Instant::now();
        let key = self.hashes.hash_one((&record.key, &record.namespace));
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.count += 1;
            seen.touched = now;
            let path = format!("/api/v1/namespaces/{}/events/{}", record.namespace, record.name(seen.stamp));
            let body = json!({"count": seen.count, "lastTimestamp": record.at.to_string()});
            match self.api.patch_merge(&path, &body).await {
                Ok(_) => return,
                Err(error) if error.is_gone() => {
                    self.seen.remove(&key);
                }
                Err(error) => {
                    tracing::debug!(error = %error, "event not written");
                    return;
                }
            }
        }
        self.create(record, key, now).await;
    }

    async fn create(&mut self, record: Record, key: u64, now: Instant) {
        self.serial += 1;
        let stamp = clock::now().as_nanosecond().wrapping_add(i128::from(self.serial));
        let name = record.name(stamp);
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": record.namespace},
            "involvedObject": record.involved, "reason": record.key.reason, "message": record.key.message,
            "type": record.key.kind, "count": 1,
            "firstTimestamp": record.at.to_string(), "lastTimestamp": record.at.to_string(),
            "source": {"component": "kubelet", "host": self.node},
            "reportingComponent": "kubelet", "reportingInstance": self.node,
        });
        let path = format!("/api/v1/namespaces/{}/events", record.namespace);
        match self.api.json(Method::POST, &path, &body).await {
            Ok(_) => {
                if self.seen.len() >= REMEMBERED {
                    self.seen.retain(|_, s| now.duration_since(s.touched).as_secs() < 600);
                }
                if self.seen.len() < REMEMBERED {
                    self.seen.insert(key, Seen { stamp, count: 1, touched: now });
                }
            }
            // Ignored: an event is best effort, and its namespace may be on its way out.
            Err(error) => tracing::debug!(error = %error, "event not written"),
        }
    }

    /// A token bucket per object: a burst, then one per five minutes.
    fn within_budget(&mut self, object: &str) -> bool {
        let now = Instant::now();
        if self.spam.len() > REMEMBERED {
            self.spam.retain(|_, (_, at)| now.duration_since(*at).as_secs() < SPAM_REFILL_SECONDS);
        }
        let (used, since) = self.spam.entry(self.hashes.hash_one(object)).or_insert((0, now));
        let refilled = now.duration_since(*since).as_secs() / SPAM_REFILL_SECONDS;
        if refilled > 0 {
            *used = used.saturating_sub(u32::try_from(refilled).unwrap_or(u32::MAX));
            *since = now;
        }
        if *used >= SPAM_BURST {
            return false;
        }
        *used += 1;
        true
    }
}
