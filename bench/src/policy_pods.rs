//! What the network plugin takes of a pod's start on a whole node: the runtime's call of it inside RunPodSandbox, as the trace
//! of each pod has it, with more and more policies and pods in the cluster.
//!
//! Policies and pods are as in `make bench WHAT=policy`, which measures plan and kernel alone; here they come by watches from
//! the API server of the same process, which also starts the pods.

use std::time::Duration;

use anyhow::{Context, Result};
use podwire_testkit::{Node, eventually};
use serde_json::{Value, json};

use crate::{
    api::client::{Connection, Endpoint},
    measure::percentile,
    report::{self, Row},
};

const NAMESPACES: usize = 20;
/// Pods that are measured, and those before them that are not.
const PODS: usize = 60;
const COLD: usize = 5;
/// Connections that fill the cluster.
const FILLING: usize = 8;
const PATIENCE: Duration = Duration::from_secs(120);

/// Measured pods are in the first, which every node has.
fn namespace(number: usize) -> String {
    match number % NAMESPACES {
        0 => "default".to_owned(),
        other => format!("ns{other}"),
    }
}

/// Five labels, and so five selectors that take it.
fn labels(number: usize, policies: usize) -> Value {
    let all = policies.max(1);
    let one = |at: usize| (format!("l{at}"), Value::from(format!("v{}", (number % all + at * 7) % all)));
    Value::Object((0..5).map(one).collect())
}

fn policy(number: usize) -> Value {
    let rule = |at: usize| {
        json!({
            "from": [{"podSelector": {"matchLabels": {format!("l{at}"): format!("v{number}")}}}],
            "ports": [{"port": 8000 + at}],
        })
    };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("p{number}")},
        "spec": {
            "podSelector": {"matchLabels": {"l0": format!("v{number}")}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [rule(0), rule(1), rule(2)],
            "egress": [{}],
        },
    })
}

fn pod(name: &str, number: usize, policies: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels(number, policies)},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "localhost/pod-app:latest", "imagePullPolicy": "Never",
                "args": ["sleep", "3600"]}],
        },
    })
}

/// A pod of another node with its address: the object, and the same with its status.
fn elsewhere(number: usize, policies: usize) -> (Value, Value) {
    let mut made = pod(&format!("far{number}"), number, policies);
    made["spec"]["nodeName"] = "elsewhere".into();
    let mut told = made.clone();
    let [.., a, b] = u32::try_from(number).unwrap_or(0).to_be_bytes();
    let ip = format!("10.100.{a}.{b}");
    told["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
    (made, told)
}

/// Fills the cluster: some connections at once, each with its share.
async fn fill(endpoint: &Endpoint, policies: usize, pods: usize) -> Result<()> {
    let mut first = endpoint.connect().await?;
    for number in 1..NAMESPACES {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(number)}});
        first.ask(&endpoint.request("POST", "/api/v1/namespaces", &body.to_string())).await?;
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}});
    first.ask(&endpoint.request("POST", "/api/v1/nodes", &node.to_string())).await?;
    for number in 0..NAMESPACES {
        // Pods want the account that a controller makes.
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/default", namespace(number));
        let request = endpoint.request("GET", &path, "");
        tokio::time::timeout(PATIENCE, async { while first.ask(&request).await.is_err() {} }).await?;
    }
    let mut shares: Vec<_> = endpoint.connect_many(FILLING).await?.into_iter().enumerate().collect();
    let filling = shares.iter_mut().map(|(at, connection)| share(endpoint, connection, *at, policies, pods));
    futures::future::try_join_all(filling).await?;
    Ok(())
}

async fn share(
    endpoint: &Endpoint,
    connection: &mut Connection,
    at: usize,
    policies: usize,
    pods: usize,
) -> Result<()> {
    for number in (at..policies).step_by(FILLING) {
        let path = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", namespace(number));
        connection.ask(&endpoint.request("POST", &path, &policy(number).to_string())).await?;
    }
    for number in (at..pods).step_by(FILLING) {
        let (made, told) = elsewhere(number, policies);
        let path = format!("/api/v1/namespaces/{}/pods", namespace(number));
        connection.ask(&endpoint.request("POST", &path, &made.to_string())).await?;
        let path = format!("{path}/far{number}/status");
        connection.ask(&endpoint.request("PUT", &path, &told.to_string())).await?;
    }
    Ok(())
}

/// How long the runtime waited for the plugin, and the kubelet for RunPodSandbox.
struct Took {
    plugin: Duration,
    sandbox: Duration,
}

fn start(node: &Node, name: &str, number: usize, policies: usize) -> Result<Took> {
    node.apply(&pod(name, number, policies).to_string())?;
    node.pod_in_phase(name, "Running")?;
    eventually(&format!("the trace of {name} shows the plugin"), PATIENCE, || {
        let text = node
            .podwire(["trace", &format!("pod/{name}"), "-o", "json"])
            .map_err(|error| error.to_string())?;
        let arrows: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let took = |to: &str| {
            let call = |one: &&Value| one["to"] == to && one["what"] == "RunPodSandbox";
            arrows.iter().find(call)?["micros"].as_u64().map(Duration::from_micros)
        };
        match (took("90-netplugin"), took("ContainerRuntime")) {
            (Some(plugin), Some(sandbox)) => Ok(Took { plugin, sandbox }),
            _ => Err(text),
        }
    })
}

fn measure(policies: usize, pods: usize, rows: &mut Vec<Row>, target: Option<f64>) -> Result<()> {
    println!("{policies} policies, {pods} pods ...");
    let node = Node::up(&[])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime
        .block_on(fill(&Endpoint::read(&node.kubeconfig())?, policies, pods))
        .context("fill the cluster")?;
    let mut all = Vec::new();
    for at in 0..COLD + PODS {
        let name = format!("near{at}");
        // In the first namespace, where the policy of its first label is.
        all.push(start(&node, &name, at * NAMESPACES, policies)?);
        node.podwire(["delete", "pod", &name])?;
    }
    let millis = |pick: fn(&Took) -> Duration, percent| {
        let times: Vec<Duration> = all.iter().skip(COLD).map(pick).collect();
        percentile(&times, percent).as_secs_f64() * 1000.0
    };
    let size = format!("{policies} policies, {pods} pods");
    let plugin: fn(&Took) -> Duration = |one| one.plugin;
    rows.push(Row::new(&format!("the plugin p50, {size}"), "ms", millis(plugin, 50), None, target));
    rows.push(Row::new(&format!("the plugin p99, {size}"), "ms", millis(plugin, 99), None, None));
    let whole = millis(|one| one.sandbox, 50);
    rows.push(Row::new(&format!("RunPodSandbox p50, {size}"), "ms", whole, None, None));
    node.down()
}

/// Measures and prints the table.
pub fn run() -> Result<()> {
    let mut rows = Vec::new();
    for (policies, pods, target) in [(0, 0, None), (100, 1000, Some(1.0)), (1000, 10_000, Some(2.0))] {
        measure(policies, pods, &mut rows, target)?;
    }
    report::print(&rows);
    Ok(())
}
