//! What was typed: the verbs and flags, flat and without judgement.
//!
//! Flags keep upstream's names where upstream has one. `up` and the client verbs say what they mean elsewhere.

mod cluster;
mod drill;
mod etcd;
mod kube_apiserver;
mod netdriver;
mod netplugin;
mod nri;
mod snapshot;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Parser, Subcommand};

pub use self::cluster::ClusterArgs;
pub use self::drill::DrillArgs;
pub use self::etcd::{EtcdArgs, EtcdCli};
pub use self::kube_apiserver::{KubeApiserverArgs, KubeApiserverCli};
pub use self::netdriver::{NetdriverArgs, NetdriverVerb, NetworkDriverArgs, OfferArgs};
pub use self::netplugin::{ExplainArgs, NetpluginArgs, NetpluginVerb};
pub use self::nri::{NriArgs, NriVerb};
pub use self::snapshot::{MigrateArgs, MigrateVerb, RestoreArgs, SaveArgs, SnapshotVerb};
use crate::instance::DEFAULT_DATA_DIR;

/// Pods from apply to Running, every participant in one binary.
#[derive(Debug, Parser)]
#[command(name = "podwire", version, about, arg_required_else_help = true)]
pub struct Cli {
    /// Log filter, e.g. `info` or `podwire_kubelet=debug`.
    #[arg(long, global = true, env = "PODWIRE_LOG")]
    pub log: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a whole node: API server, store, scheduler, controllers, kubelet, runtime, network.
    Up(Box<UpArgs>),
    /// Stop the node of a data folder and remove its pods, links, mounts and cgroups.
    Down(DownArgs),
    /// Say whether this machine can run pods, and what to do about each miss.
    Check(CheckArgs),
    /// Print the host-global names of a node, as JSON.
    #[command(hide = true)]
    Instance(DataDir),
    /// Run only the API server, with the embedded store or on an etcd cluster.
    Apiserver(Box<ApiserverArgs>),
    /// Run only the API server, with kube-apiserver's flags; so does a link to this program that is called kube-apiserver.
    #[command(hide = true, args_override_self = true)]
    KubeApiserver(Box<KubeApiserverArgs>),
    /// Serve etcd's API v3 from a store: a cluster of one member.
    #[command(args_override_self = true)]
    Etcd(Box<EtcdArgs>),
    /// Save a store while it runs, look at what was saved, make a store of it.
    #[command(subcommand)]
    Snapshot(SnapshotVerb),
    /// Move all objects between an embedded store and an etcd cluster; API servers of both must be stopped.
    #[command(subcommand)]
    Migrate(MigrateVerb),
    /// Run only the scheduler.
    Scheduler(SchedulerArgs),
    /// Run only the controllers.
    Controllers(ControllersArgs),
    /// Run only the kubelet.
    Kubelet(KubeletArgs),
    /// Run only the container runtime (CRI).
    Runtime(RuntimeArgs),
    /// Enforce NetworkPolicy for the pods of a node, as a plugin of its runtime (NRI).
    Netplugin(NetpluginArgs),
    /// Offer network devices of this node to claims of pods (DRA), and attach them as a plugin of its runtime (NRI).
    Netdriver(Box<NetdriverArgs>),
    /// Offer device files, interfaces, virtual functions and RDMA devices of this node to pods.
    DevicePlugin(DevicePluginArgs),
    /// Work with the images of a node.
    #[command(subcommand)]
    Image(ImageVerb),
    /// Attach namespaces to networks, look for leaks, test plugins.
    #[command(subcommand)]
    Cni(CniVerb),
    /// Look at the NRI plugins of a node.
    #[command(subcommand)]
    Nri(NriVerb),
    /// Create or change objects from a file.
    Apply(ApplyArgs),
    /// Show objects.
    Get(GetArgs),
    /// Print a container's log.
    Logs(LogsArgs),
    /// Run a command in a container.
    Exec(ExecArgs),
    /// Delete objects.
    Delete(DeleteArgs),
    /// Show the path of a pod: who called whom, when, for how long.
    Trace(TraceArgs),
    /// Say why a pod is where it is, or nowhere: every node, every plugin, in numbers.
    Explain(ExplainPodArgs),
    /// Print client and server version.
    Version(Connection),
    /// Print a completion script for a shell.
    Completion {
        /// The shell to complete in.
        shell: clap_complete::Shell,
    },
}

