//! The scheduler: pods, preemptions and refusals per second in a cluster that is full of pods, and what waiting costs; ours
//! beside kube-scheduler, one after the other on one API server of ours, each as a process of its own.
//!
//! Sizes are words: `make bench WHAT="scheduler nodes=5000 placed=150000 pods=5000 hopeless=10000"` are the issue's. Each
//! wait ends after `seconds`; rates are then of what was done so far. `only=ours` leaves upstream's out. Pods are there
//! before a scheduler starts, so that nobody's writing of them is measured.

pub mod process;
pub mod world;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::{
    process::{Decisions, Process, Which},
    world::{Watch, Wish, World},
};
use crate::{
    api::millis,
    measure::percentile,
    report::{self, Row},
};

/// Pods that are made one after the other.
const SINGLES: usize = 100;
/// How long nothing changes while CPU is counted.
const CALM: Duration = Duration::from_secs(10);

/// How large everything is.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    nodes: usize,
    placed: usize,
    pods: usize,
    hopeless: usize,
    /// How long a round may take.
    patience: Duration,
}

impl Sizes {
    /// Nodes on which nothing is placed.
    pub fn empty(nodes: usize, patience: Duration) -> Sizes {
        Sizes { nodes, placed: 0, pods: 0, hopeless: 0, patience }
    }

    fn read(words: &[String]) -> Result<(Sizes, bool)> {
        let patience = Duration::from_secs(60);
        let mut sizes = Sizes { nodes: 200, placed: 6_000, pods: 500, hopeless: 1_000, patience };
        let mut upstream = true;
        for word in words {
            let (name, value) = word.split_once('=').with_context(|| format!("{word:?} is no name=value"))?;
            let number = || value.parse::<usize>().with_context(|| format!("{word:?} has no number"));
            match name {
                "nodes" => sizes.nodes = number()?.max(1),
                "placed" => sizes.placed = number()?,
                "pods" => sizes.pods = number()?.max(2),
                "hopeless" => sizes.hopeless = number()?,
                "seconds" => sizes.patience = Duration::from_secs(number()? as u64),
                "only" if value == "ours" => upstream = false,
                _ => bail!("{word:?}: there are nodes, placed, pods, hopeless, seconds and only=ours"),
            }
        }
        Ok((sizes, upstream))
    }
}

/// Measures ours, then upstream's when it is built, and prints the table.
pub fn run(words: &[String]) -> Result<()> {
    let (sizes, upstream) = Sizes::read(words)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        println!("{} nodes, {} placed pods ...", sizes.nodes, sizes.placed);
        let begun = Instant::now();
        let world = World::make(sizes).await?;
        println!(
            "  made in {:.1} s; API server {:.0} MB",
            begun.elapsed().as_secs_f64(),
            world.server.pss()?
        );
        let ours = Figures::of(&world, Which::Ours).await?;
        let theirs = if !upstream {
            None
        } else if podwire_testkit::node::peer("kube-scheduler").is_ok() {
            Some(Figures::of(&world, Which::Upstream).await?)
        } else {
            println!("(the peers are not built: `make peers` puts kube-scheduler beside)");
            None
        };
        println!("load of the machine: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
        print(&ours, theirs.as_ref());
        Ok(())
    })
}

fn print(ours: &Figures, theirs: Option<&Figures>) {
    let less = |what: &str, unit: &'static str, read: fn(&Figures) -> f64, target: Option<f64>| {
        Row::new(what, unit, read(ours), theirs.map(read), target)
    };
    let more = |what: &str, read: fn(&Figures) -> f64, target: Option<f64>| {
        Row::rate(what, "/s", read(ours), theirs.map(read), target)
    };
    report::print(&[
        less("start to first binding", "s", |f| f.plain.first, Some(3.0)),
        more("plain pods bound", |f| f.plain.rate, Some(3_000.0)),
        less("  decision p50", "ms", |f| f.plain.decisions.p50, None),
        less("  decision p99", "ms", |f| f.plain.decisions.p99, Some(5.0)),
        less("  scheduler CPU each", "ms", |f| f.plain.cpu, None),
        more("spread, affine and anti-affine pods bound", |f| f.social.rate, Some(1_000.0)),
        less("  decision p50", "ms", |f| f.social.decisions.p50, None),
        less("  decision p99", "ms", |f| f.social.decisions.p99, Some(5.0)),
        less("  scheduler CPU each", "ms", |f| f.social.cpu, None),
        more("preemptions, until bound", |f| f.preempting.rate, Some(300.0)),
        less("  decision p99", "ms", |f| f.preempting.decisions.p99, Some(5.0)),
        more("pods that fit nowhere told so", |f| f.refused, None),
        less("  scheduler CPU while nothing changes", "%", |f| f.calm, Some(1.0)),
        less("one pod, POST to bound, p50", "ms", |f| f.alone.0, None),
        less("  p99", "ms", |f| f.alone.1, None),
        less("  beside those that fit nowhere, p50", "ms", |f| f.beside.0, None),
        less("  p99", "ms", |f| f.beside.1, None),
        less("scheduler PSS, all placed and waiting", "MB", |f| f.memory, Some(400.0)),
    ]);
}

