//! Every plugin by itself: ADD, CHECK, DEL, GC and STATUS against the running kernel.

#[path = "support/node.rs"]
mod node;

use std::path::Path;

use node::{Pod, links, on_a_node, reserved};
use podwire_cni_lib::plugins;
use podwire_cni_lib::spec::{CniError, Command, Request};
use podwire_linux::nft::{Family, Socket as NftSocket, Table};
use podwire_linux::rtnl::{Batch, LinkChange, LinkRef, Socket};
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

fn call(command: Command, pod: &Pod, conf: &Value) -> Result<Option<Value>, CniError> {
    plugins::run(conf["type"].as_str().expect("type"), &request(command, pod, conf))
}

fn add(pod: &Pod, conf: &Value) -> Value {
    call(Command::Add, pod, conf).expect("ADD").expect("a result")
}

fn with_prev(conf: &Value, prev: &Value) -> Value {
    let mut conf = conf.clone();
    conf["prevResult"] = prev.clone();
    conf
}

fn check(pod: &Pod, conf: &Value, prev: &Value) -> Result<(), CniError> {
    call(Command::Check, pod, &with_prev(conf, prev)).map(|_| ())
}

fn bridge(dir: &Path) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {
            "type": "host-local", "dataDir": dir.join("ipam"),
            "ranges": [[{"subnet": "10.5.0.0/24"}], [{"subnet": "fd05::/64"}]],
            "routes": [{"dst": "0.0.0.0/0", "mtu": 1400, "priority": 50}, {"dst": "::/0"}],
        },
    })
}

/// Attaches by bridge what a chained plugin needs before it.
fn attached(pod: &Pod, dir: &Path) -> Value {
    add(pod, &bridge(dir))
}

fn change(link: &str, change: &LinkChange<'_>) {
    let mut batch = Batch::new();
    batch.set_link(LinkRef::Name(link), change);
    Socket::route().expect("socket").exchange(&mut batch).expect("change");
}

fn delete(link: &str) {
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Name(link));
    Socket::route().expect("socket").exchange(&mut batch).expect("delete");
}

fn rules(family: Family, name: &str) -> usize {
    let found =
        NftSocket::netfilter().expect("socket").nft_rules(Table { family, name }, None).expect("rules");
    found.iter().filter(|rule| rule.comment.is_some()).count()
}

#[test]
fn bridge_result_lists_three_interfaces_and_the_kernel_agrees() {
    on_a_node(|dir| {
        let pod = Pod::new("a");
        let result = attached(&pod, dir);
        let names: Vec<&str> = result["interfaces"]
            .as_array()
            .expect("list")
            .iter()
            .map(|i| i["name"].as_str().expect("name"))
            .collect();
        assert_eq!((names[0], names[2]), ("br0", "eth0"));
        assert_eq!(result["interfaces"][2]["sandbox"], pod.attachment.netns.display().to_string());
        assert_eq!(result["ips"][0]["interface"], 2);
        let routes = pod.run(|| Socket::route().expect("socket").routes(None, false).expect("routes"));
        let default = routes.iter().find(|route| route.destination.prefix_len() == 0).expect("default route");
        assert_eq!((default.mtu, default.priority), (Some(1400), Some(50)));
        check(&pod, &bridge(dir), &result).expect("intact");
    });
}

#[test]
fn dns_of_ipam_is_returned_and_the_networks_own_goes_before_it() {
    on_a_node(|dir| {
        let resolv = dir.join("resolv.conf");
        let text =
            "# of the node\nnameserver 10.5.0.53\nsearch pods.test test\noptions ndots:5\ndomain pods.test\n";
        std::fs::write(&resolv, text).expect("write");
        let mut conf = bridge(dir);
        conf["ipam"]["resolvConf"] = json!(resolv);
        let found = json!({
            "nameservers": ["10.5.0.53"], "domain": "pods.test", "search": ["pods.test", "test"],
            "options": ["ndots:5"],
        });
        let mut alone = conf.clone();
        alone["type"] = json!("host-local");
        let of_ipam = add(&Pod::new("alone"), &alone);
        assert_eq!(of_ipam["dns"], found);
        assert_eq!(of_ipam["ips"][0]["address"], "10.5.0.2/24");
        assert_eq!(of_ipam["ips"][0]["gateway"], "10.5.0.1");
        assert_eq!(of_ipam["routes"][0]["dst"], "0.0.0.0/0");
        assert_eq!(add(&Pod::new("a"), &conf)["dns"], found);
        conf["dns"] = json!({"nameservers": ["10.9.9.9"]});
        assert_eq!(add(&Pod::new("b"), &conf)["dns"], conf["dns"]);
    });
}

