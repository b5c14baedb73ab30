//! Pods from files of this node, and the mirror objects that show them in the API.
//!
//! Tasks: one; it reads the folder when something in it changes, and slowly otherwise. A file that cannot be read
//! leaves the others alone. Mirrors are shadows: deleting one does not end its pod, it only comes back.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use http::Method;
use inotify::{Inotify, WatchMask};
use k8s_openapi::api::core::v1::Pod;
use podwire_client::Object as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use podwire_wire::ids::PodUid;

use crate::{api::ApiError, node::Node, spec};

const RELIST: Duration = Duration::from_secs(20);
/// Upstream's bound on a file of pods.
const FILE_LIMIT: u64 = 10 << 20;
/// A FIFO that took the file's place cannot hold the reader up.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
const MIRROR: &str = "kubernetes.io/config.mirror";
const HASH: &str = "kubernetes.io/config.hash";
const SOURCE: &str = "kubernetes.io/config.source";

/// Why a file is no pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It cannot be read.
    #[error("read the file")]
    Read(#[from] std::io::Error),
    /// It is neither YAML nor JSON.
    #[error("parse the file")]
    Parse(#[from] serde_yaml_ng::Error),
    /// It holds a pod that the API would not take.
    #[error("invalid pod: {0}")]
    Invalid(String),
    /// It holds something else.
    #[error("the file holds no pod: {0}")]
    NoPod(String),
}

/// The pods that the folder wants, by uid.
pub(crate) type Wanted = Arc<BTreeMap<PodUid, Arc<Pod>>>;

/// Reads the folder until `shutdown` and publishes what it wants.
pub(crate) async fn run(
    folder: PathBuf,
    node_name: String,
    wanted: watch::Sender<Wanted>,
    shutdown: CancellationToken,
) {
    let mut notices = notices(&folder);
    loop {
        let (path, name) = (folder.clone(), node_name.clone());
        let found = tokio::task::spawn_blocking(move || read_folder(&path, &name)).await;
        // Ignored: a reader that panicked is not believed; what ran before runs on.
        let found = found.map_or_else(|_| wanted.borrow().clone(), Arc::new);
        wanted.send_if_modified(|old| {
            let changed = old.keys().ne(found.keys());
            if changed {
                *old = found;
            }
            changed
        });
        let noticed = async {
            match &mut notices {
                Some(stream) => {
                    stream.next().await;
                    // What came with it is read in one go.
                    while stream.next().now_or_never().flatten().is_some() {}
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = noticed => {}
            () = tokio::time::sleep(RELIST) => {}
        }
    }
}

fn notices(folder: &Path) -> Option<inotify::EventStream<[u8; 4096]>> {
    let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM | WatchMask::DELETE;
    let opened = Inotify::init().and_then(|inotify| {
        inotify.watches().add(folder, mask)?;
        inotify.into_event_stream([0; 4096])
    });
    match opened {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::warn!(?folder, error = %error, "folder of static pods not watched; it is reread slowly");
            None
        }
    }
}

fn read_folder(folder: &Path, node_name: &str) -> BTreeMap<PodUid, Arc<Pod>> {
    let mut found = BTreeMap::new();
    // Ignored: a folder that is not there holds no pods.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || !path.is_file() {
            continue;
        }
        match read_file(&path, node_name) {
            Ok(pod) => {
                found.insert(spec::uid(&pod).into(), Arc::new(pod));
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(?path, error, "a file of static pods is left out");
            }
        }
    }
    found
}

fn read_file(path: &Path, node_name: &str) -> Result<Pod, FileError> {
    let mut text = String::new();
    let file = fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    file.take(FILE_LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_LIMIT {
        return Err(FileError::NoPod(format!("it has more than {FILE_LIMIT} bytes")));
    }
    parse(&text, node_name, &path.to_string_lossy())
}

/// The pod in a file's text, as the node runs it.
fn parse(text: &str, node_name: &str, origin: &str) -> Result<Pod, FileError> {
    let mut object: Value = serde_yaml_ng::from_str(text)?;
    if object["kind"] != "Pod" {
        return Err(FileError::NoPod(format!("kind is {}", object["kind"])));
    }
    if let Some(kind) = podwire_api::by_gvk("", "v1", "Pod") {
        podwire_api::defaults::apply(kind, &mut object);
    }
    let mut pod: Pod = Pod::read(&object.to_string()).map_err(|e| FileError::NoPod(e.to_string()))?;
    let digest = Sha256::digest(format!("{text}\0{node_name}\0{origin}"));
    let uid: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let name = pod.metadata.name.clone().unwrap_or_default();
    if name.is_empty() {
        return Err(FileError::NoPod("it has no name".to_owned()));
    }
    pod.metadata.name = Some(format!("{name}-{}", node_name.to_lowercase()));
    pod.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    pod.metadata.uid = Some(uid.clone());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(HASH.to_owned(), uid);
    annotations.insert(SOURCE.to_owned(), "file".to_owned());
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node_name.to_owned());
        // Nobody reaches a static pod's token; it has no account in the API.
        spec.automount_service_account_token = Some(false);
        let everything = k8s_openapi::api::core::v1::Toleration {
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            ..Default::default()
        };
        spec.tolerations.get_or_insert_default().push(everything);
    }
    check(&pod)?;
    Ok(pod)
}

/// A file is judged by the rules of the API: what those forbid, e.g. an unmasked /proc with the node's users, runs
/// nowhere.
fn check(pod: &Pod) -> Result<(), FileError> {
    let Some(kind) = podwire_api::by_gvk("", "v1", "Pod") else { return Ok(()) };
    let object = serde_json::to_value(pod).map_err(|error| FileError::NoPod(error.to_string()))?;
    let complaints = podwire_api::validate::create(kind, &object);
    if complaints.is_empty() {
        return Ok(());
    }
    Err(FileError::Invalid(podwire_api::validate::summary(&complaints)))
}

