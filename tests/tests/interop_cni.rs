//! Our plugins and the reference's, one after the other on the same pod: ADD by one, CHECK by both, DEL by the other.
#![cfg(feature = "interop")]

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use podwire_linux::netns::{self, Netns};
use podwire_linux::rtnl::{Batch, Bridge, LinkChange, LinkRef, Socket};
use podwire_testkit::node::bin_dir;
use podwire_testkit::parts::{PLUGINS, plugins};
use serde_json::{Value, json};

fn folder(variable: &str, why: &str) -> PathBuf {
    let value = std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set: {why}"));
    PathBuf::from(value)
}

/// Whose plugins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Reference,
}

struct Node {
    dir: tempfile::TempDir,
    ours: PathBuf,
    reference: PathBuf,
    peers: PathBuf,
}

impl Node {
    fn new() -> Node {
        let binary = bin_dir().join("podwire-cni");
        assert!(binary.is_file(), "{} is not built", binary.display());
        let peers = folder("PODWIRE_PEERS", "the folder `make peers` fills");
        let reference = peers.join("cni");
        assert!(
            reference.join("bridge").is_file(),
            "the reference plugins are not in {}: run make peers",
            reference.display()
        );
        let dir = tempfile::tempdir().expect("folder");
        let ours = plugins(&dir.path().join("bin")).expect("links to our plugins");
        Node { dir, ours, reference, peers }
    }

    fn bin(&self, side: Side) -> &Path {
        if side == Side::Ours { &self.ours } else { &self.reference }
    }

    /// Runs a plugin; its answer, or its error.
    fn call(&self, side: Side, command: &str, pod: &Pod, conf: &Value) -> Result<Value, String> {
        let bin = self.bin(side);
        let mut child = Command::new(bin.join(conf["type"].as_str().expect("type")))
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &pod.id)
            .env("CNI_NETNS", pod.path())
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", bin)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start plugin");
        // Ignored: VERSION is answered without reading.
        child.stdin.take().expect("stdin").write_all(conf.to_string().as_bytes()).ok();
        let output = child.wait_with_output().expect("plugin");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Err(format!("{stdout} {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(serde_json::from_str(&stdout).unwrap_or(Value::Null))
    }
}

struct Pod {
    id: String,
    netns: Netns,
}

impl Pod {
    fn new(id: &str) -> Pod {
        Pod { id: id.into(), netns: netns::create().expect("namespace") }
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_fd().as_raw_fd())
    }
}

/// Runs a test on a thread whose network namespace is new.
fn on_a_node(test: impl FnOnce(&Node) + Send + 'static) {
    let work = move || {
        let _own = netns::unshare().expect("a network namespace (needs root)");
        let mut batch = Batch::new();
        batch.set_link(LinkRef::Name("lo"), &LinkChange { up: Some(true), ..LinkChange::default() });
        Socket::route().expect("socket").exchange(&mut batch).expect("lo");
        test(&Node::new());
    };
    let thread = std::thread::Builder::new().name("node".into()).spawn(work).expect("thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn with(conf: &Value, key: &str, value: &Value) -> Value {
    let mut conf = conf.clone();
    conf[key] = value.clone();
    conf
}

fn bridge(node: &Node, backend: &str) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
        "ipMasq": true, "ipMasqBackend": backend, "hairpinMode": true,
        "ipam": {
            "type": "host-local", "dataDir": node.dir.path().join("ipam"),
            "ranges": [[{"subnet": "10.5.0.0/24"}], [{"subnet": "fd05::/64"}]],
        },
    })
}

/// What the packet filters hold of a container.
fn filters() -> String {
    let run = |program: &str, args: &[&str]| {
        let output =
            Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    [run("nft", &["list", "ruleset"]), run("iptables-save", &[]), run("ip6tables-save", &[])].concat()
}

/// A link that macvlans may stand on.
fn parent(name: &str) {
    let mut batch = Batch::new();
    batch.add_bridge(&Bridge { name, ..Bridge::default() });
    Socket::route().expect("socket").exchange(&mut batch).expect("parent");
}

fn veths() -> usize {
    let links = Socket::route().expect("socket").links().expect("links");
    links.iter().filter(|link| link.name.starts_with("veth") || link.name.starts_with("bwp")).count()
}

fn reservations(node: &Node) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(node.dir.path().join("ipam/net")) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// The addresses of a result, without their prefixes.
fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().into_iter().flatten();
    ips.filter_map(|ip| Some(ip["address"].as_str()?.split('/').next()?.to_owned())).collect()
}

