//! One task per pod: hears, decides, does, observes, publishes, until the pod is gone.
//!
//! The task owns everything known about its pod. Operations run beside it as futures it polls itself; each
//! ends in a `Done` that is taken in before the next decision. Inputs: the inbox. Outputs: CRI calls, status
//! patches, the final DELETE, events.

mod decide;
mod done;
mod observe;
mod parts;
mod publish;
mod resize;
mod termination;

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::parts::{ContainerNotes, Object, Publication, Remains, Retries, Seen, Standing, Stopping, Volumes};
use podwire_wire::ids::ContainerId;

use crate::{
    inbox::{Inbox, Signal},
    node::Node,
    observed::Observed,
    ops::Done,
    plan::{Progressing, TornDown},
    probes::Probes,
    resize::Resizing,
    spec::{self, PodRef},
    status::Verdict,
};

/// How long a worker that is told to stop waits for what it has begun.
const DRAIN: Duration = Duration::from_secs(3);

pub(crate) struct Worker {
    node: Arc<Node>,
    inbox: Arc<Inbox>,
    reference: PodRef,
    pod: Arc<Pod>,
    standing: Standing,
    start_time: Timestamp,
    object: Object,
    stopping: Option<Stopping>,
    remains: Remains,
    seen: Seen,
    going: Progressing,
    notes: ContainerNotes,
    retries: Retries,
    volumes: Volumes,
    publication: Publication,
    resizing: Resizing,
    probes: Probes,
    ops: FuturesUnordered<BoxFuture<'static, Done>>,
    pulls: CancellationToken,
    wake: Option<Instant>,
}

impl Worker {
    /// A worker for `pod`, which the runtime already knows as `observed`.
    pub(crate) fn new(node: Arc<Node>, inbox: Arc<Inbox>, pod: Arc<Pod>, observed: Observed) -> Worker {
        let standing = if observed.is_empty() { Standing::New } else { Standing::Admitted };
        let mut resizing = Resizing::default();
        let mut pod = pod;
        if matches!(standing, Standing::Admitted) && pod.spec.is_some() {
            (resizing, pod) = Resizing::adopt(&pod);
            node.pods.adopt(&spec::uid(&pod).into(), &pod);
        }
        let mut worker = Worker {
            probes: Probes::new(node.clone(), inbox.clone()),
            node,
            inbox,
            reference: PodRef::of(&pod),
            standing,
            start_time: parts::start_time(&pod),
            object: Object::Present,
            stopping: None,
            remains: Remains::Kept,
            seen: Seen { observed, ..Seen::default() },
            going: Progressing::default(),
            notes: ContainerNotes::default(),
            retries: Retries::default(),
            volumes: Volumes::default(),
            publication: Publication::default(),
            resizing,
            ops: FuturesUnordered::new(),
            pulls: CancellationToken::new(),
            wake: None,
            pod,
        };
        worker.adopt();
        worker.ask_resize();
        worker
    }

    /// Takes over what an earlier kubelet left: hooks are not run again, readiness is kept until probed.
    fn adopt(&mut self) {
        let known: Vec<_> = self.seen.observed.containers.values().cloned().collect();
        let status = self.pod.status.clone().unwrap_or_default();
        for container in known {
            self.notes.hooked.insert(container.id.clone());
            let old = crate::status::container_entry(&status, &container.name);
            let same = old.is_some_and(|s| {
                s.container_id.as_deref().is_some_and(|id| id.ends_with(container.id.as_str()))
            });
            if same && old.is_some_and(|s| s.ready) {
                self.notes.ready.insert(container.id.clone());
            }
            if same && old.is_some_and(|s| s.started == Some(true)) {
                self.going.started.insert(container.id.clone());
            }
        }
        // What ran before the machine was restarted is gone from the runtime, but it did run.
        for (_, container) in spec::containers(&self.pod) {
            if let Some(entry) = crate::status::container_entry(&status, &container.name)
                && crate::status::ran_before(&status, &container.name)
                && self.seen.observed.newest(&container.name).is_none()
            {
                let used = u32::try_from(entry.restart_count).unwrap_or_default();
                self.going.floors.insert(container.name.into(), used + 1);
            }
        }
        let ids: Vec<ContainerId> = self.seen.observed.containers.keys().cloned().collect();
        for id in ids {
            self.container_moved(&id);
        }
    }

