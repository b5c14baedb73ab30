//! Every subcommand of the real crictl against our runtime.
#![cfg(feature = "interop")]

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_testkit::{
    critest, eventually, isolate,
    runtimes::{Bed, Running},
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);
const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.29-2";
const NGINX: &str = "registry.k8s.io/e2e-test-images/nginx:1.14-2";

/// What crictl printed as JSON.
fn parsed(runtime: &Running, words: &[&str]) -> Result<Value> {
    let text = runtime.ask(words)?;
    serde_json::from_str(&text).with_context(|| format!("{words:?}: {text}"))
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

/// Files that crictl makes pods and containers from.
struct Configs(PathBuf);

impl Configs {
    fn write(&self, name: &str, value: &Value) -> Result<String> {
        let path = self.0.join(name);
        fs::write(&path, serde_json::to_vec(value)?)?;
        Ok(path.display().to_string())
    }

    fn pod(&self, name: &str) -> Result<String> {
        self.write(
            &format!("{name}.pod.json"),
            &json!({
                "metadata": {"name": name, "uid": format!("uid-{name}"), "namespace": "test", "attempt": 1},
                "hostname": name, "log_directory": self.0, "labels": {"app": name}, "linux": {},
            }),
        )
    }

    fn container(&self, name: &str, image: &str, command: &[&str]) -> Result<String> {
        self.write(
            &format!("{name}.json"),
            &json!({
                "metadata": {"name": name, "attempt": 0}, "image": {"image": image}, "command": command,
                "log_path": format!("{name}.log"), "stdin": true, "labels": {"part": name},
                "linux": {"resources": {"memory_limit_in_bytes": 67_108_864_u64, "cpu_shares": 512}},
            }),
        )
    }
}

fn world() -> Result<(Bed, Running, Configs)> {
    isolate()?;
    let bed = Bed::new(critest::images()?)?;
    let runtime = bed.ours(false)?;
    let folder = bed.path().join("configs");
    fs::create_dir_all(&folder)?;
    Ok((bed, runtime, Configs(folder)))
}

/// A subcommand that this file does not name fails here first.
#[test]
fn every_subcommand_is_tried() -> Result<()> {
    let (_bed, runtime, _) = world()?;
    let help = runtime.ask(&["--help"])?;
    let listed: BTreeSet<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("COMMANDS"))
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| line.split([',', ' ']).find(|word| !word.is_empty()))
        .collect();
    let source = include_str!("interop_crictl.rs");
    let untried: Vec<&&str> = listed
        .iter()
        .filter(|name| !["help", "completion"].contains(*name) && !source.contains(&format!("\"{name}\"")))
        .collect();
    println!("{} subcommands: {listed:?}", listed.len());
    assert!(listed.len() > 30 && untried.is_empty(), "not tried: {untried:?}");
    assert!(runtime.ask(&["completion", "bash"])?.contains("crictl"));
    Ok(())
}

#[test]
fn the_runtime_describes_itself_and_its_images() -> Result<()> {
    let (_bed, runtime, _) = world()?;
    assert!(runtime.ask(&["version"])?.contains("RuntimeApiVersion:  v1"));
    let info = parsed(&runtime, &["info"])?;
    let conditions = info["status"]["conditions"].as_array().context("no conditions")?;
    assert!(conditions.iter().all(|one| one["status"] == true) && conditions.len() >= 2, "{conditions:?}");
    assert!(runtime.ask(&["runtime-config"])?.to_lowercase().contains("cgroupfs"));
    runtime.ask(&["update-runtime-config", "--pod-cidr", "10.91.0.0/16"])?;
    runtime.ask(&["config", "--set", "debug=false"])?;
    assert_eq!(runtime.ask(&["config", "--get", "debug"])?.trim(), "false");

    runtime.ask(&["pull", BUSYBOX])?;
    runtime.ask(&["pull", NGINX])?;
    let images = parsed(&runtime, &["images", "-o", "json"])?;
    assert_eq!(images["images"].as_array().map(Vec::len), Some(2), "{images}");
    let status = parsed(&runtime, &["inspecti", BUSYBOX])?;
    assert_eq!(status["status"]["repoTags"][0], BUSYBOX, "{status}");
    let space = parsed(&runtime, &["imagefsinfo", "-o", "json"])?;
    let used = &space["status"]["imageFilesystems"][0]["usedBytes"]["value"];
    assert!(
        used.as_str().is_some_and(|bytes| bytes.parse::<u64>().is_ok_and(|bytes| bytes > 1_000_000)),
        "{space}"
    );
    runtime.ask(&["rmi", NGINX])?;
    assert!(runtime.ask(&["inspecti", NGINX]).is_err());
    let descriptors = parsed(&runtime, &["metricdescs", "-o", "json"])?;
    assert!(descriptors.to_string().contains("container_memory_usage_bytes"), "{descriptors}");
    Ok(())
}

