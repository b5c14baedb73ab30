//! The scheduler's one task: watches in, decisions, bindings out.
//!
//! The task owns cache and queue. It spawns one task per binding (at most `BINDINGS` at once) and per
//! written condition or event, all into one `JoinSet` that it awaits before it returns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use podwire_client::watcher::{self, watcher};
use podwire_client::{Api, Client, ResourceExt};
use podwire_trace::{Arrow, Note, Participant};
use serde_json::json;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change};
use crate::cycle::{Decision, Diagnosis, decide};
use crate::node::NodeFacts;
use crate::pod::PodInfo;
use crate::preempt::{Preemption, preempt};
use crate::queue::Queue;
use crate::report::{self, Recorder};

/// Bindings in flight; more pods wait in the queue.
const BINDINGS: usize = 128;
/// Decisions in a row before the watches are looked at again.
const BURST: usize = 64;

/// What a scheduler needs.
#[derive(Clone)]
pub struct Config {
    /// The way to the API server.
    pub client: Client,
    /// Pods with this `spec.schedulerName` are ours.
    pub scheduler_name: String,
}

impl Config {
    /// The default scheduler behind `client`.
    pub fn new(client: Client) -> Self {
        Self { client, scheduler_name: "default-scheduler".into() }
    }

    /// Makes the scheduler; nothing is asked of the API server before it runs.
    pub async fn build(self) -> Result<Scheduler, Error> {
        if self.scheduler_name.is_empty() {
            return Err(Error::NoName);
        }
        Ok(Scheduler { config: self })
    }
}

/// Why a scheduler could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `scheduler_name` is empty.
    #[error("the scheduler needs a name that pods can ask for")]
    NoName,
}

/// A scheduler ready to run.
pub struct Scheduler {
    config: Config,
}

type Watch<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// What a spawned write came to.
enum Done {
    Bound { uid: Arc<str>, error: Option<Box<podwire_client::Error>> },
    Written,
}

struct State {
    config: Config,
    cache: Cache,
    queue: Queue,
    recorder: Recorder,
    writes: JoinSet<Done>,
    /// Whom each binding under way is for, by its task.
    bindings: HashMap<Id, Arc<str>>,
    turn: u64,
    begun: Instant,
    /// What the lists under way have named so far.
    listed_pods: HashSet<String>,
    listed_nodes: HashSet<String>,
    listed_claims: HashSet<(String, String)>,
    unsynced: HashSet<&'static str>,
}

impl Scheduler {
    /// Schedules until `shutdown`; bindings that have begun are finished.
    pub async fn run(self, shutdown: CancellationToken) {
        let client = self.config.client.clone();
        let live = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let mut pods: Watch<Pod> = watcher(Api::all(client.clone()), live);
        let mut nodes: Watch<Node> = watch_all(client.clone());
        let mut namespaces: Watch<Namespace> = watch_all(client.clone());
        let mut claims: Watch<PersistentVolumeClaim> = watch_all(client);
        let mut state = State::new(self.config);
        loop {
            let wake = state.next_wake();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(done) = state.writes.join_next_with_id() => state.done(done),
                Some(event) = nodes.next() => state.node_event(event),
                Some(event) = pods.next() => state.pod_event(event),
                Some(event) = namespaces.next() => state.namespace_event(event),
                Some(event) = claims.next() => state.claim_event(event),
                () = tokio::time::sleep_until(wake) => {}
            }
            // What has already arrived is taken in before deciding, so that a burst is seen whole.
            while let Some(Some(event)) = nodes.next().now_or_never() {
                state.node_event(event);
            }
            for _ in 0..BURST {
                let Some(Some(event)) = pods.next().now_or_never() else { break };
                state.pod_event(event);
            }
            state.decide_all();
        }
        while state.writes.join_next().await.is_some() {}
    }
}

fn watch_all<K>(client: Client) -> Watch<K>
where
    K: podwire_client::Object<DynamicType = ()>,
{
    watcher(Api::all(client), watcher::Config::default())
}

