//! What the node controller keeps of nodes and pods. Pure; time is milliseconds given by the caller.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use podwire_api::condition;

/// A node as last seen.
#[derive(Debug, Clone)]
pub(crate) struct NodeView {
    /// The newest resource version seen.
    pub(crate) version: u64,
    /// Status of each condition by type.
    pub(crate) conditions: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    /// Where it stands; nodes of one zone tend to fail together.
    pub(crate) zone: String,
    /// When it was first seen.
    pub(crate) since: u64,
    /// When it last gave a sign of life.
    pub(crate) heard: u64,
    heartbeat: Option<jiff::Timestamp>,
    lease: Option<jiff::Timestamp>,
    writing: bool,
    /// The resource version our last write produced.
    written: u64,
    was_ready: bool,
}

impl NodeView {
    /// A node of which nothing is known yet.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            version: 0,
            conditions: BTreeMap::new(),
            taints: Vec::new(),
            unschedulable: false,
            zone: String::new(),
            since: now,
            heard: now,
            heartbeat: None,
            lease: None,
            writing: false,
            written: 0,
            was_ready: false,
        }
    }

    /// Takes in the newest object.
    pub(crate) fn update(&mut self, node: &Node, now: u64) {
        let version = node.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
        self.version = version.unwrap_or(self.version);
        let spec = node.spec.as_ref();
        self.taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
        self.unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
        self.zone = super::disruption::zone(node);
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let conditions = || conditions.into_iter().flatten();
        self.conditions = conditions().map(|one| (one.type_.clone(), one.status.clone())).collect();
        let heartbeat = condition::find(conditions(), "Ready")
            .filter(|one| one.status != "Unknown")
            .and_then(|one| one.last_heartbeat_time.as_ref())
            .map(|time| time.0);
        if heartbeat.is_some() && heartbeat != self.heartbeat {
            self.heartbeat = heartbeat;
            self.heard = now;
        }
    }

    /// Takes in the lease's renewal.
    pub(crate) fn renewed(&mut self, at: Option<jiff::Timestamp>, now: u64) {
        if at.is_some() && at != self.lease {
            self.lease = at;
            self.heard = now;
        }
    }

    /// `Ready`'s status, if the node ever reported one.
    pub(crate) fn ready(&self) -> Option<&str> {
        self.conditions.get("Ready").map(String::as_str)
    }

    /// Whether the view includes all that was written from here.
    pub(crate) fn settled(&self) -> bool {
        !self.writing && self.version >= self.written
    }

    /// A write has begun.
    pub(crate) fn begin_write(&mut self) {
        self.writing = true;
    }

    /// A write has ended, with this version if it succeeded.
    pub(crate) fn end_write(&mut self, version: Option<u64>) {
        self.writing = false;
        self.written = version.unwrap_or(0);
    }

    /// Whether the node was ready when last asked and is not any more.
    pub(crate) fn note_readiness(&mut self) -> bool {
        let ready = self.ready() == Some("True");
        let was = std::mem::replace(&mut self.was_ready, ready);
        was && !ready
    }

    /// Taints that drive pods away.
    pub(crate) fn evicting_taints(&self) -> Vec<&Taint> {
        self.taints.iter().filter(|taint| taint.effect == "NoExecute").collect()
    }
}

/// A pod as last seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Empty while it has none.
    pub(crate) node: String,
    pub(crate) deleting: bool,
    pub(crate) terminal: bool,
    pub(crate) ready: bool,
    /// Seconds since 1970.
    pub(crate) created: i64,
    pub(crate) tolerations: Vec<Toleration>,
}

impl PodView {
    /// Reads a pod; `None` for one without a name, which no server sends.
    pub(crate) fn new(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        Some(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone()?,
            node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            terminal: phase == "Succeeded" || phase == "Failed",
            ready: condition::is_true(conditions.into_iter().flatten(), "Ready"),
            created: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            tolerations: spec.and_then(|spec| spec.tolerations.clone()).unwrap_or_default(),
        })
    }
}
