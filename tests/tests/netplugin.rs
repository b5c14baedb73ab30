//! NetworkPolicy through the whole binary: pods of several namespaces, real connections between them, in both directions.

#[allow(dead_code, unreachable_pub, reason = "the hostile suite uses all of it")]
#[path = "../hostile/http.rs"]
mod http;
#[path = "netplugin/pods.rs"]
mod pods;

use std::time::Duration;

use anyhow::{Result, ensure};
use podwire_testkit::{Node, eventually, isolate};
use serde_json::json;

use self::pods::{Ask, Pods, TCP, UDP, namespace, policy};

#[test]
fn a_policy_closes_a_pod_but_for_whom_it_allows() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&namespace("shop", "team: red"))?;
    node.apply(&namespace("lab", "team: blue"))?;
    let pods = Pods::run(&node, &["shop/web", "shop/client", "lab/client"])?;
    pods.all(&[("shop/client", "shop/web", TCP, 80, true), ("lab/client", "shop/web", UDP, 53, true)])?;

    node.apply(&policy("shop", "deny", "podSelector: {}"))?;
    pods.eventually(("shop/client", "shop/web", TCP, 80, false))?;
    let why = node.podwire(["netplugin", "explain", "shop/web", "--from", "lab/client:80"])?;
    let told = why.starts_with("denied: ") && why.contains("no rule allows it, of shop/deny");
    ensure!(told && why.contains("egress of 10.88."), "{why}");
    pods.all(&[
        ("shop/client", "shop/web", UDP, 80, false),
        ("lab/client", "shop/web", TCP, 80, false),
        ("shop/web", "lab/client", TCP, 80, true),
        ("node", "shop/web", TCP, 80, true),
        ("shop/web", "node", UDP, 5300, true),
    ])?;

    let allow = "podSelector: {matchLabels: {pod: web}}\n  ingress:\n  - from: [{podSelector: {matchLabels: {pod: client}}}]\n    ports: [{port: 80}, {protocol: UDP, port: 53, endPort: 60}]";
    node.apply(&policy("shop", "allow", allow))?;
    pods.eventually(("shop/client", "shop/web", TCP, 80, true))?;
    pods.all(&[
        ("shop/client", "shop/web", TCP, 81, false),
        ("shop/client", "shop/web", UDP, 60, true),
        ("shop/client", "shop/web", UDP, 61, false),
        ("lab/client", "shop/web", TCP, 80, false),
        ("shop/web", "shop/client", TCP, 80, false),
    ])?;

    let why = node.podwire(["netplugin", "explain", "-n", "shop", "client", "--to", "shop/web:80/TCP"])?;
    ensure!(why.starts_with("allowed: ") && why.contains("allowed by shop/allow ingress[0]"), "{why}");

    // A pod that comes later is governed, and is a peer, from the beginning.
    let more = Pods::run(&node, &["shop/late"])?;
    let pods = pods.and(more);
    pods.all(&[("lab/client", "shop/late", TCP, 80, false), ("shop/late", "shop/web", TCP, 80, false)])?;

    node.apply(&policy("lab", "out", "podSelector: {}\n  policyTypes: [Egress]\n  egress:\n  - to: [{namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {pod: late}}}]"))?;
    pods.eventually(("lab/client", "node", TCP, 8080, false))?;
    node.podwire(["delete", "-n", "shop", "networkpolicy", "deny", "allow"])?;
    pods.eventually(("lab/client", "shop/late", TCP, 80, true))?;
    pods.all(&[("lab/client", "shop/web", TCP, 80, false), ("shop/client", "shop/web", TCP, 81, true)])?;
    for name in ["shop/web", "shop/client", "shop/late", "lab/client"] {
        pods.delete(&node, name)?;
    }
    node.down()
}