/// Whether an object of the API only shadows a pod from a file.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    spec::annotation(pod, MIRROR).is_some()
}

/// The mirrors that the API holds for this node, by namespace and name: their uid and the hash they show.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    mirrors: Mutex<BTreeMap<(String, String), (String, String)>>,
}

fn key(pod: &Pod) -> (String, String) {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

impl Mirrors {
    /// The API shows a mirror.
    pub(crate) fn seen(&self, mirror: &Pod) {
        let hash = spec::annotation(mirror, MIRROR).unwrap_or_default().to_owned();
        self.mirrors
            .lock()
            .expect("no holder panics")
            .insert(key(mirror), (spec::uid(mirror).to_owned(), hash));
    }

    /// The API no longer shows a mirror.
    pub(crate) fn gone(&self, mirror: &Pod) {
        let mut mirrors = self.mirrors.lock().expect("no holder panics");
        if mirrors.get(&key(mirror)).is_some_and(|(uid, _)| uid == spec::uid(mirror)) {
            mirrors.remove(&key(mirror));
        }
    }

    /// Mirrors of pods that no file wants any more.
    pub(crate) fn stale(&self, wanted: &BTreeMap<PodUid, Arc<Pod>>) -> Vec<spec::PodRef> {
        let mirrors = self.mirrors.lock().expect("no holder panics");
        let unwanted = mirrors.iter().filter(|(_, (_, hash))| !wanted.contains_key(hash.as_str()));
        unwanted
            .map(|((namespace, name), (uid, _))| spec::PodRef {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.as_str().into(),
            })
            .collect()
    }

    /// The uid of the mirror that shows exactly this pod.
    pub(crate) fn of(&self, pod: &Pod) -> Option<String> {
        let mirrors = self.mirrors.lock().expect("no holder panics");
        mirrors.get(&key(pod)).filter(|(_, hash)| hash == spec::uid(pod)).map(|(uid, _)| uid.clone())
    }
}

/// Makes the mirror of a static pod; tries until it is there or the kubelet ends.
pub(crate) async fn make_mirror(node: &Node, pod: &Pod) {
    let mut wait = Duration::from_millis(20);
    while let Err(error) = try_mirror(node, pod).await {
        if error.is_refused() {
            tracing::warn!(pod = %spec::PodRef::of(pod), error = %error, "mirror refused; the pod runs unseen");
            return;
        }
        tokio::select! {
            () = node.shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(10)),
        }
    }
}

async fn try_mirror(node: &Node, pod: &Pod) -> Result<(), ApiError> {
    let reference = spec::PodRef::of(pod);
    // A mirror belongs to its node's object, which may not be registered yet.
    let owner = node.api.get(&format!("/api/v1/nodes/{}", node.config.node_name)).await?;
    let mut object = json!(pod);
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    object["metadata"]["uid"] = Value::Null;
    object["metadata"]["annotations"][MIRROR] = json!(reference.uid.as_str());
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node",
        "name": node.config.node_name, "uid": owner["metadata"]["uid"], "controller": true}]);
    object["status"] = Value::Null;
    let path = format!("/api/v1/namespaces/{}/pods", reference.namespace);
    match node.api.json(Method::POST, &path, &object).await {
        Ok(made) => {
            if let Ok(made) = Pod::read(&made.to_string()) {
                node.mirrors.seen(&made);
            }
            Ok(())
        }
        // Another of the same name is there; the watch tells what becomes of it.
        Err(error) if error.code() == Some(409) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: a, image: i}]\n";

    #[test]
    fn a_file_becomes_a_pod_of_this_node() {
        let pod = parse(TEXT, "node-a", "/x").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-node-a"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(spec::restart_policy(&pod), "Always");
        assert!(spec::is_static(&pod) && spec::is_critical(&pod));
        assert_eq!(spec::uid(&pod).len(), 32);
    }

    #[test]
    fn another_content_or_place_is_another_pod() {
        let one = parse(TEXT, "n", "/x").unwrap();
        assert_eq!(spec::uid(&one), spec::uid(&parse(TEXT, "n", "/x").unwrap()));
        assert_ne!(spec::uid(&one), spec::uid(&parse(TEXT, "n", "/y").unwrap()));
        assert_ne!(
            spec::uid(&one),
            spec::uid(&parse(&TEXT.replace("image: i", "image: j"), "n", "/x").unwrap())
        );
    }

    #[test]
    fn a_file_is_judged_by_the_rules_of_the_api() {
        let unmasked = TEXT.replace("image: i", "image: i, securityContext: {procMount: Unmasked}");
        let refused = parse(&unmasked, "n", "/x").unwrap_err();
        assert!(refused.to_string().contains("`hostUsers` must be false to use `Unmasked`"), "{refused}");
        let own = unmasked.replace("spec:\n", "spec:\n  hostUsers: false\n");
        assert!(parse(&own, "n", "/x").is_ok());
        let both = own.replace("spec:\n", "spec:\n  hostPID: true\n");
        assert!(matches!(parse(&both, "n", "/x"), Err(FileError::Invalid(_))));
    }

    #[test]
    fn a_file_that_is_no_pod_is_left_out_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("good.yaml"), TEXT).unwrap();
        fs::write(dir.path().join("bad.yaml"), "{{{").unwrap();
        fs::write(dir.path().join("other.yaml"), "kind: Service").unwrap();
        fs::write(dir.path().join(".hidden.yaml"), TEXT).unwrap();
        assert_eq!(read_folder(dir.path(), "n").len(), 1);
        assert!(read_folder(Path::new("/nonexistent"), "n").is_empty());
    }
}
