//! NRI through the whole binary: required plugins, what a pod says while it has none, and the verbs that look at plugins.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_nri::{
    api::{Container, ContainerAdjustment, CreateContainerResponse, Event, KeyValue, PodSandbox},
    stub::{Answer, Plugin, Stub},
};
use podwire_testkit::{Node, eventually, isolate, node::bin_dir};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(30);

/// Without the plugin that a node brings along: these tests count plugins and lines.
const NO_OTHER: &[&str] = &["--network-policy", "off"];

/// A plugin that greets every container; it lives in a thread of its own.
struct Greeter {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Greeting;

impl Plugin for Greeting {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox, Event::CreateContainer, Event::StopPodSandbox]
    }

    fn create_container(&self, _: PodSandbox, _: Container) -> Answer<'_, CreateContainerResponse> {
        let adjust = ContainerAdjustment {
            env: vec![KeyValue { key: "GREETING".into(), value: "hello".into() }],
            ..ContainerAdjustment::default()
        };
        let answer = CreateContainerResponse { adjust: Some(adjust), ..CreateContainerResponse::default() };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

impl Greeter {
    fn connect(name: &str, socket: PathBuf) -> Result<Greeter> {
        let stop = CancellationToken::new();
        let (stub, until) = (Stub { socket, ..Stub::new(name, "10") }, stop.clone());
        let thread = std::thread::Builder::new().name("plugin".into()).spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(stub.run(Arc::new(Greeting), until));
        })?;
        Ok(Greeter { stop, thread: Some(thread) })
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the plugin ends");
        }
    }
}

fn pod(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n"
    )
}

/// Waits for a warning of the pod that says `text`.
fn warned(node: &Node, pod: &str, text: &str) -> Result<()> {
    eventually(&format!("an event of {pod} that says {text:?}"), SOON, || {
        let events = node.list("events").map_err(|error| format!("{error:#}"))?;
        let mut own = events.iter().filter(|one| one["involvedObject"]["name"] == pod);
        let said = |one: &Value| one["message"].as_str().is_some_and(|message| message.contains(text));
        if own.clone().any(said) {
            return Ok(());
        }
        Err(format!("{:?}", own.by_ref().map(|one| one["message"].to_string()).collect::<Vec<_>>()))
    })
}

fn listed(node: &Node) -> Result<Vec<Value>> {
    Ok(serde_json::from_str(&node.podwire(["nri", "list", "-o", "json"])?)?)
}

