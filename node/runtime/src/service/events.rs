//! CRI's container events: every change of a pod, with the pod's full status, to every listener.

use podwire_wire::cri;
use tokio::sync::broadcast;

use crate::{
    host,
    model::{Registry, Sandbox},
    service::view,
};

/// Events a slow listener may be behind before its stream ends (it then lists anew).
const CAPACITY: usize = 4096;

/// The fan-out.
pub(crate) struct Events {
    sender: broadcast::Sender<cri::ContainerEventResponse>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Events { sender: broadcast::Sender::new(CAPACITY) }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<cri::ContainerEventResponse> {
        self.sender.subscribe()
    }

    /// Tells every listener; the statuses are taken now, so call it before forgetting anything.
    pub(crate) fn emit(
        &self,
        registry: &Registry,
        sandbox: &Sandbox,
        id: &str,
        kind: cri::ContainerEventType,
    ) {
        if self.sender.receiver_count() == 0 {
            return;
        }
        let containers = registry.containers_of(&sandbox.id);
        let event = cri::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind as i32,
            created_at: host::now(),
            pod_sandbox_status: Some(view::sandbox_status(sandbox)),
            containers_statuses: containers
                .iter()
                .map(|container| view::container_status(container))
                .collect(),
        };
        // Ignored: the last listener may have left just now.
        self.sender.send(event).ok();
    }
}
