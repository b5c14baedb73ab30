//! The life of a pod's network on the default network: attached, used, checked, repaired, detached.

#[path = "support/node.rs"]
mod node;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use node::{Pod, links, network, networks, on_a_node, reserved};
use podwire_linux::nft::{Family, Socket as NftSocket, Table};
use podwire_linux::rtnl::{Batch, LinkChange, LinkRef, Socket};
use serde_json::json;

fn greet(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Answers one connection in the pod with a greeting.
fn serve(pod: &Pod, address: &str) -> std::thread::JoinHandle<()> {
    let listener = pod.run(|| TcpListener::bind(address)).expect("listen");
    std::thread::Builder::new()
        .name("server".into())
        .spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            stream.write_all(b"hello").expect("answer");
        })
        .expect("thread")
}

#[test]
fn a_pod_gets_addresses_of_both_families_and_talks_to_another() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let (a, b) = (Pod::new("a"), Pod::new("b"));
        let first = networks.ensure(&a.attachment).expect("attach a");
        let second = networks.ensure(&b.attachment).expect("attach b");
        assert_eq!(
            first.ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.88.0.2/16", "fd88::2/64"]
        );
        assert_eq!(
            second.ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.88.0.3/16", "fd88::3/64"]
        );
        for ip in &first.ips {
            let address = SocketAddr::new(ip.addr(), 8080);
            let server = serve(&a, &address.to_string());
            assert_eq!(b.run(|| greet(address)).expect("pod to pod"), "hello");
            server.join().expect("server");
        }
        let from_node = SocketAddr::new(second.ips[0].addr(), 9090);
        let server = serve(&b, &from_node.to_string());
        assert_eq!(greet(from_node).expect("node to pod"), "hello");
        server.join().expect("server");
    });
}

#[test]
fn nothing_is_left_after_detach() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let mut pod = Pod::new("a");
        pod.attachment.capability_args.insert(
            "portMappings".into(),
            json!([{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp"}]),
        );
        networks.ensure(&pod.attachment).expect("attach");
        assert_eq!(links().iter().filter(|name| name.starts_with("veth")).count(), 1);
        assert_eq!(reserved(&network(dir).data_dir, "pods").len(), 2);
        networks.detach(&pod.attachment).expect("detach");
        networks.detach(&pod.attachment).expect("detach again");
        assert_eq!(links().iter().filter(|name| name.starts_with("veth")).count(), 0);
        assert!(reserved(&network(dir).data_dir, "pods").is_empty());
        assert!(pod.run(links).iter().all(|name| name != "eth0"));
        let mut socket = NftSocket::netfilter().expect("socket");
        for (family, name) in [
            (Family::Inet, "pwtest_masquerade"),
            (Family::Ip, "pwtest_hostport"),
            (Family::Ip6, "pwtest_hostport"),
        ] {
            let rules = socket.nft_rules(Table { family, name }, None).expect("rules");
            assert!(rules.iter().all(|rule| rule.comment.is_none()), "{rules:?}");
        }
        assert_eq!(std::fs::read_dir(dir.join("state/attachments")).expect("journal").count(), 0);
        assert_eq!(std::fs::read_dir(dir.join("cache/results")).expect("cache").count(), 0);
        podwire_cni_lib::remove_default_network(&network(dir)).expect("remove");
        podwire_cni_lib::remove_default_network(&network(dir)).expect("remove again");
        assert!(!links().contains(&"pw0".to_owned()));
        assert!(socket.nft_tables(Family::Inet).expect("tables").is_empty());
    });
}

#[test]
fn a_port_of_the_node_leads_to_the_pod() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let mut pod = Pod::new("a");
        pod.attachment.capability_args.insert(
            "portMappings".into(),
            json!([{"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}]),
        );
        let result = networks.ensure(&pod.attachment).expect("attach");
        let mut batch = Batch::new();
        batch.set_link(LinkRef::Name("lo"), &LinkChange { up: Some(true), ..LinkChange::default() });
        Socket::route().expect("socket").exchange(&mut batch).expect("lo up");
        for address in ["10.88.0.1:18080", "127.0.0.1:18080"] {
            let server = serve(&pod, "0.0.0.0:80");
            assert_eq!(greet(address.parse().expect("address")).expect(address), "hello");
            server.join().expect("server");
        }
        // The pod reaches itself through the node's port, too.
        let server = serve(&pod, "0.0.0.0:80");
        assert_eq!(pod.run(|| greet("10.88.0.1:18080".parse().expect("address"))).expect("hairpin"), "hello");
        server.join().expect("server");
        assert!(result.raw["ips"].as_array().is_some());
    });
}

#[test]
fn ensure_returns_the_same_result_and_repairs_drift() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let pod = Pod::new("a");
        let first = networks.ensure(&pod.attachment).expect("attach");
        let again = networks.ensure(&pod.attachment).expect("again");
        assert_eq!(first.raw, again.raw);
        networks.check(&pod.attachment).expect("intact");
        let delete = || {
            let mut batch = Batch::new();
            batch.del_link(LinkRef::Name("eth0"));
            Socket::route().expect("socket").exchange(&mut batch).expect("delete");
        };
        pod.run(delete);
        networks.check(&pod.attachment).expect_err("the interface is gone");
        let repaired = networks.ensure(&pod.attachment).expect("repair");
        networks.check(&pod.attachment).expect("intact again");
        assert_ne!(repaired.ips[0], first.ips[0], "a released address is not reused at once");
        networks.detach(&pod.attachment).expect("detach");
        assert!(reserved(&network(dir).data_dir, "pods").is_empty());
    });
}

#[test]
fn detach_succeeds_with_the_namespace_gone() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let pod = Pod::new("a");
        networks.ensure(&pod.attachment).expect("attach");
        let attachment = pod.attachment.clone();
        drop(pod);
        networks.detach(&attachment).expect("detach without namespace");
        assert!(reserved(&network(dir).data_dir, "pods").is_empty());
        let table = Table { family: Family::Inet, name: "pwtest_masquerade" };
        let rules =
            NftSocket::netfilter().expect("socket").nft_rules(table, Some("masq_checks")).expect("rules");
        assert!(rules.is_empty(), "{rules:?}");
    });
}

#[test]
fn many_pods_at_once_get_different_addresses() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let pods: Vec<Pod> = (0..20).map(|n| Pod::new(&format!("pod{n}"))).collect();
        let mut ips: Vec<_> = std::thread::scope(|scope| {
            let networks = &networks;

            let threads: Vec<_> = pods
                .iter()
                .map(|pod| {
                    std::thread::Builder::new()
                        .spawn_scoped(scope, move || networks.ensure(&pod.attachment).expect("attach").ips[0])
                        .expect("thread")
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("attached")).collect()
        });
        ips.sort();
        ips.dedup();
        assert_eq!(ips.len(), 20);
        networks.gc(&[pods[3].attachment.clone()]).expect("gc");
        assert_eq!(reserved(&network(dir).data_dir, "pods").len(), 2);
        networks.check(&pods[3].attachment).expect("the kept one is intact");
        networks.check(&pods[4].attachment).expect_err("the others are gone");
    });
}
