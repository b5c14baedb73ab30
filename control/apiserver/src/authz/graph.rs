//! Which node has to do with which object: pods run on nodes, and refer to secrets, configmaps, claims and accounts.
//!
//! An index that follows the caches of pods, volumes, attachments and slices. For every object it counts the nodes
//! that reach it; a volume is reached through its claim, and its secrets through it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

use bytes::BytesMut;
use podwire_api::{Kind, builtin};
use serde_json::Value;

use super::follow::{Followed, News};
use super::references::{self, Sort};
use crate::cache::{Caches, ChangeKind, Entry};
use crate::codec;
use crate::context;
use crate::extract::Wanted;

/// An object: its sort, namespace and name.
type Vertex = (Sort, String, String);

/// The parts of a pod that hold references.
static POD: LazyLock<Wanted> = LazyLock::new(|| {
    Wanted::new([
        "metadata.name",
        "metadata.namespace",
        "metadata.annotations",
        "spec",
        "status.resourceClaimStatuses",
        "status.extendedResourceClaimStatus",
    ])
});

/// A volume: the claim it belongs to, and its secrets.
struct Volume {
    claim: Vertex,
    secrets: Vec<Vertex>,
}

struct State {
    pods: Followed,
    volumes: Followed,
    attachments: Followed,
    slices: Followed,
    /// How many edges lead from an object to a node.
    edges: HashMap<Vertex, HashMap<String, u32>>,
    /// What an entry of the caches added, by its key, to take it away again.
    added: HashMap<Arc<str>, (String, Vec<Vertex>)>,
    /// Volumes by their key.
    known_volumes: HashMap<Arc<str>, Volume>,
    /// The volumes a secret belongs to.
    volumes_of: HashMap<Vertex, Vec<Arc<str>>>,
}

/// The index.
pub(crate) struct Graph(RwLock<State>);

impl Graph {
    /// An index over what is stored.
    pub(crate) fn new(caches: &Caches) -> Self {
        let follow = |kind: &Kind| Followed::new(caches.of(kind));
        Self(RwLock::new(State {
            pods: follow(builtin::pods()),
            volumes: follow(builtin::persistent_volumes()),
            attachments: follow(builtin::volume_attachments()),
            slices: follow(builtin::resource_slices()),
            edges: HashMap::new(),
            added: HashMap::new(),
            known_volumes: HashMap::new(),
            volumes_of: HashMap::new(),
        }))
    }

    /// Whether the object is one that `node` needs.
    pub(crate) fn connects(&self, node: &str, sort: Sort, namespace: &str, name: &str) -> bool {
        let state = self.current();
        let vertex = (sort, namespace.to_owned(), name.to_owned());
        if state.reaches(&vertex, node) {
            return true;
        }
        let through = state.volumes_of.get(&vertex).into_iter().flatten();
        through
            .filter_map(|key| state.known_volumes.get(key))
            .any(|volume| state.reaches(&volume.claim, node))
    }

    /// Whether a pod of `node` uses the volume.
    pub(crate) fn connects_volume(&self, node: &str, name: &str) -> bool {
        let state = self.current();
        let key = context::key(builtin::persistent_volumes(), "", name);
        state.known_volumes.get(key.as_str()).is_some_and(|volume| state.reaches(&volume.claim, node))
    }

