//! `make bench WHAT=cni`: what attaching and detaching a pod costs, beside the reference plugins in the same run.
//!
//! Executed plugins are timed from before the process starts until it has ended; their CPU is what the kernel charges to
//! ended children, among them those that a plugin leaves behind to finish its work. Both sides get the same configuration,
//! their turns alternate in blocks, and every pod has a new network namespace, made before the clock starts.
//!
//! A third side is the floor: a program that only starts, sends the kernel the messages an attachment is made of, and
//! ends. What it takes is the kernel's part, of which no plugin can spare anything.

mod world;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use self::world::{Pod, Side, World};
use crate::{measure::percentile, report, report::Row};

/// Pods per block; with so many the kernel's 10 ms of granularity is 0.1 ms per pod.
const BLOCK: usize = 100;
/// Blocks per side.
const BLOCKS: usize = 3;
/// Pods attached at once.
const AT_ONCE: usize = 30;
/// Reservations in the folder that is full.
const MANY: usize = 20_000;

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The figures of one side.
#[derive(Default)]
struct Figures {
    add: Vec<Duration>,
    del: Vec<Duration>,
    add_cpu: Duration,
    del_cpu: Duration,
    at_once: Vec<Duration>,
    few: Vec<Duration>,
    many: Vec<Duration>,
}

impl Figures {
    fn p50(samples: &[Duration]) -> f64 {
        millis(percentile(samples, 50))
    }

    fn cpu(sum: Duration) -> f64 {
        millis(sum) / (BLOCK * BLOCKS) as f64
    }
}

/// Measures and prints.
pub fn run() -> Result<()> {
    let world = World::new()?;
    let sides: &[Side] =
        if world.has(Side::Reference) { &[Side::Ours, Side::Reference] } else { &[Side::Ours] };
    if sides.len() == 1 {
        println!("(the reference plugins are not built: `make peers` puts them beside)");
    }
    let mut figures = [Figures::default(), Figures::default()];
    let mut floor = Figures::default();
    let mut with_masquerade = [Figures::default(), Figures::default()];
    for block in 0..BLOCKS {
        println!("block {} of {BLOCKS} ...", block + 1);
        for (at, side) in sides.iter().enumerate() {
            in_sequence(&world, *side, "plain", BLOCK, &mut figures[at])?;
            in_sequence(&world, *side, "masq", BLOCK / 5, &mut with_masquerade[at])?;
            at_once(&world, *side, &mut figures[at])?;
        }
        in_sequence(&world, Side::Floor, "plain", BLOCK, &mut floor)?;
        at_once(&world, Side::Floor, &mut floor)?;
    }
    println!("{MANY} reservations ...");
    for (at, side) in sides.iter().enumerate() {
        crowded(&world, *side, &mut figures[at])?;
    }
    println!("in process ...");
    let (attach, detach) = world.in_process(BLOCK * 2)?;
    let [ours, theirs] = &figures;
    let [ours_masq, theirs_masq] = &with_masquerade;
    let beside = |value: f64| (sides.len() == 2).then_some(value);
    let row = |what: &str, ours: f64, theirs: f64, part: Option<f64>| {
        let theirs = beside(theirs);
        let target = part.and_then(|part| theirs.map(|theirs| theirs / part));
        Row::new(what, "ms", ours, theirs, target)
    };
    let p50 = Figures::p50;
    let ratio = |few: &[Duration], many: &[Duration]| p50(many) / p50(few).max(1e-9);
    let mut rows = vec![
        row("bridge+host-local ADD, executed, p50", p50(&ours.add), p50(&theirs.add), Some(5.0)),
        row("  CPU of it", Figures::cpu(ours.add_cpu), Figures::cpu(theirs.add_cpu), Some(10.0)),
        row("bridge+host-local DEL, executed, p50", p50(&ours.del), p50(&theirs.del), Some(5.0)),
        row("  CPU of it", Figures::cpu(ours.del_cpu), Figures::cpu(theirs.del_cpu), Some(10.0)),
        row("ADD with masquerading (nftables), p50", p50(&ours_masq.add), p50(&theirs_masq.add), None),
        row("DEL with masquerading (nftables), p50", p50(&ours_masq.del), p50(&theirs_masq.del), None),
        row("30 ADDs at once, all answered", p50(&ours.at_once), p50(&theirs.at_once), Some(8.0)),
        Row::new("in process: ensure (bridge+host-local), p50", "ms", p50(&attach), None, Some(3.0)),
        Row::new("in process: detach, namespace dying, p50", "ms", p50(&detach), None, Some(3.0)),
        row("ADD beside 10 reservations, p50", p50(&ours.few), p50(&theirs.few), None),
        row("ADD beside 20000 reservations, p50", p50(&ours.many), p50(&theirs.many), None),
    ];
    rows.push(Row::new(
        "  ratio of the two",
        "x",
        ratio(&ours.few, &ours.many),
        beside(ratio(&theirs.few, &theirs.many)),
        Some(1.2),
    ));
    let below = |what: &str, floor: f64, theirs: f64| Row::new(what, "ms", floor, beside(theirs), None);
    rows.push(below("floor (exec and kernel alone): ADD, p50", p50(&floor.add), p50(&theirs.add)));
    rows.push(below("  CPU of it", Figures::cpu(floor.add_cpu), Figures::cpu(theirs.add_cpu)));
    rows.push(below("  CPU of DEL", Figures::cpu(floor.del_cpu), Figures::cpu(theirs.del_cpu)));
    rows.push(below("  30 ADDs at once", p50(&floor.at_once), p50(&theirs.at_once)));
    report::print(&rows);
    Ok(())
}

