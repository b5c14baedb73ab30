//! Takes in what operations and the runtime report.

use tokio::time::Instant;

use super::{Worker, parts::Object};
use podwire_wire::ids::{ContainerId, ContainerName, SandboxId};

use crate::{
    hooks,
    images::ImageError,
    observed::{Container, RunState, Sandbox},
    ops::{self, Done, StartFailure},
    plan::{Progress, TornDown},
    probes, spec,
    status::Waiting,
};

impl Worker {
    /// One operation ended.
    pub(super) fn done(&mut self, done: Done) {
        match done {
            Done::Prepared(result) => self.prepared(result),
            Done::Remounted(result) => self.remounted(result),
            Done::Sandbox { result, left } => self.sandbox_ran(result, left),
            Done::Dropped { id, result } => {
                self.going.tearing_down = false;
                match result {
                    Ok(()) => self.sandbox_not_ready(&id),
                    Err(error) => self.going.sandbox = self.sandbox_failed(&error),
                }
            }
            Done::Image { container, attempt, result } => self.image_found(&container, attempt, result),
            Done::Started { container, attempt, seen, failure } => {
                self.started(container, attempt, seen, failure)
            }
            Done::Resumed { id, container, seen, failure } => {
                self.going.resuming.remove(&id);
                let attempt = self.seen.observed.containers.get(&id).map_or(0, |c| c.attempt);
                self.started(container, attempt, seen, failure);
            }
            Done::Killed { id, result } => self.killed(&id, result),
            Done::TornDown { remove, result } => self.torn_down(remove, result),
            Done::Published { status, result } => self.was_published(*status, result),
            Done::Deleted(result) => self.deleted(result),
            Done::Hooked { id, container, result } => self.hooked(&id, &container, result),
            Done::Refreshed { seen, lost } => self.refreshed(seen, &lost),
            Done::Devices { admission, since, changes } => self.devices_decided(admission, since, changes),
            Done::DevicesChanged => self.devices_changed(),
            Done::Resized { applied, result } => self.resized(applied, result),
            Done::LastWords { id, message } => self.last_words(&id, message),
        }
    }

    fn prepared(&mut self, result: Result<crate::volumes::Mounted, crate::volumes::VolumeError>) {
        match result {
            Ok(mounted) => {
                self.mounted_now(mounted);
                self.retries.over("prepare");
                self.going.prepared = Progress::Done;
                if self.volumes.take_queued() {
                    self.remount();
                }
            }
            Err(error) => {
                self.node.events.warning(&self.pod, None, error.reason(), &error.to_string());
                self.going.prepared = Progress::Failed { retry_at: self.retries.next("prepare") };
            }
        }
    }

    fn remounted(&mut self, result: Result<crate::volumes::Mounted, crate::volumes::VolumeError>) {
        let again = self.volumes.end();
        match result {
            Ok(mounted) => self.mounted_now(mounted),
            // The pod goes on with what it has; the next change of the object is the next attempt.
            Err(error) => tracing::debug!(pod = %self.reference, error = %error, "volumes not refreshed"),
        }
        if again {
            self.remount();
        }
    }

    fn sandbox_ran(&mut self, result: Result<Sandbox, ops::SandboxError>, left: Vec<Sandbox>) {
        // Its attempt number is taken: the next try needs another.
        for sandbox in left {
            self.seen.observed.merge_sandbox(sandbox);
        }
        match result {
            Ok(sandbox) => {
                self.retries.over("sandbox");
                self.going.sandbox = Progress::Idle;
                self.seen.observed.merge_sandbox(sandbox);
            }
            Err(ops::SandboxError::Ended) => self.going.sandbox = Progress::Idle,
            Err(error @ ops::SandboxError::Claims(_)) => {
                let message = format!("Failed to prepare dynamic resources: {error}");
                self.node.events.warning(&self.pod, None, "FailedPrepareDynamicResources", &message);
                self.going.sandbox = Progress::Failed { retry_at: self.retries.next("sandbox") };
            }
            Err(error) => self.going.sandbox = self.sandbox_failed(&error),
        }
    }

    fn sandbox_failed(&mut self, error: &dyn std::fmt::Display) -> Progress {
        let message = format!("Failed to create pod sandbox: {error}");
        self.node.events.warning(&self.pod, None, "FailedCreatePodSandBox", &message);
        Progress::Failed { retry_at: self.retries.next("sandbox") }
    }

    pub(super) fn sandbox_not_ready(&mut self, id: &SandboxId) {
        if let Some(sandbox) = self.seen.observed.sandboxes.iter_mut().find(|s| s.id == *id) {
            sandbox.ready = false;
        }
    }

