//! Network devices of claims on a whole node: a second interface before the first process, and home as it was, whatever ends in
//! the middle. Claims are allocated by hand; pods name their node.

use std::{
    io::{BufRead, BufReader},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_client::{Client, Config};
use podwire_linux::rtnl::{Batch, LinkChange, LinkRef, NewAddress, Peer, Route, Socket, Veth};
use podwire_testkit::{Node, eventually, isolate, mermaid, node::bin_dir};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

/// A device of the node with an address and a route, and the other end of its wire.
fn make_device() -> Result<()> {
    let mut socket = Socket::route()?;
    let mut batch = Batch::new();
    let peer = Peer { name: "eth1x", netns: None, mac: None };
    batch.add_veth(&Veth { name: "eth1", up: true, master: None, mtu: Some(1400), mac: None, peer });
    batch.set_link(LinkRef::Name("eth1x"), &LinkChange { up: Some(true), ..LinkChange::default() });
    socket.exchange(&mut batch)?;
    let link = socket.link(LinkRef::Name("eth1"))?.context("it was made")?.index;
    let mut batch = Batch::new();
    batch.add_address(&NewAddress { link, net: "203.0.113.7/24".parse()?, no_dad: true, broadcast: true });
    batch.add_route(&Route::by_gateway("198.51.100.0/24".parse()?, "203.0.113.1".parse()?, link));
    batch.add_altname(link, "uplink-of-rack-7");
    socket.exchange(&mut batch)?;
    Ok(())
}

/// What the device is: nothing if it is not on the node.
fn device() -> Result<Option<String>> {
    let mut socket = Socket::route()?;
    let Some(link) = socket.link(LinkRef::Name("eth1"))? else { return Ok(None) };
    let addresses: Vec<String> = socket
        .addresses(link.index)?
        .iter()
        .filter(|one| one.scope == 0)
        .map(|one| one.net.to_string())
        .collect();
    let mut routes: Vec<String> = socket
        .routes(Some(link.index), false)?
        .iter()
        .map(|route| format!("{} {:?}", route.destination, route.gateway))
        .collect();
    routes.sort();
    Ok(Some(format!(
        "{:?} {} {} {:?} {addresses:?} {routes:?}",
        link.mac,
        link.mtu,
        link.is_up(),
        link.altnames
    )))
}

fn is_home(before: Option<&str>) -> Result<()> {
    eventually("the device is home as it was", SOON, || {
        let now = device().map_err(|error| format!("{error:#}"))?;
        if now.as_deref() == before { Ok(()) } else { Err(format!("{now:?} instead of {before:?}")) }
    })
}

/// A pod with a claim, which waits until the claim is its own.
fn pod(node: &Node, name: &str, args: &str) -> Result<String> {
    node.apply(&format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: {{devices: {{requests: [{{name: nic, exactly: {{deviceClassName: dra.net}}}}]}}}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: node1\n  terminationGracePeriodSeconds: 0\n  resourceClaims: [{{name: net, resourceClaimName: {name}}}]\n  \
         containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: {args}\n    resources: {{claims: [{{name: net}}]}}\n"
    ))?;
    let uid = node.get("pod", name)?["metadata"]["uid"].as_str().context("a uid")?.to_owned();
    Ok(uid)
}

const SLEEP: &str = "[sleep, \"600\"]";

/// What most claims here say.
fn parameters() -> Value {
    json!({"interface": {"name": "net1", "addresses": ["10.1.0.7/24"], "mtu": 1300, "hardwareAddr": "02:00:00:00:00:42"},
        "routes": [{"destination": "10.2.0.0/16", "gateway": "10.1.0.1"}]})
}

/// Allocates a claim to a device and reserves it for the pod.
fn allocate(node: &Node, name: &str, pod_uid: &str, device: &str) -> Result<()> {
    let status = json!({"status": {
        "reservedFor": [{"resource": "pods", "name": name, "uid": pod_uid}],
        "allocation": {"devices": {
            "results": [{"request": "nic", "driver": "dra.net", "pool": "node1", "device": device}],
            "config": [{"source": "FromClaim", "requests": ["nic"], "opaque": {"driver": "dra.net", "parameters": parameters()}}],
        }, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}]}},
    }});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(Config::read(&node.kubeconfig())?).await?;
        let request = http::Request::patch(format!("{CLAIM}/{name}/status"))
            .header("content-type", "application/merge-patch+json")
            .body(status.to_string().into_bytes())?;
        client.request(request).await?;
        Ok(())
    })
}

