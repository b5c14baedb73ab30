//! The one thread that owns the plan and the table: it hears words, plans, and loads what differs.
//!
//! Nothing is loaded before everything is known (policies, namespaces, pods and nodes from the API server, sandboxes from the
//! runtime): a table of an earlier process keeps deciding until then, and the floor stands from the beginning. A
//! transaction that is refused makes the table be read back and corrected; a pod's word is answered only when its rules
//! stand. Input: [`Word`]s. Output: answers, and a [`Status`] that says what is missing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use podwire_linux::nft::conntrack::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::cluster_policy::ClusterPolicy;
use crate::inside::Inside;
use crate::links::{Links, Looked};
use crate::plan::evaluate::{Flow, judge};
use crate::plan::inside::Touched;
use crate::plan::{Counts, Labels, Node, Planner, Pod, Sandbox};
use crate::pod_network::chosen::Networks;
use crate::pod_network::status::Statuses;
use crate::policy::{Direction, ObjectKey, Policy};
use crate::table::{self, Table};

/// How long after a change connections are looked through that it may have cut; changes come in crowds.
const CUT_AFTER: Duration = Duration::from_millis(100);
/// How many connections are cut between two looks at what was said: a crowd of them must not hold a change of policies up.
const CUT_AT_ONCE: usize = 256;
/// How long until a refused transaction is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Where words about objects come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Source {
    /// NetworkPolicies.
    Policies,
    /// ClusterNetworkPolicies, or that there is no such kind.
    ClusterPolicies,
    /// Namespaces.
    Namespaces,
    /// Pods.
    Pods,
    /// Nodes, or that nobody can ask for any.
    Nodes,
    /// PodNetworks, or that there is no such kind.
    PodNetworks,
}

impl Source {
    const ALL: [Source; 6] = [
        Source::Policies,
        Source::ClusterPolicies,
        Source::Namespaces,
        Source::Pods,
        Source::Nodes,
        Source::PodNetworks,
    ];

    /// Those that say whom policies govern.
    fn decides(self) -> bool {
        self != Source::PodNetworks
    }

    fn name(self) -> &'static str {
        match self {
            Source::Policies => "networkpolicies",
            Source::ClusterPolicies => "clusternetworkpolicies",
            Source::Namespaces => "namespaces",
            Source::Pods => "pods",
            Source::Nodes => "nodes",
            Source::PodNetworks => "podnetworks",
        }
    }
}

/// Something happened.
#[derive(Debug)]
pub(crate) enum Word {
    /// A namespace came or changed.
    Namespace(String, Labels),
    /// A namespace went.
    NamespaceGone(String),
    /// A pod came or changed.
    Pod(ObjectKey, Pod),
    /// A pod went.
    PodGone(ObjectKey),
    /// A node came or changed.
    Node(String, Node),
    /// A node went.
    NodeGone(String),
    /// A policy came or changed.
    Policy(Policy),
    /// A policy went.
    PolicyGone(ObjectKey),
    /// A cluster policy came or changed.
    ClusterPolicy(Box<ClusterPolicy>),
    /// A cluster policy went.
    ClusterPolicyGone(String),
    /// A PodNetwork came or changed.
    Network(ObjectKey, serde_json::Value),
    /// A PodNetwork went.
    NetworkGone(ObjectKey),
    /// A list of PodNetworks is complete.
    NetworksListed(HashSet<ObjectKey>),
    /// A list of one namespace's PodNetworks is complete.
    NetworksOfListed(String, HashSet<ObjectKey>),
    /// A list of namespaces is complete.
    NamespacesListed(HashSet<String>),
    /// A list of pods is complete.
    PodsListed(HashSet<ObjectKey>),
    /// A list of nodes is complete.
    NodesListed(HashSet<String>),
    /// A list of policies is complete.
    PoliciesListed(HashSet<ObjectKey>),
    /// A list of cluster policies is complete.
    ClusterPoliciesListed(HashSet<String>),
    /// All cluster policies, and all nodes if these mean any, as they were read and not heard.
    ClusterRead(HashSet<String>, Option<HashSet<String>>),
    /// A list of one namespace's policies is complete.
    PoliciesOfListed(String, HashSet<ObjectKey>),
    /// A source cannot be heard.
    Interrupted(Source, String),
    /// A source is heard again, or tells of no such thing.
    Heard(Source),
    /// All sandboxes of this node, each with its network namespace.
    Sandboxes(Vec<(Sandbox, PathBuf)>),
    /// A sandbox is about to be used; the answer says that its rules stand, and what that took.
    Run(Run),
    /// A sandbox goes.
    Gone(String, oneshot::Sender<Result<(), String>>),
}