    fn image_found(
        &mut self,
        name: &ContainerName,
        attempt: u32,
        result: Result<crate::images::Found, ImageError>,
    ) {
        let key = (name.clone(), attempt);
        match result {
            Ok(found) => {
                self.notes.waiting.remove(name);
                self.notes.images.insert(key.clone(), found);
                self.going.images.insert(key, Progress::Done);
            }
            Err(ImageError::Cancelled) => {
                self.going.images.remove(&key);
            }
            Err(error) => {
                let retry_at = error.retry_at().unwrap_or_else(|| self.retries.next(name));
                self.notes.waiting.insert(name.clone(), error.waiting());
                self.going.images.insert(key, Progress::Failed { retry_at });
            }
        }
    }

    fn started(
        &mut self,
        name: ContainerName,
        attempt: u32,
        seen: Option<Container>,
        failure: Option<StartFailure>,
    ) {
        match failure {
            None => {
                self.notes.images.retain(|(container, n), _| container != &name || *n > attempt);
                self.going.images.retain(|(container, n), _| container != &name || *n > attempt);
                self.notes.waiting.remove(&name);
                self.retries.over(&name);
                self.going.starts.remove(&name);
            }
            Some(failure) => {
                let kind = spec::find_container(&self.pod, &name).map(|(kind, _)| kind);
                let part = kind.map(|kind| (kind, name.as_str()));
                self.node.events.warning(&self.pod, part, "Failed", &failure.event);
                self.notes.waiting.insert(
                    name.clone(),
                    Waiting { reason: failure.reason.into(), message: failure.message },
                );
                let retry_at = self.retries.next(&name);
                self.going.starts.insert(name.clone(), Progress::Failed { retry_at });
            }
        }
        if let Some(container) = seen {
            let id = container.id.clone();
            let ended = container.state == RunState::Exited;
            self.seen.learned.insert(id.clone(), Instant::now());
            self.seen.observed.merge_container(container);
            if attempt > 0 {
                // From the second restart on there is a wait; this one just happened.
                let cap = crate::restart::CAP;
                let old = self.going.backoff.get(&name);
                let raised = crate::restart::Backoff::raise(old, cap, crate::clock::now());
                self.going.backoff.insert(name.clone(), raised);
            }
            if ended {
                // It left a corpse: the crash back-off decides about the next attempt, not the retry.
                self.going.starts.remove(&name);
            }
            self.container_moved(&id);
        }
    }

    fn killed(&mut self, id: &ContainerId, result: Result<Option<Container>, crate::runtime::CallError>) {
        self.going.killing.remove(id);
        match result {
            Ok(Some(container)) => {
                if self.seen.observed.merge_container(container) {
                    self.container_moved(id);
                }
            }
            Ok(None) => {
                self.seen.observed.forget_container(id);
            }
            Err(error) => {
                tracing::warn!(pod = %self.reference, container = %id, error = %error, "container not stopped; will retry");
                let message = format!(
                    "error killing pod: failed to \"KillContainer\" with KillContainerError: \"{error}\""
                );
                self.node.events.warning(&self.pod, None, "FailedKillPod", &message);
                self.going.killing.insert(id.clone());
                let id = id.clone();
                let node = self.node.clone();
                let sandbox =
                    self.seen.observed.containers.get(&id).map(|c| c.sandbox.clone()).unwrap_or_default();
                self.ops.push(Box::pin(ops::kill_again(node, self.reference.clone(), id, sandbox)));
            }
        }
    }

    fn torn_down(&mut self, remove: bool, result: Result<(), ops::TearDownError>) {
        self.going.tearing_down = false;
        match result {
            Ok(()) => {
                self.retries.over("teardown");
                self.going.torn_down = if remove { TornDown::Removed } else { TornDown::Stopped };
                self.going.prepared = Progress::Idle;
                if remove {
                    self.seen.observed.sandboxes.clear();
                    self.seen.observed.containers.retain(|_, c| c.state == RunState::Exited);
                } else {
                    for sandbox in &mut self.seen.observed.sandboxes {
                        sandbox.ready = false;
                    }
                }
                self.node.pod_stopped(&self.reference.uid, remove);
            }
            Err(error) => {
                tracing::warn!(pod = %self.reference, error = %error, "pod not torn down; will retry");
                self.node.events.warning(
                    &self.pod,
                    None,
                    "FailedKillPod",
                    &format!("error killing pod: {error}"),
                );
                self.going.tearing_down = true;
                let at = crate::clock::instant(self.retries.next("teardown"));
                let node = self.node.clone();
                let pod = self.pod.clone();
                let sandboxes = self.seen.observed.sandboxes.iter().map(|s| s.id.clone()).collect();
                let strays = ops::strays(&self.seen.observed);
                self.ops.push(Box::pin(async move {
                    tokio::time::sleep_until(at).await;
                    ops::tear_down(node, pod, sandboxes, strays, remove).await
                }));
            }
        }
    }

