//! Probes: one task per container and probe, which reports verdicts to the pod's worker.
//!
//! Liveness and readiness wait for startup. A verdict is reported only when it changes.

pub mod check;
mod grpc;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use podwire_wire::ids::ContainerId;

use crate::{
    inbox::{Inbox, Signal},
    node::Node,
    observed, spec,
};
use check::Answer;
pub(crate) use grpc::status as health_status;

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Holds the others back until it succeeds once.
    Startup,
    /// Condemns.
    Liveness,
    /// Takes in and out of service.
    Readiness,
}

impl Purpose {
    fn title(self) -> &'static str {
        match self {
            Purpose::Startup => "Startup",
            Purpose::Liveness => "Liveness",
            Purpose::Readiness => "Readiness",
        }
    }
}

/// What a probe found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In or out of service.
    Ready(bool),
    /// Startup is over.
    Started,
    /// To be killed, and why.
    Condemned(String),
}

/// A finding about one container.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Container's id.
    pub id: ContainerId,
    /// What was found.
    pub outcome: Outcome,
}

struct Running {
    all: CancellationToken,
    readiness: CancellationToken,
    started: watch::Sender<bool>,
    condemned_by: Option<i64>,
}

/// The probes of one pod.
pub(crate) struct Probes {
    node: Arc<Node>,
    inbox: Arc<Inbox>,
    running: BTreeMap<ContainerId, Running>,
}

impl Probes {
    pub(crate) fn new(node: Arc<Node>, inbox: Arc<Inbox>) -> Probes {
        Probes { node, inbox, running: BTreeMap::new() }
    }

    /// Begins the probes of a container that runs.
    pub(crate) fn start(
        &mut self,
        pod: &Arc<Pod>,
        spec: &Container,
        container: &observed::Container,
        ips: Vec<String>,
        is_started: bool,
    ) {
        let none =
            spec.startup_probe.is_none() && spec.liveness_probe.is_none() && spec.readiness_probe.is_none();
        if none || self.running.contains_key(&container.id) {
            return;
        }
        let all = self.node.shutdown.child_token();
        let readiness = self.node.shutdown.child_token();
        let (started, _) = watch::channel(is_started);
        for (purpose, probe) in [
            (Purpose::Startup, &spec.startup_probe),
            (Purpose::Liveness, &spec.liveness_probe),
            (Purpose::Readiness, &spec.readiness_probe),
        ] {
            let Some(probe) = probe.clone() else { continue };
            if purpose == Purpose::Startup && is_started {
                continue;
            }
            let stop = if purpose == Purpose::Readiness { readiness.clone() } else { all.clone() };
            let task = Task {
                node: self.node.clone(),
                inbox: self.inbox.clone(),
                pod: pod.clone(),
                spec: spec.clone(),
                id: container.id.clone(),
                began: container.started_at,
                ip: ips
                    .first()
                    .cloned()
                    .or_else(|| self.node.config.node_ips.first().cloned())
                    .unwrap_or_default(),
                purpose,
                probe,
                started: started.subscribe(),
            };
            self.node.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = task.run() => {}
                }
            });
        }
        self.running.insert(container.id.clone(), Running { all, readiness, started, condemned_by: None });
    }

    /// The startup probe of a container succeeded.
    pub(crate) fn startup_done(&self, id: &str) {
        if let Some(running) = self.running.get(id) {
            running.started.send_replace(true);
        }
    }

    /// The grace period a condemning probe gives.
    pub(crate) fn kill_grace(&self, id: &str, spec: &Container) -> Option<i64> {
        let running = self.running.get(id);
        let own = running.and_then(|r| r.condemned_by);
        own.or_else(|| {
            let probes = [&spec.liveness_probe, &spec.startup_probe];
            probes.into_iter().flatten().find_map(|p| p.termination_grace_period_seconds)
        })
    }

    /// Ends every probe of a container.
    pub(crate) fn stop_container(&mut self, id: &str) {
        if let Some(running) = self.running.remove(id) {
            running.all.cancel();
            running.readiness.cancel();
        }
    }

    /// Ends every probe.
    pub(crate) fn stop_all(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.all.cancel();
            running.readiness.cancel();
        }
    }

    /// Ends what could condemn; a pod that is stopping still goes out of service when it fails.
    pub(crate) fn stop_all_but_readiness(&mut self) {
        for running in self.running.values() {
            running.all.cancel();
        }
    }
}

struct Task {
    node: Arc<Node>,
    inbox: Arc<Inbox>,
    pod: Arc<Pod>,
    spec: Container,
    id: ContainerId,
    began: i64,
    ip: String,
    purpose: Purpose,
    probe: Probe,
    started: watch::Receiver<bool>,
}

