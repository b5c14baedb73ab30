//! Devices of plugins: which there are, who holds them, and how they get into containers. The device manager.
//!
//! Plugins register on `device-plugins/kubelet.sock` or through `plugins_registry`, and tell their devices; the node's
//! status follows at once. A pod's devices are reserved when it is admitted ([`Devices::admit`]) and allocated right before
//! each container is created ([`Devices::prepare`]), once: a container that runs again gets what it had. Who holds what is
//! one [`ledger`] under one lock, and a [`checkpoint`] that is written before a container relies on it.
//! Tasks: the registration server, one per plugin that listens to its list, the PodResources server.
//! <https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/>

mod checkpoint;
mod given;
pub(crate) mod ledger;
mod plugin;
pub(crate) mod pod_resources;
pub(crate) mod registration;
mod traced;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceStatus};
use podwire_wire::ids::{ContainerName, PodUid};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::given::Given;
use self::{
    ledger::{Answers, Decision, Ledger, Wishes},
    plugin::Endpoints,
    traced::Published,
};
use crate::{
    admission::Refused,
    inbox::Signal,
    node::Inboxes,
    runtime::CallError,
    spec::{self, PodRef},
    topology::{ConfigError, Machine, MachineError, Topology},
};

/// How devices are given out.
#[derive(Clone, Debug)]
pub struct DeviceSettings {
    /// The folder of `device-plugins`, `plugins_registry` and `pod-resources`.
    pub root: PathBuf,
    /// `none`, `best-effort`, `restricted` or `single-numa-node`.
    pub topology_policy: String,
    /// `container` or `pod`.
    pub topology_scope: String,
    /// Settings of the policy.
    pub topology_options: BTreeMap<String, String>,
    /// How long a pod waits for a plugin that is away.
    pub patience: Duration,
    /// How long devices are counted whose plugin is away.
    pub grace: Duration,
    /// How long a plugin may take to allocate devices, or to ready them for a container.
    pub deadline: Duration,
}

