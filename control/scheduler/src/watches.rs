//! What is watched beside pods and nodes: namespaces, and what volumes, devices, spreading and preemption depend on.
//!
//! Every kind is one stream of events of objects as JSON; all of them are one stream. A kind that the API server does not
//! serve counts as empty.

use std::collections::HashSet;

use futures::stream::{self, BoxStream, StreamExt};
use podwire_client::api::{ApiResource, GroupVersionKind};
use podwire_client::watcher::{self, watcher};
use podwire_client::{Api, Client, DynamicObject};
use serde_json::Value;

use crate::cluster::workloads::Key;
use crate::cluster::{Cluster, Event};

/// The kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Namespace,
    Claim,
    Volume,
    Class,
    CsiNode,
    CsiDriver,
    CsiCapacity,
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    Budget,
    DeviceClaim,
    DeviceClass,
    Slice,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Kind; 15] = [
        Kind::Namespace,
        Kind::Claim,
        Kind::Volume,
        Kind::Class,
        Kind::CsiNode,
        Kind::CsiDriver,
        Kind::CsiCapacity,
        Kind::Service,
        Kind::ReplicationController,
        Kind::ReplicaSet,
        Kind::StatefulSet,
        Kind::Budget,
        Kind::DeviceClaim,
        Kind::DeviceClass,
        Kind::Slice,
    ];

    fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Kind::Namespace => ("", "Namespace", "namespaces"),
            Kind::Claim => ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Kind::Volume => ("", "PersistentVolume", "persistentvolumes"),
            Kind::Class => ("storage.k8s.io", "StorageClass", "storageclasses"),
            Kind::CsiNode => ("storage.k8s.io", "CSINode", "csinodes"),
            Kind::CsiDriver => ("storage.k8s.io", "CSIDriver", "csidrivers"),
            Kind::CsiCapacity => ("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities"),
            Kind::Service => ("", "Service", "services"),
            Kind::ReplicationController => ("", "ReplicationController", "replicationcontrollers"),
            Kind::ReplicaSet => ("apps", "ReplicaSet", "replicasets"),
            Kind::StatefulSet => ("apps", "StatefulSet", "statefulsets"),
            Kind::Budget => ("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
            Kind::DeviceClaim => ("resource.k8s.io", "ResourceClaim", "resourceclaims"),
            Kind::DeviceClass => ("resource.k8s.io", "DeviceClass", "deviceclasses"),
            Kind::Slice => ("resource.k8s.io", "ResourceSlice", "resourceslices"),
        }
    }

    /// The resource as requests name it.
    pub(crate) fn api(self) -> ApiResource {
        let (group, kind, plural) = self.resource();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
    }

    /// Its name in requests.
    pub(crate) fn plural(self) -> &'static str {
        self.resource().2
    }
}

/// What happened to objects of a kind.
pub(crate) type Told = (Kind, watcher::Result<watcher::Event<DynamicObject>>);

/// All kinds, watched for ever.
pub(crate) fn watch(client: &Client) -> BoxStream<'static, Told> {
    let of = |kind: Kind| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.api());
        watcher(api, watcher::Config::default()).map(move |told| (kind, told)).boxed()
    };
    stream::select_all(Kind::ALL.map(of)).boxed()
}

/// Brings an object of a kind into the cluster, or takes it out of it.
pub(crate) fn apply(cluster: &mut Cluster, kind: Kind, object: &Value) -> Option<Event> {
    let storage = &mut cluster.storage;
    let changed = match kind {
        Kind::Namespace => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
            let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
            return cluster.set_namespace(name, labels.collect());
        }
        Kind::Claim => storage.set_claim(object),
        Kind::Volume => storage.set_volume(object),
        Kind::Class => storage.set_class(object),
        Kind::CsiNode => storage.set_node(object),
        Kind::CsiDriver => storage.set_driver(object),
        Kind::CsiCapacity => storage.set_capacity(object),
        Kind::Service => {
            cluster.workloads.set_service(object);
            None
        }
        Kind::ReplicationController | Kind::ReplicaSet | Kind::StatefulSet => {
            cluster.workloads.set_controller(kind.resource().1, object);
            None
        }
        Kind::Budget => {
            cluster.workloads.budgets.set(object);
            None
        }
        Kind::DeviceClaim | Kind::DeviceClass | Kind::Slice => {
            let changed = match kind {
                Kind::DeviceClaim => cluster.devices.set_claim(object),
                Kind::DeviceClass => cluster.devices.set_class(object),
                _ => cluster.devices.set_slice(object),
            };
            cluster.touch();
            return changed.map(Event::DevicesChanged);
        }
    };
    cluster.touch();
    changed.map(Event::StorageChanged)
}

/// Takes an object out of the cluster.
pub(crate) fn remove(cluster: &mut Cluster, kind: Kind, key: &Key) -> Option<Event> {
    let storage = &mut cluster.storage;
    let changed = match kind {
        Kind::Namespace => {
            cluster.remove_namespace(&key.1);
            None
        }
        Kind::Claim => storage.remove_claim(key),
        Kind::Volume => storage.remove_volume(&key.1),
        Kind::Class => {
            storage.remove_class(&key.1);
            None
        }
        Kind::CsiNode => storage.remove_node(&key.1),
        Kind::CsiDriver => storage.remove_driver(&key.1),
        Kind::CsiCapacity => storage.remove_capacity(key),
        Kind::Service => {
            cluster.workloads.remove_service(key);
            None
        }
        Kind::ReplicationController | Kind::ReplicaSet | Kind::StatefulSet => {
            cluster.workloads.remove_controller(kind.resource().1, key);
            None
        }
        Kind::Budget => {
            cluster.workloads.budgets.remove(key);
            None
        }
        Kind::DeviceClaim => {
            cluster.touch();
            return cluster.devices.remove_claim(key).map(Event::DevicesChanged);
        }
        Kind::DeviceClass => {
            cluster.devices.remove_class(&key.1);
            None
        }
        Kind::Slice => {
            cluster.devices.remove_slice(&key.1);
            None
        }
    };
    cluster.touch();
    changed.map(Event::StorageChanged)
}

/// What a list that begins anew has named so far, and what was there before.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    known: HashSet<Key>,
    listing: HashSet<Key>,
}

impl Listed {
    /// Notes an object.
    pub(crate) fn seen(&mut self, key: Key, listing: bool) {
        if listing {
            self.listing.insert(key.clone());
        }
        self.known.insert(key);
    }

    /// Notes that an object is gone.
    pub(crate) fn gone(&mut self, key: &Key) {
        self.known.remove(key);
    }

    /// A list begins.
    pub(crate) fn begin(&mut self) {
        self.listing.clear();
    }

    /// A list is complete: these are gone.
    pub(crate) fn end(&mut self) -> Vec<Key> {
        let listed = std::mem::take(&mut self.listing);
        let gone: Vec<Key> = self.known.difference(&listed).cloned().collect();
        self.known = listed;
        gone
    }
}
