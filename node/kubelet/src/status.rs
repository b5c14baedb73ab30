//! The status of a pod, computed from its specification and everything observed. Pure.

mod containers;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus, ResourceStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use podwire_api::condition;

use podwire_wire::ids::{ContainerId, ContainerName};

use crate::{
    observed::{Observed, RunState},
    resize::Resizing,
    resources, restart,
    spec::{self, Kind},
};

/// Why a container waits, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// One word, e.g. `ErrImagePull`.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// A decision about the pod as a whole that its containers do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Reason, e.g. `Evicted` or `OutOfcpu`.
    pub reason: String,
    /// Sentence for people.
    pub message: String,
    /// Whether the pod has to go for the node's sake, through no fault of its own.
    pub disruption: bool,
}

impl Verdict {
    /// A verdict about the pod itself.
    pub fn new(reason: &str, message: String) -> Verdict {
        Verdict { reason: reason.to_owned(), message, disruption: false }
    }
}

/// What the status is computed from.
pub struct Facts<'a> {
    /// The pod as last heard of, with the status the API holds.
    pub pod: &'a Pod,
    /// What the runtime says.
    pub observed: &'a Observed,
    /// Why containers wait, by name.
    pub waiting: &'a BTreeMap<ContainerName, Waiting>,
    /// Containers (by id) that pass their readiness probe or have none.
    pub ready: &'a BTreeSet<ContainerId>,
    /// Containers (by id) that have started.
    pub started: &'a BTreeSet<ContainerId>,
    /// Crash back-off by container name.
    pub backoff: &'a BTreeMap<ContainerName, restart::Backoff>,
    /// The status last published, if any.
    pub last: Option<&'a PodStatus>,
    /// The runtime's name, the scheme of container ids.
    pub runtime: &'a str,
    /// The node's addresses.
    pub host_ips: &'a [String],
    /// Nothing will be started any more.
    pub stopping: bool,
    /// A verdict, if there is one.
    pub verdict: Option<&'a Verdict>,
    /// How its resize stands.
    pub(crate) resizing: &'a Resizing,
    /// What keeps the pod from beginning: reason and message.
    pub held_up: Option<(&'static str, &'a str)>,
    /// Devices that containers hold, by name.
    pub devices: &'a BTreeMap<ContainerName, Vec<ResourceStatus>>,
    /// Whether drivers have not undone yet what they did for the pod: it has not ended until they have.
    pub claimed: bool,
    /// When the kubelet first took the pod up.
    pub start_time: Timestamp,
    /// Now, in whole seconds.
    pub now: Timestamp,
}

/// The status to publish.
pub fn compute(facts: &Facts<'_>) -> PodStatus {
    let pod = facts.pod;
    let old = facts.last.or(pod.status.as_ref());
    let init: Vec<ContainerStatus> =
        spec::init_containers(pod).iter().map(|c| containers::status(facts, spec::init_kind(c), c)).collect();
    let apps: Vec<ContainerStatus> =
        spec::spec(pod).containers.iter().map(|c| containers::status(facts, Kind::App, c)).collect();
    let ephemeral: Vec<ContainerStatus> = spec::ephemeral_containers(pod)
        .iter()
        .map(|c| containers::status(facts, Kind::Ephemeral, c))
        .collect();
    let phase = phase(facts);
    let ips = pod_ips(facts, old);
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        reason: facts.verdict.map(|v| v.reason.clone()),
        message: facts.verdict.map(|v| v.message.clone()),
        qos_class: Some(resources::qos(pod).as_str().to_owned()),
        start_time: Some(Time(facts.start_time)),
        host_ip: facts.host_ips.first().cloned(),
        host_ips: Some(facts.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.iter().map(|ip| PodIP { ip: ip.clone() }).collect()),
        init_container_statuses: (!init.is_empty()).then_some(init),
        container_statuses: (!apps.is_empty()).then_some(apps),
        ephemeral_container_statuses: (!ephemeral.is_empty()).then_some(ephemeral),
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    };
    // A pod that was turned away never got a container; upstream shows none.
    if facts.verdict.is_some()
        && facts.observed.is_empty()
        && old.is_none_or(|s| s.container_statuses.is_none())
    {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
    }
    status.conditions = Some(conditions(facts, old, &status));
    status
}

