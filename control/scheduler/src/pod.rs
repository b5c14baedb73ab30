//! What the scheduler keeps of a pod: read once, then shared. Pure.
//!
//! Most pods are copies of one template but for their names: what they have in common is kept once (`Template`).

use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodAffinityTerm, PodSpec, Toleration as TypedToleration,
    TopologySpreadConstraint, Volume, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;
use podwire_api::quantity::Quantity;
use podwire_api::selector::{LabelSelector, NodePreferences, RequiredNodeAffinity, lookup};
use podwire_api::toleration::Toleration as BorrowedToleration;
use podwire_api::{condition, owner};

use crate::node::Labels;
use crate::plugins::dynamic_resources::extended;
use crate::resources::{Resources, pod_requests};

/// A port of the node that a pod occupies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPort {
    pub(crate) ip: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
}

impl HostPort {
    /// Whether both cannot be had on one node.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (any(&self.ip) || any(&other.ip) || self.ip == other.ip)
    }
}

/// A volume claim that a pod needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VolumeClaim {
    /// It is named.
    Named(String),
    /// A controller makes it for this pod's volume of this name.
    Ephemeral(String),
}

impl VolumeClaim {
    /// What the claim of the pod `pod` is called.
    pub(crate) fn name(&self, pod: &str) -> String {
        match self {
            Self::Named(name) => name.clone(),
            Self::Ephemeral(volume) => format!("{pod}-{volume}"),
        }
    }
}

/// An entry of a pod's `resourceClaims`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DeviceClaim {
    /// What its containers call it.
    pub(crate) entry: String,
    /// The claim, if it is named.
    pub(crate) named: Option<String>,
    /// Whether a controller makes the claim for this pod.
    pub(crate) generated: bool,
}

/// What one container asks for, of a pod that asks for extended resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerWants {
    pub(crate) name: String,
    /// It ends before the others begin.
    pub(crate) short_lived: bool,
    /// Whole amounts of everything, by name.
    pub(crate) requests: Vec<(String, i64)>,
}

/// A disk that only one pod may use, but for readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Which cloud's, and which of its disks.
    pub(crate) id: String,
    /// Where it is served from, where that can differ: one in common is enough to be the same disk.
    pub(crate) servers: Vec<String>,
    /// Whether readers may share it.
    pub(crate) shared_by_readers: bool,
    pub(crate) read_only: bool,
}

/// What a pod tolerates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Toleration {
    key: String,
    operator: String,
    value: String,
    pub(crate) effect: String,
}

impl Disk {
    /// Whether two pods with these cannot share a node.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let readers = self.shared_by_readers && self.read_only && other.read_only;
        let same = self.id == other.id
            && (self.servers.is_empty() || self.servers.iter().any(|one| other.servers.contains(one)));
        same && !readers
    }
}

impl From<&TypedToleration> for Toleration {
    fn from(one: &TypedToleration) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Self {
            key: text(&one.key),
            operator: text(&one.operator),
            value: text(&one.value),
            effect: text(&one.effect),
        }
    }
}

impl<'a> From<&'a Toleration> for BorrowedToleration<'a> {
    fn from(one: &'a Toleration) -> Self {
        Self { key: &one.key, operator: &one.operator, value: &one.value, effect: &one.effect }
    }
}

/// How pods with some labels must be spread over the values of a node label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spread {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: String,
    /// Whether the constraint forbids nodes, or only ranks them.
    pub(crate) hard: bool,
    /// Counts the pods that are spread; `None` counts none.
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) min_domains: i64,
    pub(crate) honor_affinity: bool,
    pub(crate) honor_taints: bool,
}

/// Which other pods to be near to or far from, and what near means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PodTerm {
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) topology_key: String,
    pub(crate) weight: i64,
}

impl PodTerm {
    /// Whether a pod in `namespace`, which has `namespace_labels`, that has `labels` is meant.
    pub(crate) fn selects(
        &self,
        namespace: &str,
        namespace_labels: Option<&Labels>,
        labels: &Labels,
    ) -> bool {
        let here = self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                selector.matches_with(|key| namespace_labels?.get(key).map(String::as_str))
            });
        here && self.selector.as_ref().is_some_and(|selector| selector.matches_with(lookup(labels)))
    }

    /// Whether `pod`, whose namespace has `namespace_labels`, is meant.
    pub(crate) fn matches(&self, pod: &Template, namespace_labels: Option<&Labels>) -> bool {
        self.selects(&pod.namespace, namespace_labels, &pod.labels)
    }
}

