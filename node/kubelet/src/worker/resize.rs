//! In-place resize: a pod that asks for other resources gets them, waits for them, or is told that it cannot have them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use podwire_wire::{cri, ids::ContainerId};

use super::{Worker, parts::Standing};
use crate::{
    clock,
    observed::RunState,
    ops::{self, ResizeError},
    plan::Progress,
    resize::{self, Allocation, InProgress, Pending},
    restart,
    spec::{self, Kind},
};

impl Worker {
    /// The newest object of the pod, with the resources that the pod was given.
    pub(super) fn hear_resources(&mut self, pod: Arc<Pod>) -> Arc<Pod> {
        if !matches!(self.standing, Standing::Admitted) || self.pod.spec.is_none() {
            return pod;
        }
        let given = Allocation::of(&self.pod);
        self.resizing.hear(&given, pod)
    }

    /// The node is asked for what the pod wants; what it was given is carried out at the next decision.
    pub(super) fn ask_resize(&mut self) {
        self.resizing.look = true;
        let Some(desired) = self.resizing.desired.clone().filter(|_| !self.is_stopping()) else { return };
        let generation = desired.metadata.generation;
        match self.node.resize(&self.reference.uid, &desired) {
            Ok(()) => {
                let text = resize::told("Pod resize started", &desired, generation, None);
                self.node.events.normal(&desired, None, "ResizeStarted", &text);
                self.pod = desired;
                self.resizing.desired = None;
                self.resizing.pending = None;
                self.resizing.progress = Some(InProgress { generation, error: None });
                self.retries.over(RETRIED);
                self.resizing.retry_at = None;
            }
            Err(unfit) => {
                let pending = Pending { unfit, generation };
                if pending.is_news_after(self.resizing.pending.as_ref()) {
                    let prefix = format!("Pod resize {}", pending.reason());
                    let text = resize::told(&prefix, &desired, generation, Some(pending.message()));
                    let reason = format!("Resize{}", pending.reason());
                    self.node.events.warning(&desired, None, &reason, &text);
                }
                self.resizing.pending = Some(pending);
            }
        }
    }

    /// Brings running containers to what the pod was given.
    pub(super) fn consider_resize(&mut self) {
        let looks = self.resizing.look || self.resizing.progress.is_some();
        if !looks || self.resizing.busy || self.is_stopping() || self.going.prepared != Progress::Done {
            return;
        }
        if let Some(at) = self.resizing.retry_at.filter(|at| *at > clock::now()) {
            let at = clock::instant(at);
            self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
            return;
        }
        self.resizing.look = false;
        let mut changes = resize::changes(&self.pod, &self.seen.observed, self.node.capacity.memory);
        changes.retain(|change| !self.going.killing.contains(&change.id));
        if changes.is_empty() {
            self.finish_resize();
            return;
        }
        let (restarted, updated): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.restart);
        for change in restarted {
            let why = format!("Container {} resize requires restart", change.name);
            self.going.condemned.insert(change.id, why);
        }
        if !updated.is_empty() {
            self.resizing.busy = true;
            self.ops.push(Box::pin(ops::resize(self.node.clone(), self.pod.clone(), updated)));
        }
    }

    /// Everything that was given is in force, unless a container is on its way.
    fn finish_resize(&mut self) {
        let restarts = |(kind, container): (Kind, Container)| {
            let newest = self.seen.observed.newest(&container.name);
            newest.is_some_and(|n| {
                n.state == RunState::Exited && restart::should_restart(&self.pod, kind, &container, n)
            })
        };
        let settled = self.going.killing.is_empty()
            && self.going.condemned.is_empty()
            && !spec::containers(&self.pod).into_iter().any(restarts);
        if let Some(done) = self.resizing.progress.take_if(|_| settled) {
            let text = resize::told("Pod resize completed", &self.pod, done.generation, None);
            self.node.events.normal(&self.pod, None, "ResizeCompleted", &text);
        }
    }

    pub(super) fn resized(
        &mut self,
        applied: Vec<(ContainerId, cri::LinuxContainerResources)>,
        result: Result<(), ResizeError>,
    ) {
        self.resizing.busy = false;
        self.resizing.look = true;
        for (id, resources) in applied {
            if let Some(container) = self.seen.observed.containers.get_mut(&id) {
                container.resources = Some(resources);
            }
        }
        match result {
            Ok(()) => {
                self.retries.over(RETRIED);
                self.resizing.retry_at = None;
            }
            Err(error) => self.resize_failed(&error.to_string()),
        }
    }

    fn resize_failed(&mut self, error: &str) {
        self.resizing.retry_at = Some(self.retries.next(RETRIED));
        let generation = self.pod.metadata.generation;
        let progress = self.resizing.progress.get_or_insert(InProgress { generation, error: None });
        let news = progress.error.as_deref() != Some(error);
        progress.error = Some(error.to_owned());
        if news {
            let text = resize::told("Pod resize error", &self.pod, progress.generation, Some(error));
            self.node.events.warning(&self.pod, None, "ResizeError", &text);
        }
    }
}

/// What the failures in a row are counted under.
const RETRIED: &str = "resize";