#[test]
fn a_second_add_of_the_same_interface_is_refused_and_leaks_nothing() {
    on_a_node(|dir| {
        let pod = Pod::new("a");
        attached(&pod, dir);
        let before = (links().len(), reserved(&dir.join("ipam"), "net").len());
        let error = call(Command::Add, &pod, &bridge(dir)).expect_err("duplicate");
        assert!(error.msg.contains("already exists"), "{error}");
        assert_eq!((links().len(), reserved(&dir.join("ipam"), "net").len()), before);
        // Another container in the same namespace: the interface is taken, its address is given back.
        let mut other = Pod::new("b");
        other.attachment.netns.clone_from(&pod.attachment.netns);
        call(Command::Add, &other, &bridge(dir)).expect_err("the name is taken");
        assert_eq!((links().len(), reserved(&dir.join("ipam"), "net").len()), before);
    });
}

#[test]
fn a_failing_add_gives_everything_back() {
    on_a_node(|dir| {
        // The bridge has another address, which is found out last.
        let mut conf = bridge(dir);
        let first = Pod::new("first");
        attached(&first, dir);
        conf["ipam"]["ranges"] = json!([[{"subnet": "10.6.0.0/24"}]]);
        conf["name"] = json!("other");
        let before = links().len();
        let pod = Pod::new("a");
        let error = call(Command::Add, &pod, &conf).expect_err("another address");
        assert!(error.msg.contains("already has an IP address different from"), "{error}");
        assert_eq!(links().len(), before);
        assert!(reserved(&dir.join("ipam"), "other").is_empty());
        assert_eq!(pod.run(links), ["lo"]);
    });
}

#[test]
fn bridge_check_sees_every_kind_of_drift() {
    on_a_node(|dir| {
        let conf = {
            let mut conf = bridge(dir);
            conf["ipMasq"] = json!(true);
            conf["ipMasqBackend"] = json!("nftables");
            conf["hairpinMode"] = json!(true);
            conf
        };
        type Break = fn(&Path);
        let inside: [(&str, Break); 3] = [
            ("the interface is down", |_| {
                change("eth0", &LinkChange { up: Some(false), ..LinkChange::default() })
            }),
            ("the address is gone", |_| {
                let mut socket = Socket::route().expect("socket");
                let link = socket.link(LinkRef::Name("eth0")).expect("link").expect("eth0").index;
                let net = socket
                    .addresses(link)
                    .expect("addresses")
                    .iter()
                    .find(|a| a.net.addr().is_ipv4())
                    .expect("v4")
                    .net;
                let mut batch = Batch::new();
                batch.del_address(link, net);
                socket.exchange(&mut batch).expect("delete");
            }),
            ("the interface is gone", |_| delete("eth0")),
        ];
        let outside: [(&str, Break); 3] = [
            ("the reservation is gone", |dir| {
                for ip in reserved(&dir.join("ipam"), "net") {
                    std::fs::remove_file(dir.join("ipam/net").join(ip)).expect("remove");
                }
            }),
            ("masquerading is gone", |_| {
                let mut tx = podwire_linux::nft::Transaction::new();
                tx.flush_chain(Table { family: Family::Inet, name: "cni_plugins_masquerade" }, "masq_checks");
                tx.commit(&mut NftSocket::netfilter().expect("socket")).expect("flush");
            }),
            ("the port has left the bridge", |_| {
                let port = links().into_iter().find(|name| name.starts_with("veth")).expect("veth");
                change(&port, &LinkChange { master: Some(0), ..LinkChange::default() });
            }),
        ];
        for (at, (what, damage)) in inside.iter().chain(&outside).enumerate() {
            let pod = Pod::new(&format!("pod{at}"));
            let result = add(&pod, &conf);
            check(&pod, &conf, &result).expect("intact");
            if at < inside.len() {
                pod.run(|| damage(dir))
            } else {
                damage(dir)
            }
            check(&pod, &conf, &result).expect_err(what);
            call(Command::Del, &pod, &with_prev(&conf, &result)).expect("DEL after damage");
            call(Command::Del, &pod, &conf).expect("DEL again, without a result");
        }
        assert!(reserved(&dir.join("ipam"), "net").is_empty());
        assert_eq!(rules(Family::Inet, "cni_plugins_masquerade"), 0);
        assert_eq!(links().iter().filter(|name| name.starts_with("veth")).count(), 0);
    });
}

