//! What the scheduler keeps of a pod: read once, then shared. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodAffinityTerm, PodSpec, Toleration, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;
use podwire_api::condition;
use podwire_api::selector::{LabelSelector, NodePreferences, RequiredNodeAffinity, lookup};

use crate::node::Labels;
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
pub(crate) struct VolumeClaim {
    pub(crate) name: String,
    /// Whether a controller makes it for this pod.
    pub(crate) ephemeral: bool,
}

/// How pods with some labels must be spread over the values of a node label.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: String,
    /// Whether the constraint forbids nodes, or only ranks them.
    pub(crate) hard: bool,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) min_domains: i64,
    pub(crate) honor_affinity: bool,
    pub(crate) honor_taints: bool,
}

/// Which other pods to be near to or far from, and what near means.
#[derive(Debug, Clone)]
pub(crate) struct PodTerm {
    selector: Option<LabelSelector>,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<LabelSelector>,
    pub(crate) topology_key: String,
    pub(crate) weight: i64,
}

impl PodTerm {
    /// Whether `pod`, whose namespace has `namespace_labels`, is meant.
    pub(crate) fn matches(&self, pod: &PodInfo, namespace_labels: Option<&Labels>) -> bool {
        let namespace = self.namespaces.contains(&pod.namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                selector.matches_with(|key| namespace_labels?.get(key).map(String::as_str))
            });
        namespace && self.selector.as_ref().is_some_and(|selector| selector.matches_with(lookup(&pod.labels)))
    }
}

/// A pod as the scheduler sees it.
#[derive(Debug, Clone)]
pub(crate) struct PodInfo {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    pub(crate) labels: Labels,
    /// Where it runs, or is about to.
    pub(crate) node: Option<String>,
    pub(crate) scheduler: String,
    pub(crate) priority: i32,
    pub(crate) never_preempts: bool,
    pub(crate) nominated: Option<String>,
    pub(crate) gated: bool,
    pub(crate) deleting: bool,
    pub(crate) terminal: bool,
    /// Seconds since 1970, for the age of victims.
    pub(crate) started: i64,
    pub(crate) requests: Resources,
    pub(crate) nonzero: Resources,
    /// Whether no container asks for CPU or memory.
    pub(crate) best_effort: bool,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) required_nodes: RequiredNodeAffinity,
    pub(crate) preferred_nodes: NodePreferences,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) images: Vec<String>,
    pub(crate) spread: Vec<Spread>,
    pub(crate) near: Vec<PodTerm>,
    pub(crate) far: Vec<PodTerm>,
    pub(crate) near_preferred: Vec<PodTerm>,
    pub(crate) far_preferred: Vec<PodTerm>,
    /// Volume claims it names, and those that are made for it alone.
    pub(crate) volume_claims: Vec<VolumeClaim>,
    /// Names of its entries in `resourceClaims`.
    pub(crate) resource_claims: Vec<String>,
    /// Reason and message of a false `PodScheduled` condition.
    pub(crate) reported: Option<(String, String)>,
}

impl PodInfo {
    /// Reads a pod; `None` for one without spec or uid, which no server sends.
    pub(crate) fn new(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let meta = &pod.metadata;
        let requests = pod_requests(pod);
        let labels = meta.labels.clone().unwrap_or_default();
        let status = pod.status.as_ref();
        let affinity = spec.affinity.as_ref();
        let namespace = meta.namespace.clone().unwrap_or_default();
        let terms = PodTerms::new(affinity, &namespace, &labels);
        Some(Self {
            name: meta.name.clone()?,
            uid: meta.uid.as_deref()?.into(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            node: spec.node_name.clone().filter(|name| !name.is_empty()),
            scheduler: spec.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".into()),
            priority: spec.priority.unwrap_or_default(),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            nominated: status
                .and_then(|status| status.nominated_node_name.clone())
                .filter(|name| !name.is_empty()),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            deleting: meta.deletion_timestamp.is_some(),
            terminal: status
                .and_then(|status| status.phase.as_deref())
                .is_some_and(|phase| phase == "Succeeded" || phase == "Failed"),
            started: status
                .and_then(|status| status.start_time.as_ref())
                .map_or(i64::MAX, |time| time.0.as_second()),
            best_effort: requests.exact.milli_cpu == 0 && requests.exact.memory == 0,
            requests: requests.exact,
            nonzero: requests.nonzero,
            ports: host_ports(spec),
            required_nodes: spec.into(),
            preferred_nodes: spec.into(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            images: images(spec),
            spread: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|one| spread(one, &labels))
                .collect(),
            near: terms.near,
            far: terms.far,
            near_preferred: terms.near_preferred,
            far_preferred: terms.far_preferred,
            volume_claims: volume_claims(spec, meta.name.as_deref().unwrap_or_default()),
            resource_claims: spec.resource_claims.iter().flatten().map(|claim| claim.name.clone()).collect(),
            reported: reported(pod),
            namespace,
            labels,
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

/// The claims that the pod's volumes stand on.
fn volume_claims(spec: &PodSpec, pod: &str) -> Vec<VolumeClaim> {
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(VolumeClaim { name: claim.claim_name.clone(), ephemeral: false }),
            (None, Some(_)) => Some(VolumeClaim { name: format!("{pod}-{}", volume.name), ephemeral: true }),
            (None, None) => None,
        })
        .collect()
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

fn spread(one: &TopologySpreadConstraint, labels: &Labels) -> Spread {
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
    near: Vec<PodTerm>,
    far: Vec<PodTerm>,
    near_preferred: Vec<PodTerm>,
    far_preferred: Vec<PodTerm>,
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

fn pod_term(term: &PodAffinityTerm, weight: i64, namespace: &str, labels: &Labels) -> PodTerm {
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
    PodTerm {
        selector,
        namespaces,
        namespace_selector: term.namespace_selector.as_ref().map(readable),
        topology_key: term.topology_key.clone(),
        weight,
    }
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