impl Task {
    async fn run(mut self) {
        if self.purpose != Purpose::Startup && self.started.wait_for(|s| *s).await.is_err() {
            return;
        }
        let seconds = |value: Option<i32>, or: u64| value.and_then(|v| u64::try_from(v).ok()).unwrap_or(or);
        let initial = Duration::from_secs(seconds(self.probe.initial_delay_seconds, 0));
        let age = Duration::try_from(crate::clock::now().duration_since(crate::status::time(self.began)))
            .unwrap_or_default();
        tokio::time::sleep(initial.saturating_sub(age)).await;
        let period = Duration::from_secs(seconds(self.probe.period_seconds, 10).max(1));
        let mut streak = Streak::new(
            seconds(self.probe.success_threshold, 1).max(1),
            seconds(self.probe.failure_threshold, 3).max(1),
        );
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = self.ask().await;
            self.tell(&answer);
            let good = matches!(answer, Answer::Success(_) | Answer::Warning(_));
            if streak.count(good).is_some_and(|good| self.report(good)) {
                return;
            }
        }
    }

    /// Asks, and asks again when the asking itself failed.
    async fn ask(&self) -> Answer {
        let mut answer = self.once().await;
        for _ in 0..2 {
            if !matches!(answer, Answer::Error(_)) {
                break;
            }
            answer = self.once().await;
        }
        answer
    }

    async fn once(&self) -> Answer {
        let timeout = u64::try_from(self.probe.timeout_seconds.unwrap_or(1)).unwrap_or(1).max(1);
        check::run(&self.node, &self.spec, &self.probe, &self.id, &self.ip, Duration::from_secs(timeout))
            .await
    }

    fn tell(&self, answer: &Answer) {
        let kind = spec::find_container(&self.pod, &self.spec.name).map(|(kind, _)| kind);
        let part = kind.map(|kind| (kind, self.spec.name.as_str()));
        let title = self.purpose.title();
        match answer {
            Answer::Success(_) => {}
            Answer::Warning(text) => {
                self.node.events.warning(
                    &self.pod,
                    part,
                    "ProbeWarning",
                    &format!("{title} probe warning: {text}"),
                );
            }
            Answer::Failure(text) => {
                self.node.events.warning(
                    &self.pod,
                    part,
                    "Unhealthy",
                    &format!("{title} probe failed: {text}"),
                );
            }
            Answer::Error(text) => {
                self.node.events.warning(
                    &self.pod,
                    part,
                    "Unhealthy",
                    &format!("{title} probe errored: {text}"),
                );
            }
        }
    }

    /// Tells the worker; true when this probe has nothing more to say about this container.
    fn report(&self, good: bool) -> bool {
        let (outcome, last) = match (self.purpose, good) {
            (Purpose::Readiness, good) => (Outcome::Ready(good), false),
            (Purpose::Startup, true) => (Outcome::Started, true),
            (Purpose::Liveness, true) => return false,
            (purpose, false) => {
                let what = format!(
                    "Container {} failed {} probe, will be restarted",
                    self.spec.name,
                    purpose.title().to_lowercase()
                );
                (Outcome::Condemned(what), true)
            }
        };
        self.inbox.signal(Signal::Probed(Verdict { id: self.id.clone(), outcome }));
        last
    }
}

/// Counts answers of one kind in a row. Pure.
struct Streak {
    good: bool,
    length: u64,
    success: u64,
    failure: u64,
    reported: Option<bool>,
}

impl Streak {
    fn new(success: u64, failure: u64) -> Streak {
        Streak { good: true, length: 0, success, failure, reported: None }
    }

    /// The verdict, if this answer changes it.
    fn count(&mut self, good: bool) -> Option<bool> {
        if good != self.good {
            self.good = good;
            self.length = 0;
        }
        self.length += 1;
        let needed = if good { self.success } else { self.failure };
        if self.length < needed || self.reported == Some(good) {
            return None;
        }
        self.reported = Some(good);
        Some(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_its_threshold_in_a_row() {
        let mut streak = Streak::new(2, 3);
        assert_eq!(streak.count(true), None);
        assert_eq!(streak.count(false), None);
        assert_eq!(streak.count(true), None);
        assert_eq!(streak.count(true), Some(true));
        assert_eq!(streak.count(true), None);
        assert_eq!(
            (streak.count(false), streak.count(false), streak.count(false)),
            (None, None, Some(false))
        );
    }
}
