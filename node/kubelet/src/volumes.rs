//! A pod's volumes on this node: made before its containers, refreshed while it runs, removed after it.

pub mod atomic;
mod payload;
mod subpath;

use std::{
    collections::BTreeMap,
    fs, io,
    os::{fd::OwnedFd, unix::fs::FileTypeExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume};
use podwire_api::quantity::Quantity;
use podwire_linux::beneath;
use podwire_wire::cri;
use rustix::fs::{Gid, Mode};

use crate::{
    env,
    node::Node,
    paths, resources,
    spec::{self, PodRef},
};

pub(crate) use subpath::MountError;

/// Where a volume is found on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder or file of the node.
    Path(PathBuf),
    /// A folder that the kubelet fills from the API; containers only read it.
    Content(PathBuf),
    /// The content of an image, which the runtime mounts.
    Image {
        /// Image's name.
        reference: String,
    },
}

/// A pod's volumes, ready to be mounted.
#[derive(Clone, Debug, Default)]
pub struct Mounted {
    /// Place by volume name.
    pub places: BTreeMap<String, Place>,
    /// When something in them must be renewed.
    pub renew_at: Option<Timestamp>,
}

/// Why a volume is not there; the text is what the event shows.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Something is missing or refused.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {message}")]
    SetUp {
        /// Volume's name.
        volume: String,
        /// Why.
        message: String,
    },
    /// Nobody here can mount such a volume.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : volume type is not supported on this node")]
    Unsupported {
        /// Volume's name.
        volume: String,
    },
    /// The pod's own folders.
    #[error("error making pod data directories: {path:?}: {source}")]
    Folders {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl VolumeError {
    /// The event's reason.
    pub fn reason(&self) -> &'static str {
        match self {
            VolumeError::Folders { .. } => "FailedToMakePodDataDirectories",
            _ => "FailedMount",
        }
    }

    fn set_up(volume: &str, message: impl ToString) -> VolumeError {
        VolumeError::SetUp { volume: volume.to_owned(), message: message.to_string() }
    }
}

