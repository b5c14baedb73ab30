//! What the store remembers of an image, a layer and a snapshot.

use oci_spec::image::ImageConfiguration;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::digest::Digest;

pub(crate) const IMAGE_MAGIC: &str = "podwire-image 1";
pub(crate) const LAYER_MAGIC: &str = "podwire-layer 1";
pub(crate) const SNAPSHOT_MAGIC: &str = "podwire-snapshot 1";

/// An image in the store, ready to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// `sha256:<hex>` of its configuration.
    pub id: String,
    /// Normalised names with tags.
    pub repo_tags: Vec<String>,
    /// Normalised names with manifest digests.
    pub repo_digests: Vec<String>,
    /// Bytes of its manifest, configuration and layers as distributed.
    pub size: u64,
    /// How to run it.
    pub config: ImageConfiguration,
    /// Unpacked layers, top first; give them to overlayfs as they are.
    pub layers: Vec<PathBuf>,
    /// Not to be removed by a garbage collector.
    pub pinned: bool,
}

/// The stored form of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub(crate) config: Digest,
    pub(crate) manifest: Option<Digest>,
    /// Bottom first.
    pub(crate) layers: Vec<LayerRef>,
    pub(crate) tags: Vec<String>,
    pub(crate) digests: Vec<String>,
    pub(crate) size: u64,
    pub(crate) pinned: bool,
    /// The boot in which it was written, while its layers may not be on disk yet.
    #[serde(default)]
    pub(crate) pending: Option<String>,
    /// Nanoseconds since 1970 when it was written; of two records with one tag the later has it.
    pub(crate) stamp: u64,
}

/// One layer of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRef {
    pub(crate) diff_id: Digest,
    /// Its folder in `layers`.
    pub(crate) dir: String,
    /// The blob it was distributed as.
    pub(crate) blob: Digest,
    pub(crate) blob_size: u64,
    pub(crate) media_type: String,
}

/// What is known of an unpacked layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerMeta {
    pub(crate) diff_id: Digest,
    pub(crate) blob: Digest,
    pub(crate) blob_size: u64,
    pub(crate) size: u64,
    pub(crate) inodes: u64,
    /// Hides everything below.
    pub(crate) root_opaque: bool,
}

/// What a snapshot was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) image: String,
    /// Folders in `layers`, bottom first.
    pub(crate) layers: Vec<String>,
}
