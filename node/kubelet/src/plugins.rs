//! Plugins that make themselves known by a socket in the folder `plugins_registry`.
//!
//! Tasks: one that looks at the folder whenever something in it changes, and one for each socket, which registers the
//! plugin behind it and takes it back when the socket is gone. What a plugin is for is a [`Handler`]'s business.
//! <https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/pluginmanager>

pub(crate) mod serve;
pub(crate) mod socket;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use inotify::{Inotify, WatchMask};
use podwire_wire::plugin_registration::{
    InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tonic::transport::Channel;

use self::socket::bounded;

/// How long a plugin may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The folder is looked at this often though nothing was heard.
const RELOOK: Duration = Duration::from_secs(60);
/// Between attempts at a plugin that does not register: at first, doubling up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(120));
/// More sockets and deeper folders are nobody's plugins.
const MOST_SOCKETS: usize = 1024;
const DEEPEST: usize = 3;

/// A plugin that wants to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// What it calls itself; for a device plugin its resource.
    pub(crate) name: String,
    /// Where it serves.
    pub(crate) endpoint: PathBuf,
    /// The versions it speaks.
    pub(crate) versions: Vec<String>,
}

/// Whoever plugins of one kind are for.
pub(crate) trait Handler: Send + Sync {
    /// The kind, e.g. `DevicePlugin`.
    fn kind(&self) -> &'static str;

    /// A plugin came; an error is told to it, and it is asked again later.
    fn register(&self, plugin: Announced) -> BoxFuture<'_, Result<Registered, String>>;
}

/// One plugin's registration: it ends when this is dropped, whoever else serves at the same place by then.
pub(crate) type Registered = DropGuard;

/// The handlers of all kinds.
pub(crate) type Handlers = Arc<Vec<Arc<dyn Handler>>>;

/// A socket file: another one of the same name is another one, and one whose mode was changed is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// Inodes are used again. `None`: the file system does not know.
    born: Option<SystemTime>,
}

/// Follows the folder until `shutdown`.
pub(crate) async fn run(folder: PathBuf, handlers: Handlers, shutdown: CancellationToken) {
    if let Err(error) = fs::create_dir_all(&folder) {
        tracing::error!(?folder, %error, "the folder of plugins cannot be made; none will be found in it");
    }
    let tasks = TaskTracker::new();
    let mut known: BTreeMap<PathBuf, (Identity, CancellationToken)> = BTreeMap::new();
    let mut notices = notices(&folder);
    loop {
        let path = folder.clone();
        // Ignored: a look that panicked has seen nothing new.
        if let Ok(found) = tokio::task::spawn_blocking(move || look(&path)).await {
            if let Some(notices) = &notices {
                watch(notices, &found.folders);
            }
            known.retain(|path, (identity, gone)| {
                let same = found.sockets.get(path) == Some(identity);
                if !same {
                    gone.cancel();
                }
                same
            });
            for (path, identity) in found.sockets {
                if !known.contains_key(&path) {
                    let gone = shutdown.child_token();
                    known.insert(path.clone(), (identity, gone.clone()));
                    tasks.spawn(attend(path, handlers.clone(), gone));
                }
            }
        }
        let noticed = async {
            match &mut notices {
                Some(stream) => {
                    stream.next().await;
                    // What came with it is looked at in one go.
                    while stream.next().now_or_never().flatten().is_some() {}
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = noticed => {}
            () = tokio::time::sleep(RELOOK) => {}
        }
    }
    tasks.close();
    tasks.wait().await;
}

type Notices = inotify::EventStream<[u8; 4096]>;

fn notices(folder: &Path) -> Option<Notices> {
    let opened = Inotify::init().and_then(|inotify| inotify.into_event_stream([0; 4096]));
    match opened {
        Ok(stream) => {
            watch(&stream, &[folder.to_owned()]);
            Some(stream)
        }
        Err(error) => {
            tracing::warn!(?folder, %error, "folder of plugins not watched; it is looked at slowly");
            None
        }
    }
}

fn watch(notices: &Notices, folders: &[PathBuf]) {
    let mask = WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM | WatchMask::DELETE;
    for folder in folders {
        // A folder that is watched already is not watched twice.
        if let Err(error) = notices.watches().add(folder, mask | WatchMask::DONT_FOLLOW) {
            tracing::debug!(?folder, %error, "folder of plugins not watched");
        }
    }
}

#[derive(Default)]
struct Found {
    sockets: BTreeMap<PathBuf, Identity>,
    folders: Vec<PathBuf>,
}

/// Every socket below `folder` that is not hidden; links are not followed.
fn look(folder: &Path) -> Found {
    let mut found = Found::default();
    let mut rest = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = rest.pop() {
        // Ignored: a folder that went meanwhile holds nothing.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if hidden || found.sockets.len() >= MOST_SOCKETS {
                continue;
            }
            if meta.is_dir() && depth < DEEPEST && rest.len() < MOST_SOCKETS {
                rest.push((entry.path(), depth + 1));
            } else if meta.file_type().is_socket() {
                let identity = Identity { device: meta.dev(), inode: meta.ino(), born: meta.created().ok() };
                found.sockets.insert(entry.path(), identity);
            }
        }
        found.folders.push(folder);
    }
    found
}

