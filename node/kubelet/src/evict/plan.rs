//! Decides what the node is short of, which images nobody uses, and which pod has to go. Pure.
//!
//! Signals, thresholds, order and words are upstream's:
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/>.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use podwire_api::image::ImageReference;
use podwire_wire::{cri, ids::PodUid};

use crate::status::Verdict;

/// When a shortage counts as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// Least bytes of memory.
    pub memory: u64,
    /// Least share of the disk that pods' files lie on.
    pub disk: f64,
    /// Least share of that disk's inodes.
    pub inodes: f64,
    /// Least share of the disk that images lie on, if that is another.
    pub image_disk: f64,
    /// Least share of that disk's inodes.
    pub image_inodes: f64,
    /// How often it is looked.
    pub period: Duration,
}

impl Thresholds {
    /// No threshold at all.
    pub fn none() -> Thresholds {
        let period = Duration::from_secs(10);
        Thresholds { memory: 0, disk: 0.0, inodes: 0.0, image_disk: 0.0, image_inodes: 0.0, period }
    }
}

impl Default for Thresholds {
    /// Upstream's hard thresholds.
    fn default() -> Thresholds {
        Thresholds {
            memory: 100 * 1024 * 1024,
            disk: 0.10,
            inodes: 0.05,
            image_disk: 0.15,
            image_inodes: 0.05,
            ..Thresholds::none()
        }
    }
}

/// What a disk has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) bytes: u64,
    pub(crate) bytes_total: u64,
    pub(crate) inodes: u64,
    /// 0 on file systems that do not count them.
    pub(crate) inodes_total: u64,
}

/// What the node has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Supply {
    pub(crate) memory: u64,
    pub(crate) node_disk: Option<Disk>,
    /// Only if images lie on another disk than pods' files.
    pub(crate) image_disk: Option<Disk>,
}

/// What the node is short of, as its conditions show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
}

/// What runs short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory,
    NodeDisk,
    NodeInodes,
    ImageDisk,
    ImageInodes,
}

impl Resource {
    pub(crate) fn is_disk(self) -> bool {
        self != Resource::Memory
    }

    /// Whether it is counted in inodes.
    pub(crate) fn is_inodes(self) -> bool {
        matches!(self, Resource::NodeInodes | Resource::ImageInodes)
    }

    /// As messages name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::NodeDisk | Resource::ImageDisk => "ephemeral-storage",
            Resource::NodeInodes | Resource::ImageInodes => "inodes",
        }
    }
}

/// One shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) resource: Resource,
    threshold: u64,
    available: u64,
}

/// A pod that may be ended, with what it uses of the resource that is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) uid: PodUid,
    pub(crate) priority: i32,
    pub(crate) usage: u64,
    pub(crate) request: u64,
}

/// What the node is short of, in the order in which it is seen to.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
// Shares of a disk need no more than a float has.
pub(crate) fn shortages(supply: &Supply, thresholds: &Thresholds) -> Vec<Shortage> {
    let mut all = Vec::new();
    let mut check = |resource, available: u64, threshold: u64| {
        if available < threshold {
            all.push(Shortage { resource, threshold, available });
        }
    };
    check(Resource::Memory, supply.memory, thresholds.memory);
    let share = |total: u64, share: f64| (total as f64 * share) as u64;
    if let Some(disk) = supply.node_disk {
        check(Resource::NodeDisk, disk.bytes, share(disk.bytes_total, thresholds.disk));
        check(Resource::NodeInodes, disk.inodes, share(disk.inodes_total, thresholds.inodes));
    }
    if let Some(disk) = supply.image_disk {
        check(Resource::ImageDisk, disk.bytes, share(disk.bytes_total, thresholds.image_disk));
        check(Resource::ImageInodes, disk.inodes, share(disk.inodes_total, thresholds.image_inodes));
    }
    all
}

/// The conditions that shortages show as.
pub(crate) fn pressure(shortages: &[Shortage]) -> Pressure {
    Pressure {
        memory: shortages.iter().any(|short| !short.resource.is_disk()),
        disk: shortages.iter().any(|short| short.resource.is_disk()),
    }
}

/// The pod that goes first, and what it is told: over its request, then low priority, then far over.
pub(crate) fn choose(short: Shortage, candidates: Vec<Candidate>) -> Option<(PodUid, Verdict)> {
    let first = candidates.into_iter().min_by_key(|c| {
        let over = c.usage.saturating_sub(c.request);
        (c.usage <= c.request, c.priority, Reverse(over))
    })?;
    let amount = |value: u64| if short.resource.is_inodes() { value.to_string() } else { binary(value) };
    let message = format!(
        "The node was low on resource: {}. Threshold quantity: {}, available: {}. ",
        short.resource.name(),
        amount(short.threshold),
        amount(short.available)
    );
    Some((first.uid, Verdict { reason: "Evicted".into(), message, disruption: true }))
}

