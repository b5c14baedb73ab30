//! Ranges of user and group ids for pods that have a user namespace of their own (`hostUsers: false`).
//!
//! Every such pod has a range to itself, of the size of all ids a container may know. It is recorded in the pod's folder
//! before it is used, as upstream does it (`userns`, the same JSON), so that a kubelet that comes back gives it to nobody
//! else. Volumes are mapped at mount time and carry no ids of the range on the disk: a range may have another owner as
//! soon as nothing of the pod runs. A pod that cannot have its range does not run.

mod pool;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Pod;
use podwire_linux::beneath;
use podwire_wire::cri;
use serde::{Deserialize, Serialize};

use crate::{node::Node, observed, paths, spec, volumes};

pub use pool::{PoolError, UserIds};

/// How many ids a pod has.
const LENGTH: u32 = 65_536;
const FILE: &str = "userns";
/// A record has about 130 bytes.
const FILE_LIMIT: usize = 4096;

/// Why a pod has no user namespace; the text is what the event shows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    /// The runtime, or the handler of the pod's runtime class, has no user namespaces.
    #[error("can't set `spec.hostUsers: false`, {} does not support user namespaces{why}", who(.handler))]
    Unsupported {
        /// The pod's handler.
        handler: String,
        /// What else is known, after a colon.
        why: String,
    },
    /// Every range is taken.
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    Exhausted,
    /// What is recorded is not ours to use.
    #[error("user namespace: {0}")]
    Record(String),
    /// The record cannot be read or written.
    #[error("user namespace: {path:?}: {source}")]
    Io {
        /// The record's path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A container is to run where the pod's range is not in force.
    #[error("user namespace: the sandbox does not have the ids that are recorded for the pod")]
    Sandbox,
}

fn who(handler: &str) -> String {
    if handler.is_empty() { "runtime".to_owned() } else { format!("RuntimeClass handler {handler:?}") }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// What a pod's folder says of its range.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    #[serde(rename = "uidMappings")]
    uids: Vec<Mapping>,
    #[serde(rename = "gidMappings")]
    gids: Vec<Mapping>,
}

impl Record {
    fn of(first: u32) -> Record {
        let one = || vec![Mapping { host_id: first, container_id: 0, length: LENGTH }];
        Record { uids: one(), gids: one() }
    }

    /// The first id, if this is what a kubelet writes.
    fn first(&self) -> Result<u32, UsersError> {
        let wrong = |text: &str| Err(UsersError::Record(text.to_owned()));
        let [only] = &self.uids[..] else {
            return wrong("invalid user namespace configuration: no more than one mapping allowed.");
        };
        if self.gids != self.uids {
            return wrong("invalid user namespace configuration: GID and UID mappings should be identical.");
        }
        if only.container_id != 0 {
            return wrong("invalid user namespace configuration: UID 0 must be mapped");
        }
        if only.length != LENGTH {
            return Err(UsersError::Record(format!("wrong user namespace length {}", only.length)));
        }
        if !only.host_id.is_multiple_of(LENGTH) {
            let text = format!("wrong user namespace offset specified {}", only.host_id);
            return Err(UsersError::Record(text));
        }
        Ok(only.host_id)
    }
}

/// The node's ranges and who has them.
#[derive(Debug)]
pub(crate) struct Users {
    root: PathBuf,
    ids: UserIds,
    /// First id by pod uid.
    ranges: Mutex<BTreeMap<String, u32>>,
}

impl Users {
    /// Reads which ranges pods of this node have. Blocks.
    pub(crate) fn open(root: &Path, ids: UserIds) -> io::Result<Users> {
        let users = Users { root: root.to_owned(), ids, ranges: Mutex::default() };
        let entries = match std::fs::read_dir(root.join("pods")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(users),
            other => other?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some(uid) = name.to_str() else { continue };
            let taken = users.read(uid).and_then(|found| match found {
                Some(first) => users.take(&mut users.ranges.lock().expect("no holder panics"), uid, first),
                None => Ok(()),
            });
            if let Err(error) = taken {
                // Nothing of the pod starts again; what runs of it is found among the runtime's sandboxes.
                tracing::error!(uid, error = %error, "a pod's range of user ids is not known");
            }
        }
        Ok(users)
    }

    /// The first id of the pod's range, which it gets now if it has none. Blocks.
    pub(crate) fn range(&self, uid: &str) -> Result<u32, UsersError> {
        let mut ranges = self.ranges.lock().expect("no holder panics");
        if let Some(first) = self.read(uid)? {
            self.take(&mut ranges, uid, first)?;
            return Ok(first);
        }
        let first = match ranges.get(uid) {
            Some(first) => *first,
            None => {
                let taken: std::collections::BTreeSet<u32> = ranges.values().copied().collect();
                self.ids.ranges().find(|first| !taken.contains(first)).ok_or(UsersError::Exhausted)?
            }
        };
        self.write(uid, first)?;
        ranges.insert(uid.to_owned(), first);
        Ok(first)
    }

    /// A sandbox runs with this range, whatever the disk says.
    pub(crate) fn adopt(&self, uid: &str, first: u32) {
        let mut ranges = self.ranges.lock().expect("no holder panics");
        if ranges.get(uid) == Some(&first) {
            return;
        }
        if let Err(error) = self.take(&mut ranges, uid, first) {
            tracing::error!(uid, first, error = %error, "a pod runs with user ids that are not its own");
        }
    }

    /// The first id of a range that was given before.
    pub(crate) fn range_of(&self, uid: &str) -> Option<u32> {
        self.ranges.lock().expect("no holder panics").get(uid).copied()
    }

