//! Upstream's kube-scheduler and kubelet as clients of our API server, with their default content types.
#![cfg(feature = "interop")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    eventually, isolate,
    stack::{Ours, Stack},
};

const PATIENCE: Duration = Duration::from_secs(90);

/// Asks until kubectl says this.
fn says(stack: &Stack, args: &[&str], wanted: &str) -> Result<()> {
    eventually(wanted, PATIENCE, || match stack.kubectl(args) {
        Ok(said) if said.trim() == wanted => Ok(()),
        Ok(said) => Err(said),
        Err(error) => Err(format!("{error:#}")),
    })
}

const POD: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {greeting: servus}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 2
  initContainers:
  - {name: first, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app, echo, prepared]}
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    command: [/pod-app, serve, "80"]
    env:
    - {name: GREETING, valueFrom: {configMapKeyRef: {name: words, key: greeting}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    volumeMounts: [{name: words, mountPath: /words}]
    readinessProbe: {httpGet: {port: 80, path: /}, periodSeconds: 1}
  volumes: [{name: words, configMap: {name: words}}]
---
apiVersion: v1
kind: Pod
metadata: {name: giant}
spec:
  containers: [{name: main, image: "localhost/pod-app:latest", resources: {requests: {cpu: "4000"}}}]
"#;

/// A pod's whole life, and a pod that fits nowhere.
fn walk(stack: &Stack) -> Result<()> {
    stack.apply_admitted(POD)?;
    stack
        .kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=90s"])
        .with_context(|| stack.kubectl(&["describe", "pod", "web"]).unwrap_or_default())
        .with_context(|| stack.log_tails())?;
    says(stack, &["get", "pod", "web", "-o", "jsonpath={.spec.nodeName}"], "node1")?;
    says(stack, &["exec", "web", "--", "/pod-app", "env", "GREETING"], "servus")?;
    says(stack, &["exec", "web", "--", "/pod-app", "env", "NODE"], "node1")?;
    says(stack, &["exec", "web", "--", "/pod-app", "cat", "/words/greeting"], "servus")?;
    let mount = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    let token = stack.kubectl(&["exec", "web", "--", "/pod-app", "cat", mount])?;
    ensure!(token.matches('.').count() == 2, "a token has three parts: {token}");
    says(stack, &["logs", "web", "-c", "first"], "prepared")?;
    let log = stack.kubectl(&["logs", "web", "--tail=100"])?;
    ensure!(log.contains("GET / from"), "the probe is in the log: {log}");
    let exit = stack.kubectl(&["exec", "web", "--", "/pod-app", "exit", "3"]);
    let refused = exit.err().context("kubectl hid the exit code")?.to_string();
    ensure!(refused.contains("exit code 3"), "{refused}");
    let events = stack.kubectl(&["get", "events", "--field-selector", "involvedObject.name=web"])?;
    ensure!(
        events.contains("Successfully assigned default/web to node1") && events.contains("Started"),
        "{events}"
    );
    let scheduled = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}";
    says(stack, &["get", "pod", "giant", "-o", scheduled], "Unschedulable")?;
    let why = stack.kubectl(&["get", "events", "--field-selector", "reason=FailedScheduling"])?;
    ensure!(why.contains("0/1 nodes are available: 1 Insufficient cpu"), "{why}");
    stack.kubectl(&["delete", "pod", "web", "giant", "--timeout=60s"])?;
    says(stack, &["get", "pods", "-o", "name"], "")?;
    stack.assert_no_pod_residue()
}

#[test]
fn the_real_scheduler_schedules_for_our_kubelet() -> Result<()> {
    isolate()?;
    walk(&Stack::start(Ours { scheduler: false, ..Ours::ALL })?)
}

#[test]
fn the_real_kubelet_and_scheduler_run_pods_of_our_api_server_on_our_runtime() -> Result<()> {
    isolate()?;
    let stack = Stack::start(Ours { scheduler: false, kubelet: false, ..Ours::ALL })?;
    walk(&stack)?;
    // The node is described as upstream's kubelet describes itself, and keeps its lease.
    let node = stack.kubectl(&["get", "node", "node1", "-o", "wide"])?;
    ensure!(node.contains("v1.36.4") && node.contains("Ready"), "{node}");
    let holder = ["-n", "kube-node-lease", "get", "lease", "node1", "-o", "jsonpath={.spec.holderIdentity}"];
    says(&stack, &holder, "node1")?;
    says(&stack, &["get", "csinode", "node1", "-o", "name"], "csinode.storage.k8s.io/node1")
}