/// A number of bytes with the largest suffix that loses nothing.
fn binary(mut value: u64) -> String {
    const SUFFIXES: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut at = 0;
    while value > 0 && value.is_multiple_of(1024) && at + 1 < SUFFIXES.len() {
        value /= 1024;
        at += 1;
    }
    format!("{value}{}", SUFFIXES[at])
}

/// Ids of images that no container has, no pod names and nobody has pinned.
pub(crate) fn unused(
    images: &[cri::Image],
    containers: &[cri::Container],
    named: &BTreeSet<String>,
) -> Vec<String> {
    let mut used: BTreeSet<String> = named.iter().map(|name| full_name(name)).collect();
    for container in containers {
        let spec = container.image.as_ref();
        let names = [
            container.image_id.as_str(),
            container.image_ref.as_str(),
            spec.map(|image| image.image.as_str()).unwrap_or_default(),
            spec.map(|image| image.user_specified_image.as_str()).unwrap_or_default(),
        ];
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            used.insert(name.to_owned());
            used.insert(full_name(name));
        }
    }
    let is_used = |image: &&cri::Image| {
        let names = image.repo_tags.iter().chain(&image.repo_digests);
        used.contains(&image.id)
            || names.into_iter().any(|n| used.contains(n) || used.contains(&full_name(n)))
    };
    images.iter().filter(|image| !image.pinned && !is_used(image)).map(|image| image.id.clone()).collect()
}

/// An image's name with what people leave out: the registry, `library`, the tag.
fn full_name(name: &str) -> String {
    ImageReference::parse(name).map_or_else(|_| name.to_owned(), |reference| reference.exact_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Disk = Disk { bytes: 50, bytes_total: 100, inodes: 50, inodes_total: 100 };

    fn supply() -> Supply {
        Supply { memory: 1 << 30, node_disk: Some(DISK), image_disk: None }
    }

    fn short(supply: &Supply) -> Vec<Resource> {
        shortages(supply, &Thresholds::default()).iter().map(|short| short.resource).collect()
    }

    fn candidate(uid: &str, priority: i32, usage: u64, request: u64) -> Candidate {
        Candidate { uid: uid.into(), priority, usage, request }
    }

    #[test]
    fn a_shortage_begins_below_its_threshold() {
        assert_eq!(short(&supply()), []);
        assert_eq!(short(&Supply { memory: 1, ..supply() }), [Resource::Memory]);
        let disk = |disk| Supply { node_disk: Some(disk), ..supply() };
        assert_eq!(short(&disk(Disk { bytes: 9, ..DISK })), [Resource::NodeDisk]);
        assert_eq!(short(&disk(Disk { inodes: 4, ..DISK })), [Resource::NodeInodes]);
        assert_eq!(short(&disk(Disk { inodes: 0, inodes_total: 0, ..DISK })), []);
        let images = Supply { image_disk: Some(Disk { bytes: 14, ..DISK }), ..supply() };
        assert_eq!(short(&images), [Resource::ImageDisk]);
        let found = shortages(&images, &Thresholds::default());
        assert_eq!(pressure(&found), Pressure { memory: false, disk: true });
        assert_eq!(shortages(&Supply { memory: 0, ..images }, &Thresholds::none()), []);
    }

    #[test]
    fn who_uses_more_than_asked_for_goes_first_then_the_less_important() {
        let all = vec![
            candidate("modest", 0, 10, 100),
            candidate("greedy", 5, 300, 100),
            candidate("small", 0, 110, 100),
            candidate("large", 0, 250, 100),
        ];
        let short = shortages(&Supply { memory: 5 << 20, ..supply() }, &Thresholds::default())[0];
        let (uid, verdict) = choose(short, all).unwrap();
        assert_eq!(uid, "large");
        assert_eq!(
            verdict.message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 5Mi. "
        );
        assert!(verdict.disruption);
        assert_eq!(choose(short, vec![]), None);
    }

    #[test]
    fn images_that_somebody_may_need_are_kept() {
        let image = |id: &str, tag: &str, pinned| cri::Image {
            id: id.into(),
            repo_tags: vec![tag.into()],
            pinned,
            ..Default::default()
        };
        let images = [
            image("sha256:1", "docker.io/library/old:1", false),
            image("sha256:2", "docker.io/library/nginx:latest", false),
            image("sha256:3", "registry.k8s.io/pause:3.10", true),
            image("sha256:4", "ghcr.io/a/b:2", false),
            image("sha256:5", "docker.io/a/b:2", false),
        ];
        let running = cri::Container { image_id: "sha256:4".into(), ..Default::default() };
        let named = BTreeSet::from(["nginx".to_owned()]);
        assert_eq!(unused(&images, &[running], &named), ["sha256:1", "sha256:5"]);
        assert_eq!(full_name("a/b:2"), "docker.io/a/b:2");
        assert_eq!(full_name("localhost/b"), "localhost/b:latest");
        assert_eq!(full_name("host:5000/b@sha256:7"), "host:5000/b@sha256:7");
    }
}
