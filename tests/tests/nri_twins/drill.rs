//! A stream of pods while the plugin they need is killed, hung and restarted: how many started without it.

use std::{
    collections::HashSet,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_testkit::runtimes::Running;
use tokio::task::JoinSet;

use crate::{
    client::Client,
    plugin::{GoPlugin, read},
};

/// Pods in the stream.
pub const PODS: usize = 500;
/// Pods being made at the same time.
const WIDTH: usize = 24;
/// How long a pod may take from its first call to its last; a runtime that takes longer does not answer at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// What came of the stream.
#[derive(Default)]
pub struct Outcome {
    pub pods: usize,
    pub started: usize,
    pub failed: usize,
    /// Sandboxes that were ready although the plugin had not been told of them.
    pub sandboxes_without: usize,
    /// Containers that ran without the plugin's adjustment.
    pub containers_without: usize,
    /// Pods whose calls were never answered; each ends one of the clients.
    pub unanswered: usize,
    pub kills: usize,
    pub hangs: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pods: {} started, {} failed, {} never answered; without the plugin: {} sandboxes ready, \
             {} containers started; {} kills, {} hangs",
            self.pods,
            self.started,
            self.failed,
            self.unanswered,
            self.sandboxes_without,
            self.containers_without,
            self.kills,
            self.hangs
        )
    }
}

/// Kills, hangs and restarts the plugin until told to stop.
fn torment(socket: &Path, log: &Path, stop: &AtomicBool, counts: &[AtomicUsize; 2]) {
    let pause = |millis| std::thread::sleep(Duration::from_millis(millis));
    let mut plugin = GoPlugin::start(socket, log).expect("the plugin starts");
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        pause(2500);
        if round % 2 == 0 {
            plugin.kill();
            counts[0].fetch_add(1, Ordering::Relaxed);
            pause(700);
        } else {
            // Longer than a plugin may take to answer.
            plugin.freeze();
            counts[1].fetch_add(1, Ordering::Relaxed);
            pause(2600);
            plugin.kill();
        }
        plugin = GoPlugin::spawn(socket, log).expect("the plugin starts");
        round += 1;
    }
}

/// Runs the stream.
pub async fn run(client: Client, runtime: &Running, log: &Path) -> Result<Outcome> {
    let (stop, counts) =
        (Arc::new(AtomicBool::new(false)), Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]));
    let tormentor = {
        let (stop, counts, log) = (stop.clone(), counts.clone(), log.to_owned());
        let socket = runtime.nri_socket.clone().context("no NRI")?;
        std::thread::Builder::new()
            .name("torment".into())
            .spawn(move || torment(&socket, &log, &stop, &counts))?
    };
    while !read(log).iter().any(|line| line["event"] == "Synchronize") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (next, outcome) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Outcome::default())));
    let mut workers = JoinSet::new();
    for _ in 0..WIDTH {
        let (client, next, outcome, log) = (client.clone(), next.clone(), outcome.clone(), log.to_owned());
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= PODS {
                    return;
                }
                let name = format!("drill{number}");
                let done = tokio::time::timeout(PATIENCE, one(&client, &name, &log)).await;
                let mut outcome = outcome.lock().expect("no holder panics");
                outcome.pods += 1;
                let Ok((ready, started)) = done else {
                    outcome.unanswered += 1;
                    return;
                };
                outcome.sandboxes_without += usize::from(ready == Seen::Without);
                outcome.containers_without += usize::from(started == Seen::Without);
                match started {
                    Seen::Never => outcome.failed += 1,
                    _ => outcome.started += 1,
                }
            }
        });
    }
    workers.join_all().await;
    stop.store(true, Ordering::Relaxed);
    tormentor.join().expect("the tormentor ends");
    let mut outcome = std::mem::take(&mut *outcome.lock().expect("no holder panics"));
    outcome.kills = counts[0].load(Ordering::Relaxed);
    outcome.hangs = counts[1].load(Ordering::Relaxed);
    Ok(outcome)
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Seen {
    Never,
    With,
    Without,
}

/// The pods that the plugin was told of, by an event or when it came.
fn told(log: &Path) -> HashSet<String> {
    let mut names = HashSet::new();
    for line in read(log) {
        if line["event"] == "RunPodSandbox" {
            names.extend(line["pod"].as_str().map(str::to_owned));
        }
        let known = line["podNames"].as_array().into_iter().flatten();
        names.extend(known.filter_map(|name| name.as_str().map(str::to_owned)));
    }
    names
}

/// Makes one pod and takes it down again; whether its sandbox and its container had the plugin.
async fn one(client: &Client, name: &str, log: &Path) -> (Seen, Seen) {
    // The plugin adjusts every container of this name.
    let Ok(sandbox) = client.run(name, &[("adjust/main", "env")]).await else {
        return (Seen::Never, Seen::Never);
    };
    let ready = if told(log).contains(name) { Seen::With } else { Seen::Without };
    let mut removable = None;
    let made = async {
        let container = client.create(&sandbox, "main").await?;
        removable = Some(container.clone());
        client.start(&container).await?;
        let pid = client.pid(&container).await?;
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
        anyhow::Ok(environment.split('\0').any(|one| one == "NRI_PLUGIN=go"))
    };
    let started = match made.await {
        Ok(true) => Seen::With,
        Ok(false) => Seen::Without,
        Err(_) => Seen::Never,
    };
    // As a kubelet does: the container, then its pod. Ignored: what stays is taken down with the runtime.
    if let Some(container) = removable {
        client.remove(&container).await.ok();
    }
    client.down(&sandbox.id).await.ok();
    (ready, started)
}
