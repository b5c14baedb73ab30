//! Flags of `podwire netdriver drill`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use podwire_netdriver::NAME;

use crate::drill::{At, Fault};

/// Flags of `netdriver drill`.
#[derive(Debug, Clone, Args)]
pub struct DrillArgs {
    /// Credentials that may do everything with pods, claims and slices.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: PathBuf,
    /// Name of this node (default: the host's name).
    #[arg(long, alias = "hostname-override")]
    pub node_name: Option<String>,
    /// Name of the driver.
    #[arg(long, default_value = NAME)]
    pub driver_name: String,
    /// The class of devices that pods claim: all of them may be moved, and should be nobody else's.
    #[arg(long, default_value = NAME)]
    pub device_class: String,
    /// JSON for the driver in each claim.
    #[arg(long, value_name = "JSON")]
    pub parameters: Option<String>,
    /// The command that runs the driver: started, and started anew, by the drill. Its $KUBECONFIG leads to the API server
    /// by a door that the drill can shut.
    #[arg(long, value_name = "COMMAND", conflicts_with = "driver_pid")]
    pub driver_command: Option<String>,
    /// The file with the driver's process id; somebody else starts it anew.
    #[arg(long, value_name = "FILE", required_unless_present = "driver_command")]
    pub driver_pid: Option<PathBuf>,
    /// Where the driver's command writes.
    #[arg(long, value_name = "FILE")]
    pub driver_log: Option<PathBuf>,
    /// The file with the kubelet's process id; somebody else starts it anew.
    #[arg(long, value_name = "FILE")]
    pub kubelet_pid: Option<PathBuf>,
    /// The file with the runtime's process id; somebody else starts it anew.
    #[arg(long, value_name = "FILE")]
    pub runtime_pid: Option<PathBuf>,
    /// The pods' namespace.
    #[arg(long, default_value = "default")]
    pub namespace: String,
    /// The pods' image, which must be on the node or to be had.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    pub image: String,
    /// What the image is told so that it runs on; repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub arg: Vec<String>,
    /// So many pods at once, each with a device; there must be as many devices.
    #[arg(long, default_value_t = 2)]
    pub pods: usize,
    /// How often each fault is tried at each arrow; each time a bit later.
    #[arg(long, default_value_t = 3)]
    pub tries: usize,
    /// Which faults (default: all that can be done).
    #[arg(long, value_delimiter = ',')]
    pub faults: Vec<Fault>,
    /// At which arrows (default: all).
    #[arg(long, value_delimiter = ',')]
    pub arrows: Vec<At>,
    /// How long a fault lasts.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = crate::nri::duration)]
    pub lasts: Duration,
    /// What takes longer is stuck.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::nri::duration)]
    pub bound: Duration,
}