/// Pods one after the other: all attached, then all detached.
fn in_sequence(world: &World, side: Side, network: &str, count: usize, figures: &mut Figures) -> Result<()> {
    let pods = world.pods(count)?;
    let before = world::children_cpu()?;
    for pod in &pods {
        figures.add.push(world.timed(side, "ADD", network, pod)?);
    }
    let between = world::children_cpu()?;
    for pod in &pods {
        figures.del.push(world.timed(side, "DEL", network, pod)?);
    }
    figures.add_cpu += between - before;
    figures.del_cpu += world::children_cpu()? - between;
    world.assert_empty(side, network)
}

fn at_once(world: &World, side: Side, figures: &mut Figures) -> Result<()> {
    let pods = world.pods(AT_ONCE)?;
    let barrier = std::sync::Barrier::new(AT_ONCE + 1);
    let took = std::thread::scope(|scope| {
        let start = |pod: &Pod| {
            barrier.wait();
            world.timed(side, "ADD", "plain", pod).map(|_| ())
        };
        let threads: Vec<_> = pods.iter().map(|pod| scope.spawn(move || start(pod))).collect();
        barrier.wait();
        let begun = Instant::now();
        for thread in threads {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => bail!("a thread of 30 ended"),
            }
        }
        Ok(begun.elapsed())
    })?;
    figures.at_once.push(took);
    for pod in &pods {
        world.timed(side, "DEL", "plain", pod)?;
    }
    world.assert_empty(side, "plain")
}

/// ADDs in a folder with few and in one with many reservations, in turns.
fn crowded(world: &World, side: Side, figures: &mut Figures) -> Result<()> {
    world.fill(side, "few", 10)?;
    world.fill(side, "many", MANY)?;
    // The first ADD reads the folder that another has filled.
    for network in ["few", "many"] {
        for pod in world.pods(1)? {
            world.timed(side, "ADD", network, &pod)?;
            world.timed(side, "DEL", network, &pod)?;
        }
    }
    // The reference reads every file of the folder each time, which takes seconds.
    let count = if side == Side::Ours { BLOCK } else { 3 };
    for _ in 0..count {
        for (network, samples) in [("few", &mut figures.few), ("many", &mut figures.many)] {
            for pod in world.pods(1)? {
                samples.push(world.timed(side, "ADD", network, &pod)?);
                world.timed(side, "DEL", network, &pod)?;
            }
        }
    }
    Ok(())
}
