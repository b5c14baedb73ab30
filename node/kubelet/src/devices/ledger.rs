//! Who holds which devices: the one ledger of the node.
//!
//! Pure: no clock, no I/O. [`Ledger::reserve`] decides about a whole pod at once, so that a pod holds all that it asked for
//! or nothing. What a plugin prefers is an argument: where it has to be asked first, the decision says what. A device is
//! held by one pod from its reservation until the pod is gone, whatever becomes of its plugin meanwhile.

mod draft;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::api::core::v1::{Pod, ResourceHealth, ResourceStatus};
use podwire_api::{
    pod_resources::{PodResources, Requirements},
    resources::Resources,
    validate::limits::is_extended,
};
use podwire_wire::{
    device_plugin::ContainerAllocateResponse,
    ids::{ContainerName, PodUid},
};

use super::Amounts;
use crate::{
    admission::Refused,
    claims::resolve,
    spec::{self, Kind},
    topology::{Topology, devices::Devices},
};

/// What a plugin says of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Its name among those of the resource.
    pub(crate) id: String,
    /// Whether it works.
    pub(crate) healthy: bool,
    /// The NUMA nodes it is on, if the plugin says so.
    pub(crate) nodes: Option<Vec<i64>>,
}

/// What stands behind a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plugin {
    /// Nobody: it has been here before.
    Away,
    /// A plugin that has not told its devices yet.
    Silent,
    /// A plugin that tells its devices.
    Serving,
}

/// A resource of device plugins.
#[derive(Clone, Debug)]
struct Resource {
    plugin: Plugin,
    /// Whether the plugin wants to be asked which devices it prefers.
    prefers: bool,
    devices: Devices,
    healthy: BTreeSet<String>,
}

impl Resource {
    fn away() -> Resource {
        Resource { plugin: Plugin::Away, prefers: false, devices: Devices::new(), healthy: BTreeSet::new() }
    }
}

/// Devices of a resource that a container holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Holding {
    /// Their names, with the NUMA nodes they were on when they were given out.
    pub(crate) devices: Devices,
    /// What the plugin said when they were allocated; `None` while they are only reserved.
    pub(crate) response: Option<ContainerAllocateResponse>,
}

/// Holdings of a pod by container and resource.
pub(crate) type Holdings = BTreeMap<(ContainerName, String), Holding>;

/// What a container asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) container: ContainerName,
    pub(crate) kind: Kind,
    /// How many of which resource.
    pub(crate) counts: BTreeMap<String, usize>,
}

/// What a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) pod: PodUid,
    /// In the order in which they are served.
    pub(crate) containers: Vec<Wish>,
    /// What all of them need together, as some run after others.
    pub(crate) whole: BTreeMap<String, usize>,
}

impl Wishes {
    /// What `pod` asks for beyond what every node has.
    pub(crate) fn of(pod: &Pod) -> Wishes {
        let counted = |limits: &Resources| -> BTreeMap<String, usize> {
            let extended = limits.iter().filter(|(name, _)| is_extended(name));
            let counts = extended.map(|(name, amount)| (name.to_owned(), usize::try_from(amount.value())));
            counts.filter_map(|(name, count)| Some((name, count.ok().filter(|count| *count > 0)?))).collect()
        };
        // What a claim stands for is no device plugin's business.
        let covered = resolve::covered(pod);
        let all = spec::containers(pod).into_iter().filter(|(kind, _)| *kind != Kind::Ephemeral);
        let containers = all.map(|(kind, container)| {
            let mut counts = counted(&Requirements::from(&container).limits);
            if let Some(covered) = covered.get(container.name.as_str()) {
                counts.retain(|name, _| !covered.contains(name.as_str()));
            }
            Wish { counts, container: container.name.into(), kind }
        });
        let mut whole = counted(&PodResources::from(spec::spec(pod)).limits());
        whole.retain(|name, _| !covered.values().any(|covered| covered.contains(name.as_str())));
        Wishes { pod: spec::uid(pod).into(), containers: containers.collect(), whole }
    }

    /// Whether nothing is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.containers.iter().all(|wish| wish.counts.is_empty())
    }
}

/// What a plugin is asked before devices are chosen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub(crate) resource: String,
    pub(crate) available: Vec<String>,
    pub(crate) must_include: Vec<String>,
    pub(crate) size: usize,
}

/// What plugins have answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// To what; nothing from one that did not answer in time.
    pub(crate) told: BTreeMap<Question, Vec<String>>,
    /// Nobody is asked any more.
    pub(crate) enough: bool,
}

impl Answers {
    fn to(&self, question: &Question) -> Option<&[String]> {
        self.told.get(question).map(Vec::as_slice).or(self.enough.then_some(&[]))
    }
}

