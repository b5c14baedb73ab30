//! Manifests and indexes, OCI and docker alike: parsing and the choice of a platform. Pure.

use std::collections::BTreeMap;

use oci_spec::image::ImageConfiguration;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Hasher};
use crate::error::Error;

/// The largest manifest, index or configuration accepted, as registries do.
pub const LARGEST_DOCUMENT: u64 = 8 << 20;
/// The most layers an image may have: overlayfs takes 500 lower directories.
const MOST_LAYERS: usize = 500;

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(crate) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// A pointer to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the content is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The machine it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Free-form facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The machine an image is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// In Go's words: `amd64`, `arm64`.
    /// <https://github.com/opencontainers/image-spec/blob/main/image-index.md#image-index-property-descriptions>
    pub architecture: String,
    /// `linux`.
    pub os: String,
    /// For example `v7` of `arm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// The machine this program was built for.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        Self { architecture: architecture.to_owned(), os: "linux".to_owned(), variant: None }
    }

    /// True if an image for `offered` runs on this machine.
    fn takes(&self, offered: &Self) -> bool {
        self.os == offered.os && self.architecture == offered.architecture
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}

/// What an image consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// What the document says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The image configuration.
    pub config: Descriptor,
    /// Bottom first.
    pub layers: Vec<Descriptor>,
}

/// A choice of manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// What the document says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The manifests to choose from.
    pub manifests: Vec<Descriptor>,
}

/// A manifest or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// A choice of images.
    Index(Index),
}

impl Document {
    /// Parses a document; its shape decides, the declared media type may only not contradict.
    pub fn parse(bytes: &[u8], what: &str) -> Result<Self, Error> {
        let bad = |reason: String| Error::Manifest { what: what.to_owned(), reason };
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if value.get("schemaVersion").and_then(serde_json::Value::as_u64) == Some(1) {
            return Err(bad("schema version 1 is no longer supported".to_owned()));
        }
        let declared = value.get("mediaType").and_then(serde_json::Value::as_str).unwrap_or_default();
        let (index, manifest) = (value.get("manifests").is_some(), value.get("layers").is_some());
        // A document that reads as both could be taken for another image by another client.
        if index && manifest {
            return Err(bad("it is both a manifest and an index".to_owned()));
        }
        let says_index = matches!(declared, OCI_INDEX | DOCKER_LIST);
        let says_manifest = matches!(declared, OCI_MANIFEST | DOCKER_MANIFEST);
        if (says_index && !index) || (says_manifest && !manifest) {
            return Err(bad(format!("it is not the {declared} it claims to be")));
        }
        if index {
            serde_json::from_value(value).map(Self::Index).map_err(|error| bad(error.to_string()))
        } else {
            let manifest: Manifest = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
            if manifest.layers.len() > MOST_LAYERS {
                return Err(bad(format!("it has more than {MOST_LAYERS} layers")));
            }
            Ok(Self::Manifest(manifest))
        }
    }
}

/// The manifest for `platform`; entries without a platform come last.
pub fn choose<'a>(index: &'a Index, platform: &Platform, what: &str) -> Result<&'a Descriptor, Error> {
    let usable = |descriptor: &&Descriptor| {
        matches!(
            descriptor.media_type.as_str(),
            "" | OCI_MANIFEST | DOCKER_MANIFEST | OCI_INDEX | DOCKER_LIST
        )
    };
    let with = |descriptor: &&Descriptor| {
        descriptor.platform.as_ref().is_some_and(|offered| platform.takes(offered))
    };
    let without = |descriptor: &&Descriptor| descriptor.platform.is_none();
    let mut candidates = index.manifests.iter().filter(usable);
    candidates
        .clone()
        .find(with)
        .or_else(|| candidates.find(without))
        .ok_or_else(|| Error::NoPlatform { what: what.to_owned(), wanted: platform.to_string() })
}

