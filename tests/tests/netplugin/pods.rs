//! Pods to speak from and to: each probe opens real sockets inside the network namespaces of the pods.
#![allow(dead_code)] // Not every test that shares this file uses all of it.

use std::{
    collections::BTreeMap,
    io::Read,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use podwire_linux::{netns::Netns, rtnl};
use podwire_testkit::{Node, eventually};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// From whom to whom (`NAMESPACE/NAME`, with `/6` or `/link` its IPv6 or link-local address, or `node`), protocol, port, and
/// whether it passes.
pub(crate) type Ask = (&'static str, &'static str, u8, u16, bool);

/// How long a packet may take that passes; one that is dropped takes as long.
const MOMENT: Duration = Duration::from_millis(400);

#[derive(Clone)]
pub(crate) struct Pod {
    pub(crate) netns: PathBuf,
    pub(crate) addresses: Vec<IpAddr>,
}

#[derive(Clone, Default)]
pub(crate) struct Pods(pub(crate) BTreeMap<String, Pod>);

pub(crate) fn namespace(name: &str, labels: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n")
}

pub(crate) fn policy(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: {namespace}, name: {name}}}\nspec:\n  {spec}\n"
    )
}

pub(crate) fn manifest(name: &str) -> String {
    let (namespace, name) = name.split_once('/').expect("NAMESPACE/NAME");
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{namespace: {namespace}, name: {name}, labels: {{pod: {name}}}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    ports: [{{name: web, containerPort: 80}}, {{name: dns, containerPort: 53, protocol: UDP}}]\n"
    )
}

impl Pods {
    /// Starts pods and waits until they run.
    pub(crate) fn run(node: &Node, names: &[&str]) -> Result<Pods> {
        for name in names {
            node.apply(&manifest(name))?;
        }
        let mut pods = Pods::default();
        for name in names {
            let addresses = running(node, name)?;
            let netns = netns_of(node, &addresses)?;
            pods.0.insert((*name).to_owned(), Pod { netns, addresses });
        }
        Ok(pods)
    }

    pub(crate) fn and(mut self, other: Pods) -> Pods {
        self.0.extend(other.0);
        self
    }

    /// One of them alone.
    pub(crate) fn of(all: &Pods, name: &str) -> Pods {
        Pods(all.0.get_key_value(name).map(|(name, pod)| (name.clone(), pod.clone())).into_iter().collect())
    }

    pub(crate) fn delete(&self, node: &Node, name: &str) -> Result<()> {
        let (namespace, name) = name.split_once('/').context("NAMESPACE/NAME")?;
        node.podwire(["delete", "-n", namespace, "pod", name]).map(drop)
    }

    /// Asks each, and names all that are not as they should be.
    pub(crate) fn all(&self, asks: &[Ask]) -> Result<()> {
        let mut wrong = Vec::new();
        for ask in asks {
            // One that should pass may be slow on a busy machine; one that should not is asked once.
            let mut passed = self.passes(*ask)?;
            for _ in 0..9 {
                passed = passed || ask.4 && self.passes(*ask)?;
            }
            if passed != ask.4 {
                wrong.push(format!("{ask:?}"));
            }
        }
        ensure!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
        Ok(())
    }

    /// Asks until it is as it should be.
    pub(crate) fn eventually(&self, ask: Ask) -> Result<()> {
        eventually(&format!("{ask:?}"), Duration::from_secs(20), || match self.passes(ask) {
            Ok(passed) if passed == ask.4 => Ok(()),
            other => Err(format!("{other:?}")),
        })
    }

    fn netns(&self, name: &str) -> Result<PathBuf> {
        if name == "node" {
            return Ok(PathBuf::from("/proc/thread-self/ns/net"));
        }
        let name: String = name.split('/').take(2).collect::<Vec<_>>().join("/");
        Ok(self.0.get(&name).with_context(|| format!("no pod {name}"))?.netns.clone())
    }

