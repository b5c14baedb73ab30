//! Several servers on one etcd are listed behind the `kubernetes` service, and who ends or dies is not.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use podwire_api::{builtin, protobuf};
use podwire_apiserver::{Advertise, ApiService, Config, Identity, Transcoded};
use podwire_store::{Door, EtcdConfig, Guard, Op, Remote, RemoteConfig, Store};
use serde_json::{Value, json};
use server::send;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const WAIT: Duration = Duration::from_secs(120);

/// A server that runs until it is told to end.
struct Running {
    client: ApiService,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    async fn start(folder: &Path, remote: &Remote, address: &str) -> Self {
        let store: Arc<dyn Store> = Arc::new(Transcoded::new(remote.clone()));
        let mut config = Config::new(store, folder.join(address), "127.0.0.1:0".parse().unwrap());
        let address: IpAddr = address.parse().unwrap();
        config.advertise = Some(Advertise { address, life: Duration::from_secs(3) });
        let server = config.build().await.unwrap();
        let client = server.client(Identity::admin());
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(server.run(shutdown.clone()));
        Self { client, shutdown, tasks }
    }

    async fn get(&self, path: &str) -> Value {
        send(&self.client, "GET", path, &[], "").await.body
    }

    /// What both objects say of who is there.
    async fn listed(&self) -> (Vec<String>, Vec<String>) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let endpoints = self.get("/api/v1/namespaces/default/endpoints/kubernetes").await;
        let slice = self.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let first = list(&endpoints["subsets"][0]["addresses"]).iter().map(|one| text(&one["ip"])).collect();
        let second = list(&slice["endpoints"]).iter().map(|one| text(&one["addresses"][0])).collect();
        (first, second)
    }

    async fn lists(&self, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|&text| text.to_owned()).collect();
        let asking = async {
            while self.listed().await != (expected.clone(), expected.clone()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(WAIT, asking).await.is_err() {
            panic!("expected {expected:?}, and there are {:?}", self.listed().await);
        }
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_a_cluster_are_listed_while_they_live() {
    let dir = tempfile::tempdir().unwrap();
    let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let etcd = EtcdConfig::new(dir.path().join("etcd")).open().unwrap();
    tasks.spawn(etcd.run(vec![Door { listener, tls: None, metrics_only: false }], shutdown.clone()));
    let remote = RemoteConfig::new(vec![url]).connect().await.unwrap();

    let first = Running::start(dir.path(), &remote, "10.9.0.1").await;
    first.lists(&["10.9.0.1"]).await;
    let second = Running::start(dir.path(), &remote, "10.9.0.2").await;
    first.lists(&["10.9.0.1", "10.9.0.2"]).await;
    let object = second.get("/api/v1/namespaces/default/endpoints/kubernetes").await;
    assert_eq!(object["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"], "true");
    assert_eq!(object["subsets"][0]["ports"][0]["name"], "https");
    let slice = second.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await;
    assert_eq!(slice["metadata"]["labels"], json!({"kubernetes.io/service-name": "kubernetes"}));
    assert_eq!(
        (&slice["addressType"], &slice["ports"][0]["port"]),
        (&json!("IPv4"), &object["subsets"][0]["ports"][0]["port"])
    );

    // One that signs once and dies.
    let lease = json!({"metadata": {"generation": 1}, "subsets": [{"addresses": [{"ip": "10.9.0.3"}]}]});
    let value = protobuf::encode(builtin::endpoints(), &lease).into();
    let op = Op::Put { value, ttl: Some(Duration::from_secs(4)) };
    remote.txn("/registry/masterleases/10.9.0.3", Guard::Absent, op).await.unwrap();
    first.lists(&["10.9.0.1", "10.9.0.2", "10.9.0.3"]).await;
    first.lists(&["10.9.0.1", "10.9.0.2"]).await;
    // Nothing is written while nothing changes.
    let version = |object: Value| object["metadata"]["resourceVersion"].clone();
    let before = version(first.get("/api/v1/namespaces/default/endpoints/kubernetes").await);
    let signed = async |remote: &Remote| {
        remote.get("/registry/masterleases/10.9.0.1").await.unwrap().map(|kv| kv.mod_revision)
    };
    let at = signed(&remote).await;
    while signed(&remote).await == at {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(version(first.get("/api/v1/namespaces/default/endpoints/kubernetes").await), before);

    second.end().await;
    first.lists(&["10.9.0.1"]).await;
    first.end().await;
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
}
