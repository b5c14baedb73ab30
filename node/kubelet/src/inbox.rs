//! What a pod's worker is told: the newest pod, and signals. Telling never waits.
//!
//! The newest pod wins; signals beyond a bound collapse into "look again".

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use podwire_wire::cri;
use tokio::{sync::Notify, time::Instant};

use crate::{probes::Verdict as ProbeVerdict, runtime::watch::PodListing, status};

const BOUND: usize = 256;

/// Something that happened to a pod besides its object changing.
#[derive(Debug)]
pub(crate) enum Signal {
    /// The runtime's event stream named the pod.
    Event(Box<cri::ContainerEventResponse>),
    /// A relist that began at the given time saw this of the pod.
    Relisted(PodListing, Instant),
    /// A probe reached a verdict.
    Probed(ProbeVerdict),
    /// A config map, secret or token that the pod's volumes use may have changed.
    VolumesChanged,
    /// Devices that the pod holds are in another state, or their plugin is.
    DevicesChanged,
    /// A driver of the pod's claims came.
    DriverCame,
    /// The object that shows a static pod in the API was made.
    Mirrored,
    /// The node wants the pod ended.
    Evict(status::Verdict, i64),
    /// The node needs what a pod that has ended still holds: containers, volumes, logs.
    Clear,
    /// Another pod holds less than before.
    RoomMade,
}

#[derive(Debug, Default)]
struct State {
    pod: Option<Arc<Pod>>,
    gone: bool,
    signals: Vec<Signal>,
    overflowed: bool,
}

/// Everything since the last look.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The newest pod, if it changed.
    pub(crate) pod: Option<Arc<Pod>>,
    /// The API no longer has the pod.
    pub(crate) gone: bool,
    /// In order of arrival.
    pub(crate) signals: Vec<Signal>,
    /// Signals were dropped: ask the runtime.
    pub(crate) overflowed: bool,
}

/// A worker's letter box.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    bell: Notify,
}

impl Inbox {
    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("no holder of the inbox panics"));
        self.bell.notify_one();
    }

    /// The pod's object changed.
    pub(crate) fn pod(&self, pod: Arc<Pod>) {
        self.with(|state| state.pod = Some(pod));
    }

    /// The pod's object is gone.
    pub(crate) fn gone(&self) {
        self.with(|state| state.gone = true);
    }

    /// Something happened.
    pub(crate) fn signal(&self, signal: Signal) {
        self.with(|state| {
            if state.signals.len() < BOUND {
                state.signals.push(signal);
            } else {
                state.overflowed = true;
            }
        });
    }

    /// Takes everything that has arrived.
    pub(crate) fn take(&self) -> News {
        let mut state = self.state.lock().expect("no holder of the inbox panics");
        let state = std::mem::take(&mut *state);
        News { pod: state.pod, gone: state.gone, signals: state.signals, overflowed: state.overflowed }
    }

    /// Waits until something arrives. Cancel safe.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }
}