#[test]
fn bridge_keeps_foreign_source_addresses_out() {
    on_a_node(|dir| {
        let mut conf = bridge(dir);
        conf["macspoofchk"] = json!(true);
        let pod = Pod::new("a");
        let result = add(&pod, &conf);
        check(&pod, &conf, &result).expect("intact");
        assert_eq!(rules(Family::Bridge, "nat"), 4);
        call(Command::Del, &pod, &conf).expect("DEL");
        assert_eq!(rules(Family::Bridge, "nat"), 0);
    });
}

fn kernel_filters_vlans(socket: &mut Socket) -> bool {
    let mut batch = Batch::new();
    batch.add_bridge(&podwire_linux::rtnl::Bridge {
        name: "probe0",
        vlan_filtering: true,
        ..Default::default()
    });
    let able = socket.exchange(&mut batch).is_ok();
    if able {
        delete("probe0");
    }
    able
}

#[test]
fn bridge_puts_the_port_into_its_vlan() {
    on_a_node(|_| {
        let pod = Pod::new("a");
        let conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "vlan": 100,
            "vlanTrunk": [{"minID": 200, "maxID": 202}, {"id": 300}], "portIsolation": true,
        });
        let mut socket = Socket::route().expect("socket");
        if !kernel_filters_vlans(&mut socket) {
            let error = call(Command::Add, &pod, &conf).expect_err("this kernel cannot");
            assert!(error.msg.contains("CONFIG_BRIDGE_VLAN_FILTERING"), "{error}");
            assert_eq!((links(), pod.run(links)), (vec!["lo".to_owned()], vec!["lo".to_owned()]));
            return;
        }
        let result = add(&pod, &conf);
        let name = result["interfaces"][1]["name"].as_str().expect("name");
        let port = socket.link(LinkRef::Name(name)).expect("link").expect("port");
        assert!(port.isolated);
        let ids: Vec<u16> = socket.vlans(port.index).expect("vlans").iter().map(|vlan| vlan.first).collect();
        assert_eq!(ids, [100, 200, 201, 202, 300]);
        check(&pod, &conf, &result).expect("layer 2 is checked too");
        call(Command::Del, &pod, &conf).expect("DEL");
    });
}

#[test]
fn ptp_routes_to_the_pod_and_back() {
    on_a_node(|dir| {
        let conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables", "mtu": 1400,
            "ipam": {
                "type": "host-local", "dataDir": dir.join("ipam"),
                "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            },
        });
        let pod = Pod::new("a");
        let result = add(&pod, &conf);
        check(&pod, &conf, &result).expect("intact");
        for address in ["10.7.0.2:80", "[fd07::2]:80"] {
            let listener = pod.run(|| std::net::TcpListener::bind(address)).expect("listen");
            std::net::TcpStream::connect_timeout(
                &address.parse().expect("address"),
                std::time::Duration::from_secs(3),
            )
            .expect(address);
            drop(listener);
        }
        let host_end = result["interfaces"][0]["name"].as_str().expect("name").to_owned();
        call(Command::Del, &pod, &with_prev(&conf, &result)).expect("DEL");
        assert!(!links().contains(&host_end));
        assert_eq!(rules(Family::Inet, "cni_plugins_masquerade"), 0);
        assert!(reserved(&dir.join("ipam"), "net").is_empty());
    });
}

