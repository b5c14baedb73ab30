//! What was typed for `podwire snapshot` and `podwire migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ClusterArgs;

/// Verbs about snapshots.
#[derive(Debug, Clone, Subcommand)]
pub enum SnapshotVerb {
    /// Save what a store holds, while it runs.
    Save(SaveArgs),
    /// Make a store of a snapshot, in an empty folder.
    Restore(RestoreArgs),
    /// Check a snapshot and say what it holds, as JSON.
    Status {
        /// The snapshot.
        file: PathBuf,
    },
}

/// Flags of `snapshot save`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub struct SaveArgs {
    /// The file to write.
    pub file: PathBuf,
    /// The folder of an embedded store: `store` in a node's data folder.
    #[arg(long, value_name = "FOLDER", group = "source")]
    pub from: Option<PathBuf>,
    /// Client URLs of `podwire etcd`; of the real etcd the snapshot is for its own tools.
    #[arg(long, value_delimiter = ',', value_name = "URL", group = "source")]
    pub endpoints: Vec<String>,
    /// Who signs the certificates of https members.
    #[arg(long, value_name = "FILE", requires = "endpoints")]
    pub cacert: Option<PathBuf>,
    /// The client's certificate.
    #[arg(long, value_name = "FILE", requires_all = ["endpoints", "key"])]
    pub cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires_all = ["endpoints", "cert"])]
    pub key: Option<PathBuf>,
}

/// Flags of `snapshot restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The snapshot.
    pub file: PathBuf,
    /// The folder to make: `store` in a node's data folder, or the one that `podwire etcd --data-dir` names.
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
    /// Revisions to skip, so that clients of the old store notice.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub bump_revision: u64,
}

/// Which way objects move.
#[derive(Debug, Clone, Subcommand)]
pub enum MigrateVerb {
    /// From an embedded store into an etcd cluster that has no objects.
    ToEtcd(MigrateArgs),
    /// From an etcd cluster into a new embedded store.
    FromEtcd(MigrateArgs),
}

/// Flags of `migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// The folder of the embedded store: `store` in a node's data folder.
    pub folder: PathBuf,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}
