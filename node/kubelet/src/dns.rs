//! Name resolution of a pod: which servers, searches and options its resolv.conf gets. Pure.

use k8s_openapi::api::core::v1::Pod;
use podwire_wire::cri;

use crate::spec;

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

/// The node's own resolver configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostResolver {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

impl HostResolver {
    /// Reads the text of a resolv.conf.
    pub fn parse(text: &str) -> HostResolver {
        let mut host = HostResolver::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => host.servers.extend(words.next().map(str::to_owned)),
                // The root alone is no domain to search.
                Some("search") => {
                    let names = words.map(|word| word.trim_end_matches('.')).filter(|name| !name.is_empty());
                    host.searches = names.map(str::to_owned).collect();
                }
                // As resolvers read it: lines add up, and of two with one name the later counts.
                Some("options") => {
                    for option in words {
                        let name = option.split(':').next();
                        host.options.retain(|known| known.split(':').next() != name);
                        host.options.push(option.to_owned());
                    }
                }
                _ => {}
            }
        }
        host
    }
}

/// What the node is configured with for its cluster's names.
#[derive(Clone, Debug, Default)]
pub struct ClusterDns {
    /// Addresses of the cluster's name servers.
    pub servers: Vec<String>,
    /// The cluster's domain, e.g. `cluster.local`.
    pub domain: String,
}

/// The resolver configuration of `pod`.
pub fn config(pod: &Pod, cluster: &ClusterDns, host: &HostResolver) -> cri::DnsConfig {
    let spec = spec::spec(pod);
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let host_network = spec::host_network(pod);
    let first = policy == "ClusterFirstWithHostNet" || (policy == "ClusterFirst" && !host_network);
    let mut config = match policy {
        "None" => cri::DnsConfig::default(),
        _ if first && !cluster.servers.is_empty() => cluster_first(pod, cluster, host),
        _ => cri::DnsConfig {
            servers: host.servers.clone(),
            searches: host.searches.clone(),
            options: host.options.clone(),
        },
    };
    if let Some(own) = &spec.dns_config {
        append(&mut config.servers, own.nameservers.as_deref().unwrap_or_default());
        append(&mut config.searches, own.searches.as_deref().unwrap_or_default());
        for option in own.options.as_deref().unwrap_or_default() {
            let name = option.name.clone().unwrap_or_default();
            config.options.retain(|o| o.split(':').next() != Some(&name));
            config
                .options
                .push(option.value.as_ref().map_or(name.clone(), |value| format!("{name}:{value}")));
        }
    }
    config.servers.truncate(MAX_SERVERS);
    config.searches.truncate(MAX_SEARCHES);
    while config.searches.iter().map(|s| s.len() + 1).sum::<usize>() > MAX_SEARCH_CHARS + 1 {
        config.searches.pop();
    }
    config
}

fn cluster_first(pod: &Pod, cluster: &ClusterDns, host: &HostResolver) -> cri::DnsConfig {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let mut searches = Vec::new();
    if !cluster.domain.is_empty() {
        let domain = &cluster.domain;
        searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    }
    append(&mut searches, &host.searches);
    cri::DnsConfig { servers: cluster.servers.clone(), searches, options: vec!["ndots:5".into()] }
}

fn append(to: &mut Vec<String>, more: &[String]) {
    for item in more {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

/// The host name and, if the pod has a subdomain, its domain within the cluster.
pub fn hostname(pod: &Pod, cluster_domain: &str) -> (String, String) {
    let spec = spec::spec(pod);
    if let Some(name) = spec.hostname_override.as_deref().filter(|n| !n.is_empty()) {
        return (name.to_owned(), String::new());
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let host = spec.hostname.as_deref().filter(|h| !h.is_empty()).unwrap_or(name);
    let host: String = host.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let domain = spec.subdomain.as_deref().filter(|s| !s.is_empty());
    (host, domain.map_or_else(String::new, |sub| format!("{sub}.{namespace}.svc.{cluster_domain}")))
}

/// The content of the pod's /etc/hosts; `base` is the node's own file for pods on the node's network.
pub fn hosts_file(pod: &Pod, ips: &[String], cluster_domain: &str, base: Option<&str>) -> String {
    let mut text = match base {
        Some(base) => format!("# Kubernetes-managed hosts file (host network).\n{base}"),
        None => own_hosts(pod, ips, cluster_domain),
    };
    let aliases = spec::spec(pod).host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let names = alias.hostnames.as_deref().unwrap_or_default();
            text.push_str(&format!("{}\t{}\n", alias.ip, names.join("\t")));
        }
    }
    text
}

fn own_hosts(pod: &Pod, ips: &[String], cluster_domain: &str) -> String {
    let (host, domain) = hostname(pod, cluster_domain);
    let mut text = String::from("# Kubernetes-managed hosts file.\n");
    text.push_str("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    text.push_str(
        "fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        match domain.as_str() {
            "" => text.push_str(&format!("{ip}\t{host}\n")),
            domain => text.push_str(&format!("{ip}\t{host}.{domain}\t{host}\n")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web-0", "namespace": "shop"}, "spec": spec,
        }))
        .unwrap()
    }

    fn cluster() -> ClusterDns {
        ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() }
    }

    #[test]
    fn cluster_first_searches_the_namespace_then_the_node() {
        let host = HostResolver::parse("nameserver 9.9.9.9\nsearch corp.example\n");
        let dns = config(&pod(serde_json::json!({"containers": []})), &cluster(), &host);
        assert_eq!(dns.servers, ["10.96.0.10"]);
        assert_eq!(
            dns.searches,
            ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"]
        );
        assert_eq!(dns.options, ["ndots:5"]);
    }

    #[test]
    fn options_of_all_lines_count_and_the_root_is_no_search_domain() {
        let host = HostResolver::parse("search . a. ..\noptions ndots:2 edns0\noptions ndots:3 rotate\n");
        assert_eq!(
            (host.searches, host.options),
            (vec!["a".to_owned()], ["edns0", "ndots:3", "rotate"].map(str::to_owned).to_vec(),)
        );
    }

    #[test]
    fn a_pods_own_options_replace_the_defaults_of_the_same_name() {
        let own = serde_json::json!({"containers": [], "dnsConfig": {"options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}});
        let dns = config(&pod(own), &cluster(), &HostResolver::default());
        assert_eq!(dns.options, ["ndots:2", "edns0"]);
    }

    #[test]
    fn policy_none_takes_only_what_the_pod_says() {
        let own = serde_json::json!({"containers": [], "dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.2.3.4"]}});
        let dns = config(&pod(own), &cluster(), &HostResolver::parse("nameserver 9.9.9.9"));
        assert_eq!((dns.servers, dns.searches.len()), (vec!["1.2.3.4".to_owned()], 0));
    }

    #[test]
    fn the_hosts_file_names_the_pod_and_its_aliases() {
        let own = serde_json::json!({"containers": [], "hostname": "h", "subdomain": "sub",
            "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["foo", "bar"]}]});
        let text = hosts_file(&pod(own), &["10.0.0.7".into()], "cluster.local", None);
        assert!(text.contains("10.0.0.7\th.sub.shop.svc.cluster.local\th\n"), "{text}");
        assert!(text.contains("# Entries added by HostAliases.\n10.1.2.3\tfoo\tbar\n"), "{text}");
    }
}