/// Why a volume cannot be put in its place.
#[derive(Debug, thiserror::Error)]
enum PlaceError {
    /// The file system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no such type of hostPath volumes.
    #[error("{0} is an invalid volume type")]
    Type(String),
    /// What is there is of another type.
    #[error("hostPath type check failed: {path} is not a {noun}")]
    Not { path: String, noun: &'static str },
}

/// What has to be done on the node for one volume, with everything from elsewhere already fetched.
enum Work {
    EmptyDir(EmptyDirVolumeSource),
    HostPath(HostPathVolumeSource),
    Content {
        plugin: &'static str,
        payload: atomic::Payload,
    },
    /// The runtime does it all.
    Image {
        reference: String,
    },
}

/// Makes the pod's folders and every volume; doing it again refreshes what has changed.
pub(crate) async fn prepare(node: &Arc<Node>, pod: &Arc<Pod>) -> Result<Mounted, VolumeError> {
    let mut renew_at = None;
    let mut works = Vec::new();
    for volume in spec::spec(pod).volumes.iter().flatten() {
        works.push((volume.name.clone(), fetch(node, pod, volume, &mut renew_at).await?));
    }
    let (node, pod) = (node.clone(), pod.clone());
    let root = node.config.root_dir.clone();
    let done = move || make_all(&node, &pod, works);
    let places = tokio::task::spawn_blocking(done)
        .await
        .map_err(|error| VolumeError::Folders { path: root, source: io::Error::other(error) })??;
    Ok(Mounted { places, renew_at })
}

async fn fetch(
    node: &Arc<Node>,
    pod: &Pod,
    volume: &Volume,
    renew_at: &mut Option<Timestamp>,
) -> Result<Work, VolumeError> {
    if let Some(source) = &volume.empty_dir {
        return Ok(Work::EmptyDir(source.clone()));
    }
    if let Some(source) = &volume.host_path {
        return Ok(Work::HostPath(source.clone()));
    }
    if let Some(source) = &volume.image {
        return Ok(Work::Image { reference: source.reference.clone().unwrap_or_default() });
    }
    let content = payload::of(node, pod, volume, renew_at).await;
    match content.map_err(|message| VolumeError::set_up(&volume.name, message))? {
        Some((plugin, payload)) => Ok(Work::Content { plugin, payload }),
        None => Err(VolumeError::Unsupported { volume: volume.name.clone() }),
    }
}

/// Blocks: everything that touches the node's disks.
fn make_all(
    node: &Node,
    pod: &Pod,
    works: Vec<(String, Work)>,
) -> Result<BTreeMap<String, Place>, VolumeError> {
    let own = paths::pod(Path::new(""), spec::uid(pod)).join("volumes");
    let logs = paths::pod_logs(Path::new(""), &PodRef::of(pod));
    for (base, below) in [(&node.config.root_dir, own), (&node.config.log_dir, logs)] {
        make_folder(base, &below, 0o750)
            .map_err(|source| VolumeError::Folders { path: base.join(below), source })?;
    }
    let mut places = BTreeMap::new();
    for (name, work) in works {
        let place = make(node, pod, &name, work).map_err(|message| VolumeError::set_up(&name, message))?;
        places.insert(name, place);
    }
    Ok(places)
}

fn make(node: &Node, pod: &Pod, name: &str, work: Work) -> Result<Place, PlaceError> {
    let config = &node.config;
    let at = |plugin| paths::volume(Path::new(""), spec::uid(pod), plugin, name);
    match work {
        Work::EmptyDir(source) => {
            let below = at("kubernetes.io~empty-dir");
            empty_dir(&config.root_dir, &below, &source, pod, node.allocatable.memory)?;
            Ok(Place::Path(config.root_dir.join(below)))
        }
        Work::HostPath(source) => {
            host_path(&source)?;
            Ok(Place::Path(PathBuf::from(source.path)))
        }
        Work::Image { reference } => Ok(Place::Image { reference }),
        Work::Content { plugin, payload } => {
            // What is secret stays off the disk where the node has a place for it.
            let secret = matches!(plugin, "kubernetes.io~secret" | "kubernetes.io~projected");
            let base = config.memory_dir.as_ref().filter(|_| secret).unwrap_or(&config.root_dir);
            let below = at(plugin);
            make_folder(base, &below, 0o755)
                .and_then(|folder| atomic::write(folder, &payload, fs_group(pod)))?;
            Ok(Place::Content(base.join(below)))
        }
    }
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let own = spec::spec(pod).security_context.as_ref().and_then(|s| s.fs_group)?;
    u32::try_from(own).ok()
}

/// The folder `below` the kubelet's folder `base`; if it is new it has this mode.
fn make_folder(base: &Path, below: &Path, mode: u32) -> io::Result<OwnedFd> {
    let parent = folders(base, below.parent().unwrap_or(Path::new("")))?;
    let last = below.file_name().unwrap_or_default();
    beneath::make::folder(parent, last, mode).map(|(folder, _)| folder).map_err(plain)
}

/// Folders below one of the kubelet's own, which is made if this is the first pod.
pub(crate) fn folders(base: &Path, below: &Path) -> io::Result<OwnedFd> {
    let root = match beneath::folder(base) {
        Err(error) if error.is_absent() => {
            fs::create_dir_all(base)?;
            beneath::folder(base)
        }
        other => other,
    };
    beneath::make::folders(root.map_err(plain)?, below, 0o755).map_err(plain)
}

/// The kernel's own word where there is one.
pub(crate) fn plain(error: beneath::Error) -> io::Error {
    match error {
        beneath::Error::Io { source, .. } => source,
        other => io::Error::other(other),
    }
}

fn empty_dir(
    base: &Path,
    below: &Path,
    source: &EmptyDirVolumeSource,
    pod: &Pod,
    capacity: i64,
) -> io::Result<()> {
    let parent = folders(base, below.parent().unwrap_or(Path::new("")))?;
    let name = below.file_name().unwrap_or_default();
    let (mut folder, mut fresh) = beneath::make::folder(&parent, name, 0o777).map_err(plain)?;
    let device = |of: &OwnedFd| rustix::fs::fstat(of).map(|stat| stat.st_dev);
    if source.medium.as_deref() == Some("Memory") && device(&folder)? == device(&parent)? {
        let limit = source.size_limit.as_ref().map(|text| Quantity::from(text).value());
        let pod_limit = resources::pod_limits(pod).value("memory");
        let limits = [limit, Some(pod_limit)].into_iter().flatten().filter(|size| *size > 0);
        let size = limits.fold(capacity, i64::min);
        podwire_linux::mount::tmpfs_at(&folder, u64::try_from(size).unwrap_or_default(), 0o777)
            .map_err(io::Error::other)?;
        folder = beneath::make::folder(&parent, name, 0o777).map_err(plain)?.0;
        fresh = true;
    }
    if fresh {
        match fs_group(pod) {
            None => rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o777))?,
            Some(group) => {
                rustix::fs::fchown(&folder, None, Some(Gid::from_raw(group)))?;
                rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o2777))?;
            }
        }
    }
    Ok(())
}

