//! Claims, volumes, storage classes and what nodes can attach. Pure; objects are read from JSON.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use podwire_api::quantity::Quantity;
use podwire_api::selector::{LabelSelector, NodeSelectorTerm, lookup};
use serde_json::Value;

use super::workloads::Key;
use crate::node::{Labels, NodeFacts};
use crate::pod::{PodInfo, VolumeClaim};

/// Says on which node a volume is to be made for a claim.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Changed {
    /// A claim.
    Claim(Key),
    /// A volume.
    Volume,
    /// A storage class.
    Class,
    /// What a node can attach, or how much room a driver has.
    Capacity,
}

/// A claim to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The volume it is bound to, or was.
    pub(crate) volume: String,
    pub(crate) bound: bool,
    pub(crate) lost: bool,
    pub(crate) deleting: bool,
    /// Uid of what controls it.
    owner: Option<String>,
    pub(crate) class: String,
    pub(crate) size: Option<i64>,
    modes: Vec<String>,
    mode: String,
    attributes: String,
    pub(crate) selected_node: Option<String>,
    selector: Option<LabelSelector>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) resource_version: String,
    pub(crate) labels: Labels,
    class: String,
    size: i64,
    modes: Vec<String>,
    mode: String,
    attributes: String,
    /// Namespace, name and uid of the claim it is for.
    pub(crate) claim: Option<(String, String, String)>,
    /// One of these must match a node that can reach it.
    nodes: Option<Vec<NodeSelectorTerm>>,
    /// Driver and handle.
    pub(crate) csi: Option<(String, String)>,
    available: bool,
    deleting: bool,
}

/// A storage class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) provisioner: String,
    /// Whether volumes wait for a node to be chosen; `None` if it does not say.
    pub(crate) waits: Option<bool>,
    /// Labels with their possible values, all of one of which a node must have.
    topologies: Vec<BTreeMap<String, Vec<String>>>,
}

/// How much room a driver has somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Capacity {
    class: String,
    largest: Option<i64>,
    nodes: Option<LabelSelector>,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    claims: HashMap<Key, Arc<Claim>>,
    /// Claims that are thought to have a node selected until the API says so.
    selected: HashMap<Key, String>,
    volumes: HashMap<String, Arc<Volume>>,
    by_class: HashMap<String, BTreeMap<String, Arc<Volume>>>,
    /// Volumes that are thought to be taken until the API says so.
    taken: HashMap<String, Key>,
    classes: HashMap<String, Class>,
    /// How many volumes of each driver a node can attach.
    limits: HashMap<String, HashMap<String, i64>>,
    /// Drivers that report how much room they have.
    reporting: HashMap<String, bool>,
    capacities: HashMap<Key, Capacity>,
    /// How many placed pods use a claim.
    users: HashMap<Key, i64>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(text).collect()
}

fn bytes(value: &Value) -> Option<i64> {
    value.as_str().and_then(|text| Quantity::parse(text).ok()).map(|amount| amount.value())
}

