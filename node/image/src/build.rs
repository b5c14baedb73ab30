//! Builds small images from files at hand: for demos and tests, without a registry or a daemon.
//!
//! The result is deterministic: the same files give the same digests.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::digest::Digest;
use crate::manifest::{OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_LAYER_GZIP, OCI_MANIFEST, Platform};
use crate::tar::{Header, Kind, Mtime, TarWriter};

/// One layer of an image to be built: entries in order.
#[derive(Clone, Debug, Default)]
pub struct LayerBuilder {
    entries: Vec<(Header, Vec<u8>)>,
}

impl LayerBuilder {
    /// An empty layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory owned by root.
    pub fn dir(self, path: &str, mode: u32) -> Self {
        self.entry(Header { mode, ..header(path, Kind::Directory) }, Vec::new())
    }

    /// Adds a regular file owned by root.
    pub fn file(self, path: &str, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entry(Header { mode, ..header(path, Kind::File) }, content.into())
    }

    /// Adds a symbolic link.
    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(Header { link: target.as_bytes().to_vec(), ..header(path, Kind::Symlink) }, Vec::new())
    }

    /// Adds a hard link to an earlier entry.
    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(Header { link: target.as_bytes().to_vec(), ..header(path, Kind::HardLink) }, Vec::new())
    }

    /// Adds any entry, however strange.
    pub fn entry(mut self, header: Header, content: Vec<u8>) -> Self {
        let size = content.len() as u64;
        self.entries.push((Header { size, ..header }, content));
        self
    }

    /// The layer as a tar stream.
    pub fn tar(&self) -> Vec<u8> {
        let mut tar = TarWriter::new(Vec::new());
        for (header, content) in &self.entries {
            tar.append(header, &mut content.as_slice()).expect("memory takes every write");
        }
        tar.finish().expect("memory takes every write")
    }
}

/// A header with neutral values, to be changed.
pub fn header(path: &str, kind: Kind) -> Header {
    Header {
        path: path.as_bytes().to_vec(),
        link: Vec::new(),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: 0,
        mtime: Mtime::default(),
        device: (0, 0),
        xattrs: Vec::new(),
    }
}

/// How layers are stored in the built archive.
#[derive(Clone, Copy, Debug, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// zstd, packed by whoever builds: a node only unpacks, and what packs is half a megabyte of its program.
    Zstd(fn(&[u8]) -> Vec<u8>),
}

/// An image to be built.
#[derive(Clone, Debug, Default)]
pub struct ImageBuilder {
    layers: Vec<(Vec<u8>, Compression)>,
    config: serde_json::Map<String, Value>,
    compression: Compression,
    platform: Option<Platform>,
}

/// A built image: its documents and blobs.
#[derive(Clone, Debug)]
pub struct Built {
    /// The image configuration.
    pub config: Vec<u8>,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// Layers as distributed, bottom first, with their media types.
    pub layers: Vec<(Vec<u8>, &'static str)>,
    /// Layers as tar streams, bottom first.
    pub tars: Vec<Vec<u8>>,
}

impl ImageBuilder {
    /// An image without layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a layer on top, compressed as set so far.
    pub fn layer(self, layer: &LayerBuilder) -> Self {
        self.raw_layer(layer.tar())
    }

    /// Adds a layer given as a tar stream, however strange.
    pub fn raw_layer(mut self, tar: Vec<u8>) -> Self {
        self.layers.push((tar, self.compression));
        self
    }

    /// Adds a layer with one static binary at `/name` and makes it the entry point.
    pub fn binary(self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        let layer = LayerBuilder::new().file(name, content, 0o755);
        self.layer(&layer).entrypoint(&[&format!("/{name}")])
    }

    /// Compresses the layers added after this.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The machine the image is for; this one if not set.
    pub fn platform(mut self, platform: Platform) -> Self {
        self.platform = Some(platform);
        self
    }

    /// The command that is always run.
    pub fn entrypoint(self, argv: &[&str]) -> Self {
        self.set("Entrypoint", json!(argv))
    }

    /// The arguments that a pod may replace.
    pub fn cmd(self, argv: &[&str]) -> Self {
        self.set("Cmd", json!(argv))
    }

    /// The environment, `NAME=value` each.
    pub fn env(self, env: &[&str]) -> Self {
        self.set("Env", json!(env))
    }

    /// The user, by name or number, with an optional group.
    pub fn user(self, user: &str) -> Self {
        self.set("User", json!(user))
    }

    /// The working directory.
    pub fn working_dir(self, dir: &str) -> Self {
        self.set("WorkingDir", json!(dir))
    }

    /// The ports it serves, `80/tcp` each.
    pub fn exposed_ports(self, ports: &[&str]) -> Self {
        let ports: serde_json::Map<String, Value> =
            ports.iter().map(|port| ((*port).to_owned(), json!({}))).collect();
        self.set("ExposedPorts", Value::Object(ports))
    }