/// Checks the type a hostPath volume asks for, and makes what may be made.
fn host_path(source: &HostPathVolumeSource) -> Result<(), PlaceError> {
    let path = Path::new(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let found = fs::metadata(path).ok();
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(|m| test(&m.file_type()));
    let (ok, noun) = match kind {
        "" => (true, ""),
        "DirectoryOrCreate" if found.is_none() => {
            fs::create_dir_all(path)?;
            (true, "")
        }
        "FileOrCreate" if found.is_none() => {
            // New or not at all: a link that points to nothing must not decide where the file is made.
            fs::File::create_new(path)?;
            (true, "")
        }
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(fs::FileType::is_socket), "socket file"),
        "CharDevice" => (is(fs::FileType::is_char_device), "character device"),
        "BlockDevice" => (is(fs::FileType::is_block_device), "block device"),
        other => return Err(PlaceError::Type(other.to_owned())),
    };
    if ok { Ok(()) } else { Err(PlaceError::Not { path: source.path.clone(), noun }) }
}

/// The mounts a container gets from the pod's volumes. Blocks: sub paths are opened, made and bound.
pub(crate) fn container_mounts(
    root: &Path,
    pod: &Pod,
    container: &Container,
    mounted: &Mounted,
    env: &[(String, String)],
) -> Result<Vec<cri::Mount>, MountError> {
    let mut all = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let place = mounted
            .places
            .get(&mount.name)
            .ok_or_else(|| MountError::NoVolume { name: mount.name.clone() })?;
        let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let sub = match (&mount.sub_path, &mount.sub_path_expr) {
            (_, Some(expression)) if !expression.is_empty() => Some(env::expand(expression, lookup)),
            (Some(path), _) if !path.is_empty() => Some(path.clone()),
            _ => None,
        };
        let read_only = mount.read_only.unwrap_or(false);
        let mut entry = cri::Mount {
            container_path: absolute(&mount.mount_path),
            readonly: read_only,
            propagation: match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => cri::MountPropagation::PropagationHostToContainer as i32,
                Some("Bidirectional") => cri::MountPropagation::PropagationBidirectional as i32,
                _ => cri::MountPropagation::PropagationPrivate as i32,
            },
            recursive_read_only: read_only && mount.recursive_read_only.as_deref() == Some("Enabled"),
            ..Default::default()
        };
        match place {
            Place::Image { reference } => {
                entry.readonly = true;
                entry.image = Some(cri::ImageSpec { image: reference.clone(), ..Default::default() });
                entry.image_sub_path = sub.unwrap_or_default();
            }
            Place::Path(path) | Place::Content(path) => {
                entry.readonly |= matches!(place, Place::Content(_));
                let host = match sub {
                    None => path.clone(),
                    Some(sub) => {
                        let target = paths::subpath(
                            Path::new(""),
                            spec::uid(pod),
                            &mount.name,
                            &container.name,
                            index,
                        );
                        subpath::bind(path, &sub, root, &target)?
                    }
                };
                entry.host_path = host.to_string_lossy().into_owned();
            }
        }
        all.push(entry);
    }
    Ok(all)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Unmounts the pod's volumes; when `remove`, its folders and logs go too.