fn key_of(object: &Value) -> Key {
    (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn class_of(object: &Value) -> String {
    let old = object["metadata"]["annotations"][OLD_CLASS].as_str();
    old.map_or_else(|| text(&object["spec"]["storageClassName"]), str::to_owned)
}

fn filesystem(value: &Value) -> String {
    value.as_str().unwrap_or("Filesystem").to_owned()
}

impl Claim {
    fn new(object: &Value) -> Self {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let volume = text(&spec["volumeName"]);
        Self {
            namespace: text(&meta["namespace"]),
            name: text(&meta["name"]),
            uid: text(&meta["uid"]),
            bound: !volume.is_empty() && meta["annotations"].get(BIND_COMPLETED).is_some(),
            volume,
            lost: object["status"]["phase"] == "Lost",
            deleting: !meta["deletionTimestamp"].is_null(),
            owner: owners.filter(|one| one["controller"] == true).map(|one| text(&one["uid"])).next(),
            class: class_of(object),
            size: bytes(&spec["resources"]["requests"]["storage"]),
            modes: texts(&spec["accessModes"]),
            mode: filesystem(&spec["volumeMode"]),
            attributes: text(&spec["volumeAttributesClassName"]),
            selected_node: meta["annotations"][SELECTED_NODE].as_str().map(str::to_owned),
            selector: match &spec["selector"] {
                Value::Null => None,
                given => Some(LabelSelector::from_object(given).unwrap_or_else(|_| LabelSelector::nothing())),
            },
        }
    }

    /// Whether only one pod may use it.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }
}

impl Volume {
    fn new(object: &Value) -> Self {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let labels = meta["labels"].as_object().into_iter().flatten();
        let claim = &spec["claimRef"];
        let terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array();
        Self {
            name: text(&meta["name"]),
            resource_version: text(&meta["resourceVersion"]),
            labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
            class: class_of(object),
            size: bytes(&spec["capacity"]["storage"]).unwrap_or_default(),
            modes: texts(&spec["accessModes"]),
            mode: filesystem(&spec["volumeMode"]),
            attributes: text(&spec["volumeAttributesClassName"]),
            claim: claim
                .is_object()
                .then(|| (text(&claim["namespace"]), text(&claim["name"]), text(&claim["uid"]))),
            nodes: terms.map(|terms| terms.iter().map(NodeSelectorTerm::from).collect()),
            csi: spec["csi"]
                .is_object()
                .then(|| (text(&spec["csi"]["driver"]), text(&spec["csi"]["volumeHandle"]))),
            available: object["status"]["phase"] == "Available",
            deleting: !meta["deletionTimestamp"].is_null(),
        }
    }

    /// Whether a node can reach it. Fields of nodes are not looked at, as upstream does not.
    pub(crate) fn is_reachable_from(&self, facts: &NodeFacts) -> bool {
        self.nodes
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| term.matches("", lookup(&facts.labels))))
    }

    fn is_for(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|(namespace, name, uid)| {
            *namespace == claim.namespace && *name == claim.name && (uid.is_empty() || *uid == claim.uid)
        })
    }
}

impl Class {
    fn new(object: &Value) -> Self {
        let topologies = object["allowedTopologies"].as_array().into_iter().flatten();
        let labels = |term: &Value| {
            let all = term["matchLabelExpressions"].as_array().into_iter().flatten();
            all.map(|one| (text(&one["key"]), texts(&one["values"]))).collect()
        };
        Self {
            provisioner: text(&object["provisioner"]),
            waits: object["volumeBindingMode"].as_str().map(|mode| mode == "WaitForFirstConsumer"),
            topologies: topologies.map(labels).collect(),
        }
    }

    /// Whether volumes can be made for a node.
    pub(crate) fn allows(&self, facts: &NodeFacts) -> bool {
        let has = |(key, values): (&String, &Vec<String>)| {
            facts.labels.get(key).is_some_and(|value| values.contains(value))
        };
        self.topologies.is_empty()
            || self.topologies.iter().any(|term| !term.is_empty() && term.iter().all(has))
    }

    /// Whether anybody makes volumes.
    pub(crate) fn provisions(&self) -> bool {
        !self.provisioner.is_empty() && self.provisioner != "kubernetes.io/no-provisioner"
    }
}

impl Storage {
    /// Takes in a claim; says whether it changed.
    pub(crate) fn set_claim(&mut self, object: &Value) -> Option<Changed> {
        let key = key_of(object);
        let new = Arc::new(Claim::new(object));
        if new.selected_node.is_some() || new.bound {
            self.selected.remove(&key);
        }
        let old = self.claims.insert(key.clone(), new.clone());
        old.is_none_or(|old| old != new).then_some(Changed::Claim(key))
    }

    /// Forgets a claim.
    pub(crate) fn remove_claim(&mut self, key: &Key) -> Option<Changed> {
        self.selected.remove(key);
        self.claims.remove(key).map(|_| Changed::Claim(key.clone()))
    }

    /// Takes in a volume.
    pub(crate) fn set_volume(&mut self, object: &Value) -> Option<Changed> {
        let new = Arc::new(Volume::new(object));
        if new.claim.is_some() {
            self.taken.remove(&new.name);
        }
        if let Some(old) = self.volumes.insert(new.name.clone(), new.clone()) {
            if old == new {
                return None;
            }
            self.leave_class(&old);
        }
        self.by_class.entry(new.class.clone()).or_default().insert(new.name.clone(), new);
        Some(Changed::Volume)
    }