    /// Runs until the pod is gone or `shutdown`. Not cancel safe: drop it only at the end of the process.
    ///
    /// Begins nothing once told to stop: the pod may have had a worker that rests already, whose sandbox this one
    /// does not know.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            if shutdown.is_cancelled() {
                self.drain().await;
                return;
            }
            self.hear();
            // A status without its container's last words would be a wrong one, and a pod torn down has none left.
            if self.seen.listening.is_empty() {
                self.decide();
                self.publish();
                if self.is_over() {
                    break;
                }
            }
            let wake = self.next_wake();
            tokio::select! {
                biased;
                Some(done) = self.ops.next(), if !self.ops.is_empty() => self.done(done),
                () = self.inbox.rung() => {}
                () = tokio::time::sleep_until(wake) => {}
                () = shutdown.cancelled() => {
                    self.drain().await;
                    return;
                }
            }
        }
        self.probes.stop_all();
        self.node.configs.release(&self.reference.uid);
        tracing::debug!(pod = %self.reference, "pod worker ended");
    }

    /// Containers outlive the kubelet; only calls already made are waited for.
    async fn drain(&mut self) {
        self.pulls.cancel();
        self.probes.stop_all();
        let until = Instant::now() + DRAIN;
        while !self.ops.is_empty() && self.going.killing.is_empty() {
            match tokio::time::timeout_at(until, self.ops.next()).await {
                Ok(Some(done)) => self.done(done),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let retry = match self.object {
            Object::RetryAt(at) => Some(at),
            _ => None,
        };
        let far = Instant::now() + Duration::from_secs(3600);
        if !self.seen.listening.is_empty() {
            return far;
        }
        [self.wake, self.publication.wake(), retry].into_iter().flatten().min().unwrap_or(far)
    }

    fn is_over(&self) -> bool {
        let settled = matches!(self.object, Object::Deleted | Object::Gone);
        settled && self.is_removed() && self.wants_gone() && self.ops.is_empty()
    }

    fn is_removed(&self) -> bool {
        self.going.torn_down == TornDown::Removed
    }

    /// The API has the pod no longer.
    fn is_gone(&self) -> bool {
        self.object == Object::Gone
    }

    fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    fn wants_gone(&self) -> bool {
        self.is_gone() || self.pod.metadata.deletion_timestamp.is_some()
    }

    fn hear(&mut self) {
        let news = self.inbox.take();
        if news.gone {
            self.object = Object::Gone;
            self.shorten_grace(1);
        }
        if let Some(pod) = news.pod {
            self.pod_changed(pod);
        }
        for signal in news.signals {
            self.heard(signal);
        }
        if news.overflowed {
            self.refresh_all();
        }
    }

    fn pod_changed(&mut self, pod: Arc<Pod>) {
        let was_deleted = self.pod.metadata.deletion_timestamp.is_some();
        let pod = self.hear_resources(pod);
        let before = std::mem::replace(&mut self.pod, pod);
        self.watch_drift();
        let described = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
        if described(&before) != described(&self.pod) {
            // Volumes may show labels and annotations.
            self.remount();
        }
        if self.pod.metadata.deletion_timestamp.is_some() {
            let grace = spec::grace_seconds(&self.pod);
            if was_deleted {
                self.shorten_grace(grace);
            } else {
                self.begin_stop(grace);
            }
        } else {
            self.ask_resize();
        }
    }

    fn heard(&mut self, signal: Signal) {
        match signal {
            Signal::Event(event) => self.runtime_event(&event),
            Signal::Relisted(listing, began) => self.relisted(&listing, began),
            Signal::Probed(verdict) => self.probed(verdict),
            Signal::VolumesChanged => self.remount(),
            // Their health is looked up when the status is published; a start that failed for them is tried again.
            Signal::DevicesChanged => self.retry_starts(),
            Signal::DriverCame => self.retry_sandbox(),
            // Its uid is looked up when the status is published.
            Signal::Mirrored => self.publication.last = None,
            Signal::Evict(verdict, grace) => self.evict(verdict, grace),
            Signal::Clear => self.remains = Remains::Unwanted,
            Signal::RoomMade => self.ask_resize(),
        }
    }

    /// The node wants the pod ended; told again it says nothing new.
    fn evict(&mut self, verdict: Verdict, grace: i64) {
        self.node.pods.change(&self.reference.uid, |known| known.evicted = true);
        if self.standing.verdict().is_none() && !self.wants_gone() {
            self.node.events.warning(&self.pod, None, &verdict.reason, &verdict.message);
            self.standing = Standing::Ended(verdict);
            self.begin_stop(grace);
        }
    }
}
