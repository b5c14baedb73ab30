//! The cases as they are recorded in `tests/peers/policy/cases`: pods, policies, and what is expected to get through.
//!
//! Decides nothing about policies itself: tables come from cyclonus, and what the specification denies is written by hand.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Labels of one object.
pub(crate) type Labels = BTreeMap<String, String>;

/// A pod of the world.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: Labels,
    /// IPv4 and IPv6.
    pub(crate) addresses: [String; 2],
    /// Name, protocol and number of its ports.
    pub(crate) ports: Vec<(String, String, u16)>,
}

impl Pod {
    /// As tables call it.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A node as a destination.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    /// IPv4 and IPv6.
    pub(crate) addresses: [String; 2],
}

/// What exists in every case.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) subnets: Vec<String>,
    pub(crate) namespaces: BTreeMap<String, Labels>,
    pub(crate) pods: Vec<Pod>,
    /// Those that cases of this file speak of; none beside where there is no such case.
    pub(crate) nodes: Vec<Host>,
}

impl World {
    /// A pod, or behind the last of them a node, as tables call it, with its addresses.
    pub(crate) fn place(&self, at: usize) -> (String, &[String; 2]) {
        match self.pods.get(at) {
            Some(pod) => (pod.key(), &pod.addresses),
            None => {
                let node = &self.nodes[at - self.pods.len()];
                (node.name.clone(), &node.addresses)
            }
        }
    }
}

/// Who may reach whom in one case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) namespace_labels: BTreeMap<String, Labels>,
    pub(crate) pod_labels: BTreeMap<String, Labels>,
    pub(crate) node_labels: BTreeMap<String, Labels>,
    /// Whether nodes are tried, too.
    pub(crate) tries_nodes: bool,
    pub(crate) policies: Vec<Value>,
    /// By family, port and source: one letter for each destination, nodes behind the pods.
    allowed: [BTreeMap<String, Vec<String>>; 2],
}

impl Case {
    /// Whether a connection is to get through.
    pub(crate) fn allows(&self, family: usize, from: usize, to: usize, port: &str) -> bool {
        self.allowed[family][port][from].as_bytes()[to] == b'1'
    }
}

