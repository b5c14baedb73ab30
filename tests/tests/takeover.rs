//! A node of the version before is taken over by this one: its data folder, its running pods, what it left open.
//!
//! Runs in `cargo xtask takeover [COMMIT]`, which builds the version before; `PODWIRE_OLD_BIN_DIR` names its programs.
#![cfg(feature = "takeover")]

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{Node, isolate, node::bin_dir};
use serde_json::Value;

const BEFORE: &str = "apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {key: hunter2}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: value}
---
apiVersion: v1
kind: Pod
metadata: {name: old}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: password, secret: {secretName: password}}
  - {name: settings, configMap: {name: settings}}
  containers:
  - {name: main, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: [log, \"100000\", \"100\"], volumeMounts: [{name: password, mountPath: /password}, {name: settings, mountPath: /settings}]}
  - {name: second, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: [serve, \"8080\"]}
";

const AFTER: &str = "apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: password, secret: {secretName: password}}]
  containers:
  - {name: main, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: [sleep, \"600\"], volumeMounts: [{name: password, mountPath: /password}]}
";

fn old_programs() -> Result<PathBuf> {
    let folder = std::env::var_os("PODWIRE_OLD_BIN_DIR");
    folder.map(PathBuf::from).context("PODWIRE_OLD_BIN_DIR is not set; run `cargo xtask takeover`")
}

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::symlink_metadata(path).with_context(|| format!("{path:?}"))?.mode() & 0o7777)
}

/// What must stay as it is: the pod's identity and address, its containers, and how often they were started.
fn identity(pod: &Value) -> Vec<String> {
    let of_pod = [&pod["metadata"]["uid"], &pod["status"]["podIP"], &pod["status"]["startTime"]];
    let all = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let of_containers = all.flat_map(|one| {
        [&one["name"], &one["containerID"], &one["restartCount"], &one["state"]["running"]["startedAt"]]
    });
    of_pod.into_iter().chain(of_containers).map(Value::to_string).collect()
}

fn is_whole(pod: &Value) -> bool {
    let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    pod["status"]["phase"] == "Running" && all.len() == 2 && all.iter().all(|one| one["ready"] == true)
}

/// Files of the folders that hold secrets which others than their owner may open.
fn open_to_others(folders: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in folders {
        if mode(folder)? != 0o700 {
            found.push(format!("{:o} {}", mode(folder)?, folder.display()));
        }
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_file() && mode(&path)? & 0o077 != 0 {
                found.push(format!("{:o} {}", mode(&path)?, path.display()));
            }
        }
    }
    Ok(found)
}

fn taken_over(end: impl FnOnce(&mut Node) -> Result<()>) -> Result<()> {
    isolate()?;
    let folder = tempfile::Builder::new().prefix("podwire-").tempdir()?;
    let mut node = Node::at_with(&old_programs()?, &folder.path().join("data"), &[])?;
    let version = |node: &Node| node.podwire(["--version"]);
    node.import_app()?;
    node.apply(BEFORE)?;
    let before = node.pod_when("old", "two ready containers", is_whole)?;
    let names = node.names()?;
    let old = version(&node)?;
    end(&mut node)?;

    node.replace_programs(&bin_dir());
    node.start().with_context(|| format!("start on the folder of {}", old.trim()))?;
    ensure!(
        identity(&node.get("pod", "old")?) == identity(&before),
        "the pod is another one right after the start"
    );
    let exec = |pod: &str, words: &[&str]| {
        node.podwire([&["exec", pod, "-c", "main", "--", "/pod-app"], words].concat())
    };
    // The API server may still know the port of the kubelet that is gone.
    let secret = podwire_testkit::eventually("exec", podwire_testkit::node::PATIENCE, || {
        exec("old", &["cat", "/password/key"]).map_err(|error| format!("{error:#}"))
    })?;
    ensure!(secret.trim() == "hunter2", "the secret in the volume is {secret:?}");
    ensure!(exec("old", &["cat", "/settings/key"])?.trim() == "value", "the configuration in the volume");
    ensure!(node.get("secret", "password")?["data"]["key"] == "aHVudGVyMg==", "the secret in the store");
    let first = node.podwire(["logs", "old", "-c", "main"])?.lines().count();
    podwire_testkit::eventually("the log goes on", podwire_testkit::node::PATIENCE, || {
        let now = node.podwire(["logs", "old", "-c", "main"]).map_err(|error| format!("{error:#}"))?;
        if now.lines().count() > first + 5 { Ok(()) } else { Err(format!("{first} lines")) }
    })?;
    node.apply(AFTER)?;
    node.pod_in_phase("new", "Running")?;
    ensure!(exec("new", &["cat", "/password/key"])?.trim() == "hunter2", "a new pod beside it");
    let address = before["status"]["podIP"].as_str().context("no address")?;
    let answer = exec("new", &["get", &format!("http://{address}:8080/")])?;
    ensure!(answer.contains("old"), "the new pod reaches the old one: {answer}");
    ensure!(
        identity(&node.pod_when("old", "all well", is_whole)?) == identity(&before),
        "the pod was disturbed"
    );

    let data = &node.data_dir;
    for (path, wanted) in [(data.clone(), 0o700), (node.kubeconfig(), 0o600)] {
        ensure!(mode(&path)? == wanted, "{path:?} is {:o}", mode(&path)?);
    }
    let found = open_to_others(&[data.join("store"), data.join("pki"), names.run_dir.clone()])?;
    ensure!(found.is_empty(), "open to others:\n{}", found.join("\n"));

    // And once more: what the take-over wrote is read again.
    node.kill9()?;
    node.start()?;
    ensure!(identity(&node.get("pod", "old")?) == identity(&before), "the pod is another one after a crash");
    node.podwire(["delete", "pods", "--all"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn a_node_that_was_told_to_end_is_taken_over_with_its_pods() -> Result<()> {
    taken_over(Node::stop)
}

#[test]
fn a_node_that_was_killed_is_taken_over_with_its_pods() -> Result<()> {
    taken_over(Node::kill9)
}
