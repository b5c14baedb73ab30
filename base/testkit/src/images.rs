//! Images made on the spot: one layer of given files, its configuration and manifest, ready to be served.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The media type of the manifests made here.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The files of a layer, in order.
#[derive(Clone, Default)]
pub struct Files {
    entries: Vec<(String, u32, Entry)>,
}

#[derive(Clone)]
enum Entry {
    Folder,
    File(Vec<u8>),
    HardLink(String),
}

impl Files {
    /// Adds a folder.
    pub fn folder(mut self, path: &str, mode: u32) -> Files {
        self.entries.push((path.to_owned(), mode, Entry::Folder));
        self
    }

    /// Adds a file.
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>, mode: u32) -> Files {
        self.entries.push((path.to_owned(), mode, Entry::File(content.into())));
        self
    }

    /// Adds another name for a file that was added before.
    pub fn hard_link(mut self, path: &str, target: &str) -> Files {
        // One file, one mode: the entry of a link says it again.
        let known = self.entries.iter().find(|(path, _, _)| path == target);
        let mode = known.map_or(0o755, |(_, mode, _)| *mode);
        self.entries.push((path.to_owned(), mode, Entry::HardLink(target.to_owned())));
        self
    }

    /// The files as a tar stream.
    pub fn tar(&self) -> Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, mode, entry) in &self.entries {
            let mut header = Header::new_ustar();
            header.set_mode(*mode);
            header.set_size(0);
            match entry {
                Entry::Folder => {
                    header.set_entry_type(EntryType::Directory);
                    tar.append_data(&mut header, path, std::io::empty())?;
                }
                Entry::File(content) => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(content.len() as u64);
                    tar.append_data(&mut header, path, content.as_slice())?;
                }
                Entry::HardLink(target) => {
                    header.set_entry_type(EntryType::Link);
                    tar.append_link(&mut header, path, target)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

/// A gzip layer, ready to be served; images may share it.
#[derive(Clone)]
pub struct Layer {
    /// Digest of what it unpacks to.
    diff: String,
    digest: String,
    packed: Arc<Vec<u8>>,
}

impl Layer {
    /// A layer of these files, packed without the effort of making it small.
    pub fn new(files: &Files) -> Result<Layer> {
        let tar = files.tar()?;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        packer.write_all(&tar)?;
        let packed = packer.finish().context("compress the layer")?;
        Ok(Layer { diff: digest(&tar), digest: digest(&packed), packed: Arc::new(packed) })
    }

    /// A large layer, packed and measured by the machine's own tools: an unoptimised build takes minutes for it.
    pub fn large(files: &Files) -> Result<Layer> {
        let tar = files.tar()?;
        let packed = filter("gzip", &["-1", "-n"], &tar)?;
        let sum = |bytes: &[u8]| -> Result<String> {
            let said = String::from_utf8(filter("sha256sum", &[], bytes)?)?;
            Ok(format!("sha256:{}", said.split_whitespace().next().context("no digest")?))
        };
        Ok(Layer { diff: sum(&tar)?, digest: sum(&packed)?, packed: Arc::new(packed) })
    }

    /// Its size as it is served.
    pub fn size(&self) -> usize {
        self.packed.len()
    }
}

/// An image: its names without a host, and its documents.
pub struct Image {
    /// `repository:tag`, as a registry knows it.
    pub names: Vec<String>,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// Configuration and layer, by digest.
    pub blobs: Vec<(String, Arc<Vec<u8>>)>,
}

impl Image {
    /// An image of one layer; `config` is what runs (`Cmd`, `User`, `Env`, ...).
    pub fn new(names: &[&str], layer: &Layer, config: &Value) -> Result<Image> {
        let described = json!({
            "architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff]},
        });
        let config = serde_json::to_vec(&described)?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(&config), "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": layer.digest, "size": layer.packed.len(),
            }],
        }))?;
        Ok(Image {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            manifest,
            blobs: vec![
                (digest(&config), Arc::new(config)),
                (layer.digest.clone(), Arc::clone(&layer.packed)),
            ],
        })
    }
}

/// What a program makes of these bytes.
fn filter(program: &str, words: &[&str], bytes: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {program}"))?;
    let mut input = child.stdin.take().context("no stdin")?;
    thread::scope(|scope| {
        let writer = scope.spawn(move || input.write_all(bytes));
        let done = child.wait_with_output()?;
        writer.join().ok().context("the writer panicked")??;
        Ok(done.stdout)
    })
}

/// A digest as registries write it.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