/// What pods that differ in name only have in common.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
    pub(crate) scheduler: String,
    pub(crate) priority: i32,
    pub(crate) never_preempts: bool,
    pub(crate) gates: Vec<String>,
    pub(crate) requests: Resources,
    pub(crate) nonzero: Resources,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) required_nodes: RequiredNodeAffinity,
    pub(crate) preferred_nodes: NodePreferences,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) images: Vec<String>,
    /// Containers of both sorts, without volumes of images.
    pub(crate) containers: usize,
    pub(crate) spread: Vec<Arc<Spread>>,
    pub(crate) near: Vec<Arc<PodTerm>>,
    pub(crate) far: Vec<Arc<PodTerm>>,
    pub(crate) near_preferred: Vec<Arc<PodTerm>>,
    pub(crate) far_preferred: Vec<Arc<PodTerm>>,
    /// Volume claims it names, and those that are made for it alone.
    pub(crate) volume_claims: Vec<VolumeClaim>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) device_claims: Vec<DeviceClaim>,
    /// Init containers first; empty if it asks for no resource that devices may stand for.
    pub(crate) container_wants: Vec<ContainerWants>,
    /// Version, kind and name of what controls it.
    pub(crate) controller: Option<(String, String, String)>,
}

impl Template {
    fn new(pod: &Pod, spec: &PodSpec) -> Self {
        let meta = &pod.metadata;
        let requests = pod_requests(pod);
        let labels = meta.labels.clone().unwrap_or_default();
        let namespace = meta.namespace.clone().unwrap_or_default();
        let terms = PodTerms::new(spec.affinity.as_ref(), &namespace, &labels);
        let spread = spec.topology_spread_constraints.iter().flatten();
        let volumes = || spec.volumes.iter().flatten();
        let controller = owner::controller(meta.owner_references.iter().flatten());
        Self {
            scheduler: spec.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".into()),
            priority: spec.priority.unwrap_or_default(),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
            container_wants: container_wants(spec, &requests.exact),
            requests: requests.exact,
            nonzero: requests.nonzero,
            ports: host_ports(spec),
            required_nodes: spec.into(),
            preferred_nodes: spec.into(),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::from).collect(),
            images: images(spec),
            containers: spec.containers.len() + spec.init_containers.iter().flatten().count(),
            spread: spread.map(|one| Arc::new(spread_of(one, &labels))).collect(),
            near: terms.near,
            far: terms.far,
            near_preferred: terms.near_preferred,
            far_preferred: terms.far_preferred,
            volume_claims: volumes().filter_map(volume_claim).collect(),
            disks: volumes().filter_map(disk).collect(),
            device_claims: device_claims(spec),
            controller: controller.map(|one| (one.api_version.clone(), one.kind.clone(), one.name.clone())),
            namespace,
            labels,
        }
    }
}

/// Enough to tell most templates apart; equality compares everything.
impl Hash for Template {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.namespace, &self.labels, self.priority, &self.images).hash(state);
        (self.requests.milli_cpu, self.requests.memory).hash(state);
        (&self.controller, self.near.len(), self.far.len(), self.volume_claims.len()).hash(state);
        (&self.required_nodes, &self.tolerations).hash(state);
        if let Some(first) = self.volume_claims.first() {
            first.name("").hash(state);
        }
        self.device_claims.hash(state);
    }
}

impl Eq for Template {}

/// The templates of the pods that are known.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    all: HashSet<Arc<Template>>,
    /// How many there may be before those without pods are dropped.
    sweep_at: usize,
}

impl Templates {
    fn share(&mut self, template: Template) -> Arc<Template> {
        if let Some(known) = self.all.get(&template) {
            return known.clone();
        }
        if self.all.len() >= self.sweep_at.max(1024) {
            self.all.retain(|one| Arc::strong_count(one) > 1);
            self.sweep_at = self.all.len() * 2;
        }
        let shared = Arc::new(template);
        self.all.insert(shared.clone());
        shared
    }
}

/// A pod as the scheduler sees it.
#[derive(Debug, Clone)]
pub(crate) struct PodInfo {
    pub(crate) name: Box<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: Box<str>,
    pub(crate) generation: i64,
    /// Where it runs, or is about to.
    pub(crate) node: Option<Arc<str>>,
    pub(crate) nominated: Option<Arc<str>>,
    pub(crate) deleting: bool,
    /// It is leaving because the scheduler made it leave.
    pub(crate) preempted: bool,
    pub(crate) terminal: bool,
    /// Nanoseconds since 1970, for the age of victims.
    pub(crate) started: i64,
    /// Reason and message of a false `PodScheduled` condition.
    pub(crate) reported: Option<Box<(String, String)>>,
    /// The claims that were made for its entries; `None` if none is needed.
    pub(crate) made_claims: Box<[(String, Option<String>)]>,
    pub(crate) template: Arc<Template>,
}

impl Deref for PodInfo {
    type Target = Template;

