//! One pull from the reference to the recorded image.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::registry::Registry;
use super::{Auth, Progress, PullError};
use crate::archive::blocking;
use crate::digest::Digest;
use crate::durable::When;
use crate::error::Error;
use crate::layer::{DeferredLayer, Expected, Staged};
use crate::manifest::{Config, Descriptor, Document, Manifest, Platform, chain_ids, choose, parse_config};
use crate::pipe::pipe;
use crate::record::{Image, LayerMeta};
use crate::reference::Reference;
use crate::store::{ImageStore, NewImage};

/// Chunks between the network and the decompressor.
const DEPTH: usize = 32;
/// How deep indexes may nest.
const DEEPEST: usize = 4;

/// What the documents of an image say.
struct Resolved {
    /// The digest of the document the reference led to first.
    digest: Digest,
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
}

/// The books of one pull.
struct Books {
    received: AtomicU64,
    total: AtomicU64,
    done: AtomicUsize,
    layers: usize,
    report: watch::Sender<Progress>,
}

impl Books {
    fn tell(&self) {
        let now = Progress {
            received: self.received.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            layers_done: self.done.load(Ordering::Relaxed),
            layers: self.layers,
        };
        self.report.send_replace(now);
    }
}

/// Why a layer's flight is not shared with others.
enum Unshared {
    Failed(Error),
    /// It is only valid on this image's parents.
    Deferred(Box<DeferredLayer>),
}

impl ImageStore {
    /// Pulls `reference`; called once per flight.
    pub(super) async fn pull_now(
        &self,
        reference: &Reference,
        auth: &Auth,
        report: &watch::Sender<Progress>,
    ) -> Result<Image, Error> {
        let registry = Arc::new(Registry::new(reference, &self.inner.registries, auth)?);
        let resolved = resolve(&registry, reference).await?;
        let config = registry.blob(&resolved.manifest.config).await?;
        let Config { diff_ids, .. } = parse_config(&config, &resolved.manifest.config.digest.to_string())?;
        if diff_ids.len() != resolved.manifest.layers.len() {
            return Err(Error::Manifest {
                what: resolved.digest.to_string(),
                reason: format!(
                    "its configuration lists {} layers, the manifest {}",
                    diff_ids.len(),
                    resolved.manifest.layers.len()
                ),
            });
        }
        let hold = blocking({
            let store = self.clone();
            move || store.inner.layout.hold()
        })
        .await?;
        let chain = chain_ids(&diff_ids);
        let staged = self.fetch_layers(&registry, &resolved.manifest, &diff_ids, &chain, report).await?;
        let media_types: Vec<String> =
            resolved.manifest.layers.iter().map(|layer| layer.media_type.clone()).collect();
        let tags = if reference.digest().is_some() { vec![] } else { vec![reference.to_string()] };
        let digests = vec![reference.at_digest(&resolved.digest)];
        let store = self.clone();
        blocking(move || {
            let layers = store.settle(staged, &chain, &media_types)?;
            let manifest = Some(resolved.manifest_bytes);
            let image = store.commit(NewImage { config, manifest, layers, tags, digests }, When::Soon)?;
            drop(hold);
            store.sweep();
            Ok(image)
        })
        .await
    }

