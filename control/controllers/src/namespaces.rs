//! Namespaces: what each must contain, and emptying those that are to go.
//!
//! One task owns what it has seen of namespaces, `default` service accounts and `kube-root-ca.crt`
//! config maps. It spawns one task per write and per namespace being removed, into one `JoinSet`.
//!
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/>, finalizers:
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>

mod plan;
mod removal;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use podwire_client::api::{Patch, PatchParams, PostParams};
use podwire_client::watcher;
use podwire_client::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::plan::{Missing, Seen};
use crate::watching::{Watch, caught, interrupted, is_status, watch};
use crate::{Config, FIELD_MANAGER};

/// The config map that carries the API server's certificate bundle.
const ROOT_CA: &str = "kube-root-ca.crt";

/// A failed write is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// What a spawned task leaves behind.
enum Done {
    /// The namespace is to be looked at again.
    Again(String),
    /// The namespace is empty and finalized, or the work was interrupted.
    Removed(String),
    Written,
}

struct State {
    config: Config,
    shutdown: CancellationToken,
    namespaces: HashMap<String, Seen>,
    /// Namespaces in the list under way.
    listed: HashSet<String>,
    /// Lists that have not been seen whole yet; nothing is made before.
    unsynced: HashSet<&'static str>,
    removing: HashSet<String>,
    tasks: JoinSet<Done>,
}

/// Runs until `shutdown`.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) {
    let client = config.client.clone();
    let mut namespaces: Watch<Namespace> = watch(&client, "");
    let mut accounts: Watch<ServiceAccount> = watch(&client, "metadata.name=default");
    let mut bundles: Watch<ConfigMap> = watch(&client, &format!("metadata.name={ROOT_CA}"));
    let mut state = State {
        config,
        shutdown: shutdown.clone(),
        namespaces: HashMap::new(),
        listed: HashSet::new(),
        unsynced: HashSet::from(["namespaces", "accounts", "bundles"]),
        removing: HashSet::new(),
        tasks: JoinSet::new(),
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(event) = namespaces.next() => state.namespace_event(event),
            Some(event) = accounts.next() => state.account_event(event),
            Some(event) = bundles.next() => state.bundle_event(event),
            Some(done) = state.tasks.join_next() => state.done(done),
        }
    }
    while state.tasks.join_next().await.is_some() {}
}

