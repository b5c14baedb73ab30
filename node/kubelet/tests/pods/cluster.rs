//! A real API server in process, a kubelet, and a runtime that does as it is told.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret, ServiceAccount};
use kube::{
    Client,
    api::{Api, DeleteParams, ListParams, PostParams},
    runtime::watcher,
};
use podwire_apiserver::{ApiService, Config as ServerConfig, Identity};
use podwire_client::Body;
use podwire_kubelet::Config;
use podwire_store::{Embedded, EmbeddedConfig};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::runtime::Fake;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const NODE: &str = "node-a";

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) fake: Fake,
    node: podwire_client::Client,
    /// Whether the kubelet's lists and watches of pods wait.
    held: watch::Sender<bool>,
    shutdown: CancellationToken,
    kubelet: Option<(CancellationToken, JoinSet<()>)>,
    /// A runtime of its own, with which a kubelet can be killed.
    apart: Option<tokio::runtime::Runtime>,
    tasks: JoinSet<()>,
    store: Embedded,
    pub(crate) cgroup: String,
    pub(crate) dir: tempfile::TempDir,
}

impl Drop for Cluster {
    /// A test that failed leaves no cgroups either.
    fn drop(&mut self) {
        if let Ok(group) = podwire_linux::cgroup::group(&self.cgroup) {
            group.remove(Duration::from_secs(5)).ok();
        }
    }
}

impl Cluster {
    pub(crate) async fn start() -> Cluster {
        let mut cluster = Cluster::without_kubelet().await;
        cluster.start_kubelet().await;
        cluster
    }

