//! One node and what already runs on it, with sums kept up to date. Pure.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint as TypedTaint};
use podwire_api::resources::Resources as ResourceList;
use podwire_api::toleration::Taint as BorrowedTaint;

use crate::pod::{Disk, HostPort, PodInfo};
use crate::resources::Resources;

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// The place of a node in the cluster; another node may get it when this one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    /// As an index.
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// What keeps pods away from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taint {
    key: String,
    value: String,
    pub(crate) effect: String,
}

impl From<&TypedTaint> for Taint {
    fn from(one: &TypedTaint) -> Self {
        Self {
            key: one.key.clone(),
            value: one.value.clone().unwrap_or_default(),
            effect: one.effect.clone(),
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(out, "{}:{}", self.key, self.effect),
            value => write!(out, "{}={value}:{}", self.key, self.effect),
        }
    }
}

impl<'a> From<&'a Taint> for BorrowedTaint<'a> {
    fn from(one: &'a Taint) -> Self {
        Self { key: &one.key, value: &one.value, effect: &one.effect }
    }
}

/// What the API says about a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NodeFacts {
    pub(crate) labels: Labels,
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: Resources,
    pub(crate) max_pods: i64,
    /// Size of each image by each of its names.
    pub(crate) images: HashMap<String, i64>,
}

impl NodeFacts {
    /// Reads a node.
    pub(crate) fn new(node: &Node) -> Self {
        let status = node.status.as_ref();
        let spec = node.spec.as_ref();
        let allocatable = ResourceList::from(status.and_then(|status| status.allocatable.as_ref()));
        let images = status.and_then(|status| status.images.as_ref());
        let taints = spec.and_then(|spec| spec.taints.as_ref());
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            taints: taints.into_iter().flatten().map(Taint::from).collect(),
            allocatable: (&allocatable).into(),
            max_pods: allocatable.value("pods"),
            images: images
                .into_iter()
                .flatten()
                .flat_map(|image| {
                    let size = image.size_bytes.unwrap_or_default();
                    image.names.iter().flatten().map(move |name| (name.clone(), size))
                })
                .collect(),
        }
    }

    /// The failure domain that nodes are taken from in turns: region and zone.
    pub(crate) fn zone(&self) -> (&str, &str) {
        let label = |new: &str, old: &str| {
            self.labels.get(new).or_else(|| self.labels.get(old)).map(String::as_str).unwrap_or_default()
        };
        (
            label("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
            label("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
        )
    }
}

/// What the pods of a node use up; small enough to be copied when something else is thought through.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) pods: i64,
    pub(crate) requested: Resources,
    pub(crate) nonzero: Resources,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) disks: Vec<Disk>,
}

impl Usage {
    /// Counts a pod.
    pub(crate) fn add(&mut self, pod: &PodInfo) {
        self.pods += 1;
        self.requested.add(&pod.requests);
        self.nonzero.add(&pod.nonzero);
        self.ports.extend(pod.ports.iter().cloned());
        self.disks.extend(pod.disks.iter().cloned());
    }

    /// Counts a pod no longer.
    pub(crate) fn remove(&mut self, pod: &PodInfo) {
        self.pods -= 1;
        self.requested.subtract(&pod.requests);
        self.nonzero.subtract(&pod.nonzero);
        take_away(&mut self.ports, &pod.ports);
        take_away(&mut self.disks, &pod.disks);
    }
}

fn take_away<T: PartialEq>(from: &mut Vec<T>, what: &[T]) {
    for one in what {
        if let Some(at) = from.iter().position(|other| other == one) {
            from.swap_remove(at);
        }
    }
}

/// A node with its pods.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    pub(crate) id: NodeId,
    pub(crate) name: Arc<str>,
    /// `None` while only its pods are known.
    pub(crate) facts: Option<NodeFacts>,
    pub(crate) pods: Vec<Arc<PodInfo>>,
    pub(crate) usage: Usage,
    /// Its domain for each topology key that anybody asked about, by the key's number.
    pub(crate) domains: Vec<u32>,
}

impl NodeInfo {
    /// An empty node.
    pub(crate) fn new(id: NodeId, name: Arc<str>) -> Self {
        Self { id, name, facts: None, pods: Vec::new(), usage: Usage::default(), domains: Vec::new() }
    }

    /// The pod of this uid.
    pub(crate) fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.iter().find(|pod| *pod.uid == *uid)
    }

    /// Adds a pod that is not there.
    pub(crate) fn add(&mut self, pod: Arc<PodInfo>) {
        self.usage.add(&pod);
        self.pods.push(pod);
    }

    /// Takes a pod away.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| *pod.uid == *uid)?;
        let pod = self.pods.swap_remove(at);
        self.usage.remove(&pod);
        Some(pod)
    }
}