impl State {
    fn new(config: Config) -> Self {
        Self {
            recorder: Recorder::new(&config.scheduler_name),
            config,
            cache: Cache::default(),
            queue: Queue::default(),
            writes: JoinSet::new(),
            bindings: HashMap::new(),
            turn: 0,
            begun: Instant::now(),
            listed_pods: HashSet::new(),
            listed_nodes: HashSet::new(),
            listed_claims: HashSet::new(),
            unsynced: HashSet::from(["pods", "nodes", "namespaces", "claims"]),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn next_wake(&mut self) -> Instant {
        let now = self.now();
        match self.queue.tick(now) {
            Some(at) => self.begun + Duration::from_millis(at.max(now + 1)),
            None => Instant::now() + Duration::from_secs(3600),
        }
    }

    fn changed(&mut self, change: Change) {
        self.queue.changed(change, self.now());
    }

    fn synced(&mut self, what: &'static str) {
        if self.unsynced.remove(what) && self.unsynced.is_empty() {
            tracing::info!("scheduler has seen all pods, nodes, namespaces and volume claims");
        }
    }

    fn node_event(&mut self, event: watcher::Result<watcher::Event<Node>>) {
        match event {
            Ok(watcher::Event::Apply(node)) => self.node_seen(&node),
            Ok(watcher::Event::InitApply(node)) => {
                self.listed_nodes.insert(node.name_any());
                self.node_seen(&node);
            }
            Ok(watcher::Event::Delete(node)) => {
                if self.cache.remove_node(&node.name_any()) {
                    self.changed(Change::NodeGone);
                }
            }
            Ok(watcher::Event::Init) => self.listed_nodes.clear(),
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed_nodes);
                if self.cache.retain_nodes(&listed) {
                    self.changed(Change::NodeGone);
                }
                self.synced("nodes");
            }
            Err(error) => watch_failed("nodes", &error),
        }
    }

    fn node_seen(&mut self, node: &Node) {
        for change in self.cache.set_node(&node.name_any(), NodeFacts::new(node)) {
            self.changed(change);
        }
    }

    fn namespace_event(&mut self, event: watcher::Result<watcher::Event<Namespace>>) {
        match event {
            Ok(watcher::Event::Apply(namespace) | watcher::Event::InitApply(namespace)) => {
                let labels = namespace.metadata.labels.clone().unwrap_or_default();
                if self.cache.set_namespace(&namespace.name_any(), labels) {
                    self.changed(Change::Namespaces);
                }
            }
            Ok(watcher::Event::Delete(namespace)) => self.cache.remove_namespace(&namespace.name_any()),
            Ok(watcher::Event::Init) => {}
            Ok(watcher::Event::InitDone) => self.synced("namespaces"),
            Err(error) => watch_failed("namespaces", &error),
        }
    }

