//! Takes in what the runtime says by itself: events and relists.

use podwire_wire::{
    cri,
    ids::{ContainerId, SandboxId},
};
use tokio::time::Instant;

use super::Worker;
use crate::{
    observed::{Container, RunState, Sandbox},
    ops,
    plan::{Progress, TornDown},
    runtime::watch::PodListing,
};

/// Nanoseconds after which a sandbox that a list does not name is gone: a runtime stamps it before it lists it.
const SETTLED: i64 = 1_000_000_000;

impl Worker {
    /// An event carries the whole pod, so no further call is needed.
    pub(super) fn runtime_event(&mut self, event: &cri::ContainerEventResponse) {
        let Some(status) = &event.pod_sandbox_status else { return };
        let deleted = event.container_event_type == cri::ContainerEventType::ContainerDeletedEvent as i32;
        if self.is_clearing() {
            // How it ended is known; that it goes now is no news about that.
            return;
        }
        if deleted {
            if event.container_id == status.id {
                self.seen.observed.forget_sandbox(&event.container_id);
            } else {
                self.seen.observed.forget_container(&event.container_id);
            }
            return;
        }
        self.seen.observed.merge_sandbox(Sandbox::from_status(status));
        for container in &event.containers_statuses {
            let container = Container::from_status(container, &status.id);
            let id = container.id.clone();
            // A container that is being created is heard of from its own operation first.
            let own = self.going.starts.get(&container.name) == Some(&Progress::Busy);
            if own && !self.seen.observed.containers.contains_key(&id) && container.state != RunState::Exited
            {
                continue;
            }
            self.seen.learned.entry(id.clone()).or_insert_with(Instant::now);
            if self.seen.observed.merge_container(container) {
                self.container_moved(&id);
            }
        }
    }

    /// Compares with a relist and asks about what differs.
    pub(super) fn relisted(&mut self, listing: &PodListing, began: Instant) {
        if self.is_clearing() {
            return;
        }
        let mut ask = Vec::new();
        for (id, seen) in &listing.containers {
            let known = self.seen.observed.containers.get(id);
            if known.is_none_or(|c| c.state < seen.state) && !self.going.killing.contains(id) {
                ask.push((id.clone(), seen.sandbox.clone()));
            }
        }
        let older = |learned: Option<&Instant>| learned.is_none_or(|at| *at < began);
        let lost: Vec<ContainerId> = self
            .seen
            .observed
            .containers
            .keys()
            .filter(|id| !listing.containers.contains_key(*id) && older(self.seen.learned.get(*id)))
            .cloned()
            .collect();
        for id in lost {
            self.seen.observed.forget_container(&id);
            self.probes.stop_container(&id);
        }
        let settled = self.going.sandbox != Progress::Busy && self.retries.is_empty();
        for (id, ready) in &listing.sandboxes {
            let known = self.seen.observed.sandboxes.iter().find(|s| s.id == *id).map(|s| s.ready);
            if known == Some(true) && !ready {
                self.sandbox_not_ready(id);
            }
        }
        if settled {
            let gone: Vec<SandboxId> = self
                .seen
                .observed
                .sandboxes
                .iter()
                .filter(|s| !listing.sandboxes.contains_key(&s.id) && s.created_at + SETTLED < listing.at)
                .map(|s| s.id.clone())
                .collect();
            for id in gone {
                self.seen.observed.forget_sandbox(&id);
            }
        }
        self.ask(ask);
    }

    /// Whether the sandboxes are being removed with everything in them, or were.
    fn is_clearing(&self) -> bool {
        self.going.torn_down == TornDown::Removed
            || (self.going.tearing_down && self.is_stopping() && !self.seen.observed.any_running())
    }

    pub(super) fn refresh_all(&mut self) {
        let all = self.seen.observed.containers.values().map(|c| (c.id.clone(), c.sandbox.clone())).collect();
        self.ask(all);
    }

    fn ask(&mut self, containers: Vec<(ContainerId, SandboxId)>) {
        if containers.is_empty() || self.seen.asking {
            return;
        }
        self.seen.asking = true;
        self.ops.push(Box::pin(ops::refresh(self.node.clone(), containers)));
    }

    pub(super) fn refreshed(&mut self, seen: Vec<Container>, lost: &[ContainerId]) {
        self.seen.asking = false;
        for id in lost {
            self.seen.observed.forget_container(id);
        }
        for container in seen {
            let id = container.id.clone();
            if self.seen.observed.merge_container(container) {
                self.container_moved(&id);
            }
        }
    }

    /// One dead container per name is kept for its log; older ones are removed.
    pub(super) fn remove_older(&mut self, name: &str) {
        let mut dead: Vec<&Container> =
            self.seen.observed.named(name).filter(|c| c.state == RunState::Exited).collect();
        dead.sort_by_key(|c| std::cmp::Reverse((c.attempt, c.created_at)));
        // The newest may be restarted; the one before it is what `logs --previous` reads.
        let old: Vec<ContainerId> = dead.iter().skip(2).map(|c| c.id.clone()).collect();
        for id in old {
            self.seen.observed.forget_container(&id);
            let removal = ops::remove_container(self.node.clone(), self.reference.clone(), id);
            self.ops.push(Box::pin(removal));
        }
    }
}
