//! Finds the images of an OCI layout.

use super::source::Source;
use super::{Found, FoundLayer, document};
use crate::error::Error;
use crate::manifest::{Descriptor, Document, Index, Manifest, Platform, choose};
use crate::reference::Reference;

/// How deep indexes may nest.
const DEEPEST: usize = 4;
const CONTAINERD_NAME: &str = "io.containerd.image.name";
const OCI_NAME: &str = "org.opencontainers.image.ref.name";

/// The images for this platform that the layout's index lists.
pub(super) fn find(source: &Source) -> Result<Vec<Found>, Error> {
    let index = match Document::parse(&document(source, "index.json", None)?, "index.json")? {
        Document::Index(index) => index,
        Document::Manifest(_) => return Err(source.bad("index.json is not an index".to_owned())),
    };
    let platform = Platform::host();
    // Without names this is one image for several platforms, not several images.
    if index.manifests.len() > 1 && index.manifests.iter().all(|descriptor| names(descriptor).is_empty()) {
        let descriptor = choose(&index, &platform, "index.json")?;
        return Ok(vec![one(source, descriptor, &platform)?]);
    }
    let mut found: Vec<Found> = Vec::new();
    for descriptor in &index.manifests {
        let image = one(source, descriptor, &platform)?;
        match found.iter_mut().find(|known| known.config == image.config) {
            Some(known) => known.tags.extend(image.tags),
            None => found.push(image),
        }
    }
    if found.is_empty() {
        return Err(source.bad("index.json lists no image".to_owned()));
    }
    Ok(found)
}

fn one(source: &Source, descriptor: &Descriptor, platform: &Platform) -> Result<Found, Error> {
    let (manifest, bytes) = manifest(source, descriptor, platform)?;
    let config = document(source, &blob(&manifest.config), Some(&manifest.config.digest))?;
    let layers = manifest
        .layers
        .iter()
        .map(|layer| FoundLayer {
            name: blob(layer),
            media_type: layer.media_type.clone(),
            blob: Some((layer.digest, layer.size)),
        })
        .collect();
    Ok(Found { config, manifest: Some(bytes), layers, tags: names(descriptor) })
}

/// Follows indexes down to the manifest for `platform`.
fn manifest(source: &Source, start: &Descriptor, platform: &Platform) -> Result<(Manifest, Vec<u8>), Error> {
    let mut descriptor = start.clone();
    for _ in 0..DEEPEST {
        let bytes = document(source, &blob(&descriptor), Some(&descriptor.digest))?;
        let what = descriptor.digest.to_string();
        match Document::parse(&bytes, &what)? {
            Document::Manifest(manifest) => return Ok((manifest, bytes)),
            Document::Index(Index { manifests, .. }) => {
                let index = Index { schema_version: 2, media_type: None, manifests };
                descriptor = choose(&index, platform, &what)?.clone();
            }
        }
    }
    Err(source.bad(format!("indexes nest deeper than {DEEPEST}")))
}

fn blob(descriptor: &Descriptor) -> String {
    format!("blobs/sha256/{}", descriptor.digest.hex())
}

/// The full name if there is one; a bare tag names no repository.
fn names(descriptor: &Descriptor) -> Vec<Reference> {
    let Some(annotations) = &descriptor.annotations else { return Vec::new() };
    let full = annotations.get(CONTAINERD_NAME);
    let short = annotations.get(OCI_NAME).filter(|name| name.contains([':', '/']));
    full.or(short).and_then(|name| name.parse().ok()).into_iter().collect()
}