/// The figures of one scheduler.
struct Figures {
    plain: Burst,
    social: Burst,
    preempting: Burst,
    /// Refusals told per second.
    refused: f64,
    /// Percent of a core while many wait and nothing changes.
    calm: f64,
    /// Milliseconds, p50 and p99, of pods one after the other: with nobody waiting, and with many.
    alone: (f64, f64),
    beside: (f64, f64),
    /// Megabytes.
    memory: f64,
}

/// What binding pods that were there before the scheduler came to.
pub struct Burst {
    /// Seconds from the start of the process to the first binding.
    pub first: f64,
    /// Pods per second from the first to the last.
    pub rate: f64,
    /// Milliseconds of the scheduler's CPU for each, its start included.
    pub cpu: f64,
    pub decisions: Decisions,
}

impl Figures {
    async fn of(world: &World, which: Which) -> Result<Figures> {
        println!("{which} ...");
        let plain = burst(world, which, Wish::Plain).await?;
        let social = burst(world, which, Wish::Social).await?;
        let preempting = burst(world, which, Wish::Preempting).await?;
        let mut figures = waiting(world, which).await?;
        (figures.plain, figures.social, figures.preempting) = (plain, social, preempting);
        Ok(figures)
    }
}

/// Makes pods, starts the scheduler, and waits until they are bound.
async fn burst(world: &World, which: Which, wish: Wish) -> Result<Burst> {
    let victims = match wish {
        Wish::Preempting => Some(world.victims(which).await?),
        Wish::Plain | Wish::Social | Wish::Hopeless => None,
    };
    let (space, count) = world.pods(which, wish).await?;
    let mut bound = world.bound(&space).await?;
    let burst = Burst::of(world, which, &format!("{wish:?}"), &mut bound, count).await?;
    world.clear(&space).await?;
    if let Some(space) = victims {
        world.clear(&space).await?;
    }
    Ok(burst)
}

impl Burst {
    /// Starts the scheduler and waits until so many pods are bound, or its time is over.
    pub async fn of(
        world: &World,
        which: Which,
        what: &str,
        bound: &mut Watch,
        count: usize,
    ) -> Result<Burst> {
        let process = Process::start(&world.server.kubeconfig, which)?;
        let begun = process.begun();
        let times = bound.wait(count, world.sizes.patience).await?;
        let cpu = process.cpu()?;
        let decisions = process.end().await?;
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            bail!("{which} bound no {what} pod within {:?}", world.sizes.patience);
        };
        let span = last.duration_since(*first).as_secs_f64();
        println!("  {what}: {} of {count} bound, {span:.2} s from the first to the last", times.len());
        Ok(Burst {
            first: first.duration_since(begun).as_secs_f64(),
            rate: (times.len() - 1) as f64 / span.max(1e-3),
            cpu: millis(cpu) / times.len() as f64,
            decisions,
        })
    }
}

/// Many pods that fit nowhere: what telling them costs, what their waiting costs, and whom they delay.
async fn waiting(world: &World, which: Which) -> Result<Figures> {
    let process = Process::start(&world.server.kubeconfig, which)?;
    let alone = singles(world, which, "alone").await?;
    let space = world.space(which, "hopeless").await?;
    let mut told = world.told(&space).await?;
    let begun = Instant::now();
    world.hopeless(&space).await?;
    let times = told.wait(world.sizes.hopeless, world.sizes.patience).await?;
    let took = times.last().map_or(world.sizes.patience, |last| last.duration_since(begun));
    println!("  {} of {} heard that they fit nowhere", times.len(), world.sizes.hopeless);
    // What was written about them comes back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = process.cpu()?;
    tokio::time::sleep(CALM).await;
    let calm = (process.cpu()? - before).as_secs_f64() / CALM.as_secs_f64() * 100.0;
    let beside = singles(world, which, "beside").await?;
    let memory = process.pss()?;
    process.end().await?;
    world.clear(&space).await?;
    let none = || Burst { first: 0.0, rate: 0.0, cpu: 0.0, decisions: Decisions::default() };
    Ok(Figures {
        plain: none(),
        social: none(),
        preempting: none(),
        refused: times.len() as f64 / took.as_secs_f64().max(1e-3),
        calm,
        alone,
        beside,
        memory,
    })
}

/// Pods one after the other: milliseconds from the request to the news of the binding, p50 and p99.
async fn singles(world: &World, which: Which, what: &str) -> Result<(f64, f64)> {
    let space = world.space(which, what).await?;
    let mut bound = world.bound(&space).await?;
    let mut samples = Vec::with_capacity(SINGLES);
    // The first is not counted: the scheduler may still be starting.
    for number in 0..=SINGLES {
        let begun = Instant::now();
        world.one(&space, number).await?;
        let times = bound.wait(1, world.sizes.patience).await?;
        let heard = times.first().with_context(|| format!("{which} did not bind a single pod"))?;
        if number > 0 {
            samples.push(heard.duration_since(begun));
        }
    }
    world.clear(&space).await?;
    Ok((millis(percentile(&samples, 50)), millis(percentile(&samples, 99))))
}
