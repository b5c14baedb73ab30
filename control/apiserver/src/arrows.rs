//! Makes the path of a pod visible: one `tracing` event per arrow that touches the API server.
//!
//! The composition root keeps these events in a ring (`podwire trace`); without a listener nothing is formatted.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use podwire_api::Kind;
use podwire_store::{Guard, KeyValue, Op, Outcome, StoreError};

use crate::body::Response;
use crate::cache::Entry;
use crate::core::{self, Core};
use crate::identity::Identity;
use crate::request::ResourceInfo;
use crate::status::Result;

/// The target that listeners know arrows by.
const TARGET: &str = "arrow";

/// The stored object that a response shows; left on the response for the trace.
#[derive(Clone)]
pub(crate) struct Shown(pub(crate) KeyValue);

/// Whether the life of objects of this kind is traced.
pub(crate) fn is_traced(kind: &Kind) -> bool {
    kind.resource == "pods" && kind.group.is_empty()
}

fn is_heard() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
}

fn micros(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// `namespace/name` of a pod's key.
fn pod_of(key: &str) -> &str {
    key.strip_prefix("/registry/pods/").unwrap_or(key)
}

/// The participant behind an identity, in the mission's words.
fn participant(identity: &Identity, headers: &HeaderMap) -> String {
    let agent =
        headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match identity.user.as_str() {
        "system:kube-scheduler" => "Scheduler".to_owned(),
        "system:kube-controller-manager" => "Controllers".to_owned(),
        _ if identity.node_name().is_some() => "Kubelet".to_owned(),
        _ if agent.starts_with("kubectl") => "KubeCtl".to_owned(),
        _ if agent.starts_with("kubelet") => "Kubelet".to_owned(),
        _ if agent.starts_with("kube-scheduler") => "Scheduler".to_owned(),
        "kubernetes-admin" => "KubeCtl".to_owned(),
        user => user.to_owned(),
    }
}

/// An upstream program by what it calls itself: `kubelet/v1.36.4 (linux/amd64) ...` is `kubelet v1.36.4`.
fn twin(headers: &HeaderMap) -> String {
    let agent = headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    let program = agent.and_then(|agent| agent.split(' ').next()).and_then(|word| word.split_once('/'));
    match program {
        Some((name @ ("kubectl" | "kubelet" | "kube-scheduler" | "kube-controller-manager"), version)) => {
            format!("{name} {version}")
        }
        _ => String::new(),
    }
}

/// A request about one pod, from its arrival to its answer.
pub(crate) struct Request {
    from: String,
    what: String,
    caller: String,
    user: String,
    created: bool,
    known: Option<Arc<Entry>>,
    kind: Arc<Kind>,
    begun: Instant,
}

impl Request {
    /// Begins the arrow of a request, if it is one that is drawn and somebody listens.
    pub(crate) fn begin(
        core: &Core,
        identity: &Identity,
        kind: &Arc<Kind>,
        target: &ResourceInfo,
        verb: &str,
        parts: &http::request::Parts,
    ) -> Option<Request> {
        let reads =
            matches!(verb, "get" | "list" | "watch" | "deletecollection") && target.subresource.is_empty();
        if !is_traced(kind) || reads || !is_heard() {
            return None;
        }
        let known = core.caches.of(kind).get(&core::key(kind, &target.namespace, &target.name));
        Some(Request {
            from: participant(identity, &parts.headers),
            what: format!("{} {}", parts.method, parts.uri.path()),
            caller: twin(&parts.headers),
            user: identity.user.clone(),
            created: verb == "create" && target.subresource.is_empty(),
            known,
            kind: kind.clone(),
            begun: Instant::now(),
        })
    }

    /// The answer is ready.
    fn end(self, core: &Core, answer: &Result<Response>) {
        let shown = answer.as_ref().ok().and_then(|response| response.extensions().get::<Shown>());
        let entry = shown.and_then(|shown| core.caches.of(&self.kind).read_entry(&shown.0)).or(self.known);
        let Some(entry) = entry else { return };
        let Some(uid) = entry.uid() else { return };
        let reply = match answer {
            Ok(response) => response.status().as_u16().to_string(),
            Err(error) => error.message.clone(),
        };
        let (pod, took) = (pod_of(&entry.key), micros(self.begun));
        tracing::debug!(target: TARGET, uid, pod, from = self.from, to = "APIServer", what = self.what, reply, micros = took, side = "server", caller = self.caller);
        if self.created {
            // Told now, when the pod has a uid; it was so when the request came.
            let what = format!("authenticated {}, authorized", self.user);
            tracing::debug!(target: TARGET, uid, pod, from = "APIServer", to = "APIServer", what, ago = took);
        }
    }
}

/// Ends the arrow of a request, if one was begun, and hands the answer on.
pub(crate) fn end(arrow: Option<Request>, core: &Core, answer: Result<Response>) -> Result<Response> {
    if let Some(arrow) = arrow {
        arrow.end(core, &answer);
    }
    answer
}

/// A transaction on the store, drawn when it is about a pod.
pub(crate) async fn commit(
    core: &Core,
    kind: &Kind,
    key: &str,
    guard: Guard,
    op: Op,
) -> std::result::Result<Outcome, StoreError> {
    if !is_traced(kind) || !is_heard() {
        return core.store.txn(key, guard, op).await;
    }
    let before = core.caches.of(kind).get(key);
    let (verb, value) = match &op {
        Op::Put { value, .. } => ("put", Some(value.clone())),
        Op::Delete => ("delete", None),
    };
    let begun = Instant::now();
    let outcome = core.store.txn(key, guard, op).await?;
    let took = micros(begun);
    let created = before.is_none();
    if let Outcome::Committed { revision, .. } = &outcome {
        let written = value.map(|value| KeyValue {
            key: key.into(),
            value,
            create_revision: *revision,
            mod_revision: *revision,
        });
        let entry = before.or_else(|| written.and_then(|kv| core.caches.of(kind).read_entry(&kv)));
        if let Some(uid) = entry.as_ref().and_then(|entry| entry.uid()) {
            let (pod, what, reply) = (pod_of(key), format!("{verb} pod"), format!("revision {revision}"));
            if created {
                let what = "admitted, defaulted, validated";
                tracing::debug!(target: TARGET, uid, pod, from = "APIServer", to = "APIServer", what, ago = took);
            }
            tracing::debug!(target: TARGET, uid, pod, from = "APIServer", to = "etcd", what, reply, micros = took);
        }
    }
    Ok(outcome)
}

/// The participant whose watches are drawn; others only look.
pub(crate) fn audience(kind: &Kind, identity: &Identity, headers: &HeaderMap) -> Option<&'static str> {
    if !is_traced(kind) {
        return None;
    }
    ["Scheduler", "Kubelet"].into_iter().find(|name| participant(identity, headers) == *name)
}

/// A watch was told of a change of a pod.
pub(crate) fn delivered(audience: &'static str, entry: &Entry, event: &str) {
    if let Some(uid) = entry.uid() {
        let (pod, what) = (pod_of(&entry.key), format!("watch: {event}"));
        tracing::debug!(target: TARGET, uid, pod, from = "APIServer", to = audience, what, micros = 0_u64);
    }
}