/// What stands for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Policies that govern it, as text.
    pub(crate) policies: Vec<String>,
    /// How much changed in the kernel.
    pub(crate) changes: usize,
}

/// What is missing, and how much there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// Sources that have told all they know once.
    pub(crate) listed: HashSet<Source>,
    /// Sources that cannot be heard now, and why.
    pub(crate) interrupted: BTreeMap<Source, String>,
    /// The runtime has told its sandboxes.
    pub(crate) synchronized: bool,
    /// The table is as planned.
    pub(crate) loaded: bool,
    /// Why it is not.
    pub(crate) refused: Option<String>,
    /// How much there is.
    pub(crate) counts: Counts,
    /// Transactions, and those refused.
    pub(crate) transactions: u64,
    /// Transactions that the kernel refused.
    pub(crate) refusals: u64,
    /// Connections cut by changes of policies.
    pub(crate) cut: u64,
}

impl Status {
    /// What is waited for; empty when nothing is.
    pub(crate) fn missing(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for source in Source::ALL {
            let why = self.interrupted.get(&source).map(|why| format!(": {why}")).unwrap_or_default();
            if !self.listed.contains(&source) {
                parts.push(format!("{} have not been read{why}", source.name()));
            }
        }
        if !self.synchronized {
            parts.push("the runtime has not told its pods".to_owned());
        }
        parts.extend(self.refused.clone());
        parts.join("; ")
    }
}

/// A sandbox that is about to be used.
#[derive(Debug)]
pub(crate) struct Run {
    /// The sandbox.
    pub(crate) sandbox: Sandbox,
    /// Its network namespace.
    pub(crate) netns: PathBuf,
    /// Addresses that its PodNetwork gave it beside those of CNI.
    pub(crate) further: Vec<IpAddr>,
    /// Who waits for its rules.
    pub(crate) answer: oneshot::Sender<Result<Standing, String>>,
}

/// The owner of plan and table.
pub(crate) struct Keeper {
    planner: Planner,
    table: Table,
    links: Links,
    /// Pods with links whose packets never pass this machine.
    inside: Inside,
    words: mpsc::Receiver<Word>,
    status: watch::Sender<Status>,
    /// Where PodNetworks hear of pods that are gone.
    statuses: Statuses,
    /// PodNetworks that choose pods.
    networks: Networks,
    /// The blocks of which a PodNetwork may give addresses that are known then.
    further: Vec<IpNet>,
    now: Status,
    waiting: Vec<Run>,
    cut_at: Option<Instant>,
    /// Connections that are no longer allowed and still to be cut.
    doomed: Vec<Connection>,
    again_at: Option<Instant>,
}

impl Keeper {
    /// With a plan that knows nothing and a table whose floor stands.
    pub(crate) fn new(
        planner: Planner,
        table: Table,
        words: mpsc::Receiver<Word>,
        status: watch::Sender<Status>,
        statuses: Statuses,
        (networks, further): (Networks, Vec<IpNet>),
    ) -> Keeper {
        Keeper {
            planner,
            table,
            links: Links::default(),
            inside: Inside::default(),
            words,
            status,
            statuses,
            networks,
            further,
            now: Status::default(),
            waiting: Vec::new(),
            cut_at: None,
            doomed: Vec::new(),
            again_at: None,
        }
    }

