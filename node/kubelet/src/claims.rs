//! Claims of dynamic resources: prepared by their drivers before a pod's sandbox is run, handed to its containers, and given
//! back when nothing of it runs any more. The DRA manager.
//!
//! Which claim is prepared for whom is one [`book`] under one lock, and a checkpoint that is written before a driver is
//! first asked and before a sandbox relies on its answer. What a pod cannot have it waits for: it never runs without.
//! Tasks: one per driver (`driver`), and [`run`], which deletes slices at the start and undoes what pods that are no more
//! have left.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

pub(crate) mod book;
mod checkpoint;
pub(crate) mod driver;
mod health;
mod prepare;
pub(crate) mod resolve;
mod slices;
mod told;
mod traced;
mod unprepare;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use podwire_wire::ids::PodUid;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    book::{Book, Key},
    driver::Drivers,
};
pub(crate) use self::{prepare::PrepareError, told::GivenError, unprepare::UnprepareError};
use crate::{api::Api, inbox::Signal, node::Inboxes};

/// How claims are prepared.
#[derive(Clone, Debug)]
pub struct ClaimSettings {
    /// The folder of the checkpoint.
    pub root: PathBuf,
    /// How long a driver may take to prepare or to unprepare.
    pub deadline: Duration,
    /// How long a pod's end waits for a driver that does not unprepare its claims; `None` is for ever, as upstream has it.
    pub unprepare_timeout: Option<Duration>,
    /// How long a driver may be away before its resource slices are deleted.
    pub grace: Duration,
    /// Drivers that set pods up as NRI plugins of the same name: no sandbox with a claim of theirs is run without them.
    pub nri_drivers: Vec<String>,
}

impl ClaimSettings {
    /// The defaults, with the checkpoint in `root`.
    pub fn at(root: impl Into<PathBuf>) -> ClaimSettings {
        ClaimSettings {
            root: root.into(),
            deadline: Duration::from_secs(45),
            unprepare_timeout: Some(Duration::from_secs(300)),
            grace: Duration::from_secs(30),
            nri_drivers: ["dra.net", "net.podwire.dev"].map(str::to_owned).to_vec(),
        }
    }
}

#[derive(Default)]
struct State {
    book: Book,
    drivers: Drivers,
    /// Pods that could not have their claims, with the drivers of these: they try again when one comes.
    stalled: BTreeMap<PodUid, BTreeSet<String>>,
}

impl State {
    /// Who has been given any of these devices.
    fn users_of(&self, driver: &str, devices: &[(String, String)]) -> BTreeSet<PodUid> {
        let has = |entry: &&book::Entry| {
            let own = entry.drivers.get(driver).into_iter().flatten();
            own.into_iter()
                .any(|one| devices.iter().any(|(pool, name)| one.pool == *pool && one.name == *name))
        };
        self.book.claims().values().filter(has).flat_map(|entry| entry.pods.iter().cloned()).collect()
    }
}

/// What [`Claims`] is made from.
pub(crate) struct Parts {
    pub(crate) settings: ClaimSettings,
    pub(crate) api: Api,
    pub(crate) node_name: String,
    pub(crate) inboxes: Arc<Inboxes>,
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

/// The claims of the node.
pub(crate) struct Claims {
    settings: ClaimSettings,
    api: Api,
    node_name: String,
    inboxes: Arc<Inboxes>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    boot_id: String,
    state: Mutex<State>,
    /// Held while the checkpoint is written, so that an older one never follows a newer one.
    writing: Mutex<()>,
    /// Rung when a driver came.
    came: watch::Sender<()>,
    /// Rung when drivers are no longer at work on a claim.
    freed: watch::Sender<()>,
    /// Whether all pods have been heard of.
    settled: watch::Sender<bool>,
}

impl Claims {
    /// What an earlier kubelet left is taken over.
    pub(crate) fn open(parts: Parts) -> Claims {
        let Parts { settings, api, node_name, inboxes, tasks, shutdown } = parts;
        let boot_id = podwire_linux::boot::id().unwrap_or_default();
        let book = recover(&settings.root, &boot_id);
        Claims {
            state: Mutex::new(State { book, ..State::default() }),
            settings,
            api,
            node_name,
            inboxes,
            tasks,
            shutdown,
            boot_id,
            writing: Mutex::new(()),
            came: watch::channel(()).0,
            freed: watch::channel(()).0,
            settled: watch::channel(false).0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the book panics")
    }

    /// Tells pods that their devices are in another condition.
    fn tell(&self, pods: &BTreeSet<PodUid>) {
        for pod in pods {
            self.inboxes.signal(pod, Signal::DevicesChanged);
        }
    }

    /// Whether the pod's end has to wait for its claims.
    pub(crate) fn holds(&self, pod: &str) -> bool {
        self.state().book.holds(pod)
    }

    /// All pods have been heard of: what others have left can be undone.
    pub(crate) fn settle(&self) {
        self.settled.send_replace(true);
    }

    /// Writes the checkpoint; returns when one is written that is at least as new as this call. Cancel safe.
    async fn save(self: &Arc<Self>) -> io::Result<()> {
        let own = self.clone();
        let write = move || {
            let _turn = own.writing.lock().expect("no writer panics");
            let bytes = checkpoint::encode(&own.state().book, &own.boot_id);
            checkpoint::write(&own.settings.root, &bytes)
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
    }
}

/// Claims that somebody asks drivers about; they are anybody's again when it is dropped.
struct Busy<'a> {
    claims: &'a Claims,
    keys: Vec<Key>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.claims.state().book.release(self.keys.iter());
        self.claims.freed.send_replace(());
    }
}

fn recover(folder: &Path, boot_id: &str) -> Book {
    match checkpoint::read(folder, boot_id) {
        Ok(None) => Book::default(),
        Ok(Some((book, sound))) => {
            if !sound {
                tracing::warn!(
                    ?folder,
                    "the checkpoint of claims has a wrong checksum; it is used all the same"
                );
            }
            book
        }
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(
                ?folder,
                error,
                "the checkpoint of claims is lost; what is prepared is not known"
            );
            Book::default()
        }
    }
}

/// Deletes the slices of drivers that have yet to come, and undoes what pods that are no more have left, until `shutdown`.
pub(crate) async fn run(claims: Arc<Claims>, shutdown: CancellationToken) {
    let work = async { tokio::join!(claims.wipe(None), claims.reconcile()) };
    tokio::select! {
        () = shutdown.cancelled() => {}
        _ = work => {}
    }
}
