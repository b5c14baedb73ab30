//! The API server with its store beside kube-apiserver with etcd: start, memory, writes, reads, lists, watches.
//!
//! One thread makes all the load, so that at most one of the two cores is the client's; what it burned is printed too.

pub mod client;
mod servers;
mod watchers;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::task::JoinSet;

use self::client::Endpoint;
pub use self::servers::Server;
use crate::{
    measure::{self, Processes},
    report::{self, Row},
};

/// Pods that the memory target speaks of.
const PODS: usize = 5_000;
/// Objects of the list that is measured.
const LISTED: usize = 5_500;
/// Objects that lie in the store for the second cost per write.
const MANY: usize = 50_000;

/// Measures both servers and prints the table.
pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        println!("ours ...");
        let ours = Figures::of(Server::ours().await?).await?;
        let theirs = if peers_are_built() {
            println!("upstream ...");
            Some(Figures::of(Server::upstream().await?).await?)
        } else {
            println!("(the peers are not built: `make peers` puts upstream beside)");
            None
        };
        let kernel = watchers::kernel().await?;
        print(&ours, theirs.as_ref(), kernel);
        Ok(())
    })
}

/// Whether upstream can be put beside.
pub fn peers_are_built() -> bool {
    ["etcd", "kube-apiserver", "kubectl"].iter().all(|name| podwire_testkit::node::peer(name).is_ok())
}

fn print(ours: &Figures, theirs: Option<&Figures>, kernel: f64) {
    let less = |what: &str, unit: &'static str, read: fn(&Figures) -> f64, target: Option<f64>| {
        Row::new(what, unit, read(ours), theirs.map(read), target)
    };
    let more = |what: &str, read: fn(&Figures) -> f64, target: Option<f64>| {
        Row::rate(what, "/s", read(ours), theirs.map(read), target)
    };
    report::print(&[
        less("ready, from nothing", "ms", |f| f.ready, Some(150.0)),
        less("idle PSS, API server and store", "MB", |f| f.idle, Some(30.0)),
        less("5,000 pods more", "MB", |f| f.pods, Some(40.0)),
        more("pod creates, 64 connections, durable", |f| f.pod_creates.rate, None),
        more("creates, 16 connections, durable", |f| f.creates_16.rate, None),
        more("creates, 64 connections, durable", |f| f.creates.rate, Some(8_000.0)),
        less("  one of them, p50", "ms", |f| f.creates.p50, None),
        less("  one of them, p99", "ms", |f| f.creates.p99, None),
        less("  server CPU each", "ms", |f| f.creates.cpu, None),
        less("create, 1 connection, p50", "ms", |f| f.create_alone, None),
        more("gets, 64 connections", |f| f.gets.rate, Some(20_000.0)),
        less("  server CPU each", "ms", |f| f.gets.cpu, None),
        less("LIST 5,500 configmaps, p50", "ms", |f| f.list, Some(4.0)),
        less("  the same in protobuf, p50", "ms", |f| f.binary_list, None),
        less("LIST page of 500, p50", "ms", |f| f.page, None),
        less("1,000 watchers heard a change, p50", "ms", |f| f.fan_out.took, Some(5.0)),
        less("  server CPU of it", "ms", |f| f.fan_out.server, None),
        less("  client CPU of it", "ms", |f| f.fan_out.client, None),
        Row::new("  plain sockets instead, no TLS, no HTTP", "ms", kernel, None, None),
        less("1,000 watchers on 10 connections (HTTP/2), p50", "ms", |f| f.shared.took, Some(5.0)),
        less("  server CPU of it", "ms", |f| f.shared.server, None),
        less("CPU of a write, 10 stored", "ms", |f| f.few.cpu, None),
        less("CPU of a write, 50,000 stored", "ms", |f| f.many.cpu, None),
        more("creates, 64 connections, 50,000 stored", |f| f.many.rate, Some(8_000.0)),
        less("PSS at the end", "MB", |f| f.end, None),
        less("client CPU per create", "ms", |f| f.creates.client, None),
        less("client CPU per get", "ms", |f| f.gets.client, None),
    ]);
}