    /// Hears until nobody speaks any more. Blocks its thread, which must not be one of the runtime's.
    pub(crate) fn run(mut self, runtime: &tokio::runtime::Handle) {
        while let Some(words) = self.hear(runtime) {
            for word in words {
                self.take(word);
            }
            self.load();
            self.serve();
            self.cut();
            self.now.counts = self.planner.counts();
            self.status.send_replace(self.now.clone());
        }
    }

    /// What has been said since, or nothing when it is time for something; `None` at the end.
    fn hear(&mut self, runtime: &tokio::runtime::Handle) -> Option<Vec<Word>> {
        const AT_ONCE: usize = 1000;
        let at_once = (!self.doomed.is_empty()).then(Instant::now);
        let due = [self.cut_at, self.again_at, at_once].into_iter().flatten().min();
        let first = runtime.block_on(async {
            match due {
                Some(due) => tokio::time::timeout_at(due, self.words.recv()).await,
                None => Ok(self.words.recv().await),
            }
        });
        let mut words = match first {
            Ok(Some(word)) => vec![word],
            Ok(None) => return None,
            Err(_) => Vec::new(),
        };
        while words.len() < AT_ONCE
            && let Ok(word) = self.words.try_recv()
        {
            words.push(word);
        }
        Some(words)
    }

    fn take(&mut self, word: Word) {
        match word {
            Word::Namespace(name, labels) => self.planner.namespace(&name, labels),
            Word::NamespaceGone(name) => self.planner.namespace_gone(&name),
            Word::Pod(key, pod) => self.planner.pod(key, pod),
            Word::PodGone(key) => {
                self.statuses.pod_gone(&key);
                self.planner.pod_gone(&key);
            }
            Word::Node(name, node) => self.planner.node(&name, node),
            Word::NodeGone(name) => self.planner.node_gone(&name),
            Word::NodesListed(names) => {
                self.planner.keep_nodes(&names);
                self.heard(Source::Nodes);
            }
            Word::Policy(policy) => self.policy(policy),
            Word::PolicyGone(key) => self.planner.policy_gone(&key),
            Word::ClusterPolicy(policy) => {
                for mistake in &policy.mistakes {
                    tracing::warn!(policy = policy.name, mistake, "a cluster policy is not fully understood");
                }
                self.planner.cluster_policy(*policy);
            }
            Word::ClusterPolicyGone(name) => self.planner.cluster_policy_gone(&name),
            Word::NamespacesListed(names) => {
                self.planner.keep_namespaces(&names);
                self.heard(Source::Namespaces);
            }
            Word::PodsListed(keys) => {
                self.statuses.keep(&keys);
                self.planner.keep_pods(&keys);
                self.heard(Source::Pods);
            }
            Word::PoliciesListed(keys) => {
                self.planner.keep_policies(&keys);
                self.heard(Source::Policies);
            }
            Word::ClusterPoliciesListed(names) => {
                self.planner.keep_cluster_policies(&names);
                self.heard(Source::ClusterPolicies);
            }
            Word::ClusterRead(policies, nodes) => {
                nodes.iter().for_each(|names| self.planner.keep_nodes(names));
                self.planner.keep_cluster_policies(&policies);
            }
            Word::PoliciesOfListed(namespace, keys) => self.planner.keep_policies_of(&namespace, &keys),
            Word::Interrupted(source, why) => {
                self.now.interrupted.insert(source, why);
            }
            Word::Heard(source) => {
                self.now.interrupted.remove(&source);
            }
            Word::Sandboxes(sandboxes) => self.sandboxes(sandboxes),
            Word::Network(key, object) => self.networks.put(key, object),
            Word::NetworkGone(key) => self.networks.gone(&key),
            Word::NetworksListed(keys) => {
                self.networks.keep(None, &keys);
                self.heard(Source::PodNetworks);
            }
            Word::NetworksOfListed(namespace, keys) => self.networks.keep(Some(&namespace), &keys),
            Word::Run(run) => self.waiting.push(run),
            Word::Gone(id, answer) => {
                // Ignored: whoever asked may have given up.
                answer.send(self.gone(&id)).ok();
            }
        }
    }

