//! Export of images to a tar that is an OCI layout and a docker archive at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use super::blocking;
use crate::digest::Digest;
use crate::error::{Error, IoContext};
use crate::index::Entry;
use crate::manifest::{Descriptor, Manifest, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST};
use crate::store::ImageStore;
use crate::tar::{Header, Kind, Mtime, TarWriter};

/// How an export is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// One tar that OCI tools and `docker load` both read.
    #[default]
    Both,
    /// An OCI layout only.
    Oci,
}

impl ImageStore {
    /// Writes images to `path` as one tar, by rename: a broken export leaves nothing.
    pub async fn export(&self, references: &[&str], path: &Path, format: ExportFormat) -> Result<(), Error> {
        let mut entries = Vec::new();
        for reference in references {
            let entry = self
                .find_entry(reference)
                .ok_or_else(|| Error::NotFound { reference: (*reference).to_owned() })?;
            entries.push((entry, (*reference).to_owned()));
        }
        let (store, path) = (self.clone(), path.to_owned());
        blocking(move || {
            let _hold = store.inner.layout.hold()?;
            let temp = path.with_extension(format!("partial.{}", std::process::id()));
            let written = File::create(&temp).at("create", &temp).and_then(|file| {
                let mut out = io::BufWriter::with_capacity(256 * 1024, file);
                store.write_archive(&entries, format, &mut out, &path)?;
                let file = out.into_inner().map_err(io::IntoInnerError::into_error).at("write", &temp)?;
                file.sync_all().at("sync", &temp)?;
                std::fs::rename(&temp, &path).at("rename to", &path)
            });
            if written.is_err() {
                // Ignored: the first error is the one to report, and the file may not be there.
                std::fs::remove_file(&temp).ok();
            }
            written
        })
        .await
    }

    fn write_archive(
        &self,
        entries: &[(Entry, String)],
        format: ExportFormat,
        out: &mut impl Write,
        path: &Path,
    ) -> Result<(), Error> {
        let mut tar = Archive { tar: TarWriter::new(out), written: BTreeMap::new(), path };
        let (mut manifests, mut saved) = (Vec::new(), Vec::new());
        for (entry, reference) in entries {
            let (manifest, bytes) = self.manifest_of(entry)?;
            for descriptor in manifest.layers.iter().chain([&manifest.config]) {
                let blob = self.inner.layout.blob(&descriptor.digest);
                let file = File::open(&blob).at("open", &blob)?;
                tar.blob(&descriptor.digest, descriptor.size, file)?;
            }
            let digest = Digest::of(&bytes);
            tar.blob(&digest, bytes.len() as u64, bytes.as_slice())?;
            let names = names(entry, reference);
            saved.push(json!({
                "Config": blob_name(&manifest.config.digest),
                "RepoTags": names,
                "Layers": manifest.layers.iter().map(|layer| blob_name(&layer.digest)).collect::<Vec<_>>(),
            }));
            for name in &names {
                manifests.push(json!({
                    "mediaType": manifest.media_type.as_deref().unwrap_or(OCI_MANIFEST),
                    "digest": digest,
                    "size": bytes.len(),
                    "annotations": { "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name },
                }));
            }
        }
        tar.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests });
        tar.file("index.json", index.to_string().as_bytes())?;
        if format == ExportFormat::Both {
            tar.file("manifest.json", serde_json::Value::Array(saved).to_string().as_bytes())?;
        }
        tar.tar.finish().at("write", path)?.flush().at("write", path)
    }

    /// The image's own manifest if its blobs are the ones here, else one made for them.
    fn manifest_of(&self, entry: &Entry) -> Result<(Manifest, Vec<u8>), Error> {
        let layout = &self.inner.layout;
        let record = &entry.record;
        if let Some(digest) = &record.manifest {
            let path = layout.blob(digest);
            let bytes = std::fs::read(&path).at("read", &path)?;
            let manifest: Manifest = serde_json::from_slice(&bytes)
                .map_err(|error| Error::Corrupt { path: path.clone(), reason: error.to_string() })?;
            if manifest.layers.iter().all(|layer| layout.blob(&layer.digest).exists()) {
                return Ok((manifest, bytes));
            }
        }
        let config = layout.blob(&record.config);
        let descriptor = |media_type: &str, digest: Digest, size: u64| Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            platform: None,
            annotations: None,
        };
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.to_owned()),
            config: descriptor(
                OCI_CONFIG,
                record.config,
                std::fs::metadata(&config).at("look at", &config)?.len(),
            ),
            layers: record
                .layers
                .iter()
                .map(|layer| descriptor(&layer.media_type, layer.blob, layer.blob_size))
                .collect(),
        };
        let bytes = serde_json::to_vec(&manifest).expect("a manifest is plain data");
        Ok((manifest, bytes))
    }
}

/// The name asked for, or all names if the image was asked for by id.
fn names(entry: &Entry, reference: &str) -> Vec<String> {
    match reference.parse::<crate::reference::Reference>() {
        Ok(name) if entry.image.repo_tags.contains(&name.to_string()) => vec![name.to_string()],
        _ => entry.image.repo_tags.clone(),
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

struct Archive<'a, W> {
    tar: TarWriter<W>,
    written: BTreeMap<Digest, ()>,
    path: &'a Path,
}

impl<W: Write> Archive<'_, W> {
    fn blob(&mut self, digest: &Digest, size: u64, mut data: impl io::Read) -> Result<(), Error> {
        if self.written.insert(*digest, ()).is_some() {
            return Ok(());
        }
        self.tar.append(&header(&blob_name(digest), size), &mut data).at("write", self.path)
    }

    fn file(&mut self, name: &str, mut data: &[u8]) -> Result<(), Error> {
        self.tar.append(&header(name, data.len() as u64), &mut data).at("write", self.path)
    }
}

fn header(name: &str, size: u64) -> Header {
    Header {
        path: name.as_bytes().to_vec(),
        link: Vec::new(),
        kind: Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size,
        mtime: Mtime::default(),
        device: (0, 0),
        xattrs: Vec::new(),
    }
}
