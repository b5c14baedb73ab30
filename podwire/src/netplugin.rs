//! `podwire netplugin`: network policies for the pods of a node, alone beside any runtime, or in `up`; and what they say.

use std::{net::IpAddr, path::Path};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use podwire_client::{Api, Client};
use podwire_netplugin::{Config, NetPlugin, plan::evaluate::Flow, policy};

use crate::{
    cli::{ExplainArgs, NetpluginArgs, UpArgs},
    client::Session,
    instance::Instance,
    node_parts, say,
    solo::{client, traced, until_signal},
    trace::{self, Ring},
};

/// The plugin of `up`, its floor laid; `None` when it has no runtime of ours to serve or is not wanted.
pub fn in_process(
    instance: &Instance,
    args: &UpArgs,
    node_name: &str,
    client: Client,
) -> Result<Option<NetPlugin>> {
    if args.network_policy == "off" {
        return Ok(None);
    }
    if args.node.nri.disable_nri || args.node.container_runtime_endpoint.is_some() {
        tracing::warn!(
            "network policies are not enforced: there is no runtime of ours with NRI; see `podwire netplugin`"
        );
        return Ok(None);
    }
    let config = Config {
        client,
        node_name: node_name.to_owned(),
        nri_socket: args.node.nri.nri_socket.clone().unwrap_or_else(|| instance.nri_socket()),
        table: instance.policy_table(),
        pod_cidrs: node_parts::blocks("--pod-cidr", &args.pod_cidr)?,
        pod_links: vec![instance.bridge()],
        further_addresses: node_parts::blocks("--pod-network-addresses", &args.pod_network_addresses)?,
    };
    config.build().context("start the network plugin").map(Some)
}

/// Enforces policies until SIGTERM or SIGINT; what stands then stays.
pub async fn run(args: NetpluginArgs, ring: Ring) -> Result<()> {
    let client = match &args.kubeconfig {
        Some(kubeconfig) => client(kubeconfig).await?,
        None => of_pod(args.service_host.as_deref(), args.service_port).await?,
    };
    let node_name = args.node_name.clone().unwrap_or_else(node_parts::host_name);
    let pod_cidrs = match args.pod_cidr.as_slice() {
        [] => of_node(&client, &node_name).await?,
        given => node_parts::blocks("--pod-cidr", given)?,
    };
    if pod_cidrs.is_empty() {
        tracing::warn!(
            "no block of pod addresses is known: there is no floor, and pods that come while the plugin is away are open"
        );
    }
    let config = Config {
        client,
        node_name,
        nri_socket: args.nri_socket.clone(),
        table: args.table.clone(),
        pod_cidrs,
        pod_links: args.pod_link.clone(),
        further_addresses: node_parts::blocks("--pod-network-addresses", &args.pod_network_addresses)?,
    };
    let plugin = config.build().context("start the network plugin")?;
    let shutdown = until_signal()?;
    say(&format!("ready table={} socket={}", args.table, args.nri_socket.display()));
    tokio::join!(plugin.run(shutdown.clone()), traced(trace::folder(&args.at)?, ring, shutdown));
    Ok(())
}

/// The API server as a pod finds it: its address in the environment, its authority and the pod's token as files.
pub async fn of_pod(host: Option<&str>, port: Option<u16>) -> Result<Client> {
    let (Some(host), Some(port)) = (host, port) else {
        bail!(
            "--kubeconfig says where the API server is; this is no pod either, as KUBERNETES_SERVICE_HOST is not set"
        );
    };
    let config = podwire_client::Config::parse(&pod_kubeconfig(host, port), Path::new(ACCOUNT));
    let config = config.with_context(|| format!("read the credentials in {ACCOUNT}"))?;
    Client::connect(config).await.context("set up the connection")
}

