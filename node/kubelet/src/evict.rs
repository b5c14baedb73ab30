//! Watches the node's memory and disks, and makes room before the kernel has to.
//!
//! Tasks: one, every ten seconds. Outputs: the pressure that conditions and admission show; when a disk is short, what
//! pods that have ended left behind and images that nobody uses go first; only then, and at most one per round, a pod.

pub(crate) mod plan;
mod reclaim;
mod usage;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use podwire_api::quantity::Quantity;
use podwire_linux::cgroup;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use podwire_wire::ids::PodUid;

use crate::{
    inbox::Signal,
    labels,
    node::{Known, Node},
    paths, resources,
    spec::{self, PodRef},
    status::Verdict,
};
pub use plan::Thresholds;
use plan::{Candidate, Disk, Pressure, Resource, Shortage, Supply};
use usage::Usage;

/// A pressure that has passed is still shown for this long.
const TRANSITION: Duration = Duration::from_secs(300);
/// An evicted pod may take this long to give back what it holds before another one is chosen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Seconds a pod has to end.
const GRACE: i64 = 1;

struct Watcher {
    node: Arc<Node>,
    thresholds: Thresholds,
    /// When memory and disk were last short.
    seen: [Option<Instant>; 2],
    /// Who was told to go last, and when.
    going: Option<(PodUid, Instant)>,
    /// Where images lie, once the runtime has said so.
    images: Option<PathBuf>,
}

/// Watches until `shutdown`.
pub(crate) async fn run(node: Arc<Node>, thresholds: Thresholds, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(thresholds.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watcher = Watcher { node, thresholds, seen: [None, None], going: None, images: None };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        // Cancel safe: a removal that was begun is finished by the runtime or the pod's own worker.
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = watcher.round() => {}
        }
    }
}

impl Watcher {
    async fn round(&mut self) {
        over_their_limits(&self.node).await;
        let mut short = self.look().await;
        let shown = self.shown(plan::pressure(&short));
        self.node.pressure.send_if_modified(|old| std::mem::replace(old, shown) != shown);
        let Some(first) = short.first().copied() else { return };
        if self.is_somebody_going() {
            return;
        }
        let what = format!("Attempting to reclaim {}", first.resource.name());
        self.node.events.node("Warning", "EvictionThresholdMet", &what);
        if short.iter().any(|short| short.resource.is_disk()) {
            reclaim::disk(&self.node).await;
            short = self.look().await;
        }
        let Some(short) = short.first().copied() else { return };
        let candidates = candidates(&self.node, short, self.images_apart()).await;
        if let Some((uid, verdict)) = plan::choose(short, candidates) {
            tracing::warn!(%uid, message = verdict.message, "evicting a pod");
            self.node.inboxes.signal(&uid, Signal::Evict(verdict, GRACE));
            self.going = Some((uid, Instant::now()));
        }
    }

    async fn look(&mut self) -> Vec<Shortage> {
        if self.images.is_none() {
            // Ignored: a runtime that does not say where its images lie keeps them with the pods' files.
            self.images = self.node.runtime.image_folder().await.ok().flatten();
        }
        let (root, images) = (self.node.config.root_dir.clone(), self.images.clone());
        let supply = blocking(move || supply(&root, images.as_deref())).await;
        supply.map_or_else(Vec::new, |supply| plan::shortages(&supply, &self.thresholds))
    }

    fn images_apart(&self) -> bool {
        self.images.as_deref().is_some_and(|images| apart(images, &self.node.config.root_dir))
    }

    fn shown(&mut self, now: Pressure) -> Pressure {
        for (at, on) in self.seen.iter_mut().zip([now.memory, now.disk]) {
            if on {
                *at = Some(Instant::now());
            }
        }
        let lasting = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < TRANSITION);
        Pressure { memory: lasting(self.seen[0]), disk: lasting(self.seen[1]) }
    }

    /// Whether the pod chosen last has not given everything back yet.
    fn is_somebody_going(&mut self) -> bool {
        let Some((uid, since)) = &self.going else { return false };
        let pods = self.node.pods.lock().expect("no holder panics");
        let going = pods.get(uid).is_some_and(|known| known.evicted && !known.cleared);
        let waited = since.elapsed() >= PATIENCE;
        drop(pods);
        if !going || waited {
            self.going = None;
        }
        going && !waited
    }
}