    fn policy(&mut self, policy: Policy) {
        if !self.planner.is_held(&policy) {
            for mistake in &policy.mistakes {
                tracing::warn!(policy = %policy.key, mistake, "a policy is not fully understood; that part allows nothing");
            }
        }
        self.planner.policy(policy);
    }

    fn heard(&mut self, source: Source) {
        self.now.listed.insert(source);
        self.now.interrupted.remove(&source);
    }

    fn sandboxes(&mut self, sandboxes: Vec<(Sandbox, PathBuf)>) {
        let listed = sandboxes.iter().map(|(sandbox, _)| sandbox.id.clone()).collect();
        let gone = self.planner.keep_sandboxes(&listed);
        self.inside.keep(&listed);
        self.forget(&gone);
        let mut looked = Vec::new();
        for (sandbox, netns) in sandboxes {
            match self.look(&sandbox.id, &netns) {
                Ok(found) => looked.push((sandbox, found)),
                // Without rules of its own the floor keeps it closed.
                Err(error) => tracing::error!(
                    pod = %sandbox.pod,
                    error,
                    "a pod that runs cannot be looked at and stays closed"
                ),
            }
        }
        let mut further = self.further_of(&looked);
        for (mut sandbox, looked) in looked {
            if sandbox.addresses.is_empty() {
                sandbox.addresses = looked.addresses;
            }
            sandbox.addresses.extend(further.remove(&sandbox.id).unwrap_or_default());
            if !looked.unfiltered.is_empty() {
                let links = looked.unfiltered.join(",");
                tracing::warn!(pod = %sandbox.pod, links, "links that policies do not reach");
            }
            self.planner.sandbox(sandbox);
        }
        self.now.synchronized = true;
    }

    /// Whether a PodNetwork may give this address: it is in a block that the node's owner said.
    fn may_be_further(&self, ip: IpAddr) -> bool {
        self.further.iter().any(|net| net.contains(&ip))
    }

