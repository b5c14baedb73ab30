//! An API server and a scheduler that live as long as a test, and objects in few words.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use podwire_apiserver::{Config as ServerConfig, Identity};
use podwire_scheduler::Config;
use podwire_store::{Embedded, EmbeddedConfig};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);
const DRIVER: &str = "gpu.example.com";

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) as_scheduler: podwire_client::Client,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    scheduler: JoinSet<()>,
    store: Embedded,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let server =
            ServerConfig::new(Arc::new(store.clone()), dir.path().join("pki"), listen).build().await.unwrap();
        let client = Client::new(server.client(Identity::admin()), "default");
        let as_scheduler = podwire_client::Client::new(server.client(Identity::scheduler()), "default");
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(shutdown.clone()));
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::default_namespaced(client.clone());
        accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.ok();
        let scheduler = JoinSet::new();
        let mut world = Self { client, as_scheduler, shutdown, tasks, scheduler, store, _dir: dir };
        world.start_scheduler().await;
        world
    }

    pub(crate) async fn start_scheduler(&mut self) {
        self.start_scheduler_with(self.as_scheduler.clone()).await;
    }

    pub(crate) async fn start_scheduler_with(&mut self, client: podwire_client::Client) {
        let config = Config::new(client);
        self.scheduler.spawn(config.build().await.unwrap().run(self.shutdown.clone()));
    }

    /// As if it were killed.
    pub(crate) async fn stop_scheduler(&mut self) {
        self.scheduler.shutdown().await;
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        let rest = async {
            while self.scheduler.join_next().await.is_some() {}
            while self.tasks.join_next().await.is_some() {}
        };
        tokio::time::timeout(DEADLINE, rest).await.expect("all participants come to rest");
        self.store.close().await;
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn claims(&self) -> Api<ResourceClaim> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn nodes(&self, names: &[&str]) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        for name in names {
            let meta = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": meta});
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
            let resources = json!({"cpu": "32", "memory": "64Gi", "pods": "110"});
            let status = json!({"status": {"capacity": resources, "allocatable": resources, "conditions":
                [{"type": "Ready", "status": "True"}]}});
            nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
            let untaint = Patch::Merge(json!({"spec": {"taints": null}}));
            nodes.patch(name, &PatchParams::default(), &untaint).await.unwrap();
        }
    }

    pub(crate) async fn class(&self, name: &str, spec: Value) {
        let class = json!({"metadata": {"name": name}, "spec": spec});
        let api: Api<DeviceClass> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    }

    pub(crate) async fn slice(&self, slice: Value) {
        let api: Api<ResourceSlice> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    }

    pub(crate) fn slice_with(&self, name: &str, pool: &str, node: &str, devices: &[Value]) -> Value {
        let mut made = slice(node, devices);
        made["metadata"]["name"] = json!(name);
        made["spec"]["pool"]["name"] = json!(pool);
        made
    }

    pub(crate) async fn claim(&self, claim: Value) {
        self.claims().create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }

    pub(crate) async fn get_claim(&self, name: &str) -> Value {
        json!(self.claims().get(name).await.unwrap())
    }

    pub(crate) async fn all_claims(&self) -> Vec<Value> {
        self.claims().list(&ListParams::default()).await.unwrap().iter().map(|one| json!(one)).collect()
    }

    pub(crate) async fn all_pods(&self) -> Vec<Pod> {
        self.pods().list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn patch_claim_status(&self, name: &str, patch: Value) {
        self.claims().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn patch_pod_status(&self, name: &str, patch: Value) {
        self.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let list: Value = self.client.request(request).await.unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn create(&self, pod: Value) -> Pod {
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Waits on a watch until the pod satisfies `wanted`.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher(self.pods(), config).boxed();
        let waiting = async {
            while let Some(event) = events.try_next().await.unwrap() {
                if let watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) = event
                    && wanted(&pod)
                {
                    return pod;
                }
            }
            panic!("the watch ended")
        };
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(pod) => pod,
            Err(_) => panic!("not in time: {:#?}", self.pods().get(name).await),
        }
    }

    pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        ask: impl Fn() -> F,
    ) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn events(&self, pod: &str, reason: &str) -> Vec<Event> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let fields = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        self.eventually(reason, || async {
            let mut found = api.list(&fields).await.unwrap().items;
            found.retain(|event| event.reason.as_deref() == Some(reason));
            (!found.is_empty()).then_some(found)
        })
        .await
    }
}

pub(crate) fn device(name: &str, model: &str) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}}})
}

/// The only slice of a node's pool.
pub(crate) fn slice(node: &str, devices: &[Value]) -> Value {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    json!({"metadata": {"name": format!("{node}-slice")},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}})
}

pub(crate) fn claim(name: &str, requests: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}})
}

pub(crate) fn exactly(class: &str, count: usize) -> Value {
    json!([{"name": "r", "exactly": {"deviceClassName": class, "count": count}}])
}

/// A pod that uses claims.
pub(crate) fn pod(name: &str, claims: &[&str]) -> Value {
    let entries: Vec<Value> = claims
        .iter()
        .enumerate()
        .map(|(at, claim)| json!({"name": format!("e{at}"), "resourceClaimName": claim}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": entries}})
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn condition(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::PodCondition> {
    let all = pod.status.as_ref()?.conditions.as_ref()?;
    all.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False")
}

/// Why it has no node.
pub(crate) fn refused(pod: &Pod) -> Option<&str> {
    condition(pod)?.message.as_deref()
}

pub(crate) fn reason(pod: &Pod) -> Option<&str> {
    condition(pod)?.reason.as_deref()
}
