//! Several servers on one store, embedded or an etcd through the wire, give out addresses and node ports of services side by side; what
//! one of them leaves behind is found.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/held.rs"]
mod held;
#[path = "support/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use podwire_apiserver::{ApiService, Config, Identity, Transcoded};
use podwire_store::{Door, Embedded, EmbeddedConfig, EtcdConfig, Guard, Op, Outcome, RemoteConfig, Store};
use serde_json::{Value, json};
use server::{Answer, send};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const PORTS: &str = "/registry/ranges/servicenodeports";
const WAIT: Duration = Duration::from_secs(120);

/// What runs until the test ends.
struct World {
    dir: tempfile::TempDir,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl World {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// An etcd of ours behind a socket.
    async fn etcd(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let etcd = EtcdConfig::new(self.dir.path().join("etcd")).open().unwrap();
        let door = Door { listener, tls: None, metrics_only: false };
        self.tasks.spawn(etcd.run(vec![door], self.shutdown.clone()));
        format!("http://{address}")
    }

    async fn remote(&self, url: &str) -> Arc<dyn Store> {
        let remote = RemoteConfig::new(vec![url.to_owned()]).connect().await.unwrap();
        let (store, shutdown) = (remote.clone(), self.shutdown.clone());
        self.tasks.spawn(async move { remote.run(shutdown).await });
        Arc::new(Transcoded::new(store))
    }

    fn embedded(&self) -> Embedded {
        EmbeddedConfig::new(self.dir.path().join("store")).open().unwrap()
    }

    /// An API server on this store.
    async fn server(&self, name: &str, store: Arc<dyn Store>, repair: Duration) -> ApiService {
        let mut config = Config::new(store, self.dir.path().join(name), "127.0.0.1:0".parse().unwrap());
        config.repair_services_every = repair;
        let server = config.build().await.unwrap();
        let client = server.client(Identity::admin());
        self.tasks.spawn(server.run(self.shutdown.clone()));
        client
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn post(service: &ApiService, path: &str, body: &Value) -> Answer {
    send(service, "POST", path, &[("content-type", "application/json")], body.to_string()).await
}

async fn get(service: &ApiService, path: &str) -> Answer {
    send(service, "GET", path, &[], "").await
}

async fn delete(service: &ApiService, path: &str) -> Answer {
    send(service, "DELETE", path, &[], "").await
}

fn node_port(name: &str, ports: usize) -> Value {
    let ports: Vec<Value> =
        (0..ports).map(|port| json!({"name": format!("p{port}"), "port": 80 + port})).collect();
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}})
}

async fn held(service: &ApiService) -> (BTreeSet<String>, BTreeSet<u64>) {
    held::of(&get(service, "/api/v1/services").await.body)
}

async fn written(service: &ApiService) -> BTreeSet<String> {
    held::names(&get(service, ADDRESSES).await.body)
}

/// How many ports the bitmap says are taken.
async fn bits(store: &dyn Store) -> u32 {
    use base64::Engine as _;
    let kv = store.get(PORTS).await.unwrap().unwrap();
    let object = podwire_api::protobuf::decode_any(&kv.value).unwrap();
    assert_eq!((&object["kind"], &object["range"]), (&json!("RangeAllocation"), &json!("30000-32767")));
    let data = base64::engine::general_purpose::STANDARD.decode(object["data"].as_str().unwrap_or_default());
    data.unwrap().iter().map(|byte| byte.count_ones()).sum()
}

/// Asks until it is so.
async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, asking).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}

