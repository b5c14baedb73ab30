//! Import of images from files: OCI layouts (a folder or a tar) and docker archives.
//!
//! A tar is indexed once and its layers are read in parallel from where they lie.

mod docker;
mod export;
mod oci;
mod source;

use std::path::Path;

use tokio::task::JoinSet;

use crate::digest::Digest;
use crate::durable::When;
use crate::error::{Error, IoContext};
use crate::layer::{Expected, Staged};
use crate::manifest::{Config, chain_ids, parse_config};
use crate::record::Image;
use crate::reference::Reference;
use crate::store::{ImageStore, NewImage};

pub use export::ExportFormat;
use source::Source;

/// One image found in an archive.
struct Found {
    config: Vec<u8>,
    /// The manifest as it lies in the archive, if it has one.
    manifest: Option<Vec<u8>>,
    /// Bottom first.
    layers: Vec<FoundLayer>,
    tags: Vec<Reference>,
}

/// A layer in an archive.
struct FoundLayer {
    name: String,
    media_type: String,
    blob: Option<(Digest, u64)>,
}

impl ImageStore {
    /// Imports all images of an OCI layout (folder or tar) or docker archive for this platform.
    ///
    /// `name` renames the image of an archive with exactly one. Not cancel safe in the sense that
    /// images imported before the cancellation stay.
    pub async fn import(&self, path: &Path, name: Option<&str>) -> Result<Vec<Image>, Error> {
        let name = name.map(str::parse::<Reference>).transpose()?;
        let owned = path.to_owned();
        let temp = self.inner.layout.temp();
        let (source, mut found) = blocking(move || {
            let source = Source::open(&owned, &temp)?;
            let found = if source.has("oci-layout") || !source.has("manifest.json") {
                oci::find(&source)?
            } else {
                docker::find(&source)?
            };
            Ok((source, found))
        })
        .await?;
        let archive = |reason: &str| Error::Archive { path: path.to_owned(), reason: reason.to_owned() };
        if let Some(name) = name {
            match found.as_mut_slice() {
                [one] => one.tags = vec![name],
                _ => return Err(archive("it holds several images, so that one name does not fit")),
            }
        }
        if found.iter().any(|image| image.tags.is_empty()) {
            return Err(archive("it names no image; give a name"));
        }
        let mut images = Vec::new();
        for one in found {
            images.push(self.import_one(&source, one).await?);
        }
        self.sweep();
        Ok(images)
    }

    async fn import_one(&self, source: &Source, found: Found) -> Result<Image, Error> {
        let Config { diff_ids, .. } = parse_config(&found.config, "image configuration")?;
        if diff_ids.len() != found.layers.len() {
            return Err(Error::Manifest {
                what: "image configuration".to_owned(),
                reason: format!("it lists {} layers, the manifest {}", diff_ids.len(), found.layers.len()),
            });
        }
        let chain = chain_ids(&diff_ids);
        let hold = blocking({
            let store = self.clone();
            move || store.inner.layout.hold()
        })
        .await?;
        let mut staged: Vec<Option<Staged>> = Vec::new();
        let mut tasks = JoinSet::new();
        for (at, layer) in found.layers.iter().enumerate() {
            staged.push(self.present(&diff_ids[at], &chain[at]));
            if staged[at].is_none() {
                let (store, source, name) = (self.clone(), source.clone(), layer.name.clone());
                let expected = Expected { diff_id: diff_ids[at], blob: layer.blob };
                tasks.spawn_blocking(move || {
                    Ok::<_, Error>((at, store.stage(source.open_entry(&name)?, &expected)?))
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            let (at, layer) = done.map_err(|error| Error::Worker { reason: error.to_string() })??;
            staged[at] = Some(layer);
        }
        let staged: Vec<Staged> = staged.into_iter().flatten().collect();
        let media_types: Vec<String> = found.layers.iter().map(|layer| layer.media_type.clone()).collect();
        let store = self.clone();
        blocking(move || {
            let layers = store.settle(staged, &chain, &media_types)?;
            let digests = found.manifest.as_deref().map(Digest::of);
            let new = NewImage {
                config: found.config,
                layers,
                digests: digests
                    .iter()
                    .flat_map(|digest| found.tags.iter().map(|tag| tag.at_digest(digest)))
                    .collect(),
                tags: found.tags.iter().map(ToString::to_string).collect(),
                manifest: found.manifest,
            };
            let image = store.commit(new, When::Now)?;
            drop(hold);
            Ok(image)
        })
        .await
    }
}

/// Runs `work` on a thread where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Worker { reason: error.to_string() })?
}

/// Reads a document of bounded size from the archive and checks its digest.
fn document(source: &Source, name: &str, expected: Option<&Digest>) -> Result<Vec<u8>, Error> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let limit = crate::manifest::LARGEST_DOCUMENT;
    source.open_entry(name)?.take(limit + 1).read_to_end(&mut bytes).at("read", &source.path().join(name))?;
    if bytes.len() as u64 > limit {
        return Err(source.bad(format!("{name} is larger than {limit} bytes")));
    }
    if let Some(expected) = expected {
        let actual = Digest::of(&bytes);
        if actual != *expected {
            return Err(Error::DigestMismatch { what: name.to_owned(), expected: *expected, actual });
        }
    }
    Ok(bytes)
}