    fn leave_class(&mut self, old: &Volume) {
        if let Some(there) = self.by_class.get_mut(&old.class) {
            there.remove(&old.name);
        }
    }

    /// Forgets a volume.
    pub(crate) fn remove_volume(&mut self, name: &str) -> Option<Changed> {
        self.taken.remove(name);
        let old = self.volumes.remove(name)?;
        self.leave_class(&old);
        Some(Changed::Volume)
    }

    /// Takes in a storage class.
    pub(crate) fn set_class(&mut self, object: &Value) -> Option<Changed> {
        let new = Class::new(object);
        let old = self.classes.insert(text(&object["metadata"]["name"]), new.clone());
        old.is_none_or(|old| old != new).then_some(Changed::Class)
    }

    /// Forgets a storage class.
    pub(crate) fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Takes in what a node can attach.
    pub(crate) fn set_node(&mut self, object: &Value) -> Option<Changed> {
        let drivers = object["spec"]["drivers"].as_array().into_iter().flatten();
        let count = |one: &Value| Some((text(&one["name"]), one["allocatable"]["count"].as_i64()?));
        let new: HashMap<_, _> = drivers.filter_map(count).collect();
        let old = self.limits.insert(text(&object["metadata"]["name"]), new.clone());
        old.is_none_or(|old| old != new).then_some(Changed::Capacity)
    }

    /// Forgets what a node can attach.
    pub(crate) fn remove_node(&mut self, name: &str) -> Option<Changed> {
        self.limits.remove(name).map(|_| Changed::Capacity)
    }

    /// Takes in a driver.
    pub(crate) fn set_driver(&mut self, object: &Value) -> Option<Changed> {
        let reports = object["spec"]["storageCapacity"] == true;
        let old = self.reporting.insert(text(&object["metadata"]["name"]), reports);
        (old != Some(reports)).then_some(Changed::Capacity)
    }

    /// Forgets a driver.
    pub(crate) fn remove_driver(&mut self, name: &str) -> Option<Changed> {
        self.reporting.remove(name).map(|_| Changed::Capacity)
    }

    /// Takes in how much room there is somewhere.
    pub(crate) fn set_capacity(&mut self, object: &Value) -> Option<Changed> {
        let nodes = &object["nodeTopology"];
        let new = Capacity {
            class: text(&object["storageClassName"]),
            largest: bytes(&object["maximumVolumeSize"]).or_else(|| bytes(&object["capacity"])),
            nodes: (!nodes.is_null()).then(|| LabelSelector::from_object(nodes).ok()).flatten(),
        };
        let old = self.capacities.insert(key_of(object), new.clone());
        old.is_none_or(|old| old != new).then_some(Changed::Capacity)
    }

    /// Forgets how much room there was.
    pub(crate) fn remove_capacity(&mut self, key: &Key) -> Option<Changed> {
        self.capacities.remove(key).map(|_| Changed::Capacity)
    }

    /// Counts a placed pod as user of its claims (1), or no longer (-1).
    pub(crate) fn used(&mut self, pod: &PodInfo, sign: i64) {
        for claim in &pod.volume_claims {
            let key = (pod.namespace.clone(), claim.name(&pod.name));
            let users = self.users.entry(key.clone()).or_default();
            *users += sign;
            if *users == 0 {
                self.users.remove(&key);
            }
        }
    }

    /// How many placed pods use a claim.
    pub(crate) fn users(&self, key: &Key) -> i64 {
        self.users.get(key).copied().unwrap_or_default()
    }

    /// A claim that a pod needs.
    pub(crate) fn claim(&self, pod: &PodInfo, needed: &VolumeClaim) -> Option<&Arc<Claim>> {
        self.claims.get(&(pod.namespace.clone(), needed.name(&pod.name)))
    }