#[test]
fn a_pod_lives_from_runp_to_rmp() -> Result<()> {
    let (_bed, runtime, configs) = world()?;
    runtime.ask(&["pull", BUSYBOX])?;
    let mut listening = events(&runtime)?;
    let (pod_file, file) = (
        configs.pod("life")?,
        configs.container(
            "main",
            BUSYBOX,
            &["sh", "-c", "echo started; while read line; do echo got $line; done"],
        )?,
    );
    let pod = runtime.ask(&["runp", &pod_file])?.trim().to_owned();
    let id = runtime.ask(&["create", &pod, &file, &pod_file])?.trim().to_owned();
    assert_eq!(parsed(&runtime, &["inspect", &id])?["status"]["state"], "CONTAINER_CREATED");
    runtime.ask(&["start", &id])?;
    seen(&runtime, &pod, &id)?;
    streams(&runtime, &id)?;
    resources(&runtime, &id)?;
    runtime.ask(&["stop", "--timeout", "0", &id])?;
    let status = parsed(&runtime, &["inspect", &id])?;
    assert_eq!(status["status"]["state"], "CONTAINER_EXITED", "{status}");
    runtime.ask(&["rm", &id])?;
    assert!(runtime.ask(&["inspect", &id]).is_err());
    runtime.ask(&["stopp", &pod])?;
    assert_eq!(parsed(&runtime, &["inspectp", &pod])?["status"]["state"], "SANDBOX_NOTREADY");
    runtime.ask(&["rmp", &pod])?;
    assert_eq!(runtime.ask(&["pods", "--quiet"])?.trim(), "");
    let wanted = ["CREATED_EVENT", "STARTED_EVENT", "STOPPED_EVENT", "DELETED_EVENT"];
    for kind in wanted {
        listening.wait_for(kind, &id)?;
    }
    Ok(())
}

fn seen(runtime: &Running, pod: &str, id: &str) -> Result<()> {
    let pods = parsed(runtime, &["pods", "-o", "json"])?;
    assert_eq!((&pods["items"][0]["id"], &pods["items"][0]["state"]), (&json!(pod), &json!("SANDBOX_READY")));
    let status = parsed(runtime, &["inspectp", pod])?;
    assert!(
        status["status"]["network"]["ip"].as_str().is_some_and(|ip| ip.starts_with("10.91.")),
        "{status}"
    );
    let containers = parsed(runtime, &["ps", "-o", "json"])?;
    assert_eq!(containers["containers"][0]["id"], id, "{containers}");
    assert!(runtime.ask(&["ps"])?.contains("Running"));
    eventually("the container's log", PATIENCE, || {
        let text = runtime.ask(&["logs", id]).map_err(|error| format!("{error:#}"))?;
        if text.contains("started") { Ok(()) } else { Err(text) }
    })
}