impl DeviceSettings {
    /// Upstream's defaults, with folders below `root`.
    pub fn at(root: impl Into<PathBuf>) -> DeviceSettings {
        DeviceSettings {
            root: root.into(),
            topology_policy: "none".to_owned(),
            topology_scope: "container".to_owned(),
            topology_options: BTreeMap::new(),
            patience: Duration::from_secs(300),
            grace: Duration::from_secs(300),
            deadline: Duration::from_secs(30),
        }
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.root.join("device-plugins")
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    fn pod_resources(&self) -> PathBuf {
        self.root.join("pod-resources")
    }
}

/// Why devices cannot be given out as configured.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// The topology manager's settings.
    #[error("topology manager")]
    Topology(#[from] ConfigError),
    /// The machine's NUMA nodes.
    #[error("look at the machine's NUMA nodes")]
    Machine(#[from] MachineError),
}

/// Why a container cannot have its devices now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// It has to wait.
    #[error("{0}")]
    Wait(String),
    /// It does not get them.
    #[error("{}", .0.message)]
    Refused(Refused),
    /// The plugin is not there.
    #[error("the device plugin of {resource} is not registered")]
    Away { resource: String },
    /// The plugin failed or did not answer.
    #[error("device plugin of {resource}: {call}: {error}")]
    Call { resource: String, call: &'static str, error: CallError },
    /// The plugin's answer cannot be used.
    #[error("device plugin of {resource}: Allocate: {why}")]
    Answer { resource: String, why: String },
    /// The pod has ended meanwhile.
    #[error("the pod has given back its devices")]
    Ended,
    /// It could not be written down.
    #[error("write the checkpoint of devices: {0}")]
    Checkpoint(io::Error),
}

/// Whether a pod may begin.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It holds its devices.
    Admitted,
    /// Not yet: why, and what it is refused with when it has waited long enough.
    Waiting { why: String, refusal: Refused },
    /// No.
    Refused(Refused),
}

/// Rounds of asking plugins what they prefer; then it is decided without them.
const MOST_QUESTIONS: usize = 32;

/// Capacity and allocatable by resource.
pub(crate) type Amounts = BTreeMap<String, (usize, usize)>;

struct State {
    ledger: Ledger,
    endpoints: Endpoints,
    /// What the node's status last said of each resource.
    published: BTreeMap<String, Published>,
}

/// The devices of the node.
pub(crate) struct Devices {
    settings: DeviceSettings,
    topology: Topology,
    boot_id: String,
    state: Mutex<State>,
    /// Held while the checkpoint is written, so that an older one never follows a newer one.
    writing: Mutex<()>,
    /// Rung whenever a pod that waits may find what it waits for.
    changed: watch::Sender<()>,
    /// Capacity and allocatable by resource.
    amounts: watch::Sender<Amounts>,
    inboxes: Arc<Inboxes>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Devices {
    /// What an earlier kubelet left is taken over.
    pub(crate) fn open(
        settings: DeviceSettings,
        topology: Topology,
        inboxes: Arc<Inboxes>,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) -> Devices {
        let boot_id = podwire_linux::boot::id().unwrap_or_default();
        let ledger = recover(&settings.plugins(), &boot_id);
        Devices {
            amounts: watch::channel(ledger.amounts()).0,
            state: Mutex::new(State { ledger, endpoints: Endpoints::default(), published: BTreeMap::new() }),
            writing: Mutex::new(()),
            changed: watch::channel(()).0,
            settings,
            topology,
            boot_id,
            inboxes,
            tasks,
            shutdown,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the ledger panics")
    }

    /// Capacity and allocatable by resource, and every change of them.
    pub(crate) fn amounts(&self) -> watch::Receiver<Amounts> {
        self.amounts.subscribe()
    }

    /// Rung whenever waiting may be over.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How long a pod waits.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.patience
    }

    /// Tells everybody whom a change of the ledger concerns.
    fn tell(&self, amounts: Amounts, pods: &BTreeSet<PodUid>) {
        self.amounts.send_if_modified(|old| {
            let differs = *old != amounts;
            if differs {
                *old = amounts;
            }
            differs
        });
        self.changed.send_replace(());
        for pod in pods {
            self.inboxes.signal(pod, Signal::DevicesChanged);
        }
    }

    /// Reserves what the pod asks for. Not cancel safe: what it has reserved it keeps.
    pub(crate) async fn admit(self: &Arc<Self>, pod: &Pod) -> Admission {
        let (wishes, reference) = (Wishes::of(pod), PodRef::of(pod));
        let mut answers = Answers::default();
        loop {
            let decision = self.state().ledger.reserve(&wishes, &self.topology, &answers);
            match decision {
                Decision::Reserved { anew: false } => return Admission::Admitted,
                Decision::Reserved { anew: true } => {
                    self.draw_earlier(&reference, &wishes);
                    // Nobody relies on it yet: a kubelet that dies before it is written reserves again.
                    self.save_later();
                    return Admission::Admitted;
                }
                Decision::Ask(question) => {
                    let answer = self.preferred(&reference, &question).await;
                    answers.told.insert(question, answer);
                    answers.enough = answers.told.len() >= MOST_QUESTIONS;
                }
                Decision::Wait(lack) => {
                    return Admission::Waiting { why: lack.to_string(), refusal: lack.refusal() };
                }
                Decision::Refused(refused) => return Admission::Refused(refused),
            }
        }
    }

    /// Whether the pod asks for devices of plugins that are or were here.
    pub(crate) fn concerns(&self, pod: &Pod) -> bool {
        let wishes = Wishes::of(pod);
        if wishes.is_empty() {
            return false;
        }
        let state = self.state();
        wishes.whole.keys().any(|resource| state.ledger.knows(resource))
    }

    /// Allocates what a container holds, unless that has been done, and says what it gets. Not cancel safe.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        pod: &Pod,
        container: &Container,
    ) -> Result<Given, PrepareError> {
        let (uid, name) = (spec::uid(pod), ContainerName::from(container.name.as_str()));
        let wishes = Wishes::of(pod).containers.into_iter().find(|wish| wish.container == name);
        let Some(wishes) = wishes.filter(|wish| !wish.counts.is_empty()) else { return Ok(Given::default()) };
        if self.lacks(uid, &name, wishes.counts.keys()) {
            match self.admit(pod).await {
                Admission::Admitted => {}
                Admission::Waiting { why, .. } => return Err(PrepareError::Wait(why)),
                Admission::Refused(refused) => return Err(PrepareError::Refused(refused)),
            }
        }
        let pending: Vec<(String, Vec<String>)> = {
            let state = self.state();
            let held = state.ledger.held_by(uid, &name).filter(|(_, holding)| holding.response.is_none());
            held.map(|(resource, holding)| (resource.to_owned(), holding.devices.keys().cloned().collect()))
                .collect()
        };
        let reference = PodRef::of(pod);
        let anew = !pending.is_empty();
        for (resource, ids) in pending {
            let response = self.allocate(&reference, &name, &resource, ids).await?;
            if !self.state().ledger.allocated(uid, &name, &resource, response) {
                return Err(PrepareError::Ended);
            }
        }
        if anew {
            self.save().await.map_err(PrepareError::Checkpoint)?;
        }
        let held: Vec<(String, ledger::Holding)> = {
            let state = self.state();
            let all = state.ledger.held_by(uid, &name);
            all.map(|(resource, holding)| (resource.to_owned(), holding.clone())).collect()
        };
        for (resource, holding) in &held {
            self.pre_start(&reference, &name, resource, holding.devices.keys().cloned().collect()).await?;
        }
        Ok(Given::of(held.iter().filter_map(|(_, holding)| holding.response.as_ref())))
    }

