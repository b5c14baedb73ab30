//! `make demo`: a node, its pods, a talk with them, and proof that nothing is left, with the time of each step.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{Node, eventually, isolate};

use crate::build;

/// Runs the demo; fails at the first step that does not hold.
pub fn run(root: &Path) -> Result<()> {
    let begun = Instant::now();
    println!("building (the first time takes some minutes)");
    let binaries = build::demo(root)?;
    println!("built in {:.1} s", begun.elapsed().as_secs_f64());
    preflight(&binaries)?;
    isolate().context("make a network namespace for the demo (needs root)")?;
    let mut steps = Steps { begun: Instant::now(), last: Instant::now() };
    let node = Node::up_with(&binaries, &[])?;
    steps.done("node up: API server, store, scheduler, controllers, kubelet, runtime, network");
    node.import_app()?;
    steps.done("image localhost/pod-app:latest made from one static program and imported");
    println!("{}", indent(&node.podwire(["get", "nodes", "-o", "wide"])?));
    let examples = root.join("examples");
    println!("{}", indent(&node.podwire(["apply", "-f", &examples.display().to_string()])?));
    let names: Vec<String> = pods(&node)?;
    for name in &names {
        node.pod_when(name, "Running and Ready", is_ready)?;
    }
    steps.done(&format!("{} pods applied, Running and Ready", names.len()));
    println!("{}", indent(&node.podwire(["get", "pods", "-o", "wide"])?));
    talk(&node, &mut steps)?;
    node.podwire(["delete", "-f", &examples.display().to_string()])?;
    steps.done("everything deleted");
    node.assert_no_pod_residue()?;
    steps.done(
        "nothing left of the pods: addresses, veths, network namespaces, mounts, cgroups, processes, files",
    );
    let trace = node.podwire(["trace", "pod/web", "--width", "150"])?;
    steps.again();
    node.down()?;
    steps.done("node down: bridge, cgroups, supervisor and run folder are gone");
    println!("demo passed in {:.1} s", steps.begun.elapsed().as_secs_f64());
    println!(
        "the life of the pod web, drawn from what the participants reported (`podwire trace pod/web`):\n{trace}"
    );
    Ok(())
}

fn preflight(binaries: &Path) -> Result<()> {
    let output = std::process::Command::new(binaries.join("podwire")).arg("check").output()?;
    if !output.status.success() {
        bail!("this machine cannot run pods:\n{}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}

fn is_ready(pod: &serde_json::Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

fn pods(node: &Node) -> Result<Vec<String>> {
    let list = node.list("pods")?;
    Ok(list.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

fn talk(node: &Node, steps: &mut Steps) -> Result<()> {
    let web = node.get("pod", "web")?;
    let address = web["status"]["podIP"].as_str().context("web has no address")?.to_owned();
    let answer = http_get(&address)?;
    expect(&answer, "hello from web")?;
    steps.done(&format!("HTTP from the node to {address}: {}", answer.trim()));
    let answer = node.podwire(["exec", "client", "--", "/pod-app", "get", &format!("http://{address}/")])?;
    expect(&answer, "hello from web")?;
    steps.done(&format!("HTTP from pod to pod, by exec in client: {}", answer.trim()));
    let motto = node.podwire(["exec", "client", "--", "/pod-app", "cat", "/etc/motto/motto"])?;
    expect(&motto, "every arrow really happens")?;
    steps.done(&format!("a ConfigMap as a volume, read by exec: {}", motto.trim()));
    let logs = eventually("the request in web's log", Duration::from_secs(5), || {
        let logs = node.podwire(["logs", "web"]).map_err(|error| error.to_string())?;
        if logs.matches("GET /").count() >= 2 { Ok(logs) } else { Err(logs) }
    })?;
    steps.done("logs of web:");
    println!("{}", indent(&logs));
    Ok(())
}

fn http_get(address: &str) -> Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect((address, 80))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn expect(answer: &str, wanted: &str) -> Result<()> {
    if !answer.contains(wanted) {
        bail!("expected {wanted:?} in {answer:?}");
    }
    Ok(())
}

fn indent(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
}

/// Progress lines with the time since the last one.
struct Steps {
    begun: Instant,
    last: Instant,
}

impl Steps {
    /// Leaves out what happened since the last line.
    fn again(&mut self) {
        self.last = Instant::now();
    }

    fn done(&mut self, what: &str) {
        println!("{:>8.1} ms  {what}", self.last.elapsed().as_secs_f64() * 1000.0);
        self.last = Instant::now();
    }
}