fn pod_ips(facts: &Facts<'_>, old: Option<&PodStatus>) -> Vec<String> {
    if spec::host_network(facts.pod) {
        return if facts.observed.sandboxes.is_empty() { Vec::new() } else { facts.host_ips.to_vec() };
    }
    match facts.observed.sandboxes.first() {
        Some(sandbox) if !sandbox.ips.is_empty() => sandbox.ips.clone(),
        _ => old
            .and_then(|s| s.pod_ips.as_deref())
            .unwrap_or_default()
            .iter()
            .map(|ip| ip.ip.clone())
            .collect(),
    }
}

/// Whether every app container has ended for good, or an init container failed for good.
pub fn finished(pod: &Pod, observed: &Observed) -> bool {
    let ended = |kind, c: &k8s_openapi::api::core::v1::Container| {
        observed
            .newest(&c.name)
            .is_some_and(|n| n.state == RunState::Exited && !restart::should_restart(pod, kind, c, n))
    };
    let init_failed = spec::init_containers(pod).iter().any(|c| {
        spec::init_kind(c) == Kind::Init
            && ended(Kind::Init, c)
            && observed.newest(&c.name).is_some_and(|n| n.exit_code != 0)
    });
    let apps = &spec::spec(pod).containers;
    init_failed || (!apps.is_empty() && apps.iter().all(|c| ended(Kind::App, c)))
}