/// Which node a local verb means.
#[derive(Debug, Clone, Args)]
pub struct DataDir {
    /// The node's data folder.
    #[arg(long, env = "PODWIRE_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
}

/// Where arrows are offered and read.
#[derive(Debug, Clone, Args)]
pub struct TraceDir {
    /// Folder of the sockets that `podwire trace` reads (default: the node's run folder).
    #[arg(long, env = "PODWIRE_TRACE_DIR")]
    pub trace_dir: Option<PathBuf>,
}

/// Flags of `up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub data: DataDir,
    /// Address and port of the API server.
    #[arg(long, default_value = "127.0.0.1:6443")]
    pub listen: SocketAddr,
    /// Where to write the administrator's kubeconfig (default: inside the data folder).
    #[arg(long)]
    pub write_kubeconfig: Option<PathBuf>,
    /// Name of this node (default: the host's name).
    #[arg(long, alias = "hostname-override")]
    pub node_name: Option<String>,
    /// Address that this node publishes (default: the one of the default route, else loopback).
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// Addresses of the node's pods; a second, IPv6 one makes pods dual stack.
    #[arg(long, value_delimiter = ',', default_value = "10.88.0.0/16")]
    pub pod_cidr: Vec<String>,
    /// Addresses of all nodes' pods: towards these a pod keeps its own address (default: only its own node's).
    #[arg(long, value_delimiter = ',')]
    pub cluster_cidr: Vec<String>,
    /// Addresses of services.
    #[arg(long, default_value = "10.89.0.0/16")]
    pub service_cidr: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Port of the kubelet's HTTPS API; 0 takes a free one (default: 10250, or 0 outside the default data folder).
    #[arg(long)]
    pub kubelet_port: Option<u16>,
    /// When pods are evicted and none admitted; empty: never.
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,\
                         imagefs.inodesFree<5%"
    )]
    pub eviction_hard: String,
    #[command(flatten)]
    pub reserved: ReservedArgs,
    /// What becomes of NetworkPolicy: `enforce` by a plugin of our runtime without which no pod starts, or `off`.
    #[arg(long, default_value = "enforce", value_parser = ["enforce", "off"])]
    pub network_policy: String,
    /// Addresses that PodNetworks may give to pods beside those of CNI, as blocks; others stay closed (default: none).
    #[arg(long, value_delimiter = ',', value_name = "CIDR")]
    pub pod_network_addresses: Vec<String>,
    /// Also offer devices of this node to pods, as this file says (see docs/device-plugin.md).
    #[arg(long, value_name = "FILE")]
    pub device_plugin_config: Option<PathBuf>,
    #[command(flatten)]
    pub driver: NetworkDriverArgs,
    #[command(flatten)]
    pub topology: TopologyArgs,
    #[command(flatten)]
    pub claims: ClaimArgs,
    #[command(flatten)]
    pub node: NodeArgs,
}

/// What the node keeps from its pods.
#[derive(Debug, Clone, Args)]
pub struct ReservedArgs {
    /// What is kept for Kubernetes' own programs, e.g. cpu=100m,memory=200Mi,ephemeral-storage=1Gi.
    #[arg(long, default_value = "")]
    pub kube_reserved: String,
    /// What is kept for the system's other programs, in the same form.
    #[arg(long, default_value = "")]
    pub system_reserved: String,
}

/// How devices and NUMA nodes go together.
#[derive(Debug, Clone, Args)]
pub struct TopologyArgs {
    /// How strictly a pod's devices come from the same NUMA node: none, best-effort, restricted or single-numa-node.
    #[arg(long, default_value = "none")]
    pub topology_manager_policy: String,
    /// What is aligned together: container or pod.
    #[arg(long, default_value = "container")]
    pub topology_manager_scope: String,
    /// Settings of the policy, e.g. prefer-closest-numa-nodes=true.
    #[arg(long, value_delimiter = ',')]
    pub topology_manager_policy_options: Vec<String>,
}

