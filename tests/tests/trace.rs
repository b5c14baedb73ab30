//! `podwire trace` on a whole node: every form, readers that are away or stuck, and the bound on what is kept.

use std::{io::Read, os::unix::net::UnixStream, time::Duration};

use anyhow::{Context, Result};
use podwire_testkit::{Node, eventually, isolate, mermaid};
use serde_json::Value;

fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers: [{{name: main, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: [sleep, \"60\"]}}]\n"
    )
}

/// Starts and ends a pod while nobody reads traces.
fn live(node: &Node, name: &str) -> Result<()> {
    node.apply(&manifest(name))?;
    node.pod_in_phase(name, "Running")?;
    node.podwire(["delete", "pod", name])?;
    Ok(())
}

#[test]
fn a_pods_path_is_drawn_in_every_form_after_it_is_gone() -> Result<()> {
    isolate()?;
    // Without a plugin each call is there once; tests/netplugin.rs looks at the plugin's arrows.
    let node = Node::up(&["--network-policy", "off"])?;
    live(&node, "one")?;
    live(&node, "two")?;
    let arrows = eventually("the pod's last arrow", Duration::from_secs(10), || {
        let text = node.podwire(["trace", "pod/one", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let arrows: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let gone = arrows.iter().any(|arrow| arrow["what"] == "delete pod");
        if gone { Ok(arrows) } else { Err(text) }
    })?;
    let uids: std::collections::BTreeSet<&str> = arrows.iter().filter_map(|a| a["uid"].as_str()).collect();
    assert_eq!(uids.len(), 1, "arrows of one pod only");
    let whats: Vec<&str> = arrows.iter().filter_map(|arrow| arrow["what"].as_str()).collect();
    let calls = [
        "RunPodSandbox",
        "CreateContainer main",
        "StartContainer main",
        "StopPodSandbox",
        "RemovePodSandbox",
    ];
    let network =
        ["ADD eth0 bridge", "ADD eth0 portmap", "ADD host-local", "DEL eth0 portmap", "DEL host-local"];
    for what in calls.into_iter().chain(network) {
        assert_eq!(whats.iter().filter(|known| **known == what).count(), 1, "{what} once in {whats:?}");
    }
    let told = |start: &str| whats.iter().position(|what| what.starts_with(start));
    let made = [told("network namespace made"), told("configuration read: podwire"), told("10.88.0.")];
    assert!(made.iter().all(Option::is_some) && made.is_sorted(), "the network's steps in {whats:?}");
    let text = node.podwire(["trace", "one", "-o", "mermaid"])?;
    let diagram = mermaid::parse(&text).with_context(|| text.clone())?;
    let order =
        ["KubeCtl", "APIServer", "etcd", "Scheduler", "Kubelet", "ContainerRuntime", "CNIPlugin", "IPAM"];
    assert_eq!(diagram.names(), order, "{text}");
    let narrow = node.podwire(["trace", "pod/one", "--width", "80"])?;
    assert!(narrow.starts_with("AT ") && narrow.contains("RunPodSandbox -> sandbox"), "{narrow}");
    let wide = node.podwire(["trace", "pod/one", "--width", "200"])?;
    assert!(wide.contains('▶') && wide.contains('◆'), "{wide}");
    assert!(wide.lines().all(|line| line.chars().count() <= 200), "wider than the terminal:\n{wide}");
    let table = node.podwire(["trace", "--last", "20"])?;
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(rows[0].starts_with("default/one") && rows[1].starts_with("default/two"), "{table}");
    assert!(rows.iter().all(|row| !row.contains(" - ")), "every step has its time: {table}");
    let unknown = node.podwire(["trace", "pod/three"]).unwrap_err().to_string();
    assert!(unknown.contains("no trace of pod \"default/three\""), "{unknown}");
    node.down()
}

#[test]
fn a_call_that_failed_is_an_arrow_with_its_error() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&manifest("broken").replace("args:", "command: [/no-such-program], args:"))?;
    let failed = eventually("the arrow of the start that failed", Duration::from_secs(10), || {
        let text =
            node.podwire(["trace", "pod/broken", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let arrows: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        arrows.into_iter().find(|arrow| arrow["what"] == "StartContainer main").ok_or(text)
    })?;
    let error = failed["error"].as_str().unwrap_or_default();
    assert!(error.contains("no-such-program"), "{failed}");
    assert_eq!(
        (failed["to"].as_str(), failed["reply"].as_str()),
        (Some("ContainerRuntime"), None),
        "{failed}"
    );
    node.podwire(["delete", "pod", "broken"])?;
    node.down()
}

#[test]
fn a_reader_that_does_not_read_keeps_nobody_waiting() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    let names = node.names()?;
    let socket = std::fs::read_dir(&names.run_dir)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(".trace.sock"))
        .context("no trace socket")?;
    let stuck: Vec<UnixStream> = (0..4).map(|_| UnixStream::connect(&socket)).collect::<Result<_, _>>()?;
    live(&node, "web")?;
    let begun = std::time::Instant::now();
    let trace = node.podwire(["trace", "pod/web", "-o", "json"])?;
    assert!(trace.contains("RunPodSandbox"), "{trace}");
    assert!(begun.elapsed() < Duration::from_secs(4), "a stuck reader held up another");
    let mut header = [0; 15];
    (&stuck[0]).read_exact(&mut header)?;
    assert_eq!(&header, b"podwire-trace 1");
    node.down()
}