    /// The addresses that a pod of an earlier process had from its PodNetwork: those that the table knows already and that are
    /// on the pod's links now. One that two have is nobody's.
    fn further_of(&mut self, looked: &[(Sandbox, Looked)]) -> HashMap<String, Vec<IpAddr>> {
        let mut owners: HashMap<IpAddr, Vec<&str>> = HashMap::new();
        if self.further.is_empty() {
            return HashMap::new();
        }
        let known = self.table.known().unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "further addresses of pods that run stay closed");
            HashSet::new()
        });
        let given: HashSet<IpAddr> =
            looked.iter().flat_map(|(one, _)| one.addresses.iter().copied()).collect();
        for (sandbox, looked) in looked {
            for ip in looked.addresses.iter().filter(|ip| known.contains(ip) && !given.contains(ip)) {
                if self.may_be_further(*ip) {
                    owners.entry(*ip).or_default().push(&sandbox.id);
                }
            }
        }
        let mut found: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for (ip, ids) in owners {
            if let [id] = ids.as_slice() {
                found.entry((*id).to_owned()).or_default().push(ip);
            }
        }
        found
    }

    /// Looks at a pod's links; those that lead past this machine want a table in the pod's own namespace.
    fn look(&mut self, id: &str, netns: &Path) -> Result<Looked, String> {
        let looked = self.links.look(netns).map_err(|error| chain(&error))?;
        if !looked.beside.is_empty() {
            self.inside.open(id, netns, &looked).map_err(|error| chain(&error))?;
        }
        Ok(looked)
    }

    fn gone(&mut self, id: &str) -> Result<(), String> {
        self.inside.gone(id);
        let addresses = self.planner.sandbox_gone(id);
        if !self.now.loaded {
            self.table.close(&addresses).map_err(|error| chain(&error))?;
        } else {
            self.load();
        }
        self.forget(&addresses);
        self.now.refused.clone().map_or(Ok(()), Err)
    }

    fn forget(&mut self, addresses: &[IpAddr]) {
        if addresses.is_empty() {
            return;
        }
        let theirs = |one: &Connection| addresses.contains(&one.source) || addresses.contains(&one.answers);
        if let Err(error) = self.table.forget(theirs) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "connections of a pod that is gone are remembered"
            );
        }
    }

    /// Brings the node's table and those of pods in line with the plan, once everything is known; how much was changed in
    /// the node's.
    fn load(&mut self) -> usize {
        let (size, touched) = self.load_node();
        if self.now.loaded {
            let due = self.again_at.is_none_or(|at| at <= Instant::now());
            if !self.inside.follow(&self.planner, touched.as_ref(), due) {
                self.again_at = Some(Instant::now() + AGAIN_AFTER);
            } else if due {
                self.again_at = None;
            }
        }
        size
    }

    fn load_node(&mut self) -> (usize, Option<Touched>) {
        let mut sources = Source::ALL.iter().filter(|source| source.decides());
        let complete = self.now.synchronized && sources.all(|source| self.now.listed.contains(source));
        if !complete {
            return (0, None);
        }
        if self.now.loaded {
            let change = self.planner.take();
            if change.is_empty() {
                return (0, None);
            }
            self.now.transactions += 1;
            match self.table.apply(&change) {
                Ok(()) => {
                    let denied = !change.added.is_empty() && self.planner.denies();
                    self.cut_later(denied || !change.removed.is_empty() || !change.chains.is_empty());
                    return (change.size(), Some(Touched::Sets(change.touched())));
                }
                Err(error) => {
                    self.now.refusals += 1;
                    tracing::warn!(
                        error = chain(&error),
                        "a change was refused; the table is read back and corrected"
                    );
                }
            }
        }
        let due = self.again_at.is_none_or(|at| at <= Instant::now());
        if !due {
            return (0, None);
        }
        match self.correct() {
            Ok(size) => {
                self.now.loaded = true;
                self.now.refused = None;
                self.again_at = None;
                self.cut_later(true);
                (size, Some(Touched::All))
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "the table cannot be written; will retry");
                self.now.loaded = false;
                self.now.refused = Some(chain(&error));
                self.again_at = Some(Instant::now() + AGAIN_AFTER);
                (0, None)
            }
        }
    }

    /// Reads the table back and corrects all that differs.
    fn correct(&mut self) -> Result<usize, table::Error> {
        self.table.lay_floor()?;
        let found = self.table.read()?;
        let change = self.planner.against(&found);
        self.now.transactions += 1;
        self.table.apply(&change).map(|()| change.size())
    }

    /// Answers those whose rules can be loaded now.
    fn serve(&mut self) {
        for one in std::mem::take(&mut self.waiting) {
            if one.answer.is_closed() {
                continue;
            }
            if !self.now.loaded || !self.planner.knows_namespace(&one.sandbox.pod.namespace) {
                self.waiting.push(one);
                continue;
            }
            let result = self.start(one.sandbox, &one.netns, &one.further);
            if let Err(unheard) = one.answer.send(result) {
                // It is tried again, or its end is told.
                tracing::debug!(?unheard, "nobody waits for a pod's rules any more");
            }
        }
    }

    fn start(&mut self, mut sandbox: Sandbox, netns: &Path, further: &[IpAddr]) -> Result<Standing, String> {
        for ip in further.iter().filter(|ip| self.may_be_further(**ip)) {
            if let Some(owner) = self.planner.owner_of(*ip, &sandbox) {
                return Err(format!("spec.addresses of its PodNetwork: {ip} is the address of {owner}"));
            }
        }
        let looked = self.look(&sandbox.id, netns)?;
        if sandbox.addresses.is_empty() {
            sandbox.addresses = looked.addresses;
        }
        for ip in further.iter().filter(|ip| self.may_be_further(**ip)) {
            if !sandbox.addresses.contains(ip) {
                sandbox.addresses.push(*ip);
            }
        }
        let id = sandbox.id.clone();
        self.planner.sandbox(sandbox);
        let policies = self.planner.governing(&id);
        if !looked.unfiltered.is_empty() && !policies.is_empty() {
            self.planner.sandbox_gone(&id);
            let links = looked.unfiltered.join(", ");
            return Err(format!(
                "{} govern it, and what passes {links} does not pass this machine's filter: its bridge needs br_netfilter",
                policies.join(", ")
            ));
        }
        let changes = self.load();
        let stands = match &self.now.refused {
            Some(refused) => Err(refused.clone()),
            None => self.inside.put(&self.planner, &id).map_err(|error| chain(&error)),
        };
        if let Err(refused) = stands {
            self.inside.gone(&id);
            self.planner.sandbox_gone(&id);
            return Err(refused);
        }
        Ok(Standing { policies, changes })
    }

    fn cut_later(&mut self, may_cut: bool) {
        if may_cut && self.cut_at.is_none() {
            self.cut_at = Some(Instant::now() + CUT_AFTER);
        }
    }

    /// Forgets connections that are no longer allowed, some at a time: their next packet is judged as that of a new one.
    fn cut(&mut self) {
        if self.cut_at.is_some_and(|at| at <= Instant::now()) {
            self.cut_at = None;
            self.look_through();
        }
        if self.doomed.is_empty() {
            return;
        }
        let some = self.doomed.split_off(self.doomed.len().saturating_sub(CUT_AT_ONCE));
        match self.table.forget_these(&some) {
            Ok(0) => {}
            Ok(count) => {
                self.now.cut += u64::try_from(count).unwrap_or(u64::MAX);
                tracing::info!(
                    count,
                    left = self.doomed.len(),
                    "connections that policies no longer allow were cut"
                );
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "connections that policies no longer allow may go on");
            }
        }
    }

    /// Finds the connections that are no longer allowed, also among those found before.
    fn look_through(&mut self) {
        // A table that is not as planned says nothing; once it is, connections are looked through.
        if !self.now.loaded {
            return;
        }
        self.now.cut += u64::try_from(self.inside.cut()).unwrap_or(u64::MAX);
        let (tables, floor) = (self.planner.tables(), self.table.floor().to_vec());
        // What this machine itself began is never judged, and must not look as if the pod had begun it.
        let nodes = match self.links.own_addresses() {
            Ok(nodes) => nodes,
            Err(error) => {
                tracing::warn!(error = chain(&error), "connections that policies no longer allow may go on");
                return;
            }
        };
        let ours: HashSet<IpAddr> =
            self.planner.sandboxes().flat_map(|one| one.addresses.iter().copied()).collect();
        let denied = |one: &Connection| {
            if nodes.contains(&one.source) {
                return false;
            }
            let flow =
                Flow { source: one.source, destination: one.answers, protocol: one.protocol, port: one.port };
            let side =
                |ip: IpAddr, direction| ours.contains(&ip) && !judge(tables, &floor, flow, direction).allowed;
            side(one.source, Direction::Egress) || side(one.answers, Direction::Ingress)
        };
        match self.table.connections(denied) {
            Ok(found) => self.doomed = found,
            Err(error) => {
                tracing::warn!(error = chain(&error), "connections that policies no longer allow may go on");
            }
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    podwire_trace::chain(error)
}