/// What a pod has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The plugin was here and is not now.
    Away { resource: String },
    /// The plugin is here and has not told its devices.
    Silent { resource: String },
    /// None of the plugin's devices works.
    Unhealthy { resource: String },
    /// Those that the pod holds do not work.
    HeldUnhealthy { resource: String },
    /// Pods that are ending have not given theirs back.
    Busy { resource: String, refusal: Refused },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Away { resource } => write!(f, "the device plugin of {resource} is not registered"),
            Lack::Silent { resource } => {
                write!(f, "the device plugin of {resource} has not told its devices")
            }
            Lack::Unhealthy { resource } => write!(f, "no device of {resource} is healthy"),
            Lack::HeldUnhealthy { resource } => {
                write!(f, "devices of {resource} that the pod holds are not healthy")
            }
            Lack::Busy { resource, .. } => {
                write!(f, "pods that are ending have not given back their devices of {resource}")
            }
        }
    }
}

impl Lack {
    /// Why the pod is refused when it has waited long enough, in upstream's words.
    pub(crate) fn refusal(&self) -> Refused {
        match self {
            Lack::Away { resource } | Lack::Silent { resource } | Lack::Unhealthy { resource } => {
                let cause = "no healthy devices present; cannot allocate unhealthy devices";
                unexpected(format_args!("{cause} {resource}"))
            }
            Lack::HeldUnhealthy { resource } => {
                let cause =
                    "previously allocated devices are no longer healthy; cannot allocate unhealthy devices";
                unexpected(format_args!("{cause} {resource}"))
            }
            Lack::Busy { refusal, .. } => refusal.clone(),
        }
    }
}

/// A refusal that upstream did not foresee.
pub(crate) fn unexpected(cause: impl fmt::Display) -> Refused {
    Refused {
        reason: "UnexpectedAdmissionError".to_owned(),
        message: format!("Allocate failed due to {cause}, which is unexpected"),
    }
}

/// What becomes of a pod's wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It holds what it asks for.
    Reserved {
        /// Whether that is news.
        anew: bool,
    },
    /// A plugin has to be asked first.
    Ask(Question),
    /// Not now.
    Wait(Lack),
    /// Not at all.
    Refused(Refused),
}

/// Who holds which devices, and which there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    resources: BTreeMap<String, Resource>,
    held: BTreeMap<PodUid, Holdings>,
    /// Pods that are on their way out.
    ending: BTreeSet<PodUid>,
    /// Whether it is known which of the pods that hold something still exist.
    settled: bool,
}

impl Ledger {
    /// What an earlier kubelet left: the resources it knew, and who held what.
    pub(crate) fn recovered(
        resources: impl IntoIterator<Item = String>,
        held: BTreeMap<PodUid, Holdings>,
    ) -> Ledger {
        let held_of = held.values().flat_map(BTreeMap::keys).map(|(_, resource)| resource.clone());
        let known: BTreeSet<String> = resources.into_iter().chain(held_of).collect();
        let resources = known.into_iter().map(|name| (name, Resource::away())).collect();
        Ledger { resources, held, ..Ledger::default() }
    }

    /// A plugin came, or came again.
    pub(crate) fn registered(&mut self, resource: &str, prefers: bool) {
        let known = self.resources.entry(resource.to_owned()).or_insert_with(Resource::away);
        known.prefers = prefers;
        if known.plugin == Plugin::Away {
            known.plugin = Plugin::Silent;
        }
    }

    /// A plugin tells all of its devices. Says which pods hold one whose health is another than before.
    pub(crate) fn listed(&mut self, resource: &str, devices: Vec<Device>) -> BTreeSet<PodUid> {
        let Some(known) = self.resources.get_mut(resource) else { return BTreeSet::new() };
        let healthy: BTreeSet<String> =
            devices.iter().filter(|device| device.healthy).map(|device| device.id.clone()).collect();
        let first = known.plugin != Plugin::Serving;
        let all: Devices = devices.into_iter().map(|device| (device.id, device.nodes)).collect();
        let before = std::mem::replace(&mut known.healthy, healthy);
        let old = std::mem::replace(&mut known.devices, all);
        known.plugin = Plugin::Serving;
        let known = &self.resources[resource];
        let moved = |id: &String| {
            before.contains(id) != known.healthy.contains(id)
                || old.contains_key(id) != known.devices.contains_key(id)
        };
        self.holders(resource, |id| first || moved(id))
    }

    /// The last plugin of a resource went: its devices are there, and nobody vouches for them.
    pub(crate) fn gone(&mut self, resource: &str) -> BTreeSet<PodUid> {
        let Some(known) = self.resources.get_mut(resource) else { return BTreeSet::new() };
        known.plugin = Plugin::Away;
        known.prefers = false;
        known.healthy.clear();
        self.holders(resource, |_| true)
    }

    /// The plugin has stayed away: its devices are not counted any more.
    pub(crate) fn expired(&mut self, resource: &str) -> BTreeSet<PodUid> {
        match self.resources.get_mut(resource) {
            Some(known) if known.plugin == Plugin::Away => known.devices.clear(),
            _ => return BTreeSet::new(),
        }
        self.holders(resource, |_| true)
    }

