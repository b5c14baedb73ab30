//! The life of the plugin: looks at the node, offers what the pools choose, and looks again when something changed.
//!
//! Tasks: one that looks and publishes what each resource offers; one that watches the kubelet's folder; one for each resource
//! (`endpoint`). They share nothing but `watch` channels.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use podwire_wire::unix::ListenError;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    endpoint::{Endpoint, KUBELET, Seen},
    events::{Events, Folders},
    inventory::{self, Inventory, Wanted},
    plan::{self, Conflict, Offer},
    tree::Tree,
};

/// How often the tree is read until the folders that matter are all watched.
const LOOKS: usize = 8;

/// What a plugin is made from.
#[derive(Debug)]
pub struct Settings {
    /// The pools.
    pub config: Config,
    /// The folder that holds `dev` and `sys`: `/` but for tests.
    pub root: PathBuf,
    /// The kubelet's folder of device plugins.
    pub kubelet_dir: PathBuf,
}

/// Why the plugin does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The root cannot be opened.
    #[error("look at the devices below {path:?}")]
    Tree {
        /// The root.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Pools that cannot be offered side by side.
    #[error("{0}")]
    Conflict(String),
    /// The kernel does not tell what changes.
    #[error("listen to changes of devices")]
    Events(#[source] io::Error),
    /// The kubelet's folder cannot be made or watched.
    #[error("watch the kubelet's folder {path:?}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A socket cannot be bound.
    #[error("serve a resource")]
    Listen(#[from] ListenError),
}

/// A plugin whose sockets are bound.
pub struct Plugin {
    looking: Looking,
    kubelet: Kubelet,
    endpoints: Vec<Endpoint>,
}

impl Settings {
    /// Looks at the node for the first time and binds a socket for each pool; runs on a tokio runtime.
    ///
    /// Netlink is listened to in the network namespace of the calling thread.
    pub fn build(self) -> Result<Plugin, StartError> {
        let opened = |source| StartError::Tree { path: self.root.clone(), source };
        let tree = Arc::new(Tree::open(&self.root).map_err(opened)?);
        let events = Events::listen(Wanted::by(&self.config).beyond_files()).map_err(StartError::Events)?;
        let mut looking =
            Looking { config: Arc::new(self.config), tree, events, offers: Vec::new(), said: Vec::new() };
        let found = looking.look();
        for left in &found.left_out {
            tracing::warn!(path = ?left.path, why = left.why, "a path that a pool names is left out");
        }
        let plan = plan::plan(&looking.config, &found);
        if !plan.conflicts.is_empty() {
            let all: Vec<String> = plan.conflicts.iter().map(Conflict::to_string).collect();
            return Err(StartError::Conflict(all.join("; ")));
        }
        let kubelet = Kubelet::watch(self.kubelet_dir)?;
        let mut endpoints = Vec::new();
        for offer in plan.offers {
            let (sender, receiver) = watch::channel(Arc::new(offer));
            endpoints.push(Endpoint::bind(&kubelet.folder, receiver)?);
            looking.offers.push(sender);
        }
        Ok(Plugin { looking, kubelet, endpoints })
    }
}

impl Plugin {
    /// Serves until `shutdown`; returns when the sockets are removed.
    pub async fn run(self, shutdown: CancellationToken) {
        let (sender, seen) = watch::channel(Seen::default());
        let names = self.endpoints.iter().map(Endpoint::name).collect();
        let tasks = TaskTracker::new();
        for endpoint in self.endpoints {
            tasks.spawn(endpoint.run(seen.clone(), shutdown.clone()));
        }
        tasks.spawn(self.kubelet.run(names, sender, shutdown.clone()));
        tasks.spawn(self.looking.run(shutdown));
        tasks.close();
        tasks.wait().await;
    }
}

/// What looks at the node.
struct Looking {
    config: Arc<Config>,
    tree: Arc<Tree>,
    events: Events,
    offers: Vec<watch::Sender<Arc<Offer>>>,
    /// Conflicts that were complained about.
    said: Vec<Conflict>,
}

impl Looking {
    /// Looks, and again until every folder that was looked into is watched: a change in between is not lost. Blocking.
    fn look(&mut self) -> Inventory {
        let mut found = inventory::take(&self.tree, &self.config);
        for _ in 0..LOOKS {
            if !self.events.watch(found.folders.iter().map(|folder| self.tree.outside(folder))) {
                break;
            }
            found = inventory::take(&self.tree, &self.config);
        }
        found
    }

    async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let changed = tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.events.changed() => changed,
            };
            if let Err(error) = changed {
                tracing::error!(%error, "changes of devices are no longer told; restart the plugin");
                return shutdown.cancelled().await;
            }
            let looked = tokio::task::spawn_blocking(move || {
                let found = self.look();
                (self, found)
            });
            // Only a defect in the look itself gets here; the offers stay what they are.
            let Ok((back, found)) = looked.await else { return shutdown.cancelled().await };
            self = back;
            self.publish(&found);
        }
    }

    fn publish(&mut self, found: &Inventory) {
        let plan = plan::plan(&self.config, found);
        for conflict in plan.conflicts.iter().filter(|conflict| !self.said.contains(conflict)) {
            tracing::error!(%conflict, "a device is not offered twice: the first pool keeps it");
        }
        self.said = plan.conflicts;
        for (sender, now) in self.offers.iter().zip(plan.offers) {
            sender.send_if_modified(|before| {
                let now = plan::carried(before, now);
                let changed = **before != now;
                if changed {
                    tell(before, &now);
                    *before = Arc::new(now);
                }
                changed
            });
        }
    }
}

