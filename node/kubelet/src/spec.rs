//! Reads what the kubelet needs out of a pod's specification: identity, containers by kind, policies.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};
use podwire_api::pod_resources::Requirements;
use podwire_wire::ids::PodUid;

/// Which list of the specification a container stands in, and how it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Runs to completion before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    /// Runs as long as the pod.
    App,
    /// Added while the pod runs; never restarted.
    Ephemeral,
}

/// Who a pod is, in the words used in paths, labels and messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Unique id, as the runtime knows it.
    pub uid: PodUid,
}

impl PodRef {
    /// The identity of `pod`; absent fields become empty strings.
    pub fn of(pod: &Pod) -> PodRef {
        PodRef {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: uid(pod).into(),
        }
    }

    /// As arrows name it.
    pub(crate) fn traced(&self) -> podwire_trace::Pod<'_> {
        podwire_trace::Pod { uid: &self.uid, namespace: &self.namespace, name: &self.name }
    }

    /// `name_namespace(uid)`, the form messages carry.
    pub fn full(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The uid under which the runtime knows the pod; a static pod's is its configuration hash.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The specification; an API object always has one.
pub fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::OnceLock<PodSpec> = std::sync::OnceLock::new();
    pod.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(PodSpec::default))
}

/// Init containers and sidecars in order.
pub fn init_containers(pod: &Pod) -> &[Container] {
    spec(pod).init_containers.as_deref().unwrap_or_default()
}

/// What an entry of `spec.initContainers` is.
pub fn init_kind(container: &Container) -> Kind {
    if container.restart_policy.as_deref() == Some("Always") { Kind::Sidecar } else { Kind::Init }
}

/// Ephemeral containers, as containers.
pub fn ephemeral_containers(pod: &Pod) -> Vec<Container> {
    spec(pod).ephemeral_containers.as_deref().unwrap_or_default().iter().map(from_ephemeral).collect()
}

/// Every container of the pod with its kind: init, then app, then ephemeral.
pub fn containers(pod: &Pod) -> Vec<(Kind, Container)> {
    init_containers(pod)
        .iter()
        .map(|c| (init_kind(c), c.clone()))
        .chain(spec(pod).containers.iter().map(|c| (Kind::App, c.clone())))
        .chain(ephemeral_containers(pod).into_iter().map(|c| (Kind::Ephemeral, c)))
        .collect()
}

/// The container called `name`, with its kind.
pub fn find_container(pod: &Pod, name: &str) -> Option<(Kind, Container)> {
    containers(pod).into_iter().find(|(_, c)| c.name == name)
}

/// The container an ephemeral one looks into, if it says so.
pub fn target_of(pod: &Pod, name: &str) -> Option<String> {
    let all = spec(pod).ephemeral_containers.as_deref().unwrap_or_default();
    all.iter().find(|c| c.name == name).and_then(|c| c.target_container_name.clone())
}

/// The pod's restart policy with its default.
pub fn restart_policy(pod: &Pod) -> &str {
    spec(pod).restart_policy.as_deref().unwrap_or("Always")
}

/// Whether the pod shares the node's network.
pub fn host_network(pod: &Pod) -> bool {
    spec(pod).host_network.unwrap_or(false)
}

/// The grace period that stopping the pod gets: the deletion's own, else the specification's.
pub fn grace_seconds(pod: &Pod) -> i64 {
    pod.metadata
        .deletion_grace_period_seconds
        .filter(|_| pod.metadata.deletion_timestamp.is_some())
        .or(spec(pod).termination_grace_period_seconds)
        .unwrap_or(30)
        .max(0)
}

/// Whether the API already calls the pod finished.
pub fn is_terminal_phase(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the pod matters more than others on a node: static, or of a system priority.
pub fn is_critical(pod: &Pod) -> bool {
    const SYSTEM_CRITICAL: i32 = 2_000_000_000;
    spec(pod).priority.is_some_and(|p| p >= SYSTEM_CRITICAL) || is_static(pod)
}

/// Whether the pod comes from a file on this node rather than from the API.
pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, "kubernetes.io/config.source").is_some_and(|source| source != "api")
}

/// Whether a container asked to be restarted when its amount of a resource changes.
pub(crate) fn restarts_to_resize(container: &Container, resource: &str) -> bool {
    let mut policies = container.resize_policy.iter().flatten();
    policies.any(|policy| policy.resource_name == resource && policy.restart_policy == "RestartContainer")
}

/// The bytes of memory that a container asks for.
pub(crate) fn memory_request(container: &Container) -> i64 {
    Requirements::from(container).requests.value("memory")
}

/// An annotation's value.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
}

fn from_ephemeral(e: &EphemeralContainer) -> Container {
    Container {
        args: e.args.clone(),
        command: e.command.clone(),
        env: e.env.clone(),
        env_from: e.env_from.clone(),
        image: e.image.clone(),
        image_pull_policy: e.image_pull_policy.clone(),
        name: e.name.clone(),
        security_context: e.security_context.clone(),
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path.clone(),
        termination_message_policy: e.termination_message_policy.clone(),
        tty: e.tty,
        volume_devices: e.volume_devices.clone(),
        volume_mounts: e.volume_mounts.clone(),
        working_dir: e.working_dir.clone(),
        ..Container::default()
    }
}
