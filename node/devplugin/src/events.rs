//! The kernel's word that a folder of devices, an interface or any device changed.
//!
//! Nothing is asked again and again: folders tell by inotify, interfaces and devices by netlink. What changed is not told; the
//! listener looks again.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use podwire_linux::notices::Notices;
use tokio::io::unix::AsyncFd;

/// Devices come as a folder, a file and a link in quick succession: all of them are looked at in one go.
const SETTLE: Duration = Duration::from_millis(20);
/// A node where devices come and go without end still has time for other things.
const PAUSE: Duration = Duration::from_millis(100);
/// Folders that are watched at most.
const MOST: usize = 1024;

/// Watched folders, as paths of this process.
pub(crate) struct Folders {
    watches: Watches,
    stream: EventStream<[u8; 4096]>,
    known: BTreeMap<PathBuf, WatchDescriptor>,
}

/// An entry of a watched folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name; none if the folder itself is meant, or if the kernel lost count.
    pub(crate) name: Option<String>,
    /// It is there now, or it is gone.
    pub(crate) here: bool,
}

impl Folders {
    pub(crate) fn new() -> io::Result<Folders> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        Ok(Folders { watches, stream: inotify.into_event_stream([0; 4096])?, known: BTreeMap::new() })
    }

    /// Watches a folder; says whether it was not watched before. One that is not there is told by the folder above.
    pub(crate) fn watch(&mut self, folder: &Path) -> io::Result<bool> {
        if self.known.len() >= MOST && !self.known.contains_key(folder) {
            return Err(io::Error::other(format!("more than {MOST} folders would have to be watched")));
        }
        let mask = WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MOVE
            | WatchMask::DELETE_SELF
            | WatchMask::ONLYDIR;
        match self.watches.add(folder, mask) {
            Ok(watch) => Ok(self.known.insert(folder.to_owned(), watch.clone()) != Some(watch)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The next change. Cancel safe.
    pub(crate) async fn next(&mut self) -> io::Result<Entry> {
        let Some(event) = self.stream.next().await else { return std::future::pending().await };
        let event = event?;
        if event.mask.contains(EventMask::IGNORED) {
            self.known.retain(|_, watch| *watch != event.wd);
        }
        let name = event.name.and_then(|name| name.to_str().map(str::to_owned));
        // What the kernel could not keep may have been anything that came.
        let came = EventMask::CREATE | EventMask::MOVED_TO | EventMask::Q_OVERFLOW;
        Ok(Entry { name, here: event.mask.intersects(came) })
    }
}

/// Everything that may change what the pools offer.
pub(crate) struct Events {
    folders: Folders,
    netlink: Vec<AsyncFd<Notices>>,
}

impl Events {
    /// Listens in the network namespace of the calling thread, to netlink only if files are not enough.
    pub(crate) fn listen(beyond_files: bool) -> io::Result<Events> {
        let mut netlink = Vec::new();
        if beyond_files {
            for notices in [Notices::links(), Notices::devices()] {
                netlink.push(readable(notices.map_err(io::Error::other)?)?);
            }
        }
        Ok(Events { folders: Folders::new()?, netlink })
    }

    /// Watches these folders, too; says whether one of them was not watched before.
    pub(crate) fn watch(&mut self, folders: impl IntoIterator<Item = PathBuf>) -> bool {
        let mut new = false;
        for folder in folders {
            match self.folders.watch(&folder) {
                Ok(fresh) => new |= fresh,
                Err(error) => {
                    tracing::warn!(?folder, %error, "a folder of devices is not watched; changes in it are not seen");
                }
            }
        }
        new
    }

    /// Returns when something changed and has come to rest. Cancel safe.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        tokio::time::sleep(PAUSE).await;
        let said = self.netlink.iter().map(|socket| spoken(socket).boxed());
        let netlink = async {
            if self.netlink.is_empty() {
                return std::future::pending().await;
            }
            futures::future::select_all(said).await.0
        };
        tokio::select! {
            entry = self.folders.next() => drop(entry?),
            said = netlink => said?,
        }
        tokio::time::sleep(SETTLE).await;
        while let Some(entry) = self.folders.next().now_or_never() {
            drop(entry?);
        }
        Ok(())
    }
}

#[expect(deprecated, reason = "the unsafe successor asks for what an owned descriptor already gives")]
fn readable(notices: Notices) -> io::Result<AsyncFd<Notices>> {
    AsyncFd::new(notices)
}

async fn spoken(socket: &AsyncFd<Notices>) -> io::Result<()> {
    loop {
        let mut ready = socket.readable().await?;
        let said = socket.get_ref().drain().map_err(io::Error::other)?;
        ready.clear_ready();
        if said {
            return Ok(());
        }
    }
}