/// How claims of dynamic resources are prepared.
#[derive(Debug, Clone, Args)]
pub struct ClaimArgs {
    /// How long the end of a pod waits for a DRA driver that does not unprepare its claims; then the pod ends, and its
    /// devices are kept back until the driver has. 0s: for ever, as upstream's kubelet.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::nri::duration)]
    pub dra_unprepare_timeout: std::time::Duration,
    /// DRA drivers that set pods up as NRI plugins of the same name: no pod with a claim of theirs starts without them.
    #[arg(long, value_name = "DRIVER", value_delimiter = ',', default_value = "dra.net,net.podwire.dev")]
    pub dra_nri_drivers: Vec<String>,
}

/// Flags that choose the node's runtime and network.
#[derive(Debug, Clone, Args)]
pub struct NodeArgs {
    /// Folder of CNI configuration; ours is written there only if it is empty.
    #[arg(long)]
    pub cni_conf_dir: Option<PathBuf>,
    /// Folder of CNI plugins; a foreign plugin there is executed, ours run in process.
    #[arg(long)]
    pub cni_bin_dir: Option<PathBuf>,
    /// Use this CRI runtime (e.g. containerd) instead of our own.
    #[arg(long)]
    pub container_runtime_endpoint: Option<String>,
    /// Folder of registry settings in containerd's certs.d form.
    #[arg(long)]
    pub registry_config: Option<PathBuf>,
    /// NAME=PROGRAM: pods whose RuntimeClass has this handler are made by that OCI runtime (runc, crun); repeatable.
    #[arg(long, value_parser = handler)]
    pub handler: Vec<podwire_runtime::Handler>,
    #[command(flatten)]
    pub nri: NriArgs,
}

/// A runtime handler as it is typed.
fn handler(text: &str) -> Result<podwire_runtime::Handler, String> {
    match text.split_once('=') {
        Some((name, program)) if !name.is_empty() && !program.is_empty() => {
            Ok(podwire_runtime::Handler { name: name.to_owned(), runtime: program.into() })
        }
        _ => Err("write NAME=PROGRAM".to_owned()),
    }
}

/// Flags of `down`.
#[derive(Debug, Clone, Args)]
pub struct DownArgs {
    #[command(flatten)]
    pub data: DataDir,
    /// Also remove the data folder: objects, images, certificates, logs.
    #[arg(long)]
    pub purge: bool,
}

/// Flags of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub data: DataDir,
}

/// Flags of `apiserver`.
#[derive(Debug, Clone, Args)]
pub struct ApiserverArgs {
    #[command(flatten)]
    pub data: DataDir,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// Port to listen on.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// On a cluster, the address as which this server is listed behind the `kubernetes` service (default: what is listened on).
    #[arg(long, requires = "etcd_servers", value_parser = cluster::published)]
    pub advertise_address: Option<IpAddr>,
    /// Addresses of services.
    #[arg(long, default_value = "10.89.0.0/16")]
    pub service_cluster_ip_range: String,
    /// Also issue a client certificate, a serving one and a kubeconfig for this node: NAME or NAME=ADDRESS.
    #[arg(long)]
    pub issue_node: Vec<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub at: TraceDir,
}

/// How a participant that runs alone reaches the API server, and where it offers its arrows.
#[derive(Debug, Clone, Args)]
pub struct ClientOf {
    /// Credentials of this participant.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    #[command(flatten)]
    pub at: TraceDir,
}

/// Flags of `scheduler`.
#[derive(Debug, Clone, Args)]
pub struct SchedulerArgs {
    #[command(flatten)]
    pub client: ClientOf,
    /// A KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Whether one of several schedulers leads, by a lease; a file of --config says so itself.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_elect: bool,
}

/// Flags of `controllers`.
#[derive(Debug, Clone, Args)]
pub struct ControllersArgs {
    #[command(flatten)]
    pub client: ClientOf,
    /// Certificate authority to publish in kube-root-ca.crt (default: the kubeconfig's).
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// Whether one of several leads, by the lease `kube-controller-manager`.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_elect: bool,
}

