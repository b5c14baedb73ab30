//! The scheduler's one task: watches in, decisions, bindings out.
//!
//! The task owns cluster and queue. It spawns one task per binding (at most `BINDINGS` at once) and per
//! written condition or event, all into one `JoinSet` that it awaits before it returns. Pods and nodes are read by two
//! more tasks, which hand them over through bounded channels.

#[cfg(test)]
mod play;
#[cfg(test)]
mod pretend;

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use podwire_client::watcher::{self, watcher};
use podwire_client::{Api, Client, Resource, ResourceExt};
use podwire_trace::{Arrow, Note, Participant};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::devices::{Changed, Claim};
use crate::cluster::workloads::Key;
use crate::cluster::{Cluster, Event};
use crate::config::{Configuration, ConfigurationError};
use crate::cycle::{Decision, Diagnosis, Searcher};
use crate::framework::{Journey, Lounge, Name, PostFilter, Reservation, StepError};
use crate::gates::Gates;
use crate::lease::{Elector, identity};
use crate::node::NodeFacts;
use crate::pace::Pace;
use crate::pod::PodInfo;
use crate::profile::Profile;
use crate::queue::Queue;
use crate::report::{self, Recorder};
use crate::watches::{self, Kind, Listed, Told};

/// Bindings in flight; more pods wait in the queue.
const BINDINGS: usize = 128;
/// Decisions in a row before the watches are looked at again.
const BURST: usize = 64;
/// Objects that are read ahead.
const AHEAD: usize = 512;

/// What a scheduler needs.
#[derive(Clone)]
pub struct Config {
    /// The way to the API server.
    pub client: Client,
    /// Profiles and their plugins.
    pub configuration: Configuration,
}

impl Config {
    /// The default scheduler behind `client`.
    pub fn new(client: Client) -> Self {
        Self { client, configuration: Configuration::default() }
    }

    /// Makes the scheduler; nothing is asked of the API server before it runs.
    pub async fn build(self) -> Result<Scheduler, ConfigurationError> {
        Ok(Scheduler { client: self.client, configuration: self.configuration })
    }
}

/// A scheduler ready to run.
pub struct Scheduler {
    client: Client,
    configuration: Configuration,
}

type Watch<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// What a spawned write came to.
enum Done {
    Bound {
        uid: Arc<str>,
        error: Option<StepError>,
    },
    /// The devices of a claim that kept a pod from running were not given back.
    StillInTheWay {
        uid: Arc<str>,
    },
    /// A pod could not be removed for this one.
    NotEvicted {
        preemptor: Arc<str>,
    },
    Written,
}

/// A binding under way.
struct Binding {
    pod: Arc<PodInfo>,
    reservation: Arc<Reservation>,
}

struct State {
    client: Client,
    profiles: Vec<Profile>,
    cluster: Cluster,
    queue: Queue,
    searcher: Searcher,
    pace: Pace,
    recorders: HashMap<String, Recorder>,
    writes: JoinSet<Done>,
    /// Whom each binding under way is for, by its task.
    tasks: HashMap<Id, Arc<str>>,
    bindings: HashMap<Arc<str>, Binding>,
    /// Those of them that wait for somebody else.
    lounge: Arc<Lounge>,
    gates: Gates,
    /// Answers that are still missing are waited for no longer.
    stopping: CancellationToken,
    begun: Instant,
    /// What the lists under way have named so far.
    listed_pods: HashSet<String>,
    listed_nodes: HashSet<String>,
    listed: HashMap<Kind, Listed>,
    unsynced: HashSet<&'static str>,
}

impl Scheduler {
    /// Schedules until `shutdown`, while it leads if it is one of several; bindings that have begun are finished.
    pub async fn run(self, shutdown: CancellationToken) {
        let Some(election) = self.configuration.election.clone() else {
            self.serve(shutdown).await;
            return;
        };
        let mut elector = Elector::new(self.client.clone(), election, identity());
        while elector.acquire(&shutdown).await {
            let lost = shutdown.child_token();
            let serving = self.serve(lost.clone());
            let keeping = async {
                elector.keep(&shutdown).await;
                lost.cancel();
            };
            tokio::join!(serving, keeping);
            if shutdown.is_cancelled() {
                elector.release().await;
                return;
            }
        }
    }