pub(crate) async fn tear_down(node: &Arc<Node>, pod: &PodRef, remove: bool) -> io::Result<()> {
    let folder = paths::pod(&node.config.root_dir, &pod.uid);
    let secrets = node.config.memory_dir.as_ref().map(|memory| paths::pod(memory, &pod.uid));
    let log_dir = node.config.log_dir.clone();
    let pod = pod.clone();
    let work = move || -> io::Result<()> {
        if folder.exists() {
            podwire_linux::mount::detach_all_under(&folder).map_err(io::Error::other)?;
        }
        if !remove {
            return Ok(());
        }
        beneath::remove_path(&folder)?;
        if let Some(secrets) = secrets {
            beneath::remove_path(&secrets)?;
        }
        if pod.name.is_empty() {
            // Only the uid of a pod long gone is known.
            for name in crate::leftovers::log_folders(&log_dir, &pod.uid) {
                beneath::remove_path(&log_dir.join(name))?;
            }
            return Ok(());
        }
        beneath::remove_path(&paths::pod_logs(&log_dir, &pod))
    };
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn what_the_kubelet_fills_is_read_only_in_every_container() {
        let dir = tempfile::tempdir().unwrap();
        let pod = pod(serde_json::json!({"containers": [{"name": "c", "volumeMounts": [
            {"name": "content", "mountPath": "/content"}, {"name": "own", "mountPath": "/own"},
        ]}]}));
        let places = BTreeMap::from([
            ("content".to_owned(), Place::Content(dir.path().join("content"))),
            ("own".to_owned(), Place::Path(dir.path().join("own"))),
        ]);
        let mounted = Mounted { places, renew_at: None };
        let container = &spec::spec(&pod).containers[0];
        let mounts = container_mounts(dir.path(), &pod, container, &mounted, &[]).unwrap();
        let read_only: Vec<bool> = mounts.iter().map(|mount| mount.readonly).collect();
        assert_eq!(read_only, [true, false]);
    }

    #[test]
    fn an_empty_dir_has_its_mode_and_group_and_is_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let pod = pod(serde_json::json!({"containers": [], "securityContext": {"fsGroup": 77}}));
        let below = Path::new("pods/u/volumes/kubernetes.io~empty-dir/v");
        for _ in 0..2 {
            empty_dir(dir.path(), below, &EmptyDirVolumeSource::default(), &pod, 0).unwrap();
        }
        let made = fs::metadata(dir.path().join(below)).unwrap();
        assert_eq!((made.gid(), made.mode() & 0o7777), (77, 0o2777));

        let outside = tempfile::tempdir().unwrap();
        let before = fs::metadata(outside.path()).unwrap().mode();
        let planted = Path::new("pods/u/volumes/kubernetes.io~empty-dir/w");
        symlink(outside.path(), dir.path().join(planted)).unwrap();
        assert!(empty_dir(dir.path(), planted, &EmptyDirVolumeSource::default(), &pod, 0).is_err());
        assert_eq!(fs::metadata(outside.path()).unwrap().mode(), before);
    }

    #[test]
    fn a_file_of_a_host_path_is_not_made_where_a_link_points() {
        let dir = tempfile::tempdir().unwrap();
        symlink(dir.path().join("elsewhere"), dir.path().join("link")).unwrap();
        let source = |name: &str| HostPathVolumeSource {
            path: dir.path().join(name).to_string_lossy().into_owned(),
            type_: Some("FileOrCreate".to_owned()),
        };
        assert!(host_path(&source("link")).is_err());
        assert!(!dir.path().join("elsewhere").exists());
        host_path(&source("file")).unwrap();
        host_path(&source("file")).unwrap();
    }
}
