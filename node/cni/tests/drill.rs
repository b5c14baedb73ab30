//! A runtime killed again and again in the middle of attaching and detaching: no address twice, and nothing left.

#[path = "support/node.rs"]
mod node;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use node::{Pod, links, network, networks, on_a_node, reserved};
use podwire_cni_lib::Attachment;
use podwire_linux::nft::{Family, Socket as NftSocket, Table};

const CHILD: &str = "PODWIRE_DRILL";

/// The runtime that gets killed: this very test binary, told by a variable to attach and detach for ever.
fn child(text: &str) {
    let (dir, pods) = text.split_once('|').expect("folder and pods");
    let networks = networks(Path::new(dir));
    std::thread::scope(|scope| {
        for (n, netns) in pods.split(',').enumerate() {
            let attachment = Attachment {
                container_id: format!("pod{n}"),
                netns: PathBuf::from(netns),
                ifname: "eth0".into(),
                ..Attachment::default()
            };
            let networks = &networks;
            let work = move || {
                loop {
                    networks.ensure(&attachment).expect("ensure");
                    networks.ensure(&attachment).expect("ensure again");
                    networks.detach(&attachment).expect("detach");
                }
            };
            std::thread::Builder::new().name("work".into()).spawn_scoped(scope, work).expect("thread");
        }
    });
}

#[test]
fn a_killed_runtime_leaves_nothing_behind() {
    if let Some(text) = std::env::var_os(CHILD) {
        return child(&text.to_string_lossy());
    }
    on_a_node(|dir| {
        let pods: Vec<Pod> = (0..6).map(|n| Pod::new(&format!("pod{n}"))).collect();
        let paths: Vec<String> = pods.iter().map(|pod| pod.attachment.netns.display().to_string()).collect();
        for round in 0..10u64 {
            let mut runtime = Command::new(std::env::current_exe().expect("this test"))
                .args(["a_killed_runtime_leaves_nothing_behind", "--exact", "--nocapture"])
                .env(CHILD, format!("{}|{}", dir.display(), paths.join(",")))
                .stdout(Stdio::null())
                .spawn()
                .expect("start");
            std::thread::sleep(Duration::from_millis(150 + round * 37 % 200));
            assert!(
                runtime.try_wait().expect("wait").is_none(),
                "the runtime failed by itself in round {round}"
            );
            runtime.kill().expect("kill");
            runtime.wait().expect("wait");
            let attached = networks(dir).attachments().expect("attachments");
            let ips: Vec<_> = attached.iter().flat_map(|(_, result)| result.ips.clone()).collect();
            assert_eq!(ips.iter().collect::<HashSet<_>>().len(), ips.len(), "an address was given twice");
        }
        let networks = networks(dir);
        assert!(networks.retry_pending().expect("retry").is_empty());
        networks.gc(&[]).expect("gc");
        assert!(reserved(&network(dir).data_dir, "pods").is_empty());
        assert!(links().iter().all(|name| !name.starts_with("veth")), "{:?}", links());
        for pod in &pods {
            assert_eq!(pod.run(links), ["lo"]);
        }
        let table = Table { family: Family::Inet, name: "pwtest_masquerade" };
        let rules =
            NftSocket::netfilter().expect("socket").nft_rules(table, Some("masq_checks")).expect("rules");
        assert!(rules.is_empty(), "{rules:?}");
        assert_eq!(std::fs::read_dir(dir.join("state/attachments")).expect("journal").count(), 0);
        assert_eq!(std::fs::read_dir(dir.join("cache/results")).expect("cache").count(), 0);
    });
}