/// What a round of requests came to.
pub struct Round {
    /// Requests per second.
    pub rate: f64,
    /// Milliseconds of one request.
    p50: f64,
    p99: f64,
    /// Milliseconds of the server's CPU per request.
    pub cpu: f64,
    /// Milliseconds of this client's CPU per request.
    client: f64,
}

/// The figures of one server.
struct Figures {
    ready: f64,
    idle: f64,
    pods: f64,
    pod_creates: Round,
    few: Round,
    creates_16: Round,
    creates: Round,
    create_alone: f64,
    gets: Round,
    list: f64,
    binary_list: f64,
    page: f64,
    /// Each watcher on a connection of its own.
    fan_out: watchers::Heard,
    /// As client-go does it: many watchers share a connection.
    shared: watchers::Heard,
    many: Round,
    end: f64,
}

impl Figures {
    async fn of(server: Server) -> Result<Figures> {
        let endpoint = &server.endpoint;
        // Both settle: pages of the start are given back, loops of the start are over.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let idle = server.pss()?;
        for name in ["few", "listed", "many", "pods"] {
            namespace(endpoint, name).await?;
        }
        println!("  writes ...");
        let few = round(&server, 64, 2_000, |n| configmap(endpoint, "few", n)).await?;
        let before = server.pss()?;
        let pod_creates = round(&server, 64, PODS, |n| pod(endpoint, n)).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pods = server.pss()? - before;
        let alone = round(&server, 1, 500, |n| configmap(endpoint, "listed", n)).await?;
        let creates_16 = round(&server, 16, LISTED - 500, |n| configmap(endpoint, "listed", n + 500)).await?;
        println!("  reads ...");
        let gets = round(&server, 64, 30_000, |n| {
            let path = format!("/api/v1/namespaces/listed/configmaps/m{}", n % LISTED);
            endpoint.request("GET", &path, "")
        })
        .await?;
        let listed = "/api/v1/namespaces/listed/configmaps";
        let list = repeated(endpoint, 60, &endpoint.request("GET", listed, "")).await?;
        let binary = endpoint.get_as(listed, "application/vnd.kubernetes.protobuf");
        let binary_list = repeated(endpoint, 60, &binary).await?;
        let page =
            repeated(endpoint, 60, &endpoint.request("GET", &format!("{listed}?limit=500"), "")).await?;
        println!("  watchers ...");
        let fan_out = watchers::alone(&server).await?;
        let shared = watchers::shared(&server).await?;
        println!("  many writes ...");
        let creates = round(&server, 64, MANY, |n| configmap(endpoint, "many", n)).await?;
        let many = round(&server, 64, 10_000, |n| configmap(endpoint, "many", MANY + n)).await?;
        let end = server.pss()?;
        Ok(Figures {
            ready: millis(server.ready),
            idle,
            pods,
            pod_creates,
            few,
            creates_16,
            creates,
            create_alone: alone.p50,
            gets,
            list,
            binary_list,
            page,
            fan_out,
            shared,
            many,
            end,
        })
    }
}

/// Ours, for comparing versions: writes and reads per second, a little at a time.
pub struct Brief {
    server: Server,
    made: usize,
}

impl Brief {
    /// Requests of each kind in a round.
    const COUNT: usize = 4_000;

    /// Starts a server.
    pub async fn start() -> Result<Brief> {
        let server = Server::ours().await?;
        namespace(&server.endpoint, "listed").await?;
        Ok(Brief { server, made: 0 })
    }

    /// How long it took to be ready.
    pub fn ready(&self) -> Duration {
        self.server.ready
    }