    /// Pods that hold a device of `resource` that is so.
    fn holders(&self, resource: &str, is_so: impl Fn(&String) -> bool) -> BTreeSet<PodUid> {
        let holds = |holdings: &Holdings| {
            let of_it = holdings.iter().filter(|((_, name), _)| name == resource);
            of_it.flat_map(|(_, holding)| holding.devices.keys()).any(&is_so)
        };
        self.held.iter().filter(|(_, holdings)| holds(holdings)).map(|(pod, _)| pod.clone()).collect()
    }

    /// Capacity and allocatable of every resource that was ever registered here; of those that went, nothing.
    pub(crate) fn amounts(&self) -> Amounts {
        let counted = |known: &Resource| (known.devices.len(), known.healthy.len());
        self.resources.iter().map(|(name, known)| (name.clone(), counted(known))).collect()
    }

    /// Every healthy device by resource, with the NUMA nodes it is on.
    pub(crate) fn healthy(&self) -> impl Iterator<Item = (&str, &str, Option<&[i64]>)> {
        self.resources.iter().flat_map(|(name, known)| {
            let ids = known.healthy.iter();
            ids.map(|id| (name.as_str(), id.as_str(), known.devices.get(id).and_then(Option::as_deref)))
        })
    }

    /// Reserves what a pod asks for, or says why not. Asked again for a pod that holds its devices it changes nothing.
    pub(crate) fn reserve(&mut self, wishes: &Wishes, topology: &Topology, answers: &Answers) -> Decision {
        match draft::Draft::new(self, wishes, topology, answers).serve() {
            Ok(new) if new.is_empty() => Decision::Reserved { anew: false },
            Ok(new) => {
                self.held.entry(wishes.pod.clone()).or_default().extend(new);
                Decision::Reserved { anew: true }
            }
            Err(stop) => *stop,
        }
    }

    /// What a container holds, by resource.
    pub(crate) fn held_by<'a>(
        &'a self,
        pod: &str,
        container: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Holding)> {
        let all = self.held.get(pod).into_iter().flatten();
        all.filter(move |((name, _), _)| name == container)
            .map(|((_, resource), holding)| (resource.as_str(), holding))
    }

    /// What every pod holds.
    pub(crate) fn held(&self) -> &BTreeMap<PodUid, Holdings> {
        &self.held
    }

    /// The resources and their healthy devices, as the checkpoint names them.
    pub(crate) fn resources(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        self.resources.iter().map(|(name, known)| (name.as_str(), &known.healthy))
    }

    /// Whether a resource is one of device plugins.
    pub(crate) fn knows(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// Devices were allocated. `false`: the pod has given them back meanwhile.
    pub(crate) fn allocated(
        &mut self,
        pod: &str,
        container: &ContainerName,
        resource: &str,
        response: ContainerAllocateResponse,
    ) -> bool {
        let key = (container.clone(), resource.to_owned());
        let holding = self.held.get_mut(pod).and_then(|holdings| holdings.get_mut(&key));
        holding.map(|holding| holding.response = Some(response)).is_some()
    }

    /// The pod is on its way out: what it holds will be free.
    pub(crate) fn ends(&mut self, pod: &PodUid) {
        if self.held.contains_key(pod) {
            self.ending.insert(pod.clone());
        }
    }

    /// Nothing of the pod runs any more. Says whether it held anything.
    pub(crate) fn free(&mut self, pod: &str) -> bool {
        self.ending.remove(pod);
        self.held.remove(pod).is_some()
    }

    /// All pods that there are have been heard of: what others held is free. Says whether anything is.
    pub(crate) fn settle(&mut self, exists: impl Fn(&PodUid) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|pod, _| exists(pod));
        let first = !std::mem::replace(&mut self.settled, true);
        first || self.held.len() != before
    }

    /// The health of what a pod holds, by container.
    pub(crate) fn health(&self, pod: &str) -> BTreeMap<ContainerName, Vec<ResourceStatus>> {
        let mut all: BTreeMap<ContainerName, Vec<ResourceStatus>> = BTreeMap::new();
        for ((container, resource), holding) in self.held.get(pod).into_iter().flatten() {
            let known = self.resources.get(resource);
            let health = |id: &String| match known {
                Some(known) if known.healthy.contains(id) => "Healthy",
                Some(known) if known.devices.contains_key(id) => "Unhealthy",
                _ => "Unknown",
            };
            let resources = holding.devices.keys().map(|id| ResourceHealth {
                resource_id: id.clone(),
                health: Some(health(id).to_owned()),
                ..ResourceHealth::default()
            });
            let status = ResourceStatus { name: resource.clone(), resources: Some(resources.collect()) };
            all.entry(container.clone()).or_default().push(status);
        }
        all
    }
}

#[cfg(test)]
mod tests;
