//! The driver put together, from what was asked for to its end. What is prepared then stays prepared.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use podwire_client::Client;
use podwire_linux::{
    netns::{self, Netns},
    notices::Notices,
    rtnl,
};
use podwire_nri::stub::{Late, Stub};
use podwire_wire::unix::ListenError;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    book::Book,
    cdi::Folder,
    door::{Door, Service},
    figures::Figures,
    filter::Filter,
    health::{Watched, Watcher},
    hooks::{Hooks, INDEX},
    inventory::{self, Inventory},
    keeper::{Absent, Keeper, Word},
    plan::devices::Offer,
    publications::Publications,
    publisher::{Looker, Offered, Publisher, readable},
    record::{self, Record},
    teller::Teller,
};

/// Words that may wait for the keeper.
const BACKLOG: usize = 1024;

/// How the driver is set up.
#[derive(Clone)]
pub struct Config {
    /// The API server.
    pub client: Client,
    /// The name of this node, and of its pool of devices.
    pub node_name: String,
    /// The driver's name.
    pub driver_name: String,
    /// The kubelet's folder of `plugins` and `plugins_registry`.
    pub kubelet_dir: PathBuf,
    /// Where the runtime listens for plugins.
    pub nri_socket: PathBuf,
    /// The driver's own folder: what is prepared, and namespaces while devices are in them.
    pub state_dir: PathBuf,
    /// Where the runtime reads which device files containers are given.
    pub cdi_dir: PathBuf,
    /// Where sysfs is.
    pub sysfs: PathBuf,
    /// Which devices are offered, as an expression.
    pub filter: String,
    /// Devices that are made on demand.
    pub offers: Vec<Offer>,
    /// Links that are never offered, nor what is a port of theirs, such as the bridge of pods.
    pub skip: Vec<String>,
}

