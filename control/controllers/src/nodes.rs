//! Nodes that fall silent, and pods that outlive what they stand for.
//!
//! One task owns what it has seen of nodes, node leases and pods. It marks silent nodes, keeps the taints
//! that say so, evicts pods from them in due time, and removes pods that nobody else will remove. It
//! spawns one task per write, into one `JoinSet`.

mod disruption;
mod plan;
mod view;
mod write;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use podwire_client::watcher::{self, watcher};
use podwire_client::{Api, ResourceExt};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::disruption::{Driving, Zones};
use self::plan::{Doom, Graces};
use self::view::{NodeView, PodView};
use crate::Config;
use crate::watching::{Watch, caught, interrupted, watch};

/// A failed write is tried again after this.
const RETRY_MS: u64 = 500;

/// What a spawned write came to.
enum Done {
    /// A node was written; it is looked at again once the watch shows this resource version.
    Node {
        name: String,
        version: Option<u64>,
    },
    /// A pod was removed, or not.
    Pod {
        uid: String,
        removed: bool,
    },
    Written,
}

struct State {
    config: Config,
    graces: Graces,
    nodes: HashMap<String, NodeView>,
    pods: HashMap<String, PodView>,
    zones: Zones,
    /// Whether no node was ready when last looked at.
    all_down: bool,
    /// When pods may be driven off the next node of a zone.
    next_drive: HashMap<String, u64>,
    /// When each node that pods name, and that does not exist, was first missed.
    missing: BTreeMap<String, u64>,
    /// Pods that ran to their end.
    finished: HashSet<String>,
    /// Pods whose removal is under way.
    doomed: HashSet<String>,
    /// When to look again, in milliseconds since `begun`.
    wake: Option<u64>,
    begun: Instant,
    listed_nodes: HashSet<String>,
    listed_pods: HashSet<String>,
    unsynced: HashSet<&'static str>,
    writes: JoinSet<Done>,
}

/// Runs until `shutdown`.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) {
    let client = config.client.clone();
    let mut nodes: Watch<Node> = watch(&client, "");
    let mut pods: Watch<Pod> = watch(&client, "");
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut leases: Watch<Lease> = watcher(leases, watcher::Config::default());
    let mut state = State::new(config);
    loop {
        let wake = match state.wake {
            Some(at) => state.begun + Duration::from_millis(at),
            None => Instant::now() + Duration::from_secs(3600),
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(done) = state.writes.join_next() => state.done(done),
            Some(event) = nodes.next() => state.node_event(event),
            Some(event) = pods.next() => state.pod_event(event),
            Some(event) = leases.next() => state.lease_event(event),
            () = tokio::time::sleep_until(wake) => state.review_all(),
        }
    }
    while state.writes.join_next().await.is_some() {}
}

impl State {
    fn new(config: Config) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            graces: Graces {
                silence: millis(config.node_grace),
                startup: millis(config.node_startup_grace),
                quarantine: millis(config.orphan_quarantine),
                terminated_pods: config.terminated_pod_threshold,
            },
            config,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            zones: Zones::default(),
            all_down: false,
            next_drive: HashMap::new(),
            missing: BTreeMap::new(),
            finished: HashSet::new(),
            doomed: HashSet::new(),
            wake: None,
            begun: Instant::now(),
            listed_nodes: HashSet::new(),
            listed_pods: HashSet::new(),
            unsynced: HashSet::from(["nodes", "pods", "leases"]),
            writes: JoinSet::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wake_at(&mut self, at: u64) {
        self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
    }

    fn synced(&mut self, what: &'static str) {
        self.unsynced.remove(what);
        if !self.review_disruption() {
            self.review_all();
        }
    }

