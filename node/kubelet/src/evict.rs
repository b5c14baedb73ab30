//! Watches the node's memory and disk, and ends pods before the kernel does.
//!
//! Tasks: one, every ten seconds. Outputs: the pressure that conditions and admission show, and at most one
//! eviction per round.

pub(crate) mod plan;

use std::{fs, path::Path, sync::Arc, time::Duration};

use podwire_linux::cgroup;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{inbox::Signal, node::Node, paths, resources, spec, status::Verdict};
pub use plan::Thresholds;
use plan::{Candidate, Pressure, Supply};

const PERIOD: Duration = Duration::from_secs(10);
/// A pressure that has passed is still shown for this long.
const TRANSITION: Duration = Duration::from_secs(300);

/// Watches until `shutdown`.
pub(crate) async fn run(node: Arc<Node>, thresholds: Thresholds, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen: [Option<Instant>; 2] = [None, None];
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        over_their_limits(&node);
        let supply = supply(&node.config.root_dir);
        let now = plan::pressure(&supply, &thresholds);
        let shown = shown(now, &mut seen);
        node.pressure.send_if_modified(|old| std::mem::replace(old, shown) != shown);
        if let Some((uid, verdict)) = plan::choose(now, &supply, &thresholds, candidates(&node)) {
            tracing::warn!(uid, message = verdict.message, "evicting a pod");
            end(&node, &uid, verdict, 0);
        }
    }
}

fn end(node: &Node, uid: &str, verdict: Verdict, grace: i64) {
    let pod = node.pods.lock().expect("no holder panics").get(uid).map(|known| known.pod.clone());
    if let Some(pod) = pod {
        node.events.warning(&pod, None, "Evicted", &verdict.message);
    }
    node.inboxes.signal(uid, Signal::Evict(verdict, grace));
}

fn shown(now: Pressure, seen: &mut [Option<Instant>; 2]) -> Pressure {
    for (at, on) in seen.iter_mut().zip([now.memory, now.disk]) {
        if on {
            *at = Some(Instant::now());
        }
    }
    let lasting = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < TRANSITION);
    Pressure { memory: lasting(seen[0]), disk: lasting(seen[1]) }
}

/// What the node has left.
fn supply(root: &Path) -> Supply {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok());
    let disk = rustix::fs::statvfs(root).ok();
    Supply {
        memory: kib.map_or(u64::MAX, |kib| kib * 1024),
        disk: disk.as_ref().map_or(u64::MAX, |d| d.f_bavail * d.f_frsize),
        disk_total: disk.as_ref().map_or(1, |d| (d.f_blocks * d.f_frsize).max(1)),
        inodes: disk.as_ref().map_or(u64::MAX, |d| d.f_favail),
        inodes_total: disk.as_ref().map_or(0, |d| d.f_files),
    }
}

fn candidates(node: &Node) -> Vec<Candidate> {
    let pods = node.pods.lock().expect("no holder panics");
    pods.iter()
        .filter(|(_, known)| known.admitted && !spec::is_critical(&known.pod))
        .map(|(uid, known)| {
            let path = paths::pod_cgroup(&node.config.cgroup_root, resources::qos(&known.pod), uid);
            let usage =
                cgroup::group(&path).map(|group| group.stats().memory.working_set).unwrap_or_default();
            let request = resources::pod_requests(&known.pod).get("memory").map(resources::whole);
            Candidate {
                uid: uid.clone(),
                priority: spec::spec(&known.pod).priority.unwrap_or_default(),
                usage,
                request: request.and_then(|r| u64::try_from(r).ok()).unwrap_or_default(),
            }
        })
        .collect()
}

/// Pods whose emptyDir volumes hold more than they may.
fn over_their_limits(node: &Node) {
    let pods: Vec<_> =
        node.pods.lock().expect("no holder panics").values().map(|known| known.pod.clone()).collect();
    for pod in pods {
        for volume in spec::spec(&pod).volumes.iter().flatten() {
            let Some(source) = &volume.empty_dir else { continue };
            let limit = source.size_limit.as_ref().map(resources::whole).and_then(|l| u64::try_from(l).ok());
            let Some(limit) = limit.filter(|l| *l > 0) else { continue };
            let path = paths::volume(
                &node.config.root_dir,
                spec::uid(&pod),
                "kubernetes.io~empty-dir",
                &volume.name,
            );
            if usage(&path) > limit {
                let text = source.size_limit.as_ref().map(|q| q.0.clone()).unwrap_or_default();
                let message =
                    format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{text}\". ", volume.name);
                end(node, spec::uid(&pod), Verdict { reason: "Evicted".into(), message }, 0);
            }
        }
    }
}

/// Bytes in a folder; what cannot be read does not count.
fn usage(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => usage(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
