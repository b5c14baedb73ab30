//! An earlier version of the program beside this one, in turns: what a change costs on the path of a pod.
//!
//! `PODWIRE_OLD_BIN_DIR` names the folder with the earlier programs. Each version has a process of its own that keeps a
//! node, a runtime and an API server up, and measures one small thing when it is told to: so both see the same machine in
//! the same second, however much it is disturbed. What counts is the middle of the ratios of neighbours.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    Node, critest,
    node::bin_dir,
    runtimes::{Bed, Running},
};
use tokio::time::sleep;

use crate::{
    api::Brief,
    measure::Processes,
    pods::Cluster,
    runtime::{self, client::Client},
};

/// What is measured, and how often by each version.
const PARTS: [(&str, usize); 5] = [("path", 101), ("runtime", 101), ("api", 21), ("start", 21), ("burst", 3)];
/// How long after a burst memory has to be back.
const SETTLED: Duration = Duration::from_secs(10);

/// The figures of one measurement, by name.
type Figures = BTreeMap<String, f64>;

/// Measures both in turns and prints the medians. A word chooses one part.
pub fn run() -> Result<()> {
    let old = std::env::var_os("PODWIRE_OLD_BIN_DIR")
        .context("PODWIRE_OLD_BIN_DIR has to name the folder with the programs of the earlier version")?;
    let only = std::env::args().nth(2);
    println!("{:<44} {:>10} {:>10}   new/old, the middle half of the pairs", "medians", "old", "new");
    for (part, times) in PARTS {
        if only.as_deref().is_some_and(|only| only != part) {
            continue;
        }
        let mut sides = [Side::start(Path::new(&old), part)?, Side::start(&bin_dir(), part)?];
        let mut figures = [Vec::new(), Vec::new()];
        for round in 0..times {
            // Who comes second finds warmer caches: each does every other time.
            for number in [round % 2, 1 - round % 2] {
                let (Some(side), Some(figures)) = (sides.get_mut(number), figures.get_mut(number)) else {
                    bail!("there are two sides")
                };
                figures.push(side.measure()?);
            }
        }
        report(&figures);
        for side in sides {
            side.end()?;
        }
    }
    Ok(())
}

fn report([old, new]: &[Vec<Figures>; 2]) {
    for name in old.first().into_iter().flat_map(|figures| figures.keys()) {
        let of = |figures: &Figures| figures.get(name).copied().unwrap_or(f64::NAN);
        let median = |side: &[Figures]| quantile(side.iter().map(of).collect(), 2);
        let ratios: Vec<f64> = old.iter().zip(new).map(|(old, new)| of(new) / of(old)).collect();
        let [low, middle, high] = [1, 2, 3].map(|quarter| quantile(ratios.clone(), quarter));
        let (old, new) = (median(old), median(new));
        println!(
            "{name:<44} {old:>10.2} {new:>10.2}   {middle:.3} ({low:.2} to {high:.2}, {} pairs)",
            ratios.len()
        );
    }
}

/// The value below which so many quarters lie.
fn quantile(mut values: Vec<f64>, quarter: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * quarter / 4).copied().unwrap_or(f64::NAN)
}

/// One version: a process that measures when it is told to.
struct Side {
    child: Child,
    words: ChildStdin,
    figures: BufReader<ChildStdout>,
}

impl Side {
    fn start(programs: &Path, part: &str) -> Result<Side> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["side", part])
            .env("PODWIRE_BIN_DIR", programs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let words = child.stdin.take().context("no input")?;
        let figures = BufReader::new(child.stdout.take().context("no output")?);
        let mut side = Side { child, words, figures };
        // The first one warms up, and says that all is there.
        side.measure().with_context(|| format!("start {}", programs.display()))?;
        Ok(side)
    }

    fn measure(&mut self) -> Result<Figures> {
        self.words.write_all(b"go\n")?;
        let mut line = String::new();
        self.figures.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("read the figures in {line:?}"))
    }

    fn end(mut self) -> Result<()> {
        drop(self.words);
        if !self.child.wait()?.success() {
            bail!("one side did not end well")
        }
        Ok(())
    }
}

/// One side: measures what the second word says for every line it is given, and answers with the figures.
pub async fn side() -> Result<()> {
    let part = std::env::args().nth(2).unwrap_or_default();
    let mut bench = match part.as_str() {
        "path" | "burst" => Bench::node().await?,
        "runtime" => Bench::runtime().await?,
        "api" => Bench::Api(Box::new(Brief::start().await?)),
        "start" => Bench::Start,
        other => bail!("there is no part called {other}"),
    };
    // One line at a time, and nothing else to do meanwhile.
    for (round, line) in std::io::stdin().lines().enumerate() {
        line?;
        let figures = bench.measure(&part, round).await?;
        println!("{}", serde_json::to_string(&figures)?);
    }
    bench.end()
}

enum Bench {
    Node { node: Box<Node>, cluster: Box<Cluster> },
    Runtime { client: Box<Client>, _running: Box<Running>, _bed: Box<Bed> },
    Api(Box<Brief>),
    Start,
}

impl Bench {
    async fn node() -> Result<Bench> {
        let node = Box::new(Node::up(&[])?);
        let cluster = Box::new(Cluster::connect(&node.kubeconfig()).await?);
        Ok(Bench::Node { node, cluster })
    }

    async fn runtime() -> Result<Bench> {
        let bed = Box::new(Bed::new(runtime::small_images()?)?);
        let running = Box::new(bed.ours(false)?);
        let client = Box::new(Client::new(&running));
        client.pull("localhost/app:latest").await?;
        client.pull(critest::SANDBOX_IMAGE).await?;
        Ok(Bench::Runtime { client, _running: running, _bed: bed })
    }

    async fn measure(&mut self, part: &str, round: usize) -> Result<Figures> {
        let figures: Vec<(&str, f64)> = match self {
            Bench::Node { node, cluster } if part == "burst" => {
                let processes = Processes::of_node(node)?;
                sleep(SETTLED).await;
                let idle = processes.pss_bytes()? as f64;
                let burst = cluster.burst(100).await?;
                cluster.delete_all().await?;
                sleep(SETTLED).await;
                let after = processes.pss_bytes()? as f64;
                vec![
                    ("100 at once, ms", millis(burst)),
                    ("PSS before a burst, MB", idle / 1e6),
                    ("PSS 10 s after it, MB", after / 1e6),
                ]
            }
            Bench::Node { cluster, .. } => {
                let (start, stop) = cluster.start_and_stop(&format!("p{round}")).await?;
                vec![("POST to Running, ms", millis(start)), ("DELETE to gone, ms", millis(stop))]
            }
            Bench::Runtime { client, .. } => {
                let [run, start, _, stop] = runtime::sequence(client, 1).await?;
                let of = |times: Vec<Duration>| times.first().copied().map_or(f64::NAN, millis);
                vec![
                    ("RunPodSandbox with CNI, ms", of(run)),
                    ("CreateContainer + StartContainer, ms", of(start)),
                    ("StopPodSandbox + RemovePodSandbox, ms", of(stop)),
                ]
            }
            Bench::Api(brief) => {
                let (creates, gets) = brief.round().await?;
                vec![("creates, 64 connections, /s", creates), ("gets, 64 connections, /s", gets)]
            }
            Bench::Start => {
                vec![("API server ready, from nothing, ms", millis(Brief::start().await?.ready()))]
            }
        };
        Ok(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn end(self) -> Result<()> {
        match self {
            Bench::Node { node, .. } => node.down(),
            Bench::Runtime { .. } | Bench::Api(_) | Bench::Start => Ok(()),
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