#[test]
fn macvlan_joins_the_network_of_its_parent() {
    on_a_node(|_| {
        let mut batch = Batch::new();
        batch.add_bridge(&podwire_linux::rtnl::Bridge { name: "parent0", ..Default::default() });
        Socket::route().expect("socket").exchange(&mut batch).expect("parent");
        let conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "parent0", "mode": "bridge", "mac": "02:11:22:33:44:55",
            "ipam": {"type": "static", "addresses": [{"address": "10.8.0.5/24", "gateway": "10.8.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]},
        });
        let pod = Pod::new("a");
        call(Command::Status, &pod, &conf).expect("the parent is there");
        let result = add(&pod, &conf);
        assert_eq!(result["interfaces"][0]["mac"], "02:11:22:33:44:55");
        assert_eq!(result["ips"][0]["address"], "10.8.0.5/24");
        check(&pod, &conf, &result).expect("intact");
        pod.run(|| change("eth0", &LinkChange { up: Some(false), ..LinkChange::default() }));
        check(&pod, &conf, &result).expect_err("down");
        call(Command::Del, &pod, &conf).expect("DEL");
        assert_eq!(pod.run(links), ["lo"]);
        delete("parent0");
        assert_eq!(call(Command::Status, &pod, &conf).expect_err("no parent").code, 50);
    });
}

#[test]
fn tuning_changes_and_restores_the_interface() {
    on_a_node(|dir| {
        let pod = Pod::new("a");
        let prev = attached(&pod, dir);
        let conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "tuning", "mac": "02:AA:BB:CC:DD:EE", "mtu": 1300, "promisc": true, "txQLen": 500,
            "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"}, "dataDir": dir.join("tuning"),
            "prevResult": prev,
        });
        let result = add(&pod, &conf);
        assert_eq!(result["interfaces"][2]["mac"], "02:aa:bb:cc:dd:ee");
        let link = pod.run(|| {
            Socket::route().expect("socket").link(LinkRef::Name("eth0")).expect("link").expect("eth0")
        });
        assert_eq!((link.mtu, link.tx_queue), (1300, 500));
        check(&pod, &conf, &result).expect("intact");
        pod.run(|| podwire_linux::sysctl::write("net/core/somaxconn", "100").expect("write"));
        check(&pod, &conf, &result).expect_err("drifted");
        call(Command::Del, &pod, &conf).expect("DEL");
        let link = pod.run(|| {
            Socket::route().expect("socket").link(LinkRef::Name("eth0")).expect("link").expect("eth0")
        });
        assert_eq!(link.mtu, 1500);
        assert_eq!(std::fs::read_dir(dir.join("tuning")).expect("folder").count(), 0);
        for bad in ["kernel.shm_rmid_forced", "net/../kernel/x", "net..x"] {
            let mut conf = conf.clone();
            conf["sysctl"] = json!({bad: "1"});
            call(Command::Add, &pod, &conf).expect_err(bad);
        }
    });
}

#[test]
fn bandwidth_shapes_both_directions() {
    on_a_node(|dir| {
        let pod = Pod::new("a");
        let prev = attached(&pod, dir);
        let conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "prevResult": prev,
            "runtimeConfig": {"bandwidth": {"IngressRate": 8_000_000, "IngressBurst": 800_000, "EgressRate": 16_000_000, "EgressBurst": 1_600_000}},
        });
        let result = add(&pod, &conf);
        let ifb = result["interfaces"][3]["name"].as_str().expect("ifb").to_owned();
        assert!(ifb.starts_with("bwp") && ifb.len() == 15, "{ifb}");
        check(&pod, &conf, &result).expect("intact");
        let mut socket = Socket::route().expect("socket");
        let host = result["interfaces"][1]["name"].as_str().expect("name");
        let host = socket.link(LinkRef::Name(host)).expect("link").expect("host end").index;
        let mut batch = Batch::new();
        batch.del_root_qdisc(host);
        socket.exchange(&mut batch).expect("delete");
        check(&pod, &conf, &result).expect_err("the bucket is gone");
        let mut gc = conf.clone();
        gc["cni.dev/valid-attachments"] = json!([{"containerID": "a", "ifname": "eth0"}]);
        call(Command::Gc, &pod, &gc).expect("GC that keeps it");
        assert!(links().contains(&ifb));
        gc["cni.dev/valid-attachments"] = json!([]);
        call(Command::Gc, &pod, &gc).expect("GC");
        assert!(!links().contains(&ifb));
        call(Command::Del, &pod, &conf).expect("DEL");
        let mut bad = conf.clone();
        bad["runtimeConfig"] = json!({"bandwidth": {"ingressRate": 1000}});
        call(Command::Add, &pod, &bad).expect_err("a rate without a burst");
    });
}

