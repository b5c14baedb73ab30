//! The engine as an etcd: API v3 over gRPC, one member, no raft.
//!
//! `kv`, `watch`, `lease` and `maintenance` are the services, `server` the connections, `http` what is asked without gRPC. It does not know
//! users and roles (it answers as an etcd whose authentication is off) and its membership does not change.

mod auto_compaction;
mod hash;
mod health;
mod http;
mod kv;
mod lease;
mod maintenance;
mod server;
mod status;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use podwire_wire::etcd::ResponseHeader;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::auto_compaction::AutoCompaction;
pub(crate) use self::server::certificates;
pub use self::server::{Door, TlsError, TlsFiles, self_signed};
use crate::engine::index::{Retention, Then};
use crate::engine::{Engine, EngineConfig, default_quota, read};
use crate::{Revision, StoreError};

/// The version of etcd whose behaviour this is.
pub const ETCD_VERSION: &str = "3.6.13";

/// The term of the only member: it was elected when it started, and nobody ever stood against it.
const TERM: u64 = 2;

/// How to be an etcd.
#[derive(Debug, Clone)]
pub struct EtcdConfig {
    /// The directory that belongs to the store alone; made when absent.
    pub dir: PathBuf,
    /// The member's name.
    pub name: String,
    /// What the cluster is called, for its number.
    pub token: String,
    /// Where clients are told to connect.
    pub client_urls: Vec<String>,
    /// What the member says to other members; there are none.
    pub peer_urls: Vec<String>,
    /// Most bytes that can be asked for; more is refused until something is compacted.
    pub quota_bytes: u64,
    /// The largest request.
    pub max_request_bytes: usize,
    /// Most operations in one transaction.
    pub max_txn_ops: usize,
    /// What is compacted without being asked.
    pub auto_compaction: Option<AutoCompaction>,
    /// How often an idle watch is told how far it has come.
    pub progress_interval: Duration,
    /// Acknowledge what a power cut may still lose.
    pub no_sync: bool,
    /// The log is replaced by a snapshot when it reaches this size (or twice what must be kept, if more).
    pub snapshot_log_bytes: u64,
}

impl EtcdConfig {
    /// etcd's usual settings for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            name: "default".into(),
            token: "etcd-cluster".into(),
            client_urls: vec!["http://localhost:2379".into()],
            peer_urls: vec!["http://localhost:2380".into()],
            quota_bytes: default_quota(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            max_request_bytes: 3 << 19,
            max_txn_ops: 128,
            auto_compaction: None,
            progress_interval: Duration::from_secs(600),
            no_sync: false,
            snapshot_log_bytes: 64 << 20,
        }
    }

    /// Takes the directory, restores what it holds and starts the writer.
    pub fn open(self) -> Result<Etcd, StoreError> {
        // What is in memory besides the newest values: enough for watchers that keep up.
        let retention = Retention {
            events: 10_000,
            bytes: 8 << 20,
            age_ms: 60_000,
            settles_ms: 5_000,
            settled_bytes: 1 << 20,
            then: Then::OnDisk,
        };
        let config = EngineConfig {
            dir: self.dir.clone(),
            retention,
            quota_bytes: self.quota_bytes,
            snapshot_log_bytes: self.snapshot_log_bytes,
            first: 1,
            no_sync: self.no_sync,
        };
        let engine = config.open()?;
        let cluster_id = number(&[&self.token, &self.peer_urls.join(",")]);
        let member_id = number(&[&self.token, &self.peer_urls.join(","), &self.name]);
        let (stopping, reading) = (CancellationToken::new(), TaskTracker::new());
        let inner = Inner { engine, config: self, cluster_id, member_id, stopping, reading };
        Ok(Etcd(Arc::new(inner)))
    }
}

/// A number that follows from names, as etcd's does, and is never 0.
fn number(names: &[&str]) -> u64 {
    use sha2::Digest;
    let mut hasher = sha2::Sha256::new();
    for name in names {
        hasher.update(name.as_bytes());
        hasher.update([0]);
    }
    let digest = hasher.finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)).max(1)
}

/// An open etcd.
#[derive(Clone)]
pub struct Etcd(Arc<Inner>);

struct Inner {
    engine: Engine,
    config: EtcdConfig,
    cluster_id: u64,
    member_id: u64,
    /// Ends watches.
    stopping: CancellationToken,
    /// Who reads a snapshot from the disk.
    reading: TaskTracker,
}

impl Etcd {
    fn engine(&self) -> &Engine {
        &self.0.engine
    }

    fn config(&self) -> &EtcdConfig {
        &self.0.config
    }

    /// A header for an answer at a revision.
    fn header(&self, revision: Revision) -> Option<ResponseHeader> {
        self.filled(read::header(revision))
    }

    /// A header for an answer at the newest revision.
    fn header_now(&self) -> Option<ResponseHeader> {
        self.header(self.engine().read().revision())
    }

    /// Says in a header who gave the answer.
    fn filled(&self, header: Option<ResponseHeader>) -> Option<ResponseHeader> {
        let revision = header.map_or(0, |header| header.revision);
        let (cluster_id, member_id) = (self.0.cluster_id, self.0.member_id);
        Some(ResponseHeader { cluster_id, member_id, revision, raft_term: TERM })
    }

    /// Finishes what was begun and gives the directory back.
    pub async fn close(&self) {
        self.0.stopping.cancel();
        self.engine().close().await;
    }
}