/// Flags of `kubelet`.
#[derive(Debug, Clone, Args)]
pub struct KubeletArgs {
    #[command(flatten)]
    pub client: ClientOf,
    /// Name of this node (default: the host's name).
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// Volumes and plugin state.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Container logs.
    #[arg(long, default_value = "/var/log/pods")]
    pub pod_log_dir: PathBuf,
    /// The CRI socket, with or without unix://.
    #[arg(long, default_value = "/run/podwire/cri.sock")]
    pub container_runtime_endpoint: String,
    /// Port of the HTTPS API.
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    /// Address that this node publishes.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// When pods are evicted and none admitted; empty: never.
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,\
                         imagefs.inodesFree<5%"
    )]
    pub eviction_hard: String,
    #[command(flatten)]
    pub reserved: ReservedArgs,
    #[command(flatten)]
    pub topology: TopologyArgs,
    #[command(flatten)]
    pub claims: ClaimArgs,
    /// Root of the pods' cgroups.
    #[arg(long, default_value = "/")]
    pub cgroup_root: String,
    /// Serving certificate.
    #[arg(long)]
    pub tls_cert_file: PathBuf,
    /// Key of the serving certificate.
    #[arg(long)]
    pub tls_private_key_file: PathBuf,
    /// Certificate authority of clients.
    #[arg(long)]
    pub client_ca_file: PathBuf,
}

/// Flags of `runtime`.
#[derive(Debug, Clone, Args)]
pub struct RuntimeArgs {
    #[command(flatten)]
    pub data: DataDir,
    /// The CRI socket (default: derived from the data folder).
    #[arg(long)]
    pub listen: Option<PathBuf>,
    /// Folder of CNI configuration.
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// Folder of CNI plugins.
    #[arg(long, default_value = "/opt/cni/bin")]
    pub cni_bin_dir: PathBuf,
    /// Folder of registry settings in containerd's certs.d form.
    #[arg(long)]
    pub registry_config: Option<PathBuf>,
    /// NAME=PROGRAM: pods whose RuntimeClass has this handler are made by that OCI runtime (runc, crun); repeatable.
    #[arg(long, value_parser = handler)]
    pub handler: Vec<podwire_runtime::Handler>,
    #[command(flatten)]
    pub at: TraceDir,
    /// Address and port to serve metrics on, as containerd's metrics.address.
    #[arg(long)]
    pub metrics_address: Option<SocketAddr>,
    #[command(flatten)]
    pub nri: NriArgs,
}

/// Flags of `device-plugin`.
#[derive(Debug, Clone, Args)]
pub struct DevicePluginArgs {
    /// Pools of devices, as docs/device-plugin.md describes them.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    pub config: Option<PathBuf>,
    /// The kubelet's folder of device plugins.
    #[arg(long, value_name = "DIR", default_value = crate::instance::DEVICE_PLUGINS)]
    pub kubelet_dir: PathBuf,
    /// Print what each pool of this file would offer, and end.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub check: Option<PathBuf>,
}

/// Verbs of `image`.
#[derive(Debug, Subcommand)]
pub enum ImageVerb {
    /// Load an OCI layout or a docker archive.
    Import {
        #[command(flatten)]
        data: DataDir,
        /// The archive or folder.
        path: PathBuf,
        /// Name it so, whatever the archive says.
        #[arg(long)]
        name: Option<String>,
    },
    /// Make an image from one static program, without any registry.
    Build {
        /// The image's name.
        #[arg(long)]
        name: String,
        /// The archive to write.
        #[arg(long)]
        output: PathBuf,
        /// What the image runs (default: the program).
        #[arg(long)]
        entrypoint: Option<String>,
        /// The static program; it becomes `/NAME` in the image.
        program: PathBuf,
    },
    /// List the node's images.
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        data: DataDir,
    },
    /// Fetch an image from its registry, with a bar on a terminal.
    Pull {
        #[command(flatten)]
        data: DataDir,
        /// Folder of registry settings in containerd's certs.d form.
        #[arg(long)]
        registry_config: Option<PathBuf>,
        /// Credentials as USER:PASSWORD (default: those of ~/.docker/config.json, if any).
        #[arg(long)]
        creds: Option<String>,
        /// Say nothing until it is done.
        #[arg(long, short)]
        quiet: bool,
        /// The image.
        reference: String,
    },
    /// Write images to one archive that OCI tools and `docker load` read.
    Export {
        #[command(flatten)]
        data: DataDir,
        /// The archive to write.
        #[arg(long, short)]
        output: PathBuf,
        /// Leave out what only docker needs.
        #[arg(long)]
        oci: bool,
        /// The images.
        #[arg(required = true)]
        references: Vec<String>,
    },
    /// Remove images; one in use keeps its files until its last container is gone.
    Rm {
        #[command(flatten)]
        data: DataDir,
        /// Also if it is pinned.
        #[arg(long, short)]
        force: bool,
        /// The images: a name alone is taken away, the last one takes the image with it.
        #[arg(required = true)]
        references: Vec<String>,
    },
    /// Keep images from being collected as garbage, or with --undo let them be again.
    Pin {
        #[command(flatten)]
        data: DataDir,
        /// Unpin.
        #[arg(long)]
        undo: bool,
        /// The images.
        #[arg(required = true)]
        references: Vec<String>,
    },
    /// Remove every image that no container uses and that is not pinned.
    Prune {
        #[command(flatten)]
        data: DataDir,
    },
}