#[test]
fn the_pod_of_a_required_plugin_starts_before_it_and_no_other_pod_does() -> Result<()> {
    const KEY: &str = "tolerate-missing-plugins.noderesource.dev";
    isolate()?;
    let node = Node::up(&[
        "--nri-required-plugins",
        "net",
        "--nri-required-wait",
        "500ms",
        "--nri-plugin-timeout",
        "net=5s",
        "--nri-tolerate-missing-annotation",
        KEY,
    ])?;
    let tolerant = |name: &str| pod(name, &format!("{KEY}: \"true\""));
    let own = tolerant("net").replace("{name: net,", "{name: net, namespace: kube-system,");
    node.apply(&own)?;
    node.apply(&tolerant("sneaky"))?;
    eventually("the plugin's pod runs", SOON, || {
        let shown = node.podwire(["get", "pod", "net", "-n", "kube-system", "-o", "json"]);
        let pod: Value = serde_json::from_str(&shown.map_err(|error| format!("{error:#}"))?)
            .map_err(|error| error.to_string())?;
        if pod["status"]["phase"] == "Running" { Ok(()) } else { Err(pod["status"].to_string()) }
    })?;
    // The annotation does not count in another namespace.
    warned(&node, "sneaky", "required NRI plugin net is not connected")?;
    assert_eq!(node.get("pod", "sneaky")?["status"]["phase"], "Pending");
    let log = node.podwire(["nri", "log", "--no-follow", "--tail", "1000", "--pod", "net"])?;
    assert!(log.contains("RunPodSandbox  kube-system/net  tolerated"), "{log}");
    let greeter = Greeter::connect("net", node.names()?.run_dir.join("nri.sock"))?;
    node.pod_in_phase("sneaky", "Running")?;
    node.podwire(["delete", "pod", "sneaky"])?;
    node.podwire(["delete", "pod", "net", "-n", "kube-system"])?;
    drop(greeter);
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn a_pod_says_which_plugin_it_waits_for_and_runs_once_it_came() -> Result<()> {
    isolate()?;
    let node =
        Node::up(&[NO_OTHER, &["--nri-required-plugins", "net", "--nri-required-wait", "500ms"]].concat())?;
    node.apply(&pod("web", ""))?;
    warned(&node, "web", "required NRI plugin net is not connected")?;
    assert_eq!(node.get("pod", "web")?["status"]["phase"], "Pending");
    let table = node.podwire(["nri", "list"])?;
    let row: Vec<&str> = table.lines().nth(1).context("no row")?.split_whitespace().collect();
    assert_eq!(row[..4], ["-", "net", "absent", "yes"], "{table}");

    let greeter = Greeter::connect("net", node.names()?.run_dir.join("nri.sock"))?;
    node.pod_in_phase("web", "Running")?;
    assert_eq!(node.podwire(["exec", "web", "--", "/pod-app", "env", "GREETING"])?.trim(), "hello");
    let plugins = listed(&node)?;
    assert_eq!((&plugins[0]["index"], &plugins[0]["ready"]), (&"10".into(), &true.into()));
    assert!(plugins[0]["calls"].as_u64() >= Some(3), "{plugins:?}");
    let log = node.podwire(["nri", "log", "--no-follow", "--tail", "1000", "--pod", "web"])?;
    for wanted in ["RunPodSandbox  default/web  absent", "  ok  env GREETING"] {
        assert!(log.contains(wanted), "{wanted:?} in\n{log}");
    }

    drop(greeter);
    eventually("the plugin is gone", SOON, || match listed(&node) {
        Ok(plugins) if plugins[0]["connected"] == false && plugins[0]["required"] == true => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    node.podwire(["delete", "pod", "web"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn a_pod_may_name_the_plugin_it_needs_and_only_that_pod_waits() -> Result<()> {
    isolate()?;
    let node = Node::up(&["--nri-required-wait", "300ms"])?;
    node.apply(&pod("picky", "required-plugins.noderesource.dev: \"[net]\""))?;
    node.apply(&pod("plain", ""))?;
    node.pod_in_phase("plain", "Running")?;
    warned(&node, "picky", "required NRI plugin net is not connected")?;
    assert_eq!(node.get("pod", "picky")?["status"]["phase"], "Pending");
    let _greeter = Greeter::connect("net", node.names()?.run_dir.join("nri.sock"))?;
    node.pod_in_phase("picky", "Running")?;
    node.podwire(["delete", "pod", "picky", "plain"])?;
    node.down()
}

#[test]
fn the_log_can_be_followed_while_pods_come() -> Result<()> {
    isolate()?;
    let node = Node::up(NO_OTHER)?;
    let _greeter = Greeter::connect("log", node.names()?.run_dir.join("nri.sock"))?;
    eventually("the plugin is there", SOON, || match listed(&node) {
        Ok(plugins) if plugins.iter().any(|one| one["ready"] == true) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let mut reader = Ended(
        Command::new(bin_dir().join("podwire"))
            .args(["nri", "log", "--tail", "1", "--data-dir"])
            .arg(&node.data_dir)
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let mut lines = BufReader::new(reader.0.stdout.take().context("no output")?).lines();
    let first = lines.next().context("the log ended")??;
    assert!(
        first.contains("10-log  connected  RUN_POD_SANDBOX,STOP_POD_SANDBOX,CREATE_CONTAINER"),
        "{first}"
    );
    node.apply(&pod("seen", ""))?;
    let next = lines.next().context("the log ended")??;
    assert!(next.contains("10-log  RunPodSandbox  default/seen") && next.ends_with("ok"), "{next}");
    let next = lines.next().context("the log ended")??;
    assert!(next.contains("CreateContainer  default/seen [main]"), "{next}");
    drop(reader);
    node.podwire(["delete", "pod", "seen"])?;
    node.down()
}

/// A process that is ended with its handle.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn page(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    write!(stream, "GET /v1/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn a_runtime_alone_tells_its_plugins_figures() -> Result<()> {
    isolate()?;
    let folder = tempfile::Builder::new().prefix("podwire-").tempdir()?;
    let (data, nri) = (folder.path().join("data"), folder.path().join("plugins.sock"));
    let down = Down(data.clone());
    let mut daemon = Ended(
        Command::new(bin_dir().join("podwire"))
            .arg("runtime")
            .arg("--data-dir")
            .arg(&data)
            .arg("--nri-socket")
            .arg(&nri)
            .args(["--metrics-address", "127.0.0.1:1338", "--nri-required-plugins", "never"])
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let mut ready = String::new();
    BufReader::new(daemon.0.stdout.take().context("no output")?).read_line(&mut ready)?;
    let _greeter = Greeter::connect("fig", nri)?;
    eventually("the plugin counts", SOON, || {
        let text = page(1338).map_err(|error| error.to_string())?;
        let wanted = [
            "podwire_nri_active_plugins 1",
            "podwire_nri_plugin_invocations_total{plugin=\"10-fig\",operation=\"Synchronize\",status=\"ok\"} 1",
            "podwire_nri_plugin_latency_seconds_count{plugin=\"10-fig\",operation=\"Synchronize\"} 1",
        ];
        if wanted.iter().all(|line| text.lines().any(|one| one == *line)) { Ok(()) } else { Err(text) }
    })?;
    drop(daemon);
    drop(down);
    Ok(())
}

/// Ends what a runtime left running.
struct Down(PathBuf);

impl Drop for Down {
    fn drop(&mut self) {
        let folder: &Path = &self.0;
        // Ignored: the residue scan of others tells if it did not work.
        Command::new(bin_dir().join("podwire")).args(["down", "--data-dir"]).arg(folder).output().ok();
    }
}
