//! The node's participants as `up` and the solo verbs configure them: same names, same folders.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{ClaimArgs, NodeArgs, ReservedArgs, TopologyArgs},
    instance::Instance,
};

/// Where files for the Container Device Interface are that programs write.
pub const CDI_DIR: &str = "/var/run/cdi";

/// A plugin that does not answer for this long is killed; kubelet gives RunPodSandbox four minutes.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(100);

/// How often the host's packet filter is looked at; upstream's kubelet does as often.
const FORWARDING_LOOK: Duration = Duration::from_secs(60);

/// The image store of an instance.
pub fn images(instance: &Instance, registry_config: Option<&Path>) -> podwire_image::StoreConfig {
    let mut config = podwire_image::StoreConfig::at(instance.data_dir.join("images"));
    config.registries.hosts_dir = registry_config.map(Path::to_owned);
    config
}

/// The supervisor of an instance's containers: this very program.
pub fn supervisor(instance: &Instance) -> Result<podwire_container::SupervisorConfig> {
    Ok(podwire_container::SupervisorConfig {
        exe: std::env::current_exe().context("find our own program")?,
        exe_args: vec!["supervisor".into()],
        socket: instance.supervisor_socket(),
        state_dir: instance.run_dir().join("supervisor"),
        cgroup: Some(format!("{}/supervisor", instance.cgroup_root())),
    })
}

/// Folders of the network: where configuration and plugins are read, where state is kept.
pub struct NetworkFolders {
    /// Configuration.
    pub conf_dir: PathBuf,
    /// Plugins of others.
    pub bin_dirs: Vec<PathBuf>,
}

impl NetworkFolders {
    /// What the flags say, else the instance's own.
    pub fn of(instance: &Instance, args: &NodeArgs) -> NetworkFolders {
        NetworkFolders {
            conf_dir: args.cni_conf_dir.clone().unwrap_or_else(|| instance.cni_conf_dir()),
            bin_dirs: args.cni_bin_dir.clone().into_iter().collect(),
        }
    }
}

/// The runtime side of CNI.
pub fn networks(instance: &Instance, folders: &NetworkFolders) -> podwire_cni_lib::RuntimeConfig {
    podwire_cni_lib::RuntimeConfig {
        conf_dir: folders.conf_dir.clone(),
        bin_dirs: folders.bin_dirs.clone(),
        cache_dir: instance.data_dir.join("cni/cache"),
        state_dir: instance.cni_state_dir(),
        builtin: true,
        timeout: PLUGIN_TIMEOUT,
    }
}

/// The runtime, serving CRI on `listen`.
pub fn runtime(
    instance: &Instance,
    listen: PathBuf,
    folders: &NetworkFolders,
    nri: podwire_nri::Config,
    registry_config: Option<&Path>,
) -> Result<podwire_runtime::Config> {
    Ok(podwire_runtime::Config {
        listen,
        settings: podwire_runtime::Settings {
            data_dir: instance.data_dir.join("runtime"),
            run_dir: instance.run_dir(),
            cgroup_root: instance.cgroup_root(),
            cdi_dirs: vec!["/etc/cdi".into(), CDI_DIR.into()],
            runtime_name: "podwire".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        supervisor: supervisor(instance)?,
        images: images(instance, registry_config),
        cni: networks(instance, folders),
        streaming_listen: SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 0),
        nri,
        handlers: Vec::new(),
    })
}

/// The host's name as the kernel has it, if a node can be called so (a machine without one says `(none)`).
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let sound = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain);
    if sound { name } else { "localhost".to_owned() }
}

/// The address that the kernel would send from to the outside; loopback when there is no outside.
pub fn node_address() -> IpAddr {
    // Connecting a datagram socket sends nothing; it only asks the routing table (TEST-NET-1).
    let asked = std::net::UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()));
    asked.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

/// A CRI endpoint as a path: `unix:///run/x.sock` and `/run/x.sock` mean the same.
pub fn socket_path(endpoint: &str) -> PathBuf {
    PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint))
}

/// Upstream's `--eviction-hard`, e.g. `memory.available<100Mi,nodefs.available<10%,imagefs.available<15%`; empty is never.
pub fn eviction(text: &str) -> Result<Option<podwire_kubelet::Thresholds>> {
    let mut limits = podwire_kubelet::Thresholds::none();
    if text.trim().is_empty() {
        return Ok(None);
    }
    for part in text.split(',') {
        let wrong = || format!("--eviction-hard: {part:?} is not SIGNAL<LIMIT");
        let (signal, limit) = part.split_once('<').with_context(wrong)?;
        let share = || -> Result<f64> {
            let percent = limit
                .strip_suffix('%')
                .with_context(|| format!("--eviction-hard: {part:?} wants a percentage"))?;
            Ok(percent.parse::<f64>().with_context(wrong)? / 100.0)
        };
        match signal.trim() {
            "memory.available" => {
                let bytes = podwire_api::quantity::Quantity::parse(limit)
                    .map_err(|error| anyhow::anyhow!("{error}"))
                    .with_context(wrong)?;
                limits.memory = u64::try_from(bytes.value()).with_context(wrong)?;
            }
            "nodefs.available" => limits.disk = share()?,
            "nodefs.inodesFree" => limits.inodes = share()?,
            "imagefs.available" => limits.image_disk = share()?,
            "imagefs.inodesFree" => limits.image_inodes = share()?,
            other => anyhow::bail!(
                "--eviction-hard: unknown signal {other:?}; known are memory.available, nodefs.available, nodefs.inodesFree, \
                 imagefs.available, imagefs.inodesFree"
            ),
        }
    }
    Ok(Some(limits))
}

