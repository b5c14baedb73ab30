//! How many claims a second are allocated and their pods bound, with API server, store and scheduler in this process:
//! `cargo run --release -p podwire-scheduler --example claims [NODES] [CLAIMS]`.
//!
//! Claims and pods are made beforehand; the time runs from the scheduler's start, and from its first binding, to its last. The time
//! of processors says more than the clock where others use them too.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a part of the program")]

use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use podwire_apiserver::{Config as ServerConfig, Identity};
use podwire_client::watcher::{Config as WatcherConfig, Event, watcher};
use podwire_client::{Api, Client};
use podwire_scheduler::Config;
use podwire_store::EmbeddedConfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const DEVICES: usize = 8;
const DRIVER: &str = "gpu.example.com";

fn argument(at: usize, default: usize) -> usize {
    std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn post(client: &Client, path: &str, object: Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap();
}

async fn post_all(client: &Client, path: &str, objects: impl Iterator<Item = Value>) {
    stream::iter(objects).for_each_concurrent(32, |object| post(client, path, object)).await;
}

fn node(at: usize) -> Value {
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}"),
        "labels": {"kubernetes.io/hostname": format!("n{at}")}},
        "status": {"capacity": resources, "allocatable": resources}})
}

fn slice(at: usize) -> Value {
    let device = |at: usize| {
        json!({"name": format!("gpu-{at}"), "capacity": {"memory": {"value": "80Gi"}}, "attributes":
            {"model": {"string": "x"}, "index": {"int": at}, "firmware": {"version": "1.2.3"}}})
    };
    let devices: Vec<_> = (0..DEVICES).map(device).collect();
    let pool = json!({"name": format!("n{at}"), "generation": 1, "resourceSliceCount": 1});
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("n{at}-gpu")},
        "spec": {"driver": DRIVER, "nodeName": format!("n{at}"), "pool": pool, "devices": devices}})
}

fn claim(at: usize) -> Value {
    let own = "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0";
    let exactly = json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": own}}]});
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": format!("c{at}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

fn pod(at: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{at}")}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}, "claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": format!("c{at}")}]}})
}

async fn make(client: &Client, nodes: usize, claims: usize) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let request = http::Request::post(accounts).header("content-type", "application/json");
    client.request(request.body(account.to_string().into_bytes()).unwrap()).await.ok();
    let text = "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'x'";
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": text}}]}});
    post(client, "/apis/resource.k8s.io/v1/deviceclasses", class).await;
    for at in 0..nodes {
        post(client, "/api/v1/nodes", node(at)).await;
        let path = format!("/api/v1/nodes/n{at}");
        let untaint = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let body = json!({"spec": {"taints": null}}).to_string().into_bytes();
        client.request(untaint.body(body).unwrap()).await.unwrap();
    }
    post_all(client, "/apis/resource.k8s.io/v1/resourceslices", (0..nodes).map(slice)).await;
    let all = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    post_all(client, all, (0..claims).map(claim)).await;
    post_all(client, "/api/v1/namespaces/default/pods", (0..claims).map(pod)).await;
}

/// What this process has used of processors, in seconds.
fn processors() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    f64::from(ticks) / 100.0
}

#[tokio::main]
async fn main() {
    let (nodes, claims) = (argument(1, 500), argument(2, 2000));
    assert!(claims <= nodes * DEVICES, "more claims than devices");
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server =
        ServerConfig::new(Arc::new(store.clone()), dir.path().join("pki"), listen).build().await.unwrap();
    let client = Client::new(server.client(Identity::admin()), "default");
    let scheduler = Client::new(server.client(Identity::scheduler()), "default");
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(server.run(shutdown.clone()));
    let begun = Instant::now();
    make(&client, nodes, claims).await;
    println!("{nodes} nodes of {DEVICES} devices, {claims} claims and pods made in {:?}", begun.elapsed());
    let mut events = watcher::<Pod>(Api::all(client.clone()), WatcherConfig::default());
    let used = processors();
    let begun = Instant::now();
    tasks.spawn(Config::new(scheduler).build().await.unwrap().run(shutdown.clone()));
    let (mut bound, mut first) = (std::collections::HashSet::new(), None);
    while bound.len() < claims {
        let event = events.next().await.unwrap().unwrap();
        if let Event::Apply(pod) | Event::InitApply(pod) = event
            && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
        {
            first.get_or_insert_with(Instant::now);
            bound.insert(pod.metadata.name.unwrap());
        }
    }
    let rate = |took: std::time::Duration| f64::from(u32::try_from(claims).unwrap()) / took.as_secs_f64();
    let used = processors() - used;
    println!(
        "{used:.2} s of processors: {:.2} ms for each claim",
        used * 1000.0 / f64::from(u32::try_from(claims).unwrap())
    );
    let (all, busy) = (begun.elapsed(), first.unwrap().elapsed());
    println!(
        "from the start {all:?}: {:.0}/s; from the first binding {busy:?}: {:.0}/s",
        rate(all),
        rate(busy)
    );
    shutdown.cancel();
    while tasks.join_next().await.is_some() {}
    store.close().await;
}
