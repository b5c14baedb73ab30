//! The path of a pod, whole: from POST to Running and back, beside the stack of upstream's participants.

use std::time::{Duration, Instant};

use anyhow::Result;
use podwire_testkit::Node;

use crate::{
    measure::{self, Processes},
    pods::Cluster,
    report::{self, Row},
    upstream,
};

/// Measures ours, then upstream's when the peers are built, and prints the table.
pub async fn run() -> Result<()> {
    println!("cold start ...");
    let cold = cold_start().await?;
    println!("kill -9 ...");
    let crash = crash().await?;
    let node = Node::up(&[])?;
    let cluster = Cluster::connect(&node.kubeconfig()).await?;
    let processes = Processes::of_node(&node)?;
    println!("ours ...");
    let ours = measure_path(&cluster, &processes, || 0).await?;
    node.assert_no_pod_residue()?;
    node.down()?;
    let theirs = if upstream::is_built() {
        println!("upstream ...");
        let stack = upstream::Stack::start()?;
        let cluster = Cluster::connect(stack.kubeconfig()).await?;
        let processes = Processes::of_pids(stack.pids());
        Some(measure_path(&cluster, &processes, || stack.pods_cpu()).await?)
    } else {
        println!("(the peers are not built: `make peers` puts upstream beside)");
        None
    };
    let beside = |read: fn(&Path) -> f64| theirs.as_ref().map(read);
    report::print(&[
        Row::new(
            "POST to Running+podIP, sequential p50",
            "ms",
            ours.start_p50,
            beside(|t| t.start_p50),
            Some(20.0),
        ),
        Row::new("  p95", "ms", ours.start_p95, beside(|t| t.start_p95), None),
        Row::new("100 at once, all Running", "ms", ours.burst, beside(|t| t.burst), Some(2500.0)),
        Row::new("100 at once, all gone", "ms", ours.gone, beside(|t| t.gone), None),
        Row::new("DELETE to gone, sequential p50", "ms", ours.stop_p50, beside(|t| t.stop_p50), Some(50.0)),
        Row::new("cold start to first pod Running", "ms", millis(cold), None, Some(500.0)),
        Row::new("kill -9 amid 100 creations, all Running", "ms", millis(crash), None, Some(3000.0)),
        Row::new("idle PSS, all processes", "MB", ours.idle, beside(|t| t.idle), Some(60.0)),
        Row::new("each further pod, over its own processes", "MB", ours.each, beside(|t| t.each), Some(0.5)),
        Row::new("CPU per pod up+down", "ms", ours.cpu, beside(|t| t.cpu), Some(50.0)),
    ]);
    Ok(())
}

/// The figures of one stack.
struct Path {
    start_p50: f64,
    start_p95: f64,
    stop_p50: f64,
    burst: f64,
    gone: f64,
    idle: f64,
    each: f64,
    cpu: f64,
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

async fn measure_path(cluster: &Cluster, processes: &Processes, pods_cpu: impl Fn() -> u64) -> Result<Path> {
    // One pod first: lazy things happen once.
    cluster.start_and_stop("warm-up").await?;
    let idle = processes.pss_bytes()?;
    println!("  30 pods in sequence ...");
    let cpu_before = processes.cpu()? + Duration::from_nanos(pods_cpu());
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for number in 0..30 {
        let (start, stop) = cluster.start_and_stop(&format!("s{number}")).await?;
        starts.push(start);
        stops.push(stop);
    }
    let cpu = (processes.cpu()? + Duration::from_nanos(pods_cpu()) - cpu_before) / 30;
    println!("  100 pods at once ...");
    let burst = cluster.burst(100).await?;
    let loaded = processes.pss_bytes()?;
    let gone = cluster.delete_all().await?;
    Ok(Path {
        start_p50: millis(measure::percentile(&starts, 50)),
        start_p95: millis(measure::percentile(&starts, 95)),
        stop_p50: millis(measure::percentile(&stops, 50)),
        burst: millis(burst),
        gone: millis(gone),
        idle: idle as f64 / 1e6,
        each: loaded.saturating_sub(idle) as f64 / 100.0 / 1e6,
        cpu: millis(cpu),
    })
}

/// The daemon is killed when the last of 100 pods is accepted; from its next start until all of them run.
async fn crash() -> Result<Duration> {
    let mut node = Node::up(&[])?;
    Cluster::connect(&node.kubeconfig()).await?.create(100).await?;
    node.kill9()?;
    let begun = Instant::now();
    node.start()?;
    let cluster = Cluster::connect(&node.kubeconfig()).await?;
    let (before, restarts) = cluster.all_running().await?;
    let took = begun.elapsed();
    println!("  {before} of 100 were seen Running at once; restarts counted: {restarts}");
    cluster.delete_all().await?;
    node.assert_no_pod_residue()?;
    node.down()?;
    Ok(took)
}

/// From `podwire up` on a folder with certificates and image in place to the first pod Running.
async fn cold_start() -> Result<Duration> {
    let mut node = Node::up(&[])?;
    node.stop()?;
    let begun = Instant::now();
    node.start()?;
    let cluster = Cluster::connect(&node.kubeconfig()).await?;
    cluster.start("cold").await?;
    let took = begun.elapsed();
    cluster.delete_all().await?;
    node.down()?;
    Ok(took)
}
