//! From what is known to operations begun.

use std::sync::Arc;

use podwire_trace::{Arrow, Note, Participant};
use tokio::{sync::watch, time::Instant};

use super::{
    Worker,
    parts::{Object, Remains, Standing, Stopping, Wait},
};
use podwire_wire::ids::{ContainerId, ContainerName};

use crate::{
    admission::Refused,
    clock,
    devices::Admission,
    ops::{self, Done, StartInput},
    plan::{self, Progress, Step, Want},
    spec,
    status::{self, Verdict},
};

/// Why a pod whose devices are not there does not begin: the reason of its condition and event.
pub(super) const WAITING_FOR_DEVICES: &str = "WaitingForDevices";

impl Worker {
    /// Asks the planner and begins what it says.
    pub(super) fn decide(&mut self) {
        let want = self.want();
        if want != Want::Run {
            self.begin_stop(spec::grace_seconds(&self.pod));
        } else if matches!(self.standing, Standing::New) {
            self.admit();
            if self.standing.verdict().is_some() {
                return self.decide();
            }
        }
        if want == Want::Run && !matches!(self.standing, Standing::Admitted) {
            // Nothing is begun before the pod has what it asks for.
            self.wake = None;
            return self.watch_deadline(&want);
        }
        let plan = plan::next_steps(&self.pod, &want, &self.seen.observed, &self.going, clock::now());
        self.wake = plan.wake.map(clock::instant);
        self.watch_deadline(&want);
        self.renew_volumes();
        self.consider_resize();
        for step in plan.steps {
            self.begin(step);
        }
        if want == Want::Gone {
            self.delete_object();
        }
    }

    fn want(&self) -> Want {
        if self.wants_gone() {
            return Want::Gone;
        }
        let ended = self.standing.verdict().is_some()
            || spec::is_terminal_phase(&self.pod)
            || status::finished(&self.pod, &self.seen.observed);
        match ended {
            false => Want::Run,
            true if self.remains == Remains::Unwanted || self.is_evicted() => Want::Clear,
            true => Want::Stop,
        }
    }

    /// Whether the pod had to make room; an earlier kubelet may have said so.
    fn is_evicted(&self) -> bool {
        const EVICTED: Option<&str> = Some("Evicted");
        let told = self.pod.status.as_ref().and_then(|status| status.reason.as_deref());
        self.standing.verdict().map(|verdict| verdict.reason.as_str()) == EVICTED || told == EVICTED
    }

    fn admit(&mut self) {
        match self.node.admit(&self.reference.uid, &self.pod) {
            Ok(()) if self.node.devices.concerns(&self.pod) => self.ask_for_devices(),
            Ok(()) => self.admitted(),
            Err(refused) => self.refused(&refused),
        }
    }

    fn admitted(&mut self) {
        self.standing = Standing::Admitted;
        Arrow::note(self.reference.traced(), Participant::Kubelet, Note::Admitted);
    }

    fn refused(&mut self, refused: &Refused) {
        self.node.events.warning(&self.pod, None, &refused.reason, &refused.message);
        let message = format!("Pod was rejected: {}", refused.message);
        self.standing = Standing::Ended(Verdict::new(&refused.reason, message));
    }

    fn ask_for_devices(&mut self) {
        let since = match &self.standing {
            Standing::Waiting(wait) => wait.since,
            _ => Instant::now(),
        };
        if !matches!(self.standing, Standing::Waiting(_)) {
            self.standing = Standing::Reserving;
        }
        let (node, pod) = (self.node.clone(), self.pod.clone());
        self.ops.push(Box::pin(async move {
            // Whatever changes from here on is worth asking again.
            let changes = node.devices.changes();
            let admission = node.devices.admit(&pod).await;
            Done::Devices { admission, since, changes }
        }));
    }

    /// What became of the pod's devices: it has them, does not get them, or waits for them for a while.
    pub(super) fn devices_decided(
        &mut self,
        admission: Admission,
        since: Instant,
        mut changes: watch::Receiver<()>,
    ) {
        if self.is_stopping() || !matches!(self.standing, Standing::Reserving | Standing::Waiting(_)) {
            // It ended before it began.
            return self.node.devices.free(&self.reference.uid);
        }
        let until = since + self.node.devices.patience();
        match admission {
            Admission::Admitted => self.admitted(),
            Admission::Refused(refused) => self.devices_refused(&refused),
            Admission::Waiting { refusal, .. } if until <= Instant::now() => self.devices_refused(&refusal),
            Admission::Waiting { why, .. } => {
                let message = format!("Waiting for devices: {why}");
                let told = matches!(&self.standing, Standing::Waiting(wait) if wait.message == message);
                if !told {
                    self.node.events.warning(&self.pod, None, WAITING_FOR_DEVICES, &message);
                }
                self.standing = Standing::Waiting(Wait { since, message });
                let ended = self.pulls.clone();
                self.ops.push(Box::pin(async move {
                    tokio::select! {
                        _ = changes.changed() => {}
                        () = ended.cancelled() => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                    Done::DevicesChanged
                }));
            }
        }
    }

    /// Something changed, or the time is over.
    pub(super) fn devices_changed(&mut self) {
        if matches!(self.standing, Standing::Waiting(_)) && !self.is_stopping() {
            self.ask_for_devices();
        }
    }

    fn devices_refused(&mut self, refused: &Refused) {
        self.node.pods.change(&self.reference.uid, |known| known.admitted = false);
        self.refused(refused);
    }

    fn watch_deadline(&mut self, want: &Want) {
        if *want != Want::Run {
            return;
        }
        let Some(at) = plan::deadline(&self.pod, Some(self.start_time)) else { return };
        if at <= clock::now() {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            self.node.events.normal(&self.pod, None, "DeadlineExceeded", &message);
            self.standing = Standing::Ended(Verdict::new("DeadlineExceeded", message));
            self.wake = Some(Instant::now());
        } else {
            let at = clock::instant(at);
            self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
        }
    }

    /// From now on nothing is started; what runs has `grace` seconds.
    pub(super) fn begin_stop(&mut self, grace: i64) {
        if self.is_stopping() {
            return;
        }
        self.stopping = Some(Stopping::new(grace));
        self.node.devices.ends(&self.reference.uid);
        self.pulls.cancel();
        self.probes.stop_all_but_readiness();
    }

    /// A grace period may only shrink; containers already being stopped are stopped again, sooner.
    pub(super) fn shorten_grace(&mut self, grace: i64) {
        let Some(stopping) = self.stopping else { return self.begin_stop(grace) };
        let sooner = Stopping::new(grace);
        if stopping.is_shortened_by(&sooner) {
            self.stopping = Some(sooner);
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
                self.ops.push(Box::pin(ops::run_sandbox(node, pod, attempt, self.pulls.clone())));
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
                    self.seen.observed.containers.get(&id).map(|c| c.sandbox.clone()).unwrap_or_default();
                self.ops.push(Box::pin(ops::resume(node, pod, container, id, sandbox)));
            }
            Step::Kill { id, container, why } => self.begin_kill(id, container, why),
            Step::TearDown { remove } => {
                self.going.tearing_down = true;
                self.probes.stop_all();
                let sandboxes = self.seen.observed.sandboxes.iter().map(|s| s.id.clone()).collect();
                let strays = ops::strays(&self.seen.observed);
                self.ops.push(Box::pin(ops::tear_down(node, pod, sandboxes, strays, remove)));
            }
        }
    }