/// What `--kube-reserved` and `--system-reserved` keep together.
pub fn reserved(args: &ReservedArgs) -> Result<podwire_kubelet::Reserved> {
    let read = |flag: &'static str, text: &str| podwire_kubelet::Reserved::parse(text).context(flag);
    let kube = read("--kube-reserved", &args.kube_reserved)?;
    Ok(kube.plus(read("--system-reserved", &args.system_reserved)?))
}

/// How devices of plugins that find the kubelet below `root` are given out.
pub fn devices(root: PathBuf, args: &TopologyArgs) -> Result<podwire_kubelet::DeviceSettings> {
    let option = |text: &String| {
        let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.with_context(|| format!("--topology-manager-policy-options: {text:?} is not NAME=VALUE"))
    };
    Ok(podwire_kubelet::DeviceSettings {
        topology_policy: args.topology_manager_policy.clone(),
        topology_scope: args.topology_manager_scope.clone(),
        topology_options: args.topology_manager_policy_options.iter().map(option).collect::<Result<_>>()?,
        ..podwire_kubelet::DeviceSettings::at(root)
    })
}

/// How claims are prepared, with the checkpoint in `root`.
pub fn claims(root: PathBuf, args: &ClaimArgs) -> podwire_kubelet::ClaimSettings {
    podwire_kubelet::ClaimSettings {
        unprepare_timeout: Some(args.dra_unprepare_timeout).filter(|timeout| !timeout.is_zero()),
        nri_drivers: args.dra_nri_drivers.iter().filter(|name| !name.is_empty()).cloned().collect(),
        ..podwire_kubelet::ClaimSettings::at(root)
    }
}

/// The scheduler.
pub async fn scheduler(
    client: podwire_client::Client,
    configuration: podwire_scheduler::Configuration,
) -> Result<podwire_scheduler::Scheduler> {
    podwire_scheduler::Config { client, configuration }.build().await.context("start the scheduler")
}

/// The controllers.
pub async fn controllers(
    client: podwire_client::Client,
    root_ca_pem: &str,
) -> Result<podwire_controllers::Controllers> {
    podwire_controllers::Config::new(client, root_ca_pem).build().await.context("start the controllers")
}

/// The network that `up` writes when no configuration is there.
fn default_network(
    instance: &Instance,
    subnets: Vec<ipnet::IpNet>,
    cluster: Vec<ipnet::IpNet>,
) -> podwire_cni_lib::DefaultNetwork {
    podwire_cni_lib::DefaultNetwork {
        name: instance.network(),
        bridge: instance.bridge(),
        subnets,
        data_dir: instance.data_dir.join("cni/ipam"),
        nft_prefix: instance.network().replace('-', "_"),
        mtu: podwire_cni_lib::uplink_mtu(),
        cluster,
    }
}

/// Blocks of addresses as they are typed.
pub fn blocks(flag: &str, texts: &[String]) -> Result<Vec<ipnet::IpNet>> {
    let parse = |text: &String| {
        text.parse::<ipnet::IpNet>().with_context(|| format!("{flag}: {text:?} is not ADDRESS/LENGTH"))
    };
    texts.iter().map(parse).collect()
}

/// Writes our own network configuration if the folder has none; the network.
pub fn write_network(
    instance: &Instance,
    folders: &NetworkFolders,
    pod_cidrs: &[String],
    cluster_cidrs: &[String],
) -> Result<podwire_cni_lib::DefaultNetwork> {
    let cluster = blocks("--cluster-cidr", cluster_cidrs)?;
    let network = default_network(instance, blocks("--pod-cidr", pod_cidrs)?, cluster);
    podwire_cni_lib::write_default_conflist(&folders.conf_dir, &network)
        .context("write the network configuration")?;
    Ok(network)
}

/// Keeps the host's packet filter open for our network until `shutdown`: Docker and ufw drop what they do not know, and
/// may come, or lay their rules anew, at any time.
pub async fn keep_forwarding_open(network: podwire_cni_lib::DefaultNetwork, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(FORWARDING_LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let network = network.clone();
        match tokio::task::spawn_blocking(move || podwire_cni_lib::open_forwarding(&network)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the host's packet filter may keep pods from the network; will look again"
            ),
            Err(error) => tracing::warn!(%error, "the look at the host's packet filter broke off"),
        }
    }
}

/// Takes our own network's bridge and packet-filter tables away.
pub fn remove_network(instance: &Instance) -> Result<()> {
    podwire_netplugin::table::Table::remove(&instance.policy_table()).context("remove network policies")?;
    podwire_cni_lib::remove_default_network(&default_network(instance, Vec::new(), Vec::new()))
        .context("remove the pod network")
}

/// Ends the instance's supervisor, if one lives.
pub fn stop_supervisor(instance: &Instance) -> Result<()> {
    let config = supervisor(instance)?;
    // Ignored: nobody answers, so there is none.
    let Ok(supervisor) = podwire_container::Supervisor::connect(&config, std::sync::Arc::new(|_| {})) else {
        return Ok(());
    };
    supervisor.shutdown().context("end the supervisor")
}
