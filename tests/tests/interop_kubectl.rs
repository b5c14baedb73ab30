//! The real kubectl against `podwire up`: the words it prints and the codes it exits with.
#![cfg(feature = "interop")]

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_testkit::{Node, eventually, isolate};

const WEB: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: IfNotPresent
    args: [serve, "80"]
"#;

fn apply(node: &Node, manifest: &str) -> Result<String> {
    let path = node.data_dir.join("manifest.yaml");
    std::fs::write(&path, manifest)?;
    node.kubectl(["apply", "-f", &path.display().to_string()])
}

/// Lines of a command that does not end by itself; it is killed when dropped.
struct Following {
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Following {
    fn start(node: &Node, args: &[&str]) -> Result<Following> {
        let mut child = node
            .kubectl_command()?
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let out = child.stdout.take().context("no stdout")?;
        let (send, lines) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Following { child, lines })
    }

    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(Duration::from_secs(15)) {
                Ok(line) if wanted(&line) => return Ok(line),
                Ok(line) => seen.push(line),
                Err(_) => anyhow::bail!("{what} did not come; saw {seen:?}"),
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn smoke_kubectl_walks_the_life_of_a_pod() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    let watch = Following::start(&node, &["get", "pods", "-w", "--no-headers"])?;
    assert_eq!(apply(&node, WEB)?.trim(), "pod/web created");
    assert_eq!(
        node.kubectl(["wait", "--for=condition=Ready", "pod/web", "--timeout=20s"])?.trim(),
        "pod/web condition met"
    );
    watch.until("web Running in the watch", |line| line.starts_with("web") && line.contains("Running"))?;
    assert_eq!(apply(&node, WEB)?.trim(), "pod/web unchanged");

    let wide = node.kubectl(["get", "pods", "-o", "wide"])?;
    assert!(
        wide.lines().next().is_some_and(|head| head.split_whitespace().collect::<Vec<_>>()[..7]
            == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]),
        "{wide}"
    );
    assert!(wide.contains("10.88.") && wide.contains("node1"), "{wide}");
    let yaml = node.kubectl(["get", "pod", "web", "-o", "yaml"])?;
    assert!(yaml.contains("phase: Running") && yaml.contains("podIP: 10.88."), "{yaml}");
    let described = node.kubectl(["describe", "pod", "web"])?;
    for wanted in [
        "Node:             node1/",
        "Status:           Running",
        "Successfully assigned default/web to node1",
        "Container started",
    ] {
        assert!(described.contains(wanted), "{wanted:?} in {described}");
    }

    let logs = Following::start(&node, &["logs", "-f", "web"])?;
    logs.until("the first line", |line| line.contains("listening on 80"))?;
    let address = node.kubectl(["get", "pod", "web", "-o", "jsonpath={.status.podIP}"])?;
    assert_eq!(
        node.kubectl(["exec", "web", "--", "/pod-app", "get", &format!("http://{address}/")])?.trim(),
        "hello from web"
    );
    logs.until("the request", |line| line.contains("GET /"))?;
    let failed = node.kubectl(["exec", "web", "--", "/pod-app", "exit", "3"]).unwrap_err().to_string();
    assert!(
        failed.contains("exit status: 3") && failed.contains("command terminated with exit code 3"),
        "{failed}"
    );

    assert_eq!(node.kubectl(["label", "pod", "web", "colour=red"])?.trim(), "pod/web labeled");
    assert_eq!(node.kubectl(["get", "pods", "-l", "colour=red", "-o", "name"])?.trim(), "pod/web");
    assert_eq!(
        node.kubectl(["patch", "pod", "web", "-p", r#"{"metadata":{"annotations":{"a":"b"}}}"#])?.trim(),
        "pod/web patched"
    );
    assert_eq!(node.kubectl(["get", "pod", "web", "-o", "jsonpath={.metadata.annotations.a}"])?, "b");
    let missing = node.kubectl(["get", "pod", "nobody"]).unwrap_err().to_string();
    assert!(missing.contains("Error from server (NotFound): pods \"nobody\" not found"), "{missing}");

    assert_eq!(node.kubectl(["delete", "pod", "web"])?.trim(), "pod \"web\" deleted from default namespace");
    drop((watch, logs));
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn smoke_kubectl_manages_namespaces_and_says_what_is_wrong() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    assert_eq!(node.kubectl(["create", "namespace", "team"])?.trim(), "namespace/team created");
    eventually("what every namespace gets", Duration::from_secs(10), || {
        let found = node
            .kubectl(["-n", "team", "get", "serviceaccounts,configmaps", "-o", "name"])
            .map_err(|error| error.to_string())?;
        if found.contains("serviceaccount/default") && found.contains("configmap/kube-root-ca.crt") {
            Ok(())
        } else {
            Err(found)
        }
    })?;
    assert_eq!(
        node.kubectl(["-n", "team", "create", "configmap", "one", "--from-literal=a=b"])?.trim(),
        "configmap/one created"
    );
    assert_eq!(
        node.kubectl(["delete", "namespace", "team", "--timeout=20s"])?.trim(),
        "namespace \"team\" deleted"
    );

    let invalid = apply(&node, &WEB.replace("name: web", "name: Web_1")).unwrap_err().to_string();
    assert!(
        invalid.contains("The Pod \"Web_1\" is invalid: metadata.name: Invalid value: \"Web_1\""),
        "{invalid}"
    );
    let unknown =
        apply(&node, &WEB.replace("containers:", "contaners: []\n  containers:")).unwrap_err().to_string();
    assert!(unknown.contains("unknown field \"spec.contaners\""), "{unknown}");
    let pending =
        apply(&node, &WEB.replace("    args:", "    resources: {requests: {cpu: \"1000\"}}\n    args:"))?;
    assert_eq!(pending.trim(), "pod/web created");
    eventually("Unschedulable", Duration::from_secs(10), || {
        let events = node
            .kubectl(["get", "events", "--field-selector", "reason=FailedScheduling"])
            .map_err(|error| error.to_string())?;
        if events.contains("0/1 nodes are available: 1 Insufficient cpu") { Ok(()) } else { Err(events) }
    })?;
    assert_eq!(node.kubectl(["auth", "can-i", "create", "pods"])?.trim(), "yes");
    node.kubectl(["delete", "pod", "web"])?;
    node.down()
}
