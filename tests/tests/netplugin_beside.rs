//! Pods on macvlan: their packets never pass the node's filter, so that their policies stand in their own namespaces, before
//! their first packet as everywhere.

#[path = "netplugin/pods.rs"]
mod pods;

use std::{
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_linux::netns::Netns;
use podwire_testkit::{Node, eventually, isolate};
use serde_json::json;

use self::pods::{Pods, TCP, UDP, namespace, policy};

const SOON: Duration = Duration::from_secs(30);

/// A node whose pods are on the network of one of its links, both families.
fn up(folder: &Path) -> Result<Node> {
    for words in ["link add lan0 type veth peer name lan1", "link set lan0 up", "link set lan1 up"] {
        let done = Command::new("ip").args(words.split(' ')).output()?;
        ensure!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let conf_dir = folder.join("net.d");
    std::fs::create_dir_all(&conf_dir)?;
    let range = |subnet: &str| json!([{"subnet": subnet}]);
    let list = json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [{
        "type": "macvlan", "master": "lan0",
        "ipam": {"type": "host-local", "dataDir": folder.join("ipam"), "ranges": [range("10.99.0.0/24"), range("fd99::/64")]},
    }]});
    std::fs::write(conf_dir.join("10-lan.conflist"), list.to_string())?;
    Node::up(&[&format!("--cni-conf-dir={}", conf_dir.display())])
}

fn carries(mut from: &TcpStream, mut to: &TcpStream) -> Result<bool, String> {
    from.write_all(b"x").map_err(|error| error.to_string())?;
    Ok(to.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0))
}

fn dialler(namespace: &str, name: &str, to: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{namespace: {namespace}, name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [dial, \"{to}\", \"600\"]\n"
    )
}

/// Starts pods that dial before they do anything else; how many of their packets arrived.
fn dial(node: &Node, pods: &Pods, namespace: &str) -> Result<usize> {
    let listener = &pods.0["default/bad"];
    let server = Netns::open(&listener.netns)?.run(|| UdpSocket::bind("0.0.0.0:9"))??;
    server.set_nonblocking(true)?;
    let to = format!("{}:9", listener.addresses[0]);
    for at in 0..5 {
        let name = format!("dial-{at}");
        node.apply(&dialler(namespace, &name, &to))?;
        eventually("it has dialled", SOON, || match node.podwire(["logs", "-n", namespace, &name]) {
            Ok(log) if log.contains("dialled") => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .with_context(|| node.log_tail())?;
        node.podwire(["delete", "-n", namespace, "pod", &name])?;
    }
    let mut arrived = 0;
    while server.recv_from(&mut [0; 16]).is_ok() {
        arrived += 1;
    }
    Ok(arrived)
}

#[test]
fn pods_on_macvlan_are_governed_in_their_own_namespaces() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let mut node = up(folder.path())?;
    node.apply(&namespace("shut", "a: b"))?;
    let pods = Pods::run(&node, &["default/web", "default/good", "default/bad"])?;
    pods.all(&[
        ("default/bad", "default/web", TCP, 80, true),
        ("default/bad", "default/web/6", UDP, 53, true),
    ])?;
    let (client, server) = pods.connect("default/bad", "default/web", 80)?;
    ensure!(carries(&client, &server) == Ok(true), "a connection stands");

    // A policy that comes later takes effect, and cuts what it no longer allows.
    let allow = "podSelector: {matchLabels: {pod: web}}\n  ingress:\n  - from: [{podSelector: {matchLabels: {pod: good}}}]\n    ports: [{port: web}]";
    node.apply(&policy("default", "allow", allow))?;
    pods.eventually(("default/bad", "default/web", TCP, 80, false))?;
    eventually("the connection is cut", SOON, || match carries(&client, &server)? {
        true => Err("it goes on".to_owned()),
        false => Ok(()),
    })?;
    let asks = [
        ("default/good", "default/web", TCP, 80, true),
        ("default/good", "default/web/6", TCP, 80, true),
        ("default/good", "default/web", TCP, 81, false),
        ("default/good", "default/web", UDP, 80, false),
        ("default/bad", "default/web/6", TCP, 80, false),
        ("default/web", "default/bad", TCP, 80, true),
    ];
    pods.all(&asks)?;

    // From the first packet.
    ensure!(dial(&node, &pods, "default")? > 0, "without a policy they do get through");
    node.apply(&policy("shut", "deny", "podSelector: {}\n  policyTypes: [Egress]"))?;
    let probe = Pods::run(&node, &["shut/probe"])?;
    let both = probe.and(Pods::of(&pods, "default/bad"));
    both.eventually(("shut/probe", "default/bad", TCP, 80, false))?;
    let arrived = dial(&node, &pods, "shut")?;
    ensure!(arrived == 0, "{arrived} packets of pods that may not speak arrived");

    // Nobody is there, and then somebody who finds what stands.
    node.kill9()?;
    pods.all(&asks)?;
    node.start()?;
    node.podwire(["delete", "networkpolicy", "allow"])?;
    pods.eventually(("default/bad", "default/web", TCP, 80, true))?;
    node.apply(&policy("default", "allow", allow))?;
    pods.eventually(("default/bad", "default/web", TCP, 80, false))?;
    pods.all(&asks)?;
    for name in ["default/web", "default/good", "default/bad"] {
        pods.delete(&node, name)?;
    }
    both.delete(&node, "shut/probe")?;
    node.down()
}
