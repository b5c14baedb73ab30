//! A pod as the runtime's sandbox configuration. Pure.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use podwire_api::quantity::Quantity;
use podwire_api::resources::Resources;
use podwire_wire::cri;

use crate::{
    dns::{self, ClusterDns, HostResolver},
    labels, paths, resources, security,
    spec::{self, PodRef},
};

/// What the node adds to every sandbox.
pub(crate) struct NodeFacts<'a> {
    /// Log folder.
    pub(crate) log_dir: &'a Path,
    /// Root of the kubelet's cgroups.
    pub(crate) cgroup_root: &'a str,
    /// Cluster's names.
    pub(crate) dns: &'a ClusterDns,
    /// Node's resolver.
    pub(crate) resolver: &'a HostResolver,
}

/// The configuration of the pod's sandbox number `attempt`, which cannot do without the NRI plugins `required`.
pub(crate) fn config(
    pod: &Pod,
    attempt: u32,
    users: cri::UserNamespace,
    required: &[String],
    node: &NodeFacts<'_>,
) -> cri::PodSandboxConfig {
    let reference = PodRef::of(pod);
    let (hostname, domain) = dns::hostname(pod, &node.dns.domain);
    let as_fqdn = spec::spec(pod).set_hostname_as_fqdn.unwrap_or(false) && !domain.is_empty();
    let hostname = if as_fqdn { format!("{hostname}.{domain}") } else { hostname };
    let sysctls =
        spec::spec(pod).security_context.as_ref().and_then(|s| s.sysctls.clone()).unwrap_or_default();
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: reference.name.clone(),
            uid: reference.uid.to_string(),
            namespace: reference.namespace.clone(),
            attempt,
        }),
        hostname: if spec::host_network(pod) { String::new() } else { hostname },
        log_directory: paths::pod_logs(node.log_dir, &reference).to_string_lossy().into_owned(),
        dns_config: Some(dns::config(pod, node.dns, node.resolver)),
        port_mappings: ports(pod),
        labels: labels::sandbox_labels(pod),
        annotations: labels::sandbox_annotations(pod, required),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: paths::pod_cgroup(node.cgroup_root, resources::qos(pod), &reference.uid),
            security_context: Some(security::sandbox(pod, users)),
            sysctls: sysctls.into_iter().map(|s| (s.name, s.value)).collect(),
            overhead: Some(overhead(pod)),
            resources: Some(resources::pod_linux(pod)),
        }),
    }
}

fn overhead(pod: &Pod) -> cri::LinuxContainerResources {
    let own = Resources::from(spec::spec(pod).overhead.as_ref());
    let cpu = own.get("cpu").map(Quantity::milli_value);
    cri::LinuxContainerResources {
        cpu_shares: cpu.map(resources::shares).unwrap_or_default(),
        cpu_quota: cpu.map(resources::quota).unwrap_or_default(),
        memory_limit_in_bytes: own.value("memory"),
        ..Default::default()
    }
}

fn ports(pod: &Pod) -> Vec<cri::PortMapping> {
    if spec::host_network(pod) {
        return Vec::new();
    }
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::init_kind(c) == spec::Kind::Sidecar);
    sidecars
        .chain(&spec::spec(pod).containers)
        .flat_map(|c| c.ports.as_deref().unwrap_or_default())
        .map(|port| cri::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => cri::Protocol::Udp as i32,
                Some("SCTP") => cri::Protocol::Sctp as i32,
                _ => cri::Protocol::Tcp as i32,
            },
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}
