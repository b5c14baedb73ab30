//! What was typed about NRI plugins: the flags of our runtime, and the verbs of `nri`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::DataDir;

/// Flags that choose the NRI plugins of our runtime.
#[derive(Debug, Clone, Args)]
pub struct NriArgs {
    /// Where NRI plugins register (default: nri.sock in the node's run folder).
    #[arg(long)]
    pub nri_socket: Option<PathBuf>,
    /// Do not let NRI plugins connect.
    #[arg(long)]
    pub disable_nri: bool,
    /// Folder of NRI plugins to start, named NN-NAME (default: nri/plugins in the data folder; /opt/nri/plugins for
    /// the default one).
    #[arg(long)]
    pub nri_plugin_dir: Option<PathBuf>,
    /// Folder of their configuration, NN-NAME.conf or NAME.conf (default: nri/conf.d in the data folder;
    /// /etc/nri/conf.d for the default one).
    #[arg(long)]
    pub nri_plugin_config_dir: Option<PathBuf>,
    /// NRI plugins without which no pod is set up, by name.
    #[arg(long, value_delimiter = ',')]
    pub nri_required_plugins: Vec<String>,
    /// How long a pod waits for a required plugin that is not connected.
    #[arg(long, default_value = "10s", value_parser = crate::nri::duration)]
    pub nri_required_wait: Duration,
    /// How long an NRI plugin may take to register and to synchronize.
    #[arg(long, default_value = "5s", value_parser = crate::nri::duration)]
    pub nri_registration_timeout: Duration,
    /// How long an NRI plugin may take to answer.
    #[arg(long, default_value = "2s", value_parser = crate::nri::duration)]
    pub nri_request_timeout: Duration,
    /// How long one plugin may take that differs, as NAME=TIME; may be given more than once.
    #[arg(long, value_name = "NAME=TIME", value_delimiter = ',', value_parser = crate::nri::plugin_timeout)]
    pub nri_plugin_timeout: Vec<(String, Duration)>,
    /// Annotation by which a pod says that it may be set up while required NRI plugins are absent (default: none may).
    #[arg(long, value_name = "KEY")]
    pub nri_tolerate_missing_annotation: Option<String>,
    /// Namespaces in which that annotation counts.
    #[arg(long, value_delimiter = ',', default_value = "kube-system")]
    pub nri_tolerate_missing_namespaces: Vec<String>,
}

/// Verbs of `nri`.
#[derive(Debug, Subcommand)]
pub enum NriVerb {
    /// Show the plugins: place, events, calls, times, last error.
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        data: DataDir,
        /// Form: wide, json.
        #[arg(short, long)]
        output: Option<String>,
    },
    /// Show events and adjustments as they happen.
    Log {
        #[command(flatten)]
        data: DataDir,
        /// How many of those that have happened to show first.
        #[arg(long, default_value_t = 20)]
        tail: usize,
        /// End after those that have happened.
        #[arg(long)]
        no_follow: bool,
        /// Only those of a pod, as NAME or NAMESPACE/NAME.
        #[arg(long)]
        pod: Option<String>,
        /// Only those of a plugin, as NAME or NN-NAME.
        #[arg(long)]
        plugin: Option<String>,
        /// Form: json.
        #[arg(short, long)]
        output: Option<String>,
    },
}
