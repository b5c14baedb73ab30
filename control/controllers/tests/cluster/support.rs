//! An API server and the controllers in one process, and how to ask them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use podwire_apiserver::{ApiService, Config as ServerConfig, Identity};
use podwire_client::Body;
use podwire_controllers::Config;
use podwire_store::{Embedded, EmbeddedConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const CA: &str = "-----BEGIN CERTIFICATE-----\nnot a real one\n-----END CERTIFICATE-----\n";

/// An API server and the controllers, which live as long as the test.
pub(crate) struct Cluster {
    client: Client,
    /// The server itself, to serve more kinds.
    pub(crate) server: ApiService,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    /// The controllers, with what they were made of.
    controllers: JoinSet<()>,
    config: Config,
    /// Requests of the controllers that are not let through.
    held: Held,
    store: Embedded,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let server =
            ServerConfig::new(Arc::new(store.clone()), dir.path().join("pki"), listen).build().await.unwrap();
        let admin = server.client(Identity::admin());
        let client = Client::new(admin.clone(), "default");
        let held = Held::default();
        let mut config = Config::new(held.before(server.client(Identity::controller_manager())), CA);
        change(&mut config);
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(shutdown.clone()));
        let controllers = JoinSet::new();
        let mut cluster =
            Self { client, server: admin, shutdown, tasks, controllers, config, held, store, _dir: dir };
        cluster.start_controllers().await;
        cluster
    }

    pub(crate) async fn start_controllers(&mut self) {
        let controllers = self.config.clone().build().await.unwrap();
        self.controllers.spawn(controllers.run(self.shutdown.clone()));
    }

    /// Ends the controllers wherever they are, as a kill does.
    pub(crate) async fn kill_controllers(&mut self) {
        self.controllers.shutdown().await;
    }

    /// Lets no request of this kind through from the controllers, or no answer to it, until it is set to nothing.
    pub(crate) fn hold(&self, what: &str) {
        what.clone_into(&mut self.held.what.lock().unwrap());
        self.held.met.store(false, Ordering::Relaxed);
    }

    /// Whether a request of that kind was held.
    pub(crate) fn has_held(&self) -> bool {
        self.held.met.load(Ordering::Relaxed)
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        let controllers = async { while self.controllers.join_next().await.is_some() {} };
        tokio::time::timeout(DEADLINE, controllers).await.expect("the controllers come to rest");
        tokio::time::timeout(DEADLINE, async { while self.tasks.join_next().await.is_some() {} })
            .await
            .expect("all participants come to rest");
        self.store.close().await;
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn namespace(&self, name: &str) {
        create(&self.all::<Namespace>(), json!({"metadata": {"name": name}})).await;
        until(&self.within::<ServiceAccount>(name), "default", |found| found.is_some()).await;
    }

    pub(crate) async fn node(&self, name: &str) {
        let nodes = self.all::<Node>();
        create(&nodes, json!({"metadata": {"name": name}})).await;
        self.ready(name, "True").await;
    }

    /// A ready node that reports for as long as the result lives.
    pub(crate) async fn keep_alive(&self, name: &str) -> JoinSet<()> {
        self.node(name).await;
        let leases: Api<Lease> = self.within("kube-node-lease");
        create(&leases, json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}})).await;
        let (name, mut tasks) = (name.to_owned(), JoinSet::new());
        tasks.spawn(async move {
            loop {
                let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
                let renewal = Patch::Merge(json!({"spec": {"renewTime": now}}));
                leases.patch(&name, &PatchParams::default(), &renewal).await.ok();
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        });
        tasks
    }

    pub(crate) async fn ready(&self, name: &str, status: &str) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conditions = json!([{"type": "Ready", "status": status, "lastHeartbeatTime": now}]);
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        self.all::<Node>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn pod(&self, namespace: &str, name: &str, spec: Value) {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        create(&self.within::<Pod>(namespace), json!({"metadata": {"name": name}, "spec": spec})).await;
    }
}

/// Holds requests back.
#[derive(Clone, Default)]
struct Held {
    /// Whether before it arrives or after, method, and end of the path.
    what: Arc<Mutex<String>>,
    met: Arc<AtomicBool>,
}

impl Held {
    /// A client of the server that these requests do not reach.
    fn before(&self, server: ApiService) -> podwire_client::Client {
        let held = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (held, server) = (held.clone(), server.clone());
            async move {
                let (before, after) = held.is(&request);
                let answer = if before { None } else { Some(server.oneshot(request).await) };
                if before || after {
                    held.met.store(true, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                answer.expect("it was sent")
            }
        });
        podwire_client::Client::new(service, "default")
    }

    /// Whether the request is not to arrive, or its answer.
    fn is(&self, request: &Request<Body>) -> (bool, bool) {
        let what = self.what.lock().unwrap();
        let words: Vec<&str> = what.split(' ').collect();
        let &[when, method, end] = &words[..] else { return (false, false) };
        let is = request.method() == method && request.uri().path().ends_with(end);
        (is && when == "before", is && when == "after")
    }
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + DeserializeOwned + Debug + Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Asks again and again until the object (or its absence) satisfies `wanted`.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(Option<&K>) -> bool) -> Option<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let begun = Instant::now();
    loop {
        let found = api.get_opt(name).await.unwrap();
        if wanted(found.as_ref()) {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "not in time: {found:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asks again and again until it is so.
pub(crate) async fn eventually(why: &str, mut is: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is().await {
        assert!(begun.elapsed() < DEADLINE, "not in time: {why}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
