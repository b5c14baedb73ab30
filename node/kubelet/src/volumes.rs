//! A pod's volumes on this node: made before its containers, refreshed while it runs, removed after it.

pub mod atomic;
mod payload;
mod subpath;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume};
use podwire_wire::cri;

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

/// Makes the pod's folders and every volume; doing it again refreshes what has changed.
pub(crate) async fn prepare(node: &Arc<Node>, pod: &Pod) -> Result<Mounted, VolumeError> {
    let root = &node.config.root_dir;
    let uid = spec::uid(pod);
    for path in
        [paths::pod(root, uid).join("volumes"), paths::pod_logs(&node.config.log_dir, &PodRef::of(pod))]
    {
        make_folder(&path, 0o750).map_err(|source| VolumeError::Folders { path, source })?;
    }
    let mut mounted = Mounted::default();
    for volume in spec::spec(pod).volumes.iter().flatten() {
        let place = one(node, pod, volume, &mut mounted.renew_at).await?;
        mounted.places.insert(volume.name.clone(), place);
    }
    Ok(mounted)
}

async fn one(
    node: &Arc<Node>,
    pod: &Pod,
    volume: &Volume,
    renew_at: &mut Option<Timestamp>,
) -> Result<Place, VolumeError> {
    let root = &node.config.root_dir;
    let name = &volume.name;
    let failed = |error: io::Error| VolumeError::set_up(name, error);
    if let Some(source) = &volume.empty_dir {
        let path = paths::volume(root, spec::uid(pod), "kubernetes.io~empty-dir", name);
        empty_dir(&path, source, pod, node.config.memory_capacity).map_err(failed)?;
        return Ok(Place::Path(path));
    }
    if let Some(source) = &volume.host_path {
        host_path(source).map_err(|message| VolumeError::set_up(name, message))?;
        return Ok(Place::Path(PathBuf::from(&source.path)));
    }
    if let Some(source) = &volume.image {
        return Ok(Place::Image { reference: source.reference.clone().unwrap_or_default() });
    }
    let Some((plugin, payload)) = payload::of(node, pod, volume, renew_at)
        .await
        .map_err(|message| VolumeError::set_up(name, message))?
    else {
        return Err(VolumeError::Unsupported { volume: name.clone() });
    };
    // What is secret stays off the disk where the node has a place for it.
    let secret = matches!(plugin, "kubernetes.io~secret" | "kubernetes.io~projected");
    let base = node.config.memory_dir.as_ref().filter(|_| secret).unwrap_or(root);
    let path = paths::volume(base, spec::uid(pod), plugin, name);
    make_folder(&path, 0o755).map_err(failed)?;
    let group = fs_group(pod);
    atomic::write(&path, &payload, group).map_err(failed)?;
    Ok(Place::Path(path))
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let own = spec::spec(pod).security_context.as_ref().and_then(|s| s.fs_group)?;
    u32::try_from(own).ok()
}

fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn empty_dir(path: &Path, source: &EmptyDirVolumeSource, pod: &Pod, capacity: i64) -> io::Result<()> {
    let fresh = !path.is_dir();
    if fresh {
        fs::create_dir_all(path)?;
    }
    if source.medium.as_deref() == Some("Memory") && !is_mount(path)? {
        let limit = source.size_limit.as_ref().map(resources::whole).filter(|size| *size > 0);
        let pod_limit =
            resources::pod_limits(pod).get("memory").map(resources::whole).filter(|size| *size > 0);
        let size = [limit, pod_limit, Some(capacity)].into_iter().flatten().min().unwrap_or(capacity);
        podwire_linux::mount::tmpfs(path, u64::try_from(size).unwrap_or_default(), 0o777)
            .map_err(io::Error::other)?;
    }
    if fresh {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        if let Some(group) = fs_group(pod) {
            chown(path, None, Some(group))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o2777))?;
        }
    }
    Ok(())
}

/// Whether something is mounted on the folder: its device differs from its parent's.
fn is_mount(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let parent = path.parent().unwrap_or(path);
    Ok(fs::metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// Checks the type a hostPath volume asks for, and makes what may be made.
fn host_path(source: &HostPathVolumeSource) -> Result<(), String> {
    let path = Path::new(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let found = fs::metadata(path).ok();
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(|m| test(&m.file_type()));
    let (ok, noun) = match kind {
        "" => (true, ""),
        "DirectoryOrCreate" if found.is_none() => {
            fs::create_dir_all(path).map_err(|e| e.to_string())?;
            (true, "")
        }
        "FileOrCreate" if found.is_none() => {
            fs::File::create(path).map_err(|e| e.to_string())?;
            (true, "")
        }
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(fs::FileType::is_socket), "socket file"),
        "CharDevice" => (is(fs::FileType::is_char_device), "character device"),
        "BlockDevice" => (is(fs::FileType::is_block_device), "block device"),
        other => return Err(format!("{other} is an invalid volume type")),
    };
    if ok { Ok(()) } else { Err(format!("hostPath type check failed: {} is not a {noun}", source.path)) }
}

/// The mounts a container gets from the pod's volumes.
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
            Place::Path(path) => {
                let host = match sub {
                    None => path.clone(),
                    Some(sub) => {
                        let target =
                            paths::subpath(root, spec::uid(pod), &mount.name, &container.name, index);
                        subpath::bind(path, &sub, &target)?
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
        remove_tree(&folder)?;
        if let Some(secrets) = secrets {
            remove_tree(&secrets)?;
        }
        if pod.name.is_empty() {
            // Only the uid of a pod long gone is known.
            for name in crate::leftovers::log_folders(&log_dir, &pod.uid) {
                remove_tree(&log_dir.join(name))?;
            }
            return Ok(());
        }
        remove_tree(&paths::pod_logs(&log_dir, &pod))
    };
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