/// ADD by one, CHECK by both, DEL by the other; then nothing is left.
fn both_ways(node: &Node, first: Option<&Value>, conf: &Value) {
    for (n, (one, other)) in
        [(Side::Ours, Side::Reference), (Side::Reference, Side::Ours)].into_iter().enumerate()
    {
        let what = format!("{} added by {one:?}", conf["type"]);
        let pod = Pod::new(&format!("container{n}"));
        let mut conf = conf.clone();
        if let Some(first) = first {
            let prev = node
                .call(one, "ADD", &pod, first)
                .unwrap_or_else(|error| panic!("{what}: before it: {error}"));
            conf["prevResult"] = prev;
        }
        let result = node.call(one, "ADD", &pod, &conf).unwrap_or_else(|error| panic!("{what}: {error}"));
        let full = with(&conf, "prevResult", &result);
        for side in [one, other] {
            node.call(side, "CHECK", &pod, &full)
                .unwrap_or_else(|error| panic!("{what}: CHECK by {side:?}: {error}"));
        }
        node.call(other, "DEL", &pod, &full)
            .unwrap_or_else(|error| panic!("{what}: DEL by {other:?}: {error}"));
        if let Some(first) = first {
            node.call(other, "DEL", &pod, &with(first, "prevResult", &result)).expect("DEL of the first");
        }
        assert_nothing_left(node, &pod, &addresses(&result), &what);
    }
}

fn assert_nothing_left(node: &Node, pod: &Pod, addresses: &[String], what: &str) {
    assert!(reservations(node).is_empty(), "{what}: addresses are left");
    assert_eq!(veths(), 0, "{what}: links are left");
    let inside = pod.netns.run(|| Socket::route().expect("socket").links().expect("links")).expect("pod");
    let inside: Vec<&str> = inside.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(inside, ["lo"], "{what}: links are left in the pod");
    // Rules of the firewall plugin name no container, only its address.
    let about = |line: &&str| line.contains(&pod.id) || addresses.iter().any(|ip| line.contains(ip.as_str()));
    let rules = filters();
    let left: Vec<&str> = rules.lines().filter(about).collect();
    assert!(left.is_empty(), "{what}: rules are left: {left:?}");
    let backups = std::fs::read_dir(node.dir.path().join("tuning")).into_iter().flatten().count();
    assert_eq!(backups, 0, "{what}: a backup of tuning is left");
}

#[test]
fn smoke_bridge_is_shared_with_the_reference_in_both_backends() {
    on_a_node(|node| {
        both_ways(node, None, &bridge(node, "iptables"));
        both_ways(node, None, &bridge(node, "nftables"));
    });
}