    async fn serve(&self, shutdown: CancellationToken) {
        let client = self.client.clone();
        let live = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let mut readers = JoinSet::new();
        let mut pods = ahead::<Pod>(&mut readers, watcher(Api::all(client.clone()), live));
        let all = watcher::Config::default();
        let mut nodes = ahead::<Node>(&mut readers, watcher(Api::all(client.clone()), all));
        let mut others = watches::watch(&client);
        let mut state = State::new(self.client.clone(), &self.configuration);
        let lounge = state.lounge.clone();
        state.stopping = shutdown.clone();
        loop {
            let wake = state.next_wake();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(done) = state.writes.join_next_with_id() => state.done(done),
                Some(event) = nodes.recv() => state.node_event(event),
                Some(event) = pods.recv() => state.pod_event(event),
                Some(told) = others.next() => state.other_event(told),
                () = lounge.entered() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
            // What has already arrived is taken in before deciding, so that a burst is seen whole.
            while let Ok(event) = nodes.try_recv() {
                state.node_event(event);
            }
            for _ in 0..if state.unsynced.is_empty() { BURST } else { AHEAD } {
                let Ok(event) = pods.try_recv() else { break };
                state.pod_event(event);
            }
            while let Some(Some(told)) = others.next().now_or_never() {
                state.other_event(told);
            }
            while let Some(done) = state.writes.try_join_next_with_id() {
                state.done(done);
            }
            state.decide_all();
            state.tell_of_gates();
        }
        readers.shutdown().await;
        while state.writes.join_next().await.is_some() {}
        let pace = &state.pace;
        tracing::info!(
            decisions = pace.decisions(),
            p50_us = pace.percentile(50),
            p99_us = pace.percentile(99),
            longest_us = pace.longest(),
            "scheduler is at rest"
        );
    }
}

/// Reads a watch in a task of its own, some objects ahead.
fn ahead<K: Resource + Send + 'static>(
    readers: &mut JoinSet<()>,
    mut watch: Watch<K>,
) -> mpsc::Receiver<watcher::Result<watcher::Event<K>>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    readers.spawn(async move {
        while let Some(event) = watch.next().await {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    });
    receiver
}