/// How a client verb reaches a cluster.
#[derive(Debug, Clone, Args)]
pub struct Connection {
    /// Credentials (default: $KUBECONFIG, else the node's in --data-dir).
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub data: DataDir,
    /// Namespace.
    #[arg(short, long)]
    pub namespace: Option<String>,
}

/// Flags of `apply`.
#[derive(Debug, Clone, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    pub to: Connection,
    /// File or folder; - reads standard input.
    #[arg(short, long, required = true)]
    pub filename: Vec<PathBuf>,
}

/// Flags of `get`.
#[derive(Debug, Clone, Args)]
pub struct GetArgs {
    #[command(flatten)]
    pub to: Connection,
    /// What to show: `pods`, `pod NAME`, `pod/NAME`.
    pub what: Vec<String>,
    /// Every namespace.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Form: wide, yaml, json, name.
    #[arg(short, long)]
    pub output: Option<String>,
    /// Label selector.
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    /// Field selector, e.g. status.phase=Running.
    #[arg(long)]
    pub field_selector: Option<String>,
    /// A last column with the labels.
    #[arg(long)]
    pub show_labels: bool,
    /// Keep watching.
    #[arg(short, long)]
    pub watch: bool,
    /// Leave out the header.
    #[arg(long)]
    pub no_headers: bool,
}

/// Flags of `logs`.
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    #[command(flatten)]
    pub to: Connection,
    /// The pod, with or without `pod/`.
    pub pod: String,
    /// The container.
    #[arg(short, long)]
    pub container: Option<String>,
    /// The container, in kubectl's old form.
    #[arg(conflicts_with = "container")]
    pub container_word: Option<String>,
    /// Follow.
    #[arg(short, long)]
    pub follow: bool,
    /// The instance before this one.
    #[arg(short, long)]
    pub previous: bool,
    /// Only the last lines; -1 is all.
    #[arg(long, allow_negative_numbers = true)]
    pub tail: Option<i64>,
    /// Only what is younger, e.g. 10s, 5m, 2h.
    #[arg(long)]
    pub since: Option<String>,
    /// Only what was logged after this time (RFC 3339).
    #[arg(long, conflicts_with = "since")]
    pub since_time: Option<String>,
    /// At most so many bytes.
    #[arg(long)]
    pub limit_bytes: Option<i64>,
    /// Begin each line with its time.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    pub timestamps: bool,
}

/// Flags of `exec`.
#[derive(Debug, Clone, Args)]
pub struct ExecArgs {
    #[command(flatten)]
    pub to: Connection,
    /// The pod, with or without `pod/`.
    pub pod: String,
    /// The container.
    #[arg(short, long)]
    pub container: Option<String>,
    /// Pass standard input on.
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Give the command a terminal.
    #[arg(short, long)]
    pub tty: bool,
    /// The command.
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// Flags of `delete`.
#[derive(Debug, Clone, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub to: Connection,
    /// What to delete: `pod NAME...`, `pod/NAME`.
    pub what: Vec<String>,
    /// Delete what a file names.
    #[arg(short, long)]
    pub filename: Vec<PathBuf>,
    /// Label selector.
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    /// Every object of the type in the namespace.
    #[arg(long)]
    pub all: bool,
    /// Seconds the pod gets to end by itself.
    #[arg(long)]
    pub grace_period: Option<i64>,
    /// A grace period of one second.
    #[arg(long, conflicts_with = "grace_period")]
    pub now: bool,
    /// Do not wait for confirmation that the pod ended; use with --grace-period=0.
    #[arg(long)]
    pub force: bool,
    /// Form: name.
    #[arg(short, long, value_parser = ["name"])]
    pub output: Option<String>,
    /// Do not mind objects that are not there.
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Wait until the objects are gone.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    pub wait: bool,
}

