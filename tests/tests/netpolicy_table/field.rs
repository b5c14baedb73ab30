//! Nine pods on one node, a prober in each, and the API by which their policies change.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use podwire_testkit::eventually;
use serde_json::{Value, json};

use super::{
    cases::{Case, Labels, Pod, World},
    ground::Ground,
    hosts::Hosts,
    http::Api,
};

const SOON: Duration = Duration::from_secs(60);
/// A program in a pod that tries connections as it is told, line by line.
struct Prober {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Drop for Prober {
    fn drop(&mut self) {
        // Ignored: it may have ended with its pod.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What is there to be tested.
pub(crate) struct Field {
    ground: Box<dyn Ground>,
    api: Api,
    world: World,
    /// Those that pods serve and try.
    protocols: Vec<&'static str>,
    probers: Vec<Prober>,
    /// Policies that exist, by path.
    policies: BTreeMap<String, Value>,
    hosts: Option<Hosts>,
}

fn manifest(pod: &Pod, protocols: &[&str]) -> Value {
    let port = |(name, protocol, number): &(String, String, u16)| {
        let mut port = json!({"containerPort": number, "protocol": protocol});
        if !name.is_empty() {
            port["name"] = name.as_str().into();
        }
        port
    };
    let served = pod.ports.iter().filter(|(_, protocol, _)| protocols.contains(&&**protocol));
    let listen = served.map(|(_, protocol, number)| format!("{protocol}/{number}"));
    let args: Vec<String> = ["listen".to_owned()].into_iter().chain(listen).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "localhost/pod-app:latest", "imagePullPolicy": "Never",
                "command": ["/pod-app"], "args": args, "ports": pod.ports.iter().map(port).collect::<Vec<_>>(),
            }],
        },
    })
}

impl Field {
    /// Makes the world on a new node; its pods serve and try these protocols.
    pub(crate) fn new(world: World, ground: Box<dyn Ground>, protocols: Vec<&'static str>) -> Result<Field> {
        let api = ground.api()?;
        let mut field = Field {
            ground,
            api,
            world,
            protocols,
            probers: Vec::new(),
            policies: BTreeMap::new(),
            hosts: None,
        };
        for (name, labels) in &field.world.namespaces {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
            field.api.must("POST", "/api/v1/namespaces", Some(&namespace))?;
        }
        // One after the other: the addresses of the world are those that the node gives in this order.
        for pod in &field.world.pods {
            field.make(pod)?;
        }
        for pod in &field.world.pods {
            let prober = field.prober(pod)?;
            field.probers.push(prober);
        }
        Ok(field)
    }

