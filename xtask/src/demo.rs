//! `make demo`: a node, its pods, a talk with them, and proof that nothing is left, with the time of each step.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{Node, eventually, isolate};

use crate::build;

/// What the node's own device plugin offers.
const POOLS: &str = "pools: [{resource: podwire.dev/tun, share: 2, select: [{kind: tun}]}]\n";

/// A pod that asks for a device, with one that it was not given in a volume.
const TUNNEL: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: tunnel}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    args: [sleep, "3600"]
    resources: {limits: {podwire.dev/tun: 1}}
    volumeMounts: [{name: devices, mountPath: /host}]
  volumes:
  - {name: devices, hostPath: {path: /dev}}
"#;

/// A second interface by a claim: the device that the driver found on this node, configured as the claim says.
const CLAIMED: &str = r#"
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: second-interface}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly:
          deviceClassName: dra.net
          selectors: [{cel: {expression: 'device.attributes["dra.net"].ifName == "eth1"'}}]
      config:
      - requests: [nic]
        opaque: {driver: dra.net, parameters: {interface: {name: net1, addresses: [192.0.2.10/24], mtu: 1300}}}
---
apiVersion: v1
kind: Pod
metadata: {name: two-homes}
spec:
  terminationGracePeriodSeconds: 0
  resourceClaims: [{name: second, resourceClaimTemplateName: second-interface}]
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    args: [sleep, "3600"]
    resources: {claims: [{name: second}]}
"#;

/// Runs the demo; fails at the first step that does not hold.
pub fn run(root: &Path) -> Result<()> {
    let begun = Instant::now();
    println!("building (the first time takes some minutes)");
    let binaries = build::demo(root)?;
    println!("built in {:.1} s", begun.elapsed().as_secs_f64());
    preflight(&binaries)?;
    isolate().context("make a network namespace for the demo (needs root)")?;
    let mut steps = Steps { begun: Instant::now(), last: Instant::now() };
    let folder = tempfile::tempdir()?;
    let pools = folder.path().join("devices.yaml");
    std::fs::write(&pools, POOLS)?;
    // A device for a claim, at the end of a wire.
    ip(&["link", "add", "eth1", "mtu", "1400", "type", "veth", "peer", "name", "eth1-far"])?;
    let pools = pools.display().to_string();
    let flags = ["--device-plugin-config", &pools, "--network-driver", "--network-driver-filter", ""];
    let node = Node::up_with(&binaries, &flags)?;
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
    devices(&node, &mut steps)?;
    govern(&node, &mut steps)?;
    claim(&node, &mut steps)?;
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

/// A pod opens the device that it asked for, and no other.
fn devices(node: &Node, steps: &mut Steps) -> Result<()> {
    node.apply(TUNNEL)?;
    node.pod_in_phase("tunnel", "Running")?;
    let open = |path: &str| {
        let answer = node.podwire(["exec", "tunnel", "--", "/pod-app", "cat", path]);
        answer.err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    let refused = "(os error 1)";
    let name = if Path::new("/dev/loop-control").exists() { "loop-control" } else { "kmsg" };
    let (given, other) = (open("/dev/net/tun"), open(&format!("/host/{name}")));
    if given.contains(refused) || !other.contains(refused) {
        bail!("the pod should open /dev/net/tun and nothing else: {given:?}, {other:?}");
    }
    node.podwire(["delete", "pod", "tunnel"])?;
    steps.done(&format!(
        "a pod with podwire.dev/tun opens /dev/net/tun and is refused /dev/{name} of the node"
    ));
    Ok(())
}

/// A policy cuts the client off from web, which is seen to hold and explained; then it goes again.
fn govern(node: &Node, steps: &mut Steps) -> Result<()> {
    let web = node.get("pod", "web")?;
    let address = web["status"]["podIP"].as_str().context("web has no address")?.to_owned();
    let url = format!("http://{address}/");
    let reaches = || node.podwire(["exec", "client", "--", "/pod-app", "get", &url]);
    node.apply(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web-for-nobody}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n",
    )?;
    eventually("the client cut off from web", Duration::from_secs(20), || match reaches() {
        Ok(answer) => Err(answer),
        Err(_) => Ok(()),
    })?;
    expect(&http_get(&address)?, "hello from web")?;
    steps.done("a NetworkPolicy cuts client off from web; the node's own probes still pass:");
    let why = node.podwire(["netplugin", "explain", "client", "--to", &format!("{address}:80")])?;
    expect(&why, "denied")?;
    println!("{}", indent(&why));
    node.podwire(["delete", "networkpolicy", "web-for-nobody"])?;
    eventually("the client back", Duration::from_secs(20), || reaches().map_err(|error| error.to_string()))?;
    steps.done("the policy is gone: client reaches web again");
    Ok(())
}

/// A pod with a claim gets a second interface, and the node gets it back as it was.
fn claim(node: &Node, steps: &mut Steps) -> Result<()> {
    let before = ip(&["-brief", "link", "show", "eth1"])?;
    node.apply(CLAIMED)?;
    node.pod_in_phase("two-homes", "Running")?;
    let read = |file: &str| node.podwire(["exec", "two-homes", "--", "/pod-app", "cat", file]);
    let mtu = read("/sys/class/net/net1/mtu")?;
    expect(&mtu, "1300")?;
    expect(&read("/proc/net/fib_trie")?, "192.0.2.10")?;
    if ip(&["link", "show", "eth1"]).is_ok() {
        bail!("the device is in the pod and on the node");
    }
    steps.done("a pod with a claim has the node's eth1 as net1, 192.0.2.10/24, with an MTU of 1300");
    node.podwire(["delete", "pod", "two-homes"])?;
    eventually("the device home as it was", Duration::from_secs(20), || {
        match ip(&["-brief", "link", "show", "eth1"]) {
            Ok(now) if now == before => Ok(()),
            other => Err(format!("{other:?} instead of {before:?}")),
        }
    })?;
    eventually("the claim gone", Duration::from_secs(20), || {
        let left = node.list("resourceclaims").map_err(|error| format!("{error:#}"))?;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    node.podwire(["delete", "resourceclaimtemplate", "second-interface"])?;
    steps.done("the pod is gone: eth1 is home, the claim is gone");
    Ok(())
}

fn ip(words: &[&str]) -> Result<String> {
    let done = std::process::Command::new("ip").args(words).output().context("run ip")?;
    if !done.status.success() {
        bail!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
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