#[test]
fn what_is_denied_is_counted_and_logged_with_the_policy() -> Result<()> {
    isolate()?;
    let node = Node::up(&["--pod-cidr", "10.88.0.0/16,fd88::/64"])?;
    let pods = Pods::run(&node, &["default/web", "default/client"])?;
    node.apply(&policy("default", "deny", "podSelector: {matchLabels: {pod: web}}"))?;
    pods.eventually(("default/client", "default/web", TCP, 80, false))?;
    pods.all(&[("default/client", "default/web/6", UDP, 53, false)])?;
    // The kubelet's page, from the kubelet itself: the API server leads to no address of its own machine.
    let port = node.get("node", "node1")?["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].clone();
    let mut kubelet = http::Api::of(&node.kubeconfig())?;
    kubelet.address.set_port(serde_json::from_value(port)?);
    let page = kubelet.admin("GET", "/metrics", None)?;
    let page = String::from_utf8_lossy(&page.body).into_owned();
    let rule = "rule=\"no rule allows it, of default/deny\"";
    let dropped =
        |line: &&str| line.starts_with("podwire_netplugin_dropped_packets_total{") && line.contains(rule);
    let count = page.lines().find(dropped).and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    ensure!(count.is_some_and(|count| count >= 2), "{page}");
    let [client, web] = ["default/client", "default/web"].map(|name| &pods.0[name].addresses);
    let log = node.data_dir.join("podwire.log");
    // It is looked every ten seconds, and what was denied goes on being asked for until then.
    eventually("the log tells of the connections and of the rule", Duration::from_secs(60), || {
        for ask in [
            ("default/client", "default/web", TCP, 80, false),
            ("default/client", "default/web/6", UDP, 53, false),
        ] {
            pods.all(&[ask]).map_err(|error| error.to_string())?;
        }
        let text = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
        let says = |words: &[&str]| {
            let line =
                |line: &str| line.contains("default/deny") && words.iter().all(|word| line.contains(word));
            text.lines().any(line)
        };
        let (v4, v6) =
            (format!("{} to {}, 80/TCP", client[0], web[0]), format!("{} to {}, 53/UDP", client[1], web[1]));
        if says(&["connection denied", &v4]) && says(&["connection denied", &v6]) && says(&["packets denied"])
        {
            Ok(())
        } else {
            Err(text.lines().rev().take(20).collect::<Vec<_>>().join("\n"))
        }
    })?;
    for name in ["default/web", "default/client"] {
        pods.delete(&node, name)?;
    }
    node.down()
}

#[test]
fn both_families_are_governed_alike() -> Result<()> {
    isolate()?;
    let node = Node::up(&["--pod-cidr", "10.88.0.0/16,fd88::/64"])?;
    let pods = Pods::run(&node, &["default/web", "default/good", "default/bad"])?;
    let ask = |from: &'static str, protocol, passes| -> [Ask; 2] {
        [(from, "default/web", protocol, 80, passes), (from, "default/web/6", protocol, 80, passes)]
    };
    pods.all(&[ask("default/good", TCP, true), ask("default/bad", UDP, true)].concat())?;
    let allow = "podSelector: {matchLabels: {pod: web}}\n  ingress:\n  - from: [{podSelector: {matchLabels: {pod: good}}}]";
    node.apply(&policy("default", "allow", allow))?;
    pods.eventually(("default/bad", "default/web", TCP, 80, false))?;
    for (from, passes) in [("default/good", true), ("default/bad", false)] {
        pods.all(&[ask(from, TCP, passes), ask(from, UDP, passes)].concat())?;
    }
    // Nor by addresses that no policy speaks of.
    pods.all(&[("default/bad", "default/web/link", UDP, 80, false)])?;
    for name in ["web", "good", "bad"] {
        pods.delete(&node, &format!("default/{name}"))?;
    }
    node.down()
}

#[test]
fn the_trace_of_a_pod_shows_the_plugin_and_what_it_did() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&policy("default", "deny", "podSelector: {}"))?;
    node.podwire(["get", "networkpolicy", "deny"])?;
    let pods = Pods::run(&node, &["default/web"])?;
    let trace = node.podwire(["trace", "pod/web", "-o", "mermaid"])?;
    let lines: Vec<&str> = trace.lines().map(str::trim).collect();
    let at = |what: &str| {
        let found = lines.iter().position(|line| line.contains(what));
        found.ok_or_else(|| anyhow::anyhow!("{what:?} is not in\n{trace}"))
    };
    // The arrows of the diagram in their order: CNI before the plugin, the plugin's work before its answer, then containers.
    let order = [
        at("ContainerRuntime->>CNIPlugin: ADD")?,
        at("ContainerRuntime->>90_netplugin: RunPodSandbox")?,
        at("network policies in place: default/deny")?,
        at("Kubelet->>ContainerRuntime: CreateContainer")?,
    ];
    ensure!(order.is_sorted() && at("Kubelet->>ContainerRuntime: PodSandboxStatus")? > order[2], "{trace}");
    pods.delete(&node, "default/web")?;
    node.down()
}

const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusternetworkpolicies.policy.networking.k8s.io
  annotations: {api-approved.kubernetes.io: 'unapproved, for a test'}
spec:
  group: policy.networking.k8s.io
  scope: Cluster
  names: {kind: ClusterNetworkPolicy, plural: clusternetworkpolicies, singular: clusternetworkpolicy}
  versions:
  - name: v1alpha2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[test]