    fn deref(&self) -> &Template {
        &self.template
    }
}

impl PodInfo {
    /// Reads a pod; `None` for one without spec or uid, which no server sends.
    pub(crate) fn new(pod: &Pod, templates: &mut Templates) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let meta = &pod.metadata;
        let status = pod.status.as_ref();
        let given = |name: &Option<String>| name.as_deref().filter(|name| !name.is_empty()).map(Arc::from);
        let node = given(&spec.node_name);
        let waits = node.is_none();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        Some(Self {
            name: meta.name.as_deref()?.into(),
            uid: meta.uid.as_deref()?.into(),
            resource_version: if waits { version.into() } else { Box::default() },
            generation: meta.generation.unwrap_or_default(),
            node,
            nominated: status.and_then(|status| given(&status.nominated_node_name)),
            deleting: meta.deletion_timestamp.is_some(),
            preempted: meta.deletion_timestamp.is_some() && preempted(pod),
            terminal: status
                .and_then(|status| status.phase.as_deref())
                .is_some_and(|phase| phase == "Succeeded" || phase == "Failed"),
            started: status
                .and_then(|status| status.start_time.as_ref())
                .map_or(i64::MAX, |time| i64::try_from(time.0.as_nanosecond()).unwrap_or(i64::MAX)),
            reported: if waits { reported(pod).map(Box::new) } else { None },
            made_claims: if waits { made_claims(pod) } else { Box::default() },
            template: templates.share(Template::new(pod, spec)),
        })
    }

    /// As arrows name it.
    pub(crate) fn traced(&self) -> podwire_trace::Pod<'_> {
        podwire_trace::Pod { uid: &self.uid, namespace: &self.namespace, name: &self.name }
    }

    /// `namespace/name`, as events and logs name it.
    pub(crate) fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn container_wants(spec: &PodSpec, sum: &Resources) -> Vec<ContainerWants> {
    if !sum.scalar.keys().any(|name| extended::is_possible(name)) {
        return Vec::new();
    }
    let read = |(one, init): (&Container, bool)| ContainerWants {
        name: one.name.clone(),
        short_lived: init && one.restart_policy.as_deref() != Some("Always"),
        requests: {
            let asked = one.resources.iter().flat_map(|all| all.requests.iter().flatten());
            asked.map(|(name, amount)| (name.clone(), Quantity::from(amount).value())).collect()
        },
    };
    let init = spec.init_containers.iter().flatten().map(|one| (one, true));
    init.chain(spec.containers.iter().map(|one| (one, false))).map(read).collect()
}

fn device_claims(spec: &PodSpec) -> Vec<DeviceClaim> {
    let read = spec.resource_claims.iter().flatten().map(|claim| DeviceClaim {
        entry: claim.name.clone(),
        named: claim.resource_claim_name.clone(),
        generated: claim.resource_claim_template_name.is_some(),
    });
    read.collect()
}

fn made_claims(pod: &Pod) -> Box<[(String, Option<String>)]> {
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    made.map(|one| (one.name.clone(), one.resource_claim_name.clone())).collect()
}

/// The claim that a volume stands on.
fn volume_claim(volume: &Volume) -> Option<VolumeClaim> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(VolumeClaim::Named(claim.claim_name.clone())),
        (None, Some(_)) => Some(VolumeClaim::Ephemeral(volume.name.clone())),
        (None, None) => None,
    }
}

/// The disk that a volume names itself, of the kinds that conflict with each other.
fn disk(volume: &Volume) -> Option<Disk> {
    let shared = |id: String, read_only: Option<bool>, servers: Vec<String>| {
        Some(Disk { id, servers, shared_by_readers: true, read_only: read_only.unwrap_or_default() })
    };
    if let Some(gce) = &volume.gce_persistent_disk {
        return shared(format!("gce/{}", gce.pd_name), gce.read_only, Vec::new());
    }
    if let Some(aws) = &volume.aws_elastic_block_store {
        let id = format!("aws/{}", aws.volume_id);
        return Some(Disk { id, servers: Vec::new(), shared_by_readers: false, read_only: false });
    }
    if let Some(iscsi) = &volume.iscsi {
        return shared(format!("iscsi/{}", iscsi.iqn), iscsi.read_only, Vec::new());
    }
    let rbd = volume.rbd.as_ref()?;
    let pool = rbd.pool.as_deref().unwrap_or("rbd");
    shared(format!("rbd/{pool}/{}", rbd.image), rbd.read_only, rbd.monitors.clone())
}

fn preempted(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .and_then(|all| condition::find(all, "DisruptionTarget"))
        .is_some_and(|one| one.status == "True" && one.reason.as_deref() == Some("PreemptionByScheduler"))
}

