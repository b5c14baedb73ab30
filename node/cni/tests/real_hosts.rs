//! The network on hosts as they are: pods that are still dying, Docker's and ufw's packet filter, tables that cannot be read.

#[path = "support/node.rs"]
mod node;

use std::{
    net::TcpStream, os::unix::fs::PermissionsExt, path::Path, process::Command as Program, time::Duration,
};

use node::{Pod, links, network, networks, on_a_node, reserved};
use podwire_cni_lib::spec::{CniError, Command, Request};
use podwire_cni_lib::{plugins, tool};
use podwire_linux::rtnl::{Batch, LinkChange, LinkRef, NewAddress, Peer, Route, Scope, Socket, Veth};
use podwire_linux::{mount, netns};
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

/// Runs a test in a process with mounts of its own, where other programs can be put in place of the system's.
fn with_own_mounts(test: &str, work: impl FnOnce()) {
    const INSIDE: &str = "PODWIRE_OWN_MOUNTS";
    if std::env::var_os(INSIDE).is_some() {
        return work();
    }
    let this = std::env::current_exe().expect("this test");
    let done =
        Program::new("unshare").arg("--mount").arg(this).args([test, "--exact"]).env(INSIDE, "yes").output();
    let done = done.expect("run unshare");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Where the system's iptables is found first.
const TOOLS: &str = "/usr/sbin";

/// Has every program of iptables fail as it does when somebody holds its lock, while this lives.
struct Locked;

impl Locked {
    fn new(dir: &Path) -> Locked {
        let tools = dir.join("tools");
        std::fs::create_dir_all(&tools).expect("folder");
        for name in ["iptables", "ip6tables"]
            .iter()
            .flat_map(|name| [format!("{name}-save"), format!("{name}-restore")])
        {
            let script = "#!/bin/sh\necho 'Another app is currently holding the xtables lock' >&2\nexit 4\n";
            std::fs::write(tools.join(&name), script).expect("write");
            std::fs::set_permissions(tools.join(&name), std::fs::Permissions::from_mode(0o755))
                .expect("mode");
        }
        mount::bind(&tools, Path::new(TOOLS), false).expect("in place of the system's programs");
        Locked
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        mount::detach(Path::new(TOOLS)).expect("the system's programs are back");
    }
}

fn says_locked<T: std::fmt::Debug>(done: Result<T, impl std::error::Error>, what: &str) {
    let error = done.expect_err(what);
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    assert!(said.contains("holding the xtables lock"), "{what}: {said}");
}

#[test]
fn a_table_that_cannot_be_read_is_an_error_and_its_rules_are_taken_away_later() {
    with_own_mounts("a_table_that_cannot_be_read_is_an_error_and_its_rules_are_taken_away_later", || {
        on_a_node(|dir| {
            let pod = Pod::new("a");
            let mut bridge = conf(dir, "bridge");
            bridge["ipMasq"] = json!(true);
            bridge["ipMasqBackend"] = json!("iptables");
            let prev = call(&request(Command::Add, &pod, &bridge)).expect("ADD").expect("result");
            let chained = |kind: &str| {
                json!({
                    "cniVersion": "1.1.0", "name": "net", "type": kind, "backend": "iptables", "prevResult": prev,
                    "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
                })
            };
            let (ports, firewall) = (chained("portmap"), chained("firewall"));
            for conf in [&ports, &firewall] {
                call(&request(Command::Add, &pod, conf)).expect("ADD");
            }
            bridge["prevResult"] = prev.clone();
            let confs = [("portmap", &ports), ("firewall", &firewall), ("masquerading", &bridge)];
            let rules = || iptables("-t nat -S") + &iptables("-S");
            let before = rules();
            let locked = Locked::new(dir);
            for (name, conf) in confs {
                for command in [Command::Check, Command::Del] {
                    says_locked(call(&request(command, &pod, conf)), &format!("{command:?} of {name}"));
                }
            }
            for (name, conf) in [("portmap", &ports), ("masquerading", &bridge)] {
                let mut conf = conf.clone();
                conf["cni.dev/valid-attachments"] = json!([]);
                says_locked(call(&request(Command::Gc, &pod, &conf)), &format!("GC of {name}"));
            }
            says_locked(podwire_cni_lib::open_forwarding(&network(dir)), "the way through the filter");
            says_locked(podwire_cni_lib::remove_default_network(&network(dir)), "and back");
            drop(locked);
            assert_eq!(rules(), before, "nothing was changed");
            for (name, conf) in confs {
                call(&request(Command::Del, &pod, conf)).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            for leftover in ["10.5.0.2", "CNI-DN-", "MASQUERADE -m comment"] {
                assert!(!rules().contains(leftover), "{leftover} is left: {}", rules());
            }
        });
    });
}

#[test]
fn a_kernel_without_the_table_has_nothing_to_take_away() {
    with_own_mounts("a_kernel_without_the_table_has_nothing_to_take_away", || {
        on_a_node(|dir| {
            let pod = Pod::new("a");
            let _locked = Locked::new(dir);
            let conf =
                json!({"cniVersion": "1.1.0", "name": "net", "type": "portmap", "backend": "iptables"});
            call(&request(Command::Del, &pod, &conf)).expect("DEL");
            podwire_cni_lib::open_forwarding(&network(dir)).expect("nobody drops anything");
        });
    });
}

/// What the doctor says, and how many of it he could not look at.
fn examined(networks: &podwire_cni_lib::Networks) -> (String, usize) {
    let report = tool::doctor(networks, false).expect("doctor");
    let unread = report.left.iter().filter(|finding| finding.kind == tool::Kind::Unread).count();
    (report.to_string(), unread)
}

#[test]
fn the_doctor_says_what_he_could_not_read() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let pod = Pod::new("a");
        networks.ensure(&pod.attachment).expect("attach");
        assert_eq!(examined(&networks), ("nothing is leaked".to_owned(), 0));
        // Whoever may not administer the network may not read its rules either.
        let all = rustix::thread::capabilities(None).expect("capabilities");
        let mut fewer = all;
        fewer.effective.remove(rustix::thread::CapabilitySet::NET_ADMIN);
        rustix::thread::set_capabilities(None, fewer).expect("give up");
        let (said, unread) = examined(&networks);
        rustix::thread::set_capabilities(None, all).expect("take back");
        assert!(unread > 0 && said.contains("not known: Unread rules of table pwtest"), "{said}");
        assert!(!said.contains("nothing is leaked") && !said.contains("still there"), "{said}");
        // A folder of addresses that cannot be locked.
        let lock = network(dir).data_dir.join("pods/lock");
        std::fs::remove_file(&lock).expect("remove");
        std::fs::create_dir(&lock).expect("a folder in its place");
        let (said, unread) = examined(&networks);
        assert_eq!(unread, 1, "{said}");
        assert!(said.contains("not known: Unread addresses of pods: it cannot be read: open "), "{said}");
        let repaired = tool::doctor(&networks, true).expect("repair");
        assert!(!repaired.left.is_empty(), "a repair does not make it known: {repaired}");
        std::fs::remove_dir(&lock).expect("remove");
        assert_eq!(examined(&networks), ("nothing is leaked".to_owned(), 0));
        networks.detach(&pod.attachment).expect("detach");
    });
}
