//! What a plugin wants to know of a pod's network: where it is, and which addresses it has.
//!
//! Enters nothing: a namespace is a property of a thread, which is the plugin's own.

use std::net::{AddrParseError, IpAddr};
use std::path::Path;

use podwire_wire::nri::PodSandbox;

/// Where the pod's network namespace is; `None` for a pod in the node's own, and, on some runtimes, for one whose
/// network is already taken down.
pub fn network_namespace(pod: &PodSandbox) -> Option<&Path> {
    let namespaces = pod.linux.iter().flat_map(|linux| &linux.namespaces);
    let network = namespaces.filter(|one| one.r#type == "network").map(|one| one.path.as_str());
    network.filter(|path| !path.is_empty()).map(Path::new).next()
}

/// The pod's addresses, the first one first. Runtimes before NRI 0.8 tell none.
pub fn addresses(pod: &PodSandbox) -> Result<Vec<IpAddr>, AddrParseError> {
    pod.ips.iter().map(|text| text.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_wire::nri::{LinuxNamespace, LinuxPodSandbox};

    fn pod(namespaces: &[(&str, &str)], ips: &[&str]) -> PodSandbox {
        let namespace =
            |&(kind, path): &(&str, &str)| LinuxNamespace { r#type: kind.into(), path: path.into() };
        let linux = LinuxPodSandbox {
            namespaces: namespaces.iter().map(namespace).collect(),
            ..LinuxPodSandbox::default()
        };
        let ips = ips.iter().map(|&ip| ip.to_owned()).collect();
        PodSandbox { linux: Some(linux), ips, ..PodSandbox::default() }
    }

    #[test]
    fn the_network_namespace_is_the_one_with_a_path() {
        let found =
            |namespaces| network_namespace(&pod(namespaces, &[])).map(|path| path.display().to_string());
        assert_eq!(found(&[("ipc", "/i"), ("network", "/run/netns/a")]).as_deref(), Some("/run/netns/a"));
        assert_eq!(found(&[("ipc", "/i")]), None);
        assert_eq!(found(&[("network", "")]), None);
        assert_eq!(network_namespace(&PodSandbox::default()), None);
    }

    #[test]
    fn addresses_are_of_both_families_and_nonsense_is_an_error() {
        let two = addresses(&pod(&[], &["10.0.0.7", "fd00::7"])).unwrap();
        assert_eq!(two.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.7", "fd00::7"]);
        assert!(addresses(&pod(&[], &["10.0.0.7", "10.0.0.7/24"])).is_err());
    }
}