    pub(crate) async fn without_kubelet() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let server =
            ServerConfig::new(Arc::new(store.clone()), dir.path().join("pki"), listen).build().await.unwrap();
        let client = Client::new(server.client(Identity::admin()), "default");
        let held = watch::channel(false).0;
        let node = client_of(server.client(Identity::node(NODE)), &held);
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(shutdown.clone()));
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.ok();
        let fake = Fake::new();
        let (served, socket, stop) = (fake.clone(), dir.path().join("cri.sock"), shutdown.clone());
        tasks.spawn(async move { served.serve(&socket, stop).await });
        let unique = dir.path().file_name().unwrap().to_string_lossy().trim_start_matches('.').to_owned();
        let cgroup = format!("/podwire-kubelet-test-{}-{unique}", std::process::id());
        Cluster { client, fake, node, held, shutdown, kubelet: None, apart: None, tasks, store, cgroup, dir }
    }

    /// Lets the kubelet wait for what it asks about pods, or no longer.
    pub(crate) fn hold_pods(&self, held: bool) {
        self.held.send_replace(held);
    }

    pub(crate) async fn start_kubelet(&mut self) {
        self.start_kubelet_with(|_| {}).await;
    }

    pub(crate) async fn start_kubelet_with(&mut self, change: impl FnOnce(&mut Config)) {
        let config = self.config(change);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(config.build().await.unwrap().run(stop.clone()));
        self.kubelet = Some((stop, tasks));
    }

    /// Starts a kubelet that can be killed.
    pub(crate) fn start_kubelet_apart(&mut self, change: impl FnOnce(&mut Config)) {
        let config = self.config(change);
        let apart =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        apart.spawn(async move { config.build().await.unwrap().run(CancellationToken::new()).await });
        self.apart = Some(apart);
    }

    /// Ends the kubelet where it stands: nothing that it has begun is finished.
    pub(crate) async fn kill_kubelet(&mut self) {
        let Some(apart) = self.apart.take() else { return };
        let gone = tokio::task::spawn_blocking(move || apart.shutdown_timeout(DEADLINE));
        gone.await.unwrap();
    }

    fn config(&self, change: impl FnOnce(&mut Config)) -> Config {
        let mut config = Config::new(
            self.node.clone(),
            NODE,
            self.dir.path().join("cri.sock"),
            self.dir.path().join("kubelet"),
        );
        config.cgroup_root.clone_from(&self.cgroup);
        // How full this machine's disk is must not decide what the tests see.
        config.eviction = None;
        config.memory_dir = Some(self.dir.path().join("memory"));
        config.static_pod_dir = Some(self.dir.path().join("static"));
        let pki = podwire_apiserver::pki::Pki::open(&self.dir.path().join("pki")).unwrap();
        let serving = pki.issue_node_server(NODE, &["127.0.0.1".to_owned()]).unwrap();
        config.tls = Some(podwire_kubelet::ServerTls {
            cert: serving.cert_pem,
            key: serving.key_pem,
            client_ca: pki.ca_pem().to_owned(),
        });
        change(&mut config);
        config
    }

    pub(crate) async fn stop_kubelet(&mut self) {
        if let Some((stop, mut tasks)) = self.kubelet.take() {
            stop.cancel();
            let rest = async { while tasks.join_next().await.is_some() {} };
            tokio::time::timeout(DEADLINE, rest).await.expect("the kubelet comes to rest");
        }
    }

    pub(crate) async fn stop(mut self) {
        self.kill_kubelet().await;
        self.stop_kubelet().await;
        self.shutdown.cancel();
        let rest = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(DEADLINE, rest).await.expect("all participants come to rest");
        self.store.close().await;
        podwire_linux::cgroup::group(&self.cgroup).unwrap().remove(Duration::from_secs(5)).unwrap();
    }

    /// Waits until the API server knows where the kubelet's server listens.
    pub(crate) async fn registered(&self) {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        self.eventually("the node has an endpoint", || async {
            let status = nodes.get_opt(NODE).await.unwrap().and_then(|n| n.status);
            let endpoint = status.and_then(|s| s.daemon_endpoints).and_then(|e| e.kubelet_endpoint);
            endpoint.is_some_and(|e| e.port > 0)
        })
        .await;
    }

    /// Where the kubelet makes the cgroup of a pod that asks for nothing.
    pub(crate) fn pod_cgroup(&self, uid: &str) -> String {
        format!("{}/kubepods/besteffort/pod{uid}", self.cgroup)
    }

    /// Where the kubelet's server listens, as the node's object says.
    pub(crate) async fn kubelet_port(&self) -> u16 {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let endpoints = nodes.get(NODE).await.unwrap().status.unwrap().daemon_endpoints.unwrap();
        u16::try_from(endpoints.kubelet_endpoint.unwrap().port).unwrap()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates a pod bound to the node.
    pub(crate) async fn create(&self, name: &str, mut spec: Value) -> Pod {
        spec["nodeName"] = json!(NODE);
        if spec.get("automountServiceAccountToken").is_none() {
            spec["automountServiceAccountToken"] = json!(false);
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    pub(crate) async fn config_map(&self, name: &str, data: Value) {
        let api: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    pub(crate) async fn secret(&self, name: &str, data: Value) {
        let api: Api<Secret> = Api::default_namespaced(self.client.clone());
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str, grace: u32) {
        self.pods().delete(name, &DeleteParams::default().grace_period(grace)).await.unwrap();
    }

    /// Waits on a watch until the pod satisfies `wanted`.
    pub(crate) async fn until(&self, name: &str, what: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher(self.pods(), config).boxed();
        let mut last = None;
        let waiting = async {
            while let Some(event) = events.try_next().await.unwrap() {
                if let watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) = event {
                    if wanted(&pod) {
                        return pod;
                    }
                    last = Some(pod);
                }
            }
            unreachable!("a watch never ends");
        };
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(pod) => pod,
            Err(_) => {
                let status = serde_json::to_string(&last.and_then(|p| p.status)).unwrap();
                panic!("{name} never became {what}; last: {status}; events: {:?}", self.messages().await);
            }
        }
    }

    pub(crate) async fn running(&self, name: &str) -> Pod {
        self.until(name, "Running", |pod| phase(pod) == "Running" && is_ready(pod)).await
    }

    pub(crate) async fn gone(&self, name: &str) {
        self.eventually(&format!("{name} gone"), || async {
            self.pods().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    pub(crate) async fn eventually<F: Future<Output = bool>>(
        &self,
        what: &str,
        mut probe: impl FnMut() -> F,
    ) {
        let until = Instant::now() + DEADLINE;
        while !probe().await {
            assert!(Instant::now() < until, "never: {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How often an event about a pod with this reason was written.
    pub(crate) async fn told(&self, pod: &str, reason: &str) -> i32 {
        self.counts(pod, reason).await.iter().sum()
    }

    /// The counts of the events about a pod with this reason.
    pub(crate) async fn counts(&self, pod: &str, reason: &str) -> Vec<i32> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let all = api.list(&ListParams::default()).await.unwrap().items.into_iter();
        let about = all.filter(|e| {
            e.involved_object.name.as_deref() == Some(pod) && e.reason.as_deref() == Some(reason)
        });
        about.map(|event| event.count.unwrap_or(1)).collect()
    }

    async fn messages(&self) -> Vec<String> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let all = api.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().map(|e| format!("{:?} {:?}", e.reason, e.message)).collect()
    }

    /// The message of an event about a pod with this reason, once there is one.
    pub(crate) async fn event(&self, pod: &str, reason: &str) -> String {
        self.event_like(pod, reason, |_| true).await
    }

    /// Waits until an event about a pod with this reason says this.
    pub(crate) async fn says(&self, pod: &str, reason: &str, message: &str) {
        self.event_like(pod, reason, |found| found == message).await;
    }

    async fn event_like(&self, pod: &str, reason: &str, fits: impl Fn(&str) -> bool) -> String {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let until = Instant::now() + DEADLINE;
        loop {
            let all = api.list(&ListParams::default()).await.unwrap().items.into_iter();
            let about = all.filter(|e| {
                e.involved_object.name.as_deref() == Some(pod) && e.reason.as_deref() == Some(reason)
            });
            let messages: Vec<String> = about.filter_map(|event| event.message).collect();
            if let Some(message) = messages.iter().find(|message| fits(message)) {
                return message.clone();
            }
            assert!(Instant::now() < until, "no such event {reason} about {pod}, only {messages:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The kubelet's client, whose lists and watches of pods wait while they are held.
fn client_of(server: ApiService, held: &watch::Sender<bool>) -> podwire_client::Client {
    let held = held.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, mut held) = (server.clone(), held.subscribe());
        async move {
            if request.uri().path() == "/api/v1/pods" {
                // Ignored: without a sender the test is over.
                held.wait_for(|held| !held).await.ok();
            }
            server.oneshot(request).await
        }
    });
    podwire_client::Client::new(service, "default")
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some("True")
}

pub(crate) fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let all = pod.status.as_ref()?.conditions.as_deref()?;
    all.iter().find(|c| c.type_ == name).map(|c| c.status.as_str())
}

pub(crate) fn waiting(pod: &Pod) -> Option<(String, String)> {
    let state = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone()?;
    let waiting = state.waiting?;
    Some((waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default()))
}

pub(crate) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    statuses.and_then(|s| s.first()).map_or(-1, |s| s.restart_count)
}

pub(crate) fn one(image: &str) -> Value {
    json!({"containers": [{"name": "app", "image": image}]})
}
