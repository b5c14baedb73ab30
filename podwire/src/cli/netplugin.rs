//! Flags of `podwire netplugin`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Connection, TraceDir};

/// Verbs of `netplugin`.
#[derive(Debug, Clone, Subcommand)]
pub enum NetpluginVerb {
    /// Say whether a connection is allowed, and by which rule of which policy, from the kernel's table.
    Explain(ExplainArgs),
}

/// Flags of `netplugin explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// The pod: NAME, NAMESPACE/NAME or one of its addresses.
    pub pod: String,
    /// Where it connects to: an address or a pod, then :PORT, then /TCP, /UDP or /SCTP.
    #[arg(long, value_name = "ADDRESS[:PORT[/PROTOCOL]]", required_unless_present = "from")]
    pub to: Option<String>,
    /// Who connects to it, and to which of its ports, in the same form.
    #[arg(long, value_name = "ADDRESS[:PORT[/PROTOCOL]]", conflicts_with = "to")]
    pub from: Option<String>,
    /// Name of the nf_tables table (default: that of the node in --data-dir).
    #[arg(long)]
    pub table: Option<String>,
    #[command(flatten)]
    pub connection: Connection,
}

/// Flags of `netplugin`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NetpluginArgs {
    /// What else to do than to enforce policies.
    #[command(subcommand)]
    pub verb: Option<NetpluginVerb>,
    /// Credentials of the plugin (default: those of the pod it runs in).
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where a pod finds the API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub service_host: Option<String>,
    /// The port there.
    #[arg(long, env = "KUBERNETES_SERVICE_PORT", hide = true)]
    pub service_port: Option<u16>,
    /// Where the runtime listens for NRI plugins.
    #[arg(long, default_value = podwire_nri::stub::DEFAULT_SOCKET)]
    pub nri_socket: PathBuf,
    /// Name of this node (default: the host's name).
    #[arg(long, alias = "hostname-override")]
    pub node_name: Option<String>,
    /// Addresses of the node's pods: there only pods may speak whose rules stand (default: what the node's object says).
    #[arg(long, value_delimiter = ',')]
    pub pod_cidr: Vec<String>,
    /// A link of the node behind which there are only pods, such as a bridge of their own; repeatable.
    #[arg(long)]
    pub pod_link: Vec<String>,
    /// Addresses that PodNetworks may give to pods beside those of CNI, as blocks; others stay closed (default: none).
    #[arg(long, value_delimiter = ',', value_name = "CIDR")]
    pub pod_network_addresses: Vec<String>,
    /// Name of the nf_tables table, of the family inet.
    #[arg(long, default_value = "podwire_policy")]
    pub table: String,
    #[command(flatten)]
    pub at: TraceDir,
}