    fn node_event(&mut self, event: watcher::Result<watcher::Event<Node>>) {
        match event {
            Ok(watcher::Event::Apply(node)) => self.node_seen(&node),
            Ok(watcher::Event::InitApply(node)) => {
                self.listed_nodes.insert(node.name_any());
                self.node_seen(&node);
            }
            Ok(watcher::Event::Delete(node)) => self.node_gone(&node.name_any()),
            Ok(watcher::Event::Init) => self.listed_nodes.clear(),
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed_nodes);
                let gone: Vec<_> =
                    self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.node_gone(name));
                self.synced("nodes");
            }
            Err(error) => interrupted("nodes", &error),
        }
    }

    fn node_seen(&mut self, node: &Node) {
        let now = self.now();
        let name = node.name_any();
        self.missing.remove(&name);
        let view = self.nodes.entry(name.clone()).or_insert_with(|| NodeView::new(now));
        view.update(node, now);
        let state = (view.zone.clone(), view.ready() == Some("True"));
        let counted = disruption::counts(node).then_some((state.0.as_str(), state.1));
        self.zones.set(&name, counted);
        if !self.review_disruption() {
            self.review_node(&name);
        }
    }

    fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
        self.zones.set(name, None);
        self.review_disruption();
        self.review_orphans();
    }

    /// Looks at every node again when the last one went down or the first one came back; says whether it did.
    fn review_disruption(&mut self) -> bool {
        let all_down = self.zones.all_down();
        if self.all_down == all_down || !self.unsynced.is_empty() {
            return false;
        }
        self.all_down = all_down;
        if all_down {
            tracing::warn!("no node is ready; pods are not driven out");
        } else {
            tracing::info!("nodes are ready again; silence is counted anew");
            let now = self.now();
            self.nodes.values_mut().for_each(|node| node.heard = now);
        }
        self.review_all();
        true
    }

    /// Whether pods may be driven off this node now; says so at most once per pace and zone.
    fn may_drive(&mut self, name: &str, now: u64) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        if !plan::drives_out(node) {
            return true;
        }
        let already = plan::is_driving_out(node);
        match self.zones.driving(&node.zone) {
            Driving::Off => false,
            Driving::Held => already,
            Driving::Paced(_) if already => true,
            Driving::Paced(pace) => {
                let next = self.next_drive.entry(node.zone.clone()).or_default();
                if *next <= now {
                    *next = now + pace;
                    return true;
                }
                let next = *next;
                self.wake_at(next);
                false
            }
        }
    }

    fn lease_event(&mut self, event: watcher::Result<watcher::Event<Lease>>) {
        match event {
            Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
                let now = self.now();
                let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
                if let Some(node) = self.nodes.get_mut(&lease.name_any()) {
                    node.renewed(renewed.map(|time| time.0), now);
                }
            }
            Ok(watcher::Event::InitDone) => self.synced("leases"),
            Ok(watcher::Event::Init | watcher::Event::Delete(_)) => {}
            Err(error) => interrupted("leases", &error),
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
                let uid = pod.metadata.uid.unwrap_or_default();
                self.pods.remove(&uid);
                self.finished.remove(&uid);
                self.doomed.remove(&uid);
            }
            Ok(watcher::Event::Init) => self.listed_pods.clear(),
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed_pods);
                self.pods.retain(|uid, _| listed.contains(uid));
                self.finished.retain(|uid| listed.contains(uid));
                self.doomed.retain(|uid| listed.contains(uid));
                self.synced("pods");
            }
            Err(error) => interrupted("pods", &error),
        }
    }

    fn pod_seen(&mut self, pod: &Pod) {
        let (Some(uid), Some(view)) = (pod.metadata.uid.clone(), PodView::new(pod)) else { return };
        if view.terminal {
            self.finished.insert(uid.clone());
        }
        self.pods.insert(uid.clone(), view);
        self.review_pod(&uid);
        self.review_finished();
    }

    /// Looks at everything; on a timer and after every fresh list.
    fn review_all(&mut self) {
        self.wake = None;
        if !self.unsynced.is_empty() {
            return;
        }
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        names.iter().for_each(|name| self.review_node(name));
        self.review_orphans();
        self.review_finished();
    }

    /// Removes the oldest finished pods when there are too many.
    fn review_finished(&mut self) {
        if self.finished.len() <= self.graces.terminated_pods || !self.unsynced.is_empty() {
            return;
        }
        for uid in plan::surplus(&self.pods, self.graces.terminated_pods) {
            self.doom(&uid, Doom::Surplus);
        }
    }

    /// Marks and taints one node as it deserves.
    fn review_node(&mut self, name: &str) {
        if !self.unsynced.is_empty() {
            return;
        }
        let now = self.now();
        let Some(node) = self.nodes.get_mut(name) else { return };
        if !node.settled() {
            return;
        }
        if let Some(deadline) = plan::silence_deadline(node, &self.graces) {
            if deadline > now {
                self.wake_at(deadline);
            } else {
                node.begin_write();
                let conditions = plan::silent_conditions(node, &write::stamp());
                let (client, name) = (self.config.client.clone(), name.to_owned());
                tracing::warn!(node = name, "node fell silent");
                let failed = Done::Node { name: name.clone(), version: None };
                let write = async move {
                    let version = write::node_conditions(client, &name, conditions).await;
                    Done::Node { name, version }
                };
                self.writes.spawn(caught(write, failed));
                return;
            }
        }
        let drive = self.may_drive(name, now);
        let Some(node) = self.nodes.get_mut(name) else { return };
        if let Some(taints) = plan::wanted_taints(node, drive, &write::stamp()) {
            node.begin_write();
            let (client, name, seen) = (self.config.client.clone(), name.to_owned(), node.version);
            let failed = Done::Node { name: name.clone(), version: None };
            let write = async move {
                let version = write::node_taints(client, &name, seen, taints).await;
                Done::Node { name, version }
            };
            self.writes.spawn(caught(write, failed));
            return;
        }
        let became_unready = node.note_readiness();
        if became_unready {
            self.unready_pods(name);
        }
        if self.nodes.get(name).is_some_and(|node| !node.evicting_taints().is_empty()) {
            let on_it: Vec<_> =
                self.pods.iter().filter(|(_, pod)| pod.node == name).map(|(uid, _)| uid.clone()).collect();
            on_it.iter().for_each(|uid| self.review_pod(uid));
        }
    }

    /// Says of every ready pod on the node that it is ready no more.
    fn unready_pods(&mut self, name: &str) {
        let ready: Vec<_> = self.pods.values().filter(|pod| pod.node == name && pod.ready).cloned().collect();
        for pod in ready {
            let client = self.config.client.clone();
            self.writes.spawn(async move {
                write::pod_unready(client, &pod).await;
                Done::Written
            });
        }
    }

    fn review_orphans(&mut self) {
        if !self.unsynced.is_empty() {
            return;
        }
        let named: HashSet<_> = self.pods.values().map(|pod| pod.node.as_str()).collect();
        self.missing.retain(|name, _| named.contains(name.as_str()));
        let uids: Vec<_> = self.pods.keys().cloned().collect();
        uids.iter().for_each(|uid| self.review_pod(uid));
    }

    /// Removes one pod if nobody else will, or says when to look again.
    fn review_pod(&mut self, uid: &str) {
        if !self.unsynced.is_empty() {
            return;
        }
        let now = self.now();
        let Some(pod) = self.pods.get(uid) else { return };
        if pod.node.is_empty() {
            if pod.deleting {
                self.doom(uid, Doom::Unscheduled);
            }
            return;
        }
        match self.nodes.get(&pod.node) {
            None => {
                let since = *self.missing.entry(pod.node.clone()).or_insert(now);
                let due = since + self.graces.quarantine;
                if due > now { self.wake_at(due) } else { self.doom(uid, Doom::Orphan) }
            }
            Some(node) => {
                let wall = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
                match plan::eviction_time(pod, node.evicting_taints(), wall) {
                    Some(due) if due > wall => self.wake_at(now + (due - wall)),
                    Some(_) if !pod.deleting && !pod.terminal => self.doom(uid, Doom::Tainted),
                    _ => {}
                }
            }
        }
    }

    fn doom(&mut self, uid: &str, why: Doom) {
        let Some(pod) = self.pods.get(uid).cloned() else { return };
        if !self.doomed.insert(uid.to_owned()) {
            return;
        }
        tracing::info!(pod = %format_args!("{}/{}", pod.namespace, pod.name), ?why, "removing pod");
        let (client, uid) = (self.config.client.clone(), uid.to_owned());
        let failed = Done::Pod { uid: uid.clone(), removed: false };
        let write = async move {
            let removed = write::remove_pod(client, &pod, &uid, why).await;
            Done::Pod { uid, removed }
        };
        self.writes.spawn(caught(write, failed));
    }

    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Node { name, version }) => {
                let retry = self.now() + RETRY_MS;
                if let Some(node) = self.nodes.get_mut(&name) {
                    node.end_write(version);
                }
                if version.is_none() {
                    self.wake_at(retry);
                } else {
                    self.review_node(&name);
                }
            }
            Ok(Done::Pod { uid, removed }) => {
                if !removed {
                    self.doomed.remove(&uid);
                    self.wake_at(self.now() + RETRY_MS);
                }
            }
            Ok(Done::Written) => {}
            Err(error) => tracing::error!(%error, "a write of the node controller panicked"),
        }
    }
}
