//! What the other test files share: a node in a network namespace of its own, with pods.
#![allow(dead_code, unreachable_pub, reason = "every test file uses another part")]

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use podwire_cni_lib::{Attachment, DefaultNetwork, Networks, RuntimeConfig, write_default_conflist};
use podwire_linux::netns::{self, Netns};
use podwire_linux::rtnl::Socket;

/// Runs a test on a thread whose network namespace is new, and takes over its panic.
pub fn on_a_node(test: impl FnOnce(&Path) + Send + 'static) {
    let thread = std::thread::Builder::new().name("node".into()).spawn(move || {
        let _node = netns::unshare().expect("a network namespace of its own (the tests need root)");
        let dir = tempfile::tempdir().expect("folder");
        test(dir.path());
    });
    if let Err(panic) = thread.expect("thread").join() {
        std::panic::resume_unwind(panic);
    }
}

/// A pod: a namespace that lives as long as this.
pub struct Pod {
    /// Its namespace.
    pub netns: Netns,
    /// Its attachment.
    pub attachment: Attachment,
}

impl Pod {
    /// A pod with a new namespace.
    pub fn new(id: &str) -> Pod {
        let netns = netns::create().expect("namespace");
        let path = format!("/proc/{}/fd/{}", std::process::id(), netns.as_fd().as_raw_fd());
        let attachment = Attachment {
            container_id: id.into(),
            netns: PathBuf::from(path),
            ifname: "eth0".into(),
            ..Attachment::default()
        };
        Pod { netns, attachment }
    }

    /// Runs in its namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.run(work).expect("inside the pod")
    }
}

/// The default network of a node.
pub fn network(dir: &Path) -> DefaultNetwork {
    DefaultNetwork {
        name: "pods".into(),
        bridge: "pw0".into(),
        subnets: vec!["10.88.0.0/16".parse().expect("net"), "fd88::/64".parse().expect("net")],
        data_dir: dir.join("ipam"),
        nft_prefix: "pwtest".into(),
        mtu: None,
        cluster: Vec::new(),
    }
}

/// The runtime's side with the default network.
pub fn networks(dir: &Path) -> Networks {
    write_default_conflist(&dir.join("net.d"), &network(dir)).expect("conflist");
    open(dir)
}

/// The runtime's side with what is in `net.d`.
pub fn open(dir: &Path) -> Networks {
    let config = RuntimeConfig {
        conf_dir: dir.join("net.d"),
        bin_dirs: vec![dir.join("bin")],
        cache_dir: dir.join("cache"),
        state_dir: dir.join("state"),
        builtin: true,
        timeout: Duration::from_secs(5),
    };
    config.open().expect("networks")
}

/// Names of the links of the calling thread's namespace.
pub fn links() -> Vec<String> {
    Socket::route().expect("socket").links().expect("links").into_iter().map(|link| link.name).collect()
}

/// Addresses reserved in a network's folder.
pub fn reserved(data_dir: &Path, network: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(data_dir.join(network)) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}