    fn begin_image(&mut self, container: ContainerName, attempt: u32) {
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

    fn begin_start(&mut self, container: ContainerName, attempt: u32) {
        let Some((kind, spec)) = spec::find_container(&self.pod, &container) else { return };
        let Some(sandbox) = self.seen.observed.ready_sandbox().cloned() else { return };
        let Some(image) = self.notes.images.get(&(container.clone(), attempt)).cloned() else { return };
        self.going.starts.insert(container.clone(), Progress::Busy);
        let target = spec::target_of(&self.pod, &container)
            .and_then(|name| self.seen.observed.newest(&name).map(|c| c.id.clone()));
        let input = StartInput {
            pod: self.pod.clone(),
            kind,
            container: spec,
            attempt,
            sandbox,
            mounted: self.volumes.mounted.clone(),
            image,
            target,
        };
        self.ops.push(Box::pin(ops::start(self.node.clone(), input)));
    }

    fn begin_kill(&mut self, id: ContainerId, name: ContainerName, why: String) {
        self.going.killing.insert(id.clone());
        self.probes.stop_container(&id);
        let found = spec::find_container(&self.pod, &name);
        let condemned = self.going.condemned.contains_key(&id);
        let own_grace =
            found.as_ref().and_then(|(_, c)| self.probes.kill_grace(&id, c)).filter(|_| condemned);
        let spec_grace = spec::spec(&self.pod).termination_grace_period_seconds.unwrap_or(30);
        let left = match self.stopping {
            Some(Stopping { by }) => {
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
        let container = self.seen.observed.containers.get(&id).cloned();
        let input = ops::KillInput {
            pod: self.pod.clone(),
            spec: found.map(|(_, c)| c).filter(|_| !self.is_gone()),
            id,
            sandbox: container.map(|c| c.sandbox).unwrap_or_default(),
            grace: left,
            ips: self.seen.observed.sandboxes.first().map(|s| s.ips.clone()).unwrap_or_default(),
        };
        self.ops.push(Box::pin(ops::kill(self.node.clone(), input)));
    }

    /// Once nothing is left here and the API knows the final status, the object goes.
    fn delete_object(&mut self) {
        let due = match self.object {
            Object::Present => true,
            Object::RetryAt(at) => at <= Instant::now(),
            Object::Deleting | Object::Deleted | Object::Gone => false,
        };
        if !due || !self.is_removed() || !self.is_published() {
            return;
        }
        self.object = Object::Deleting;
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
        self.retry_starts();
        if self.is_stopping() {
            return;
        }
        if self.volumes.is_refreshing() || self.going.prepared == Progress::Busy {
            self.volumes.queue();
        } else if self.going.prepared == Progress::Done {
            self.volumes.begin();
            self.ops.push(Box::pin(ops::remount(self.node.clone(), self.pod.clone())));
        }
    }

    /// Containers that could not be started are tried again at once.
    pub(super) fn retry_starts(&mut self) {
        self.going.starts.retain(|_, progress| !matches!(progress, Progress::Failed { .. }));
    }

    /// A sandbox that could not be run is tried again at once.
    pub(super) fn retry_sandbox(&mut self) {
        if matches!(self.going.sandbox, Progress::Failed { .. }) {
            self.going.sandbox = Progress::Idle;
        }
    }

    /// Tokens in volumes are replaced before they expire.
    fn renew_volumes(&mut self) {
        let may = !self.volumes.is_refreshing() && !self.is_stopping();
        let Some(at) = self.volumes.mounted.renew_at.filter(|_| may) else { return };
        if at <= clock::now() {
            self.remount();
        } else {
            let at = clock::instant(at);
            self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
        }
    }

    pub(super) fn mounted_now(&mut self, mounted: crate::volumes::Mounted) {
        self.volumes.mounted = Arc::new(mounted);
    }
}