/// Where a pod has the credentials of its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A pod's credentials in the form of a kubeconfig; the token is read anew whenever it was replaced.
fn pod_kubeconfig(host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": {
            "server": format!("https://{host}:{port}"), "certificate-authority": format!("{ACCOUNT}/ca.crt"),
        }}],
        "users": [{"name": "pod", "user": {"tokenFile": format!("{ACCOUNT}/token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
    })
    .to_string()
}

/// The blocks that the API server knows for a node.
async fn of_node(client: &Client, name: &str) -> Result<Vec<IpNet>> {
    let node: Option<Node> = Api::all(client.clone()).get_opt(name).await.context("read our node")?;
    let spec = node.and_then(|node| node.spec).unwrap_or_default();
    let blocks = spec.pod_cidrs.unwrap_or_else(|| spec.pod_cidr.into_iter().collect());
    node_parts::blocks("spec.podCIDRs", &blocks)
}

/// Says what becomes of a connection, by the table that the kernel has.
pub async fn explain(args: ExplainArgs) -> Result<()> {
    let table = match &args.table {
        Some(table) => table.clone(),
        None => Instance::at(&args.connection.data.data_dir)?.policy_table(),
    };
    let (text, outwards) = match (&args.to, &args.from) {
        (Some(text), _) => (text, true),
        (None, Some(text)) => (text, false),
        (None, None) => bail!("--to or --from says with whom"),
    };
    let (other, protocol, port) = endpoint(text)?;
    let (own, other) = (addresses(&args, &args.pod).await?, addresses(&args, other).await?);
    let mut any = false;
    for ip in own {
        for other in other.iter().filter(|other| other.is_ipv4() == ip.is_ipv4()) {
            let (source, destination) = if outwards { (ip, *other) } else { (*other, ip) };
            let protocol = protocol.unwrap_or(if ip.is_ipv4() { 1 } else { 58 });
            let flow = Flow { source, destination, protocol, port };
            let explained = podwire_netplugin::explain::explain(&table, flow);
            say(explained.with_context(|| format!("read table {table}"))?.to_string().trim_end());
            any = true;
        }
    }
    if !any {
        bail!("{} and {text} have no addresses of one family", args.pod);
    }
    Ok(())
}

/// `10.0.0.1:80/UDP` as who, which protocol and which port; a port without a protocol is one of TCP.
fn endpoint(text: &str) -> Result<(&str, Option<u8>, Option<u16>)> {
    // A name has a slash of its own; a protocol comes last and is one of three.
    let (rest, protocol) = match text.rsplit_once('/') {
        Some((rest, name)) => match name.to_ascii_uppercase().as_str() {
            "TCP" => (rest, Some(policy::TCP)),
            "UDP" => (rest, Some(policy::UDP)),
            "SCTP" => (rest, Some(policy::SCTP)),
            _ => (text, None),
        },
        None => (text, None),
    };
    if rest.parse::<IpAddr>().is_ok() {
        return Ok((rest, protocol, None));
    }
    match rest.rsplit_once(':') {
        Some((who, port)) => {
            let port = port.parse().with_context(|| format!("{text:?}: {port:?} is no port"))?;
            Ok((who.trim_matches(['[', ']']), Some(protocol.unwrap_or(policy::TCP)), Some(port)))
        }
        None => Ok((rest, protocol, None)),
    }
}

/// The addresses of a pod, or the address itself.
async fn addresses(args: &ExplainArgs, who: &str) -> Result<Vec<IpAddr>> {
    if let Ok(ip) = who.parse() {
        return Ok(vec![ip]);
    }
    let session = Session::open(&args.connection).await?;
    let (namespace, name) = match who.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name),
        None => (session.namespace().to_owned(), who),
    };
    let pod = session.get_json(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await?;
    let ips = pod["status"]["podIPs"].as_array().into_iter().flatten();
    let ips: Vec<IpAddr> = ips.filter_map(|one| one["ip"].as_str()?.parse().ok()).collect();
    if ips.is_empty() {
        bail!("pod {namespace}/{name} has no address yet");
    }
    Ok(ips)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_the_api_server_by_its_environment() {
        for (host, server) in [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")] {
            let text: serde_json::Value = serde_json::from_str(&pod_kubeconfig(host, 443)).unwrap();
            assert_eq!(text["clusters"][0]["cluster"]["server"], server);
        }
    }

    #[test]
    fn an_end_is_an_address_or_a_pod_with_or_without_a_port() {
        let read = |text| endpoint(text).unwrap();
        assert_eq!(read("10.0.0.1"), ("10.0.0.1", None, None));
        assert_eq!(read("10.0.0.1:80"), ("10.0.0.1", Some(policy::TCP), Some(80)));
        assert_eq!(read("shop/web:53/udp"), ("shop/web", Some(policy::UDP), Some(53)));
        assert_eq!(read("[fd00::1]:80/SCTP"), ("fd00::1", Some(policy::SCTP), Some(80)));
        assert_eq!(read("fd00::1"), ("fd00::1", None, None));
        assert_eq!(read("shop/web"), ("shop/web", None, None));
        assert!(endpoint("web:http").is_err());
    }
}