/// Why the driver cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is none of a driver.
    #[error("{0:?} is not the name of a driver")]
    Name(String),
    /// The filter is no expression.
    #[error("the filter is not understood: {0}")]
    Filter(String),
    /// The node's network namespace.
    #[error("find the node's network namespace")]
    Namespace(#[from] netns::Error),
    /// What an earlier run has prepared.
    #[error("read what was prepared earlier")]
    Record(#[from] record::Error),
    /// The node cannot be looked at.
    #[error("look at the node's network devices")]
    Inventory(#[from] inventory::Error),
    /// The kernel does not tell what changes.
    #[error("listen to changes of the node's network")]
    Notices(#[source] rtnl::Error),
    /// The same, by the runtime of this program.
    #[error("wait for changes of the node's network")]
    Events(#[source] std::io::Error),
    /// A device is not home.
    #[error("give devices back: {0}")]
    GiveBack(String),
    /// The kubelet's sockets.
    #[error("listen for the kubelet")]
    Listen(#[from] ListenError),
}

impl Config {
    /// Reads what was prepared earlier, looks at the node and binds the kubelet's sockets; runs on a tokio runtime, on a thread
    /// that is in the node's network namespace.
    pub fn build(self) -> Result<Driver, Error> {
        if !is_driver_name(&self.driver_name) {
            return Err(Error::Name(self.driver_name));
        }
        let filter = Filter::parse(&self.filter).map_err(Error::Filter)?;
        let home = Netns::current()?;
        let (record, book) = Record::open(&self.state_dir)?;
        let (absent, away) = watch::channel(book.absent());
        let (attached, watched) = watch::channel(book.attached());
        let (health, healths) = watch::channel(Arc::default());
        let notices =
            readable(Notices::links_everywhere().map_err(Error::Notices)?).map_err(Error::Events)?;
        let watcher = Watcher { notices, attached: watched, seen: health };
        let (offered, seen) = watch::channel(Arc::default());
        let mut looker = Looker {
            inventory: Inventory::of(Netns::current()?, self.sysfs.clone()),
            notices: readable(Notices::network().map_err(Error::Notices)?).map_err(Error::Events)?,
            offers: self.offers.clone(),
            skip: self.skip.clone(),
            filter,
            absent: away,
            offered,
        };
        looker.look()?;
        let (teller, figures) = (Teller::new(&self.driver_name), Figures::default());
        let publications = Publications::default();
        let (words, heard) = mpsc::channel(BACKLOG);
        let service = Service {
            driver: self.driver_name.clone(),
            pool: self.node_name.clone(),
            client: self.client.clone(),
            words: words.clone(),
            offered: seen.clone(),
            teller: teller.clone(),
            figures: figures.clone(),
            publications: publications.clone(),
            health: healths,
        };
        let door = Door::bind(&self.kubelet_dir, service)?;
        let keeper = Parts { book, record, home, absent, attached };
        Ok(Driver {
            config: self,
            watcher,
            looker,
            seen,
            teller,
            words,
            heard,
            door,
            keeper,
            figures,
            publications,
        })
    }
}

impl Error {
    /// Whether another driver has the folder, as the one before has during an upgrade until it ends.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Error::Record(record::Error::InUse { .. }))
    }
}

/// Gives back every device that is away by the record in a folder, for a node whose driver is not to come back, and takes away
/// what the runtime was told of character devices; the calling thread is in the node's network namespace.
pub fn give_all_back(state_dir: &Path, cdi_dir: &Path) -> Result<(), Error> {
    let (record, book) = Record::open(state_dir)?;
    let mut keeper = Keeper {
        driver: crate::NAME.to_owned(),
        book,
        record,
        home: Netns::current()?,
        pins: state_dir.join("netns"),
        cdi: Folder { path: cdi_dir.to_owned(), driver: crate::NAME.to_owned() },
        absent: watch::channel(Absent::new()).0,
        attached: watch::channel(Vec::new()).0,
        teller: Teller::new(crate::NAME),
        figures: Figures::default(),
    };
    let given = keeper.give_back(|_, _| true).map_err(|error| Error::GiveBack(error.to_string()));
    keeper.sweep();
    let removed = keeper.book.claims.values().try_for_each(|claim| keeper.cdi.remove(claim));
    given.and(removed.map_err(|error| Error::GiveBack(error.to_string())))
}

/// A name as the API server takes it for a driver.
fn is_driver_name(name: &str) -> bool {
    let label = |part: &str| {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && part.chars().all(good) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= 63 && name.split('.').all(label)
}

struct Parts {
    book: Book,
    record: Record,
    home: Netns,
    absent: watch::Sender<Absent>,
    attached: watch::Sender<Vec<Watched>>,
}

/// The driver, its sockets bound.
pub struct Driver {
    config: Config,
    watcher: Watcher,
    looker: Looker,
    seen: watch::Receiver<Arc<Offered>>,
    teller: Teller,
    words: mpsc::Sender<Word>,
    heard: mpsc::Receiver<Word>,
    door: Door,
    keeper: Parts,
    figures: Figures,
    publications: Publications,
}

impl Driver {
    /// Figures in the text form that Prometheus reads.
    pub fn metrics(&self) -> impl Fn() -> String + Send + Sync + Clone + use<> {
        let (seen, figures) = (self.seen.clone(), self.figures.clone());
        move || figures.text(seen.borrow().published.len())
    }

    /// Works until `shutdown`. Devices stay where they are, and whoever comes after knows of them.
    pub async fn run(self, shutdown: CancellationToken) {
        let Driver {
            config,
            watcher,
            looker,
            seen,
            teller,
            words,
            heard,
            door,
            keeper,
            figures,
            publications,
        } = self;
        let keeper = Keeper {
            driver: config.driver_name.clone(),
            book: keeper.book,
            record: keeper.record,
            home: keeper.home,
            pins: config.state_dir.join("netns"),
            cdi: Folder { path: config.cdi_dir.clone(), driver: config.driver_name.clone() },
            absent: keeper.absent,
            attached: keeper.attached,
            teller: teller.clone(),
            figures: figures.clone(),
        };
        let keeping = tokio::task::spawn_blocking(move || keeper.run(heard));
        let hooks = Arc::new(Hooks::new(&config.driver_name, words, figures.clone()));
        // No pod goes on without the driver's word, as long as it is connected.
        let stub = Stub {
            socket: config.nri_socket.clone(),
            late: Late::Refuse,
            ..Stub::new(config.driver_name.as_str(), INDEX)
        };
        let publisher = Publisher {
            client: config.client.clone(),
            driver: config.driver_name.clone(),
            node: config.node_name.clone(),
            offered: seen,
            figures,
            publications,
        };
        tokio::join!(
            stub.run(hooks.clone(), shutdown.clone()),
            door.run(shutdown.clone()),
            looker.run(shutdown.clone()),
            watcher.run(shutdown.clone()),
            publisher.run(shutdown.clone()),
            teller.run(config.client.clone(), shutdown),
        );
        // The last one that could tell the keeper anything: it comes to rest.
        drop(hooks);
        if let Err(error) = keeping.await {
            tracing::error!(%error, "the keeper of devices broke off");
        }
    }
}