/// Runs what may wait for a disk; `None` when it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// What the node has left.
fn supply(root: &Path, images: Option<&Path>) -> Supply {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok());
    Supply {
        memory: kib.map_or(u64::MAX, |kib| kib * 1024),
        node_disk: disk(root),
        image_disk: images.filter(|images| apart(images, root)).and_then(disk),
    }
}

fn disk(path: &Path) -> Option<Disk> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(Disk {
        bytes: found.f_bavail * found.f_frsize,
        bytes_total: found.f_blocks * found.f_frsize,
        inodes: found.f_favail,
        inodes_total: found.f_files,
    })
}

/// Whether two folders lie on different file systems.
fn apart(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    device(one).zip(device(other)).is_some_and(|(one, other)| one != other)
}

/// Whether the pod may be told to end.
fn may_end(known: &Known) -> bool {
    known.admitted && !known.evicted && !spec::is_critical(&known.pod)
}

/// A pod's part of the disk.
struct Share {
    uid: PodUid,
    priority: i32,
    request: u64,
    folders: Vec<PathBuf>,
}

async fn candidates(node: &Arc<Node>, short: Shortage, images_apart: bool) -> Vec<Candidate> {
    if short.resource == Resource::Memory {
        return memory_candidates(node).await;
    }
    // Where images have a disk of their own, containers' layers lie there, and everything else here.
    let layers = !images_apart || matches!(short.resource, Resource::ImageDisk | Resource::ImageInodes);
    let folders = !images_apart || matches!(short.resource, Resource::NodeDisk | Resource::NodeInodes);
    let layers = if layers { layers_of(node).await } else { BTreeMap::new() };
    let inodes = short.resource.is_inodes();
    let shares = shares(node, folders, inodes);
    let measured = blocking(move || {
        let measure = |share: Share| {
            let own = layers.get(&share.uid).copied().unwrap_or_default();
            let all = share.folders.iter().map(|folder| usage::of(folder)).fold(own, Usage::and);
            let usage = if inodes { all.inodes } else { all.bytes };
            Candidate {
                // Who builds what cannot be counted is not the one to be spared.
                usage: if all.incomplete { u64::MAX } else { usage },
                uid: share.uid,
                priority: share.priority,
                request: share.request,
            }
        };
        shares.into_iter().map(measure).collect()
    });
    measured.await.unwrap_or_default()
}

fn shares(node: &Node, folders: bool, inodes: bool) -> Vec<Share> {
    let pods = node.pods.lock().expect("no holder panics");
    let share = |(uid, known): (&PodUid, &Known)| {
        let pod = &known.pod;
        let request = if inodes { 0 } else { resources::pod_requests(pod).value("ephemeral-storage") };
        let request = u64::try_from(request).unwrap_or_default();
        let mut own = Vec::new();
        if folders {
            let on_disk = |v: &&k8s_openapi::api::core::v1::Volume| {
                v.empty_dir.as_ref().is_some_and(|e| e.medium.as_deref() != Some("Memory"))
            };
            let volumes = spec::spec(pod).volumes.iter().flatten().filter(on_disk);
            own.extend(volumes.map(|v| empty_dir(node, uid, &v.name)));
            own.push(paths::pod_logs(&node.config.log_dir, &PodRef::of(pod)));
        }
        let priority = spec::spec(pod).priority.unwrap_or_default();
        Share { uid: uid.clone(), priority, request, folders: own }
    };
    pods.iter().filter(|(_, known)| may_end(known)).map(share).collect()
}

