//! Config maps and secrets that pods on this node use: read once, then watched, one watch per object.
//!
//! Tasks: one per object in use; it lists the one object, watches it, and rings the pods that use it. An object
//! that no pod uses any more is dropped.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use podwire_client::{
    Api,
    api::{ListParams, NamespaceResourceScope, WatchEvent, WatchParams},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{inbox::Signal, node::Inboxes};

/// Which kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A config map.
    ConfigMap,
    /// A secret.
    Secret,
}

impl Kind {
    /// As messages name it.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmap",
            Kind::Secret => "secret",
        }
    }
}

/// What an object holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Keys and values.
    pub(crate) data: BTreeMap<String, Vec<u8>>,
    /// A secret's type.
    pub(crate) type_: String,
}

/// The state of an object: what it holds, that it does not exist, or why it cannot be read.
pub(crate) type Fetched = Result<Option<Arc<Content>>, String>;

type Key = (Kind, String, String);

struct Entry {
    content: watch::Receiver<Option<Fetched>>,
    users: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
}

/// The objects in use on this node.
pub(crate) struct ConfigMapsAndSecrets {
    client: podwire_client::Client,
    inboxes: Arc<Inboxes>,
    entries: Mutex<HashMap<Key, Entry>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl ConfigMapsAndSecrets {
    pub(crate) fn new(
        client: podwire_client::Client,
        inboxes: Arc<Inboxes>,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) -> ConfigMapsAndSecrets {
        ConfigMapsAndSecrets { client, inboxes, entries: Mutex::default(), tasks, shutdown }
    }

    /// The object's content now; from here on the pod `uid` is told when it changes.
    pub(crate) async fn get(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Fetched {
        let mut content = self.entry((kind, namespace.to_owned(), name.to_owned()), uid);
        match content.wait_for(Option::is_some).await {
            Ok(value) => value.clone().expect("waited for a value"),
            Err(_) => Err("the kubelet is shutting down".to_owned()),
        }
    }

    fn entry(&self, key: Key, uid: &str) -> watch::Receiver<Option<Fetched>> {
        let mut entries = self.entries.lock().expect("no holder of the entries panics");
        let entry = entries.entry(key.clone()).or_insert_with(|| {
            let (sender, content) = watch::channel(None);
            let users: Arc<Mutex<BTreeSet<String>>> = Arc::default();
            let stop = self.shutdown.child_token();
            let follower = Follower {
                key,
                sender,
                users: users.clone(),
                inboxes: self.inboxes.clone(),
                client: self.client.clone(),
            };
            let token = stop.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = follower.run() => {}
                }
            });
            Entry { content, users, stop }
        });
        entry.users.lock().expect("no holder of the users panics").insert(uid.to_owned());
        entry.content.clone()
    }

    /// The pod `uid` needs nothing any more.
    pub(crate) fn release(&self, uid: &str) {
        let mut entries = self.entries.lock().expect("no holder of the entries panics");
        entries.retain(|key, entry| {
            let mut users = entry.users.lock().expect("no holder of the users panics");
            users.remove(uid);
            // Every pod mounts this one; keeping it saves each next pod a round trip.
            let keep = !users.is_empty() || key.2 == "kube-root-ca.crt";
            if !keep {
                entry.stop.cancel();
            }
            keep
        });
    }
}

struct Follower {
    key: Key,
    sender: watch::Sender<Option<Fetched>>,
    users: Arc<Mutex<BTreeSet<String>>>,
    inboxes: Arc<Inboxes>,
    client: podwire_client::Client,
}

impl Follower {
    async fn run(self) {
        let mut failures = 0u32;
        loop {
            let result = match self.key.0 {
                Kind::ConfigMap => self.follow::<ConfigMap>(config_map).await,
                Kind::Secret => self.follow::<Secret>(secret).await,
            };
            match result {
                Ok(()) => failures = 0,
                Err(error) => {
                    // An object once read stays in use while the API server is away.
                    if !matches!(&*self.sender.borrow(), Some(Ok(Some(_)))) {
                        self.publish(Err(error.to_string()));
                    }
                    failures += 1;
                }
            }
            tokio::time::sleep(Duration::from_millis(100 << failures.min(7))).await;
        }
    }

    async fn follow<K>(&self, read: fn(K) -> Content) -> Result<(), podwire_client::Error>
    where
        K: podwire_client::Object<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let (_, namespace, name) = &self.key;
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let field = format!("metadata.name={name}");
        let list = api.list(&ListParams::default().fields(&field)).await?;
        let version = list.metadata.resource_version.clone().unwrap_or_default();
        self.publish(Ok(list.items.into_iter().next().map(|object| Arc::new(read(object)))));
        let params = WatchParams::default().fields(&field).disable_bookmarks();
        let mut events = api.watch(&params, &version).await?;
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.publish(Ok(Some(Arc::new(read(object)))));
                }
                WatchEvent::Deleted(_) => self.publish(Ok(None)),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(podwire_client::Error::Api(status)),
            }
        }
        Ok(())
    }

    fn publish(&self, fetched: Fetched) {
        let first = self.sender.borrow().is_none();
        let changed = self.sender.send_if_modified(|old| {
            let changed = old.as_ref() != Some(&fetched);
            if changed {
                *old = Some(fetched);
            }
            changed
        });
        if !changed || first {
            return;
        }
        let users: Vec<String> =
            self.users.lock().expect("no holder of the users panics").iter().cloned().collect();
        for uid in users {
            self.inboxes.signal(&uid, Signal::VolumesChanged);
        }
    }
}

fn config_map(object: ConfigMap) -> Content {
    let text = object.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.into_bytes()));
    let binary = object.binary_data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0));
    Content { data: text.chain(binary).collect(), type_: String::new() }
}

fn secret(object: Secret) -> Content {
    Content {
        data: object.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect(),
        type_: object.type_.unwrap_or_default(),
    }
}
