//! Histories of concurrent clients, judged by porcupine: every answer must fit into one order of everything that was done, also when
//! servers are killed or stand still. The checker is shown to find what has gone wrong.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "what was judged belongs into the log of the run")]

#[path = "../peers/dice.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared by tests of several crates")]
mod dice;
#[path = "linearizability/etcd.rs"]
mod etcd;
#[path = "linearizability/history.rs"]
mod history;
#[path = "linearizability/objects.rs"]
mod objects;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use podwire_client::{Client, Config};
use podwire_testkit::{eventually, isolate};
use podwire_tests::programs::{Running, WAIT, etcd_at, etcdctl, free_port, our_etcd, podwire, real_etcd};
use rustix::process::Signal;
use serde_json::Value;

use self::{
    etcd::Keys,
    history::{Registers, Work, judged},
    objects::Objects,
};

/// Answers before, between and after faults.
const SOME: usize = 150;

/// Sets clients to work, lets `faults` happen, and returns a history that is linearizable.
async fn recorded<R: Registers>(
    registers: &R,
    seed: u64,
    faults: impl AsyncFnOnce(&Work) -> Result<()>,
) -> Result<Vec<Value>> {
    let work = Work::begin(registers, seed);
    work.goes_on(SOME).await?;
    faults(&work).await?;
    work.goes_on(SOME).await?;
    let history = work.end(registers).await?;
    let told = judged(&history)?;
    println!("seed {seed}: {} operations, {told}", history.len());
    if !told.starts_with("ok ") {
        let place = std::env::temp_dir().join(format!("history-{seed}.jsonl"));
        fs::write(&place, history.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        anyhow::bail!("{told}; the history is in {}", place.display());
    }
    Ok(history)
}

fn on_threads<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(test)
}

/// Adds a swap that was told to be done, of what another swap had replaced: one of the two is lost.
fn with_a_lost_update(history: &[Value]) -> Result<Vec<Value>> {
    let mut history = history.to_vec();
    let at =
        history.iter().position(|op| op["done"] == true && op["put"].is_string() && op["expect"].is_string());
    let mut lost = history[at.context("no swap")?].clone();
    lost["put"] = "lost".into();
    lost["revision"] = 0.into();
    history.push(lost);
    Ok(history)
}

/// Lets a read at the end tell what had been replaced before it began.
fn with_a_stale_read(history: &[Value]) -> Result<Vec<Value>> {
    let mut history = history.to_vec();
    let swap = history.iter().find(|op| op["done"] == true && op["expect"].is_string()).context("no swap")?;
    let after = history.iter().filter_map(|op| op["ended"].as_u64()).max().unwrap_or_default();
    let stale = serde_json::json!({
        "client": 0, "begun": after + 1, "ended": after + 2, "kind": "read", "key": swap["key"],
        "value": swap["expect"],
    });
    history.push(stale);
    Ok(history)
}

#[test]
fn podwire_etcd_is_linearizable_while_it_is_killed_and_the_checker_finds_planted_faults() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let url = format!("http://127.0.0.1:{}", free_port()?);
    let start = || etcd_at(our_etcd(), &at("etcd"), &at("etcd.log"), &url);
    let mut running = Some(start()?);
    let history = on_threads(async {
        let keys = Keys::of(&url)?;
        recorded(&keys, 1, async |work| {
            for _ in 0..4 {
                let killed = running.take().context("it runs")?;
                killed.signal(Signal::KILL)?;
                drop(killed);
                running = Some(tokio::task::block_in_place(start)?);
                work.goes_on(SOME).await?;
            }
            Ok(())
        })
        .await
    })?;
    for (fault, planted) in
        [("lost update", with_a_lost_update(&history)?), ("stale read", with_a_stale_read(&history)?)]
    {
        let told = judged(&planted)?;
        ensure!(told.starts_with("illegal "), "a {fault} is not found: {told}");
    }
    Ok(())
}

/// An API server on a port of its own, which can be started again where it was.
struct Server {
    data: PathBuf,
    flags: Vec<String>,
    running: Option<Running>,
}

impl Server {
    fn start(data: PathBuf, flags: &[String]) -> Result<Server> {
        let port = free_port()?.to_string();
        let mut flags = flags.to_vec();
        flags.extend(["--secure-port".to_owned(), port]);
        let mut server = Server { data, flags, running: None };
        server.again()?;
        Ok(server)
    }