fn empty_dir(node: &Node, uid: &str, volume: &str) -> PathBuf {
    paths::volume(&node.config.root_dir, uid, "kubernetes.io~empty-dir", volume)
}

/// What the containers of each pod have written to their own file systems.
async fn layers_of(node: &Node) -> BTreeMap<PodUid, Usage> {
    let mut all: BTreeMap<PodUid, Usage> = BTreeMap::new();
    let stats = match node.runtime.container_stats().await {
        Ok(stats) => stats,
        Err(error) => {
            tracing::warn!(error = %error, "containers' layers not measured; only volumes and logs count");
            return all;
        }
    };
    for one in stats {
        let labels = one.attributes.as_ref().map(|attributes| &attributes.labels);
        let Some(uid) = labels.and_then(|labels| labels.get(labels::POD_UID)) else { continue };
        let layer = one.writable_layer.unwrap_or_default();
        let value =
            |field: Option<podwire_wire::cri::UInt64Value>| field.map(|v| v.value).unwrap_or_default();
        let usage =
            Usage { bytes: value(layer.used_bytes), inodes: value(layer.inodes_used), incomplete: false };
        let total = all.entry(uid.as_str().into()).or_default();
        *total = total.and(usage);
    }
    all
}

async fn memory_candidates(node: &Arc<Node>) -> Vec<Candidate> {
    let node = node.clone();
    let measure = move || -> Vec<Candidate> {
        let pods: Vec<_> = {
            let pods = node.pods.lock().expect("no holder panics");
            pods.iter().filter(|(_, known)| may_end(known)).map(|(u, k)| (u.clone(), k.pod.clone())).collect()
        };
        let candidate = |(uid, pod): (PodUid, Arc<k8s_openapi::api::core::v1::Pod>)| {
            let path = paths::pod_cgroup(&node.config.cgroup_root, resources::qos(&pod), &uid);
            let usage =
                cgroup::group(&path).map(|group| group.stats().memory.working_set).unwrap_or_default();
            let request = resources::pod_requests(&pod).value("memory");
            Candidate {
                uid,
                priority: spec::spec(&pod).priority.unwrap_or_default(),
                usage,
                request: u64::try_from(request).unwrap_or_default(),
            }
        };
        pods.into_iter().map(candidate).collect()
    };
    blocking(measure).await.unwrap_or_default()
}

/// A volume with a limit.
struct Limited {
    uid: PodUid,
    volume: String,
    path: PathBuf,
    limit: u64,
    text: String,
}

/// Ends pods whose emptyDir volumes hold more than they may.
async fn over_their_limits(node: &Arc<Node>) {
    let limited = limited(node);
    if limited.is_empty() {
        return;
    }
    let over = blocking(move || {
        let over = |one: &Limited| usage::of(&one.path).bytes > one.limit;
        limited.into_iter().filter(over).collect::<Vec<_>>()
    });
    for Limited { uid, volume, text, .. } in over.await.unwrap_or_default() {
        let message = format!("Usage of EmptyDir volume \"{volume}\" exceeds the limit \"{text}\". ");
        tracing::warn!(%uid, message, "evicting a pod");
        node.inboxes.signal(&uid, Signal::Evict(Verdict::new("Evicted", message), GRACE));
    }
}

fn limited(node: &Node) -> Vec<Limited> {
    let pods = node.pods.lock().expect("no holder panics");
    let mut all = Vec::new();
    for (uid, known) in pods.iter().filter(|(_, known)| known.admitted && !known.evicted) {
        for volume in spec::spec(&known.pod).volumes.iter().flatten() {
            let Some(quantity) = volume.empty_dir.as_ref().and_then(|e| e.size_limit.as_ref()) else {
                continue;
            };
            let Ok(limit @ 1..) = u64::try_from(Quantity::from(quantity).value()) else { continue };
            all.push(Limited {
                uid: uid.clone(),
                volume: volume.name.clone(),
                path: empty_dir(node, uid, &volume.name),
                limit,
                text: quantity.0.clone(),
            });
        }
    }
    all
}
