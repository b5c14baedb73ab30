//! The cluster that is scheduled for: nodes without kubelets, pods that are placed already, and those of each round.
//!
//! Nothing runs: a placed pod is an object with a node. Each round has namespaces of its own, so that it can be watched and
//! cleared as one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Sizes, process::Which};
use crate::api::{self, Server, client::Endpoint};

/// Connections that make objects.
const CONNECTIONS: usize = 32;
/// Requests that are rendered at a time.
const RENDERED: usize = 10_000;
/// Applications that placed pods belong to.
const APPS: usize = 200;
/// Applications that a round's pods belong to.
const NEW_APPS: usize = 10;

/// What a round's pods ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// CPU and memory.
    Plain,
    /// To be spread over zones and hosts, near one application and far from their like.
    Social,
    /// More than is free anywhere, with a priority that makes one pod go.
    Preempting,
    /// More than any node has.
    Hopeless,
}

/// An API server of ours with nodes and placed pods.
pub struct World {
    pub server: Server,
    pub sizes: Sizes,
}

impl World {
    /// Starts the API server and makes the cluster.
    pub async fn make(sizes: Sizes) -> Result<World> {
        let server = Server::ours().await?;
        let world = World { server, sizes };
        for (name, value) in [("low", -1), ("high", 1000)] {
            let class = json!({"metadata": {"name": name}, "value": value});
            world.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
        }
        let endpoint = &world.server.endpoint;
        world.many(sizes.nodes, |at| request(endpoint, "POST", "/api/v1/nodes", &node(at))).await?;
        // A new node is tainted until it is ready; a whole write takes that away, and leaves the status alone.
        world
            .many(sizes.nodes, |at| request(endpoint, "PUT", &format!("/api/v1/nodes/n{at}"), &node(at)))
            .await?;
        api::namespace(endpoint, "placed").await?;
        world
            .many(sizes.placed, |at| {
                let mut pod = pod(&format!("p{at}"), at % APPS);
                pod["spec"]["nodeName"] = format!("n{}", at % sizes.nodes).into();
                request(endpoint, "POST", &pods_of("placed"), &pod)
            })
            .await?;
        Ok(world)
    }

    /// Makes an object.
    pub async fn post(&self, path: &str, object: &Value) -> Result<()> {
        let endpoint = &self.server.endpoint;
        endpoint.connect().await?.ask(&request(endpoint, "POST", path, object)).await?;
        Ok(())
    }

    /// Sends so many requests over a few connections.
    pub async fn many(&self, count: usize, render: impl Fn(usize) -> Vec<u8>) -> Result<()> {
        for begin in (0..count).step_by(RENDERED) {
            let batch = RENDERED.min(count - begin);
            api::round(&self.server, CONNECTIONS, batch, |at| render(begin + at)).await?;
        }
        Ok(())
    }

    /// A namespace for one scheduler's part of a round.
    pub async fn space(&self, which: Which, what: &str) -> Result<String> {
        let name = format!("{}-{}", what.to_lowercase(), which.word());
        api::namespace(&self.server.endpoint, &name).await?;
        Ok(name)
    }

    /// Makes the pods of a round; their namespace and their number.
    pub async fn pods(&self, which: Which, wish: Wish) -> Result<(String, usize)> {
        let space = self.space(which, &format!("{wish:?}")).await?;
        let count = match wish {
            Wish::Preempting => self.sizes.pods.min(self.sizes.nodes * 3 / 4),
            // Each application has no more than one pod on a node.
            Wish::Social => self.sizes.pods.min(self.sizes.nodes * NEW_APPS),
            Wish::Plain => self.sizes.pods,
            Wish::Hopeless => self.sizes.hopeless,
        };
        self.waiting(&space, wish, count).await?;
        Ok((space, count))
    }

    /// Makes the pods that fit nowhere.
    pub async fn hopeless(&self, space: &str) -> Result<()> {
        self.waiting(space, Wish::Hopeless, self.sizes.hopeless).await
    }

    async fn waiting(&self, space: &str, wish: Wish, count: usize) -> Result<()> {
        let endpoint = &self.server.endpoint;
        self.many(count, |at| request(endpoint, "POST", &pods_of(space), &wanted(wish, at))).await
    }

    /// Makes one plain pod.
    pub async fn one(&self, space: &str, number: usize) -> Result<()> {
        self.post(&pods_of(space), &wanted(Wish::Plain, number)).await
    }

    /// Makes a pod on each node that has to go when a more important one comes; their namespace.
    pub async fn victims(&self, which: Which) -> Result<String> {
        let space = self.space(which, "victims").await?;
        let endpoint = &self.server.endpoint;
        self.many(self.sizes.nodes, |at| {
            let mut pod = pod(&format!("v{at}"), at % APPS);
            pod["spec"]["nodeName"] = format!("n{at}").into();
            pod["spec"]["priorityClassName"] = "low".into();
            ask_for(&mut pod, "2");
            request(endpoint, "POST", &pods_of(&space), &pod)
        })
        .await?;
        Ok(space)
    }

    /// Deletes the pods of a namespace, and waits until they are gone.
    pub async fn clear(&self, space: &str) -> Result<()> {
        self.clear_of(&pods_of(space)).await
    }

    /// Deletes all objects at a path, and fails if one is left.
    pub async fn clear_of(&self, path: &str) -> Result<()> {
        let endpoint = &self.server.endpoint;
        endpoint.connect().await?.ask(&endpoint.request("DELETE", path, "")).await?;
        let left = self.list(&format!("{path}?limit=1")).await?;
        ensure!(left.is_empty(), "{path}: some are left");
        Ok(())
    }