/// Registers the plugin behind a socket, again and again until it works, and takes it back when the socket is gone.
async fn attend(path: PathBuf, handlers: Handlers, gone: CancellationToken) {
    let mut wait = RETRY.0;
    let registered = loop {
        let tried = tokio::select! {
            () = gone.cancelled() => return,
            tried = register(&path, &handlers) => tried,
        };
        match tried {
            Ok(registered) => break registered,
            Err(error) => tracing::warn!(socket = ?path, %error, "plugin not registered; will try again"),
        }
        tokio::select! {
            () = gone.cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(RETRY.1),
        }
    };
    gone.cancelled().await;
    tracing::info!(socket = ?path, "the plugin's socket is not followed any more");
    drop(registered);
}

async fn register(path: &Path, handlers: &Handlers) -> Result<Registered, String> {
    let channel = socket::dial(path, PATIENCE).await.map_err(|error| error.to_string())?;
    let mut client = RegistrationClient::new(channel);
    let info = bounded("GetInfo", PATIENCE, client.get_info(InfoRequest {})).await;
    let info = info.map_err(|error| error.to_string())?;
    let taken = take(path, handlers, info).await;
    notify(client, taken.as_ref().err().cloned()).await;
    taken
}

async fn take(path: &Path, handlers: &Handlers, info: PluginInfo) -> Result<Registered, String> {
    let PluginInfo { r#type: kind, name, endpoint, supported_versions: versions } = info;
    let Some(handler) = handlers.iter().find(|handler| handler.kind() == kind) else {
        return Err(format!("no handler registered for plugin type: {kind} at socket {}", path.display()));
    };
    let endpoint = if endpoint.is_empty() { path.to_owned() } else { PathBuf::from(endpoint) };
    if !endpoint.is_absolute() {
        return Err(format!("the endpoint {endpoint:?} is not an absolute path"));
    }
    let registered = handler.register(Announced { name: name.clone(), endpoint: endpoint.clone(), versions });
    let registered = registered.await?;
    tracing::info!(kind, name, ?endpoint, "plugin registered");
    Ok(registered)
}

/// Tells the plugin what came of it.
async fn notify(mut client: RegistrationClient<Channel>, error: Option<String>) {
    let status = RegistrationStatus { plugin_registered: error.is_none(), error: error.unwrap_or_default() };
    let told = bounded("NotifyRegistrationStatus", PATIENCE, client.notify_registration_status(status)).await;
    if let Err(error) = told {
        tracing::warn!(%error, "the plugin did not hear what came of its registration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_are_plugins_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let bind = |path: PathBuf| std::os::unix::net::UnixListener::bind(path).unwrap();
        let _kept = [bind(dir.path().join("one.sock")), bind(deep.join("two")), bind(dir.path().join(".no"))];
        fs::write(dir.path().join("file.sock"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("one.sock"), dir.path().join("link.sock")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
        let found = look(dir.path());
        let names: Vec<_> = found.sockets.keys().map(|path| path.strip_prefix(dir.path()).unwrap()).collect();
        assert_eq!(names, [Path::new("a/b/two"), Path::new("one.sock")]);
        assert_eq!(found.folders.len(), 3);
    }

    #[test]
    fn a_socket_is_the_same_after_a_change_of_its_mode_and_another_one_after_it_was_made_anew() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.sock");
        let bind = || std::os::unix::net::UnixListener::bind(&path).unwrap();
        let first = bind();
        let seen = look(dir.path()).sockets;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(look(dir.path()).sockets, seen);
        drop(first);
        fs::remove_file(&path).unwrap();
        let _second = bind();
        assert_ne!(look(dir.path()).sockets, seen);
    }
}