    /// Paths that hold data.
    pub fn volumes(self, paths: &[&str]) -> Self {
        let paths: serde_json::Map<String, Value> =
            paths.iter().map(|path| ((*path).to_owned(), json!({}))).collect();
        self.set("Volumes", Value::Object(paths))
    }

    /// The signal that asks it to end.
    pub fn stop_signal(self, signal: &str) -> Self {
        self.set("StopSignal", json!(signal))
    }

    /// A label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        let labels = self.config.entry("Labels").or_insert_with(|| json!({}));
        labels[key] = json!(value);
        self
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.config.insert(key.to_owned(), value);
        self
    }

    /// Makes the documents.
    pub fn build(&self) -> Built {
        let platform = self.platform.clone().unwrap_or_else(Platform::host);
        let tars: Vec<Vec<u8>> = self.layers.iter().map(|(tar, _)| tar.clone()).collect();
        let layers: Vec<(Vec<u8>, &'static str)> =
            self.layers.iter().map(|(tar, compression)| compress(tar, *compression)).collect();
        let config = json!({
            "created": "1970-01-01T00:00:00Z",
            "architecture": platform.architecture,
            "os": platform.os,
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": tars.iter().map(|tar| Digest::of(tar)).collect::<Vec<_>>() },
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": { "mediaType": OCI_CONFIG, "digest": Digest::of(&config), "size": config.len() },
            "layers": layers.iter().map(|(bytes, media_type)| json!({
                "mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len(),
            })).collect::<Vec<_>>(),
        });
        Built { config, manifest: manifest.to_string().into_bytes(), layers, tars }
    }
}

impl Built {
    /// The image's id: the digest of its configuration.
    pub fn id(&self) -> String {
        Digest::of(&self.config).to_string()
    }

    /// The digest of its manifest.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// Writes a tar with an OCI layout to `path`, the image named `name`.
    pub fn write_oci_archive(&self, path: &Path, name: &str) -> io::Result<()> {
        let file = io::BufWriter::new(std::fs::File::create(path)?);
        self.oci_archive(file, name)?.flush()
    }

    /// Writes a tar with an OCI layout to `out`.
    pub fn oci_archive<W: Write>(&self, out: W, name: &str) -> io::Result<W> {
        let mut tar = TarWriter::new(out);
        let index = json!({
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [{
                "mediaType": OCI_MANIFEST, "digest": self.digest(), "size": self.manifest.len(),
                "annotations": { "io.containerd.image.name": name },
            }],
        });
        append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        append(&mut tar, "index.json", index.to_string().as_bytes())?;
        let layers = self.layers.iter().map(|(bytes, _)| bytes);
        for blob in layers.chain([&self.config, &self.manifest]) {
            append(&mut tar, &format!("blobs/sha256/{}", Digest::of(blob).hex()), blob)?;
        }
        tar.finish()
    }

    /// Writes a folder with an OCI layout; `name` is left out if empty.
    pub fn write_oci_layout(&self, dir: &Path, name: &str) -> io::Result<()> {
        let blobs = dir.join("blobs/sha256");
        std::fs::create_dir_all(&blobs)?;
        let layers = self.layers.iter().map(|(bytes, _)| bytes);
        for blob in layers.chain([&self.config, &self.manifest]) {
            std::fs::write(blobs.join(Digest::of(blob).hex()), blob)?;
        }
        let mut descriptor =
            json!({ "mediaType": OCI_MANIFEST, "digest": self.digest(), "size": self.manifest.len() });
        if !name.is_empty() {
            descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        }
        let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
        std::fs::write(dir.join("index.json"), index.to_string())?;
        std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
    }

    /// Writes an archive as `docker save` does, the image named `names`.
    pub fn docker_archive<W: Write>(&self, out: W, names: &[&str]) -> io::Result<W> {
        let mut tar = TarWriter::new(out);
        let config = format!("{}.json", Digest::of(&self.config).hex());
        append(&mut tar, &config, &self.config)?;
        let mut layers = Vec::new();
        for layer in &self.tars {
            let name = format!("{}/layer.tar", Digest::of(layer).hex());
            append(&mut tar, &name, layer)?;
            layers.push(name);
        }
        let manifest = json!([{ "Config": config, "RepoTags": names, "Layers": layers }]);
        append(&mut tar, "manifest.json", manifest.to_string().as_bytes())?;
        tar.finish()
    }
}

fn append<W: Write>(tar: &mut TarWriter<W>, name: &str, mut bytes: &[u8]) -> io::Result<()> {
    let header = Header { size: bytes.len() as u64, ..header(name, Kind::File) };
    tar.append(&header, &mut bytes)
}

fn compress(tar: &[u8], compression: Compression) -> (Vec<u8>, &'static str) {
    match compression {
        Compression::None => (tar.to_vec(), OCI_LAYER),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(tar).expect("memory takes every write");
            (encoder.finish().expect("memory takes every write"), OCI_LAYER_GZIP)
        }
        Compression::Zstd(pack) => (pack(tar), "application/vnd.oci.image.layer.v1.tar+zstd"),
    }
}
