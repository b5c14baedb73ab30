//! The layers that draw the path of a pod where it touches the API server: around a request, around a transaction of
//! the store, and at the delivery of a change to who watches.

mod request;
mod store;

use http::HeaderMap;
use podwire_api::{Kind, builtin};
use podwire_trace::{Arrow, Outcome, Participant, Pod, What};
use std::time::Duration;

pub(crate) use request::{Request, Shown, end};
pub(crate) use store::TracedStore;

use crate::cache::Entry;
use crate::identity::Identity;

/// Whether the life of objects of this kind is traced.
pub(crate) fn is_traced(kind: &Kind) -> bool {
    kind.storage_prefix == builtin::pods().storage_prefix
}

/// The pod under a key, if it is one.
fn pod_at<'a>(key: &'a str, uid: &'a str) -> Option<Pod<'a>> {
    let (namespace, name) = key.strip_prefix(&*builtin::pods().storage_prefix)?.split_once('/')?;
    Some(Pod { uid, namespace, name })
}

fn agent(headers: &HeaderMap) -> &str {
    headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The participant behind an identity, in the mission's words.
fn participant<'a>(identity: &'a Identity, headers: &HeaderMap) -> Participant<'a> {
    let agent = agent(headers);
    match identity.user.as_str() {
        "system:kube-scheduler" => Participant::Scheduler,
        "system:kube-controller-manager" => Participant::Controllers,
        _ if identity.node_name().is_some() => Participant::Kubelet,
        _ if agent.starts_with("kubectl") => Participant::KubeCtl,
        _ if agent.starts_with("kubelet") => Participant::Kubelet,
        _ if agent.starts_with("kube-scheduler") => Participant::Scheduler,
        "kubernetes-admin" => Participant::KubeCtl,
        user => Participant::User(user),
    }
}

/// The participant whose watches are drawn; others only look.
pub(crate) fn audience(
    kind: &Kind,
    identity: &Identity,
    headers: &HeaderMap,
) -> Option<Participant<'static>> {
    let drawn = [Participant::Scheduler, Participant::Kubelet];
    drawn.into_iter().find(|one| is_traced(kind) && participant(identity, headers) == *one)
}

/// A watch was told of a change of a pod.
pub(crate) fn delivered(audience: Participant<'static>, entry: &Entry, event: &str) {
    if podwire_trace::is_heard()
        && let Some(pod) = entry.uid().and_then(|uid| pod_at(&entry.key, uid))
    {
        let arrow = Arrow::new(pod, Participant::ApiServer, audience, What::Watch { event });
        arrow.draw(Duration::ZERO, &Outcome::reply(""));
    }
}
