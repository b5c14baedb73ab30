//! A request about one pod, from its arrival to its answer.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use podwire_api::Kind;
use podwire_store::KeyValue;
use podwire_trace::{Arrow, Note, Outcome, Participant, Side, What};

use super::{agent, is_traced, participant, pod_at};
use crate::body::Response;
use crate::cache::Entry;
use crate::context::{self, Context};
use crate::identity::Identity;
use crate::request::ResourceInfo;
use crate::status::Result;

/// The stored object that a response shows; left on the response for the trace.
#[derive(Clone)]
pub(crate) struct Shown(pub(crate) KeyValue);

/// An upstream program by what it calls itself: `kubelet/v1.36.4 (linux/amd64) ...` is `kubelet v1.36.4`.
fn twin(headers: &HeaderMap) -> String {
    match agent(headers).split(' ').next().and_then(|word| word.split_once('/')) {
        Some((name @ ("kubectl" | "kubelet" | "kube-scheduler" | "kube-controller-manager"), version)) => {
            format!("{name} {version}")
        }
        _ => String::new(),
    }
}

/// A request that is drawn.
pub(crate) struct Request {
    identity: Arc<Identity>,
    headers: HeaderMap,
    method: http::Method,
    path: String,
    created: bool,
    known: Option<Arc<Entry>>,
    kind: Arc<Kind>,
    begun: Instant,
}

impl Request {
    /// Begins the arrow of a request, if it is one that is drawn and somebody listens.
    pub(crate) fn begin(
        context: &Context,
        identity: &Arc<Identity>,
        kind: &Arc<Kind>,
        target: &ResourceInfo,
        verb: &str,
        parts: &http::request::Parts,
    ) -> Option<Request> {
        let reads =
            matches!(verb, "get" | "list" | "watch" | "deletecollection") && target.subresource.is_empty();
        if !is_traced(kind) || reads || !podwire_trace::is_heard() {
            return None;
        }
        let known = context.caches.of(kind).get(&context::key(kind, &target.namespace, &target.name));
        Some(Request {
            identity: identity.clone(),
            headers: parts.headers.clone(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            created: verb == "create" && target.subresource.is_empty(),
            known,
            kind: kind.clone(),
            begun: Instant::now(),
        })
    }

    /// The answer is ready.
    fn end(self, context: &Context, answer: &Result<Response>) {
        let shown = answer.as_ref().ok().and_then(|response| response.extensions().get::<Shown>());
        let entry = shown.and_then(|shown| context.caches.of(&self.kind).read_entry(&shown.0)).or(self.known);
        let Some(entry) = entry else { return };
        let Some(pod) = entry.uid().and_then(|uid| pod_at(&entry.key, uid)) else { return };
        let took = self.begun.elapsed();
        let outcome = match answer {
            Ok(response) => Outcome::reply(response.status().as_u16().to_string()),
            Err(error) => Outcome::Failed(error.message.clone()),
        };
        let what = What::Http { method: self.method.as_str(), path: &self.path };
        let from = participant(&self.identity, &self.headers);
        let arrow = Arrow::new(pod, from, Participant::ApiServer, what);
        Arrow { side: Side::Server, caller: &twin(&self.headers), ..arrow }.draw(took, &outcome);
        if self.created {
            // Told now, when the pod has a uid; it was so when the request came.
            let note = Note::Authenticated { user: &self.identity.user };
            Arrow::note_from(pod, Participant::ApiServer, note, took);
        }
    }
}

/// Ends the arrow of a request, if one was begun, and hands the answer on.
pub(crate) fn end(arrow: Option<Request>, context: &Context, answer: Result<Response>) -> Result<Response> {
    if let Some(arrow) = arrow {
        arrow.end(context, &answer);
    }
    answer
}