    fn address(&self, name: &str, from: &Path) -> Result<SocketAddr> {
        if name == "node" {
            // The pods' gateway is an address of the node.
            let Some(IpAddr::V4(ip)) = self.0.values().next().map(|pod| pod.addresses[0]) else {
                bail!("IPv4")
            };
            let [a, b, ..] = ip.octets();
            return Ok(SocketAddr::from(([a, b, 0, 1], 0)));
        }
        let mut parts = name.splitn(3, '/');
        let key = format!("{}/{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let pod = self.0.get(&key).with_context(|| format!("no pod {key}"))?;
        match parts.next() {
            Some("6") => Ok(SocketAddr::new(pod.addresses[1], 0)),
            Some("link") => {
                let (ip, _) = link_local(&pod.netns)?;
                let (_, index) = link_local(from)?;
                Ok(SocketAddr::V6(SocketAddrV6::new(ip, 0, 0, index)))
            }
            _ => Ok(SocketAddr::new(pod.addresses[0], 0)),
        }
    }

    /// Both ends of a connection that stands.
    pub(crate) fn connect(&self, from: &str, to: &str, port: u16) -> Result<(TcpStream, TcpStream)> {
        let (source, target) = (self.netns(from)?, self.netns(to)?);
        let mut address = self.address(to, &source)?;
        address.set_port(port);
        let listen = SocketAddr::from(([0, 0, 0, 0], port));
        let listener = Netns::open(&target)?.run(|| TcpListener::bind(listen))??;
        let client = Netns::open(&source)?.run(|| TcpStream::connect_timeout(&address, MOMENT * 5))??;
        let (server, _) = listener.accept()?;
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(MOMENT))?;
        }
        Ok((client, server))
    }

    /// Whether a connection gets through, begun and answered.
    pub(crate) fn passes(&self, (from, to, protocol, port, _): Ask) -> Result<bool> {
        let (source, target) = (self.netns(from)?, self.netns(to)?);
        let mut address = self.address(to, &source)?;
        address.set_port(port);
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let listen = SocketAddr::new(any.ip(), port);
        if protocol == TCP {
            let listener = Netns::open(&target)?.run(|| TcpListener::bind(listen))??;
            let connected = Netns::open(&source)?.run(|| TcpStream::connect_timeout(&address, MOMENT))?;
            let Ok(mut stream) = connected else { return Ok(false) };
            stream.set_read_timeout(Some(MOMENT))?;
            let (peer, _) = listener.accept()?;
            drop(peer);
            // The end of the stream is an answer, too.
            return Ok(stream.read(&mut [0; 1]).is_ok());
        }
        let server = Netns::open(&target)?.run(|| UdpSocket::bind(listen))??;
        let client = Netns::open(&source)?.run(|| UdpSocket::bind(any))??;
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(MOMENT))?;
        }
        // Ignored: what may not be sent does not arrive.
        client.send_to(b"?", address).ok();
        let Ok((_, peer)) = server.recv_from(&mut [0; 4]) else { return Ok(false) };
        server.send_to(b"!", peer)?;
        Ok(client.recv_from(&mut [0; 4]).is_ok())
    }
}

fn link_local(netns: &Path) -> Result<(Ipv6Addr, u32)> {
    let addresses =
        Netns::open(netns)?.run(|| rtnl::Socket::route().and_then(|mut socket| socket.all_addresses()))??;
    let mut found = addresses.into_iter().filter_map(|one| match one.net.addr() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some((ip, one.link)),
        _ => None,
    });
    found.next().context("no link-local address")
}

pub(crate) fn running(node: &Node, name: &str) -> Result<Vec<IpAddr>> {
    let (namespace, short) = name.split_once('/').context("NAMESPACE/NAME")?;
    eventually(&format!("pod {name} runs"), Duration::from_secs(40), || {
        let text = node
            .podwire(["get", "-n", namespace, "pod", short, "-o", "json"])
            .map_err(|error| format!("{error:#}"))?;
        let pod: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if pod["status"]["phase"] != "Running" {
            return Err(pod["status"].to_string());
        }
        let ips = pod["status"]["podIPs"].as_array().into_iter().flatten();
        Ok(ips.filter_map(|one| one["ip"].as_str()?.parse().ok()).collect())
    })
    .with_context(|| node.log_tail())
}

/// The namespace in which a pod's address is.
fn netns_of(node: &Node, addresses: &[IpAddr]) -> Result<PathBuf> {
    let wanted = addresses.first().context("a pod without addresses")?;
    for folder in std::fs::read_dir(node.names()?.run_dir.join("sandboxes"))? {
        let path = folder?.path().join("net");
        let Ok(netns) = Netns::open(&path) else { continue };
        let found = netns.run(|| rtnl::Socket::route().and_then(|mut socket| socket.all_addresses()))??;
        if found.iter().any(|one| one.net.addr() == *wanted) {
            return Ok(path);
        }
    }
    bail!("no sandbox has {wanted}")
}
