//! Makes room on the disk without ending anybody: what pods that have ended left behind, then images nobody uses.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use podwire_wire::ids::PodUid;

use super::plan;
use crate::{
    inbox::Signal,
    node::{Known, Node},
    spec,
};

/// How long pods that have ended may take to be cleared away.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Clears away what nobody runs. Cancel safe.
pub(super) async fn disk(node: &Node) {
    ended_pods(node).await;
    if let Err(error) = images(node).await {
        tracing::warn!(error = %error, "unused images not removed; will retry");
    }
}

fn is_left(known: &Known) -> bool {
    let phase =
        known.status.as_ref().or(known.pod.status.as_ref()).and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed")) && !known.cleared
}

async fn ended_pods(node: &Node) {
    let left = || -> Vec<PodUid> {
        let pods = node.pods.lock().expect("no holder panics");
        pods.iter().filter(|(_, known)| is_left(known)).map(|(uid, _)| uid.clone()).collect()
    };
    let told = left();
    for uid in &told {
        tracing::info!(%uid, "clearing away what a pod that has ended left behind");
        node.inboxes.signal(uid, Signal::Clear);
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && left().iter().any(|uid| told.contains(uid)) {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn images(node: &Node) -> Result<(), crate::runtime::CallError> {
    let images = node.runtime.list_images().await?;
    let containers = node.runtime.list_containers().await?;
    // Asked for last: who comes after this pulls anew.
    let named = named(node);
    for id in plan::unused(&images, &containers, &named) {
        match node.runtime.remove_image(&id).await {
            Ok(()) => tracing::info!(image = id, "removed an image that nobody uses"),
            Err(error) => tracing::warn!(image = id, error = %error, "unused image not removed"),
        }
    }
    Ok(())
}

/// Images that the node's pods name, whether they have got them yet or not.
fn named(node: &Node) -> BTreeSet<String> {
    let pods = node.pods.lock().expect("no holder panics");
    let live = pods.values().filter(|known| !known.cleared);
    live.flat_map(|known| {
        let containers =
            spec::containers(&known.pod).into_iter().filter_map(|(_, container)| container.image);
        let volumes = spec::spec(&known.pod).volumes.iter().flatten();
        let mounted = volumes.filter_map(|volume| volume.image.as_ref()?.reference.clone());
        containers.chain(mounted).collect::<Vec<_>>()
    })
    .collect()
}