fn reported(pod: &Pod) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = condition::find(conditions, "PodScheduled").filter(|one| one.status == "False")?;
    Some((condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default()))
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecar = |one: &&Container| one.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(sidecar);
    let ports = spec.containers.iter().chain(sidecars).flat_map(|one| one.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let text = |value: &Option<String>, default: &str| {
                value.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
            };
            Some(HostPort {
                ip: text(&port.host_ip, "0.0.0.0"),
                protocol: text(&port.protocol, "TCP"),
                port: number,
            })
        })
        .collect()
}

fn images(spec: &PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.clone());
    containers
        .filter_map(|one| one.image.clone())
        .chain(volumes)
        .map(|image| normalized_image(&image))
        .collect()
}

/// Gives an image name the tag that nodes report for it.
pub(crate) fn normalized_image(image: &str) -> String {
    let tagged = image.rfind(':').is_some_and(|colon| image.rfind('/').is_none_or(|slash| colon > slash));
    if tagged { image.to_owned() } else { format!("{image}:latest") }
}

/// A selector that cannot be read, which no server accepts, selects nothing.
fn readable(selector: &TypedSelector) -> LabelSelector {
    LabelSelector::try_from(selector).unwrap_or_else(|_| LabelSelector::nothing())
}

fn spread_of(one: &TopologySpreadConstraint, labels: &Labels) -> Spread {
    let mut selector = one.label_selector.as_ref().map(readable);
    if let Some(selector) = &mut selector {
        for key in one.match_label_keys.iter().flatten() {
            if let Some(value) = labels.get(key) {
                selector.require(key, value, true);
            }
        }
    }
    Spread {
        max_skew: i64::from(one.max_skew),
        topology_key: one.topology_key.clone(),
        hard: one.when_unsatisfiable == "DoNotSchedule",
        selector,
        min_domains: one.min_domains.map_or(1, i64::from),
        honor_affinity: one.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: one.node_taints_policy.as_deref() == Some("Honor"),
    }
}

#[derive(Default)]
struct PodTerms {
    near: Vec<Arc<PodTerm>>,
    far: Vec<Arc<PodTerm>>,
    near_preferred: Vec<Arc<PodTerm>>,
    far_preferred: Vec<Arc<PodTerm>>,
}

impl PodTerms {
    fn new(affinity: Option<&Affinity>, namespace: &str, labels: &Labels) -> Self {
        let required = |list: &Option<Vec<PodAffinityTerm>>| {
            list.iter().flatten().map(|one| pod_term(one, 1, namespace, labels)).collect()
        };
        let preferred = |list: &Option<Vec<WeightedPodAffinityTerm>>| {
            list.iter()
                .flatten()
                .map(|one| pod_term(&one.pod_affinity_term, i64::from(one.weight), namespace, labels))
                .collect()
        };
        let mut out = Self::default();
        if let Some(near) = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()) {
            out.near = required(&near.required_during_scheduling_ignored_during_execution);
            out.near_preferred = preferred(&near.preferred_during_scheduling_ignored_during_execution);
        }
        if let Some(far) = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()) {
            out.far = required(&far.required_during_scheduling_ignored_during_execution);
            out.far_preferred = preferred(&far.preferred_during_scheduling_ignored_during_execution);
        }
        out
    }
}

fn pod_term(term: &PodAffinityTerm, weight: i64, namespace: &str, labels: &Labels) -> Arc<PodTerm> {
    let mut selector = term.label_selector.as_ref().map(readable);
    if let Some(selector) = &mut selector {
        for (keys, equal) in [(&term.match_label_keys, true), (&term.mismatch_label_keys, false)] {
            for key in keys.iter().flatten() {
                if let Some(value) = labels.get(key) {
                    selector.require(key, value, equal);
                }
            }
        }
    }
    let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.insert(namespace.to_owned());
    }
    Arc::new(PodTerm {
        selector,
        namespaces,
        namespace_selector: term.namespace_selector.as_ref().map(readable),
        topology_key: term.topology_key.clone(),
        weight,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_get_the_tag_nodes_report() {
        assert_eq!(normalized_image("nginx"), "nginx:latest");
        assert_eq!(normalized_image("host:5000/nginx"), "host:5000/nginx:latest");
        assert_eq!(normalized_image("host:5000/nginx:1"), "host:5000/nginx:1");
    }

    #[test]
    fn a_port_on_all_addresses_conflicts_with_one_address() {
        let port = |ip: &str| HostPort { ip: ip.into(), protocol: "TCP".into(), port: 80 };
        assert!(port("0.0.0.0").conflicts(&port("127.0.0.1")));
        assert!(!port("127.0.0.2").conflicts(&port("127.0.0.1")));
    }
}
