//! kube-apiserver and this server on one real etcd give out addresses and node ports of services: never one twice, and what one has
//! given the other takes back.
#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/held.rs"]
mod held;
#[path = "support/server.rs"]
mod server;
#[path = "beside/sides.rs"]
mod sides;
#[path = "differential/upstream.rs"]
#[allow(dead_code, reason = "shared with the differential test")]
mod upstream;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use podwire_apiserver::Transcoded;
use podwire_store::RemoteConfig;
use serde_json::{Value, json};
use sides::Side;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const WAIT: Duration = Duration::from_secs(120);

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort",
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}})
}

/// A service that asks for what another one has.
fn heir(of: &Value) -> Value {
    let (address, port) = (&of["spec"]["clusterIP"], &of["spec"]["ports"][0]["nodePort"]);
    json!({"metadata": {"name": "heir"}, "spec": {"type": "NodePort", "clusterIP": address,
        "ports": [{"port": 1, "nodePort": port}]}})
}

async fn create(side: &Side, body: &Value) -> Value {
    let (code, made) = side.ask("POST", SERVICES, body).await;
    assert_eq!(code, 201, "{made}");
    made
}

async fn delete(side: &Side, name: &str) {
    let (code, answer) = side.ask("DELETE", &format!("{SERVICES}/{name}"), &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
}

async fn held(side: &Side) -> (BTreeSet<String>, BTreeSet<u64>) {
    held::of(&side.ask("GET", "/api/v1/services", &Value::Null).await.1)
}

async fn written(side: &Side) -> BTreeSet<String> {
    held::names(&side.ask("GET", ADDRESSES, &Value::Null).await.1)
}

/// What both say of the address of a service that one of them has made.
async fn by_turns(maker: &Side, other: &Side) {
    let made = create(maker, &service("turn")).await;
    let path = format!("{ADDRESSES}/{}", made["spec"]["clusterIP"].as_str().unwrap());
    let (code, address) = other.ask("GET", &path, &Value::Null).await;
    assert_eq!(code, 200, "{address}");
    let parent = json!({"resource": "services", "namespace": "default", "name": "turn"});
    assert_eq!(address["spec"]["parentRef"], parent);
    assert_eq!(address["metadata"]["labels"], held::labels());
    let mut refusals = Vec::new();
    for body in [
        heir(&made),
        json!({"metadata": {"name": "far"}, "spec": {"clusterIP": "10.97.0.1", "ports": [{"port": 1}]}}),
    ] {
        for side in [maker, other] {
            let (code, refused) = side.ask("POST", SERVICES, &body).await;
            assert_eq!(code, 422, "{refused}");
            refusals.push(refused["message"].clone());
        }
    }
    assert_eq!((&refusals[0], &refusals[2]), (&refusals[1], &refusals[3]), "the same words");
    delete(other, "turn").await;
    assert_eq!(maker.ask("GET", &path, &Value::Null).await.0, 404, "the address is given back");
    create(maker, &heir(&made)).await;
    delete(other, "heir").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_and_ports_are_given_once_by_kube_apiserver_and_ours_together() {
    let dir = tempfile::tempdir().unwrap();
    let pki = sides::pki(dir.path());
    let (running, theirs) = sides::theirs(&pki, &[]).await;
    let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
    let remote = RemoteConfig::new(vec![running.etcd.clone()]).connect().await.unwrap();
    let store = Arc::new(Transcoded::new(remote));
    let ours = sides::ours(dir.path(), store, |_| (), &tasks, &shutdown).await;
    by_turns(&theirs, &ours).await;
    by_turns(&ours, &theirs).await;

    let created = (0..60).map(|number| {
        let (side, body) = ([&ours, &theirs][number % 2], service(&format!("s{number}")));
        async move { create(side, &body).await }
    });
    futures::future::join_all(created).await;
    let (addresses, ports) = held(&theirs).await;
    assert_eq!((addresses.len(), ports.len()), (61, 120));
    assert_eq!(held(&ours).await, (addresses, ports));
    let deleted = (0..60).map(|number| {
        let (side, name) = ([&theirs, &ours][number % 2], format!("s{number}"));
        async move { delete(side, &name).await }
    });
    futures::future::join_all(deleted).await;
    let begun = tokio::time::Instant::now();
    while written(&ours).await.len() != 1 || written(&theirs).await.len() != 1 {
        assert!(begun.elapsed() < WAIT, "addresses are left: {:?}", written(&ours).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
    running.stop().await;
}
