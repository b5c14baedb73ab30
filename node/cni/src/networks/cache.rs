//! Results on disk in libcni's format, so that cnitool, podman and people find what they expect.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::conflist::Conflist;
use super::{Attachment, Error};
use crate::spec::result::CniResult;

const KIND: &str = "cniCacheV1";

/// The folder of results.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

/// A cached attachment.
pub(crate) struct Cached {
    pub(crate) conflist: Conflist,
    pub(crate) result: Option<CniResult>,
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::State { attempt, path, source }
}

impl Cache {
    pub(crate) fn open(cache_dir: &Path) -> Result<Cache, Error> {
        let dir = cache_dir.join("results");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(failed("create", &dir))?;
        Ok(Cache { dir })
    }

    fn path_of(&self, network: &str, container: &str, ifname: &str) -> PathBuf {
        self.dir.join(format!("{network}-{container}-{ifname}"))
    }

    fn aside_of(&self, container: &str, ifname: &str) -> PathBuf {
        self.dir.join(format!(".new-{container}-{ifname}"))
    }

    /// Writes a result aside and renames it into place: it is there whole or not at all.
    pub(crate) fn write(
        &self,
        conflist: &Conflist,
        attachment: &Attachment,
        result: &CniResult,
    ) -> Result<(), Error> {
        let path = self.path_of(&conflist.name, &attachment.container_id, &attachment.ifname);
        let aside = self.aside_of(&attachment.container_id, &attachment.ifname);
        let args: Vec<Value> = attachment.args.iter().map(|(key, value)| json!([key, value])).collect();
        let value = json!({
            "kind": KIND,
            "containerId": attachment.container_id,
            "config": STANDARD.encode(&conflist.bytes),
            "ifName": attachment.ifname,
            "networkName": conflist.name,
            "netns": attachment.netns.display().to_string(),
            "cniArgs": args,
            "capabilityArgs": attachment.capability_args,
            "result": result.to_value(conflist.version).unwrap_or(Value::Null),
        });
        let mut options = OpenOptions::new();
        let written = options.create(true).truncate(true).write(true).mode(0o600).open(&aside);
        written
            .and_then(|mut file| file.write_all(value.to_string().as_bytes()))
            .map_err(failed("write", &aside))?;
        std::fs::rename(&aside, &path).map_err(failed("write", &path))
    }

    /// Removes a result, and one that a killed process had begun to write.
    pub(crate) fn remove(&self, network: &str, container: &str, ifname: &str) -> Result<(), Error> {
        for path in [self.path_of(network, container, ifname), self.aside_of(container, ifname)] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The cached attachment of a container's interface, whatever its network; what cannot be read counts as absent.
    pub(crate) fn find(&self, container: &str, ifname: &str) -> Option<Cached> {
        let suffix = format!("-{container}-{ifname}");
        for entry in std::fs::read_dir(&self.dir).ok()?.filter_map(Result::ok) {
            if !entry.file_name().to_string_lossy().ends_with(&suffix) {
                continue;
            }
            let Ok(bytes) = std::fs::read(entry.path()) else { continue };
            if let Some(cached) = parse(&bytes, Some((container, ifname))) {
                return Some(cached);
            }
        }
        None
    }

    /// Every attachment that has a cached result; what cannot be read is skipped.
    pub(crate) fn all(&self) -> Result<Vec<Attachment>, Error> {
        let mut found = Vec::new();
        for (_, value) in self.entries()? {
            let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
            found.push(Attachment {
                container_id: text("containerId"),
                ifname: text("ifName"),
                netns: PathBuf::from(text("netns")),
                ..Attachment::default()
            });
        }
        Ok(found)
    }

    /// Removes every result of a container's interface, whatever its network.
    pub(crate) fn forget(&self, container: &str, ifname: &str) -> Result<(), Error> {
        for (path, value) in self.entries()? {
            if value["containerId"] == container && value["ifName"] == ifname {
                std::fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Removes results that cannot be read, as a power cut leaves files without their content: those of an earlier boot,
    /// and those of `attachments` whenever they are from.
    pub(crate) fn sweep_torn(&self, attachments: &[(String, String)]) -> Result<(), Error> {
        let booted = podwire_linux::boot::began();
        for entry in std::fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?.filter_map(Result::ok) {
            let path = entry.path();
            let Ok(meta) = entry.metadata() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let named = attachments.iter().any(|(id, ifname)| name.ends_with(&format!("-{id}-{ifname}")));
            // Clocks are read in whole seconds, and a small machine boots in one; nobody writes results in the first.
            let old = booted.is_some_and(|booted| meta.mtime() <= booted + 1);
            let whole =
                || std::fs::read(&path).is_ok_and(|bytes| serde_json::from_slice::<Value>(&bytes).is_ok());
            if meta.is_file() && (old || named) && !whole() {
                tracing::info!(file = %path.display(), "removed a result that a power cut tore");
                std::fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<(PathBuf, Value)>, Error> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?.filter_map(Result::ok) {
            let value: Option<Value> =
                std::fs::read(entry.path()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Some(value) = value.filter(|value| value["kind"] == KIND) {
                found.push((entry.path(), value));
            }
        }
        Ok(found)
    }
}

/// Reads a cached result; with `whose`, only of that container and interface.
pub(crate) fn parse(bytes: &[u8], whose: Option<(&str, &str)>) -> Option<Cached> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    // The name of the file is ambiguous, as `-` is legal in all three parts.
    let other = whose.is_some_and(|(id, ifname)| value["containerId"] != id || value["ifName"] != ifname);
    if value["kind"] != KIND || other {
        return None;
    }
    let config = STANDARD.decode(value["config"].as_str().unwrap_or_default()).ok()?;
    let conflist = Conflist::parse(&config, None).ok()?;
    let result =
        CniResult::parse(&value["result"], conflist.version).ok().filter(|_| !value["result"].is_null());
    Some(Cached { conflist, result })
}