impl State {
    fn namespace_event(&mut self, event: watcher::Result<watcher::Event<Namespace>>) {
        match event {
            Ok(watcher::Event::Apply(namespace)) => self.namespace_seen(&namespace),
            Ok(watcher::Event::InitApply(namespace)) => {
                self.listed.insert(namespace.name_any());
                self.namespace_seen(&namespace);
            }
            Ok(watcher::Event::Delete(namespace)) => {
                self.namespaces.remove(&namespace.name_any());
            }
            Ok(watcher::Event::Init) => self.listed.clear(),
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed);
                self.namespaces.retain(|name, _| listed.contains(name));
                self.synced("namespaces");
            }
            Err(error) => interrupted("namespaces", &error),
        }
    }

    fn namespace_seen(&mut self, namespace: &Namespace) {
        let name = namespace.name_any();
        let seen = self.namespaces.entry(name.clone()).or_default();
        seen.exists = true;
        seen.deleting = namespace.metadata.deletion_timestamp.is_some();
        if seen.deleting {
            self.remove(&name, namespace);
        } else {
            self.complete(&name);
        }
    }

    fn account_event(&mut self, event: watcher::Result<watcher::Event<ServiceAccount>>) {
        match event {
            Ok(watcher::Event::Apply(account) | watcher::Event::InitApply(account)) => {
                self.namespaces.entry(account.namespace().unwrap_or_default()).or_default().account = true;
            }
            Ok(watcher::Event::Delete(account)) => {
                let name = account.namespace().unwrap_or_default();
                self.namespaces.entry(name.clone()).or_default().account = false;
                self.complete(&name);
            }
            Ok(watcher::Event::Init) => {
                self.unsynced.insert("accounts");
                self.namespaces.values_mut().for_each(|seen| seen.account = false);
            }
            Ok(watcher::Event::InitDone) => self.synced("accounts"),
            Err(error) => interrupted("service accounts", &error),
        }
    }

    fn bundle_event(&mut self, event: watcher::Result<watcher::Event<ConfigMap>>) {
        let (map, present) = match event {
            Ok(watcher::Event::Apply(map) | watcher::Event::InitApply(map)) => (map, true),
            Ok(watcher::Event::Delete(map)) => (map, false),
            Ok(watcher::Event::Init) => {
                self.unsynced.insert("bundles");
                return self.namespaces.values_mut().for_each(|seen| seen.bundle = None);
            }
            Ok(watcher::Event::InitDone) => return self.synced("bundles"),
            Err(error) => return interrupted("config maps", &error),
        };
        let name = map.namespace().unwrap_or_default();
        let content = map.data.and_then(|mut data| data.remove("ca.crt"));
        self.namespaces.entry(name.clone()).or_default().bundle =
            present.then(|| content.unwrap_or_default());
        self.complete(&name);
    }

    fn synced(&mut self, what: &'static str) {
        self.unsynced.remove(what);
        let names: Vec<_> = self.namespaces.keys().cloned().collect();
        names.iter().for_each(|name| self.complete(name));
    }

    /// Makes what the namespace lacks.
    fn complete(&mut self, name: &str) {
        if !self.unsynced.is_empty() {
            return;
        }
        let Some(seen) = self.namespaces.get_mut(name) else { return };
        for missing in plan::missing(seen, &self.config.root_ca_pem) {
            seen.being_made.insert(missing);
            let (client, ca, name) =
                (self.config.client.clone(), self.config.root_ca_pem.clone(), name.to_owned());
            let failed = Done::Again(name.clone());
            let work = async move {
                let Err(error) = make(client, missing, &name, &ca).await else { return Done::Written };
                // Gone or going meanwhile: nothing to make.
                if is_status(&error, 404) || is_status(&error, 403) {
                    return Done::Written;
                }
                tracing::warn!(namespace = name, ?missing, %error, "not made; will retry");
                tokio::time::sleep(RETRY).await;
                Done::Again(name)
            };
            self.tasks.spawn(caught(work, failed));
        }
    }

    fn remove(&mut self, name: &str, namespace: &Namespace) {
        let held = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
        let ours = held.is_some_and(|list| list.iter().any(|one| one == plan::FINALIZER));
        if !ours || !self.removing.insert(name.to_owned()) {
            return;
        }
        let (client, name, shutdown) = (self.config.client.clone(), name.to_owned(), self.shutdown.clone());
        let failed = Done::Removed(name.clone());
        let work = async move {
            removal::remove(client, &name, &shutdown).await;
            Done::Removed(name)
        };
        self.tasks.spawn(caught(work, failed));
    }

    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Again(name)) => {
                if let Some(seen) = self.namespaces.get_mut(&name) {
                    seen.being_made.clear();
                }
                self.complete(&name);
            }
            Ok(Done::Removed(name)) => {
                self.removing.remove(&name);
            }
            Ok(Done::Written) => {}
            Err(error) => tracing::error!(%error, "a write of the namespace controller panicked"),
        }
    }
}

async fn make(
    client: Client,
    missing: Missing,
    namespace: &str,
    ca: &str,
) -> Result<(), podwire_client::Error> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let made = match missing {
        Missing::Account => {
            let api: Api<ServiceAccount> = Api::namespaced(client, namespace);
            let mut account = ServiceAccount::default();
            account.metadata.name = Some("default".into());
            api.create(&params, &account).await.map(drop)
        }
        Missing::Bundle => {
            let api: Api<ConfigMap> = Api::namespaced(client, namespace);
            let mut map = ConfigMap::default();
            map.metadata.name = Some(ROOT_CA.into());
            map.data = Some([("ca.crt".to_owned(), ca.to_owned())].into());
            api.create(&params, &map).await.map(drop)
        }
        Missing::BundleContent => {
            let api: Api<ConfigMap> = Api::namespaced(client, namespace);
            let patch = Patch::Merge(json!({"data": {"ca.crt": ca}}));
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
            api.patch(ROOT_CA, &params, &patch).await.map(drop)
        }
    };
    match made {
        Err(error) if is_status(&error, 409) => Ok(()),
        other => other,
    }
}
