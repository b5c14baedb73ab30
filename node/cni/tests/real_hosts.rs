//! The network on hosts as they are: pods that are still dying, Docker's and ufw's packet filter, tables that cannot be read.

#[path = "support/node.rs"]
mod node;

use std::{
    net::TcpStream, os::unix::fs::PermissionsExt, path::Path, process::Command as Program, time::Duration,
};

use node::{Pod, links, network, networks, on_a_node, reserved};
use podwire_cni_lib::plugins;
use podwire_cni_lib::spec::{CniError, Command, Request};
use podwire_linux::netns;
use podwire_linux::rtnl::{Batch, LinkChange, LinkRef, NewAddress, Peer, Route, Scope, Socket, Veth};
use serde_json::{Value, json};

fn request(command: Command, pod: &Pod, conf: &Value) -> Request {
    Request {
        command,
        container_id: pod.attachment.container_id.clone(),
        netns: pod.attachment.netns.display().to_string(),
        ifname: pod.attachment.ifname.clone(),
        args: String::new(),
        path: Vec::new(),
        netns_override: false,
        trace: Vec::new(),
        netns_is_dying: false,
        is_program: false,
        conf: conf.clone(),
    }
}

fn call(request: &Request) -> Result<Option<Value>, CniError> {
    plugins::run(request.conf["type"].as_str().expect("type"), request)
}

fn ipam(dir: &Path) -> Value {
    json!({
        "type": "host-local", "dataDir": dir.join("ipam"), "ranges": [[{"subnet": "10.5.0.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.5.0.1"}],
    })
}

fn conf(dir: &Path, kind: &str) -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": kind, "bridge": "br0", "isGateway": true, "ipam": ipam(dir)})
}

fn addresses(pod: &Pod) -> usize {
    pod.run(|| {
        let mut socket = Socket::route().expect("socket");
        let link = socket.link(LinkRef::Name("eth0")).expect("ask");
        link.map_or(0, |link| socket.addresses(link.index).expect("addresses").len())
    })
}

/// An IPAM plugin of somebody else's that notes at DEL whether the interface is still there.
fn watching_ipam(dir: &Path) {
    let path = dir.join("witness");
    let seen = dir.join("seen");
    let script = format!(
        "#!/bin/sh\ncat > /dev/null\ncase $CNI_COMMAND in\nADD) echo '{{\"cniVersion\":\"1.1.0\",\"ips\":[{{\"address\":\"10.5.0.9/24\",\"gateway\":\"10.5.0.1\"}}]}}' ;;\nDEL) nsenter --net=$CNI_NETNS ip -4 -o address show $CNI_IFNAME > {} 2>&1 || true ;;\nesac\n",
        seen.display()
    );
    std::fs::write(&path, script).expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
}

#[test]
fn an_address_is_free_only_when_nobody_answers_for_it_any_more() {
    on_a_node(|dir| {
        watching_ipam(dir);
        for (kind, dying) in [("bridge", false), ("bridge", true), ("ptp", false), ("ptp", true)] {
            let pod = Pod::new("a");
            let mut conf = conf(dir, kind);
            conf["ipam"] = json!({"type": "witness"});
            let ask = |command| Request {
                path: vec![dir.to_owned()],
                netns_is_dying: dying,
                ..request(command, &pod, &conf)
            };
            call(&ask(Command::Add)).expect("ADD");
            assert!(addresses(&pod) > 0, "{kind}");
            call(&ask(Command::Del)).expect("DEL");
            let seen = std::fs::read_to_string(dir.join("seen")).expect("IPAM was asked");
            assert!(
                !seen.contains("10.5.0.9"),
                "{kind}, dying {dying}: at IPAM's DEL the pod still had {seen}"
            );
            std::fs::remove_file(dir.join("seen")).expect("remove");
        }
    });
}

#[test]
fn a_pod_gets_the_route_of_one_that_is_still_dying() {
    on_a_node(|dir| {
        // What is left of the pod before: its link and the route to its address.
        let mut socket = Socket::route().expect("socket");
        let mut batch = Batch::new();
        let peer = Peer { name: "far0", netns: None, mac: None };
        batch.add_veth(&Veth { name: "dying0", up: true, master: None, mtu: None, mac: None, peer });
        batch.set_link(LinkRef::Name("far0"), &LinkChange { up: Some(true), ..LinkChange::default() });
        socket.exchange(&mut batch).expect("veth");
        let dying = socket.link(LinkRef::Name("dying0")).expect("ask").expect("link").index;
        let address: ipnet::IpNet = "10.5.0.2/32".parse().expect("net");
        let mut batch = Batch::new();
        batch.add_route(&Route { scope: Some(Scope::HOST), ..Route::by_link(address, dying) });
        socket.exchange(&mut batch).expect("route");
        let pod = Pod::new("b");
        let conf = conf(dir, "ptp");
        let result = call(&request(Command::Add, &pod, &conf)).expect("ADD").expect("result");
        assert_eq!(result["ips"][0]["address"], "10.5.0.2/24");
        let routes = socket.routes(None, false).expect("routes");
        let ours: Vec<u32> =
            routes.iter().filter(|route| route.destination == address).map(|route| route.link).collect();
        assert_ne!(ours, [dying], "the new pod can be reached");
        let listener = pod.run(|| std::net::TcpListener::bind("0.0.0.0:80")).expect("listen");
        TcpStream::connect_timeout(&"10.5.0.2:80".parse().expect("address"), Duration::from_secs(3))
            .expect("the node reaches the new pod");
        drop(listener);
    });
}

