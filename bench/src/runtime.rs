//! The runtime alone over CRI, beside containerd in the same setup: steps of a pod, pods at once, memory, pulls.

pub mod client;
mod layer;
mod trace;

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use podwire_testkit::{
    critest,
    images::{Files, Image, Layer},
    node::{bin_dir, peer},
    runtimes::{Bed, Running},
};
use serde_json::json;

use self::client::Client;
use crate::{
    measure::{self, Processes},
    report::{self, Row},
};

/// Pods one after the other.
const ROUNDS: usize = 40;

/// Pods at once, and how many of them at a time.
const MANY: usize = 80;
const WIDTH: usize = 8;

/// What one runtime measured.
struct Figures {
    run: f64,
    start: f64,
    exec: f64,
    stop: f64,
    rate: f64,
    each: f64,
    pull: f64,
}

/// Measures ours, and containerd when it is built.
pub async fn run() -> Result<()> {
    println!("making a layer of 250 MB ...");
    let big = layer::make()?;
    println!("  {:.0} MB packed", big.size() as f64 / 1e6);
    let bed = Bed::new(images(&big)?)?;
    let ours = {
        let runtime = bed.ours(false)?;
        let figures = measure(&runtime).await?;
        trace::report(&runtime).await?;
        figures
    };
    let built = ["containerd", "containerd-shim-runc-v2", "runc", "crictl", "cni/bridge"]
        .iter()
        .all(|name| peer(name).is_ok());
    let theirs = if built { Some(measure(&bed.containerd(false)?).await?) } else { None };
    let beside = |read: fn(&Figures) -> f64| theirs.as_ref().map(read);
    let half = beside(|t| t.pull / 2.0);
    report::print(&[
        Row::new("RunPodSandbox with CNI, p50", "ms", ours.run, beside(|t| t.run), Some(6.0)),
        Row::new("CreateContainer + StartContainer, p50", "ms", ours.start, beside(|t| t.start), Some(6.0)),
        Row::new("ExecSync true, p50", "ms", ours.exec, beside(|t| t.exec), Some(4.0)),
        Row::new("StopPodSandbox + RemovePodSandbox, p50", "ms", ours.stop, beside(|t| t.stop), Some(8.0)),
        Row::rate("8 in parallel, up", "pods/s", ours.rate, beside(|t| t.rate), Some(120.0)),
        Row::new("each pod, over its own processes", "MB", ours.each, beside(|t| t.each), Some(0.3)),
        Row::new("250 MB gzip layer, pull and unpack", "ms", ours.pull, beside(|t| t.pull), half),
    ]);
    Ok(())
}

fn images(big: &Layer) -> Result<Vec<Image>> {
    let mut images = small_images()?;
    images.push(Image::new(&["big:latest"], big, &json!({"Cmd": ["/none"]}))?);
    Ok(images)
}

/// What a pod's two containers run.
pub fn small_images() -> Result<Vec<Image>> {
    let app = std::fs::read(bin_dir().join("pod-app"))?;
    let busybox = std::fs::read("/bin/busybox")?;
    let tools = Files::default()
        .folder("bin", 0o755)
        .file("pod-app", app.clone(), 0o755)
        .file("bin/true", busybox, 0o755);
    let pause = Files::default().file("pause", app, 0o755);
    Ok(vec![
        Image::new(&["app:latest"], &Layer::new(&tools)?, &json!({"Entrypoint": ["/pod-app"]}))?,
        Image::new(&["sandbox:latest"], &Layer::new(&pause)?, &json!({"Entrypoint": ["/pause"]}))?,
    ])
}

fn p50(times: &[Duration]) -> f64 {
    measure::percentile(times, 50).as_secs_f64() * 1000.0
}

async fn measure(runtime: &Running) -> Result<Figures> {
    println!("{} ...", runtime.name);
    let client = Client::new(runtime);
    client.pull("localhost/app:latest").await?;
    client.pull(critest::SANDBOX_IMAGE).await?;
    for number in 0..3 {
        let pod = client.up(&format!("warm{number}")).await?;
        client.exec(&pod, &["/bin/true"]).await?;
        client.down(&pod).await?;
    }
    println!("  {ROUNDS} pods in sequence ...");
    let [run, start, exec, stop] = sequence(&client, ROUNDS).await?;
    let before = Processes::of_pids(&runtime.pids()?).own_pss_bytes()?;
    println!("  {MANY} pods, {WIDTH} at a time ...");
    let begun = Instant::now();
    let pods: Vec<client::Pod> = futures::stream::iter(0..MANY)
        .map(|number| client.up_owned(format!("m{number}")))
        .buffer_unordered(WIDTH)
        .try_collect()
        .await?;
    let rate = MANY as f64 / begun.elapsed().as_secs_f64();
    let loaded = Processes::of_pids(&runtime.pids()?).own_pss_bytes()?;
    for pod in &pods {
        client.down(pod).await?;
    }
    println!("  pulls ...");
    let mut pull = f64::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        client.pull("localhost/big:latest").await?;
        pull = pull.min(begun.elapsed().as_secs_f64() * 1000.0);
        client.forget("localhost/big:latest").await?;
    }
    let each = loaded.saturating_sub(before) as f64 / MANY as f64 / 1e6;
    Ok(Figures { run: p50(&run), start: p50(&start), exec: p50(&exec), stop: p50(&stop), rate, each, pull })
}

/// Pods one after the other: how long each of `RunPodSandbox`, create and start, exec, stop and remove took.
pub async fn sequence(client: &Client, rounds: usize) -> Result<[Vec<Duration>; 4]> {
    let [mut run, mut start, mut exec, mut stop] = [const { Vec::new() }; 4];
    for number in 0..rounds {
        let mut begun = Instant::now();
        let mut lap = |times: &mut Vec<Duration>| {
            times.push(begun.elapsed());
            begun = Instant::now();
        };
        let sandbox = client.run(&format!("s{number}")).await?;
        lap(&mut run);
        let pod = client.start(sandbox).await?;
        lap(&mut start);
        client.exec(&pod, &["/bin/true"]).await?;
        lap(&mut exec);
        client.down(&pod).await?;
        lap(&mut stop);
    }
    Ok([run, start, exec, stop])
}