fn published(node: &Node, device: &str) -> Result<()> {
    eventually("the device is published", SOON, || {
        let text =
            node.podwire(["get", "resourceslices", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        if text.contains(&format!("\"{device}\"")) { Ok(()) } else { Err(text) }
    })
}

fn told(node: &Node, name: &str, reason: &str) -> Result<Value> {
    eventually(&format!("the claim tells {reason}"), SOON, || {
        let claim = node.get("resourceclaim", name).map_err(|error| format!("{error:#}"))?;
        let device = claim["status"]["devices"][0].clone();
        if device["conditions"][0]["reason"] == reason {
            Ok(device)
        } else {
            Err(claim["status"].to_string())
        }
    })
}

fn inside(node: &Node, pod: &str, file: &str) -> Result<String> {
    let path = format!("/sys/class/net/net1/{file}");
    Ok(node.podwire(["exec", pod, "--", "/pod-app", "cat", &path])?.trim().to_owned())
}

#[test]
fn a_pod_with_a_claim_has_a_second_interface_and_gives_it_back() -> Result<()> {
    isolate()?;
    make_device()?;
    let before = device()?;
    let mut node = Node::up(&["--network-driver", "--network-driver-filter", ""])?;
    published(&node, "eth1")?;
    let uid = pod(&node, "one", SLEEP)?;
    allocate(&node, "one", &uid, "eth1")?;
    node.pod_in_phase("one", "Running")?;
    ensure!(device()?.is_none(), "it is not on the node any more");
    ensure!(
        inside(&node, "one", "mtu")? == "1300" && inside(&node, "one", "address")? == "02:00:00:00:00:42"
    );
    let routes = node.podwire(["exec", "one", "--", "/pod-app", "cat", "/proc/net/route"])?;
    ensure!(routes.lines().any(|line| line.starts_with("net1\t0000020A\t0100010A")), "{routes}");
    let data = told(&node, "one", "NetworkDeviceReady")?["networkData"].clone();
    ensure!(
        data == json!({"interfaceName": "net1", "hardwareAddress": "02:00:00:00:00:42", "ips": ["10.1.0.7/24"]}),
        "{data}"
    );
    // Nobody loses anything when all of the node ends at once and comes back.
    node.kill9()?;
    node.start()?;
    node.pod_in_phase("one", "Running")?;
    // Until the node has told its new address, the API server asks the kubelet at the old one.
    eventually("the pod has its device still", SOON, || match inside(&node, "one", "mtu") {
        Ok(mtu) if mtu == "1300" => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    node.podwire(["delete", "pod", "one"])?;
    is_home(before.as_deref())?;
    node.assert_no_pod_residue()?;
    // Once more, and the node ends with a device in a pod.
    let uid = pod(&node, "two", SLEEP)?;
    allocate(&node, "two", &uid, "eth1")?;
    node.pod_in_phase("two", "Running")?;
    ensure!(device()?.is_none());
    node.down()?;
    is_home(before.as_deref())
}

/// `podwire netdriver` as a process of its own; killed when dropped.
struct Alone(Child);

impl Alone {
    fn start(node: &Node) -> Result<Alone> {
        let (alone, mut said) = Alone::begin(node)?;
        let mut ready = String::new();
        said.read_line(&mut ready)?;
        ensure!(ready.starts_with("ready"), "the driver said {ready:?}");
        Ok(alone)
    }

    /// Starts it; what it says is still to be read.
    fn begin(node: &Node) -> Result<(Alone, BufReader<ChildStdout>)> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(node.data_dir.join("netdriver.log"))?;
        let mut child = Command::new(bin_dir().join("podwire"))
            .args(["netdriver", "--hostname-override", "node1", "--filter=", "--bind-address", "127.0.0.1:0"])
            .arg("--kubeconfig")
            .arg(node.kubeconfig())
            .arg("--kubelet-root-dir")
            .arg(node.data_dir.join("kubelet"))
            .arg("--nri-socket")
            .arg(node.names()?.run_dir.join("nri.sock"))
            .arg("--state-dir")
            .arg(node.names()?.run_dir.join("netdriver"))
            .arg("--trace-dir")
            .arg(&node.data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let said = BufReader::new(child.stdout.take().context("no output")?);
        Ok((Alone(child), said))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_driver_that_is_killed_keeps_pods_waiting_and_loses_no_device() -> Result<()> {
    isolate()?;
    make_device()?;
    let before = device()?;
    let node = Node::up(&[])?;
    let driver = Alone::start(&node)?;
    published(&node, "eth1")?;
    drop(driver);
    let uid = pod(&node, "one", SLEEP)?;
    allocate(&node, "one", &uid, "eth1")?;
    node.pod_when("one", "a reason to wait", |pod| {
        pod["status"]["phase"] == "Pending"
            && node.list("events").is_ok_and(|all| {
                all.iter().any(|one| one["message"].as_str().is_some_and(|text| text.contains("dra.net")))
            })
    })?;
    ensure!(device()? == before, "nobody has it");
    let driver = Alone::start(&node)?;
    node.pod_in_phase("one", "Running")?;
    ensure!(inside(&node, "one", "mtu")? == "1300" && device()?.is_none());
    // It goes again, and so does the pod; the pod's end waits for whoever gives the device back.
    drop(driver);
    node.podwire(["delete", "pod", "one", "--wait=false"])?;
    let driver = Alone::start(&node)?;
    is_home(before.as_deref())?;
    eventually("the pod is gone", SOON, || match node.get("pod", "one") {
        Ok(pod) => Err(pod["status"].to_string()),
        Err(_) => Ok(()),
    })?;
    node.assert_no_pod_residue()?;
    drop(driver);
    node.down()
}

#[test]
fn a_driver_that_comes_beside_another_waits_and_goes_on_with_its_devices() -> Result<()> {
    isolate()?;
    make_device()?;
    let before = device()?;
    let node = Node::up(&[])?;
    let old = Alone::start(&node)?;
    published(&node, "eth1")?;
    let uid = pod(&node, "one", SLEEP)?;
    allocate(&node, "one", &uid, "eth1")?;
    node.pod_in_phase("one", "Running")?;
    let (next, mut said) = Alone::begin(&node)?;
    let mut line = String::new();
    said.read_line(&mut line)?;
    ensure!(line.starts_with("waiting for the driver"), "{line:?}");
    // As whoever upgrades ends the one before.
    rustix::process::kill_process(Pid::from_child(&old.0), Signal::TERM)?;
    line.clear();
    said.read_line(&mut line)?;
    ensure!(line.starts_with("ready"), "{line:?}");
    ensure!(inside(&node, "one", "mtu")? == "1300" && device()?.is_none(), "the pod has its device still");
    node.podwire(["delete", "pod", "one"])?;
    is_home(before.as_deref())?;
    let uid = pod(&node, "two", SLEEP)?;
    allocate(&node, "two", &uid, "eth1")?;
    node.pod_in_phase("two", "Running")?;
    node.podwire(["delete", "pod", "two"])?;
    is_home(before.as_deref())?;
    node.assert_no_pod_residue()?;
    drop((old, next));
    node.down()
}

/// Whether the pod can be reached through its device, once that has settled.
fn reached(wanted: bool) -> Result<()> {
    eventually(&format!("the pod is reached: {wanted}"), SOON, || {
        let address = "10.1.0.7:80".parse().map_err(|error| format!("{error}"))?;
        let tried = TcpStream::connect_timeout(&address, Duration::from_millis(500));
        if tried.is_ok() == wanted { Ok(()) } else { Err(format!("{tried:?}")) }
    })
}

#[test]
fn policies_hold_on_a_device_that_is_made_for_a_pod() -> Result<()> {
    isolate()?;
    make_device()?;
    let mut socket = Socket::route()?;
    let link = socket.link(LinkRef::Name("eth1x"))?.context("it was made")?.index;
    let mut batch = Batch::new();
    batch.add_address(&NewAddress { link, net: "10.1.0.1/24".parse()?, no_dad: true, broadcast: true });
    socket.exchange(&mut batch)?;
    let node = Node::up(&["--network-driver", "--network-driver-offer", "macvlan:eth1:1"])?;
    published(&node, "eth1-macvlan-0")?;
    let uid = pod(&node, "one", "[listen, TCP/80]")?;
    allocate(&node, "one", &uid, "eth1-macvlan-0")?;
    node.pod_in_phase("one", "Running")?;
    ensure!(device()?.is_some(), "the parent stays");
    reached(true)?;
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n";
    node.apply(policy)?;
    reached(false)?;
    node.podwire(["delete", "networkpolicy", "deny"])?;
    reached(true)?;
    node.podwire(["delete", "pod", "one"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// A claim by a template, which nobody allocates by hand: driver, scheduler, controller, kubelet, runtime and driver again.
const BY_TEMPLATE: &str = r#"apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: second}
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
        opaque: {driver: dra.net, parameters: {interface: {name: net1, mtu: 1300}}}
"#;

fn by_template(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  resourceClaims: [{{name: net, resourceClaimTemplateName: second}}]\n  \
         containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: {SLEEP}\n    resources: {{claims: [{{name: net}}]}}\n"
    )
}

#[test]
fn the_whole_way_of_a_claim_ends_in_an_interface_and_the_next_pod_waits_for_it() -> Result<()> {
    isolate()?;
    make_device()?;
    let before = device()?;
    let node = Node::up(&["--network-driver", "--network-driver-filter", ""])?;
    node.apply(BY_TEMPLATE)?;
    node.apply(&by_template("one"))?;
    node.pod_in_phase("one", "Running")?;
    ensure!(inside(&node, "one", "mtu")? == "1300" && device()?.is_none());
    // There is one such device: whoever comes next waits, and is told so.
    node.apply(&by_template("two"))?;
    node.pod_when("two", "nothing to be had", |pod| {
        pod["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|one| {
                one["reason"] == "Unschedulable"
                    && one["message"].as_str().is_some_and(|text| text.contains("cannot allocate all claims"))
            })
        })
    })?;
    node.podwire(["delete", "pod", "one"])?;
    node.pod_in_phase("two", "Running")?;
    ensure!(inside(&node, "two", "mtu")? == "1300" && device()?.is_none());
    node.podwire(["delete", "pod", "two"])?;
    is_home(before.as_deref())?;
    eventually("no claim is left", SOON, || match node.list("resourceclaims") {
        Ok(left) if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    })?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// The arrows of a pod's path.
struct Drawn(Vec<Value>);

impl Drawn {
    fn find(&self, from: &str, to: &str, what: &str) -> Result<Value> {
        let is = |arrow: &&Value| {
            let begins = arrow["what"].as_str().is_some_and(|told| told.starts_with(what));
            arrow["from"] == from && arrow["to"] == to && begins
        };
        let found = self.0.iter().find(is).cloned();
        found.with_context(|| format!("no {what} from {from} to {to} in {:#?}", self.0))
    }
}

/// When an arrow began and when it ended.
fn times(arrow: &Value) -> (u64, u64) {
    let ended = arrow["ended"].as_u64().unwrap_or_default();
    (ended - arrow["micros"].as_u64().unwrap_or_default(), ended)
}

/// What a call caused ends before it does; when it began is told too late by whoever draws late.
fn ensure_caused(inner: &Value, outer: &Value) -> Result<()> {
    ensure!(times(inner).1 <= times(outer).1, "{outer} ended before {inner}");
    Ok(())
}

#[test]
fn the_path_of_a_pod_with_a_network_device_is_the_missions_diagram() -> Result<()> {
    const TUN: &str = "podwire.dev/tun";
    isolate()?;
    make_device()?;
    let folder = tempfile::tempdir()?;
    let pools = folder.path().join("devices.yaml");
    std::fs::write(&pools, format!("pools: [{{resource: {TUN}, select: [{{kind: tun}}]}}]\n"))?;
    let pools = pools.display().to_string();
    let flags = ["--network-driver", "--network-driver-filter", "", "--device-plugin-config", &pools];
    let node = Node::up(&flags)?;
    published(&node, "eth1")?;
    node.apply(BY_TEMPLATE)?;
    // Two containers, of which one is given a device file as well.
    let side = format!(
        "  - {{name: side, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: {SLEEP}}}\n"
    );
    let main = format!("resources: {{claims: [{{name: net}}], limits: {{{TUN}: 1}}}}\n");
    node.apply(&(by_template("one").replace("resources: {claims: [{name: net}]}\n", &main) + &side))?;
    node.pod_in_phase("one", "Running")?;
    let claim_status = "PATCH /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one-net-";
    let drawn = eventually("the driver has told of the claim", SOON, || {
        let text = node.podwire(["trace", "pod/one", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let drawn = Drawn(serde_json::from_str(&text).map_err(|error| error.to_string())?);
        drawn.find("dra.net", "APIServer", claim_status).map_err(|error| format!("{error:#}"))?;
        Ok(drawn)
    })?;
    let published = drawn.find("dra.net", "APIServer", "PATCH /apis/resource.k8s.io/v1/resourceslices/")?;
    ensure!(published["side"] == "earlier" && published["error"].is_null(), "{published}");
    let prepare = drawn.find("Kubelet", "dra.net", "NodePrepareResources one-net-")?;
    let sandbox = drawn.find("Kubelet", "ContainerRuntime", "RunPodSandbox")?;
    let hook = drawn.find("ContainerRuntime", "dra.net", "RunPodSandbox")?;
    let attached = drawn.find("dra.net", "dra.net", "eth1 is in the pod as net1: 203.0.113.7/24")?;
    let read = drawn.find(
        "dra.net",
        "APIServer",
        "GET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one-net-",
    )?;
    ensure_caused(&read, &prepare)?;
    ensure_caused(&hook, &sandbox)?;
    ensure_caused(&attached, &hook)?;
    let path = [
        published,
        drawn.find("APIServer", "Kubelet", "watch: ADDED")?,
        drawn.find("Kubelet", "Kubelet", "admitted")?,
        prepare,
        drawn.find("ContainerRuntime", "CNIPlugin", "ADD eth0")?,
        hook,
        drawn.find("Kubelet", "ContainerRuntime", "PodSandboxStatus")?,
        drawn.find("Kubelet", TUN, "Allocate main")?,
        drawn.find("Kubelet", "ContainerRuntime", "CreateContainer main")?,
        drawn.find("Kubelet", "ContainerRuntime", "CreateContainer side")?,
    ];
    for pair in path.windows(2) {
        ensure!(times(&pair[0]).1 <= times(&pair[1]).0, "{} is not before {}", pair[0], pair[1]);
    }
    ensure!(drawn.find("Kubelet", TUN, "Allocate side").is_err(), "nobody allocates for a container without");
    let told = drawn.find("dra.net", "APIServer", claim_status)?;
    // It is told while the hook is still being answered.
    ensure!(times(&path[3]).1 <= times(&told).0 && told["reply"] == "200", "{told}");
    drawn.find("Kubelet", "APIServer", "PATCH /api/v1/namespaces/default/pods/one/status")?;
    let picture = node.podwire(["trace", "pod/one", "-o", "mermaid"])?;
    let diagram = mermaid::parse(&picture).with_context(|| picture.clone())?;
    ensure!(diagram.alias("dra_net") == Some("dra.net") && !picture.contains("00-dra.net"), "{picture}");
    node.podwire(["delete", "pod", "one"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// The driver killed in the moment a device moves. Not in `make test` yet: of two runs in CI one left the sandbox of a pod that was gone
/// for more than 30 s, on a busy machine; whose fault that is has still to be found.
#[cfg(feature = "interop")]
mod drill {
    use std::time::Instant;

    use super::*;

    /// Returns in the very moment that something holds.
    fn moment(what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !holds()? {
            ensure!(begun.elapsed() < SOON, "{what} in time");
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether the device is on its way home, or there.
    fn is_coming() -> Result<bool> {
        let links = Socket::route()?.links()?;
        Ok(links.iter().any(|link| link.name == "eth1" || link.name.starts_with("home")))
    }

    #[test]
    fn a_driver_that_is_killed_while_a_device_moves_loses_it_nowhere() -> Result<()> {
        isolate()?;
        make_device()?;
        let before = device()?;
        let node = Node::up(&[])?;
        for name in ["one", "two", "three"] {
            let driver = Alone::start(&node)?;
            published(&node, "eth1")?;
            let uid = pod(&node, name, SLEEP)?;
            allocate(&node, name, &uid, "eth1")?;
            moment("the device leaves", || Ok(device()?.is_none()))?;
            drop(driver);
            let driver = Alone::start(&node)?;
            node.pod_in_phase(name, "Running")?;
            ensure!(device()?.is_none() && inside(&node, name, "mtu")? == "1300", "it has its device whole");
            ensure!(inside(&node, name, "address")? == "02:00:00:00:00:42");
            node.podwire(["delete", "pod", name, "--wait=false"])?;
            moment("the device comes", is_coming)?;
            drop(driver);
            let driver = Alone::start(&node)?;
            is_home(before.as_deref())?;
            eventually("the pod is gone", SOON, || match node.get("pod", name) {
                Ok(pod) => Err(pod["status"].to_string()),
                Err(_) => Ok(()),
            })?;
            drop(driver);
        }
        node.assert_no_pod_residue()?;
        node.down()
    }
}
