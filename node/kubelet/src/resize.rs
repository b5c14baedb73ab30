//! In-place resize: what a pod was given, what it asks for, and how far the change has come. Pure.
//!
//! The worker's pod carries what the pod was *given*; the object in the API may ask for something else, which then waits.
//! States and words: <https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Container as Spec, ContainerStatus, Pod, PodCondition, PodStatus, ResourceRequirements},
    apimachinery::pkg::apis::meta::v1::Time,
};
use podwire_api::pod_resources::Requirements;
use podwire_wire::{cri, ids::ContainerId};
use serde::Serialize;

use crate::{
    admission::Unfit,
    observed::{Container, Observed, RunState},
    resources,
    spec::{self, Kind},
    status,
};

/// The condition of a pod that waits for the resources it asks for.
pub(crate) const PENDING: &str = "PodResizePending";
/// The condition of a pod that was given other resources which are not all in force yet.
pub(crate) const IN_PROGRESS: &str = "PodResizeInProgress";

/// The resources of a pod's containers, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocation(BTreeMap<String, Option<ResourceRequirements>>);

impl Allocation {
    /// What a pod's specification says.
    pub(crate) fn of(pod: &Pod) -> Allocation {
        let all = resizable(pod).map(|container| (container.name.clone(), container.resources.clone()));
        Allocation(all.collect())
    }

    /// What an earlier kubelet said it had given to the pod; what it said nothing of is as the specification has it.
    pub(crate) fn told(pod: &Pod) -> Allocation {
        let told = pod.status.as_ref();
        let all = resizable(pod).map(|container| {
            let entry = told.and_then(|status| status::container_entry(status, &container.name));
            let given = entry.and_then(|entry| given(entry, container));
            (container.name.clone(), given.or_else(|| container.resources.clone()))
        });
        Allocation(all.collect())
    }

    /// Whether the amounts are those of `other`, however they are written.
    pub(crate) fn is(&self, other: &Allocation) -> bool {
        let amounts =
            |of: &Option<ResourceRequirements>| of.as_ref().map(Requirements::from).unwrap_or_default();
        self.0.len() == other.0.len()
            && self.0.iter().all(|(name, own)| {
                other.0.get(name).is_some_and(|theirs| own == theirs || amounts(own) == amounts(theirs))
            })
    }

    /// The pod with these resources.
    pub(crate) fn given_to(&self, pod: &Pod) -> Pod {
        let mut pod = pod.clone();
        let Some(spec) = &mut pod.spec else { return pod };
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            if let Some(resources) = self.0.get(&container.name) {
                container.resources.clone_from(resources);
            }
        }
        pod
    }
}

fn resizable(pod: &Pod) -> impl Iterator<Item = &Spec> {
    spec::init_containers(pod).iter().chain(&spec::spec(pod).containers)
}

/// The requests are told exactly, the limits as they are in force.
fn given(entry: &ContainerStatus, container: &Spec) -> Option<ResourceRequirements> {
    let actual = entry.resources.as_ref()?;
    let mut given = container.resources.clone().unwrap_or_default();
    given.requests = entry.allocated_resources.clone().or_else(|| actual.requests.clone());
    given.limits.clone_from(&actual.limits);
    Some(given)
}

/// Why a pod does not have what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Whether it can, and what is in the way.
    pub(crate) unfit: Unfit,
    /// The generation that asks for it.
    pub(crate) generation: Option<i64>,
}

impl Pending {
    /// Upstream's word for it.
    pub(crate) fn reason(&self) -> &'static str {
        match self.unfit {
            Unfit::Never(_) => "Infeasible",
            Unfit::Now(_) => "Deferred",
        }
    }

    /// What is in the way.
    pub(crate) fn message(&self) -> &str {
        match &self.unfit {
            Unfit::Never(refused) | Unfit::Now(refused) => &refused.message,
        }
    }

    /// Whether it is worth saying beside `before`: the same obstacle in other numbers is not.
    pub(crate) fn is_news_after(&self, before: Option<&Pending>) -> bool {
        before.is_none_or(|b| b.reason() != self.reason() || b.generation != self.generation)
    }
}

/// A change that was granted and is being carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InProgress {
    /// The generation that asked for it.
    pub(crate) generation: Option<i64>,
    /// Why it has not come about.
    pub(crate) error: Option<String>,
}