    /// Defines ClusterNetworkPolicies, as wide as can be: what is tested is what they mean, not what is refused.
    pub(crate) fn define_cluster_policies(&self) -> Result<()> {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "clusternetworkpolicies.policy.networking.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of a test"},
            },
            "spec": {
                "group": "policy.networking.k8s.io", "scope": "Cluster",
                "names": {"plural": "clusternetworkpolicies", "kind": "ClusterNetworkPolicy"},
                "versions": [{
                    "name": "v1alpha2", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
                }],
            },
        });
        self.api.must(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            Some(&definition),
        )?;
        eventually("ClusterNetworkPolicies are served", SOON, || {
            let listed =
                self.api.must("GET", "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies", None);
            listed.map_err(|error| format!("{error:#}"))
        })?;
        Ok(())
    }

    /// Makes the nodes that cases speak of: objects that nobody runs pods for, and what answers under their addresses.
    pub(crate) fn make_nodes(&mut self) -> Result<()> {
        for node in &self.world.nodes {
            let addresses: Vec<Value> =
                node.addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
            let object = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": node.labels},
                "spec": {"unschedulable": true}, "status": {"addresses": addresses},
            });
            self.api.must("POST", "/api/v1/nodes", Some(&object))?;
        }
        let ports: Vec<String> = self.served(&self.world.pods[0]).collect();
        self.hosts = Some(Hosts::start(&self.world, &ports)?);
        Ok(())
    }

    /// The ports of a pod that are served and tried; a node serves those of the first pod.
    fn served<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = String> + 'a {
        let served = pod.ports.iter().filter(|(_, protocol, _)| self.protocols.contains(&&**protocol));
        served.map(|(_, protocol, number)| format!("{protocol}/{number}"))
    }

    fn make(&self, pod: &Pod) -> Result<()> {
        let pods = format!("/api/v1/namespaces/{}/pods", pod.namespace);
        let told = |error: anyhow::Error| format!("{error:#}");
        eventually(&format!("{} is taken", pod.key()), SOON, || {
            self.api.must("POST", &pods, Some(&manifest(pod, &self.protocols))).map_err(told)
        })?;
        let made = eventually(&format!("{} runs", pod.key()), SOON, || {
            let made = self.api.must("GET", &format!("{pods}/{}", pod.name), None).map_err(told)?;
            if made["status"]["phase"] == "Running" { Ok(made) } else { Err(made["status"].to_string()) }
        })
        .with_context(|| self.ground.log_tail())?;
        let addresses: Vec<&str> = made["status"]["podIPs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["ip"].as_str())
            .collect();
        ensure!(addresses == pod.addresses, "{} has {addresses:?}, not {:?}", pod.key(), pod.addresses);
        Ok(())
    }

    fn prober(&self, pod: &Pod) -> Result<Prober> {
        let mut child = self
            .ground
            .prober(pod)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What it says when the node ends under it is of no interest.
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Prober { child, stdin, stdout })
    }

    /// Makes the case true: labels, policies, and nothing of the case before.
    pub(crate) fn set(&mut self, case: &Case) -> Result<()> {
        for (name, labels) in &self.world.namespaces {
            let wanted = case.namespace_labels.get(name).unwrap_or(labels);
            self.label(&format!("/api/v1/namespaces/{name}"), wanted)?;
        }
        for pod in &self.world.pods {
            let wanted = case.pod_labels.get(&pod.key()).unwrap_or(&pod.labels);
            self.label(&format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name), wanted)?;
        }
        for node in self.world.nodes.iter().filter(|_| self.hosts.is_some()) {
            let wanted = case.node_labels.get(&node.name).unwrap_or(&node.labels);
            self.label(&format!("/api/v1/nodes/{}", node.name), wanted)?;
        }
        let wanted: BTreeMap<String, Value> =
            case.policies.iter().map(|policy| (path(policy), policy.clone())).collect();
        let before = std::mem::take(&mut self.policies);
        for (path, _) in before.iter().filter(|(path, old)| wanted.get(*path) != Some(old)) {
            self.api.must("DELETE", path, None)?;
        }
        for (path, policy) in wanted.iter().filter(|(path, new)| before.get(*path) != Some(new)) {
            let (folder, _) = path.rsplit_once('/').context("a path has a slash")?;
            self.api.must("POST", folder, Some(policy))?;
        }
        self.policies = wanted;
        Ok(())
    }

    fn label(&self, path: &str, wanted: &Labels) -> Result<()> {
        let now = self.api.must("GET", path, None)?;
        let gone = now["metadata"]["labels"].as_object().into_iter().flatten().map(|(key, _)| key);
        let mut patch = serde_json::Map::new();
        patch.extend(gone.filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null)));
        let differs =
            |(key, value): &(&String, &String)| now["metadata"]["labels"][key.as_str()] != value.as_str();
        patch.extend(wanted.iter().filter(differs).map(|(key, value)| (key.clone(), value.as_str().into())));
        if patch.is_empty() {
            return Ok(());
        }
        let body = json!({"metadata": {"labels": patch}}).to_string();
        let kind = [("Content-Type", "application/merge-patch+json")];
        let answer = self.api.ask(&self.api.admin, "PATCH", path, &kind, body.as_bytes())?;
        ensure!(answer.status == 200, "label {path}: {}", answer.brief());
        Ok(())
    }

    /// The connections of one pod, in order: family, destination, port.
    fn attempts(&self, case: &Case, from: usize) -> impl Iterator<Item = (usize, usize, String)> + '_ {
        let others = move |&to: &usize| to != from;
        let places = self.world.pods.len() + if case.tries_nodes { self.world.nodes.len() } else { 0 };
        (0..2).flat_map(move |family| {
            (0..places).filter(others).flat_map(move |to| {
                let pod = self.world.pods.get(to).unwrap_or(&self.world.pods[0]);
                self.served(pod).map(move |port| (family, to, port))
            })
        })
    }

    /// Tries everything at once, each for so long; what differs from the case, in words.
    pub(crate) fn differences(&mut self, case: &Case, patience: Duration) -> Result<Vec<String>> {
        for from in 0..self.probers.len() {
            let target = |(family, to, port): (usize, usize, String)| {
                let (protocol, number) = port.split_once('/').unwrap_or_default();
                format!("{protocol}/{}/{number}", self.world.place(to).1[family])
            };
            let targets: Vec<String> = self.attempts(case, from).map(target).collect();
            let line = format!("{} {}\n", patience.as_millis(), targets.join(" "));
            self.probers[from].stdin.write_all(line.as_bytes()).context("the prober has ended")?;
        }
        let mut differences = Vec::new();
        for from in 0..self.probers.len() {
            let mut line = String::new();
            self.probers[from].stdout.read_line(&mut line)?;
            let attempts: Vec<_> = self.attempts(case, from).collect();
            let letters = line.trim_end();
            if letters.len() != attempts.len() {
                bail!("the prober of {} said {letters:?}", self.world.pods[from].key());
            }
            for ((family, to, port), letter) in attempts.into_iter().zip(letters.chars()) {
                let wanted = if case.allows(family, from, to, &port) { '1' } else { '0' };
                if letter != wanted {
                    let [from, to] = [from, to].map(|at| self.world.place(at).0);
                    let family = ["IPv4", "IPv6"][family];
                    differences.push(format!("{family} {from} > {to} {port}: {letter}, not {wanted}"));
                }
            }
        }
        Ok(differences)
    }

    /// The ends of logs, for failure messages.
    pub(crate) fn log_tail(&self) -> String {
        self.ground.log_tail()
    }

    /// Ends the node and fails if anything of it is left.
    pub(crate) fn down(mut self) -> Result<()> {
        self.probers.clear();
        self.ground.down()
    }
}

/// Where a policy is.
fn path(policy: &Value) -> String {
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    match policy["metadata"]["namespace"].as_str() {
        Some(namespace) => {
            format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/{name}")
        }
        None => format!("/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies/{name}"),
    }
}
