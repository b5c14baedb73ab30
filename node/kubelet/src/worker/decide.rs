//! From what is known to operations begun.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use podwire_trace::{Arrow, Note, Participant};
use tokio::time::Instant;

use super::{Farewell, Worker};
use crate::{
    clock,
    ops::{self, Done, StartInput},
    plan::{self, Progress, Step, Want},
    spec,
    status::{self, Verdict},
};

impl Worker {
    /// Asks the planner and begins what it says.
    pub(super) fn decide(&mut self) {
        let want = self.want();
        if want != Want::Run {
            self.begin_stop(spec::grace_seconds(&self.pod));
        } else if !self.admitted {
            self.admit();
            if self.verdict.is_some() {
                return self.decide();
            }
        }
        let plan = plan::next_steps(&self.pod, &want, &self.observed, &self.going, clock::now());
        self.wake = plan.wake.map(clock::instant);
        self.watch_deadline(&want);
        self.renew_volumes();
        for step in plan.steps {
            self.begin(step);
        }
        if want == Want::Gone {
            self.say_farewell();
        }
    }

    fn want(&self) -> Want {
        if self.wants_gone() {
            return Want::Gone;
        }
        let ended = self.verdict.is_some()
            || spec::is_terminal_phase(&self.pod)
            || status::finished(&self.pod, &self.observed);
        match ended {
            false => Want::Run,
            true if self.clear || self.is_evicted() => Want::Clear,
            true => Want::Stop,
        }
    }

    /// Whether the pod had to make room; an earlier kubelet may have said so.
    fn is_evicted(&self) -> bool {
        const EVICTED: Option<&str> = Some("Evicted");
        let told = self.pod.status.as_ref().and_then(|status| status.reason.as_deref());
        self.verdict.as_ref().map(|verdict| verdict.reason.as_str()) == EVICTED || told == EVICTED
    }

    fn admit(&mut self) {
        match self.node.admit(&self.reference.uid, &self.pod) {
            Ok(()) => {
                self.admitted = true;
                Arrow::note(self.reference.traced(), Participant::Kubelet, Note::Admitted);
            }
            Err(refused) => {
                self.node.events.warning(&self.pod, None, &refused.reason, &refused.message);
                let message = format!("Pod was rejected: {}", refused.message);
                self.verdict = Some(Verdict::new(&refused.reason, message));
            }
        }
    }

    fn watch_deadline(&mut self, want: &Want) {
        if *want != Want::Run {
            return;
        }
        let Some(at) = plan::deadline(&self.pod, Some(self.start_time)) else { return };
        if at <= clock::now() {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            self.node.events.normal(&self.pod, None, "DeadlineExceeded", &message);
            self.verdict = Some(Verdict::new("DeadlineExceeded", message));
            self.wake = Some(Instant::now());
        } else {
            let at = clock::instant(at);
            self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
        }
    }

    /// From now on nothing is started; what runs has `grace` seconds.
    pub(super) fn begin_stop(&mut self, grace: i64) {
        if self.grace.is_some() {
            return;
        }
        self.grace = Some(grace);
        self.stop_by = Some(Instant::now() + Duration::from_secs(u64::try_from(grace).unwrap_or_default()));
        self.pulls.cancel();
        self.probes.stop_all_but_readiness();
    }

    /// A grace period may only shrink; containers already being stopped are stopped again, sooner.
    pub(super) fn shorten_grace(&mut self, grace: i64) {
        let by = Instant::now() + Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        if self.grace.is_none() {
            self.begin_stop(grace);
        } else if self.stop_by.is_none_or(|old| by + Duration::from_millis(500) < old) {
            self.stop_by = Some(by);
            self.grace = Some(grace);
            self.going.killing.clear();
        }
    }

    fn begin(&mut self, step: Step) {
        tracing::debug!(pod = %self.reference, ?step, "step");
        let node = self.node.clone();
        let pod = self.pod.clone();
        match step {
            Step::Prepare => {
                self.going.prepared = Progress::Busy;
                self.ops.push(Box::pin(ops::prepare(node, pod)));
            }
            Step::RunSandbox { attempt } => {
                self.going.sandbox = Progress::Busy;
                self.ops.push(Box::pin(ops::run_sandbox(node, pod, attempt)));
            }
            Step::DropSandbox { id } => {
                self.going.tearing_down = true;
                self.node.events.normal(
                    &self.pod,
                    None,
                    "SandboxChanged",
                    "Pod sandbox changed, it will be killed and re-created.",
                );
                self.ops.push(Box::pin(ops::drop_sandbox(node, self.reference.clone(), id)));
            }
            Step::EnsureImage { container, attempt } => self.begin_image(container, attempt),
            Step::Start { container, attempt } => self.begin_start(container, attempt),
            Step::Resume { id, container } => {
                self.going.resuming.insert(id.clone());
                let sandbox =
                    self.observed.containers.get(&id).map(|c| c.sandbox.clone()).unwrap_or_default();
                self.ops.push(Box::pin(ops::resume(node, pod, container, id, sandbox)));
            }
            Step::Kill { id, container, why } => self.begin_kill(id, container, why),
            Step::TearDown { remove } => {
                self.going.tearing_down = true;
                self.probes.stop_all();
                let sandboxes = self.observed.sandboxes.iter().map(|s| s.id.clone()).collect();
                let strays = ops::strays(&self.observed);
                self.ops.push(Box::pin(ops::tear_down(node, pod, sandboxes, strays, remove)));
            }
        }
    }

