//! What was typed for `podwire etcd`: etcd's own flags, by their names and by its environment variables.

use std::path::PathBuf;

use clap::{Args, Parser};

/// The program when it is called by the name `etcd`.
#[derive(Debug, Parser)]
#[command(name = "etcd", version = VERSION, about = "etcd's API v3 on Podwire's store: a cluster of one member", args_override_self = true)]
pub struct EtcdCli {
    #[command(flatten)]
    pub args: EtcdArgs,
}

const VERSION: &str = concat!("Version: 3.6.13 (podwire ", env!("CARGO_PKG_VERSION"), ")");

/// Flags of `etcd`.
#[derive(Debug, Clone, Args)]
pub struct EtcdArgs {
    /// Name of this member.
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    pub name: String,
    /// Folder of the data (default: NAME.etcd).
    #[arg(long, env = "ETCD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where clients are listened for.
    #[arg(
        long,
        env = "ETCD_LISTEN_CLIENT_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2379"
    )]
    pub listen_client_urls: Vec<String>,
    /// Where clients are told to connect.
    #[arg(
        long,
        env = "ETCD_ADVERTISE_CLIENT_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2379"
    )]
    pub advertise_client_urls: Vec<String>,
    /// Where health and metrics are told besides.
    #[arg(long, env = "ETCD_LISTEN_METRICS_URLS", value_delimiter = ',')]
    pub listen_metrics_urls: Vec<String>,
    /// The clients' certificate of this server.
    #[arg(long, env = "ETCD_CERT_FILE")]
    pub cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, env = "ETCD_KEY_FILE")]
    pub key_file: Option<PathBuf>,
    /// Who signs the certificates of clients.
    #[arg(long, env = "ETCD_TRUSTED_CA_FILE")]
    pub trusted_ca_file: Option<PathBuf>,
    /// Clients must show a certificate.
    #[arg(long, env = "ETCD_CLIENT_CERT_AUTH", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub client_cert_auth: bool,
    /// Speak TLS with a certificate that is made at the start, if none is named.
    #[arg(long, env = "ETCD_AUTO_TLS", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub auto_tls: bool,
    /// Acknowledge writes that a power cut may still lose.
    #[arg(long, env = "ETCD_UNSAFE_NO_FSYNC", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub unsafe_no_fsync: bool,
    /// How --auto-compaction-retention is read: periodic or revision.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_MODE", default_value = "periodic")]
    pub auto_compaction_mode: String,
    /// What is kept when nobody compacts: hours, or a time (5m), or a number of revisions; 0 keeps all.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_RETENTION", default_value = "0")]
    pub auto_compaction_retention: String,
    /// Most bytes that are kept; 0 is 2 GiB or a quarter of the memory.
    #[arg(long, env = "ETCD_QUOTA_BACKEND_BYTES", default_value_t = 0)]
    pub quota_backend_bytes: i64,
    /// The largest request.
    #[arg(long, env = "ETCD_MAX_REQUEST_BYTES", default_value_t = 3 << 19)]
    pub max_request_bytes: usize,
    /// Most operations in a transaction.
    #[arg(long, env = "ETCD_MAX_TXN_OPS", default_value_t = 128)]
    pub max_txn_ops: usize,
    /// How often an idle watch is told how far it has come.
    #[arg(
        long,
        alias = "experimental-watch-progress-notify-interval",
        env = "ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL",
        default_value = "10m"
    )]
    pub watch_progress_notify_interval: String,
    /// What is logged: debug, info, warn, error.
    #[arg(long, env = "ETCD_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub without_effect: WithoutEffect,
}

/// Flags about the cluster; there is one member.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// Where other members would be listened for: nobody is.
    #[arg(
        long,
        env = "ETCD_LISTEN_PEER_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2380"
    )]
    pub listen_peer_urls: Vec<String>,
    /// Where other members would connect.
    #[arg(
        long,
        env = "ETCD_INITIAL_ADVERTISE_PEER_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2380"
    )]
    pub initial_advertise_peer_urls: Vec<String>,
    /// The members, NAME=URL: this one only.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER", value_delimiter = ',')]
    pub initial_cluster: Vec<String>,
    /// new or existing; a cluster of one is what its folder holds.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_STATE", default_value = "new")]
    pub initial_cluster_state: String,
    /// What the cluster's number is made of.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_TOKEN", default_value = "etcd-cluster")]
    pub initial_cluster_token: String,
}

/// Flags that are taken, so that the same command line starts either, and change nothing here.
#[derive(Debug, Clone, Args)]
#[rustfmt::skip]
#[allow(dead_code, reason = "nobody asks for them")]
pub struct WithoutEffect {
    #[arg(long, hide = true)] heartbeat_interval: Option<String>,
    #[arg(long, hide = true)] election_timeout: Option<String>,
    #[arg(long, hide = true)] snapshot_count: Option<String>,
    #[arg(long, hide = true)] max_snapshots: Option<String>,
    #[arg(long, hide = true)] max_wals: Option<String>,
    #[arg(long, hide = true)] wal_dir: Option<String>,
    #[arg(long, hide = true)] logger: Option<String>,
    #[arg(long, hide = true)] log_outputs: Option<String>,
    #[arg(long, hide = true)] log_format: Option<String>,
    #[arg(long, hide = true)] metrics: Option<String>,
    #[arg(long, hide = true)] peer_cert_file: Option<String>,
    #[arg(long, hide = true)] peer_key_file: Option<String>,
    #[arg(long, hide = true)] peer_trusted_ca_file: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)] peer_client_cert_auth: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)] strict_reconfig_check: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)] pre_vote: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)] enable_pprof: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)] initial_election_tick_advance: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)] experimental_initial_corrupt_check: Option<Option<String>>,
    #[arg(long, hide = true)] experimental_corrupt_check_time: Option<String>,
    #[arg(long, hide = true)] feature_gates: Option<String>,
    #[arg(long, hide = true)] grpc_keepalive_min_time: Option<String>,
    #[arg(long, hide = true)] grpc_keepalive_interval: Option<String>,
    #[arg(long, hide = true)] grpc_keepalive_timeout: Option<String>,
    #[arg(long, hide = true)] max_concurrent_streams: Option<String>,
    #[arg(long, hide = true)] auth_token: Option<String>,
    #[arg(long, hide = true)] tls_min_version: Option<String>,
    #[arg(long, hide = true)] cipher_suites: Option<String>,
    #[arg(long, hide = true)] cors: Option<String>,
    #[arg(long, hide = true)] host_whitelist: Option<String>,
}