    fn deleted(&mut self, result: Result<(), crate::api::ApiError>) {
        let next = match result {
            Ok(()) => Object::Deleted,
            Err(error) if error.is_gone() => Object::Deleted,
            Err(error) => {
                tracing::warn!(pod = %self.reference, error = %error, "pod not deleted; will retry");
                Object::RetryAt(crate::clock::instant(self.retries.next("delete")))
            }
        };
        // That it is gone may have been heard meanwhile.
        if !self.is_gone() {
            self.object = next;
        }
    }

    /// A container is in another state than before: probes, hooks and termination messages follow.
    pub(super) fn container_moved(&mut self, id: &ContainerId) {
        let Some(container) = self.seen.observed.containers.get(id).cloned() else { return };
        let Some((kind, spec)) = spec::find_container(&self.pod, &container.name) else { return };
        match container.state {
            RunState::Running if !self.is_stopping() => {
                self.notes.waiting.remove(&container.name);
                let hook = spec.lifecycle.as_ref().and_then(|l| l.post_start.clone());
                if let (Some(hook), true) = (hook, self.notes.hooked.insert(id.clone())) {
                    self.going.hooked.insert(id.clone());
                    let ips = self.seen.observed.sandboxes.first().map(|s| s.ips.clone()).unwrap_or_default();
                    let run = hooks::post_start(self.node.clone(), spec, hook, id.clone(), ips);
                    self.ops.push(Box::pin(run));
                } else if !self.going.hooked.contains(id) {
                    self.begin_probes(&container, kind, &spec);
                }
            }
            RunState::Exited => {
                self.probes.stop_container(id);
                self.notes.ready.remove(id);
                self.going.started.remove(id);
                self.going.hooked.remove(id);
                self.going.condemned.remove(id);
                self.tell_backoff(&container, kind, &spec);
                self.read_last_words(id, &spec);
                self.remove_older(&container.name);
            }
            _ => {}
        }
    }

    /// A container that has to wait before it runs again is worth an event.
    fn tell_backoff(
        &self,
        container: &Container,
        kind: spec::Kind,
        spec: &k8s_openapi::api::core::v1::Container,
    ) {
        let waits = self
            .going
            .backoff
            .get(&container.name)
            .is_some_and(|b| b.until(container.finished_at) > crate::clock::now());
        let again = crate::restart::should_restart(&self.pod, kind, spec, container);
        if waits && again && !self.is_stopping() {
            let full = self.reference.full();
            let text = format!("Back-off restarting failed container {} in pod {full}", container.name);
            self.node.events.warning(&self.pod, Some((kind, &container.name)), "BackOff", &text);
        }
    }

    fn begin_probes(
        &mut self,
        container: &Container,
        kind: spec::Kind,
        spec: &k8s_openapi::api::core::v1::Container,
    ) {
        if matches!(kind, spec::Kind::Init | spec::Kind::Ephemeral) || spec.startup_probe.is_none() {
            self.going.started.insert(container.id.clone());
        }
        if spec.readiness_probe.is_none() || matches!(kind, spec::Kind::Init) {
            self.notes.ready.insert(container.id.clone());
        }
        let started = self.going.started.contains(&container.id);
        let ips = self.seen.observed.sandboxes.first().map(|s| s.ips.clone()).unwrap_or_default();
        self.probes.start(&self.pod, spec, container, ips, started);
    }

    fn hooked(&mut self, id: &ContainerId, name: &ContainerName, result: Result<(), hooks::HookError>) {
        self.going.hooked.remove(id);
        if let Err(error) = result {
            let message = format!("PostStartHook failed: {error}");
            let kind = spec::find_container(&self.pod, name).map(|(kind, _)| kind);
            let part = kind.map(|kind| (kind, name.as_str()));
            self.node.events.warning(&self.pod, part, "FailedPostStartHook", &message);
            self.notes
                .waiting
                .insert(name.to_owned(), Waiting { reason: "PostStartHookError".into(), message });
            self.going.condemned.insert(id.clone(), "FailedPostStartHook".to_owned());
        }
        self.container_moved(id);
    }

    pub(super) fn probed(&mut self, verdict: probes::Verdict) {
        let running = |w: &Worker| {
            w.seen.observed.containers.get(&verdict.id).is_some_and(|c| c.state == RunState::Running)
        };
        if !running(self) {
            return;
        }
        match verdict.outcome {
            probes::Outcome::Ready(true) => {
                self.notes.ready.insert(verdict.id);
            }
            probes::Outcome::Ready(false) => {
                self.notes.ready.remove(&verdict.id);
            }
            probes::Outcome::Started => {
                self.going.started.insert(verdict.id.clone());
                self.probes.startup_done(&verdict.id);
            }
            probes::Outcome::Condemned(why) => {
                self.going.condemned.insert(verdict.id, why);
            }
        }
    }
}
