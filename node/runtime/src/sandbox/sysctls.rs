//! Which kernel settings a pod may have: those of its own namespaces. Pure.
//!
//! The kubelet checks this too; a runtime that believes every client would let any of them set `kernel.core_pattern`.
//! Names come with dots or with slashes and are brought to one spelling before anything is decided.

use std::collections::BTreeMap;

use podwire_linux::sysctl::{self, Namespace};
use podwire_wire::cri;

use crate::error::OpError;

/// Every pod with its own network may open low ports and send pings.
const NETWORK_DEFAULTS: [(&str, &str); 2] =
    [("net.ipv4.ip_unprivileged_port_start", "0"), ("net.ipv4.ping_group_range", "0 2147483647")];

/// Refuses settings of the node's.
pub(crate) fn check(config: &cri::PodSandboxConfig) -> Result<(), OpError> {
    let Some(linux) = &config.linux else { return Ok(()) };
    let options = linux.security_context.as_ref().and_then(|security| security.namespace_options.as_ref());
    let node = cri::NamespaceMode::Node as i32;
    let mut seen = BTreeMap::new();
    for (name, value) in &linux.sysctls {
        let why = match sysctl::namespaced(name) {
            None => "is not namespaced",
            Some((Namespace::Net, _)) if options.is_some_and(|options| options.network == node) => {
                "is not allowed with the node's network"
            }
            Some((Namespace::Ipc, _)) if options.is_some_and(|options| options.ipc == node) => {
                "is not allowed with the node's IPC"
            }
            Some(_) if seen.insert(sysctl::dotted(name), value).is_some_and(|other| other != value) => {
                "is given twice with different values"
            }
            Some(_) => continue,
        };
        return Err(OpError::invalid(format!("sysctl {name:?} {why}")));
    }
    Ok(())
}

/// The pod's settings: its own, and what every pod with its own network gets.
pub(crate) fn of(
    config: &cri::PodSandboxConfig,
    host_network: bool,
    user_namespace: bool,
) -> Vec<(String, String)> {
    let given = config.linux.iter().flat_map(|linux| &linux.sysctls);
    let mut all: BTreeMap<String, String> =
        given.map(|(name, value)| (sysctl::dotted(name), value.clone())).collect();
    for (name, value) in NETWORK_DEFAULTS {
        // Groups beyond a user namespace's map cannot be named in it.
        if host_network || (user_namespace && name.ends_with("ping_group_range")) {
            continue;
        }
        all.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(
        sysctls: &[(&str, &str)],
        network: cri::NamespaceMode,
        ipc: cri::NamespaceMode,
    ) -> cri::PodSandboxConfig {
        let options = cri::NamespaceOption { network: network as i32, ipc: ipc as i32, ..Default::default() };
        let security =
            cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        let linux = cri::LinuxPodSandboxConfig {
            security_context: Some(security),
            sysctls: sysctls.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Default::default()
        };
        cri::PodSandboxConfig { linux: Some(linux), ..Default::default() }
    }

    #[test]
    fn settings_of_the_node_are_refused_by_name_in_either_spelling() {
        use cri::NamespaceMode::{Node, Pod};
        for (name, network, ipc, allowed) in [
            ("kernel.core_pattern", Pod, Pod, false),
            ("kernel/core_pattern", Pod, Pod, false),
            ("net/../kernel/core_pattern", Pod, Pod, false),
            ("net.ipv4.ip_forward", Pod, Pod, true),
            ("net/ipv4/ip_forward", Pod, Pod, true),
            ("net.ipv4.ip_forward", Node, Pod, false),
            ("net/ipv4/ip_forward", Node, Pod, false),
            ("kernel/shmmax", Pod, Node, false),
            ("kernel/shmmax", Node, Pod, true),
            ("fs.mqueue.msg_max", Node, Node, false),
            ("vm.overcommit_memory", Pod, Pod, false),
        ] {
            let checked = check(&pod(&[(name, "1")], network, ipc));
            assert_eq!(checked.is_ok(), allowed, "{name} {network:?} {ipc:?}: {checked:?}");
            if let Err(error) = checked {
                assert!(matches!(&error, OpError::Invalid { why } if why.contains(name)), "{error}");
            }
        }
        let twice = [("net/ipv4/ip_forward", "1"), ("net.ipv4.ip_forward", "0")];
        assert!(check(&pod(&twice, Pod, Pod)).is_err());
    }

    #[test]
    fn a_setting_of_the_pods_own_replaces_the_default_in_either_spelling() {
        use cri::NamespaceMode::Pod;
        let config = pod(&[("net/ipv4/ip_unprivileged_port_start", "1024")], Pod, Pod);
        let own = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let (port, ping) = ("net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range");
        assert_eq!(of(&config, false, false), own(&[(port, "1024"), (ping, "0 2147483647")]));
        assert_eq!(of(&config, false, true), own(&[(port, "1024")]));
        assert_eq!(of(&pod(&[], Pod, Pod), true, false), own(&[]));
    }
}