    fn current(&self) -> RwLockReadGuard<'_, State> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if state.is_current() {
            return state;
        }
        drop(state);
        self.0.write().unwrap_or_else(PoisonError::into_inner).catch_up();
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn reaches(&self, vertex: &Vertex, node: &str) -> bool {
        self.edges.get(vertex).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn is_current(&self) -> bool {
        [&self.pods, &self.volumes, &self.attachments, &self.slices]
            .iter()
            .all(|followed| followed.is_current())
    }

    fn catch_up(&mut self) {
        while !self.pods.is_current() {
            let (prefix, news) = (self.pods.prefix(), self.pods.news());
            self.take(&prefix, news, Self::learn_pod);
        }
        while !self.volumes.is_current() {
            let (prefix, news) = (self.volumes.prefix(), self.volumes.news());
            self.take(&prefix, news, Self::learn_volume);
        }
        while !self.attachments.is_current() {
            let (prefix, news) = (self.attachments.prefix(), self.attachments.news());
            self.take(&prefix, news, |state, entry| {
                let attachment = state.attachments.decode(entry);
                state.learn_own(Sort::Attachment, entry, &attachment);
            });
        }
        while !self.slices.is_current() {
            let (prefix, news) = (self.slices.prefix(), self.slices.news());
            self.take(&prefix, news, |state, entry| {
                let slice = state.slices.decode(entry);
                state.learn_own(Sort::Slice, entry, &slice);
            });
        }
    }

    fn take(&mut self, prefix: &str, news: News, learn: impl Fn(&mut Self, &Entry)) {
        match news {
            News::All(entries) => {
                let stale = |key: &&Arc<str>| key.starts_with(prefix);
                let added = self.added.keys().filter(stale).cloned();
                let keys: Vec<Arc<str>> =
                    added.chain(self.known_volumes.keys().filter(stale).cloned()).collect();
                keys.iter().for_each(|key| self.forget(key));
                entries.iter().for_each(|entry| learn(self, entry));
            }
            News::Changes(changes) => {
                for change in changes {
                    self.forget(&change.entry.key);
                    if change.kind != ChangeKind::Deleted {
                        learn(self, &change.entry);
                    }
                }
            }
        }
    }

    /// A pod without a node has nothing to say.
    fn learn_pod(&mut self, entry: &Entry) {
        let Some(node) = entry.field("spec.nodeName").filter(|node| !node.is_empty()) else { return };
        let mut text = BytesMut::with_capacity(entry.len());
        codec::write_item(&mut text, entry.revision, &entry.tail);
        let pod = match POD.read(&text) {
            Ok(pod) => pod,
            Err(error) => {
                tracing::error!(key = %entry.key, %error, "a cached pod is not readable; its node reaches nothing through it");
                return;
            }
        };
        let of = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
        let namespace = of("namespace");
        let mut reached = vec![(Sort::Pod, namespace.clone(), of("name"))];
        let named = references::of_pod(&pod).into_iter();
        reached.extend(named.map(|(sort, name)| (sort, namespace.clone(), name)));
        self.add(entry, node.to_owned(), reached);
    }

    fn learn_volume(&mut self, entry: &Entry) {
        let volume = self.volumes.decode(entry);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claim = &volume["spec"]["claimRef"];
        if !claim.is_object() {
            return;
        }
        let claim = (Sort::Claim, text(&claim["namespace"]), text(&claim["name"]));
        let secrets = references::volume_secrets(&volume).into_iter();
        let secrets: Vec<Vertex> = secrets.map(|(namespace, name)| (Sort::Secret, namespace, name)).collect();
        for secret in &secrets {
            self.volumes_of.entry(secret.clone()).or_default().push(entry.key.clone());
        }
        self.known_volumes.insert(entry.key.clone(), Volume { claim, secrets });
    }

    /// Objects that name their node themselves.
    fn learn_own(&mut self, sort: Sort, entry: &Entry, object: &Value) {
        let Some(node) = object["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.add(entry, node.to_owned(), vec![(sort, String::new(), name)]);
    }

    fn add(&mut self, entry: &Entry, node: String, reached: Vec<Vertex>) {
        for vertex in &reached {
            *self.edges.entry(vertex.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.added.insert(entry.key.clone(), (node, reached));
    }

    fn forget(&mut self, key: &str) {
        if let Some((node, reached)) = self.added.remove(key) {
            for vertex in reached {
                self.drop_edge(&vertex, &node);
            }
        }
        if let Some(volume) = self.known_volumes.remove(key) {
            for secret in volume.secrets {
                if let Some(volumes) = self.volumes_of.get_mut(&secret) {
                    volumes.retain(|known| **known != *key);
                    if volumes.is_empty() {
                        self.volumes_of.remove(&secret);
                    }
                }
            }
        }
    }

    fn drop_edge(&mut self, vertex: &Vertex, node: &str) {
        let Some(nodes) = self.edges.get_mut(vertex) else { return };
        if let Some(count) = nodes.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                nodes.remove(node);
            }
        }
        if nodes.is_empty() {
            self.edges.remove(vertex);
        }
    }
}