    /// All layers of the image, those that are missing downloaded in parallel.
    async fn fetch_layers(
        &self,
        registry: &Arc<Registry>,
        manifest: &Manifest,
        diff_ids: &[Digest],
        chain: &[Digest],
        report: &watch::Sender<Progress>,
    ) -> Result<Vec<Staged>, Error> {
        let books = Arc::new(Books {
            received: AtomicU64::new(0),
            total: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            layers: diff_ids.len(),
            report: report.clone(),
        });
        let permits = Arc::new(Semaphore::new(self.inner.registries.parallel_layers.max(1)));
        let mut staged: Vec<Option<Staged>> = Vec::new();
        let mut tasks = JoinSet::new();
        for (at, descriptor) in manifest.layers.iter().enumerate() {
            staged.push(self.present(&diff_ids[at], &chain[at]));
            if staged[at].is_some() {
                books.done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            books.total.fetch_add(descriptor.size, Ordering::Relaxed);
            let (store, registry, descriptor) = (self.clone(), Arc::clone(registry), descriptor.clone());
            let (diff_id, books, permits) = (diff_ids[at], Arc::clone(&books), Arc::clone(&permits));
            tasks.spawn(async move {
                let _permit = permits.acquire_owned().await;
                let layer = store.fetch_layer(&registry, &descriptor, diff_id, &books).await?;
                books.done.fetch_add(1, Ordering::Relaxed);
                books.tell();
                Ok::<_, Error>((at, layer))
            });
        }
        books.tell();
        while let Some(done) = tasks.join_next().await {
            let (at, layer) = done.map_err(|error| Error::Worker { reason: error.to_string() })??;
            staged[at] = Some(layer);
        }
        Ok(staged.into_iter().flatten().collect())
    }

    /// One layer; if another pull is at it, its result is used.
    async fn fetch_layer(
        &self,
        registry: &Arc<Registry>,
        descriptor: &Descriptor,
        diff_id: Digest,
        books: &Arc<Books>,
    ) -> Result<Staged, Error> {
        let cell = self.inner.flights.cell(&diff_id);
        let shared = cell
            .get_or_try_init(|| async {
                match self.download_layer(registry, descriptor, diff_id, books).await {
                    Ok(Staged::Ready { meta, .. }) => Ok::<LayerMeta, Unshared>(meta),
                    Ok(Staged::Deferred(deferred)) => Err(Unshared::Deferred(deferred)),
                    Err(error) => Err(Unshared::Failed(error)),
                }
            })
            .await;
        match shared {
            Ok(meta) => Ok(Staged::Ready { dir: diff_id.hex(), meta: meta.clone() }),
            Err(Unshared::Deferred(deferred)) => Ok(Staged::Deferred(deferred)),
            Err(Unshared::Failed(error)) => Err(error),
        }
    }

    /// Downloads and unpacks at once, from the first endpoint that delivers what was promised.
    async fn download_layer(
        &self,
        registry: &Arc<Registry>,
        descriptor: &Descriptor,
        diff_id: Digest,
        books: &Arc<Books>,
    ) -> Result<Staged, Error> {
        let mut last = None;
        for endpoint in 0..registry.endpoints() {
            let (writer, reader) = pipe(DEPTH);
            let expected = Expected { diff_id, blob: Some((descriptor.digest, descriptor.size)) };
            let store = self.clone();
            let unpacking = blocking(move || store.stage(reader, &expected));
            let got = AtomicU64::new(0);
            let received = |bytes: u64| {
                got.fetch_add(bytes, Ordering::Relaxed);
                books.received.fetch_add(bytes, Ordering::Relaxed);
                books.tell();
            };
            let downloading = async {
                match registry.download(endpoint, descriptor, &writer, &received).await {
                    Ok(()) => {
                        writer.finish().await;
                        Ok(())
                    }
                    Err(error) => {
                        writer.fail(std::io::Error::other("the download failed")).await;
                        Err(error)
                    }
                }
            };
            let error = match tokio::join!(downloading, unpacking) {
                (Ok(()), Ok(staged)) => return Ok(staged),
                // What the network said explains what the unpacker saw.
                (Err(error), _) | (Ok(()), Err(error)) => error,
            };
            tracing::debug!(error = %podwire_trace::chain(&error), layer = %descriptor.digest, "endpoint did not deliver a layer");
            books.received.fetch_sub(got.load(Ordering::Relaxed), Ordering::Relaxed);
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| {
            PullError::Unavailable { url: descriptor.digest.to_string(), reason: "no endpoint".to_owned() }
                .into()
        }))
    }
}

/// Follows the reference to the manifest for this platform.
async fn resolve(registry: &Registry, reference: &Reference) -> Result<Resolved, Error> {
    let platform = Platform::host();
    let mut bytes = registry.manifest(&reference.target(), reference.digest()).await?;
    let digest = Digest::of(&bytes);
    for _ in 0..DEEPEST {
        match Document::parse(&bytes, &reference.to_string())? {
            Document::Manifest(manifest) => return Ok(Resolved { digest, manifest, manifest_bytes: bytes }),
            Document::Index(index) => {
                let chosen = choose(&index, &platform, &reference.to_string())?;
                bytes = registry.manifest(&chosen.digest.to_string(), Some(&chosen.digest)).await?;
            }
        }
    }
    Err(Error::Manifest {
        what: reference.to_string(),
        reason: format!("indexes nest deeper than {DEEPEST}"),
    })
}