    /// Nothing of the pod runs any more: its range is free. Blocks.
    pub(crate) fn release(&self, uid: &str) -> io::Result<()> {
        let mut ranges = self.ranges.lock().expect("no holder panics");
        if !ranges.contains_key(uid) {
            return Ok(());
        }
        beneath::remove_path(&paths::pod(&self.root, uid).join(FILE))?;
        ranges.remove(uid);
        Ok(())
    }

    fn take(&self, ranges: &mut BTreeMap<String, u32>, uid: &str, first: u32) -> Result<(), UsersError> {
        let refused = |text: String| Err(UsersError::Record(text));
        match ranges.get(uid) {
            Some(old) if *old == first => return Ok(()),
            Some(_) => return refused(format!("different user namespace range already used by pod {uid:?}")),
            None => {}
        }
        if !self.ids.ranges().any(|range| range == first) {
            return refused(format!("id {first} is out of range"));
        }
        if ranges.values().any(|taken| *taken == first) {
            return refused(format!("range picked for pod {uid:?} already taken"));
        }
        ranges.insert(uid.to_owned(), first);
        Ok(())
    }

    /// The recorded range, if there is a record.
    fn read(&self, uid: &str) -> Result<Option<u32>, UsersError> {
        let path = paths::pod(Path::new(""), uid).join(FILE);
        let read = beneath::folder(&self.root).and_then(|root| beneath::read(root, &path, FILE_LIMIT));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(self.io(uid)(volumes::plain(error))),
        };
        // A power cut may leave an empty file; nothing of the pod survived it.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let record: Record = serde_json::from_slice(&bytes)
            .map_err(|error| UsersError::Record(format!("invalid user namespace mappings file: {error}")))?;
        record.first().map(Some)
    }

    /// Whole or not at all. Not synced: a machine that lost power runs nothing with the range either.
    fn write(&self, uid: &str, first: u32) -> Result<(), UsersError> {
        const PARTIAL: &str = ".userns.partial";
        let bytes = serde_json::to_vec(&Record::of(first)).map_err(io::Error::other).map_err(self.io(uid))?;
        let put = || -> io::Result<()> {
            let folder = volumes::folders(&self.root, &paths::pod(Path::new(""), uid))?;
            beneath::remove(&folder, c".userns.partial")?;
            let mut file =
                beneath::make::file(&folder, OsStr::new(PARTIAL), 0o600).map_err(volumes::plain)?;
            file.write_all(&bytes)?;
            Ok(rustix::fs::renameat(&folder, PARTIAL, &folder, FILE)?)
        };
        put().map_err(self.io(uid))
    }

    fn io(&self, uid: &str) -> impl FnOnce(io::Error) -> UsersError + use<> {
        let path = paths::pod(&self.root, uid).join(FILE);
        move |source| UsersError::Io { path, source }
    }
}

/// Whether the pod asks for user ids of its own.
pub(crate) fn wanted(pod: &Pod) -> bool {
    spec::spec(pod).host_users == Some(false)
}

/// The node's own user namespace.
pub(crate) fn of_node() -> cri::UserNamespace {
    cri::UserNamespace { mode: cri::NamespaceMode::Node as i32, ..Default::default() }
}

fn of_pod(first: u32) -> cri::UserNamespace {
    let map = || vec![cri::IdMapping { host_id: first, container_id: 0, length: LENGTH }];
    cri::UserNamespace { mode: cri::NamespaceMode::Pod as i32, uids: map(), gids: map() }
}

/// The user namespace of a new sandbox that `handler` is going to run.
pub(crate) async fn for_sandbox(
    node: &Arc<Node>,
    pod: &Pod,
    handler: &str,
) -> Result<cri::UserNamespace, UsersError> {
    if !wanted(pod) {
        return Ok(of_node());
    }
    let refused = |why: String| UsersError::Unsupported { handler: handler.to_owned(), why };
    let status = node.runtime.status().await.map_err(|error| refused(format!(": {error}")))?;
    supports(&status, handler).map_err(refused)?;
    let (node, uid) = (node.clone(), spec::uid(pod).to_owned());
    let path = paths::pod(&node.config.root_dir, &uid).join(FILE);
    tokio::task::spawn_blocking(move || node.users.range(&uid))
        .await
        .map_err(|error| UsersError::Io { path, source: io::Error::other(error) })?
        .map(of_pod)
}

/// Whether a handler makes user namespaces; otherwise what to add to the complaint.
fn supports(status: &cri::StatusResponse, handler: &str) -> Result<(), String> {
    if status.runtime_handlers.is_empty() {
        return Err(": runtime handlers are not set".to_owned());
    }
    let found = status.runtime_handlers.iter().find(|known| known.name == handler);
    let features = found.ok_or_else(|| format!(": the handler {handler:?} is not known"))?.features;
    if features.is_some_and(|features| features.user_namespaces) { Ok(()) } else { Err(String::new()) }
}

/// The user namespace of a container in `sandbox`: the one that the sandbox was run with, or none at all.
pub(crate) fn for_container(
    node: &Node,
    pod: &Pod,
    sandbox: &observed::Sandbox,
) -> Result<cri::UserNamespace, UsersError> {
    if !wanted(pod) {
        return Ok(of_node());
    }
    let first = node.users.range_of(spec::uid(pod)).ok_or(UsersError::Sandbox)?;
    match sandbox.users {
        Some(observed::Users::Own { first: runs }) if runs == first => Ok(of_pod(first)),
        // A runtime that does not say is asked for the range once more, and has to refuse what it cannot do.
        None => Ok(of_pod(first)),
        Some(_) => Err(UsersError::Sandbox),
    }
}

#[cfg(test)]
mod tests;
