//! The node's participants as `up` and the solo verbs configure them: same names, same folders.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{cli::NodeArgs, instance::Instance};

/// A plugin that does not answer for this long is killed; kubelet gives RunPodSandbox four minutes.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(100);

/// The image store of an instance.
pub fn images(instance: &Instance, registry_config: Option<&Path>) -> podwire_image::StoreConfig {
    let mut config = podwire_image::StoreConfig::at(instance.data_dir.join("images"));
    if let Some(folder) = registry_config {
        config.registries.hosts_dir = Some(folder.to_owned());
    }
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
    nri_socket: Option<PathBuf>,
    registry_config: Option<&Path>,
) -> Result<podwire_runtime::Config> {
    Ok(podwire_runtime::Config {
        listen,
        data_dir: instance.data_dir.join("runtime"),
        run_dir: instance.run_dir(),
        cgroup_root: instance.cgroup_root(),
        supervisor: supervisor(instance)?,
        images: images(instance, registry_config),
        cni: networks(instance, folders),
        streaming_listen: SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 0),
        nri_socket,
        runtime_name: "podwire".to_owned(),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// The host's name, as the kernel has it.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_ascii_lowercase();
    if name.is_empty() { "localhost".to_owned() } else { name }
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
