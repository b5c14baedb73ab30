//! What all parts of the kubelet share: configuration, clients, letter boxes, and what is known of the pods.

pub(crate) mod lease;
pub(crate) mod pods;
pub(crate) mod register;
pub(crate) mod services;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, OnceLock},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Service};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::pods::Known;
use podwire_wire::ids::PodUid;

use crate::{
    admission,
    api::Api,
    capacity::Capacity,
    cgroups::Cgroups,
    claims::Claims,
    config::Config,
    configmaps_and_secrets::ConfigMapsAndSecrets,
    devices::Devices,
    dns::HostResolver,
    env,
    events::Recorder,
    images::Images,
    inbox::{Inbox, Signal},
    runtime::Runtime,
    sandbox, spec,
    users::Users,
};

/// The letter boxes of all workers.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    all: Mutex<HashMap<PodUid, Arc<Inbox>>>,
}

impl Inboxes {
    /// The box of a pod, if it has a worker.
    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Inbox>> {
        self.all.lock().expect("no holder panics").get(uid).cloned()
    }

    /// A worker begins.
    pub(crate) fn add(&self, uid: PodUid, inbox: Arc<Inbox>) {
        self.all.lock().expect("no holder panics").insert(uid, inbox);
    }

    /// A worker ended.
    pub(crate) fn remove(&self, uid: &str) {
        self.all.lock().expect("no holder panics").remove(uid);
    }

    /// Tells one pod.
    pub(crate) fn signal(&self, uid: &str, signal: Signal) {
        if let Some(inbox) = self.get(uid) {
            inbox.signal(signal);
        }
    }

    /// Who has a worker.
    pub(crate) fn uids(&self) -> Vec<PodUid> {
        self.all.lock().expect("no holder panics").keys().cloned().collect()
    }
}

/// Service account tokens kept for pods until they are due for renewal.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    tokens: Mutex<HashMap<String, (String, Timestamp)>>,
}

impl Tokens {
    /// A token that is not due yet.
    pub(crate) fn get(&self, key: &str, now: Timestamp) -> Option<(String, Timestamp)> {
        let tokens = self.tokens.lock().expect("no holder panics");
        tokens.get(key).filter(|(_, renew)| *renew > now).cloned()
    }

    /// Keeps a token.
    pub(crate) fn put(&self, key: String, token: String, renew: Timestamp) {
        self.tokens.lock().expect("no holder panics").insert(key, (token, renew));
    }

    /// Drops the tokens of a pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.tokens.lock().expect("no holder panics").retain(|key, _| !key.starts_with(uid));
    }
}

/// Why a pod's runtime class gives no handler.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeClassError {
    /// There is none of that name.
    #[error("runtimeclass.node.k8s.io \"{class}\" not found")]
    NotFound { class: String },
    /// It says nothing.
    #[error("failed to lookup RuntimeClass \"{class}\": it names no handler")]
    NoHandler { class: String },
    /// The API server did not say.
    #[error("failed to lookup RuntimeClass \"{class}\": {message}")]
    Lookup { class: String, message: String },
}

/// What all parts share.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) capacity: Capacity,
    /// What of it pods may use.
    pub(crate) allocatable: Capacity,
    pub(crate) api: Api,
    pub(crate) runtime: Runtime,
    pub(crate) events: Recorder,
    pub(crate) images: Images,
    pub(crate) configs: ConfigMapsAndSecrets,
    pub(crate) services: services::Services,
    pub(crate) tokens: Tokens,
    pub(crate) cgroups: Cgroups,
    pub(crate) users: Users,
    pub(crate) devices: Arc<Devices>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) resolver: HostResolver,
    pub(crate) inboxes: Arc<Inboxes>,
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
    pub(crate) runtime_label: OnceLock<String>,
    pub(crate) pods: pods::Pods,
    pub(crate) labels: Mutex<BTreeMap<String, String>>,
    pub(crate) mirrors: crate::static_pods::Mirrors,
    /// Rung whenever a pod's computed status changed.
    pub(crate) changes: tokio::sync::watch::Sender<()>,
    /// What the node is short of.
    pub(crate) pressure: tokio::sync::watch::Sender<crate::evict::plan::Pressure>,
}

impl Node {
    /// The runtime's name; before it has answered, our own.
    pub(crate) fn runtime_name(&self) -> &str {
        self.runtime_label.get().map_or("podwire", String::as_str)
    }