#[test]
fn ptp_macvlan_and_loopback_are_shared_with_the_reference() {
    on_a_node(|node| {
        let mut ptp = bridge(node, "iptables");
        ptp["type"] = json!("ptp");
        ptp["ipam"]["ranges"] = json!([[{"subnet": "10.7.0.0/24"}]]);
        ptp["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
        both_ways(node, None, &ptp);
        parent("parent0");
        let ipam = json!({"type": "static", "addresses": [{"address": "10.8.0.5/24", "gateway": "10.8.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]});
        both_ways(
            node,
            None,
            &json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "parent0", "ipam": ipam}),
        );
        both_ways(node, None, &json!({"cniVersion": "1.0.0", "name": "net", "type": "loopback"}));
    });
}

#[test]
fn smoke_port_mappings_are_shared_with_the_reference_in_both_backends() {
    on_a_node(|node| {
        for backend in ["iptables", "nftables"] {
            let conf = json!({
                "cniVersion": "1.0.0", "name": "net", "type": "portmap", "backend": backend,
                "runtimeConfig": {"portMappings": [
                    {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
                    {"hostPort": 8081, "containerPort": 81, "protocol": "udp", "hostIP": "10.5.0.1"},
                ]},
            });
            both_ways(node, Some(&bridge(node, "iptables")), &conf);
        }
    });
}

#[test]
fn bandwidth_firewall_and_tuning_are_shared_with_the_reference() {
    on_a_node(|node| {
        let first = bridge(node, "iptables");
        let bandwidth = json!({
            "cniVersion": "1.0.0", "name": "net", "type": "bandwidth",
            "ingressRate": 10_000_000, "ingressBurst": 1_000_000, "egressRate": 7_000_000, "egressBurst": 900_000,
        });
        both_ways(node, Some(&first), &bandwidth);
        for policy in ["open", "same-bridge", "isolated"] {
            let firewall = json!({"cniVersion": "1.0.0", "name": "net", "type": "firewall", "backend": "iptables", "ingressPolicy": policy});
            both_ways(node, Some(&first), &firewall);
        }
        let tuning = json!({
            "cniVersion": "1.0.0", "name": "net", "type": "tuning", "mtu": 1400, "mac": "02:aa:bb:cc:dd:ee",
            "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}, "dataDir": node.dir.path().join("tuning"),
        });
        both_ways(node, Some(&first), &tuning);
    });
}

#[test]
fn host_local_and_static_are_shared_with_the_reference() {
    on_a_node(|node| {
        let ipam = bridge(node, "iptables")["ipam"].clone();
        both_ways(
            node,
            None,
            &json!({"cniVersion": "1.0.0", "name": "net", "type": "host-local", "ipam": ipam}),
        );
        // What both_ways would also find if nothing had been reserved at all.
        let conf = json!({"cniVersion": "1.0.0", "name": "net", "type": "host-local", "ipam": ipam});
        for (one, other) in [(Side::Ours, Side::Reference), (Side::Reference, Side::Ours)] {
            let pod = Pod::new("reserved");
            let result = node.call(one, "ADD", &pod, &conf).expect("ADD");
            assert_eq!(reservations(node).len(), 2, "one address of each family");
            node.call(other, "ADD", &pod, &conf)
                .expect_err("the other sees that the container has addresses");
            let lost = reservations(node);
            for ip in &lost {
                std::fs::remove_file(node.dir.path().join("ipam/net").join(ip)).expect("remove");
            }
            for side in [one, other] {
                node.call(side, "CHECK", &pod, &with(&conf, "prevResult", &result))
                    .expect_err("CHECK sees that the reservation is gone");
            }
            node.call(other, "DEL", &pod, &conf).expect("DEL without reservation");
        }
        let addresses = json!([{"address": "10.8.0.5/24", "gateway": "10.8.0.1"}, {"address": "fd08::5/64"}]);
        both_ways(
            node,
            None,
            &json!({
                "cniVersion": "1.0.0", "name": "net", "type": "static",
                "ipam": {"type": "static", "addresses": addresses, "routes": [{"dst": "0.0.0.0/0"}]},
            }),
        );
    });
}

#[test]
fn every_plugin_answers_version_and_status_on_both_sides() {
    on_a_node(|node| {
        let pod = Pod::new("asked");
        let static_ipam = json!({"type": "static", "addresses": [{"address": "10.8.0.5/24"}]});
        parent("parent0");
        for plugin in PLUGINS {
            let mut conf = bridge(node, "iptables");
            conf["cniVersion"] = json!("1.1.0");
            conf["type"] = json!(plugin);
            conf["master"] = json!("parent0");
            if plugin == "static" {
                conf["ipam"] = static_ipam.clone();
            }
            let version = |side| node.call(side, "VERSION", &pod, &conf).expect("VERSION");
            assert_eq!(
                version(Side::Ours)["supportedVersions"],
                version(Side::Reference)["supportedVersions"],
                "{plugin}"
            );
            for side in [Side::Ours, Side::Reference] {
                node.call(side, "STATUS", &pod, &conf)
                    .unwrap_or_else(|error| panic!("STATUS of {plugin} by {side:?}: {error}"));
            }
        }
    });
}

#[test]
fn the_reference_ipam_and_ours_serve_each_others_interface_plugins() {
    on_a_node(|node| {
        let conf = bridge(node, "nftables");
        // Our bridge with the reference's host-local on its path, which then must be executed.
        let mixed = node.dir.path().join("mixed");
        std::fs::create_dir(&mixed).expect("folder");
        std::os::unix::fs::symlink(node.ours.join("bridge"), mixed.join("bridge")).expect("link");
        std::fs::copy(node.reference.join("host-local"), mixed.join("host-local")).expect("copy");
        let mixed = Node {
            dir: tempfile::tempdir().expect("folder"),
            ours: mixed,
            reference: node.reference.clone(),
            peers: node.peers.clone(),
        };
        let pod = Pod::new("mixed");
        let result = mixed.call(Side::Ours, "ADD", &pod, &conf).expect("ADD with a foreign IPAM");
        assert_eq!(reservations(node).len(), 2);
        mixed
            .call(Side::Ours, "CHECK", &pod, &with(&conf, "prevResult", &result))
            .expect("CHECK with a foreign IPAM");
        mixed.call(Side::Ours, "DEL", &pod, &conf).expect("DEL with a foreign IPAM");
        assert!(reservations(node).is_empty());
        // Alternating, they never give the same address twice.
        let mut seen = std::collections::HashSet::new();
        let pods: Vec<Pod> = (0..10).map(|n| Pod::new(&format!("pod{n}"))).collect();
        for (n, pod) in pods.iter().enumerate() {
            let side = if n % 2 == 0 { Side::Ours } else { Side::Reference };
            let result = node.call(side, "ADD", pod, &conf).expect("ADD");
            assert!(seen.insert(result["ips"][0]["address"].to_string()), "{result}");
        }
        for (n, pod) in pods.iter().enumerate() {
            let side = if n % 2 == 0 { Side::Reference } else { Side::Ours };
            node.call(side, "DEL", pod, &conf).expect("DEL");
        }
        assert!(reservations(node).is_empty());
    });
}

#[test]
fn smoke_cnitool_drives_our_plugins() {
    on_a_node(|node| {
        let candidates = [node.peers.join("cnitool"), node.peers.join("cni/cnitool")];
        let tool = candidates.iter().find(|path| path.is_file()).expect("cnitool is built by make peers");
        let conf_dir = node.dir.path().join("net.d");
        std::fs::create_dir(&conf_dir).expect("folder");
        let mut plugin = bridge(node, "nftables");
        plugin.as_object_mut().expect("object").remove("name");
        let portmap =
            json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}});
        let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [plugin, portmap]});
        std::fs::write(conf_dir.join("10-net.conflist"), list.to_string()).expect("write");
        let pod = Pod::new("unused");
        let run = |verb: &str| {
            let output = Command::new(tool)
                .args([verb, "net", &pod.path()])
                .env("CNI_PATH", &node.ours)
                .env("NETCONFPATH", &conf_dir)
                .env("CNI_IFNAME", "eth0")
                .env(
                    "CAP_ARGS",
                    json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]})
                        .to_string(),
                )
                .output()
                .expect("cnitool");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success(),
                "cnitool {verb}: {text} {}",
                String::from_utf8_lossy(&output.stderr)
            );
            text
        };
        let result: Value = serde_json::from_str(&run("add")).expect("a result");
        assert_eq!(result["ips"].as_array().expect("ips").len(), 2);
        run("check");
        run("status");
        run("del");
        run("del");
        assert!(reservations(node).is_empty());
        assert_eq!(veths(), 0);
    });
}