impl State {
    fn new(client: Client, configuration: &Configuration) -> Self {
        let profiles = configuration.profiles();
        let recorder = |one: &Profile| (one.scheduler_name.clone(), Recorder::new(&one.scheduler_name));
        let mut unsynced: HashSet<&'static str> = Kind::ALL.iter().map(|kind| kind.plural()).collect();
        unsynced.extend(["pods", "nodes"]);
        Self {
            client,
            recorders: profiles.iter().map(recorder).collect(),
            profiles,
            cluster: Cluster::default(),
            queue: Queue::new(configuration.backoff()),
            searcher: Searcher::default(),
            pace: Pace::default(),
            writes: JoinSet::new(),
            tasks: HashMap::new(),
            bindings: HashMap::new(),
            lounge: Arc::default(),
            gates: Gates::default(),
            stopping: CancellationToken::new(),
            begun: Instant::now(),
            listed_pods: HashSet::new(),
            listed_nodes: HashSet::new(),
            listed: HashMap::new(),
            unsynced,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn next_wake(&mut self) -> Instant {
        let now = self.now();
        match self.queue.tick(now).into_iter().chain(self.gates.next()).min() {
            Some(at) => self.begun + Duration::from_millis(at.max(now + 1)),
            None => Instant::now() + Duration::from_secs(3600),
        }
    }

    fn changed(&mut self, events: impl IntoIterator<Item = Event>) {
        let now = self.now();
        for event in events {
            self.queue.changed(&event, &self.cluster, &self.profiles, now);
            if let Event::DevicesChanged(Changed::Claim { key, .. }) = &event {
                self.look_behind_gates(key);
            }
        }
    }

    fn synced(&mut self, what: &'static str) {
        if self.unsynced.remove(what) && self.unsynced.is_empty() {
            tracing::info!("scheduler has seen all that decisions depend on");
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
                let event = self.cluster.remove_node(&node.name_any());
                self.node_changed(&node.name_any(), event);
            }
            Ok(watcher::Event::Init) => self.listed_nodes.clear(),
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed_nodes);
                let gone = self.cluster.retain_nodes(&listed);
                self.changed(gone);
                self.synced("nodes");
            }
            Err(error) => watch_failed("nodes", &error),
        }
    }

    fn node_seen(&mut self, node: &Node) {
        let name = node.name_any();
        let event = self.cluster.set_node(&name, NodeFacts::new(node));
        self.node_changed(&name, event);
    }

    /// Pods that are promised the node may have to look elsewhere.
    fn node_changed(&mut self, name: &str, event: Option<Event>) {
        if event.is_some() {
            let now = self.now();
            self.cluster.nominations.on(name).iter().for_each(|uid| self.queue.retry(uid, now));
        }
        self.changed(event);
    }

    fn other_event(&mut self, (kind, event): Told) {
        let key = |meta: &podwire_client::DynamicObject| -> Key {
            (
                meta.metadata.namespace.clone().unwrap_or_default(),
                meta.metadata.name.clone().unwrap_or_default(),
            )
        };
        match event {
            Ok(event @ (watcher::Event::Apply(_) | watcher::Event::InitApply(_))) => {
                let listing = matches!(event, watcher::Event::InitApply(_));
                let (watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event else {
                    return;
                };
                self.listed.entry(kind).or_default().seen(key(&object), listing);
                let event = watches::apply(&mut self.cluster, kind, &object.data);
                self.changed(event);
            }
            Ok(watcher::Event::Delete(object)) => self.other_gone(kind, &key(&object)),
            Ok(watcher::Event::Init) => self.listed.entry(kind).or_default().begin(),
            Ok(watcher::Event::InitDone) => {
                for key in self.listed.entry(kind).or_default().end() {
                    self.other_gone(kind, &key);
                }
                self.synced(kind.plural());
            }
            Err(error) => {
                if is_unknown(&error) {
                    self.synced(kind.plural());
                }
                watch_failed(kind.plural(), &error);
            }
        }
    }

    fn other_gone(&mut self, kind: Kind, key: &Key) {
        self.listed.entry(kind).or_default().gone(key);
        let event = watches::remove(&mut self.cluster, kind, key);
        self.changed(event);
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
                let known = self.cluster.placed_uids().into_iter().chain(self.queue.uids());
                for uid in known.filter(|uid| !listed.contains(&**uid)).collect::<Vec<_>>() {
                    self.pod_gone(&uid);
                }
                self.synced("pods");
            }
            Err(error) => watch_failed("pods", &error),
        }
    }

    fn pod_seen(&mut self, pod: &Pod) {
        let Some(pod) = PodInfo::new(pod, &mut self.cluster.templates) else { return };
        if pod.terminal {
            self.pod_gone(&pod.uid);
        } else if pod.node.is_some() {
            self.queue.remove(&pod.uid);
            let events = self.cluster.confirm(pod);
            self.changed(events);
        } else if pod.deleting {
            self.pod_gone(&pod.uid);
        } else if !self.cluster.is_placed(&pod.uid) {
            self.pod_waits(pod);
        } else if self.bindings.contains_key(&pod.uid) {
            // Should it not arrive, it is decided on as it is by then.
            let now = self.now();
            self.queue.offer(Arc::new(pod), None, now);
        }
    }

    fn pod_waits(&mut self, pod: PodInfo) {
        let Some(profile) = self.profiles.iter().find(|one| one.scheduler_name == pod.scheduler) else {
            return;
        };
        let gate = profile.plugins().find_map(|plugin| plugin.pre_enqueue(&pod, &self.cluster));
        let pod = Arc::new(pod);
        // A promise that an earlier scheduler made is kept, and one that was taken back is not.
        let event = match &pod.nominated {
            Some(node) => {
                if self.cluster.nominations.promise(&pod, node) {
                    self.cluster.touch();
                }
                None
            }
            None if self.bindings.contains_key(&pod.uid) => None,
            None => self.cluster.nominations.remove(&pod.uid).map(Event::PodGone),
        };
        if event.is_some() {
            self.cluster.touch();
        }
        let now = self.now();
        if let Some(gate) = gate.as_ref().filter(|gate| gate.plugin != Name::SchedulingGates) {
            self.gates.closed(&pod, &gate.text(), now);
        }
        self.queue.offer(pod, gate.map(|gate| gate.text()), now);
        self.changed(event);
    }

    /// Looks again at pods that must not be looked at for want of a claim.
    fn look_behind_gates(&mut self, key: &Key) {
        for uid in self.gates.waiting_for(key) {
            if let Some((pod, _)) = self.queue.gated(&uid) {
                let pod = PodInfo::clone(pod);
                self.pod_waits(pod);
            }
        }
    }

    /// Says why pods must not be looked at yet, if that lasts.
    fn tell_of_gates(&mut self) {
        let now = self.now();
        for uid in self.gates.ripe(now) {
            let Some((pod, reason)) = self.queue.gated(&uid) else { continue };
            let said = |told: &(String, String)| told.0 == "Unschedulable" && told.1 == reason;
            if pod.reported.as_deref().is_some_and(said) {
                continue;
            }
            let (client, pod, reason) = (self.client.clone(), pod.clone(), reason.to_owned());
            self.writes.spawn(async move {
                let condition = report::not_scheduled(&pod, "Unschedulable", &reason);
                if let Err(error) =
                    report::patch_status(client, &pod, &json!({"conditions": [condition]})).await
                {
                    tracing::debug!(pod = %pod.reference(), %error, "condition not written");
                }
                Done::Written
            });
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        if let Some((pod, _)) = self.queue.gated(uid) {
            self.gates.forget(pod);
        }
        self.queue.remove(uid);
        let event = self.cluster.remove_pod(uid);
        self.changed(event);
    }

    fn decide_all(&mut self) {
        if !self.unsynced.is_empty() {
            return;
        }
        for _ in 0..BURST {
            if self.bindings.len().saturating_sub(self.lounge.count()) >= BINDINGS {
                return;
            }
            let Some(pod) = self.queue.pop(self.now()) else { return };
            // A plugin that panics must not stop the others' pods.
            let begun = Instant::now();
            let decided = std::panic::catch_unwind(AssertUnwindSafe(|| self.decide(&pod)));
            self.pace.took(begun.elapsed());
            if decided.is_err() {
                tracing::error!(pod = %pod.reference(), "a plugin panicked; the pod is tried again later");
                let now = self.now();
                self.queue.failed(&pod.uid, now);
            }
        }
    }

    fn decide(&mut self, pod: &Arc<PodInfo>) {
        let Some(at) = self.profiles.iter().position(|one| one.scheduler_name == pod.scheduler) else {
            self.queue.remove(&pod.uid);
            return;
        };
        match self.searcher.decide(pod, &mut self.cluster, &self.profiles[at]) {
            Decision::Node { name, fit } => self.bind(pod, &name, fit, at),
            Decision::None(diagnosis, post) => self.no_node(pod, &diagnosis, post),
        }
    }

    fn bind(&mut self, pod: &Arc<PodInfo>, node: &Arc<str>, fit: usize, profile: usize) {
        let chosen = Note::NodeChosen { nodes: self.cluster.order().len(), fit, node };
        Arrow::note(pod.traced(), Participant::Scheduler, chosen);
        let unused = self.cluster.assume(pod, node);
        self.changed(unused);
        let mut reservation = Reservation::default();
        let profile = &self.profiles[profile];
        let reserved = profile.plugins().try_for_each(|plugin| {
            plugin.reserve(&mut self.cluster, pod, node, &mut reservation)?;
            plugin.permit(pod, node).map_or(Ok(()), Err)
        });
        let reservation = Arc::new(reservation);
        let journey = Journey {
            client: self.client.clone(),
            pod: pod.clone(),
            node: node.clone(),
            reservation: reservation.clone(),
            lounge: self.lounge.clone(),
        };
        let uid = pod.uid.clone();
        self.bindings.insert(uid.clone(), Binding { pod: pod.clone(), reservation: reservation.clone() });
        if let Err(refusal) = reserved {
            tracing::debug!(pod = %pod.reference(), reason = refusal.text(), "node not reserved");
            self.not_bound(&uid);
            return;
        }
        let steps: Vec<_> = profile.plugins().filter_map(|plugin| plugin.pre_bind(&journey)).collect();
        let bind = profile.plugins().find_map(|plugin| plugin.bind(&journey));
        let undo: Vec<_> = profile.plugins().filter_map(|plugin| plugin.undo(&journey)).collect();
        if let Some((reason, text)) = &reservation.news
            && let Some(record) = self.record(pod, true, reason, "Scheduling", text)
        {
            let client = self.client.clone();
            self.writes.spawn(async move {
                report::write(client, record).await;
                Done::Written
            });
        }
        let message = format!("Successfully assigned {} to {node}", pod.reference());
        let record = self.record(pod, true, "Scheduled", "Binding", &message);
        let (client, stopping) = (self.client.clone(), self.stopping.clone());
        let (pod, node) = (pod.clone(), node.clone());
        let task = self.writes.spawn(async move {
            let travel = async {
                for step in steps {
                    step.await?;
                }
                match bind {
                    Some(bind) => bind.await,
                    None => Err(StepError::Plugin("no plugin binds".to_owned())),
                }
            };
            let mut error = travel.await.err();
            // Its room is given back only when it is known not to be used.
            if matches!(&error, Some(StepError::Api(api)) if report::is_open(api)) {
                let bound = report::is_bound(client.clone(), &pod, &node);
                if stopping.run_until_cancelled(bound).await == Some(true) {
                    error = None;
                }
            }
            // Who is perhaps bound keeps what it needs.
            if error.as_ref().is_some_and(|error| !error.is_doubtful()) {
                for step in undo {
                    step.await;
                }
            }
            if let (None, Some(record)) = (&error, record) {
                report::write(client, record).await;
            }
            Done::Bound { uid: pod.uid.clone(), error }
        });
        self.tasks.insert(task.id(), uid);
    }

    fn record(
        &mut self,
        pod: &PodInfo,
        normal: bool,
        reason: &'static str,
        action: &str,
        text: &str,
    ) -> Option<report::Record> {
        Some(self.recorders.get_mut(&pod.scheduler)?.record(pod, normal, reason, action, text))
    }

    fn done(&mut self, done: Result<(Id, Done), tokio::task::JoinError>) {
        let (uid, error) = match done {
            Ok((id, Done::Bound { uid, error })) => {
                self.tasks.remove(&id);
                (uid, error)
            }
            Ok((_, Done::Written)) => return,
            Ok((_, Done::StillInTheWay { uid })) => {
                let now = self.now();
                self.queue.failed(&uid, now);
                return;
            }
            Ok((_, Done::NotEvicted { preemptor })) => {
                let now = self.now();
                self.queue.not_helped(&preemptor, now);
                return;
            }
            Err(error) => {
                tracing::error!(%error, "a write of the scheduler panicked");
                if let Some(uid) = self.tasks.remove(&error.id()) {
                    self.not_bound(&uid);
                }
                return;
            }
        };
        match error {
            None => {
                self.queue.remove(&uid);
                if let Some(binding) = self.bindings.remove(&uid) {
                    let profile =
                        self.profiles.iter().find(|one| one.scheduler_name == binding.pod.scheduler);
                    let mut events = Vec::new();
                    for plugin in profile.into_iter().flat_map(Profile::plugins) {
                        events.extend(plugin.post_bind(
                            &mut self.cluster,
                            &binding.pod,
                            &binding.reservation,
                        ));
                    }
                    self.changed(events);
                }
            }
            // Deleted: the watch will say so.
            Some(StepError::Api(error)) if is_not_found(&error) => {
                self.queue.remove(&uid);
                self.give_back(&uid);
            }
            Some(error) => {
                tracing::warn!(
                    uid = &*uid,
                    error = &error as &dyn std::error::Error,
                    "pod not bound; will retry"
                );
                let pod = self.bindings.get(&uid).map(|binding| binding.pod.clone());
                self.not_bound(&uid);
                // Who may be bound all the same is told nothing.
                if let Some(pod) = pod.filter(|_| !error.is_doubtful()) {
                    self.say(&pod, "SchedulerError", &error.with_cause(), None);
                }
            }
        }
    }

    /// What was set aside for a pod is free again.
    fn give_back(&mut self, uid: &str) {
        let mut events = Vec::new();
        if let Some(binding) = self.bindings.remove(uid) {
            let profile = self.profiles.iter().find(|one| one.scheduler_name == binding.pod.scheduler);
            for plugin in profile.into_iter().flat_map(Profile::plugins) {
                events.extend(plugin.unreserve(&mut self.cluster, &binding.pod, &binding.reservation));
            }
        }
        events.extend(self.cluster.forget(uid));
        self.changed(events);
    }

    /// A binding came to nothing: its room is free again, and the pod is tried again after a while.
    fn not_bound(&mut self, uid: &str) {
        self.give_back(uid);
        let now = self.now();
        self.queue.failed(uid, now);
    }

    /// No node fits: makes room if that is possible, and says so, unless that was said already.
    fn no_node(&mut self, pod: &Arc<PodInfo>, diagnosis: &Diagnosis, post: PostFilter) {
        let now = self.now();
        if let Some(text) = &diagnosis.broken {
            self.queue.failed(&pod.uid, now);
            self.say(pod, "SchedulerError", text, None);
            return;
        }
        self.queue.unschedulable(&pod.uid, diagnosis.plugins(), now);
        let (aftermath, nominated) = match post {
            PostFilter::Skip => (String::new(), None),
            PostFilter::Unhelped { text, clear, deallocate } => {
                if let Some(claim) = deallocate {
                    self.deallocate(pod, claim);
                }
                let promised = clear && pod.nominated.is_some();
                if promised {
                    let event = self.cluster.nominations.remove(&pod.uid).map(Event::PodGone);
                    self.cluster.touch();
                    self.changed(event);
                }
                (text, promised.then(String::new))
            }
            PostFilter::Victims { node, pods } => {
                self.preempt(pod, &node, &pods);
                (String::new(), Some(node))
            }
        };
        self.say(pod, "Unschedulable", &diagnosis.message(&aftermath), nominated);
    }

    /// Gives back the devices of a claim that keeps a pod from running.
    fn deallocate(&mut self, pod: &Arc<PodInfo>, claim: Arc<Claim>) {
        tracing::info!(pod = %pod.reference(), claim = claim.reference(), "deallocating claim");
        let (client, uid) = (self.client.clone(), pod.uid.clone());
        self.writes.spawn(async move {
            match report::claims::deallocate(client, &claim).await {
                Ok(()) => Done::Written,
                Err(error) => {
                    tracing::warn!(claim = claim.reference(), %error, "claim not deallocated; will retry");
                    Done::StillInTheWay { uid }
                }
            }
        });
    }

    /// Says why a pod has no node, unless that was said already, and which one it is promised.
    fn say(&mut self, pod: &Arc<PodInfo>, reason: &'static str, message: &str, nominated: Option<String>) {
        let message = message.to_owned();
        let said = |told: &(String, String)| told.0 == reason && told.1 == message;
        let news = !pod.reported.as_deref().is_some_and(said);
        if !news && nominated.is_none() {
            return;
        }
        tracing::debug!(pod = %pod.reference(), message, ?nominated, "no node fits");
        let record =
            if news { self.record(pod, false, "FailedScheduling", "Scheduling", &message) } else { None };
        let (client, pod) = (self.client.clone(), pod.clone());
        self.writes.spawn(async move {
            let mut status = json!({});
            if news {
                status["conditions"] = json!([report::not_scheduled(&pod, reason, &message)]);
            }
            if let Some(node) = nominated {
                status["nominatedNodeName"] =
                    if node.is_empty() { serde_json::Value::Null } else { node.into() };
            }
            if let Err(error) = report::patch_status(client.clone(), &pod, &status).await {
                tracing::debug!(pod = %pod.reference(), %error, "condition not written");
            }
            if let Some(record) = record {
                report::write(client, record).await;
            }
            Done::Written
        });
    }

    /// Promises a node to a pod and makes room for it there.
    fn preempt(&mut self, pod: &Arc<PodInfo>, node: &str, victims: &[Arc<PodInfo>]) {
        // Lesser pods that were promised the node look elsewhere.
        let lesser: Vec<_> = self.cluster.nominations.lesser(pod, node).cloned().collect();
        for other in lesser {
            self.cluster.nominations.remove(&other.uid);
            let now = self.now();
            self.queue.retry(&other.uid, now);
            let client = self.client.clone();
            self.writes.spawn(async move {
                let status = json!({"nominatedNodeName": null});
                if let Err(error) = report::patch_status(client, &other, &status).await {
                    tracing::debug!(pod = %other.reference(), %error, "nomination not taken back");
                }
                Done::Written
            });
        }
        self.cluster.nominations.promise(pod, node);
        self.cluster.touch();
        victims.iter().for_each(|victim| self.evict(victim, pod, node));
    }

    /// Removes a pod to make room for a more important one.
    fn evict(&mut self, victim: &Arc<PodInfo>, preemptor: &PodInfo, node: &str) {
        if victim.deleting {
            return;
        }
        let message = format!("Preempted by pod {} on node {node}", preemptor.uid);
        tracing::info!(pod = %victim.reference(), by = %preemptor.reference(), node, "preempting pod");
        let recorder = self.recorders.get_mut(&preemptor.scheduler);
        let record = recorder.map(|one| one.record(victim, true, "Preempted", "Preempting", &message));
        let (client, victim, name) = (self.client.clone(), victim.clone(), preemptor.scheduler.clone());
        let preemptor = preemptor.uid.clone();
        self.writes.spawn(async move {
            match (report::evict(client.clone(), &victim, &name).await, record) {
                (Ok(()), Some(record)) => report::write(client, record).await,
                (Ok(()), None) => {}
                (Err(error), _) if is_not_found(&error) => {}
                (Err(error), _) => {
                    tracing::warn!(pod = %victim.reference(), %error, "pod not preempted; will retry");
                    return Done::NotEvicted { preemptor };
                }
            }
            Done::Written
        });
    }
}

fn is_not_found(error: &podwire_client::Error) -> bool {
    matches!(error, podwire_client::Error::Api(status) if status.code == 404)
}

/// Whether the API server does not know the kind, or does not show it to us.
fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::List(podwire_client::Error::Api(status)) if status.code == 404 || status.code == 403)
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
        let mut state = State::new(Client::new(broken, "default"), &Configuration::default());
        state.unsynced.clear();
        state.cluster.set_node("n1", node(json!({})));
        state.queue.offer(Arc::new(pod(json!({}))), None, 0);
        state.decide_all();
        assert_eq!((state.bindings.len(), state.cluster.is_placed("p")), (1, true));
        let done = state.writes.join_next_with_id().await.unwrap();
        assert!(done.is_err(), "it panicked");
        state.done(done);
        assert_eq!((state.bindings.len(), state.cluster.is_placed("p")), (0, false));
        assert!(state.queue.pop(state.now() + 1_000).is_some(), "it is tried again");
    }
}