#[test]
fn check_sees_a_route_that_leads_elsewhere() {
    on_a_node(|dir| {
        let pod = Pod::new("a");
        let conf = conf(dir, "bridge");
        let result = call(&request(Command::Add, &pod, &conf)).expect("ADD").expect("result");
        let check = || {
            let mut conf = conf.clone();
            conf["prevResult"] = result.clone();
            call(&request(Command::Check, &pod, &conf))
        };
        check().expect("intact");
        for destination in ["192.0.2.0/24", "0.0.0.0/0"] {
            let destination: ipnet::IpNet = destination.parse().expect("net");
            let by = |gateway: &str| {
                let gateway = gateway.parse().expect("address");
                pod.run(|| {
                    let mut socket = Socket::route().expect("socket");
                    let link = socket.link(LinkRef::Name("eth0")).expect("ask").expect("link").index;
                    let mut batch = Batch::new();
                    batch.replace_route(&Route::by_gateway(destination, gateway, link));
                    socket.exchange(&mut batch).expect("route");
                });
            };
            by("10.5.0.77");
            let error = check().expect_err("another next hop");
            assert!(error.to_string().contains(&format!("{destination} via 10.5.0.1")), "{error}");
            by("10.5.0.1");
            check().expect("as before");
        }
    });
}

fn iptables(words: &str) -> String {
    let done = Program::new("iptables").args(words.split(' ')).output().expect("run iptables");
    assert!(done.status.success(), "iptables {words}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A neighbour of the node beyond its own link, as the network outside is.
fn outside() -> netns::Netns {
    let outside = netns::create().expect("namespace");
    let mut socket = Socket::route().expect("socket");
    let mut batch = Batch::new();
    use std::os::fd::AsFd;
    let peer = Peer { name: "out0", netns: Some(outside.as_fd()), mac: None };
    batch.add_veth(&Veth { name: "up0", up: true, master: None, mtu: Some(1420), mac: None, peer });
    socket.exchange(&mut batch).expect("veth");
    let give = |name: &str, net: &str| {
        let mut socket = Socket::route().expect("socket");
        let link = socket.link(LinkRef::Name(name)).expect("ask").expect("link").index;
        let mut batch = Batch::new();
        let net = net.parse().expect("net");
        batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: true });
        batch.set_link(LinkRef::Index(link), &LinkChange { up: Some(true), ..LinkChange::default() });
        socket.exchange(&mut batch).expect("address");
        link
    };
    let up = give("up0", "198.51.100.1/24");
    outside.run(|| give("out0", "198.51.100.2/24")).expect("inside");
    let mut batch = Batch::new();
    let default = "0.0.0.0/0".parse().expect("net");
    batch.add_route(&Route::by_gateway(default, "198.51.100.2".parse().expect("address"), up));
    socket.exchange(&mut batch).expect("default route");
    outside
}

#[test]
fn pods_reach_the_network_beside_a_filter_that_drops_what_it_does_not_know() {
    on_a_node(|dir| {
        let outside = outside();
        assert_eq!(podwire_cni_lib::uplink_mtu(), Some(1420), "as large as the way out");
        let server =
            outside.run(|| std::net::TcpListener::bind("198.51.100.2:80")).expect("in").expect("listen");
        let networks = networks(dir);
        let pod = Pod::new("a");
        networks.ensure(&pod.attachment).expect("attach");
        let reach = || {
            let to = "198.51.100.2:80".parse().expect("address");
            pod.run(|| TcpStream::connect_timeout(&to, Duration::from_millis(700))).is_ok()
        };
        assert!(reach(), "without a filter");
        podwire_cni_lib::open_forwarding(&network(dir)).expect("nothing to do");
        // What Docker and ufw do.
        iptables("-P FORWARD DROP");
        assert!(!reach(), "the filter drops");
        podwire_cni_lib::open_forwarding(&network(dir)).expect("open");
        assert!(reach(), "opened for our bridge");
        let rules = iptables("-S FORWARD");
        podwire_cni_lib::open_forwarding(&network(dir)).expect("again");
        assert_eq!(iptables("-S FORWARD"), rules, "once is enough");
        assert!(rules.starts_with("-P FORWARD DROP"), "the host's own policy is not touched: {rules}");
        networks.detach(&pod.attachment).expect("detach");
        podwire_cni_lib::remove_default_network(&network(dir)).expect("remove");
        assert_eq!(iptables("-S FORWARD").trim(), "-P FORWARD DROP", "nothing of ours is left");
        assert!(!links().contains(&"pw0".to_owned()) && reserved(&dir.join("ipam"), "pods").is_empty());
        drop(server);
    });
}
