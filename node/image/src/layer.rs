//! Brings layers into the store: each unpacked once, whoever asks, then put in place by rename.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OnceCell;

use crate::digest::Digest;
use crate::error::{Error, IoContext};
use crate::layout::{encode_record, read_record};
use crate::record::{LAYER_MAGIC, LayerMeta, LayerRef};
use crate::store::ImageStore;
use crate::unpack::{Unpacked, apply_deferred, remove_tree, unpack};

/// Layers being unpacked now, by diff id, so that a second image joins instead of repeating.
#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<Digest, Weak<OnceCell<LayerMeta>>>>);

impl Flights {
    /// The cell in which the layer's unpacking is or will be.
    pub(crate) fn cell(&self, diff_id: &Digest) -> Arc<OnceCell<LayerMeta>> {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cells.retain(|_, cell| cell.strong_count() > 0);
        if let Some(cell) = cells.get(diff_id).and_then(Weak::upgrade) {
            return cell;
        }
        let cell = Arc::new(OnceCell::new());
        cells.insert(*diff_id, Arc::downgrade(&cell));
        cell
    }
}

/// A layer on its way into an image.
pub(crate) enum Staged {
    /// In the store under this folder name.
    Ready { dir: String, meta: LayerMeta },
    /// Unpacked, but it needs its parents before it is put in place.
    Deferred(Box<DeferredLayer>),
}

/// An unpacked layer that depends on its parents; its folder goes if it is dropped.
pub(crate) struct DeferredLayer {
    temp: PathBuf,
    unpacked: Unpacked,
}

impl Drop for DeferredLayer {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.temp) {
            tracing::warn!(path = %self.temp.display(), %error, "unfinished layer not removed; the next open sweeps it");
        }
    }
}

/// What a layer must turn out to be.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) diff_id: Digest,
    /// The digest and size of the blob, if its source gives them.
    pub(crate) blob: Option<(Digest, u64)>,
}

impl ImageStore {
    /// The layer if it is in the store already, alone or on this chain.
    pub(crate) fn present(&self, diff_id: &Digest, chain_id: &Digest) -> Option<Staged> {
        let layout = &self.inner.layout;
        [diff_id.hex(), chain_name(chain_id)].into_iter().find_map(|dir| {
            let meta: LayerMeta = read_record(LAYER_MAGIC, &layout.layer(&dir).join("meta")).ok()?;
            (meta.diff_id == *diff_id).then_some(Staged::Ready { dir, meta })
        })
    }

    /// Unpacks the layer in `source` and verifies it. Blocks.
    pub(crate) fn stage(&self, source: impl Read + Send, expected: &Expected) -> Result<Staged, Error> {
        let layout = &self.inner.layout;
        let temp = layout.temp();
        let result = self.stage_in(&temp, source, expected);
        if !matches!(result, Ok(Staged::Deferred(_))) {
            remove_tree(&temp).at("remove", &temp)?;
        }
        result
    }

    fn stage_in(&self, temp: &Path, source: impl Read + Send, expected: &Expected) -> Result<Staged, Error> {
        let layout = &self.inner.layout;
        let (root, blob) = (temp.join("fs"), layout.temp());
        fs::create_dir_all(&root).at("make directory", &root)?;
        rustix::fs::chmod(&root, rustix::fs::Mode::from_raw_mode(0o755)).at("set mode of", &root)?;
        let copy = File::create_new(&blob).at("create", &blob)?;
        let done = unpack(source, Some(copy), &root, &self.inner.unpack)
            .map_err(|source| Error::Unpack { layer: expected.diff_id.to_string(), source })
            .and_then(|unpacked| check(&unpacked, expected).map(|()| unpacked));
        let unpacked = match done {
            Ok(unpacked) => unpacked,
            Err(error) => {
                fs::remove_file(&blob).at("remove", &blob)?;
                return Err(error);
            }
        };
        let home = layout.blob(&unpacked.blob);
        fs::rename(&blob, &home).at("rename to", &home)?;
        if unpacked.deferred.is_empty() {
            let meta = self.place(temp, &unpacked, &expected.diff_id.hex())?;
            return Ok(Staged::Ready { dir: expected.diff_id.hex(), meta });
        }
        Ok(Staged::Deferred(Box::new(DeferredLayer { temp: temp.to_owned(), unpacked })))
    }

    /// Puts an unpacked layer in its place; if another was quicker, that one stays.
    fn place(&self, temp: &Path, unpacked: &Unpacked, name: &str) -> Result<LayerMeta, Error> {
        let meta = LayerMeta {
            diff_id: unpacked.diff_id,
            blob: unpacked.blob,
            blob_size: unpacked.blob_size,
            size: unpacked.size,
            inodes: unpacked.inodes,
            root_opaque: unpacked.root_opaque,
        };
        let file = temp.join("meta");
        fs::write(&file, encode_record(LAYER_MAGIC, &meta)).at("write", &file)?;
        let home = self.inner.layout.layer(name);
        match fs::rename(temp, &home) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            Err(source) => return Err(Error::Io { action: "rename to", path: home, source }),
        }
        Ok(meta)
    }

    /// Applies to layers what waited for their parents, bottom up, and gives the layers of the image.
    pub(crate) fn settle(
        &self,
        staged: Vec<Staged>,
        chain_ids: &[Digest],
        media_types: &[String],
    ) -> Result<Vec<LayerRef>, Error> {
        let mut layers: Vec<LayerRef> = Vec::with_capacity(staged.len());
        for ((staged, chain_id), media_type) in staged.into_iter().zip(chain_ids).zip(media_types) {
            let (dir, meta) = match staged {
                Staged::Ready { dir, meta } => (dir, meta),
                Staged::Deferred(deferred) => {
                    let parents: Vec<PathBuf> = layers
                        .iter()
                        .rev()
                        .map(|layer| self.inner.layout.layer(&layer.dir).join("fs"))
                        .collect();
                    apply_deferred(&deferred.temp.join("fs"), &parents, &deferred.unpacked.deferred)
                        .map_err(|source| Error::Unpack {
                            layer: deferred.unpacked.diff_id.to_string(),
                            source,
                        })?;
                    let dir = chain_name(chain_id);
                    let meta = self.place(&deferred.temp, &deferred.unpacked, &dir)?;
                    (dir, meta)
                }
            };
            layers.push(LayerRef {
                diff_id: meta.diff_id,
                dir,
                blob: meta.blob,
                blob_size: meta.blob_size,
                media_type: media_type.clone(),
            });
        }
        Ok(layers)
    }
}

/// The folder of a layer that is only valid on its parents.
fn chain_name(chain_id: &Digest) -> String {
    format!("{}.chain", chain_id.hex())
}

fn check(unpacked: &Unpacked, expected: &Expected) -> Result<(), Error> {
    if let Some((blob, size)) = &expected.blob {
        if unpacked.blob_size != *size {
            return Err(Error::SizeMismatch {
                what: format!("layer {blob}"),
                expected: *size,
                actual: unpacked.blob_size,
            });
        }
        if unpacked.blob != *blob {
            return Err(Error::DigestMismatch {
                what: format!("layer {blob}"),
                expected: *blob,
                actual: unpacked.blob,
            });
        }
    }
    if unpacked.diff_id != expected.diff_id {
        return Err(Error::DigestMismatch {
            what: format!("unpacked layer {}", unpacked.blob),
            expected: expected.diff_id,
            actual: unpacked.diff_id,
        });
    }
    Ok(())
}