    /// Kills it if it runs, and starts it.
    fn again(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            running.signal(Signal::KILL)?;
        }
        let log = self.data.with_extension("log");
        let mut command = podwire();
        command.args(["apiserver", "--data-dir"]).arg(&self.data).args(&self.flags);
        self.running = Some(Running::start(command, &log)?);
        eventually("an API server", WAIT, || {
            let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
            if text.contains("ready server=") { Ok(()) } else { Err(text) }
        })
    }

    async fn client(&self) -> Result<Objects> {
        Ok(Objects(Client::connect(Config::read(&self.data.join("admin.kubeconfig"))?).await?))
    }
}

#[test]
fn the_api_server_on_the_embedded_store_is_linearizable_while_it_is_killed() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let mut server = Server::start(folder.path().join("data"), &[])?;
    on_threads(async {
        let objects = server.client().await?;
        recorded(&objects, 2, async |work| {
            for _ in 0..3 {
                tokio::task::block_in_place(|| server.again())?;
                work.goes_on(SOME).await?;
            }
            Ok(())
        })
        .await
    })?;
    Ok(())
}

/// A cluster of the real etcd.
struct Cluster {
    folder: PathBuf,
    ports: Vec<(u16, u16)>,
    members: Vec<Option<Running>>,
}

impl Cluster {
    fn start(folder: &Path, size: usize) -> Result<Cluster> {
        let ports = (0..size).map(|_| Ok((free_port()?, free_port()?))).collect::<Result<_>>()?;
        let members = (0..size).map(|_| None).collect();
        let mut cluster = Cluster { folder: folder.to_owned(), ports, members };
        for number in 0..size {
            cluster.begin(number)?;
        }
        for number in 0..size {
            cluster.healthy(number)?;
        }
        Ok(cluster)
    }

    fn url(&self, number: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[number].0)
    }

    fn begin(&mut self, number: usize) -> Result<()> {
        let peers = |number: usize| format!("http://127.0.0.1:{}", self.ports[number].1);
        let all: Vec<String> = (0..self.ports.len()).map(|one| format!("m{one}={}", peers(one))).collect();
        let mut program = real_etcd()?;
        program.arg("--data-dir").arg(self.folder.join(format!("m{number}"))).args([
            format!("--name=m{number}"),
            format!("--listen-client-urls={}", self.url(number)),
            format!("--advertise-client-urls={}", self.url(number)),
            format!("--listen-peer-urls={}", peers(number)),
            format!("--initial-advertise-peer-urls={}", peers(number)),
            format!("--initial-cluster={}", all.join(",")),
        ]);
        let log = self.folder.join(format!("m{number}.log"));
        self.members[number] = Some(Running::start(program, &log)?);
        Ok(())
    }

    fn healthy(&self, number: usize) -> Result<()> {
        eventually("a member", WAIT, || {
            etcdctl(&self.url(number), &["endpoint", "health"]).map_err(|error| format!("{error:#}"))
        })?;
        Ok(())
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        self.members[number].as_ref().context("it runs")?.signal(signal)
    }

    /// Kills a member, as a power cut does.
    fn kill(&mut self, number: usize) -> Result<()> {
        self.signal(number, Signal::KILL)?;
        self.members[number] = None;
        Ok(())
    }
}

#[test]
fn the_api_server_on_three_members_that_are_killed_and_paused_is_linearizable() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let mut cluster = Cluster::start(folder.path(), 3)?;
    let urls: Vec<String> = (0..3).map(|number| cluster.url(number)).collect();
    let flags = [format!("--etcd-servers={}", urls.join(","))];
    let server = Server::start(folder.path().join("data"), &flags)?;
    on_threads(async {
        let objects = server.client().await?;
        recorded(&objects, 3, async |work| {
            // Each of them, the leader as well: the two others go on.
            for number in 0..3 {
                cluster.signal(number, Signal::STOP)?;
                work.goes_on(SOME).await?;
                cluster.signal(number, Signal::CONT)?;
                tokio::task::block_in_place(|| cluster.healthy(number))?;
                cluster.kill(number)?;
                work.goes_on(SOME).await?;
                cluster.begin(number)?;
                tokio::task::block_in_place(|| cluster.healthy(number))?;
            }
            Ok(())
        })
        .await
    })?;
    Ok(())
}