    /// Creates and gets per second over 64 connections.
    pub async fn round(&mut self) -> Result<(f64, f64)> {
        let (endpoint, made) = (&self.server.endpoint, self.made);
        let creates =
            round(&self.server, 64, Self::COUNT, |n| configmap(endpoint, "listed", made + n)).await?;
        let gets = round(&self.server, 64, 2 * Self::COUNT, |n| {
            let path = format!("/api/v1/namespaces/listed/configmaps/m{}", n % Self::COUNT);
            endpoint.request("GET", &path, "")
        })
        .await?;
        self.made += Self::COUNT;
        Ok((creates.rate, gets.rate))
    }
}

/// A time in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Makes a namespace with an account.
pub async fn namespace(endpoint: &Endpoint, name: &str) -> Result<()> {
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    let mut connection = endpoint.connect().await?;
    connection.ask(&endpoint.request("POST", "/api/v1/namespaces", &body)).await?;
    // No controller runs beside the servers, and pods want an account.
    let account = r#"{"metadata":{"name":"default"}}"#;
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
    connection.ask(&endpoint.request("POST", &path, account)).await?;
    Ok(())
}

fn configmap(endpoint: &Endpoint, namespace: &str, number: usize) -> Vec<u8> {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m{number}","labels":{{"app":"bench"}}}},"data":{{"key":"{:0120}"}}}}"#,
        number
    );
    endpoint.request("POST", &format!("/api/v1/namespaces/{namespace}/configmaps"), &body)
}

fn pod(endpoint: &Endpoint, number: usize) -> Vec<u8> {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p{number}","labels":{{"app":"bench"}}}},"spec":{{"containers":[{{"name":"main","image":"registry.example/bench/app:v1","command":["/app"],"args":["--port=8080"],"ports":[{{"containerPort":8080}}],"env":[{{"name":"MODE","value":"bench"}}],"resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}}}}],"automountServiceAccountToken":false}}}}"#
    );
    endpoint.request("POST", "/api/v1/namespaces/pods/pods", &body)
}

/// Sends `count` requests over `connections`, each connection one after the other.
pub async fn round(
    server: &Server,
    connections: usize,
    count: usize,
    request: impl Fn(usize) -> Vec<u8>,
) -> Result<Round> {
    let connections = server.endpoint.connect_many(connections).await?;
    // Rendered before the clock starts, newest first because they are taken from the end.
    let requests: Vec<Vec<u8>> = (0..count).rev().map(request).collect();
    let requests = Arc::new(Mutex::new(requests));
    let own = Processes::of_pids(&[std::process::id()]);
    let (server_before, own_before) = (server.cpu()?, own.cpu()?);
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for mut connection in connections {
        let requests = requests.clone();
        clients.spawn(async move {
            let mut times = Vec::new();
            while let Some(request) = next(&requests) {
                let sent = Instant::now();
                connection.ask(&request).await?;
                times.push(sent.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::with_capacity(count);
    while let Some(done) = clients.join_next().await {
        times.extend(done??);
    }
    let took = begun.elapsed();
    let each = |before: Duration, after: Duration| millis(after.saturating_sub(before)) / count as f64;
    Ok(Round {
        rate: count as f64 / took.as_secs_f64(),
        p50: millis(measure::percentile(&times, 50)),
        p99: millis(measure::percentile(&times, 99)),
        cpu: each(server_before, server.cpu()?),
        client: each(own_before, own.cpu()?),
    })
}

fn next(requests: &Mutex<Vec<Vec<u8>>>) -> Option<Vec<u8>> {
    requests.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// The median time of a read, repeated on one connection.
async fn repeated(endpoint: &Endpoint, times: usize, request: &[u8]) -> Result<f64> {
    let mut connection = endpoint.connect().await?;
    let mut samples = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        connection.ask(request).await?;
        samples.push(begun.elapsed());
    }
    Ok(millis(measure::percentile(&samples, 50)))
}