/// Two servers that create services at once, and delete each other's.
async fn race(world: &World, stores: [Arc<dyn Store>; 2]) {
    let raw = stores[0].clone();
    let [first, second] = stores;
    let never = Duration::from_secs(3600);
    let (first, second) = tokio::join!(world.server("a", first, never), world.server("b", second, never));
    let created = futures::future::join_all((0..64).map(|number| {
        let (server, name) = ([&first, &second][number % 2], format!("s{number}"));
        async move { post(server, SERVICES, &node_port(&name, 3)).await }
    }));
    for answer in created.await {
        assert_eq!(answer.code, 201, "{}", answer.text);
    }
    let (addresses, ports) = held(&first).await;
    assert_eq!((addresses.len(), ports.len()), (65, 192), "all have theirs, and `kubernetes` too");
    assert_eq!(bits(&*raw).await, 192);
    let one = get(&second, &format!("{SERVICES}/s0")).await.body;
    let (address, port) = (&one["spec"]["clusterIP"], &one["spec"]["ports"][0]["nodePort"]);
    let object = get(&second, &format!("{ADDRESSES}/{}", address.as_str().unwrap())).await.body;
    assert_eq!(object["metadata"]["labels"], held::labels());
    assert_eq!(
        object["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "s0"})
    );
    let spec = json!({"type": "NodePort", "clusterIP": address, "ports": [{"port": 1, "nodePort": port}]});
    let heir = json!({"metadata": {"name": "heir"}, "spec": spec});
    let refused = post(&second, SERVICES, &heir).await;
    assert_eq!(refused.code, 422);
    assert!(refused.text.contains("provided IP is already allocated"), "{}", refused.text);
    assert_eq!(delete(&second, &format!("{SERVICES}/s0")).await.code, 200, "the first one made it");
    let made = post(&first, SERVICES, &heir).await;
    assert_eq!(made.code, 201, "both are free again: {}", made.text);
    let deleted = futures::future::join_all((1..64).map(|number| {
        let (server, name) = ([&second, &first][number % 2], format!("{SERVICES}/s{number}"));
        async move { delete(server, &name).await.code }
    }));
    assert!(deleted.await.iter().all(|code| *code == 200));
    assert_eq!(bits(&*raw).await, 1, "only the heir's");
    eventually("addresses of services alone", || async { written(&first).await == held(&first).await.0 })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_on_an_etcd_never_give_one_address_or_port_twice() {
    let world = World::new();
    let url = world.etcd().await;
    let stores = [world.remote(&url).await, world.remote(&url).await];
    race(&world, stores).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_on_an_embedded_store_never_give_one_address_or_port_twice() {
    let world = World::new();
    let store = world.embedded();
    race(&world, [Arc::new(store.clone()), Arc::new(store.clone())]).await;
    world.end().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_of_the_ranges_that_are_written_down() {
    let world = World::new();
    let store = world.embedded();
    let server = world.server("a", Arc::new(store.clone()), Duration::from_secs(3600)).await;
    let default = get(&server, &format!("{RANGES}/kubernetes")).await.body;
    assert_eq!(default["spec"]["cidrs"], json!(["10.96.0.0/16"]));
    assert_eq!(default["status"]["conditions"][0]["type"], "Ready");
    let asked = |name: &str, address: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    for (address, words) in [
        ("10.97.0.1", "the provided network does not match the current range"),
        ("10.96.0.0", "the provided network does not match the current range"),
        ("10.96.255.255", "the provided network does not match the current range"),
        ("fd00::1", "IPv6 is not configured on this cluster"),
        ("10.96.0.1", "provided IP is already allocated"),
    ] {
        let refused = post(&server, SERVICES, &asked("x", address)).await;
        assert_eq!(refused.code, 422, "{address}");
        assert!(refused.text.contains(words), "{address}: {}", refused.text);
    }
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    assert_eq!(post(&server, RANGES, &more).await.code, 201);
    eventually("the new range", || async {
        post(&server, SERVICES, &asked("x", "10.97.0.1")).await.code == 201
    })
    .await;
    world.end().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_leaves_behind_that_dies_is_found_and_so_are_services_from_before() {
    let world = World::new();
    let store = world.embedded();
    let first = World::new();
    let before = first.server("a", Arc::new(store.clone()), Duration::from_secs(3600)).await;
    let made = post(&before, SERVICES, &node_port("old", 1)).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let address = made.body["spec"]["clusterIP"].as_str().unwrap().to_owned();
    // An address that was taken for a service which was never stored.
    let orphan = json!({"metadata": {"name": "10.96.77.7", "labels": held::labels()},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "never"}}});
    assert_eq!(post(&before, ADDRESSES, &orphan).await.code, 201);
    let foreign = json!({"metadata": {"name": "10.96.77.8"}, "spec": {"parentRef": {"resource": "gateways", "name": "g",
        "group": "example.com"}}});
    assert_eq!(post(&before, ADDRESSES, &foreign).await.code, 201);
    first.end().await;
    // As a version has left it that gave out from memory.
    for key in [PORTS, &format!("/registry/ipaddresses/{address}")] {
        let gone = store.txn(key, Guard::Any, Op::Delete).await.unwrap();
        assert!(matches!(gone, Outcome::Committed { .. }), "{key}");
    }
    let after = world.server("a", Arc::new(store.clone()), Duration::from_millis(100)).await;
    assert_eq!(bits(&store).await, 1, "the port of the old service");
    eventually("the address of the old service, and none of nobody", || async {
        let written = written(&after).await;
        written.contains(&address) && !written.contains("10.96.77.7")
    })
    .await;
    assert!(written(&after).await.contains("10.96.77.8"), "somebody else's");
    assert_eq!(written(&after).await.len(), 3);
    world.end().await;
    store.close().await;
}