    /// What every sandbox gets from the node.
    pub(crate) fn sandbox_facts(&self) -> sandbox::NodeFacts<'_> {
        sandbox::NodeFacts {
            log_dir: &self.config.log_dir,
            cgroup_root: &self.config.cgroup_root,
            dns: &self.config.dns,
            resolver: &self.resolver,
        }
    }

    /// What references in environments and downward volumes may answer with.
    pub(crate) fn env_facts<'a>(
        &'a self,
        pod_ips: &'a [String],
        services: &'a [Service],
    ) -> env::NodeFacts<'a> {
        env::NodeFacts {
            node_name: &self.config.node_name,
            host_ips: &self.config.node_ips,
            pod_ips,
            allocatable: (self.allocatable.milli_cpu, self.allocatable.memory),
            services,
        }
    }

    /// The runtime handler of the pod's runtime class, or why there is none.
    pub(crate) async fn runtime_handler(&self, pod: &Pod) -> Result<String, RuntimeClassError> {
        let Some(class) = spec::spec(pod).runtime_class_name.as_deref().filter(|c| !c.is_empty()) else {
            return Ok(String::new());
        };
        let path = format!("/apis/node.k8s.io/v1/runtimeclasses/{class}");
        let class = class.to_owned();
        match self.api.get(&path).await {
            Ok(object) => object["handler"]
                .as_str()
                .filter(|handler| !handler.is_empty())
                .map(str::to_owned)
                .ok_or(RuntimeClassError::NoHandler { class }),
            Err(error) if error.code() == Some(404) => Err(RuntimeClassError::NotFound { class }),
            Err(error) => Err(RuntimeClassError::Lookup { class, message: error.message() }),
        }
    }

    /// Takes the pod if the node has room for it; from then on it holds its resources.
    pub(crate) fn admit(&self, uid: &PodUid, pod: &Arc<Pod>) -> Result<(), admission::Refused> {
        self.pods.admit(uid, pod, self.view())
    }

    /// Gives a pod that runs here the resources it asks for, or says why not.
    pub(crate) fn resize(&self, uid: &PodUid, pod: &Arc<Pod>) -> Result<(), admission::Unfit> {
        self.pods.resize(uid, pod, self.view())?;
        // It may have given some back.
        self.room_made();
        Ok(())
    }

    /// The node apart from its pods.
    fn view(&self) -> admission::View {
        admission::View {
            node_name: self.config.node_name.clone(),
            labels: self.labels.lock().expect("no holder panics").clone(),
            allocatable: self.allocatable.amounts(),
            max_pods: self.config.max_pods,
            pressure: *self.pressure.borrow(),
            active: Vec::new(),
        }
    }

    /// Somebody holds less than before: whoever waits for more asks again.
    fn room_made(&self) {
        for uid in self.pods.deferred() {
            self.inboxes.signal(&uid, Signal::RoomMade);
        }
    }

    /// The pod no longer holds resources; when `cleared`, nothing of it lies here any more.
    pub(crate) fn pod_stopped(&self, uid: &PodUid, cleared: bool) {
        self.devices.free(uid);
        self.pods.change(uid, |known| {
            known.admitted = false;
            known.cleared |= cleared;
        });
        self.room_made();
    }

    /// The pod's status was computed.
    pub(crate) fn pod_status(&self, uid: &PodUid, pod: &Arc<Pod>, status: &PodStatus) {
        if self.pods.set_status(uid, pod, status) {
            self.changes.send_replace(());
        }
    }

    /// The pod's worker ended.
    pub(crate) fn pod_forgotten(&self, uid: &PodUid) {
        self.pods.forget(uid);
        self.room_made();
        self.changes.send_replace(());
        self.tokens.forget(uid);
    }
}

/// Keeps all pods together within what is not reserved. As upstream does it they may use what evictions wait for: the
/// kubelet must see the shortage before the kernel ends somebody.
pub(crate) async fn enforce(node: Arc<Node>) {
    let most = node.capacity.left(node.config.reserved, None).unwrap_or_default();
    match node.cgroups.limit_all(most.milli_cpu, most.memory).await {
        Ok(()) => {
            let text = "Updated Node Allocatable limit across pods";
            node.events.node("Normal", "NodeAllocatableEnforced", text);
        }
        Err(error) => {
            let root = &node.config.cgroup_root;
            let text = format!("Failed to update Node Allocatable Limits {root:?}: {error}");
            tracing::warn!("{text}");
            node.events.node("Warning", "FailedNodeAllocatableEnforcement", &text);
        }
    }
}
