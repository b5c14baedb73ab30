//! The network plugin killed, the API server away, pods that speak at once: what a policy forbids never gets through.

#[path = "netplugin/alone.rs"]
mod alone;
#[path = "netplugin/pods.rs"]
mod pods;

use std::{net::UdpSocket, time::Duration};

use anyhow::{Context, Result, ensure};
use podwire_linux::{
    netns::Netns,
    nft::{self, Family, Table, Transaction},
};
use podwire_testkit::{Node, eventually, isolate};

use self::{
    alone::{Alone, Forwarder},
    pods::{Pods, TCP, namespace, policy},
};

/// The address of the node that pods see.
const GATEWAY: &str = "10.88.0.1:9";
const SOON: Duration = Duration::from_secs(30);
/// Pods that dial at once under a policy that denies everything, and while the plugin is away: all of them with the real peers.
const MANY: usize = if cfg!(feature = "interop") { 1000 } else { 30 };
const AWAY: usize = if cfg!(feature = "interop") { 200 } else { 10 };
/// How many of them there are at a time: a node takes no more than 110.
const TOGETHER: usize = 50;

fn dialler(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{namespace: {namespace}, name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [dial, \"{GATEWAY}\", \"600\"]\n"
    )
}

#[allow(clippy::print_stderr, reason = "how many there were is worth knowing")]
fn tell(what: &str) {
    eprintln!("{what}");
}

/// Starts so many pods that dial out before they do anything else, some at a time; how many of their packets arrived.
fn dial_many(node: &Node, namespace: &str, round: &str, count: usize) -> Result<usize> {
    let (begun, mut arrived, mut dialled) = (std::time::Instant::now(), 0, 0);
    while dialled < count {
        let some = TOGETHER.min(count - dialled);
        arrived += dial_all(node, namespace, &format!("{round}{dialled}"), some)?;
        dialled += some;
    }
    tell(&format!("{round}: {arrived} packets of {dialled} pods arrived, in {:?}", begun.elapsed()));
    Ok(arrived)
}

/// Starts pods that dial out before they do anything else; how many of their packets arrived.
fn dial_all(node: &Node, namespace: &str, round: &str, count: usize) -> Result<usize> {
    let socket = UdpSocket::bind(GATEWAY).context("the bridge is there once a pod has been")?;
    socket.set_nonblocking(true)?;
    let names: Vec<String> = (0..count).map(|at| format!("dial-{round}-{at}")).collect();
    let manifests: Vec<String> = names.iter().map(|name| dialler(namespace, name)).collect();
    node.apply(&manifests.join("---\n"))?;
    for name in &names {
        eventually(&format!("{name} has dialled"), SOON * 2, || {
            match node.podwire(["logs", "-n", namespace, name]) {
                Ok(log) if log.contains("dialled") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .with_context(|| node.log_tail())?;
    }
    let mut arrived = 0;
    while socket.recv_from(&mut [0; 16]).is_ok() {
        arrived += 1;
    }
    let mut words = vec!["delete", "-n", namespace, "pod"];
    words.extend(names.iter().map(String::as_str));
    node.podwire(words)?;
    Ok(arrived)
}

#[test]
fn a_pods_first_packets_are_governed() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&namespace("shut", "a: b"))?;
    let first = Pods::run(&node, &["default/first"])?;
    ensure!(dial_all(&node, "default", "open", 3)? > 0, "without a policy they do get through");
    node.apply(&policy("shut", "deny", "podSelector: {}\n  policyTypes: [Egress]"))?;
    // The policy is in force once a pod there is cut off.
    let probe = Pods::run(&node, &["shut/probe"])?;
    probe.eventually(("shut/probe", "node", TCP, 80, false))?;
    let arrived = dial_many(&node, "shut", "closed", MANY)?;
    ensure!(arrived == 0, "{arrived} packets of pods that may not speak arrived");
    first.delete(&node, "default/first")?;
    probe.delete(&node, "shut/probe")?;
    node.down()
}

#[test]
fn while_the_plugin_is_away_the_floor_keeps_new_pods_closed() -> Result<()> {
    isolate()?;
    // Here nothing makes pods wait for the plugin: only the floor is left.
    let node = Node::up(&["--network-policy", "off"])?;
    let first = Pods::run(&node, &["default/first"])?;
    let mut plugin = Alone::start(&node, &node.kubeconfig())?;
    plugin.loaded(&node)?;
    first.eventually(("default/first", "node", TCP, 80, true))?;
    ensure!(dial_all(&node, "default", "known", 3)? > 0, "with the plugin they are known and not governed");
    plugin.kill();
    let arrived = dial_many(&node, "default", "away", AWAY)?;
    ensure!(arrived == 0, "{arrived} packets got past the floor");
    first.all(&[("default/first", "node", TCP, 80, true)])?;
    // The same without the floor: they do get through, so that the test can fail.
    let mut tx = Transaction::new();
    tx.delete_table(Table { family: Family::Inet, name: alone::TABLE });
    tx.commit(&mut nft::Socket::netfilter()?)?;
    ensure!(dial_all(&node, "default", "open", 3)? > 0, "without the floor they get through");
    first.delete(&node, "default/first")?;
    node.down()
}

/// Does `what` while a pod that may not sends to another as fast as it can; fails if anything arrives.
fn bombarded(pods: &Pods, what: impl FnOnce() -> Result<()>) -> Result<()> {
    let target = std::net::SocketAddr::new(pods.0["default/web"].addresses[0], 9);
    let inside = |name: &str, at: &str| -> Result<UdpSocket> {
        let at = at.to_owned();
        Ok(Netns::open(&pods.0[name].netns)?.run(move || UdpSocket::bind(at))??)
    };
    let (server, client) = (inside("default/web", "0.0.0.0:9")?, inside("default/bad", "0.0.0.0:0")?);
    server.set_nonblocking(true)?;
    let over = std::sync::atomic::AtomicBool::new(false);
    let sent = std::thread::scope(|scope| -> Result<u64> {
        let sender = std::thread::Builder::new().name("bombard".into()).spawn_scoped(scope, || {
            let mut sent = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                sent += u64::from(client.send_to(b"x", target).is_ok());
                std::thread::yield_now();
            }
            sent
        })?;
        let done = what();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let sent = sender.join().map_err(|_| anyhow::anyhow!("the sender broke off"))?;
        done.map(|()| sent)
    })?;
    let mut arrived = 0;
    while server.recv_from(&mut [0; 4]).is_ok() {
        arrived += 1;
    }
    ensure!(sent > 1000 && arrived == 0, "{arrived} of {sent} packets that a policy forbids got through");
    Ok(())
}

/// A node whose pods wait for the plugin, which is a process beside it; the pods, and a policy by which `bad` may not.
fn beside() -> Result<(Node, Alone, Pods)> {
    let required = ["--nri-required-plugins", "netplugin", "--nri-required-wait", "300ms"];
    let node = Node::up(&[["--network-policy", "off"].as_slice(), &required].concat())?;
    let plugin = Alone::start(&node, &node.kubeconfig())?;
    let pods = Pods::run(&node, &["default/web", "default/good", "default/bad"])?;
    let allow = "podSelector: {matchLabels: {pod: web}}\n  ingress:\n  - from: [{podSelector: {matchLabels: {pod: good}}}]";
    node.apply(&policy("default", "allow", allow))?;
    pods.eventually(("default/bad", "default/web", TCP, 80, false))?;
    Ok((node, plugin, pods))
}

/// Waits until an event has these words.
fn event_says(node: &Node, words: &str) -> Result<()> {
    eventually(&format!("an event says {words:?}"), SOON, || {
        let events = node.list("events").map_err(|error| format!("{error:#}"))?;
        let messages: Vec<&str> = events.iter().filter_map(|one| one["message"].as_str()).collect();
        if messages.iter().any(|text| text.contains(words)) { Ok(()) } else { Err(messages.join("\n")) }
    })
}

fn end(node: Node, mut plugin: Alone, pods: &Pods) -> Result<()> {
    for name in ["web", "good", "bad"] {
        pods.delete(&node, &format!("default/{name}"))?;
    }
    plugin.kill();
    alone::remove_table()?;
    node.down()
}

#[test]
fn a_plugin_killed_under_churn_lets_nothing_through() -> Result<()> {
    isolate()?;
    let (node, mut plugin, pods) = beside()?;
    bombarded(&pods, || {
        (0..4).try_for_each(|round| {
            let rule = format!("podSelector: {{}}\n  ingress: [{{ports: [{{port: {}}}]}}]", 9000 + round);
            node.apply(&policy("default", &format!("p{round}"), &rule))?;
            plugin.kill();
            node.podwire(["delete", "networkpolicy", &format!("p{round}")])?;
            node.apply(&pods::manifest(&format!("default/new{round}")))?;
            if round == 0 {
                event_says(&node, "required NRI plugin netplugin")?;
            }
            plugin = Alone::start(&node, &node.kubeconfig())?;
            let new = Pods::run(&node, &[&*format!("default/new{round}").leak()])?;
            pods.eventually(("default/good", "default/web", TCP, 80, true))?;
            new.delete(&node, &format!("default/new{round}"))
        })
    })?;
    end(node, plugin, &pods)
}

#[test]
fn a_plugin_that_hangs_under_churn_lets_nothing_through_and_no_pod_start() -> Result<()> {
    isolate()?;
    let (node, plugin, pods) = beside()?;
    bombarded(&pods, || {
        (0..2).try_for_each(|round| {
            let (late, name) = (format!("p{round}"), format!("new{round}"));
            let whole: &'static str = format!("default/{name}").leak();
            plugin.hang(true)?;
            node.apply(&policy("default", &late, &format!("podSelector: {{matchLabels: {{pod: {name}}}}}")))?;
            node.apply(&pods::manifest(whole))?;
            eventually("the pod is refused", SOON * 2, || {
                let events = node.list("events").map_err(|error| format!("{error:#}"))?;
                let of_pod = events.iter().filter(|one| one["involvedObject"]["name"] == *name);
                let said: Vec<&str> = of_pod.filter_map(|one| one["message"].as_str()).collect();
                if said.iter().any(|text| text.contains("netplugin")) {
                    Ok(())
                } else {
                    Err(format!("{said:?}"))
                }
            })?;
            let pod = node.get("pod", &name)?;
            ensure!(pod["status"]["phase"] == "Pending", "{}", pod["status"]);
            pods.all(&[("default/good", "default/web", TCP, 80, true)])?;
            plugin.hang(false)?;
            // It starts with the policy that came while nobody heard.
            let new = Pods::run(&node, &[whole])?;
            pods.clone().and(new.clone()).all(&[("default/good", whole, TCP, 80, false)])?;
            new.delete(&node, whole)?;
            node.podwire(["delete", "networkpolicy", &late]).map(drop)
        })
    })?;
    end(node, plugin, &pods)
}

#[test]
fn while_the_api_server_is_away_policies_stay_and_new_pods_wait() -> Result<()> {
    isolate()?;
    let required = ["--nri-required-plugins", "netplugin"];
    let node = Node::up(&[["--network-policy", "off"].as_slice(), &required].concat())?;
    let forwarder = Forwarder::start("127.0.0.1:7443", "127.0.0.1:6443")?;
    let text = std::fs::read_to_string(node.kubeconfig())?.replace("127.0.0.1:6443", "127.0.0.1:7443");
    let kubeconfig = node.data_dir.join("forwarded.kubeconfig");
    std::fs::write(&kubeconfig, text)?;
    let mut plugin = Alone::start(&node, &kubeconfig)?;
    let pods = Pods::run(&node, &["default/web", "default/client"])?;
    node.apply(&policy("default", "deny", "podSelector: {matchLabels: {pod: web}}"))?;
    pods.eventually(("default/client", "default/web", TCP, 80, false))?;
    forwarder.cut();
    node.apply(&pods::manifest("default/late"))?;
    eventually("the pod waits, with the reason", SOON, || {
        let events = node.list("events").map_err(|error| format!("{error:#}"))?;
        let messages: Vec<&str> = events.iter().filter_map(|one| one["message"].as_str()).collect();
        let said =
            messages.iter().any(|text| text.contains("cannot be heard") && text.contains("cannot be read"));
        if said { Ok(()) } else { Err(format!("{messages:?}")) }
    })?;
    pods.all(&[
        ("default/client", "default/web", TCP, 80, false),
        ("default/web", "default/client", TCP, 80, true),
    ])?;
    ensure!(node.get("pod", "late")?["status"]["phase"] == "Pending");
    forwarder.mend();
    let late = Pods::run(&node, &["default/late"])?;
    late.delete(&node, "default/late")?;
    for name in ["default/web", "default/client"] {
        pods.delete(&node, name)?;
    }
    plugin.kill();
    alone::remove_table()?;
    node.down()
}