    fn begin_image(&mut self, container: String, attempt: u32) {
        self.going.images.insert((container.clone(), attempt), Progress::Busy);
        let Some((_, spec)) = spec::find_container(&self.pod, &container) else { return };
        let node = self.node.clone();
        let pod = self.pod.clone();
        let cancel = self.pulls.clone();
        self.ops.push(Box::pin(async move {
            let result = node.images.ensure(&node, &pod, &spec, &cancel).await;
            Done::Image { container, attempt, result }
        }));
    }

    fn begin_start(&mut self, container: String, attempt: u32) {
        let Some((kind, spec)) = spec::find_container(&self.pod, &container) else { return };
        let Some(sandbox) = self.observed.ready_sandbox().cloned() else { return };
        let Some(image) = self.images.get(&(container.clone(), attempt)).cloned() else { return };
        self.going.starts.insert(container.clone(), Progress::Busy);
        let target = spec::target_of(&self.pod, &container)
            .and_then(|name| self.observed.newest(&name).map(|c| c.id.clone()));
        let input = StartInput {
            pod: self.pod.clone(),
            kind,
            container: spec,
            attempt,
            sandbox,
            mounted: self.mounted.clone(),
            image,
            target,
        };
        self.ops.push(Box::pin(ops::start(self.node.clone(), input)));
    }

    fn begin_kill(&mut self, id: String, name: String, why: String) {
        self.going.killing.insert(id.clone());
        self.probes.stop_container(&id);
        let stopping = self.grace.is_some();
        let found = spec::find_container(&self.pod, &name);
        let condemned = self.going.condemned.contains_key(&id);
        let own_grace =
            found.as_ref().and_then(|(_, c)| self.probes.kill_grace(&id, c)).filter(|_| condemned);
        let spec_grace = spec::spec(&self.pod).termination_grace_period_seconds.unwrap_or(30);
        let left = match self.stop_by.filter(|_| stopping) {
            Some(by) => {
                i64::try_from(by.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000))
                    .unwrap_or(spec_grace)
            }
            None => own_grace.unwrap_or(spec_grace),
        };
        self.node.events.normal(
            &self.pod,
            found.as_ref().map(|(k, c)| (*k, c.name.as_str())),
            "Killing",
            &why,
        );
        let container = self.observed.containers.get(&id).cloned();
        let input = ops::KillInput {
            pod: self.pod.clone(),
            spec: found.map(|(_, c)| c).filter(|_| !self.gone),
            id,
            sandbox: container.map(|c| c.sandbox).unwrap_or_default(),
            grace: left,
            ips: self.observed.sandboxes.first().map(|s| s.ips.clone()).unwrap_or_default(),
        };
        self.ops.push(Box::pin(ops::kill(self.node.clone(), input)));
    }

    /// Once nothing is left here and the API knows the final status, the object goes.
    fn say_farewell(&mut self) {
        let due = match self.farewell {
            Farewell::NotYet => true,
            Farewell::RetryAt(at) => at <= Instant::now(),
            Farewell::Deleting | Farewell::Said => false,
        };
        if !due || self.gone || !self.is_removed() || !self.is_published() {
            return;
        }
        self.farewell = Farewell::Deleting;
        let node = self.node.clone();
        let reference = self.reference.clone();
        self.ops.push(Box::pin(async move { Done::Deleted(node.api.delete_pod(&reference).await) }));
    }

    /// Volumes whose sources changed are written again, once the first round is done.
    pub(super) fn remount(&mut self) {
        // What failed for want of an object is tried again at once.
        if matches!(self.going.prepared, Progress::Failed { .. }) {
            self.going.prepared = Progress::Idle;
        }
        self.going.starts.retain(|_, progress| !matches!(progress, Progress::Failed { .. }));
        if self.grace.is_some() {
            return;
        }
        if self.remounting || self.going.prepared == Progress::Busy {
            self.stale_volumes = true;
        } else if self.going.prepared == Progress::Done {
            self.remounting = true;
            self.ops.push(Box::pin(ops::remount(self.node.clone(), self.pod.clone())));
        }
    }

    /// Tokens in volumes are replaced before they expire.
    fn renew_volumes(&mut self) {
        let Some(at) = self.mounted.renew_at.filter(|_| !self.remounting && self.grace.is_none()) else {
            return;
        };
        if at <= clock::now() {
            self.remount();
        } else {
            let at = clock::instant(at);
            self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
        }
    }

    /// When a failed thing may be tried again: 0.5 s, doubling to 10 s.
    pub(super) fn retry_at(&mut self, what: &str) -> Timestamp {
        let count = self.failures.entry(what.to_owned()).or_default();
        let wait = Duration::from_millis(500 << (*count).min(5)).min(Duration::from_secs(10));
        *count += 1;
        clock::now().checked_add(wait).unwrap_or(Timestamp::MAX)
    }

    /// In-place resize: changed limits are applied to the running containers and the pod's cgroup.
    pub(super) fn consider_resize(&mut self) {
        if self.grace.is_some() || self.going.prepared != Progress::Done {
            return;
        }
        let changes = ops::resize_changes(&self.node, &self.pod, &self.observed);
        if !changes.is_empty() {
            self.ops.push(Box::pin(ops::resize(self.node.clone(), self.pod.clone(), changes)));
        }
    }

    pub(super) fn mounted_now(&mut self, mounted: crate::volumes::Mounted) {
        self.mounted = Arc::new(mounted);
    }
}