#[test]
fn firewall_opens_the_filter_in_both_backends() {
    on_a_node(|dir| {
        let pod = Pod::new("a");
        let prev = attached(&pod, dir);
        for backend in ["nftables", "iptables"] {
            let conf = json!({
                "cniVersion": "1.1.0", "name": "net", "type": "firewall", "backend": backend, "ingressPolicy": "isolated", "prevResult": prev,
            });
            check(&pod, &conf, &prev).expect_err("nothing is there yet");
            let result = add(&pod, &conf);
            assert_eq!(result["ips"], prev["ips"]);
            check(&pod, &conf, &result).expect(backend);
            call(Command::Del, &pod, &conf).expect("DEL");
            check(&pod, &conf, &result).expect_err("gone");
        }
        let bad = json!({"cniVersion": "1.1.0", "name": "net", "type": "firewall", "backend": "firewalld", "prevResult": prev});
        assert_eq!(call(Command::Add, &pod, &bad).expect_err("not supported").code, 2);
        let old = json!({"cniVersion": "0.3.1", "name": "net", "type": "firewall", "prevResult": prev});
        assert_eq!(call(Command::Add, &pod, &old).expect_err("too old").code, 1);
    });
}

#[test]
fn portmap_and_masquerading_work_through_iptables() {
    on_a_node(|dir| {
        let pod = Pod::new("a");
        let mut first = bridge(dir);
        first["ipMasq"] = json!(true);
        first["ipMasqBackend"] = json!("iptables");
        let prev = add(&pod, &first);
        check(&pod, &first, &prev).expect("masqueraded");
        change("lo", &LinkChange { up: Some(true), ..LinkChange::default() });
        let conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "portmap", "backend": "iptables", "prevResult": prev,
            "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 53, "containerPort": 53, "protocol": "udp"}]},
        });
        let result = add(&pod, &conf);
        check(&pod, &conf, &result).expect("intact");
        let listener = pod.run(|| std::net::TcpListener::bind("0.0.0.0:80")).expect("listen");
        for address in ["127.0.0.1:8080", "10.5.0.1:8080"] {
            std::net::TcpStream::connect_timeout(
                &address.parse().expect("address"),
                std::time::Duration::from_secs(3),
            )
            .expect(address);
        }
        drop(listener);
        call(Command::Del, &pod, &conf).expect("DEL");
        call(Command::Del, &pod, &conf).expect("DEL again");
        check(&pod, &conf, &result).expect_err("gone");
        call(Command::Del, &pod, &first).expect("DEL of the bridge");
        check(&pod, &first, &prev).expect_err("gone");
    });
}

#[test]
fn static_checks_its_addresses_against_the_result() {
    let pod = Pod::new("a");
    let conf = json!({
        "cniVersion": "0.2.0", "name": "net", "type": "static",
        "ipam": {"type": "static", "addresses": [{"address": "10.1.1.5/24", "gateway": "10.1.1.1"}, {"address": "fd01::5/64"}], "routes": [{"dst": "0.0.0.0/0"}]},
    });
    let result = add(&pod, &conf);
    assert_eq!(result["ip4"]["ip"], "10.1.1.5/24");
    assert_eq!(result["ip6"]["ip"], "fd01::5/64");
    let mut newer = conf.clone();
    newer["cniVersion"] = json!("1.0.0");
    let prev = add(&pod, &newer);
    check(&pod, &newer, &prev).expect("same");
    let mut other = prev.clone();
    other["ips"][0]["address"] = json!("10.1.1.6/24");
    check(&pod, &newer, &other).expect_err("another address");
}

#[test]
fn a_udp_client_that_keeps_its_port_finds_the_next_pod() {
    on_a_node(|dir| {
        change("lo", &LinkChange { up: Some(true), ..LinkChange::default() });
        let client = std::net::UdpSocket::bind("10.5.0.1:0")
            .or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))
            .expect("client");
        client.set_read_timeout(Some(std::time::Duration::from_secs(3))).expect("time-out");
        for name in ["first", "second"] {
            let pod = Pod::new(name);
            let prev = attached(&pod, dir);
            let conf = json!({
                "cniVersion": "1.1.0", "name": "net", "type": "portmap", "backend": "nftables", "prevResult": prev,
                "runtimeConfig": {"portMappings": [{"HostPort": 5353, "ContainerPort": 53, "Protocol": "UDP"}]},
            });
            add(&pod, &conf);
            let server = pod.run(|| std::net::UdpSocket::bind("0.0.0.0:53")).expect("listen");
            server.set_read_timeout(Some(std::time::Duration::from_secs(3))).expect("time-out");
            client.send_to(name.as_bytes(), "10.5.0.1:5353").expect("send");
            let mut buffer = [0; 16];
            let (len, _) =
                server.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{name} hears nothing: {error}"));
            assert_eq!(&buffer[..len], name.as_bytes());
            call(Command::Del, &pod, &conf).expect("DEL");
            call(Command::Del, &pod, &bridge(dir)).expect("DEL of the bridge");
        }
    });
}
