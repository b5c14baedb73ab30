//! What NRI plugins add to RunPodSandbox and CreateContainer: none, one, eight that do nothing, on our runtime and on
//! containerd. The cases take turns, so that a machine that gets slower does so for all of them.

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use podwire_nri::{
    api::{Container, ContainerUpdate, Event, PodSandbox},
    stub::{Answer, Plugin, Stub},
};
use podwire_testkit::{
    critest,
    images::{Files, Image, Layer},
    node::{bin_dir, peer},
    runtimes::{Bed, Running},
};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    measure::percentile,
    report::{self, Row},
    runtime::client::Client,
};

/// Turns, and pods in each.
const TURNS: usize = 6;
const PODS: usize = 12;
/// How many plugins are connected.
const CASES: [usize; 3] = [0, 1, 8];

/// Median times of RunPodSandbox and CreateContainer in milliseconds, by case.
struct Figures {
    run: [f64; CASES.len()],
    create: [f64; CASES.len()],
}

/// Measures ours, and containerd when it is built.
pub async fn run() -> Result<()> {
    let app = std::fs::read(bin_dir().join("pod-app"))?;
    let tools = Files::default().file("pod-app", app.clone(), 0o755);
    let pause = Files::default().file("pause", app, 0o755);
    let bed = Bed::new(vec![
        Image::new(&["app:latest"], &Layer::new(&tools)?, &json!({"Entrypoint": ["/pod-app"]}))?,
        Image::new(&["sandbox:latest"], &Layer::new(&pause)?, &json!({"Entrypoint": ["/pause"]}))?,
    ])?;
    let ours = measure(&bed.ours(true)?).await?;
    let theirs = match peer("containerd") {
        Ok(_) => Some(measure(&bed.containerd(true)?).await?),
        Err(_) => None,
    };
    let mut rows = Vec::new();
    for (what, read) in
        [("RunPodSandbox", (|f| f.run) as fn(&Figures) -> [f64; 3]), ("CreateContainer", |f| f.create)]
    {
        let beside = |pick: fn([f64; 3]) -> f64| theirs.as_ref().map(|t| pick(read(t)));
        let mut row = |name: &str, pick: fn([f64; 3]) -> f64, target| {
            rows.push(Row::new(
                &format!("{what}, p50, {name}"),
                "ms",
                pick(read(&ours)),
                beside(pick),
                target,
            ));
        };
        row("no plugin", |t| t[0], None);
        row("1 plugin adds", |t| t[1] - t[0], Some(0.3));
        row("8 plugins add", |t| t[2] - t[0], Some(2.0));
    }
    report::print(&rows);
    Ok(())
}

/// A plugin that hears of pods and containers and does nothing.
struct Idle {
    synchronized: SyncSender<()>,
}

impl Plugin for Idle {
    fn events(&self) -> Vec<Event> {
        use Event::{
            CreateContainer, RemoveContainer, RemovePodSandbox, RunPodSandbox, StartContainer, StopContainer,
            StopPodSandbox,
        };
        let of_pods = [RunPodSandbox, StopPodSandbox, RemovePodSandbox];
        of_pods.into_iter().chain([CreateContainer, StartContainer, StopContainer, RemoveContainer]).collect()
    }

    fn synchronize(&self, _: Vec<PodSandbox>, _: Vec<Container>) -> Answer<'_, Vec<ContainerUpdate>> {
        // Ignored: nobody waits any more when another plugin could not connect.
        self.synchronized.send(()).ok();
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// Plugins that change nothing, on a thread of their own; they leave when dropped.
struct Plugins {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Plugins {
    /// Connects them and returns once each was told what exists.
    fn connect(count: usize, socket: &Path) -> Result<Plugins> {
        let (synchronized, told) = sync_channel(count);
        let (stop, stopped) = oneshot::channel();
        let socket = socket.to_owned();
        let thread = std::thread::Builder::new().name("plugins".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut connections = Vec::new();
                for number in 0..count {
                    let stub = Stub::new(format!("idle{number}"), format!("{:02}", 10 + number));
                    let plugin = Arc::new(Idle { synchronized: synchronized.clone() });
                    connections.push(Stub { socket: socket.clone(), ..stub }.connect(plugin).await?);
                }
                drop(synchronized);
                // Ignored: dropped or told, it is the end.
                stopped.await.ok();
                for connection in connections {
                    connection.close().await;
                }
                Ok(())
            })
        })?;
        for _ in 0..count {
            told.recv_timeout(Duration::from_secs(60)).context("a plugin was not synchronized")?;
        }
        Ok(Plugins { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Ignored: what went wrong with it, if anything, was seen in the figures.
        self.thread.take().map(JoinHandle::join);
    }
}

async fn measure(runtime: &Running) -> Result<Figures> {
    println!("{} ...", runtime.name);
    let socket = runtime.nri_socket.clone().context("no NRI")?;
    let client = Client::new(runtime);
    client.pull("localhost/app:latest").await?;
    client.pull(critest::SANDBOX_IMAGE).await?;
    let mut times: [[Vec<Duration>; CASES.len()]; 2] = Default::default();
    for turn in 0..TURNS {
        for (case, count) in CASES.into_iter().enumerate() {
            let _plugins = Plugins::connect(count, &socket)?;
            for number in 0..PODS {
                let begun = Instant::now();
                let sandbox = client.run(&format!("n{turn}-{count}-{number}")).await?;
                let run = begun.elapsed();
                let begun = Instant::now();
                let pod = client.create(sandbox).await?;
                let create = begun.elapsed();
                client.down(&pod).await?;
                // The first of a turn also pays for what the change of plugins left cold.
                if number > 0 {
                    times[0][case].push(run);
                    times[1][case].push(create);
                }
            }
        }
    }
    let median = |one: &Vec<Duration>| percentile(one, 50).as_secs_f64() * 1000.0;
    Ok(Figures { run: times[0].each_ref().map(median), create: times[1].each_ref().map(median) })
}
