//! kube-apiserver and this server on one real etcd list each other behind the `kubernetes` service, until one of them dies.
#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;
#[path = "beside/sides.rs"]
mod sides;
#[path = "differential/upstream.rs"]
#[allow(dead_code, reason = "shared with the differential test")]
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use podwire_apiserver::{Advertise, Transcoded};
use podwire_store::RemoteConfig;
use serde_json::{Value, json};
use sides::Side;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const WAIT: Duration = Duration::from_secs(120);
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

async fn listed(side: &Side) -> Value {
    let endpoints = side.ask("GET", ENDPOINTS, &Value::Null).await.1;
    let slice = side.ask("GET", SLICE, &Value::Null).await.1;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let first: Vec<Value> =
        list(&endpoints["subsets"][0]["addresses"]).iter().map(|one| one["ip"].clone()).collect();
    let second: Vec<Value> =
        list(&slice["endpoints"]).iter().map(|one| one["addresses"][0].clone()).collect();
    json!([first, second])
}

async fn lists(side: &Side, expected: &[&str]) {
    let wanted = json!([expected, expected]);
    let asking = async {
        while listed(side).await != wanted {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    if tokio::time::timeout(WAIT, asking).await.is_err() {
        panic!("expected {wanted}, and there is {}", listed(side).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_apiserver_and_ours_list_each_other_while_they_live() {
    let dir = tempfile::tempdir().unwrap();
    let pki = sides::pki(dir.path());
    // The last flag counts.
    let flags = ["--endpoint-reconciler-type=lease", "--advertise-address=10.9.0.2"];
    let (running, theirs) = sides::theirs(&pki, &flags).await;
    let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
    let remote = RemoteConfig::new(vec![running.etcd.clone()]).connect().await.unwrap();
    let store = Arc::new(Transcoded::new(remote));
    let with = |config: &mut podwire_apiserver::Config| {
        config.advertise = Some(Advertise::new("10.9.0.1".parse().unwrap()));
    };
    let ours = sides::ours(dir.path(), store, with, &tasks, &shutdown).await;
    lists(&theirs, &["10.9.0.1", "10.9.0.2"]).await;
    lists(&ours, &["10.9.0.1", "10.9.0.2"]).await;
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
    lists(&theirs, &["10.9.0.2"]).await;
    running.stop().await;
}