fn cluster_policies_are_enforced_while_their_definition_exists() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&namespace("shop", "team: red"))?;
    let pods = Pods::run(&node, &["shop/web", "default/client"])?;
    node.apply(&policy("shop", "allow", "podSelector: {}\n  ingress: [{}]"))?;
    pods.all(&[("default/client", "shop/web", TCP, 80, true)])?;
    node.apply(DEFINITION)?;
    let object = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: shut}\nspec:\n  tier: Admin\n  priority: 10\n  subject: {namespaces: {matchLabels: {team: red}}}\n  ingress:\n  - {name: not-tcp, action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {}}]}\n";
    eventually("the kind is served", Duration::from_secs(20), || {
        node.apply(object).map_err(|error| format!("{error:#}"))
    })?;
    pods.eventually(("default/client", "shop/web", TCP, 80, false))?;
    pods.all(&[("default/client", "shop/web", UDP, 80, true), ("node", "shop/web", TCP, 80, true)])?;
    let why = node.podwire(["netplugin", "explain", "default/client", "--to", "shop/web:80"])?;
    ensure!(why.contains("denied by shut ingress[0] \"not-tcp\""), "{why}");
    node.podwire(["delete", "customresourcedefinition", "clusternetworkpolicies.policy.networking.k8s.io"])?;
    pods.eventually(("default/client", "shop/web", TCP, 80, true))?;
    for name in ["shop/web", "default/client"] {
        pods.delete(&node, name)?;
    }
    node.down()
}

/// Whether a byte gets from one end of a connection to the other.
fn carries(from: &std::net::TcpStream, to: &std::net::TcpStream) -> Result<bool, String> {
    use std::io::{Read, Write};
    let (mut from, mut to) = (from, to);
    from.write_all(b"x").map_err(|error| error.to_string())?;
    Ok(to.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0))
}

#[test]
fn peers_by_nodes_follow_labels_and_addresses_and_cut_what_stands() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    let pods = Pods::run(&node, &["default/client"])?;
    // An object with the address of this machine that pods see; nobody runs pods for it.
    let api = http::Api::of(&node.kubeconfig())?;
    let gate = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gate", "labels": {"role": "front"}},
        "spec": {"unschedulable": true}, "status": {"addresses": [{"type": "InternalIP", "address": "10.88.0.1"}]}});
    api.must("POST", "/api/v1/nodes", Some(&gate))?;
    node.apply(DEFINITION)?;
    let object = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: no-gates}\nspec:\n  tier: Admin\n  priority: 10\n  subject: {namespaces: {}}\n  egress:\n  - {name: gates, action: Deny, to: [{nodes: {matchLabels: {role: back}}}], protocols: [{tcp: {}}]}\n";
    eventually("the kind is served", Duration::from_secs(20), || {
        node.apply(object).map_err(|error| format!("{error:#}"))
    })?;
    let (from_pod, at_node) = pods.connect("default/client", "node", 81)?;
    let good = |result: Result<bool, String>| matches!(result, Ok(true));
    ensure!(good(carries(&from_pod, &at_node)));
    pods.all(&[("default/client", "node", TCP, 80, true)])?;

    let label = |role: &str| -> Result<()> {
        let body = json!({"metadata": {"labels": {"role": role}}}).to_string();
        let kind = [("Content-Type", "application/merge-patch+json")];
        let answer = api.ask(&api.admin, "PATCH", "/api/v1/nodes/gate", &kind, body.as_bytes())?;
        ensure!(answer.status == 200, "{}", answer.brief());
        Ok(())
    };
    label("back")?;
    pods.eventually(("default/client", "node", TCP, 80, false))?;
    let why = node.podwire(["netplugin", "explain", "default/client", "--to", "10.88.0.1:80"])?;
    ensure!(why.starts_with("denied: ") && why.contains("denied by no-gates egress[0] \"gates\""), "{why}");
    eventually("the connection is cut", Duration::from_secs(20), || match carries(&from_pod, &at_node)? {
        true => Err("it goes on".to_owned()),
        false => Ok(()),
    })?;
    pods.all(&[("default/client", "node", UDP, 80, true), ("node", "default/client", TCP, 80, true)])?;
    label("front")?;
    pods.eventually(("default/client", "node", TCP, 80, true))?;
    label("back")?;
    pods.eventually(("default/client", "node", TCP, 80, false))?;
    api.must("DELETE", "/api/v1/nodes/gate", None)?;
    pods.eventually(("default/client", "node", TCP, 80, true))?;
    pods.delete(&node, "default/client")?;
    node.down()
}

#[test]
fn a_connection_that_stands_is_cut_when_no_policy_allows_it_any_more() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    let pods = Pods::run(&node, &["default/web", "default/client"])?;
    let (from_pod, at_web) = pods.connect("default/client", "default/web", 80)?;
    let (from_node, at_web_too) = pods.connect("node", "default/web", 81)?;
    let good = |result: Result<bool, String>| matches!(result, Ok(true));
    ensure!(good(carries(&from_pod, &at_web)) && good(carries(&from_node, &at_web_too)));
    node.apply(&policy("default", "deny", "podSelector: {}\n  policyTypes: [Ingress, Egress]"))?;
    podwire_testkit::eventually(
        "the connection is cut",
        std::time::Duration::from_secs(20),
        || match carries(&from_pod, &at_web)? {
            true => Err("it goes on".to_owned()),
            false => Ok(()),
        },
    )?;
    ensure!(good(carries(&from_node, &at_web_too)), "what the node began goes on");
    ensure!(good(carries(&at_web_too, &from_node)), "and is answered");
    for name in ["default/web", "default/client"] {
        pods.delete(&node, name)?;
    }
    node.down()
}