    fn claim_event(&mut self, event: watcher::Result<watcher::Event<PersistentVolumeClaim>>) {
        let changed = match event {
            Ok(watcher::Event::Apply(claim)) => self.cache.claims_mut().set(&claim),
            Ok(watcher::Event::InitApply(claim)) => {
                self.listed_claims.insert((claim.namespace().unwrap_or_default(), claim.name_any()));
                self.cache.claims_mut().set(&claim)
            }
            Ok(watcher::Event::Delete(claim)) => self.cache.claims_mut().remove(&claim),
            Ok(watcher::Event::Init) => {
                self.listed_claims.clear();
                false
            }
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed_claims);
                let changed = self.cache.claims_mut().retain(&listed);
                self.synced("claims");
                changed
            }
            Err(error) => {
                watch_failed("claims", &error);
                false
            }
        };
        if changed {
            self.changed(Change::Claims);
        }
    }

    fn pod_event(&mut self, event: watcher::Result<watcher::Event<Pod>>) {
        match event {
            Ok(watcher::Event::Apply(pod)) => self.pod_seen(&pod),
            Ok(watcher::Event::InitApply(pod)) => {
                self.listed_pods.extend(pod.metadata.uid.clone());
                self.pod_seen(&pod);
            }
            Ok(watcher::Event::Delete(pod)) => {
                if let Some(uid) = &pod.metadata.uid {
                    self.pod_gone(uid);
                }
            }
            Ok(watcher::Event::Init) => self.listed_pods.clear(),
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed_pods);
                let known = self.cache.placed_uids().into_iter().chain(self.queue.uids());
                for uid in known.filter(|uid| !listed.contains(&**uid)).collect::<Vec<_>>() {
                    self.pod_gone(&uid);
                }
                self.synced("pods");
            }
            Err(error) => watch_failed("pods", &error),
        }
    }

    fn pod_seen(&mut self, pod: &Pod) {
        let Some(pod) = PodInfo::new(pod) else { return };
        if pod.terminal {
            self.pod_gone(&pod.uid);
        } else if pod.node.is_some() {
            self.queue.remove(&pod.uid);
            for change in self.cache.confirm(pod) {
                self.changed(change);
            }
        } else if pod.deleting {
            self.pod_gone(&pod.uid);
        } else if pod.scheduler == self.config.scheduler_name && !self.cache.is_placed(&pod.uid) {
            let now = self.now();
            self.queue.offer(pod, now);
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        self.queue.remove(uid);
        if self.cache.remove_pod(uid) {
            self.changed(Change::PodGone);
        }
    }

    fn decide_all(&mut self) {
        if !self.unsynced.is_empty() {
            return;
        }
        while self.bindings.len() < BINDINGS
            && let Some(pod) = self.queue.pop(self.now())
        {
            self.turn += 1;
            match decide(&pod, &self.cache, self.turn) {
                Decision::Node { name, fit } => self.bind(pod, name, fit),
                Decision::None(diagnosis) => self.no_node(&pod, &diagnosis),
            }
        }
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: String, fit: usize) {
        let chosen = Note::NodeChosen { nodes: self.cache.nodes().count(), fit, node: &node };
        Arrow::note(pod.traced(), Participant::Scheduler, chosen);
        self.cache.assume(&pod, &node);
        let message = format!("Successfully assigned {} to {node}", pod.reference());
        let record = self.recorder.record(&pod, true, "Scheduled", "Binding", &message);
        let client = self.config.client.clone();
        let uid = pod.uid.clone();
        let task = self.writes.spawn(async move {
            let error = match report::bind(client.clone(), &pod, &node).await {
                Ok(()) => {
                    report::write(client, record).await;
                    None
                }
                Err(error) => Some(Box::new(error)),
            };
            Done::Bound { uid: pod.uid.clone(), error }
        });
        self.bindings.insert(task.id(), uid);
    }

    fn done(&mut self, done: Result<(Id, Done), tokio::task::JoinError>) {
        let (uid, error) = match done {
            Ok((id, Done::Bound { uid, error })) => {
                self.bindings.remove(&id);
                (uid, error)
            }
            Ok((_, Done::Written)) => return,
            Err(error) => {
                tracing::error!(%error, "a write of the scheduler panicked");
                if let Some(uid) = self.bindings.remove(&error.id()) {
                    self.not_bound(&uid);
                }
                return;
            }
        };
        let Some(error) = error else {
            self.queue.remove(&uid);
            return;
        };
        match *error {
            // Deleted, or bound by someone else: the watch will say so.
            podwire_client::Error::Api(status) if status.code == 404 => {
                self.queue.remove(&uid);
                self.cache.forget(&uid);
                self.changed(Change::PodGone);
            }
            error => {
                tracing::warn!(uid = &*uid, %error, "pod not bound; will retry");
                self.not_bound(&uid);
            }
        }
    }

    /// A binding came to nothing: its room is free again, and the pod is tried again after a while.
    fn not_bound(&mut self, uid: &str) {
        self.cache.forget(uid);
        self.changed(Change::PodGone);
        let now = self.now();
        self.queue.failed(uid, now);
    }

    /// No node fits: makes room if that is possible, and says so.
    fn no_node(&mut self, pod: &Arc<PodInfo>, diagnosis: &Diagnosis) {
        let now = self.now();
        self.queue.unschedulable(&pod.uid, diagnosis.plugins(), now);
        let (aftermath, nominated) = match preempt(pod, &self.cache, diagnosis) {
            Preemption::None(aftermath) => (aftermath, None),
            Preemption::Victims { node, pods } => {
                self.cache.nominate(pod.clone(), &node);
                pods.iter().for_each(|victim| self.evict(victim, pod, &node));
                (String::new(), Some(node))
            }
        };
        let message = diagnosis.message(&aftermath);
        tracing::debug!(pod = %pod.reference(), message, ?nominated, "no node fits");
        let record = self.recorder.record(pod, false, "FailedScheduling", "Scheduling", &message);
        let said = |(reason, text): &(String, String)| reason == "Unschedulable" && *text == message;
        let reported = pod.reported.as_ref().is_some_and(said) && nominated.is_none();
        let (client, pod) = (self.config.client.clone(), pod.clone());
        self.writes.spawn(async move {
            if !reported {
                let mut status =
                    json!({"conditions": [report::not_scheduled(&pod, "Unschedulable", &message)]});
                if let Some(node) = nominated {
                    status["nominatedNodeName"] = node.into();
                }
                if let Err(error) = report::patch_status(client.clone(), &pod, &status).await {
                    tracing::debug!(pod = %pod.reference(), %error, "condition not written");
                }
            }
            report::write(client, record).await;
            Done::Written
        });
    }

    /// Removes a pod to make room for a more important one.
    fn evict(&mut self, victim: &Arc<PodInfo>, preemptor: &PodInfo, node: &str) {
        if victim.deleting {
            return;
        }
        let message = format!("Preempted by pod {} on node {node}", preemptor.uid);
        tracing::info!(pod = %victim.reference(), by = %preemptor.reference(), node, "preempting pod");
        let record = self.recorder.record(victim, true, "Preempted", "Preempting", &message);
        let (client, victim, name) =
            (self.config.client.clone(), victim.clone(), self.config.scheduler_name.clone());
        self.writes.spawn(async move {
            match report::evict(client.clone(), &victim, &name).await {
                Ok(()) => report::write(client, record).await,
                Err(error) => tracing::warn!(pod = %victim.reference(), %error, "pod not preempted"),
            }
            Done::Written
        });
    }
}

fn watch_failed(what: &str, error: &watcher::Error) {
    tracing::warn!(what, %error, "watch interrupted; it is taken up again");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};

    #[tokio::test]
    async fn a_binding_that_panics_gives_its_slot_and_its_room_back() {
        let broken = tower::service_fn(|_: http::Request<podwire_client::Body>| async {
            panic!("a bug in a client");
            #[allow(unreachable_code, reason = "the service needs a type")]
            Ok::<http::Response<podwire_client::Body>, std::io::Error>(http::Response::new(
                podwire_client::Body::empty(),
            ))
        });
        let mut state = State::new(Config::new(Client::new(broken, "default")));
        state.unsynced.clear();
        state.cache.set_node("n1", node(json!({})));
        state.queue.offer(pod(json!({})), 0);
        state.decide_all();
        assert_eq!((state.bindings.len(), state.cache.is_placed("p")), (1, true));
        let done = state.writes.join_next_with_id().await.unwrap();
        assert!(done.is_err(), "it panicked");
        state.done(done);
        assert_eq!((state.bindings.len(), state.cache.is_placed("p")), (0, false));
        assert!(state.queue.pop(state.now() + 1_000).is_some(), "it is tried again");
    }
}
