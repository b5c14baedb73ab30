//! The arrows of device plugins: each call for a pod, and what was there before the pod and it relies on.
//!
//! A plugin tells its devices and the node's status offers them long before a pod asks for one. So both are remembered, and
//! drawn on a pod's path with their own times when its devices are reserved.

use std::{sync::Arc, time::Duration};

use podwire_trace::{Arrow, Outcome, Participant, Side, What, is_heard};
use tokio::time::Instant;

use super::{
    Amounts, Devices,
    ledger::{Device, Wishes},
};
use crate::{runtime::CallError, spec::PodRef};

/// A call that is over.
#[derive(Clone, Copy, Debug)]
struct Over {
    took: Duration,
    at: Instant,
}

impl Over {
    fn draw(&self, arrow: &Arrow<'_>, reply: String) {
        let arrow = Arrow { side: Side::Earlier, ..*arrow };
        arrow.draw_from(self.took, self.at.elapsed(), &Outcome::reply(reply));
    }
}

/// The first list of a plugin.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstList {
    over: Over,
    all: usize,
    healthy: usize,
}

impl FirstList {
    pub(super) fn new(asked: Instant, now: Instant, list: &[Device]) -> FirstList {
        let healthy = list.iter().filter(|device| device.healthy).count();
        FirstList { over: Over { took: now - asked, at: now }, all: list.len(), healthy }
    }
}

/// What the node's status says of a resource.
#[derive(Clone, Debug)]
pub(super) struct Published {
    over: Over,
    path: Arc<str>,
    amounts: (usize, usize),
}

impl Devices {
    /// The node's status, which is at `path`, says this since now.
    pub(crate) fn published(&self, amounts: Amounts, path: &str, begun: Instant, now: Instant) {
        let (over, path) = (Over { took: now - begun, at: now }, Arc::from(path));
        let mut state = self.state();
        for (resource, amounts) in amounts {
            if state.published.get(&resource).is_none_or(|known| known.amounts != amounts) {
                state.published.insert(resource, Published { over, path: Arc::clone(&path), amounts });
            }
        }
    }

    /// Draws how the resources that a pod asks for came to be offered.
    pub(super) fn draw_earlier(&self, pod: &PodRef, wishes: &Wishes) {
        if !is_heard() {
            return;
        }
        for resource in wishes.whole.keys() {
            let (list, published) = {
                let state = self.state();
                (state.endpoints.first_list(resource), state.published.get(resource).cloned())
            };
            if let Some(FirstList { over, all, healthy }) = list {
                let what = What::DevicePlugin { method: "ListAndWatch", container: "" };
                let to = Participant::DevicePlugin(resource);
                let arrow = Arrow::new(pod.traced(), Participant::Kubelet, to, what);
                over.draw(&arrow, format!("{all} devices, {healthy} healthy"));
            }
            if let Some(Published { over, path, amounts: (all, healthy) }) = published {
                let what = What::Http { method: "PATCH", path: &path };
                let arrow = Arrow::new(pod.traced(), Participant::Kubelet, Participant::ApiServer, what);
                over.draw(&arrow, format!("{resource}: capacity {all}, allocatable {healthy}"));
            }
        }
    }
}

/// Awaits a call of a plugin for a container of a pod, and draws it.
pub(super) async fn drawn<T>(
    pod: &PodRef,
    container: &str,
    resource: &str,
    method: &'static str,
    call: impl Future<Output = Result<T, CallError>>,
    reply: impl FnOnce(&T) -> String,
) -> Result<T, CallError> {
    let (what, to) = (What::DevicePlugin { method, container }, Participant::DevicePlugin(resource));
    let arrow = Arrow::new(pod.traced(), Participant::Kubelet, to, what);
    arrow.around_async(call, |answer| Outcome::of(answer, reply)).await
}