/// How a pod's resize stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resizing {
    /// The pod as the API has it, while it asks for other resources than it was given.
    pub(crate) desired: Option<Arc<Pod>>,
    /// Why it has not been given them.
    pub(crate) pending: Option<Pending>,
    /// What was granted last, until it is in force.
    pub(crate) progress: Option<InProgress>,
    /// Whether containers may lack something of what the pod was given.
    pub(crate) look: bool,
    /// Whether some are being changed.
    pub(crate) busy: bool,
    /// When what failed is tried again.
    pub(crate) retry_at: Option<jiff::Timestamp>,
}

impl Resizing {
    /// Takes up what an earlier kubelet told of the pod; gives the pod with what it was given.
    pub(crate) fn adopt(pod: &Arc<Pod>) -> (Resizing, Arc<Pod>) {
        let mut resizing = Resizing::default();
        let told = pod.status.as_ref().and_then(|status| status::find(status, IN_PROGRESS));
        resizing.progress = told.map(|condition| InProgress {
            generation: condition.observed_generation,
            error: condition.message.clone().filter(|_| condition.reason.as_deref() == Some("Error")),
        });
        let pod = resizing.hear(&Allocation::told(pod), pod.clone());
        (resizing, pod)
    }

    /// A newer object of the pod, which was given `allocation`; gives it with what the pod was given.
    pub(crate) fn hear(&mut self, allocation: &Allocation, pod: Arc<Pod>) -> Arc<Pod> {
        if allocation.is(&Allocation::of(&pod)) {
            self.desired = None;
            self.pending = None;
            return pod;
        }
        let given = Arc::new(allocation.given_to(&pod));
        self.desired = Some(pod);
        given
    }

    /// The conditions to show; `old` tells since when.
    pub(crate) fn conditions(&self, old: Option<&PodStatus>, now: jiff::Timestamp) -> Vec<PodCondition> {
        let condition = |name: &str, reason: Option<&str>, message: Option<&str>, generation: Option<i64>| {
            let before = old.and_then(|status| status::find(status, name));
            PodCondition {
                type_: name.to_owned(),
                status: "True".to_owned(),
                reason: reason.map(str::to_owned),
                message: message.map(str::to_owned),
                last_probe_time: None,
                last_transition_time: before.and_then(|c| c.last_transition_time.clone()).or(Some(Time(now))),
                observed_generation: generation,
            }
        };
        let pending = self
            .pending
            .as_ref()
            .map(|p| condition(PENDING, Some(p.reason()), Some(p.message()), p.generation));
        let progress = self.progress.as_ref().map(|p| {
            condition(IN_PROGRESS, p.error.as_ref().map(|_| "Error"), p.error.as_deref(), p.generation)
        });
        pending.into_iter().chain(progress).collect()
    }
}

/// One running container whose resources are to change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Its id.
    pub(crate) id: ContainerId,
    /// Its name.
    pub(crate) name: String,
    /// What it shall have.
    pub(crate) wanted: cri::LinuxContainerResources,
    /// Whether it gets less memory than it may use now.
    pub(crate) shrinks: bool,
    /// Whether it asked to be restarted for such a change.
    pub(crate) restart: bool,
}

/// The running containers that do not have what their specification gives them.
pub(crate) fn changes(pod: &Pod, observed: &Observed, node_memory: i64) -> Vec<Change> {
    let of_one = |(kind, container): (Kind, Spec)| {
        let running = observed.newest(&container.name).filter(|c| c.state == RunState::Running)?;
        let applied = running.resources.as_ref()?;
        let wanted = resources::linux(pod, kind, &container, node_memory);
        change(&container, running, applied, wanted)
    };
    spec::containers(pod).into_iter().filter_map(of_one).collect()
}

fn change(
    container: &Spec,
    running: &Container,
    applied: &cri::LinuxContainerResources,
    wanted: cri::LinuxContainerResources,
) -> Option<Change> {
    // Runtimes say "no limit" in either way.
    let quota = |of: &cri::LinuxContainerResources| of.cpu_quota.max(0);
    let memory = |of: &cri::LinuxContainerResources| of.memory_limit_in_bytes.max(0);
    let cpu = applied.cpu_shares != wanted.cpu_shares || quota(applied) != quota(&wanted);
    let (has, gets) = (memory(applied), memory(&wanted));
    let asks = |name: &str| spec::restarts_to_resize(container, name);
    // Nothing in force follows from a request of memory: it matters to a container that starts anew with it.
    let asked = running.memory_request.is_some_and(|asked| asked != spec::memory_request(container));
    let request = asked && asks("memory");
    if !cpu && has == gets && !request {
        return None;
    }
    Some(Change {
        id: running.id.clone(),
        name: container.name.clone(),
        shrinks: gets > 0 && (has == 0 || gets < has),
        restart: (cpu && asks("cpu")) || (has != gets && asks("memory")) || request,
        wanted,
    })
}