fn phase(facts: &Facts<'_>) -> &'static str {
    let old = facts.pod.status.as_ref().and_then(|s| s.phase.as_deref());
    let published = facts.last.and_then(|s| s.phase.as_deref());
    for settled in [published, old].into_iter().flatten() {
        match settled {
            "Succeeded" => return "Succeeded",
            "Failed" => return "Failed",
            _ => {}
        }
    }
    let busy = facts.observed.any_running() || facts.claimed;
    if facts.verdict.is_some() {
        return if busy { live_phase(facts) } else { "Failed" };
    }
    let done = facts.stopping || finished(facts.pod, facts.observed);
    if !done || busy {
        return live_phase(facts);
    }
    let pod = facts.pod;
    let codes: Vec<Option<i32>> = spec::init_containers(pod)
        .iter()
        .filter(|c| spec::init_kind(c) == Kind::Init)
        .chain(&spec::spec(pod).containers)
        .map(|c| facts.observed.newest(&c.name).filter(|n| n.state == RunState::Exited).map(|n| n.exit_code))
        .collect();
    if codes.iter().all(Option::is_none) {
        return if facts.stopping && pod.metadata.deletion_timestamp.is_some() {
            "Failed"
        } else {
            "Pending"
        };
    }
    let init_gone = |code: &Option<i32>| matches!(code, Some(0));
    if codes.iter().all(init_gone) { "Succeeded" } else { "Failed" }
}

fn live_phase(facts: &Facts<'_>) -> &'static str {
    let pod = facts.pod;
    let observed = facts.observed;
    let apps = &spec::spec(pod).containers;
    let begun = |name: &str| {
        observed.named(name).any(|c| matches!(c.state, RunState::Running | RunState::Exited))
            || facts.last.or(pod.status.as_ref()).is_some_and(|s| containers::ran_before(s, name))
    };
    if apps.iter().any(|c| !begun(&c.name)) { "Pending" } else { "Running" }
}

fn conditions(facts: &Facts<'_>, old: Option<&PodStatus>, status: &PodStatus) -> Vec<PodCondition> {
    let pod = facts.pod;
    let phase = status.phase.as_deref().unwrap_or_default();
    // A pod whose last container has stopped is about to lose its network: saying so now saves a patch.
    let ending = facts.stopping && !facts.observed.any_running();
    let network = !ending
        && facts.observed.ready_sandbox().is_some_and(|s| spec::host_network(pod) || !s.ips.is_empty());
    let initialized = initialized(pod, status, phase);
    let containers_ready = containers_ready(pod, status, phase);
    let ready = gates(pod, old, &containers_ready);
    let flag = |on: bool| Verdicted { status: on, reason: None, message: None };
    let sandbox = match facts.held_up {
        Some((reason, message)) => {
            Verdicted { status: false, reason: Some(reason), message: Some(message.to_owned()) }
        }
        None => flag(network),
    };
    let disrupted = facts.verdict.filter(|verdict| verdict.disruption).map(|verdict| {
        let message = Some(verdict.message.clone());
        ("DisruptionTarget", Verdicted { status: true, reason: Some("TerminationByKubelet"), message })
    });
    [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", flag(true)),
    ]
    .into_iter()
    .chain(disrupted)
    .map(|(name, verdict)| condition(facts, old, name, verdict))
    .chain(facts.resizing.conditions(old, facts.now))
    .collect()
}

#[derive(Clone)]
struct Verdicted {
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

fn condition(facts: &Facts<'_>, old: Option<&PodStatus>, name: &str, verdict: Verdicted) -> PodCondition {
    let status = if verdict.status { "True" } else { "False" };
    let before = old.and_then(|s| find(s, name)).filter(|c| c.status == status);
    PodCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.map(str::to_owned),
        message: verdict.message,
        last_probe_time: None,
        last_transition_time: before.and_then(|c| c.last_transition_time.clone()).or(Some(Time(facts.now))),
        observed_generation: facts.pod.metadata.generation,
    }
}

/// The condition of this type in a status.
pub fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a PodCondition> {
    condition::find(status.conditions.iter().flatten(), name)
}

fn initialized(pod: &Pod, status: &PodStatus, phase: &str) -> Verdicted {
    if phase == "Succeeded" {
        return Verdicted { status: true, reason: Some("PodCompleted"), message: None };
    }
    let statuses = status.init_container_statuses.as_deref().unwrap_or_default();
    let lacking: Vec<&str> = spec::init_containers(pod)
        .iter()
        .filter(|c| {
            statuses.iter().find(|s| s.name == c.name).is_none_or(|s| match spec::init_kind(c) {
                Kind::Sidecar => s.started != Some(true),
                _ => !s.ready,
            })
        })
        .map(|c| c.name.as_str())
        .collect();
    listed(&lacking, "ContainersNotInitialized", "containers with incomplete status: ")
}

fn containers_ready(pod: &Pod, status: &PodStatus, phase: &str) -> Verdicted {
    match phase {
        "Succeeded" => return Verdicted { status: false, reason: Some("PodCompleted"), message: None },
        "Failed" => return Verdicted { status: false, reason: Some("PodFailed"), message: None },
        _ => {}
    }
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    let apps = status.container_statuses.as_deref().unwrap_or_default();
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::init_kind(c) == Kind::Sidecar);
    let lacking: Vec<&str> = sidecars
        .map(|c| (c, init))
        .chain(spec::spec(pod).containers.iter().map(|c| (c, apps)))
        .filter(|(c, statuses)| !statuses.iter().any(|s| s.name == c.name && s.ready))
        .map(|(c, _)| c.name.as_str())
        .collect();
    listed(&lacking, "ContainersNotReady", "containers with unready status: ")
}

fn listed(lacking: &[&str], reason: &'static str, text: &str) -> Verdicted {
    if lacking.is_empty() {
        return Verdicted { status: true, reason: None, message: None };
    }
    Verdicted { status: false, reason: Some(reason), message: Some(format!("{text}[{}]", lacking.join(" "))) }
}

fn gates(pod: &Pod, old: Option<&PodStatus>, containers: &Verdicted) -> Verdicted {
    if !containers.status {
        return containers.clone();
    }
    // Gates are set by others, so they are read from what the API holds.
    let held = pod.status.as_ref().or(old);
    let complaints: Vec<String> = spec::spec(pod)
        .readiness_gates
        .as_deref()
        .unwrap_or_default()
        .iter()
        .filter_map(|gate| {
            let name = &gate.condition_type;
            match held.and_then(|s| find(s, name)) {
                None => {
                    Some(format!("corresponding condition of pod readiness gate \"{name}\" does not exist."))
                }
                Some(c) if c.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{name}\" is not \"True\", but {}",
                    c.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if complaints.is_empty() {
        return containers.clone();
    }
    Verdicted { status: false, reason: Some("ReadinessGatesNotReady"), message: Some(complaints.join(", ")) }
}

/// The entry of a container in a whole status.
pub fn container_entry<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    containers::find(status, name)
}

pub(crate) use containers::{ran_before, seconds as time};

#[cfg(test)]
mod tests;
