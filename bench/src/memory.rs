//! What a node keeps after bursts: memory before one, and second by second after it.

use std::time::Duration;

use anyhow::Result;
use podwire_testkit::Node;
use tokio::time::sleep;

use crate::{measure::Processes, pods::Cluster};

/// How long after a burst memory has to be back.
const SETTLED: u64 = 10;
/// Objects that come and go, for the burst that has no pods in it.
const OBJECTS: usize = 7_500;

/// Prints the memory of a node before and after 100 pods, and before and after 7,500 objects.
pub async fn run() -> Result<()> {
    let node = Node::up(&[])?;
    let cluster = Cluster::connect(&node.kubeconfig()).await?;
    let processes = Processes::of_node(&node)?;
    for number in 0..3 {
        cluster.start_and_stop(&format!("warm{number}")).await?;
    }
    sleep(Duration::from_secs(SETTLED)).await;
    let idle = processes.pss_bytes()?;
    println!("idle, 10 s after three pods one after the other: {:.1} MB", idle as f64 / 1e6);
    for number in 1..=2 {
        cluster.burst(100).await?;
        cluster.delete_all().await?;
        after(&format!("100 pods at once, made and deleted, burst {number}"), &processes, idle).await?;
    }
    cluster.objects(OBJECTS).await?;
    after(&format!("{OBJECTS} objects made and deleted"), &processes, idle).await?;
    node.down()
}

async fn after(what: &str, processes: &Processes, idle: u64) -> Result<()> {
    println!("{what}:");
    for second in 0..=SETTLED {
        if second > 0 {
            sleep(Duration::from_secs(1)).await;
        }
        let now = processes.pss_bytes()?;
        println!("  {second:>2} s  {:>6.1} MB  {:.2}x of idle", now as f64 / 1e6, now as f64 / idle as f64);
    }
    Ok(())
}
