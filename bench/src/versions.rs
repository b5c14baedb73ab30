//! An earlier version of the program beside this one, in turns: what a change costs on the path of a pod.
//!
//! `PODWIRE_OLD_BIN_DIR` names the folder with the earlier programs. Every round is a process of its own that is told
//! by `PODWIRE_BIN_DIR` which version it measures, so that both see the same machine in the same minute.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{Node, critest, node::bin_dir, runtimes::Bed};
use tokio::time::sleep;

use crate::{
    api,
    measure::{self, Processes},
    pods::Cluster,
    runtime,
};

/// Rounds of each version; the median counts.
const ROUNDS: usize = 9;
/// Pods one after the other in a round.
const PODS: usize = 20;
/// How long after a burst memory has to be back.
const SETTLED: Duration = Duration::from_secs(10);

/// The figures of a round, by name.
type Figures = BTreeMap<String, f64>;

/// Measures both in turns and prints the medians.
pub fn run() -> Result<()> {
    let old = std::env::var_os("PODWIRE_OLD_BIN_DIR")
        .context("PODWIRE_OLD_BIN_DIR has to name the folder with the programs of the earlier version")?;
    let new = bin_dir();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for number in 1..=ROUNDS {
        println!("round {number} of {ROUNDS} ...");
        before.push(child(Path::new(&old))?);
        after.push(child(&new)?);
    }
    println!("\n{:<44} {:>12} {:>12} {:>8}", "medians", "old", "new", "new/old");
    for name in before.first().into_iter().flat_map(|round| round.keys()) {
        let of =
            |rounds: &[Figures]| median(rounds.iter().filter_map(|round| round.get(name).copied()).collect());
        let (old, new) = (of(&before), of(&after));
        println!("{name:<44} {old:>12.2} {new:>12.2} {:>8.3}", new / old);
    }
    Ok(())
}

fn child(programs: &Path) -> Result<Figures> {
    let output = Command::new(std::env::current_exe()?)
        .arg("round")
        .env("PODWIRE_BIN_DIR", programs)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "a round of {programs:?} failed:\n{text}");
    let line = text.lines().last().context("a round that says nothing")?;
    println!("  {}: {line}", programs.display());
    serde_json::from_str(line).context("read the figures of a round")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One round of the version that `PODWIRE_BIN_DIR` names; the figures are the last line.
pub async fn round() -> Result<()> {
    let mut figures = Figures::new();
    of_path(&mut figures).await?;
    of_runtime(&mut figures).await?;
    api::brief(&mut figures).await?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

async fn of_path(figures: &mut Figures) -> Result<()> {
    let node = Node::up(&[])?;
    let cluster = Cluster::connect(&node.kubeconfig()).await?;
    let processes = Processes::of_node(&node)?;
    for number in 0..3 {
        cluster.start_and_stop(&format!("warm{number}")).await?;
    }
    sleep(SETTLED).await;
    let idle = processes.pss_bytes()? as f64;
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for number in 0..PODS {
        let (start, stop) = cluster.start_and_stop(&format!("s{number}")).await?;
        starts.push(start);
        stops.push(stop);
    }
    figures.insert("POST to Running, p50, ms".to_owned(), millis(&starts));
    figures.insert("DELETE to gone, p50, ms".to_owned(), millis(&stops));
    let burst = cluster.burst(100).await?;
    figures.insert("100 at once, ms".to_owned(), burst.as_secs_f64() * 1000.0);
    cluster.delete_all().await?;
    sleep(SETTLED).await;
    figures.insert("idle PSS, MB".to_owned(), idle / 1e6);
    figures.insert("PSS 10 s after a burst / idle".to_owned(), processes.pss_bytes()? as f64 / idle);
    node.down()
}

async fn of_runtime(figures: &mut Figures) -> Result<()> {
    let bed = Bed::new(runtime::small_images()?)?;
    let running = bed.ours(false)?;
    let client = runtime::client::Client::new(&running);
    client.pull("localhost/app:latest").await?;
    client.pull(critest::SANDBOX_IMAGE).await?;
    for number in 0..3 {
        let pod = client.up(&format!("warm{number}")).await?;
        client.down(&pod).await?;
    }
    let [run, start, _, stop] = runtime::sequence(&client, PODS).await?;
    figures.insert("RunPodSandbox with CNI, p50, ms".to_owned(), millis(&run));
    figures.insert("CreateContainer + StartContainer, p50, ms".to_owned(), millis(&start));
    figures.insert("StopPodSandbox + RemovePodSandbox, p50, ms".to_owned(), millis(&stop));
    Ok(())
}

fn millis(times: &[Duration]) -> f64 {
    measure::percentile(times, 50).as_secs_f64() * 1000.0
}
