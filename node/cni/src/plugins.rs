//! Our own plugins, and the door behind which they are the `podwire-cni` binary.
//!
//! Every plugin is a function from a [`Request`] to a result; all of them answer ADD, DEL, CHECK, GC and STATUS. The
//! envelope (environment, versions, names, the namespace check) is checked here, before any of them is entered.

pub mod bandwidth;
pub mod bridge;
pub mod exec;
pub mod firewall;
pub mod host_local;
pub mod iface;
pub mod iptables;
pub mod loopback;
pub mod macvlan;
pub mod main;
pub mod masquerade;
pub mod portmap;
pub mod ptp;
pub mod static_ipam;
pub mod tuning;
pub mod veth;

use serde_json::Value;

use crate::spec::error::{CniError, code};
use crate::spec::request::{Command, Request};
use crate::spec::version::{self, SUPPORTED, Version};

pub use main::{Answer, Call, main};

/// What a plugin does with a request.
type Run = fn(&Request) -> Result<Option<Value>, CniError>;

/// One of our plugins.
pub struct Plugin {
    /// Its name, as in `type`.
    pub name: &'static str,
    /// The versions it speaks.
    pub versions: &'static [&'static str],
    /// Whether it hands out addresses.
    pub ipam: bool,
    run: Run,
}

/// From 0.3.0 on.
const SINCE_0_3: &[&str] = SUPPORTED.split_at(2).1;
/// From 0.4.0 on.
const SINCE_0_4: &[&str] = SUPPORTED.split_at(4).1;

/// All of our plugins.
pub const ALL: &[Plugin] = &[
    Plugin { name: "bandwidth", versions: SINCE_0_3, ipam: false, run: bandwidth::run },
    Plugin { name: "bridge", versions: &SUPPORTED, ipam: false, run: bridge::run },
    Plugin { name: "firewall", versions: SINCE_0_4, ipam: false, run: firewall::run },
    Plugin { name: "host-local", versions: &SUPPORTED, ipam: true, run: host_local::run },
    Plugin { name: "loopback", versions: &SUPPORTED, ipam: false, run: loopback::run },
    Plugin { name: "macvlan", versions: &SUPPORTED, ipam: false, run: macvlan::run },
    Plugin { name: "portmap", versions: &SUPPORTED, ipam: false, run: portmap::run },
    Plugin { name: "ptp", versions: &SUPPORTED, ipam: false, run: ptp::run },
    Plugin { name: "static", versions: &SUPPORTED, ipam: true, run: static_ipam::run },
    Plugin { name: "tuning", versions: &SUPPORTED, ipam: false, run: tuning::run },
];

/// The plugin of this name.
pub fn find(name: &str) -> Option<&'static Plugin> {
    ALL.iter().find(|plugin| plugin.name == name)
}

/// Whether a plugin of ours hands out addresses.
pub fn is_ipam(name: &str) -> bool {
    find(name).is_some_and(|plugin| plugin.ipam)
}

/// Runs one of our plugins in this process.
pub fn run(name: &str, request: &Request) -> Result<Option<Value>, CniError> {
    let plugin = find(name).ok_or_else(|| CniError::internal(format!("failed to find plugin {name:?}")))?;
    check_version(plugin, request)?;
    check_own_namespace(request)?;
    answer(plugin, request)
}

/// Runs one of our plugins for another one, whose namespace has been looked at.
pub fn run_delegate(name: &str, request: &Request) -> Result<Option<Value>, CniError> {
    let plugin = find(name).ok_or_else(|| CniError::internal(format!("failed to find plugin {name:?}")))?;
    check_version(plugin, request)?;
    answer(plugin, request)
}

fn answer(plugin: &Plugin, request: &Request) -> Result<Option<Value>, CniError> {
    let result = (plugin.run)(request)?;
    Ok(if request.command == Command::Add { result } else { None })
}

fn check_version(plugin: &Plugin, request: &Request) -> Result<(), CniError> {
    let text = request.object()?.str("cniVersion")?.unwrap_or_default();
    let version = version::reconcile(text, plugin.versions)?;
    let needed = match request.command {
        Command::Check => Version::V0_4,
        Command::Gc | Command::Status => Version::V1_1,
        Command::Add | Command::Del | Command::Version => Version::OLDEST,
    };
    if version < needed {
        return Err(CniError::new(
            code::INCOMPATIBLE_VERSION,
            format!("config version {version} does not allow {}", request.command.as_str()),
        ));
    }
    Ok(())
}

/// Refuses the plugin's own namespace before anything is done to it.
fn check_own_namespace(request: &Request) -> Result<(), CniError> {
    if request.netns_override || !matches!(request.command, Command::Add | Command::Del) {
        return Ok(());
    }
    let Some(path) = request.netns_path() else { return Ok(()) };
    // Ignored: a path that cannot be opened is judged by the plugin, which for DEL is no error.
    let Ok(target) = podwire_linux::netns::Netns::open(path) else { return Ok(()) };
    let own = podwire_linux::netns::Netns::current()?;
    if target.identity()? == own.identity()? {
        return Err(CniError::new(
            code::BAD_NETNS,
            "plugin's netns and netns from CNI_NETNS should not be the same",
        ));
    }
    Ok(())
}