/// What is recorded in a file; part of the program, which also runs where there are no sources.
fn recorded(file: &str) -> Result<Value> {
    let text = match file {
        "networkpolicy.json" => include_str!("../../peers/policy/cases/networkpolicy.json"),
        "clusternetworkpolicy.json" => include_str!("../../peers/policy/cases/clusternetworkpolicy.json"),
        other => bail!("nothing is recorded in {other}"),
    };
    serde_json::from_str(text).with_context(|| format!("parse {file}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn labels(value: &Value) -> Labels {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn labelled(value: &Value) -> BTreeMap<String, Labels> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), labels(value))).collect()
}

fn world(value: &Value) -> World {
    let port = |one: &Value| {
        let number = one["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
        (text(&one["name"]), text(&one["protocol"]), number)
    };
    let pod = |one: &Value| Pod {
        namespace: text(&one["namespace"]),
        name: text(&one["name"]),
        labels: labels(&one["labels"]),
        addresses: [text(&one["ipv4"]), text(&one["ipv6"])],
        ports: one["ports"].as_array().into_iter().flatten().map(port).collect(),
    };
    World {
        subnets: texts(&value["subnets"]),
        namespaces: labelled(&value["namespaces"]),
        pods: value["pods"].as_array().into_iter().flatten().map(pod).collect(),
        nodes: Vec::new(),
    }
}

fn host(value: &Value) -> Host {
    Host {
        name: text(&value["name"]),
        labels: labels(&value["labels"]),
        addresses: [text(&value["ipv4"]), text(&value["ipv6"])],
    }
}

/// A recorded table of one family.
fn table(value: &Value) -> BTreeMap<String, Vec<String>> {
    let mut by_port = BTreeMap::new();
    for one in value.as_array().into_iter().flatten() {
        let rows: Vec<String> = text(&one["rows"]).split(' ').map(str::to_owned).collect();
        by_port.extend(texts(&one["ports"]).into_iter().map(|port| (port, rows.clone())));
    }
    by_port
}

/// Whether one of the words, with commas between them, means the pod or port.
fn means(words: &str, what: &str) -> bool {
    let one = |word: &str| match (word.split_once('/'), what.split_once('/')) {
        _ if word == "*" || word == what => true,
        (Some((a, b)), Some((x, y))) => (a == "*" || a == x) && (b == "*" || b == y),
        _ => false,
    };
    words.split(',').any(one)
}

/// What is left when everything denied by lines such as `x/*,y/a > z/* TCP/80` is taken away.
fn left(world: &World, denied: &[String]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut lines = Vec::new();
    for line in denied {
        let (from, rest) = line.split_once(" > ").with_context(|| format!("no arrow in {line:?}"))?;
        let (to, ports) = rest.split_once(' ').with_context(|| format!("no ports in {line:?}"))?;
        let meant = |words: &str, places: usize| {
            words.split(',').all(|word| (0..places).any(|at| means(word, &world.place(at).0)))
        };
        let all = world.pods.len() + world.nodes.len();
        ensure!(meant(from, world.pods.len()) && meant(to, all), "{line:?} names what there is none of");
        lines.push((from, to, ports));
    }
    let ports = world.pods[0].ports.iter().map(|(_, protocol, number)| format!("{protocol}/{number}"));
    let row = |port: &str, from: &Pod| -> String {
        let letter = |to: String| {
            let hit =
                |(a, b, p): &(&str, &str, &str)| means(a, &from.key()) && means(b, &to) && means(p, port);
            if from.key() != to && lines.iter().any(hit) { '0' } else { '1' }
        };
        (0..world.pods.len() + world.nodes.len()).map(|at| letter(world.place(at).0)).collect()
    };
    Ok(ports.map(|port| (port.clone(), world.pods.iter().map(|from| row(&port, from)).collect())).collect())
}

fn case(world: &World, value: &Value) -> Result<Case> {
    let allowed = if value["v4"].is_array() {
        let six = if value["v6"].is_array() { &value["v6"] } else { &value["v4"] };
        [table(&value["v4"]), table(six)]
    } else {
        let denied = |more: &Value| [texts(&value["denied"]), texts(more)].concat();
        [left(world, &denied(&value["deniedV4"]))?, left(world, &denied(&value["deniedV6"]))?]
    };
    let tries_nodes = value["nodes"] == true;
    let places = 9 + world.nodes.len();
    let whole = |table: &BTreeMap<String, Vec<String>>| {
        table.len() == world.pods[0].ports.len()
            && table.values().all(|rows| rows.len() == 9 && rows.iter().all(|row| row.len() == places))
    };
    ensure!(allowed.iter().all(whole), "the table of {} is not whole", value["name"]);
    Ok(Case {
        name: text(&value["name"]),
        namespace_labels: labelled(&value["labels"]["namespaces"]),
        pod_labels: labelled(&value["labels"]["pods"]),
        node_labels: labelled(&value["labels"]["nodes"]),
        tries_nodes,
        policies: value["policies"].as_array().cloned().unwrap_or_default(),
        allowed,
    })
}

/// The world, and the cases of a file in it.
pub(crate) fn read(file: &str) -> Result<(World, Vec<Case>)> {
    let mut world = world(&recorded("networkpolicy.json")?["world"]);
    ensure!(world.pods.len() == 9 && world.namespaces.len() == 3, "the recorded world has changed");
    let all = recorded(file)?;
    world.nodes = all["nodes"].as_array().into_iter().flatten().map(host).collect();
    let cases: Result<Vec<Case>> =
        all["cases"].as_array().into_iter().flatten().map(|value| case(&world, value)).collect();
    Ok((world, cases?))
}
