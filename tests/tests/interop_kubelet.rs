//! The real kubelet, API server, etcd and scheduler with our runtime, with our network plugins and the reference ones.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "the steps belong into the log of the run")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    eventually, isolate,
    node::peer,
    stack::{Ours, Stack},
};
use serde_json::Value;

/// The real kubelet looks at its pods once a second, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Its liveness probe fails once `/fail` is there, its readiness probe until the server answers.
const WEB: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    command: [/pod-app]
    args: [serve, "80"]
    readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
    livenessProbe: {exec: {command: [/pod-app, absent, /fail]}, periodSeconds: 1, failureThreshold: 1}
    resources: {limits: {memory: 64Mi, cpu: 500m}}
"#;

const TALK: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: talk}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: OnFailure
  containers:
  - {name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [cat], stdin: true}
"#;

const ENDS: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: ends}
spec:
  restartPolicy: OnFailure
  containers:
  - {name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [exit, "3"]}
"#;

/// Upstream's cluster of one node on our runtime.
struct Cluster(Stack);

impl Cluster {
    fn start(our_plugins: bool) -> Result<Cluster> {
        isolate()?;
        let ours = Ours { runtime: true, cni: our_plugins, ..Ours::NONE };
        Ok(Cluster(Stack::start(ours)?))
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(peer("kubectl")?);
        command.env("KUBECONFIG", self.0.kubeconfig()).stdin(Stdio::null());
        Ok(command)
    }

    fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.0.kubectl(words)
    }

    fn until<T>(&self, what: &str, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
        eventually(what, PATIENCE, || probe().map_err(|error| format!("{error:#}")))
            .with_context(|| self.0.log_tails())
    }

    /// A pod, once the status of its only container is as wanted.
    fn container_when(&self, pod: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until(&format!("{pod}: {what}"), || {
            let found: Value = serde_json::from_str(&self.kubectl(&["get", "pod", pod, "-o", "json"])?)?;
            let status = &found["status"]["containerStatuses"][0];
            if wanted(status) { Ok(found) } else { bail!("{}", found["status"]) }
        })
    }
}

/// A child that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Ignored: it may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn walk(cluster: &Cluster) -> Result<()> {
    for manifest in [WEB, TALK, ENDS] {
        cluster.0.apply_admitted(manifest)?;
    }
    let web = cluster.container_when("web", "Ready", |status| status["ready"] == true)?;
    let address = web["status"]["podIP"].as_str().context("no podIP")?.to_owned();
    assert!(address.starts_with("10.90."), "{address} is from our network");
    println!("web is Ready at {address}");

    cluster.until("its log", || match cluster.kubectl(&["logs", "web"])? {
        text if text.contains("listening on 80") => Ok(()),
        text => bail!("{text}"),
    })?;
    assert_eq!(cluster.kubectl(&["exec", "web", "--", "/pod-app", "hostname"])?.trim(), "web");
    let code = cluster.command()?.args(["exec", "web", "--", "/pod-app", "exit", "7"]).status()?;
    assert_eq!(code.code(), Some(7), "the exit code of an exec comes back");
    let talked = cluster.kubectl(&["exec", "web", "--", "/pod-app", "get", &format!("http://{address}/")])?;
    assert_eq!(talked.trim(), "hello from web");
    attach(cluster)?;
    forward(cluster)?;

    let ended = cluster.container_when("ends", "restarted", |status| {
        status["restartCount"].as_i64().is_some_and(|count| count >= 1)
    })?;
    let last = &ended["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 3, "{last}");

    cluster.kubectl(&["exec", "web", "--", "/pod-app", "write", "/fail", "now"])?;
    cluster.container_when("web", "restarted by its liveness probe, and Ready again", |status| {
        status["restartCount"].as_i64().is_some_and(|count| count >= 1) && status["ready"] == true
    })?;
    println!("web was restarted by its probe");

    cluster.kubectl(&["delete", "pod", "web", "talk", "ends", "--timeout=90s"])?;
    Ok(())
}

fn attach(cluster: &Cluster) -> Result<()> {
    cluster.container_when("talk", "running", |status| status["state"]["running"].is_object())?;
    let mut child = cluster.command()?;
    child.args(["attach", "--stdin", "--quiet", "talk"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Ended(child.spawn()?);
    let mut input = child.0.stdin.take().context("no stdin")?;
    let mut output = BufReader::new(child.0.stdout.take().context("no stdout")?);
    writeln!(input, "through attach")?;
    input.flush()?;
    let mut line = String::new();
    output.read_line(&mut line)?;
    assert_eq!(line.trim(), "through attach");
    Ok(())
}

fn forward(cluster: &Cluster) -> Result<()> {
    let mut child = cluster.command()?;
    child.args(["port-forward", "pod/web", "18080:80"]).stdout(Stdio::null());
    let _child = Ended(child.spawn()?);
    let answer = cluster.until("an answer through the forwarded port", || {
        let mut stream = TcpStream::connect("127.0.0.1:18080")?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.is_empty() { bail!("no answer") } else { Ok(answer) }
    })?;
    assert!(answer.contains("hello from web"), "{answer}");
    Ok(())
}

#[test]
fn the_real_kubelet_runs_pods_on_our_runtime_with_our_plugins() -> Result<()> {
    let cluster = Cluster::start(true)?;
    walk(&cluster)?;
    cluster.0.assert_no_pod_residue()
}

#[test]
fn the_real_kubelet_runs_pods_on_our_runtime_with_the_reference_plugins() -> Result<()> {
    let cluster = Cluster::start(false)?;
    walk(&cluster)?;
    cluster.0.assert_no_pod_residue()
}