/// Flags of `trace`.
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    #[command(flatten)]
    pub to: Connection,
    /// The pod, with or without `pod/`, or its UID.
    pub pod: Option<String>,
    /// A table of where the time of the newest pods went.
    #[arg(long)]
    pub last: Option<usize>,
    /// Form: mermaid or json (default: a diagram for the terminal).
    #[arg(short, long)]
    pub output: Option<String>,
    /// Columns of the terminal.
    #[arg(long)]
    pub width: Option<usize>,
    #[command(flatten)]
    pub at: TraceDir,
    /// Measure what reporting an arrow costs here.
    #[arg(long, hide = true)]
    pub cost: bool,
}

/// Flags of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainPodArgs {
    #[command(flatten)]
    pub to: Connection,
    /// The pod, with or without `pod/`.
    pub pod: String,
    /// Show every node, not the first few.
    #[arg(long)]
    pub all: bool,
    /// The scheduler's configuration, if it has one.
    #[arg(long)]
    pub config: Option<PathBuf>,
}

/// Where the network's configuration, plugins and state are.
#[derive(Debug, Clone, Args)]
pub struct CniPlace {
    #[command(flatten)]
    pub data: DataDir,
    /// Folder of configuration (default: the node's).
    #[arg(long, env = "NETCONFPATH")]
    pub conf_dir: Option<PathBuf>,
    /// Folder of plugins; without one, ours run in process.
    #[arg(long, env = "CNI_PATH")]
    pub bin_dir: Option<PathBuf>,
}

/// What is attached.
#[derive(Debug, Clone, Args)]
pub struct CniTarget {
    /// The network namespace.
    pub netns: PathBuf,
    /// The container.
    #[arg(long)]
    pub container_id: String,
    /// The interface in the namespace.
    #[arg(long, env = "CNI_IFNAME", default_value = "eth0")]
    pub ifname: String,
    /// NAME=VALUE;NAME=VALUE for the plugins.
    #[arg(long, env = "CNI_ARGS")]
    pub args: Option<String>,
    /// Capability arguments, as a JSON object.
    #[arg(long, env = "CAP_ARGS")]
    pub capability_args: Option<String>,
}

/// Verbs of `cni`.
#[derive(Debug, Subcommand)]
pub enum CniVerb {
    /// Attach a namespace.
    Add {
        #[command(flatten)]
        place: CniPlace,
        #[command(flatten)]
        target: CniTarget,
        /// The network (default: the first one).
        #[arg(long)]
        network: Option<String>,
    },
    /// Detach a namespace.
    Del {
        #[command(flatten)]
        place: CniPlace,
        #[command(flatten)]
        target: CniTarget,
    },
    /// Compare an attachment with what was recorded.
    Check {
        #[command(flatten)]
        place: CniPlace,
        #[command(flatten)]
        target: CniTarget,
    },
    /// Remove everything of attachments that are not named.
    Gc {
        #[command(flatten)]
        place: CniPlace,
        /// CONTAINER/IFNAME to keep.
        #[arg(long)]
        keep: Vec<String>,
    },
    /// Say whether pods can be attached.
    Status {
        #[command(flatten)]
        place: CniPlace,
    },
    /// List the attachments.
    List {
        #[command(flatten)]
        place: CniPlace,
    },
    /// Find what leaked and why; repair on request.
    Doctor {
        #[command(flatten)]
        place: CniPlace,
        /// Remove what leaked.
        #[arg(long)]
        repair: bool,
    },
    /// Run the numbered checks of the specification on the plugins in a folder.
    Conformance {
        /// The plugins.
        #[arg(long)]
        bin_dir: PathBuf,
    },
}
