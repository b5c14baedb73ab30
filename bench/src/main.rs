//! `make bench`: the path of a pod in numbers, beside the targets and, when the peers are built, beside upstream.
//!
//! Everything is observed from outside: requests over HTTPS, pods through a watch, memory and CPU from `/proc`.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::cast_precision_loss)]

mod measure;
mod pods;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use podwire_testkit::{Node, isolate};

use crate::{measure::Processes, pods::Cluster, report::Row};

fn main() -> Result<()> {
    isolate().context("make a network namespace for the bench (needs root)")?;
    // Threads made from here on live in the namespace.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run())
}

async fn run() -> Result<()> {
    println!("cold start ...");
    let cold = cold_start().await?;
    let node = Node::up(&[])?;
    let cluster = Cluster::connect(&node.kubeconfig()).await?;
    let processes = Processes::of_node(&node)?;
    // One pod first: lazy things happen once.
    cluster.start_and_stop("warm-up").await?;
    let idle = processes.pss_bytes()?;

    println!("30 pods in sequence ...");
    let cpu_before = processes.cpu()?;
    let mut starts = Vec::new();
    let mut stops = Vec::new();
    for number in 0..30 {
        let (start, stop) = cluster.start_and_stop(&format!("s{number}")).await?;
        starts.push(start);
        stops.push(stop);
    }
    let cpu_each = (processes.cpu()? - cpu_before) / 30;

    println!("100 pods at once ...");
    let burst = cluster.burst(100).await?;
    let loaded = processes.pss_bytes()?;
    let gone = cluster.delete_all().await?;
    node.assert_no_pod_residue()?;
    let each = loaded.saturating_sub(idle) as f64 / 100.0 / 1e6;

    let rows = vec![
        Row::millis("POST to Running+podIP, sequential p50", measure::percentile(&starts, 50), 20.0),
        Row::millis("  p95", measure::percentile(&starts, 95), f64::NAN),
        Row::millis("100 at once, all Running", burst, 2500.0),
        Row::millis("100 at once, all gone", gone, f64::NAN),
        Row::millis("DELETE to gone, sequential p50", measure::percentile(&stops, 50), 50.0),
        Row::millis("cold start of `podwire up` to first pod Running", cold, 500.0),
        Row::megabytes("idle PSS, all processes", idle as f64 / 1e6, 60.0),
        Row::megabytes("each further pod, over its own processes", each, 0.5),
        Row::millis("CPU per pod up+down", cpu_each, 50.0),
    ];
    report::print(&rows);
    node.down()
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