    /// Whether a container holds nothing of a resource of plugins that it asks for.
    fn lacks<'a>(
        &self,
        uid: &str,
        container: &ContainerName,
        mut wanted: impl Iterator<Item = &'a String>,
    ) -> bool {
        let state = self.state();
        let held: BTreeSet<&str> =
            state.ledger.held_by(uid, container).map(|(resource, _)| resource).collect();
        wanted.any(|resource| state.ledger.knows(resource) && !held.contains(resource.as_str()))
    }

    /// The pod is on its way out.
    pub(crate) fn ends(&self, pod: &PodUid) {
        self.state().ledger.ends(pod);
    }

    /// Nothing of the pod runs any more.
    pub(crate) fn free(self: &Arc<Self>, pod: &str) {
        if self.state().ledger.free(pod) {
            self.changed.send_replace(());
            self.save_later();
        }
    }

    /// All pods have been heard of: those that do not exist hold nothing.
    pub(crate) fn settle(self: &Arc<Self>, exists: impl Fn(&PodUid) -> bool) {
        if self.state().ledger.settle(exists) {
            self.changed.send_replace(());
            self.save_later();
        }
    }

    /// The health of the pod's devices, by container.
    pub(crate) fn health(&self, pod: &str) -> BTreeMap<ContainerName, Vec<ResourceStatus>> {
        self.state().ledger.health(pod)
    }

    /// Writes the checkpoint; returns when one is written that is at least as new as this call. Cancel safe.
    async fn save(self: &Arc<Self>) -> io::Result<()> {
        let own = self.clone();
        let write = move || {
            let _turn = own.writing.lock().expect("no writer panics");
            let bytes = checkpoint::encode(&own.state().ledger, &own.boot_id);
            checkpoint::write(&own.settings.plugins(), &bytes)
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
    }

    /// Writes the checkpoint sometime: an old one only keeps devices for too long, or lacks what nobody was given.
    fn save_later(self: &Arc<Self>) {
        let own = self.clone();
        self.tasks.spawn(async move { own.saved().await });
    }

    async fn saved(self: &Arc<Self>) {
        if let Err(error) = self.save().await {
            tracing::error!(%error, "the checkpoint of devices was not written; the next change tries again");
        }
    }
}

fn recover(folder: &Path, boot_id: &str) -> Ledger {
    match checkpoint::read(folder, boot_id) {
        Ok(None) => Ledger::default(),
        Ok(Some((ledger, sound))) => {
            if !sound {
                tracing::warn!(
                    ?folder,
                    "the checkpoint of devices has a wrong checksum; it is used all the same"
                );
            }
            ledger
        }
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(?folder, error, "the checkpoint of devices is lost; who holds what is not known");
            Ledger::default()
        }
    }
}

/// The topology manager as configured.
pub(crate) fn topology(settings: &DeviceSettings) -> Result<Topology, DevicesError> {
    let (policy, scope) = (&settings.topology_policy, &settings.topology_scope);
    let machine = match Machine::read(Path::new("/sys/devices/system/node")) {
        // Who aligns nothing need not know.
        Err(error) if policy == "none" => {
            tracing::warn!(%error, "the machine's NUMA nodes are not known");
            Machine::new(Vec::new())?
        }
        read => read?,
    };
    Ok(Topology::new(policy, scope, &settings.topology_options, machine)?)
}
