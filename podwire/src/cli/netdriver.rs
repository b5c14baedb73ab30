//! Flags of `podwire netdriver`, and of the driver in `up`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};
use podwire_netdriver::{DEFAULT_FILTER, NAME};

use super::{DrillArgs, TraceDir};

/// What is offered.
#[derive(Debug, Clone, Args)]
pub struct OfferArgs {
    /// Devices that are made for pods on one that stays: KIND:PARENT:COUNT with macvlan, ipvlan or veth (of a bridge),
    /// vlan:PARENT:FIRST-LAST, dummy::COUNT; repeatable. The parent itself is not offered then.
    #[arg(long = "network-driver-offer", alias = "offer", value_name = "OFFER", value_delimiter = ',')]
    pub offer: Vec<String>,
    /// Which devices are offered: an expression over their attributes; empty: all that can go.
    #[arg(long = "network-driver-filter", alias = "filter", value_name = "CEL", default_value = DEFAULT_FILTER)]
    pub filter: String,
}

/// Flags of the driver in `up`.
#[derive(Debug, Clone, Args)]
pub struct NetworkDriverArgs {
    /// Also offer network devices of this node to claims of pods, as the DRA driver dra.net.
    #[arg(long)]
    pub network_driver: bool,
    #[command(flatten)]
    pub offers: OfferArgs,
}

/// Verbs of `netdriver`.
#[derive(Debug, Clone, Subcommand)]
pub enum NetdriverVerb {
    /// Try a network driver, ours or another's: kill it, hang it, restart it and cut it off at each of its arrows while pods
    /// with claims come and go; count pods that ran without their device, devices that are lost or shared, objects that are
    /// stuck. Exits with 1 if there are any. Runs on the node, as root.
    Drill(DrillArgs),
}

/// Flags of `netdriver`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NetdriverArgs {
    /// What else to do than to offer devices.
    #[command(subcommand)]
    pub verb: Option<NetdriverVerb>,
    /// Credentials of the driver (default: those of the pod it runs in).
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where a pod finds the API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub service_host: Option<String>,
    /// The port there.
    #[arg(long, env = "KUBERNETES_SERVICE_PORT", hide = true)]
    pub service_port: Option<u16>,
    /// Name of this node, and of its pool of devices (default: the host's name).
    #[arg(long, alias = "node-name")]
    pub hostname_override: Option<String>,
    /// Name of the driver.
    #[arg(long, default_value = NAME)]
    pub driver_name: String,
    /// Where /metrics and /healthz are served.
    #[arg(long, default_value = ":9177", value_parser = address)]
    pub bind_address: SocketAddr,
    /// The kubelet's folder of plugins and plugins_registry.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub kubelet_root_dir: PathBuf,
    /// Where the runtime listens for NRI plugins.
    #[arg(long, default_value = podwire_nri::stub::DEFAULT_SOCKET)]
    pub nri_socket: PathBuf,
    /// What is prepared, and namespaces of pods while devices are in them.
    #[arg(long, default_value = "/var/run/podwire-netdriver")]
    pub state_dir: PathBuf,
    /// Where the runtime reads which device files containers are given.
    #[arg(long, default_value = crate::node_parts::CDI_DIR)]
    pub cdi_dir: PathBuf,
    /// A device of the node that is never offered, nor what is a port of it, such as the bridge of pods; repeatable.
    #[arg(long, value_name = "NAME")]
    pub keep: Vec<String>,
    #[command(flatten)]
    pub offers: OfferArgs,
    #[command(flatten)]
    pub at: TraceDir,
}

/// `:9177` means every address, as upstream writes it.
fn address(text: &str) -> Result<SocketAddr, String> {
    let whole = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    whole.parse().map_err(|_| "write ADDRESS:PORT or :PORT".to_owned())
}
