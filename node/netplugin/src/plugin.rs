//! The plugin put together: sources, keeper and hooks, until it is told to end. The table stays.

use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use podwire_client::Client;
use podwire_nri::stub::{Late, Stub};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::denials;
use crate::hooks::{Hooks, INDEX, NAME};
use crate::keeper::{Keeper, Status};
use crate::links;
use crate::metrics;
use crate::notices;
use crate::plan::Planner;
use crate::plan::tables::Family;
use crate::pod_network::{chosen::Networks, status};
use crate::source::Sources;
use crate::table::{self, Frame, Table};

/// Words that may wait for the keeper.
const BACKLOG: usize = 1024;

/// How the plugin is set up.
#[derive(Clone)]
pub struct Config {
    /// The API server.
    pub client: Client,
    /// The name of this node.
    pub node_name: String,
    /// Where the runtime listens for plugins.
    pub nri_socket: PathBuf,
    /// The nf_tables table, of the family inet.
    pub table: String,
    /// The blocks that this node's pods have their addresses from.
    pub pod_cidrs: Vec<IpNet>,
    /// Links of this machine behind which there are only pods.
    pub pod_links: Vec<String>,
    /// Blocks of which a PodNetwork may give a pod addresses that may speak then.
    pub further_addresses: Vec<IpNet>,
}

/// Why the plugin cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The floor could not be laid.
    #[error("lay the floor that keeps unknown pods closed")]
    Floor(#[from] table::Error),
    /// A thread.
    #[error("start the thread that owns the table")]
    Thread(#[source] std::io::Error),
}

impl Config {
    fn frame(&self) -> Frame {
        Frame {
            families: vec![Family::V4, Family::V6],
            floor: self.pod_cidrs.iter().map(IpNet::trunc).collect(),
            links: self.pod_links.clone(),
        }
    }

    /// Lays the floor, in the calling thread's network namespace; from now on it stands, whatever becomes of the plugin.
    pub fn build(self) -> Result<NetPlugin, Error> {
        links::prepare();
        let mut table = Table::open(&self.table, self.frame())?;
        table.lay_floor()?;
        let (status, _) = watch::channel(Status::default());
        Ok(NetPlugin { config: self, table, status })
    }
}

/// The plugin, its floor laid.
pub struct NetPlugin {
    config: Config,
    table: Table,
    status: watch::Sender<Status>,
}

impl NetPlugin {
    /// Figures in the text form that Prometheus reads.
    pub fn metrics(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let (status, table) = (self.status.subscribe(), self.config.table.clone());
        move || metrics::text(&status.borrow(), &table)
    }

    /// Keeps policies in place until `shutdown`; what stands then stays.
    pub async fn run(self, shutdown: CancellationToken) {
        let NetPlugin { config, table, status } = self;
        let (words, heard) = mpsc::channel(BACKLOG);
        let planner = Planner::new(&config.node_name, &[Family::V4, Family::V6]);
        let told = status.subscribe();
        let (statuses, writer) = status::channel();
        let (notices, teller) = notices::channel();
        let networks = Networks::default();
        let further = (networks.clone(), config.further_addresses.clone());
        let keeper = Keeper::new(planner, table, heard, status, statuses.clone(), further);
        let runtime = tokio::runtime::Handle::current();
        let keeping = tokio::task::spawn_blocking(move || keeper.run(&runtime));
        let sources = Sources { client: config.client.clone(), words: words.clone(), notices };
        let hooks = Arc::new(Hooks::new(words, told, sources.clone(), statuses, networks));
        // No runtime goes on without the plugin's word, as long as it is connected.
        let stub = Stub { socket: config.nri_socket.clone(), late: Late::Refuse, ..Stub::new(NAME, INDEX) };
        tokio::join!(
            stub.run(hooks.clone(), shutdown.clone()),
            denials::log(config.table.clone(), shutdown.clone()),
            writer.run(config.client.clone(), shutdown.clone()),
            teller.run(config.client.clone(), shutdown.clone()),
            sources.run(shutdown),
        );
        drop(hooks);
        if let Err(error) = keeping.await {
            tracing::error!(%error, "the keeper of the table broke off");
        }
    }
}
