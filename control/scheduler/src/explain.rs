//! Why a pod is where it is, or nowhere: every node is asked, no node is spared by sampling. Pure.
//!
//! The same plugins that decide are asked here, about a cluster that is given as objects; so `podwire explain` can be run
//! by anybody who may read them, and the comparison with upstream's scheduler asks the code that runs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::config::Configuration;
use crate::cycle::{self, Diagnosis};
use crate::framework::{Cycle, Filters, Refusal, Seat};
use crate::node::NodeFacts;
use crate::plugins::default_preemption::{self, Candidate};
use crate::pod::PodInfo;
use crate::profile::Profile;
use crate::watches::{self, Kind};

/// What an explanation depends on: where it is listed, and its kind.
pub const KINDS: [(&str, &str); 17] = [
    ("/api/v1/nodes", "Node"),
    ("/api/v1/pods", "Pod"),
    ("/api/v1/namespaces", "Namespace"),
    ("/api/v1/persistentvolumeclaims", "PersistentVolumeClaim"),
    ("/api/v1/persistentvolumes", "PersistentVolume"),
    ("/apis/storage.k8s.io/v1/storageclasses", "StorageClass"),
    ("/apis/storage.k8s.io/v1/csinodes", "CSINode"),
    ("/apis/storage.k8s.io/v1/csidrivers", "CSIDriver"),
    ("/apis/storage.k8s.io/v1/csistoragecapacities", "CSIStorageCapacity"),
    ("/api/v1/services", "Service"),
    ("/api/v1/replicationcontrollers", "ReplicationController"),
    ("/apis/apps/v1/replicasets", "ReplicaSet"),
    ("/apis/apps/v1/statefulsets", "StatefulSet"),
    ("/apis/policy/v1/poddisruptionbudgets", "PodDisruptionBudget"),
    ("/apis/resource.k8s.io/v1/resourceclaims", "ResourceClaim"),
    ("/apis/resource.k8s.io/v1/deviceclasses", "DeviceClass"),
    ("/apis/resource.k8s.io/v1/resourceslices", "ResourceSlice"),
];

/// Why a plugin refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// The plugin.
    pub plugin: &'static str,
    /// Its reasons, in Kubernetes' words.
    pub reasons: Vec<String>,
    /// Whether removing pods from the node would help.
    pub resolvable: bool,
    /// The same in numbers.
    pub details: Vec<String>,
}

impl Objection {
    fn new(refusal: &Refusal, mut details: Vec<String>) -> Self {
        // Counts are found in no particular order.
        details.sort();
        let reasons = refusal.reasons().map(str::to_owned).collect();
        Self { plugin: refusal.plugin.text(), reasons, resolvable: refusal.resolvable, details }
    }
}

/// Room that could be made on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Who would have to go: `namespace/name`, the most important first.
    pub victims: Vec<String>,
    /// How many disruption budgets that would violate.
    pub violations: usize,
}

/// What became of the question about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// How many nodes there are.
    pub nodes: usize,
    /// What the pod lacks wherever it may run.
    pub everywhere: Option<Objection>,
    /// Why there is no answer; the scheduler tries such a pod again after a while.
    pub broken: Option<String>,
    /// The only nodes it may run on, if it names them.
    pub only: Option<BTreeSet<String>>,
    /// Each node's objections; the first is the one that counts.
    pub refused: BTreeMap<String, Vec<Objection>>,
    /// The weighted score of each node that fits, by plugin.
    pub scores: BTreeMap<String, BTreeMap<&'static str, i64>>,
    /// Kubernetes' sentence, if it fits nowhere; what preemption says is not part of it.
    pub message: String,
    /// Why the pod must not remove others.
    pub ineligible: Option<&'static str>,
    /// Room that could be made, by node.
    pub candidates: BTreeMap<String, Room>,
    /// Nodes where removing pods does not help.
    pub unhelped: BTreeMap<String, Objection>,
    /// The nodes where making room hurts least.
    pub best_room: BTreeSet<String>,
}

