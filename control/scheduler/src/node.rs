//! One node and what already runs on it, with sums kept up to date. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use podwire_api::resources::Resources as ResourceList;

use crate::pod::PodInfo;
use crate::resources::Resources;

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

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
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
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
}

/// A node with its pods.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    /// `None` while only its pods are known.
    pub(crate) facts: Option<NodeFacts>,
    pub(crate) pods: BTreeMap<Arc<str>, Arc<PodInfo>>,
    pub(crate) requested: Resources,
    pub(crate) nonzero: Resources,
}

impl NodeInfo {
    /// An empty node.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a pod, or replaces what was known of it.
    pub(crate) fn add(&mut self, pod: Arc<PodInfo>) {
        self.remove(&pod.uid);
        self.requested.add(&pod.requests);
        self.nonzero.add(&pod.nonzero);
        self.pods.insert(pod.uid.clone(), pod);
    }

    /// Takes a pod away.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.requested.subtract(&pod.requests);
        self.nonzero.subtract(&pod.nonzero);
        Some(pod)
    }
}
