//! Which columns each kind has; a kind that is not listed has a name and an age or creation time.

use jiff::Timestamp;
use serde_json::Value;

use super::autoscaler;
use super::cells as c;
use super::policy;
use crate::Text as Words;

/// Where a cell comes from.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    /// The object's name.
    Name,
    /// The time since it was created.
    Age,
    /// Text at a path, empty when there is none.
    Text(&'static str),
    /// Text at a path, or this.
    TextOr(&'static str, &'static str),
    /// A number at a path, zero when there is none.
    Number(&'static str),
    /// A flag at a path.
    Flag(&'static str),
    /// How many entries there are at a path.
    Count(&'static str),
    /// What a function makes of the object at this time.
    Computed(fn(&Value, Timestamp) -> Value),
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// What stands over it.
    pub name: Words,
    /// Its OpenAPI type.
    pub kind: Words,
    /// Zero for those that are always shown.
    pub priority: u8,
    /// Where its cells come from.
    pub cell: Cell,
}

const fn col(name: &'static str, kind: &'static str, priority: u8, cell: Cell) -> Column {
    Column { name: Words::Borrowed(name), kind: Words::Borrowed(kind), priority, cell }
}

use Cell::{Age, Computed, Count, Flag, Name, Number, Text, TextOr};

const S: &str = "string";
const I: &str = "integer";
const B: &str = "boolean";
const NAME: Column = col("Name", S, 0, Name);
const AGE: Column = col("Age", S, 0, Age);
const CONTAINERS: Column = col("Containers", S, 1, Computed(c::container_names));
const IMAGES: Column = col("Images", S, 1, Computed(c::container_images));
const SELECTOR: Column = col("Selector", S, 1, Computed(c::selector));

pub(crate) static POD: &[Column] = &[
    NAME,
    col("Ready", S, 0, Name),
    col("Status", S, 0, Name),
    col("Restarts", S, 0, Name),
    AGE,
    col("IP", S, 1, Age),
    col("Node", S, 1, Age),
    col("Nominated Node", S, 1, Age),
    col("Readiness Gates", S, 1, Age),
];
pub(crate) static NODE: &[Column] = &[
    NAME,
    col("Status", S, 0, Computed(c::node_status)),
    col("Roles", S, 0, Computed(c::node_roles)),
    AGE,
    col("Version", S, 0, Text("status.nodeInfo.kubeletVersion")),
    col("Internal-IP", S, 1, Computed(c::node_internal_ip)),
    col("External-IP", S, 1, Computed(c::node_external_ip)),
    col("OS-Image", S, 1, TextOr("status.nodeInfo.osImage", "<unknown>")),
    col("Kernel-Version", S, 1, Computed(c::node_kernel)),
    col("Container-Runtime", S, 1, TextOr("status.nodeInfo.containerRuntimeVersion", "<unknown>")),
];
pub(crate) static EVENT: &[Column] = &[
    col("Last Seen", S, 0, Computed(c::event_last_seen)),
    col("Type", S, 0, Text("type")),
    col("Reason", S, 0, Text("reason")),
    col("Object", S, 0, Computed(c::event_object)),
    col("Subobject", S, 1, Computed(c::event_subobject)),
    col("Source", S, 1, Computed(c::event_source)),
    col("Message", S, 0, Computed(c::event_message)),
    col("First Seen", S, 1, Computed(c::event_first_seen)),
    col("Count", S, 1, Computed(c::event_count)),
    col("Name", S, 1, Name),
];
pub(crate) static NAMESPACE: &[Column] = &[NAME, col("Status", S, 0, Text("status.phase")), AGE];
pub(crate) static SECRET: &[Column] =
    &[NAME, col("Type", S, 0, Text("type")), col("Data", S, 0, Count("data")), AGE];
pub(crate) static CONFIG_MAP: &[Column] = &[NAME, col("Data", S, 0, Computed(c::config_map_size)), AGE];
pub(crate) static LEASE: &[Column] = &[NAME, col("Holder", S, 0, Text("spec.holderIdentity")), AGE];
pub(crate) static SERVICE: &[Column] = &[
    NAME,
    col("Type", S, 0, Text("spec.type")),
    col("Cluster-IP", S, 0, Computed(c::service_cluster_ip)),
    col("External-IP", S, 0, Computed(c::service_external_ip)),
    col("Port(s)", S, 0, Computed(c::service_ports)),
    AGE,
    SELECTOR,
];
pub(crate) static ENDPOINTS: &[Column] = &[NAME, col("Endpoints", S, 0, Computed(c::endpoints)), AGE];
pub(crate) static REPLICAS: &[Column] = &[
    NAME,
    col("Desired", I, 0, Number("spec.replicas")),
    col("Current", I, 0, Number("status.replicas")),
    col("Ready", I, 0, Number("status.readyReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) static DEPLOYMENT: &[Column] = &[
    NAME,
    col("Ready", S, 0, Computed(c::ready_replicas)),
    col("Up-to-date", S, 0, Number("status.updatedReplicas")),
    col("Available", S, 0, Number("status.availableReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) static STATEFUL_SET: &[Column] =
    &[NAME, col("Ready", S, 0, Computed(c::ready_replicas)), AGE, CONTAINERS, IMAGES];
pub(crate) static DAEMON_SET: &[Column] = &[
    NAME,
    col("Desired", I, 0, Number("status.desiredNumberScheduled")),
    col("Current", I, 0, Number("status.currentNumberScheduled")),
    col("Ready", I, 0, Number("status.numberReady")),
    col("Up-to-date", I, 0, Number("status.updatedNumberScheduled")),
    col("Available", I, 0, Number("status.numberAvailable")),
    col("Node Selector", S, 0, Computed(c::node_selector)),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) static JOB: &[Column] = &[
    NAME,
    col("Status", S, 0, Computed(c::job_status)),
    col("Completions", S, 0, Computed(c::job_completions)),
    col("Duration", S, 0, Computed(c::job_duration)),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) static CRON_JOB: &[Column] = &[
    NAME,
    col("Schedule", S, 0, Text("spec.schedule")),
    col("Timezone", S, 0, TextOr("spec.timeZone", "<none>")),
    col("Suspend", B, 0, Computed(c::cron_suspend)),
    col("Active", I, 0, Count("status.active")),
    col("Last Schedule", S, 0, Computed(c::cron_last)),
    AGE,
    col("Containers", S, 1, Computed(c::container_names)),
    col("Images", S, 1, Computed(c::container_images)),
    col("Selector", S, 1, Computed(c::cron_selector)),
];
pub(crate) static CONTROLLER_REVISION: &[Column] =
    &[NAME, col("Controller", S, 0, Computed(c::controller)), col("Revision", S, 0, Number("revision")), AGE];
pub(crate) static PERSISTENT_VOLUME: &[Column] = &[
    NAME,
    col("Capacity", S, 0, Text("spec.capacity.storage")),
    col("Access Modes", S, 0, Computed(c::spec_access_modes)),
    col("Reclaim Policy", S, 0, Text("spec.persistentVolumeReclaimPolicy")),
    col("Status", S, 0, Computed(c::phase)),
    col("Claim", S, 0, Computed(c::volume_claim)),
    col("StorageClass", S, 0, Text("spec.storageClassName")),
    col("VolumeAttributesClass", S, 0, TextOr("spec.volumeAttributesClassName", "<unset>")),
    col("Reason", S, 0, Text("status.reason")),
    AGE,
    col("VolumeMode", S, 1, TextOr("spec.volumeMode", "<unset>")),
];
pub(crate) static CLAIM: &[Column] = &[
    NAME,
    col("Status", S, 0, Computed(c::phase)),
    col("Volume", S, 0, Text("spec.volumeName")),
    col("Capacity", S, 0, Text("status.capacity.storage")),
    col("Access Modes", S, 0, Computed(c::status_access_modes)),
    col("StorageClass", S, 0, Text("spec.storageClassName")),
    col("VolumeAttributesClass", S, 0, TextOr("spec.volumeAttributesClassName", "<unset>")),
    AGE,
    col("VolumeMode", S, 1, TextOr("spec.volumeMode", "<unset>")),
];
pub(crate) static DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    col("Min Available", S, 0, Computed(c::min_available)),
    col("Max Unavailable", S, 0, Computed(c::max_unavailable)),
    col("Allowed Disruptions", I, 0, Number("status.disruptionsAllowed")),
    AGE,
];
pub(crate) static AUTOSCALER: &[Column] = &[
    NAME,
    col("Reference", S, 0, Computed(autoscaler::reference)),
    col("Targets", S, 0, Computed(autoscaler::targets)),
    col("MinPods", S, 0, Computed(autoscaler::min_pods)),
    col("MaxPods", S, 0, Number("spec.maxReplicas")),
    col("Replicas", S, 0, Number("status.currentReplicas")),
    AGE,
];
pub(crate) static STORAGE_CLASS: &[Column] = &[
    NAME,
    col("Provisioner", S, 0, Text("provisioner")),
    col("ReclaimPolicy", S, 0, TextOr("reclaimPolicy", "Delete")),
    col("VolumeBindingMode", S, 0, TextOr("volumeBindingMode", "Immediate")),
    col("AllowVolumeExpansion", S, 0, Flag("allowVolumeExpansion")),
    AGE,
];
pub(crate) static PRIORITY_CLASS: &[Column] = &[
    NAME,
    col("Value", I, 0, Number("value")),
    col("Global-Default", B, 0, Flag("globalDefault")),
    AGE,
    col("PreemptionPolicy", S, 0, Text("preemptionPolicy")),
];
pub(crate) static RUNTIME_CLASS: &[Column] = &[NAME, col("Handler", S, 0, Text("handler")), AGE];
pub(crate) static CSI_NODE: &[Column] = &[NAME, col("Drivers", I, 0, Count("spec.drivers")), AGE];
pub(crate) static CSI_DRIVER: &[Column] = &[
    NAME,
    col("AttachRequired", B, 0, Flag("spec.attachRequired")),
    col("PodInfoOnMount", B, 0, Flag("spec.podInfoOnMount")),
    col("StorageCapacity", B, 0, Flag("spec.storageCapacity")),
    col("TokenRequests", S, 0, Computed(c::token_requests)),
    col("RequiresRepublish", B, 0, Flag("spec.requiresRepublish")),
    col("Modes", S, 0, Computed(c::lifecycle_modes)),
    AGE,
];
pub(crate) static NETWORK_POLICY: &[Column] =
    &[NAME, col("Pod-Selector", S, 0, Computed(c::pod_selector)), AGE];
pub(crate) static INGRESS: &[Column] = &[
    NAME,
    col("Class", S, 0, TextOr("spec.ingressClassName", "<none>")),
    col("Hosts", S, 0, Computed(c::ingress_hosts)),
    col("Address", S, 0, Computed(c::load_balancer)),
    col("Ports", S, 0, Computed(c::ingress_ports)),
    AGE,
];
pub(crate) static INGRESS_CLASS: &[Column] = &[
    NAME,
    col("Controller", S, 0, Text("spec.controller")),
    col("Parameters", S, 0, TextOr("spec.parameters.name", "<none>")),
    AGE,
];
pub(crate) static ENDPOINT_SLICE: &[Column] = &[
    NAME,
    col("AddressType", S, 0, Text("addressType")),
    col("Ports", S, 0, Computed(c::slice_ports)),
    col("Endpoints", S, 0, Computed(c::slice_endpoints)),
    AGE,
];
pub(crate) static BINDING: &[Column] = &[
    NAME,
    col("Role", S, 0, Computed(c::role_ref)),
    AGE,
    col("Users", S, 1, Computed(c::subject_users)),
    col("Groups", S, 1, Computed(c::subject_groups)),
    col("ServiceAccounts", S, 1, Computed(c::subject_accounts)),
];
pub(crate) static CREATED: &[Column] =
    &[NAME, col("Created At", "date", 0, Text("metadata.creationTimestamp"))];
pub(crate) static CLAIM_STATE: &[Column] = &[NAME, col("State", S, 0, Computed(c::claim_state)), AGE];
pub(crate) static SLICE: &[Column] = &[
    NAME,
    col("Node", S, 0, TextOr("spec.nodeName", "<unset>")),
    col("Driver", S, 0, Text("spec.driver")),
    col("Pool", S, 0, Text("spec.pool.name")),
    AGE,
];
pub(crate) static SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    col("SignerName", S, 0, TextOr("spec.signerName", "<none>")),
    col("Requestor", S, 0, Text("spec.username")),
    col("RequestedDuration", S, 0, Computed(c::requested_duration)),
    col("Condition", S, 0, Computed(c::signing_condition)),
];
pub(crate) static VOLUME_ATTACHMENT: &[Column] = &[
    NAME,
    col("Attacher", S, 0, Text("spec.attacher")),
    col("PV", S, 0, Text("spec.source.persistentVolumeName")),
    col("Node", S, 0, Text("spec.nodeName")),
    col("Attached", B, 0, Flag("status.attached")),
    AGE,
];
pub(crate) static QUOTA: &[Column] = &[
    NAME,
    col("Request", S, 0, Computed(c::quota_requests)),
    col("Limit", S, 0, Computed(c::quota_limits)),
    AGE,
];
pub(crate) static ADMISSION_POLICY: &[Column] = &[
    NAME,
    col("Validations", I, 0, Count("spec.validations")),
    col("ParamKind", S, 0, Computed(policy::param_kind)),
    AGE,
];
pub(crate) static POLICY_BINDING: &[Column] = &[
    NAME,
    col("PolicyName", S, 0, Text("spec.policyName")),
    col("ParamRef", S, 0, Computed(policy::param_ref)),
    AGE,
];
pub(crate) static WEBHOOKS: &[Column] = &[NAME, col("Webhooks", I, 0, Count("webhooks")), AGE];
pub(crate) static POD_TEMPLATE: &[Column] = &[
    NAME,
    col("Containers", S, 0, Computed(c::template_names)),
    col("Images", S, 0, Computed(c::template_images)),
    col("Pod Labels", S, 0, Computed(c::template_labels)),
];
pub(crate) static IP_ADDRESS: &[Column] = &[NAME, col("ParentRef", S, 0, Computed(c::parent)), AGE];
pub(crate) static SERVICE_CIDR: &[Column] = &[NAME, col("CIDRs", S, 0, Computed(c::cidrs)), AGE];
pub(crate) static PLAIN: &[Column] = &[NAME, AGE];