/// Says which devices came, went, fell ill and recovered.
fn tell(before: &Offer, now: &Offer) {
    let resource = &now.pool.resource;
    for device in &now.devices {
        let old = before.devices.iter().find(|old| old.id == device.id);
        match (&device.trouble, old.map(|old| &old.trouble)) {
            (Some(why), Some(old)) if old.as_ref() != Some(why) => {
                tracing::warn!(resource, device = device.id, why, "a device cannot be used");
            }
            (Some(why), None) => {
                tracing::warn!(resource, device = device.id, why, "a device came and cannot be used")
            }
            (None, None) => tracing::info!(resource, device = device.id, "a device came"),
            (None, Some(Some(_))) => {
                tracing::info!(resource, device = device.id, "a device can be used again")
            }
            _ => {}
        }
    }
}

/// The kubelet's folder.
struct Kubelet {
    folder: PathBuf,
    events: Folders,
}

impl Kubelet {
    fn watch(folder: PathBuf) -> Result<Kubelet, StartError> {
        let failed = |source| StartError::Folder { path: folder.clone(), source };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let mut events = Folders::new().map_err(failed)?;
        watch_with_parent(&mut events, &folder).map_err(failed)?;
        Ok(Kubelet { folder, events })
    }

    /// Counts the kubelet's sockets that come, and ours that go.
    async fn run(mut self, ours: BTreeSet<String>, seen: watch::Sender<Seen>, shutdown: CancellationToken) {
        loop {
            let entry = tokio::select! {
                () = shutdown.cancelled() => return,
                entry = self.events.next() => entry,
            };
            match entry {
                Err(error) => {
                    tracing::error!(%error, "the kubelet's folder is no longer watched; restart the plugin");
                    return shutdown.cancelled().await;
                }
                Ok(entry) => match entry.name.as_deref() {
                    // Nobody knows what came: whatever it was is new.
                    None if entry.here => everything_is_new(&seen),
                    Some(KUBELET) if entry.here => seen.send_modify(|seen| seen.kubelet += 1),
                    Some(name) if ours.contains(name) && !entry.here => {
                        seen.send_modify(|seen| seen.lost += 1)
                    }
                    // The folder itself came or went: whatever is in it is new.
                    name if name.is_none() || self.is_folder(name) => self.anew(&seen),
                    _ => {}
                },
            }
        }
    }

    fn is_folder(&self, name: Option<&str>) -> bool {
        self.folder.file_name().and_then(|own| own.to_str()) == name
    }

    fn anew(&mut self, seen: &watch::Sender<Seen>) {
        match watch_with_parent(&mut self.events, &self.folder) {
            Ok(true) => everything_is_new(seen),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, folder = ?self.folder, "the kubelet's folder is not watched")
            }
        }
    }
}

fn everything_is_new(seen: &watch::Sender<Seen>) {
    seen.send_modify(|seen| (seen.kubelet, seen.lost) = (seen.kubelet + 1, seen.lost + 1));
}

/// The folder above tells when the folder itself is made anew.
fn watch_with_parent(events: &mut Folders, folder: &Path) -> io::Result<bool> {
    if let Some(parent) = folder.parent() {
        events.watch(parent)?;
    }
    events.watch(folder)
}
