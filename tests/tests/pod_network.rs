//! PodNetwork through the whole binary: a pod that names one has it before its first process, one that cannot have it waits
//! with the reason, and the object's status tells of each.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{Node, eventually, isolate};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);

const EDGE: &str = r#"
apiVersion: net.podwire.dev/v1alpha1
kind: PodNetwork
metadata: {name: edge}
spec:
  mtu: 1400
  addresses: [10.99.0.7/24]
  routes:
  - {destination: 10.20.0.0/16, gateway: 10.99.0.1, source: 10.99.0.7, metric: 7}
  - {destination: 10.21.0.0/16, gateway: 10.99.0.1, table: 100}
  rules: [{priority: 100, from: 10.99.0.7/32, table: 100}]
  neighbors: [{address: 10.99.0.1, hardwareAddress: "02:00:00:00:00:01"}]
  sysctls: [{name: net.ipv4.tcp_fin_timeout, value: "21"}]
  mesh:
    inbound: {port: 15006, excludePorts: [81]}
    outbound: {port: 15001, excludeUIDs: [1337], excludePorts: [82], excludeCIDRs: [192.0.2.0/24]}
"#;

fn pod(name: &str, network: &str, args: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{network}}}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: {args}\n"
    )
}

fn define(node: &Node) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/podnetwork.yaml");
    node.apply(&std::fs::read_to_string(file)?)?;
    eventually("PodNetworks are served", SOON, || {
        node.list("podnetworks.net.podwire.dev").map(drop).map_err(|error| format!("{error:#}"))
    })?;
    Ok(())
}

fn exec(node: &Node, pod: &str, words: &[&str]) -> Result<String> {
    node.podwire([&["exec", pod, "--", "/pod-app"], words].concat())
}

fn status_of(node: &Node, network: &str, pod: &str) -> Result<Value> {
    eventually(&format!("the status of {network} tells of {pod}"), SOON, || {
        let object =
            node.get("podnetworks.net.podwire.dev", network).map_err(|error| format!("{error:#}"))?;
        let mut pods = object["status"]["pods"].as_array().into_iter().flatten();
        pods.find(|one| one["name"] == pod).cloned().ok_or_else(|| object["status"].to_string())
    })
}

