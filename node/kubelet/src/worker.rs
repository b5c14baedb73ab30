//! One task per pod: hears, decides, does, observes, publishes, until the pod is gone.
//!
//! The task owns everything known about its pod. Operations run beside it as futures it polls itself; each
//! ends in a `Done` that is taken in before the next decision. Inputs: the inbox. Outputs: CRI calls, status
//! patches, the final DELETE, events.

mod decide;
mod done;
mod observe;
mod publish;
mod termination;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    inbox::{Inbox, Signal},
    node::Node,
    observed::Observed,
    ops::Done,
    plan::{Progressing, TornDown},
    probes::Probes,
    spec::{self, PodRef},
    status::{Verdict, Waiting},
    volumes::Mounted,
};

/// How long a worker that is told to stop waits for what it has begun.
const DRAIN: Duration = Duration::from_secs(3);

/// Where the worker stands with the API server about the end of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    NotYet,
    Deleting,
    RetryAt(Instant),
    Said,
}

pub(crate) struct Worker {
    node: Arc<Node>,
    inbox: Arc<Inbox>,
    reference: PodRef,
    pod: Arc<Pod>,
    gone: bool,
    observed: Observed,
    going: Progressing,
    waiting: BTreeMap<String, Waiting>,
    ready: BTreeSet<String>,
    verdict: Option<Verdict>,
    admitted: bool,
    start_time: Timestamp,
    stop_by: Option<Instant>,
    grace: Option<i64>,
    images: BTreeMap<(String, u32), crate::images::Found>,
    failures: BTreeMap<String, u32>,
    learned: BTreeMap<String, Instant>,
    mounted: Arc<Mounted>,
    remounting: bool,
    stale_volumes: bool,
    probes: Probes,
    hooked_once: BTreeSet<String>,
    ops: FuturesUnordered<BoxFuture<'static, Done>>,
    published: Option<PodStatus>,
    publishing: bool,
    publish_at: Option<Instant>,
    publish_failures: u32,
    /// When the status is written again because the API shows another one.
    drift_at: Option<Instant>,
    /// Whether what a pod that ended has left is to go.
    clear: bool,
    refreshing: bool,
    /// Ended containers whose last words are being read.
    listening: BTreeSet<String>,
    farewell: Farewell,
    pulls: CancellationToken,
    wake: Option<Instant>,
}

impl Worker {
    /// A worker for `pod`, which the runtime already knows as `observed`.
    pub(crate) fn new(node: Arc<Node>, inbox: Arc<Inbox>, pod: Arc<Pod>, observed: Observed) -> Worker {
        let now = crate::clock::now_seconds();
        let start_time = pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map_or(now, |t| t.0);
        let mut worker = Worker {
            probes: Probes::new(node.clone(), inbox.clone()),
            node,
            inbox,
            reference: PodRef::of(&pod),
            gone: false,
            going: Progressing::default(),
            waiting: BTreeMap::new(),
            ready: BTreeSet::new(),
            verdict: None,
            admitted: !observed.is_empty(),
            observed,
            start_time,
            stop_by: None,
            grace: None,
            images: BTreeMap::new(),
            failures: BTreeMap::new(),
            learned: BTreeMap::new(),
            mounted: Arc::default(),
            remounting: false,
            stale_volumes: false,
            hooked_once: BTreeSet::new(),
            ops: FuturesUnordered::new(),
            published: None,
            publishing: false,
            publish_at: None,
            publish_failures: 0,
            drift_at: None,
            clear: false,
            refreshing: false,
            listening: BTreeSet::new(),
            farewell: Farewell::NotYet,
            pulls: CancellationToken::new(),
            wake: None,
            pod,
        };
        if worker.admitted && worker.pod.spec.is_some() {
            worker.node.pods.adopt(&worker.reference.uid, &worker.pod);
        }
        worker.adopt();
        worker
    }

    /// Takes over what an earlier kubelet left: hooks are not run again, readiness is kept until probed.
    fn adopt(&mut self) {
        let known: Vec<_> = self.observed.containers.values().cloned().collect();
        let status = self.pod.status.clone().unwrap_or_default();
        for container in known {
            self.hooked_once.insert(container.id.clone());
            let old = crate::status::container_entry(&status, &container.name);
            let same =
                old.is_some_and(|s| s.container_id.as_deref().is_some_and(|id| id.ends_with(&container.id)));
            if same && old.is_some_and(|s| s.ready) {
                self.ready.insert(container.id.clone());
            }
            if same && old.is_some_and(|s| s.started == Some(true)) {
                self.going.started.insert(container.id.clone());
            }
        }
        // What ran before the machine was restarted is gone from the runtime, but it did run.
        for (_, container) in spec::containers(&self.pod) {
            if let Some(entry) = crate::status::container_entry(&status, &container.name)
                && crate::status::ran_before(&status, &container.name)
                && self.observed.newest(&container.name).is_none()
            {
                let used = u32::try_from(entry.restart_count).unwrap_or_default();
                self.going.floors.insert(container.name, used + 1);
            }
        }
        let ids: Vec<String> = self.observed.containers.keys().cloned().collect();
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
            if self.listening.is_empty() {
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
        self.node.objects.release(&self.reference.uid);
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
        let retry = match self.farewell {
            Farewell::RetryAt(at) => Some(at),
            _ => None,
        };
        let far = Instant::now() + Duration::from_secs(3600);
        if !self.listening.is_empty() {
            return far;
        }
        let idle = |at: Option<Instant>| at.filter(|_| !self.publishing);
        [self.wake, idle(self.publish_at), idle(self.drift_at), retry]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(far)
    }

    fn is_over(&self) -> bool {
        let settled = self.farewell == Farewell::Said || self.gone;
        settled && self.is_removed() && self.wants_gone() && self.ops.is_empty()
    }

    fn is_removed(&self) -> bool {
        self.going.torn_down == TornDown::Removed
    }

    fn wants_gone(&self) -> bool {
        self.gone || self.pod.metadata.deletion_timestamp.is_some()
    }

    fn hear(&mut self) {
        let news = self.inbox.take();
        if news.gone {
            self.gone = true;
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
            self.consider_resize();
        }
    }

    fn heard(&mut self, signal: Signal) {
        match signal {
            Signal::Event(event) => self.runtime_event(&event),
            Signal::Relisted(listing, began) => self.relisted(&listing, began),
            Signal::Probed(verdict) => self.probed(verdict),
            Signal::VolumesChanged => self.remount(),
            // Its uid is looked up when the status is published.
            Signal::Mirrored => self.published = None,
            Signal::Evict(verdict, grace) => self.evict(verdict, grace),
            Signal::Clear => self.clear = true,
        }
    }

    /// The node wants the pod ended; told again it says nothing new.
    fn evict(&mut self, verdict: Verdict, grace: i64) {
        self.node.pods.change(&self.reference.uid, |known| known.evicted = true);
        if self.verdict.is_none() && !self.wants_gone() {
            self.node.events.warning(&self.pod, None, &verdict.reason, &verdict.message);
            self.verdict = Some(verdict);
            self.begin_stop(grace);
        }
    }
}