fn streams(runtime: &Running, id: &str) -> Result<()> {
    assert_eq!(runtime.ask(&["exec", id, "hostname"])?.trim(), "life");
    assert_eq!(runtime.ask(&["exec", "--sync", id, "hostname"])?.trim(), "life");
    assert_eq!(runtime.ask(&["exec", "--transport", "websocket", id, "hostname"])?.trim(), "life");
    let failed = runtime.crictl()?.args(["exec", id, "sh", "-c", "exit 7"]).output()?;
    assert!(String::from_utf8_lossy(&failed.stderr).contains('7'), "{failed:?}");
    for transport in ["spdy", "websocket"] {
        let words = ["attach", "--stdin", "--transport", transport, id];
        let mut child =
            Ended(runtime.crictl()?.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let mut input = child.0.stdin.take().context("no stdin")?;
        let mut output = BufReader::new(child.0.stdout.take().context("no stdout")?);
        writeln!(input, "by-{transport}")?;
        input.flush()?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        assert_eq!(line.trim(), format!("got by-{transport}"));
    }
    let logs = runtime.ask(&["logs", "--tail", "1", id])?;
    assert_eq!(logs.trim(), "got by-websocket");
    Ok(())
}

fn resources(runtime: &Running, id: &str) -> Result<()> {
    runtime.ask(&["update", "--memory", "33554432", "--cpu-share", "256", id])?;
    let status = parsed(runtime, &["inspect", id])?;
    assert_eq!(status["status"]["resources"]["linux"]["memoryLimitInBytes"], "33554432", "{status}");
    let stats = parsed(runtime, &["stats", "-o", "json", "--seconds", "0", id])?;
    let memory = &stats["stats"][0]["memory"]["workingSetBytes"]["value"];
    assert!(memory.as_str().is_some_and(|bytes| bytes != "0"), "{stats}");
    let pods = parsed(runtime, &["statsp", "-o", "json", "--seconds", "0"])?;
    assert!(pods["stats"][0]["linux"]["network"]["defaultInterface"]["name"] == "eth0", "{pods}");
    let metrics = parsed(runtime, &["metricsp", "-o", "json"])?;
    assert!(metrics.to_string().contains("container_memory_working_set_bytes"), "{metrics}");
    let archive = std::env::temp_dir().join("podwire-no-checkpoint.tar");
    let refused = runtime.ask(&["checkpoint", "--export", &archive.display().to_string(), id]).err();
    assert!(
        refused.is_some_and(|error| error.to_string().contains("Unimplemented")),
        "checkpoint is refused"
    );
    Ok(())
}

/// `crictl events` in the background.
struct Events {
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
    _child: Ended,
}

fn events(runtime: &Running) -> Result<Events> {
    let mut child =
        Ended(runtime.crictl()?.args(["events", "--output", "json"]).stdout(Stdio::piped()).spawn()?);
    let output = child.0.stdout.take().context("no stdout")?;
    let (send, lines) = std::sync::mpsc::sync_channel(1000);
    std::thread::Builder::new().name("events".to_owned()).spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    })?;
    // It subscribes a moment after it starts; an image pull or pod before that would not be seen.
    std::thread::sleep(Duration::from_millis(500));
    Ok(Events { lines, seen: Vec::new(), _child: child })
}

impl Events {
    fn wait_for(&mut self, kind: &str, id: &str) -> Result<()> {
        eventually(&format!("event {kind} of {id}"), PATIENCE, || {
            self.seen.extend(self.lines.try_iter());
            let text = self.seen.join("\n");
            let stream = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            let found = stream.map_while(Result::ok).any(|event| {
                event["containerId"] == id
                    && event["containerEventType"].as_str().is_some_and(|have| have.ends_with(kind))
            });
            if found { Ok(()) } else { Err(format!("{} lines", self.seen.len())) }
        })
    }
}

#[test]
fn run_makes_a_pod_and_its_container_and_its_port_is_forwarded() -> Result<()> {
    let (_bed, runtime, configs) = world()?;
    let pod_file = configs.pod("web")?;
    let file = configs.container("server", NGINX, &[])?;
    let id = runtime.ask(&["run", &file, &pod_file])?.trim().to_owned();
    let pod = runtime.ask(&["pods", "--quiet", "--no-trunc", "--name", "web"])?.trim().to_owned();
    for (transport, port) in [("spdy", "18080"), ("websocket", "18081")] {
        let words = ["port-forward", "--transport", transport, &pod, &format!("{port}:80")];
        let _forward = Ended(runtime.crictl()?.args(words).stdout(Stdio::null()).spawn()?);
        let answer = eventually("an answer through the forwarded port", PATIENCE, || {
            get(port).map_err(|error| error.to_string())
        })?;
        assert!(answer.contains("hello from web"), "{answer}");
    }
    runtime.ask(&["rmp", "--force", &pod])?;
    assert!(runtime.ask(&["inspect", &id]).is_err(), "it went with its pod");
    Ok(())
}

fn get(port: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() { Err(std::io::Error::other("no answer yet")) } else { Ok(answer) }
}
