//! Bytes of others, bent in thousands of ways: parsers refuse or accept, they never panic.

#[path = "support/node.rs"]
mod node;

use podwire_cni_lib::networks::conflist::Conflist;
use podwire_cni_lib::plugins;
use podwire_cni_lib::spec::{CniResult, Command, Request, Version};
use serde_json::Value;

/// A small generator with a fixed seed: the same bytes on every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % below.max(1)
    }
}

const WORDS: [&str; 16] = [
    "null",
    "-1",
    "18446744073709551616",
    "1e999",
    "\"\"",
    "[]",
    "{}",
    "true",
    "\"../../x\"",
    "\"::ffff:1.2.3.4/128\"",
    "[[[]]]",
    "{\"\":{}}",
    "\"10.0.0.0/33\"",
    "\"\\u0000\"",
    "4294967296",
    "\"0.0.0.0/0\"",
];

/// Replaces, cuts, doubles or swaps a piece of a document.
fn bend(random: &mut Random, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.next(3) {
        let at = random.next(bytes.len());
        let end = (at + random.next(12)).min(bytes.len());
        match random.next(4) {
            0 => drop(bytes.splice(at..end, WORDS[random.next(WORDS.len())].bytes())),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.insert(at, b"{}[]\",:0-e.\\"[random.next(12)]),
            _ => {
                let piece = bytes[at..end].to_vec();
                let to = random.next(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

const CONFLIST: &str = r#"{"cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0"],"name":"net","disableCheck":"true","plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"portmap","capabilities":{"portMappings":true}}]}"#;
const RESULT: &str = r#"{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"00:11:22:33:44:55","sandbox":"/ns","mtu":1400}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0},{"address":"fd00::3/64"}],"routes":[{"dst":"0.0.0.0/0","mtu":1300,"table":5,"scope":253}],"dns":{"nameservers":["10.1.0.1"]}}"#;

#[test]
fn bent_conflists_and_results_do_not_panic() {
    let mut random = Random(1);
    let mut accepted = 0;
    for _ in 0..20_000 {
        accepted += usize::from(Conflist::parse(bend(&mut random, CONFLIST).as_bytes(), None).is_ok());
        let Ok(value) = serde_json::from_str::<Value>(&bend(&mut random, RESULT)) else { continue };
        if let Ok(result) = CniResult::parse(&value, Version::V1_1) {
            accepted += 1;
            for version in ["0.2.0", "0.4.0", "1.1.0"] {
                let version = Version::parse(version).expect("version");
                let Ok(written) = result.to_value(version) else { continue };
                CniResult::parse(&written, version).expect("what we write we can read");
            }
        }
    }
    assert!(accepted > 100, "the documents are bent, not broken: {accepted}");
}

#[test]
fn bent_configurations_of_every_plugin_do_not_panic() {
    let full = r#"{"cniVersion":"1.1.0","name":"net","bridge":"br9","isGateway":true,"mtu":1500,"vlan":5,"vlanTrunk":[{"minID":1,"maxID":9}],"master":"no0","mode":"vepa","sysctl":{"net.core.somaxconn":"5"},"mac":"02:00:00:00:00:01","ingressRate":8,"ingressBurst":8,"backend":"nftables","runtimeConfig":{"portMappings":[{"hostPort":1,"containerPort":2,"protocol":"tcp","hostIP":"1.2.3.4"}],"ips":["10.0.0.9"]},"args":{"cni":{"ips":["10.0.0.9/24"]}},"ipam":{"type":"host-local","dataDir":"/nonexistent/x","ranges":[[{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.5","rangeEnd":"10.0.0.9","gateway":"10.0.0.1"}]],"routes":[{"dst":"0.0.0.0/0"}],"addresses":[{"address":"10.0.0.5/24"}]}}"#;
    let mut random = Random(2);
    for _ in 0..3_000 {
        let Ok(conf) = serde_json::from_str::<Value>(&bend(&mut random, full)) else { continue };
        for plugin in plugins::ALL {
            // CHECK reads and compares only; without namespace and result it ends in an error early, but after parsing.
            let request = Request {
                command: Command::Check,
                container_id: "c".into(),
                netns: "/nonexistent/ns".into(),
                ifname: "eth0".into(),
                args: "IgnoreUnknown=1".into(),
                path: Vec::new(),
                netns_override: false,
                trace: Vec::new(),
                netns_is_dying: false,
                is_program: false,
                conf: conf.clone(),
            };
            if let Err(error) = plugins::run(plugin.name, &request) {
                assert!(!error.msg.is_empty(), "{} fails without a word on {conf}", plugin.name);
            }
        }
    }
}

#[test]
fn bent_journals_caches_and_indexes_do_not_panic() {
    node::on_a_node(|dir| {
        let networks = node::networks(dir);
        let pod = node::Pod::new("c1");
        networks.ensure(&pod.attachment).expect("attach");
        let files = [
            dir.join("state/attachments/c1@eth0"),
            dir.join("cache/results/pods-c1-eth0"),
            dir.join("ipam/.podwire-ipam/pods/state"),
            dir.join("ipam/pods/last_reserved_ip.0"),
            dir.join("ipam/pods/10.88.0.2"),
        ];
        let whole: Vec<String> =
            files.iter().map(|file| std::fs::read_to_string(file).expect("read")).collect();
        let mut random = Random(3);
        for _ in 0..400 {
            for (file, text) in files.iter().zip(&whole) {
                std::fs::write(file, bend(&mut random, text)).expect("write");
            }
            // Whatever they say now, they are read without panic, and what cannot be read counts as absent.
            networks.pending().expect("pending");
            networks.attachments().expect("attachments");
            networks.cached().expect("cached");
            if let Err(error) = networks.check(&pod.attachment) {
                assert!(!error.to_string().is_empty());
            }
        }
        for (file, text) in files.iter().zip(&whole) {
            std::fs::write(file, text).expect("write");
        }
        // The index was rebuilt from what the bent files said; without its state it is rebuilt from the whole ones.
        std::fs::remove_file(&files[2]).expect("remove");
        networks.check(&pod.attachment).expect("whole again");
        networks.detach(&pod.attachment).expect("detach");
    });
}