#[test]
fn smoke_podwire_cni_drives_the_reference_plugins() {
    on_a_node(|node| {
        let podwire = folder("PODWIRE_BIN_DIR", "the folder of our binaries").join("podwire");
        assert!(podwire.is_file(), "{} is not built", podwire.display());
        let conf_dir = node.dir.path().join("net.d");
        std::fs::create_dir(&conf_dir).expect("folder");
        let portmap =
            json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}});
        let list =
            json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge(node, "nftables"), portmap]});
        std::fs::write(conf_dir.join("10-net.conflist"), list.to_string()).expect("write");
        let pod = Pod::new("driven");
        let run = |verb: &str, args: &[&str]| {
            let output = Command::new(&podwire)
                .args(["cni", verb])
                .args(args)
                .arg("--data-dir")
                .arg(node.dir.path().join("data"))
                .env("CNI_PATH", &node.reference)
                .env("NETCONFPATH", &conf_dir)
                .output()
                .expect("podwire");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success(),
                "podwire cni {verb}: {text} {}",
                String::from_utf8_lossy(&output.stderr)
            );
            text
        };
        let ports =
            json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}).to_string();
        let target = ["--container-id", "driven", "--capability-args", &ports, &pod.path()];
        let result: Value = serde_json::from_str(&run("add", &target)).expect("a result");
        assert_eq!(result["ips"].as_array().expect("ips").len(), 2);
        assert_eq!(run("add", &target), run("add", &target), "attached once, however often it is asked for");
        run("check", &target);
        assert!(run("list", &[]).contains("driven"));
        assert!(filters().contains("driven"), "the reference portmap was told the mapping");
        run("del", &target);
        run("del", &target);
        assert!(reservations(node).is_empty());
        assert_eq!(veths(), 0);
        assert!(!filters().contains("driven"));
    });
}