#[test]
fn a_pod_that_names_a_network_has_it_before_its_first_process() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    define(&node)?;
    let named = "net.podwire.dev/pod-network: edge";
    // Without the object the pod waits, and says for what.
    node.apply(&pod("edge", named, "[listen, TCP/15006, TCP/15001, TCP/81]"))?;
    eventually("an event names the missing object", SOON, || {
        let events = node.list("events").map_err(|error| format!("{error:#}"))?;
        let said = |one: &&Value| {
            one["message"]
                .as_str()
                .is_some_and(|text| text.contains("there is no PodNetwork edge in namespace default"))
        };
        if events.iter().any(|one| said(&one)) { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    node.apply(EDGE)?;
    let edge = node.pod_in_phase("edge", "Running")?;
    let address = edge["status"]["podIP"].as_str().context("no address")?.to_owned();

    ensure!(exec(&node, "edge", &["cat", "/sys/class/net/eth0/mtu"])?.trim() == "1400");
    ensure!(exec(&node, "edge", &["cat", "/proc/sys/net/ipv4/tcp_fin_timeout"])?.trim() == "21");
    let routes = exec(&node, "edge", &["cat", "/proc/net/route"])?;
    let route = routes.lines().find(|line| line.contains("0000140A")).with_context(|| routes.clone())?;
    ensure!(route.contains("0100630A"), "10.20.0.0 goes by 10.99.0.1: {route}");
    let neighbours = exec(&node, "edge", &["cat", "/proc/net/arp"])?;
    ensure!(neighbours.contains("02:00:00:00:00:01"), "{neighbours}");
    let status = status_of(&node, "edge", "edge")?;
    ensure!(status["applied"] == true, "{status}");
    for words in
        ["mtu 1400", "route 10.21.0.0/16 via 10.99.0.1 table 100", "rule 100 table 100", "mesh redirection"]
    {
        ensure!(status["message"].as_str().is_some_and(|text| text.contains(words)), "{words} in {status}");
    }

    // The path shows that the object was read inside RunPodSandbox.
    eventually("the path shows how the object was read", SOON, || {
        let text = node.podwire(["trace", "pod/edge", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let arrows: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let path = "GET /apis/net.podwire.dev/v1alpha1/namespaces/default/podnetworks/edge";
        let read = |one: &Value| {
            one["from"] == "90-netplugin"
                && one["to"] == "APIServer"
                && one["what"] == path
                && one["reply"] == "200"
        };
        if arrows.iter().any(read) { Ok(()) } else { Err(text) }
    })?;

    // From another pod a port that nobody listens on reaches the proxy; an excluded one and the node's do not.
    node.apply(&pod("client", "", "[sleep, \"600\"]"))?;
    node.pod_in_phase("client", "Running")?;
    let tries = format!("TCP/{address}/9999 TCP/{address}/81 TCP/{address}/80");
    ensure!(probe(&node, "client", &tries)? == "111", "inbound is redirected");
    // What leaves the pod reaches the proxy wherever it goes, but for what is excluded.
    ensure!(
        probe(&node, "edge", "TCP/10.20.0.9/80 TCP/192.0.2.1/80")?.starts_with('1'),
        "outbound is redirected"
    );
    let from_node =
        std::net::TcpStream::connect_timeout(&format!("{address}:9999").parse()?, Duration::from_millis(500));
    ensure!(from_node.is_err(), "the node's own connections, as those of probes, are not redirected");

    // A mistake of the object is refused when it is written, by the definition's rules.
    let wrong = EDGE
        .replace("name: edge", "name: wrong")
        .replace("gateway: 10.99.0.1, source", "gateway: \"fd00::1\", source");
    let refused = node.apply(&wrong).err().context("a gateway of another family was taken")?;
    ensure!(format!("{refused:#}").contains("family"), "{refused:#}");
    // One that no rule can see is told in the status and in the pod's events, and other pods do not mind.
    node.apply(&EDGE.replace("name: edge", "name: broken").replace("spec:", "spec:\n  interface: eth7"))?;
    node.apply(&pod("broken", "net.podwire.dev/pod-network: broken", "[sleep, \"600\"]"))?;
    let status = status_of(&node, "broken", "broken")?;
    ensure!(status["applied"] == false, "{status}");
    ensure!(
        status["message"].as_str().is_some_and(|text| text.contains("the pod has no interface eth7")),
        "{status}"
    );
    for name in ["broken", "edge", "client"] {
        node.podwire(["delete", "pod", name])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}

const SIDECAR: &str = r#"
apiVersion: net.podwire.dev/v1alpha1
kind: PodNetwork
metadata: {name: sidecar}
spec:
  mesh:
    inbound: {port: 15006, excludePorts: [8081]}
    outbound: {port: 15001, excludeUIDs: [1337], excludePorts: [82], excludeCIDRs: [10.88.0.1/32]}
"#;

/// The proxy listens nowhere: what is redirected is refused.
const MESHED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: meshed, annotations: {net.podwire.dev/pod-network: sidecar}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    args: [serve, "8080"]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
  - name: more
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    args: [listen, TCP/8081]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
  - name: proxy
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    args: [sleep, "600"]
    securityContext: {runAsUser: 1337}
"#;

#[test]
fn a_mesh_redirects_all_but_what_is_excluded_and_probes_reach_the_application() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    define(&node)?;
    node.apply(SIDECAR)?;
    node.apply(&pod("client", "", "[listen, TCP/81, TCP/82]"))?;
    let client = node.pod_in_phase("client", "Running")?;
    let client = client["status"]["podIP"].as_str().context("no address")?;
    node.apply(MESHED)?;
    let ready = |pod: &Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    // The kubelet's probes reach the application.
    let meshed = node.pod_when("meshed", "probes that succeed", ready)?;
    let meshed = meshed["status"]["podIP"].as_str().context("no address")?;
    // Others' connections are sent to the proxy, but for an excluded port.
    let tried = probe(&node, "client", &format!("TCP/{meshed}/8080 TCP/{meshed}/8081"))?;
    ensure!(tried == "r1", "inbound: {tried}");
    let _at_node = std::net::TcpListener::bind("10.88.0.1:81")?;
    let everywhere = format!("TCP/{client}/81 TCP/{client}/82 TCP/10.88.0.1/81 TCP/{meshed}/8081");
    let tried = probe(&node, "meshed", &everywhere)?;
    ensure!(tried == "r111", "outbound, and a port, a block and the pod itself that are excluded: {tried}");
    let tried = probe_in(&node, &["meshed", "-c", "proxy"], &everywhere)?;
    ensure!(tried == "1111", "outbound of the excluded user: {tried}");
    for name in ["client", "meshed"] {
        node.podwire(["delete", "pod", name])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}

const WEB: &str = r#"
apiVersion: net.podwire.dev/v1alpha1
kind: PodNetwork
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  mtu: 1400
  addresses: [10.99.0.7/24]
"#;

fn labelled(name: &str, app: &str) -> String {
    pod(name, "", "[listen, TCP/81]").replace("annotations: {}", &format!("labels: {{app: {app}}}"))
}

fn event_says(node: &Node, words: &str) -> Result<()> {
    eventually(&format!("an event says {words:?}"), SOON, || {
        let events = node.list("events").map_err(|error| format!("{error:#}"))?;
        let messages: Vec<&str> = events.iter().filter_map(|one| one["message"].as_str()).collect();
        if messages.iter().any(|text| text.contains(words)) { Ok(()) } else { Err(messages.join("\n")) }
    })
}

fn accepted(node: &Node, network: &str, status: &str, words: &str) -> Result<()> {
    eventually(&format!("{network} is {status}: {words}"), SOON, || {
        let object =
            node.get("podnetworks.net.podwire.dev", network).map_err(|error| format!("{error:#}"))?;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.any(|one| {
            one["type"] == "Accepted"
                && one["status"] == status
                && one["message"].as_str().is_some_and(|text| text.contains(words))
        });
        if found { Ok(()) } else { Err(object["status"].to_string()) }
    })
}

/// Whether a pod reaches an address that only the node's routes lead to.
fn reaches(node: &Node, address: &str, wanted: &str) -> Result<()> {
    eventually(&format!("{address} answers: {wanted}"), SOON * 2, || {
        match probe(node, "client", &format!("TCP/{address}/81")) {
            Ok(letter) if letter == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .with_context(|| node.log_tail())
}

#[test]
fn a_network_chooses_pods_by_their_labels_and_its_addresses_may_speak() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&["--pod-network-addresses", "10.99.0.0/24"])?;
    define(&node)?;
    node.apply(WEB)?;
    node.apply(&labelled("client", "client"))?;
    node.pod_in_phase("client", "Running")?;
    // A pod may come before the watch has told of the network; that of one with a status has.
    eventually("the network chooses pods", SOON, || {
        node.apply(&labelled("web", "web")).map_err(|error| format!("{error:#}"))?;
        node.pod_in_phase("web", "Running").map_err(|error| format!("{error:#}"))?;
        let mtu =
            exec(&node, "web", &["cat", "/sys/class/net/eth0/mtu"]).map_err(|error| format!("{error:#}"))?;
        if mtu.trim() == "1400" {
            return Ok(());
        }
        node.podwire(["delete", "pod", "web"]).map_err(|error| format!("{error:#}"))?;
        Err(mtu)
    })?;
    ensure!(status_of(&node, "web", "web")?["applied"] == true);
    let bridge = node.names()?.bridge;
    for address in ["10.99.0.7", "10.98.0.8"] {
        let words = ["route", "add", address, "dev", &bridge];
        ensure!(std::process::Command::new("ip").args(words).status()?.success(), "ip {words:?}");
    }
    reaches(&node, "10.99.0.7", "1")?;
    // One that the node's owner did not allow stays closed.
    node.apply(&WEB.replace("web", "far").replace("10.99.0.7/24", "10.98.0.8/24"))?;
    accepted_none(&node, "far")?;
    node.apply(&pod("far", "net.podwire.dev/pod-network: far", "[listen, TCP/81]"))?;
    node.pod_in_phase("far", "Running")?;
    reaches(&node, "10.98.0.8", "0")?;
    // Whoever takes over knows whose the address is.
    node.kill9()?;
    node.start()?;
    reaches(&node, "10.99.0.7", "1")?;
    reaches(&node, "10.98.0.8", "0")?;
    // Another's address is not given, and two that choose one pod contradict each other.
    node.apply(&WEB.replace("web", "thief"))?;
    node.apply(&pod("thief", "net.podwire.dev/pod-network: thief", "[listen, TCP/81]"))?;
    event_says(&node, "spec.addresses of its PodNetwork: 10.99.0.7 is the address of default/web")?;
    reaches(&node, "10.99.0.7", "1")?;
    node.apply(&WEB.replace("name: web", "name: also").replace("app: web", "app: torn"))?;
    node.apply(&WEB.replace("name: web", "name: same").replace("app: web", "app: torn"))?;
    eventually("both choose the pod", SOON, || {
        node.apply(&labelled("torn", "torn")).map_err(|error| format!("{error:#}"))?;
        event_says(&node, "PodNetworks also and same all choose the pod (spec.podSelector)")
            .map_err(|error| format!("{error:#}"))
    })?;
    ensure!(status_of(&node, "same", "torn")?["applied"] == false);
    for name in ["client", "web", "far", "thief", "torn"] {
        node.podwire(["delete", "pod", name])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}

/// Nothing is wrong with a network, and nothing is said.
fn accepted_none(node: &Node, network: &str) -> Result<()> {
    let object = node.get("podnetworks.net.podwire.dev", network)?;
    ensure!(object["status"]["conditions"].is_null(), "{}", object["status"]);
    Ok(())
}

#[test]
fn what_is_wrong_with_an_object_is_in_its_conditions() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    define(&node)?;
    let wrong = WEB.replace("mtu: 1400", "sysctls: [{name: net.ipv4.ip_forward, value: \"1\"}]");
    node.apply(&wrong)?;
    accepted(&node, "web", "False", "spec.sysctls[0].name: net.ipv4.ip_forward is not among those")?;
    // A pod that it would choose waits for it, another does not.
    node.apply(&labelled("web", "web"))?;
    event_says(&node, "PodNetwork web: spec.sysctls[0].name")?;
    node.apply(&labelled("other", "other"))?;
    node.pod_in_phase("other", "Running")?;
    node.apply(WEB)?;
    accepted(&node, "web", "True", "")?;
    node.pod_in_phase("web", "Running")?;
    for name in ["web", "other"] {
        node.podwire(["delete", "pod", name])?;
    }
    node.down()
}

fn probe(node: &Node, pod: &str, tries: &str) -> Result<String> {
    probe_in(node, &[pod], tries)
}

/// Tries from where `podwire exec` leads by these words.
fn probe_in(node: &Node, at: &[&str], tries: &str) -> Result<String> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new(podwire_testkit::node::bin_dir().join("podwire"))
        .args(["exec", "-i"])
        .args(at)
        .args(["--", "/pod-app", "probe"])
        .env("PODWIRE_DATA_DIR", node.names()?.data_dir)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("no stdin")?.write_all(format!("3000 {tries}\n").as_bytes())?;
    let output = child.wait_with_output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