/// An image configuration with the digests of its layers.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) parsed: ImageConfiguration,
    /// Bottom first.
    pub(crate) diff_ids: Vec<Digest>,
}

/// Parses an image configuration.
pub(crate) fn parse_config(bytes: &[u8], what: &str) -> Result<Config, Error> {
    let bad = |reason: String| Error::Manifest { what: what.to_owned(), reason };
    let parsed: ImageConfiguration = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
    let diff_ids: Vec<Digest> =
        parsed.rootfs().diff_ids().iter().map(|text| text.parse()).collect::<Result<_, Error>>()?;
    if diff_ids.len() > MOST_LAYERS {
        return Err(bad(format!("it has more than {MOST_LAYERS} layers")));
    }
    Ok(Config { parsed, diff_ids })
}

/// The chain ids of a list of layers, bottom first.
pub(crate) fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        let next = match chain.last() {
            None => *diff_id,
            Some(below) => {
                let mut hasher = Hasher::new();
                hasher.update(format!("{below} {diff_id}").as_bytes());
                hasher.finish()
            }
        };
        chain.push(next);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn descriptor(seed: &str, platform: Option<(&str, &str)>) -> Descriptor {
        Descriptor {
            media_type: OCI_MANIFEST.to_owned(),
            digest: Digest::of(seed.as_bytes()),
            size: 1,
            platform: platform.map(|(os, architecture)| Platform {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
                variant: None,
            }),
            annotations: None,
        }
    }

    #[test]
    fn the_platform_of_this_machine_is_chosen_even_if_it_comes_last() {
        let host = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
        let mut attestation = descriptor("attestation", Some(("unknown", "unknown")));
        attestation.annotations = Some(BTreeMap::new());
        let index = Index {
            schema_version: 2,
            media_type: None,
            manifests: vec![
                descriptor("bare", None),
                descriptor("arm", Some(("linux", "arm64"))),
                attestation,
                descriptor("mine", Some(("linux", "amd64"))),
            ],
        };
        assert_eq!(choose(&index, &host, "x").unwrap().digest, Digest::of(b"mine"));
        let foreign = Platform { architecture: "riscv64".into(), ..host.clone() };
        assert_eq!(choose(&index, &foreign, "x").unwrap().digest, Digest::of(b"bare"));
        let windows = Index { manifests: vec![descriptor("w", Some(("windows", "amd64")))], ..index };
        assert!(matches!(choose(&windows, &host, "x"), Err(Error::NoPlatform { .. })));
    }

    #[test]
    fn documents_that_are_not_what_they_claim_are_refused() {
        let d = json!({"digest": Digest::of(b"x"), "size": 1, "mediaType": "m"});
        let manifest = json!({"schemaVersion": 2, "config": d, "layers": [d]});
        let index = json!({"schemaVersion": 2, "manifests": [d]});
        let parse = |value: &serde_json::Value| Document::parse(value.to_string().as_bytes(), "x");
        assert!(matches!(parse(&manifest), Ok(Document::Manifest(_))));
        assert!(matches!(parse(&index), Ok(Document::Index(_))));
        let mut both = manifest.clone();
        both["manifests"] = json!([d]);
        assert!(parse(&both).is_err());
        let mut lying = manifest.clone();
        lying["mediaType"] = json!(OCI_INDEX);
        assert!(parse(&lying).is_err());
        assert!(parse(&json!({"schemaVersion": 1, "fsLayers": []})).is_err());
        assert!(parse(&json!([])).is_err());
        assert!(Document::parse(b"{", "x").is_err());
        let many = json!({"schemaVersion": 2, "config": d, "layers": vec![d.clone(); 501]});
        assert!(parse(&many).is_err());
    }

    #[test]
    fn chain_ids_follow_the_image_specification() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        assert_eq!(chain_ids(&[a, b]), vec![a, Digest::of(format!("{a} {b}").as_bytes())]);
    }
}