/// Why the memory of these containers cannot be lowered to what is wanted, if they use more than that.
pub(crate) fn too_small(changes: &[Change], usage: impl Fn(&ContainerId) -> Option<u64>) -> Option<String> {
    let complaint = |change: &Change| {
        let limit = change.wanted.memory_limit_in_bytes;
        let name = &change.name;
        match usage(&change.id) {
            None => Some(format!("missing container {name:?} memory usage")),
            Some(used) if used >= u64::try_from(limit).unwrap_or_default() => Some(format!(
                "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
            )),
            Some(_) => None,
        }
    };
    let all: Vec<String> =
        changes.iter().filter(|change| change.shrinks && !change.restart).filter_map(complaint).collect();
    let said = match all.as_slice() {
        [] => return None,
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Some(format!("cannot decrease memory limits: {said}"))
}

/// The resources a container has, where its specification names any: as the runtime applied them.
pub(crate) fn actual(container: &Spec, running: Option<&Container>) -> Option<ResourceRequirements> {
    let mut all = container.resources.clone()?;
    let Some(applied) = running.and_then(|running| running.resources.as_ref()) else { return Some(all) };
    if let Some(limits) = &mut all.limits {
        put(limits, "cpu", milli_limit(applied), MIN_MILLI_LIMIT, true);
        let memory = Some(applied.memory_limit_in_bytes).filter(|bytes| *bytes > 0);
        put(limits, "memory", memory, 0, false);
    }
    if let Some(requests) = &mut all.requests {
        put(requests, "cpu", milli_request(applied), resources::MIN_SHARES, true);
    }
    Some(all)
}

/// Below this the kernel makes no difference.
const MIN_MILLI_LIMIT: i64 = 10;

type Quantities = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// Writes what is in force unless it is the same amount, or both are too small to tell apart.
fn put(list: &mut Quantities, name: &str, actual: Option<i64>, least: i64, milli: bool) {
    let Some(actual) = actual else { return };
    let told = list
        .get(name)
        .and_then(|told| podwire_api::quantity::Quantity::parse(&told.0).ok())
        .map_or(0, |told| if milli { told.milli_value() } else { told.value() });
    if told == actual || (told <= least && actual <= least) {
        return;
    }
    let text = match milli {
        true if actual % 1000 == 0 => (actual / 1000).to_string(),
        true => format!("{actual}m"),
        false => actual.to_string(),
    };
    list.insert(name.to_owned(), k8s_openapi::apimachinery::pkg::api::resource::Quantity(text));
}

fn milli_limit(applied: &cri::LinuxContainerResources) -> Option<i64> {
    (applied.cpu_quota > 0 && applied.cpu_period > 0)
        .then(|| (applied.cpu_quota.saturating_mul(1000)) / applied.cpu_period)
}

fn milli_request(applied: &cri::LinuxContainerResources) -> Option<i64> {
    // Rounded up, so that what was rounded down on its way in comes out as it was.
    (applied.cpu_shares > 0).then(|| applied.cpu_shares.saturating_mul(1000).saturating_add(1023) / 1024)
}

/// What an event says of a resize: upstream's prefix and a summary for programs.
pub(crate) fn told(prefix: &str, pod: &Pod, generation: Option<i64>, error: Option<&str>) -> String {
    #[derive(Serialize)]
    struct One<'a> {
        name: &'a str,
        resources: ResourceRequirements,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Summary<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        init_containers: Vec<One<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<One<'a>>,
        generation: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    }
    fn all(containers: &[Spec]) -> Vec<One<'_>> {
        containers
            .iter()
            .map(|c| One { name: &c.name, resources: c.resources.clone().unwrap_or_default() })
            .collect()
    }
    let summary = Summary {
        init_containers: all(spec::init_containers(pod)),
        containers: all(&spec::spec(pod).containers),
        generation: generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(json) => format!("{prefix}: {json}"),
        Err(_) => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests;