impl Explanation {
    /// Nodes that fit with their whole score, the best first.
    pub fn ranking(&self) -> Vec<(&str, i64)> {
        let sum =
            |(name, scores): (&'_ String, &BTreeMap<_, i64>)| (scores.values().sum::<i64>(), name.clone());
        let mut all: Vec<_> = self.scores.iter().map(sum).collect();
        all.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        let name = |name: &str| self.scores.get_key_value(name).map_or("", |(name, _)| name.as_str());
        all.iter().map(|(score, node)| (name(node), *score)).collect()
    }

    /// The nodes that are nearest to fitting: those with the fewest objections, and of these those that removing pods or
    /// freeing resources would cure first.
    pub fn nearest(&self) -> Vec<(&str, &[Objection])> {
        let key = |objections: &[Objection]| {
            let hopeless = objections.iter().filter(|one| !one.resolvable).count();
            (hopeless, objections.iter().map(|one| one.reasons.len()).sum::<usize>())
        };
        let mut all: Vec<_> =
            self.refused.iter().map(|(name, all)| (name.as_str(), all.as_slice())).collect();
        all.sort_by_key(|(name, objections)| (key(objections), *name));
        all
    }
}

/// A cluster to ask about.
pub struct Explainer {
    cluster: Cluster,
    profiles: Vec<Profile>,
}

impl Explainer {
    /// An empty cluster.
    pub fn new(configuration: &Configuration) -> Self {
        Self { cluster: Cluster::default(), profiles: configuration.profiles() }
    }

    /// Takes in an object of any kind; says whether its kind matters.
    pub fn add(&mut self, object: &Value) -> serde_json::Result<bool> {
        let kind = object["kind"].as_str().unwrap_or_default();
        match kind {
            "Node" => {
                let node: Node = serde_json::from_value(object.clone())?;
                let name = node.metadata.name.clone().unwrap_or_default();
                self.cluster.set_node(&name, NodeFacts::new(&node));
            }
            "Pod" => {
                let pod: Pod = serde_json::from_value(object.clone())?;
                if let Some(pod) = PodInfo::new(&pod, &mut self.cluster.templates) {
                    self.place(pod);
                }
            }
            _ => {
                let Some(kind) = Kind::ALL.into_iter().find(|one| one.api().kind == kind) else {
                    return Ok(false);
                };
                watches::apply(&mut self.cluster, kind, object);
            }
        }
        Ok(true)
    }

    fn place(&mut self, pod: PodInfo) {
        if pod.terminal {
            return;
        }
        if pod.node.is_some() {
            self.cluster.confirm(pod);
        } else if let Some(node) = pod.nominated.clone() {
            self.cluster.nominations.promise(&pod.into(), &node);
        }
    }