    /// A volume by name.
    pub(crate) fn volume(&self, name: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    /// A storage class by name.
    pub(crate) fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// How many volumes a node can attach, by driver.
    pub(crate) fn limits(&self, node: &str) -> Option<&HashMap<String, i64>> {
        self.limits.get(node).filter(|limits| !limits.is_empty())
    }

    /// The node that was chosen for a claim's volume.
    pub(crate) fn selected_node<'a>(&'a self, claim: &'a Claim) -> Option<&'a str> {
        let thought =
            || self.selected.get(&(claim.namespace.clone(), claim.name.clone())).map(String::as_str);
        claim.selected_node.as_deref().or_else(thought)
    }

    /// The smallest volume that would do for a claim on a node, but for those in `chosen`.
    pub(crate) fn matching(
        &self,
        claim: &Claim,
        facts: &NodeFacts,
        chosen: &[Arc<Volume>],
    ) -> Option<&Arc<Volume>> {
        let own: Key = (claim.namespace.clone(), claim.name.clone());
        let mut smallest: Option<&Arc<Volume>> = None;
        for volume in self.by_class.get(&claim.class).into_iter().flat_map(BTreeMap::values) {
            let free = volume.claim.is_none() && self.taken.get(&volume.name).is_none_or(|by| *by == own);
            let bound = volume.is_for(claim);
            if !free && !bound
                || chosen.iter().any(|one| one.name == volume.name)
                || volume.size < claim.size.unwrap_or_default()
                || volume.mode != claim.mode
                || volume.attributes != claim.attributes
                || volume.deleting
            {
                continue;
            }
            if bound {
                return volume.is_reachable_from(facts).then_some(volume);
            }
            let fits = volume.available
                && claim.selector.as_ref().is_none_or(|one| one.matches_with(lookup(&volume.labels)))
                && volume.is_reachable_from(facts)
                && claim.modes.iter().all(|mode| volume.modes.contains(mode));
            if fits && smallest.is_none_or(|other| volume.size < other.size) {
                smallest = Some(volume);
            }
        }
        smallest
    }

    /// Whether there is room to make a claim's volume for a node, as far as its driver says.
    pub(crate) fn has_room(&self, claim: &Claim, class: &Class, facts: &NodeFacts) -> bool {
        let Some(size) = claim.size else { return true };
        if !self.reporting.get(&class.provisioner).copied().unwrap_or_default() {
            return true;
        }
        self.capacities.values().any(|one| {
            one.class == claim.class
                && one.largest.is_some_and(|largest| largest >= size)
                && one.nodes.as_ref().is_some_and(|nodes| nodes.matches_with(lookup(&facts.labels)))
        })
    }

    /// Thinks volumes taken and claims on their way until the API says so.
    pub(crate) fn assume(&mut self, taken: &[(Arc<Claim>, Arc<Volume>)], made: &[Arc<Claim>], node: &str) {
        for (claim, volume) in taken {
            self.taken.insert(volume.name.clone(), (claim.namespace.clone(), claim.name.clone()));
        }
        for claim in made {
            self.selected.insert((claim.namespace.clone(), claim.name.clone()), node.to_owned());
        }
    }

    /// Takes that back.
    pub(crate) fn forget(&mut self, taken: &[(Arc<Claim>, Arc<Volume>)], made: &[Arc<Claim>]) {
        for (_, volume) in taken {
            self.taken.remove(&volume.name);
        }
        for claim in made {
            self.selected.remove(&(claim.namespace.clone(), claim.name.clone()));
        }
    }

    /// Why a claim of a pod cannot be used, in upstream's words.
    pub(crate) fn complaint(&self, pod: &PodInfo, needed: &VolumeClaim) -> Option<String> {
        let name = needed.name(&pod.name);
        let ephemeral = matches!(needed, VolumeClaim::Ephemeral(_));
        let Some(claim) = self.claim(pod, needed) else {
            return Some(if ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                )
            } else {
                format!("persistentvolumeclaim \"{name}\" not found")
            });
        };
        if claim.lost {
            let volume = &claim.volume;
            return Some(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if claim.deleting {
            return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        (ephemeral && claim.owner.as_deref() != Some(&pod.uid)).then(|| {
            let namespace = &pod.namespace;
            format!("PVC {namespace}/{name} was not created for pod {} (pod is not owner)", pod.reference())
        })
    }
}
