//! What CNI is told about a pod: attachment, arguments, capability arguments. Pure.

use podwire_cni_lib::Attachment;
use podwire_wire::cri;
use serde_json::{Map, Value, json};

use crate::model::Sandbox;

/// The pod's only interface.
const IFNAME: &str = "eth0";

/// The attachment of a pod that has a network of its own.
pub(crate) fn attachment(sandbox: &Sandbox, cgroup_parent: &str) -> Option<Attachment> {
    let netns = sandbox.netns()?;
    let key = &sandbox.key;
    let args = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &key.namespace),
        ("K8S_POD_NAME", &key.name),
        ("K8S_POD_INFRA_CONTAINER_ID", &sandbox.id),
        ("K8S_POD_UID", &key.uid),
    ];
    Some(Attachment {
        container_id: sandbox.id.to_string(),
        netns,
        ifname: IFNAME.to_owned(),
        args: args.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        capability_args: capabilities(&sandbox.config, cgroup_parent),
        traceparent: None,
    })
}

fn capabilities(config: &cri::PodSandboxConfig, cgroup_parent: &str) -> Map<String, Value> {
    let mut map = Map::new();
    let ports: Vec<Value> = config.port_mappings.iter().filter(|port| port.host_port > 0).map(port).collect();
    if !ports.is_empty() {
        map.insert("portMappings".into(), Value::Array(ports));
    }
    if let Some(dns) = &config.dns_config {
        map.insert(
            "dns".into(),
            json!({"servers": dns.servers, "searches": dns.searches, "options": dns.options}),
        );
    }
    if let Some(bandwidth) = bandwidth(config) {
        map.insert("bandwidth".into(), bandwidth);
    }
    map.insert("io.kubernetes.cri.pod-annotations".into(), json!(config.annotations));
    map.insert("cgroupPath".into(), json!(cgroup_parent));
    map
}

fn port(mapping: &cri::PortMapping) -> Value {
    let protocol = match cri::Protocol::try_from(mapping.protocol) {
        Ok(cri::Protocol::Udp) => "udp",
        Ok(cri::Protocol::Sctp) => "sctp",
        _ => "tcp",
    };
    json!({
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": protocol,
        "hostIP": mapping.host_ip,
    })
}

/// Rates in bits per second from the two well-known annotations.
fn bandwidth(config: &cri::PodSandboxConfig) -> Option<Value> {
    let rate = |direction: &str| {
        let text = config.annotations.get(&format!("kubernetes.io/{direction}-bandwidth"))?;
        quantity(text).filter(|rate| *rate > 0)
    };
    // Kubernetes gives no burst: as much as a counter holds.
    let burst = i64::from(i32::MAX);
    let mut map = Map::new();
    for (direction, rate) in [("ingress", rate("ingress")), ("egress", rate("egress"))] {
        if let Some(rate) = rate {
            map.insert(format!("{direction}Rate"), json!(rate));
            map.insert(format!("{direction}Burst"), json!(burst));
        }
    }
    (!map.is_empty()).then_some(Value::Object(map))
}

/// Whole Kubernetes quantities: digits with an optional decimal or binary suffix.
fn quantity(text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(at);
    let scale: u64 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(scale),
        Some((whole, part)) => {
            let digits = u32::try_from(part.len()).ok()?;
            let tens = 10_u64.checked_pow(digits)?;
            let all: u64 = format!("{whole}{part}").parse().ok()?;
            all.checked_mul(scale).map(|scaled| scaled / tens)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::records::{SandboxRow, SandboxStateRow};
    use std::collections::HashMap;

    fn sandbox(config: cri::PodSandboxConfig) -> Sandbox {
        let row = SandboxRow { id: "s1".into(), config: Some(config), ..Default::default() };
        Sandbox::new(&row, SandboxStateRow::default(), "/run/x/s1".into())
    }

    fn config() -> cri::PodSandboxConfig {
        let metadata = cri::PodSandboxMetadata {
            name: "web".into(),
            namespace: "shop".into(),
            uid: "u".into(),
            attempt: 0,
        };
        cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() }
    }

    #[test]
    fn plugins_learn_which_pod_it_is() {
        let attachment = attachment(&sandbox(config()), "/p").unwrap();
        assert_eq!(attachment.container_id, "s1");
        assert_eq!(attachment.netns, std::path::Path::new("/run/x/s1/net"));
        assert!(attachment.args.contains(&("K8S_POD_NAME".to_owned(), "web".to_owned())));
        assert!(attachment.args.contains(&("IgnoreUnknown".to_owned(), "1".to_owned())));
    }

    #[test]
    fn only_ports_with_a_host_port_are_mapped() {
        let mut config = config();
        let port = |host_port| cri::PortMapping {
            protocol: 1,
            container_port: 80,
            host_port,
            host_ip: "127.0.0.1".into(),
        };
        config.port_mappings = vec![port(0), port(8080)];
        let map = capabilities(&config, "/p");
        assert_eq!(
            map["portMappings"],
            json!([{"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "127.0.0.1"}])
        );
    }

    #[test]
    fn annotations_limit_bandwidth() {
        let mut config = config();
        config.annotations =
            HashMap::from([("kubernetes.io/egress-bandwidth".to_owned(), "1.5M".to_owned())]);
        assert_eq!(
            capabilities(&config, "/p")["bandwidth"],
            json!({"egressRate": 1_500_000, "egressBurst": i32::MAX})
        );
        assert_eq!(quantity("10Mi"), Some(10 << 20));
        assert_eq!(quantity("ten"), None);
    }

    #[test]
    fn a_pod_on_the_nodes_network_is_not_attached() {
        let mut config = config();
        let options = cri::NamespaceOption { network: cri::NamespaceMode::Node as i32, ..Default::default() };
        let security =
            cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        config.linux =
            Some(cri::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() });
        assert!(attachment(&sandbox(config), "/p").is_none());
    }
}