    /// The objects at a path.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let endpoint = &self.server.endpoint;
        let mut connection = endpoint.connect().await?;
        connection.ask(&endpoint.request("GET", path, "")).await?;
        let mut list: Value = serde_json::from_slice(&connection.body()?)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("{path}: no list but {other}"),
        }
    }

    /// Hears of each pod of the namespace that is bound from now on.
    pub async fn bound(&self, space: &str) -> Result<Watch> {
        // A pod that is bound comes into this view.
        Watch::open(&self.server.endpoint, space, "&fieldSelector=spec.nodeName%21%3D", b"\"type\":\"ADDED\"")
            .await
    }

    /// Hears of each pod of the namespace whose status is written from now on.
    pub async fn told(&self, space: &str) -> Result<Watch> {
        Watch::open(&self.server.endpoint, space, "", b"\"type\":\"MODIFIED\"").await
    }
}

/// Counts the events of a watch that are of one type.
pub struct Watch {
    body: Incoming,
    wanted: &'static [u8],
    /// The end of what came last: a word may be cut in two.
    rest: Vec<u8>,
    /// Heard and not yet asked for.
    ahead: Vec<Instant>,
    _connection: JoinSet<hyper::Result<()>>,
}

impl Watch {
    async fn open(endpoint: &Endpoint, space: &str, selector: &str, wanted: &'static [u8]) -> Result<Watch> {
        let path = pods_of(space);
        let mut asking = endpoint.connect().await?;
        asking.ask(&endpoint.request("GET", &format!("{path}?limit=1"), "")).await?;
        let list: Value = serde_json::from_slice(asking.answer())?;
        let version = list["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;
        let stream = TokioIo::new(endpoint.connect_http2().await?);
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(4 << 20)
            .handshake(stream)
            .await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        sender.ready().await?;
        let path = format!("{path}?watch=true&resourceVersion={version}{selector}");
        let answer = sender.send_request(endpoint.http_request(&path, Empty::<Bytes>::new())?).await?;
        ensure!(answer.status() == 200, "a watch was answered {}", answer.status());
        let body = answer.into_body();
        Ok(Watch { body, wanted, rest: Vec::new(), ahead: Vec::new(), _connection: tasks })
    }

    /// When each of the next events was heard: `count` of them, or fewer when the time is over.
    pub async fn wait(&mut self, count: usize, patience: Duration) -> Result<Vec<Instant>> {
        let deadline = tokio::time::Instant::now() + patience;
        while self.ahead.len() < count {
            let Ok(frame) = tokio::time::timeout_at(deadline, self.body.frame()).await else { break };
            let frame = frame.context("the watch ended")??;
            let Some(data) = frame.data_ref() else { continue };
            let now = Instant::now();
            self.rest.extend_from_slice(data);
            let found = memchr::memmem::find_iter(&self.rest, self.wanted);
            let (mut heard, mut end) = (0, 0);
            for at in found {
                (heard, end) = (heard + 1, at + self.wanted.len());
            }
            self.ahead.extend(std::iter::repeat_n(now, heard));
            let keep = (self.rest.len() - end).min(self.wanted.len() - 1);
            self.rest.drain(..self.rest.len() - keep);
        }
        let rest = self.ahead.split_off(count.min(self.ahead.len()));
        Ok(std::mem::replace(&mut self.ahead, rest))
    }
}

/// Where the pods of a namespace are.
pub fn pods_of(space: &str) -> String {
    format!("/api/v1/namespaces/{space}/pods")
}

/// The bytes of a request with an object.
pub fn request(endpoint: &Endpoint, method: &str, path: &str, object: &Value) -> Vec<u8> {
    endpoint.request(method, path, &object.to_string())
}

fn node(at: usize) -> Value {
    let resources = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": format!("n{at}"), "labels": {
            "kubernetes.io/hostname": format!("n{at}"),
            "topology.kubernetes.io/zone": format!("z{}", at % 3),
        }},
        "status": {"capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A small pod that is gone as soon as it is deleted.
pub fn pod(name: &str, app: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": format!("app-{app}")}},
        "spec": {
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/bench/app:v1",
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
        },
    })
}

fn ask_for(pod: &mut Value, cpu: &str) {
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
}

fn wanted(wish: Wish, at: usize) -> Value {
    let mut pod = pod(&format!("w{at}"), APPS + at % NEW_APPS);
    match wish {
        Wish::Plain => {}
        Wish::Preempting => {
            ask_for(&mut pod, "4");
            pod["spec"]["priorityClassName"] = "high".into();
        }
        Wish::Hopeless => ask_for(&mut pod, "100"),
        Wish::Social => {
            let own = json!({"matchLabels": {"app": format!("app-{}", APPS + at % NEW_APPS)}});
            pod["spec"]["topologySpreadConstraints"] = json!([
                {"maxSkew": 50, "topologyKey": "topology.kubernetes.io/zone",
                 "whenUnsatisfiable": "DoNotSchedule", "labelSelector": own},
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                 "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": own}]);
            // Pods of the other side are in a namespace of their own.
            let near = json!({"topologyKey": "topology.kubernetes.io/zone", "namespaces": ["placed"],
                "labelSelector": {"matchLabels": {"app": "app-77"}}});
            let far = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": own});
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            pod["spec"]["affinity"] =
                json!({"podAffinity": {required: [near]}, "podAntiAffinity": {required: [far]}});
        }
    }
    pod
}