    /// Explains a pod, which need not be part of the cluster; if it runs already, how it would be placed anew.
    pub fn explain(&mut self, pod: &Value) -> serde_json::Result<Option<Explanation>> {
        let pod: Pod = serde_json::from_value(pod.clone())?;
        let Some(mut pod) = PodInfo::new(&pod, &mut self.cluster.templates) else { return Ok(None) };
        self.cluster.remove_pod(&pod.uid);
        pod.node = None;
        let Some(profile) = self.profiles.iter().find(|one| one.scheduler_name == pod.scheduler) else {
            return Ok(None);
        };
        let constraints = profile.constraints(&pod, &self.cluster);
        self.cluster.prepare(&pod, &constraints);
        let cycle = Cycle { pod: &pod, cluster: &self.cluster, constraints: &constraints };
        Ok(Some(explain(profile, cycle)))
    }
}

fn explain(profile: &Profile, cycle: Cycle) -> Explanation {
    let mut out = Explanation { nodes: cycle.cluster.order().len(), ..Explanation::default() };
    let mut diagnosis = Diagnosis::of(out.nodes);
    let mut prepared = match cycle::prepare(profile, cycle) {
        Ok(prepared) => prepared,
        Err(refusal) => {
            out.broken = refusal.broken.then(|| refusal.text());
            out.everywhere = Some(Objection::new(&refusal, Vec::new()));
            diagnosis.everywhere = Some(refusal);
            out.message = diagnosis.message("");
            out.ineligible = default_preemption::ineligible(cycle, &diagnosis);
            return out;
        }
    };
    diagnosis.narrowed_by = prepared.narrowed_by;
    out.only = prepared.only.clone();
    let mut fit: Vec<Seat> = Vec::new();
    for seat in cycle.cluster.nodes().filter_map(Seat::new) {
        if out.only.as_ref().is_some_and(|only| !only.contains(&*seat.node.name)) {
            continue;
        }
        match prepared.filters.refusal_with_promises(cycle, &seat) {
            None => fit.push(seat),
            Some(refusal) => {
                if refusal.broken {
                    out.broken.get_or_insert_with(|| refusal.text());
                }
                out.refused
                    .insert(seat.node.name.to_string(), objections(&prepared.filters, &seat, &refusal));
                diagnosis.refuse(seat.node.id, refusal);
            }
        }
    }
    for (name, weight, scores) in cycle::scores(profile, cycle, &fit) {
        for (seat, score) in fit.iter().zip(scores) {
            out.scores.entry(seat.node.name.to_string()).or_default().insert(name.text(), weight * score);
        }
    }
    if fit.is_empty() {
        out.message = diagnosis.message("");
        room(&mut out, cycle, &mut prepared.filters, &diagnosis);
    }
    out
}

/// All objections of a node, the one that counts first.
fn objections(filters: &Filters, seat: &Seat, first: &Refusal) -> Vec<Objection> {
    let mut all: Vec<Objection> = filters
        .refusals(seat)
        .into_iter()
        .map(|(refusal, details)| Objection::new(&refusal, details))
        .collect();
    let counts = Objection::new(first, vec!["because of a pod to which this one must leave room".to_owned()]);
    match all.first_mut().filter(|one| one.plugin == counts.plugin) {
        None => all.insert(0, counts),
        // The plugin has more against it than what is there by itself: the pods that are to come count as well.
        Some(one) if one.reasons != counts.reasons || one.resolvable != counts.resolvable => {
            one.details.extend(counts.details);
            (one.reasons, one.resolvable) = (counts.reasons, counts.resolvable);
        }
        Some(_) => {}
    }
    all
}

fn room(out: &mut Explanation, cycle: Cycle, filters: &mut Filters, diagnosis: &Diagnosis) {
    out.ineligible = default_preemption::ineligible(cycle, diagnosis);
    if out.ineligible.is_some() {
        return;
    }
    let nodes = default_preemption::potential(cycle, diagnosis);
    let run = default_preemption::dry_run(cycle, filters, nodes.into_iter(), usize::MAX);
    let least = run.candidates.iter().map(default_preemption::cost).min();
    let best = run.candidates.iter().filter(|one| Some(default_preemption::cost(one)) == least);
    out.best_room = best.map(|one| one.node.to_string()).collect();
    let of = |one: &Candidate| {
        let victims = one.victims.iter().map(|pod| pod.reference()).collect();
        (one.node.to_string(), Room { victims, violations: one.violations })
    };
    out.candidates = run.candidates.iter().map(of).collect();
    let unhelped = run.unhelped.iter();
    out.unhelped =
        unhelped.map(|(node, refusal)| (node.to_string(), Objection::new(refusal, Vec::new()))).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    fn node(name: &str, dice: &mut Dice) -> Value {
        let mut labels = json!({"kubernetes.io/hostname": name});
        if dice.below(4) > 0 {
            labels["zone"] = json!(format!("z{}", dice.below(3)));
        }
        json!({"kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}})
    }

    fn pod(name: &str, dice: &mut Dice) -> Value {
        let app = |dice: &mut Dice| format!("a{}", dice.below(3));
        let key = |dice: &mut Dice| if dice.below(2) == 0 { "zone" } else { "kubernetes.io/hostname" };
        let term = |dice: &mut Dice| json!({"topologyKey": key(dice), "labelSelector": {"matchLabels": {"app": app(dice)}}});
        let mut affinity = json!({});
        if dice.below(3) == 0 {
            affinity["podAntiAffinity"] =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": [term(dice)]});
        }
        if dice.below(3) == 0 {
            affinity["podAffinity"] = json!({"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 1 + dice.below(50), "podAffinityTerm": term(dice)}]});
        }
        let spread = json!([{"maxSkew": 1 + dice.below(3), "topologyKey": key(dice), "labelSelector":
            {"matchLabels": {"app": app(dice)}},
            "whenUnsatisfiable": if dice.below(2) == 0 { "DoNotSchedule" } else { "ScheduleAnyway" }}]);
        json!({"kind": "Pod", "metadata": {"name": name, "uid": name, "namespace": "default", "labels": {"app": app(dice)}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}],
                "affinity": affinity, "topologySpreadConstraints": if dice.below(2) == 0 { spread } else { json!([]) }}})
    }

    /// Counts that are kept up to date must say what counting anew says, whatever came and went in whatever order.
    #[test]
    fn a_cluster_that_changed_a_lot_decides_like_one_that_was_always_so() {
        let mut dice = Dice(7);
        for _ in 0..60 {
            let mut lived = Explainer::new(&Configuration::default());
            let (mut nodes, mut pods): (BTreeMap<String, Value>, BTreeMap<String, Value>) =
                Default::default();
            for step in 0..120 {
                match dice.below(7) {
                    0 | 1 => {
                        let name = format!("n{}", dice.below(6));
                        let made = node(&name, &mut dice);
                        lived.add(&made).unwrap();
                        nodes.insert(name, made);
                    }
                    2 => {
                        let name = format!("n{}", dice.below(6));
                        lived.cluster.remove_node(&name);
                        nodes.remove(&name);
                    }
                    3 | 4 => {
                        let name = format!("p{}", dice.below(30));
                        let mut made = pod(&name, &mut dice);
                        made["spec"]["nodeName"] = json!(format!("n{}", dice.below(6)));
                        if dice.below(8) == 0 {
                            made["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                        }
                        lived.add(&made).unwrap();
                        pods.insert(name, made);
                    }
                    5 => {
                        let name = format!("p{}", dice.below(30));
                        lived.cluster.remove_pod(&name);
                        pods.remove(&name);
                    }
                    _ => {
                        // Asking makes counts that must then be kept.
                        lived.explain(&pod(&format!("asked{step}"), &mut dice)).unwrap();
                    }
                }
            }
            let mut fresh = Explainer::new(&Configuration::default());
            for object in nodes.values().chain(pods.values()) {
                fresh.add(object).unwrap();
            }
            for at in 0..10 {
                let asked = pod(&format!("new{at}"), &mut dice);
                assert_eq!(lived.explain(&asked).unwrap(), fresh.explain(&asked).unwrap(), "{asked}");
            }
        }
    }

    #[test]
    fn a_refusal_is_told_in_numbers() {
        let mut explainer = Explainer::new(&Configuration::default());
        let mut dice = Dice(1);
        explainer.add(&node("n1", &mut dice)).unwrap();
        let big = json!({"metadata": {"name": "big", "uid": "b", "namespace": "default"}, "spec": {"containers":
            [{"name": "c", "resources": {"requests": {"cpu": "4500m", "memory": "9Gi"}}}]}});
        let found = explainer.explain(&big).unwrap().unwrap();
        assert_eq!(found.message, "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.");
        assert_eq!(
            found.refused["n1"][0].details,
            [
                "cpu: wants 4500m, 0 of 4 in use, 500m too little",
                "memory: wants 9Gi, 0 of 8Gi in use, 1Gi too little"
            ]
        );
    }
}
