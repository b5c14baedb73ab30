//! Our answers, in the form in which the peer gives upstream's, with the smallest ledger of devices that answers them.

use std::collections::{BTreeMap, BTreeSet};

use podwire_api::pod_resources::PodResources;
use podwire_kubelet::topology::{
    Hint, Hints, Machine, NodeMask, NumaNode, Policy, Scope, Topology, TopologyAffinityError,
    devices::{self, Choice, Devices, Request},
};
use serde_json::{Map, Value, json};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_i64().unwrap_or_default()).unwrap()
}

fn numbers(value: &Value) -> Vec<i64> {
    list(value).iter().map(|id| id.as_i64().unwrap()).collect()
}

/// Our answer to a question.
pub(crate) fn answer(question: &Value) -> Value {
    let topology = match topology(&question["machine"]) {
        Ok(topology) => topology,
        Err(error) => return json!({"error": error}),
    };
    match text(&question["ask"]) {
        "start" => json!({"scope": match (topology.policy(), topology.scope()) {
            (Policy::None, _) => "none",
            (_, Scope::Container) => "container",
            (_, Scope::Pod) => "pod",
        }}),
        "merge" => {
            let providers: Vec<_> = list(&question["providers"]).iter().map(provider).collect();
            let mut out = told(topology.best(&providers));
            out["admit"] = json!(topology.align(&providers).is_ok());
            out
        }
        "admit" => admit(&topology, question),
        other => panic!("no such question: {other}"),
    }
}

fn topology(machine: &Value) -> Result<Topology, String> {
    let nodes = list(&machine["nodes"]).iter().map(|node| NumaNode {
        id: node["id"].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap(),
        distances: list(&node["distances"]).iter().map(|distance| distance.as_u64().unwrap()).collect(),
    });
    let options =
        entries(&machine["options"]).map(|(name, value)| (name.clone(), text(value).to_owned())).collect();
    let (policy, scope) = (text(&machine["policy"]), text(&machine["scope"]));
    Topology::new(policy, scope, &options, Machine::new(nodes.collect()).unwrap())
        .map_err(|error| error.to_string())
}

fn provider(given: &Value) -> BTreeMap<String, Hints> {
    let hint = |hint: &Value| Hint {
        nodes: hint["nodes"].as_array().map(|_| NodeMask::of(numbers(&hint["nodes"]))),
        preferred: hint["preferred"] == true,
    };
    let hints = |given: &Value| match given.as_array() {
        Some(hints) => Hints::Of(hints.iter().map(hint).collect()),
        None => Hints::Indifferent,
    };
    entries(given).map(|(name, given)| (name.clone(), hints(given))).collect()
}

fn told(hint: Hint) -> Value {
    json!({"nodes": hint.nodes.map(|nodes| nodes.nodes().collect::<Vec<_>>()), "preferred": hint.preferred})
}

/// One resource: all of its devices and the healthy ones.
struct Resource {
    devices: Devices,
    healthy: BTreeSet<String>,
}

impl Resource {
    fn read(given: &Value) -> Resource {
        let id = |device: &Value| text(&device["id"]).to_owned();
        let nodes = |device: &Value| device["nodes"].as_array().map(|_| numbers(&device["nodes"]));
        Resource {
            devices: list(given).iter().map(|device| (id(device), nodes(device))).collect(),
            healthy: list(given).iter().filter(|device| device["health"] == "Healthy").map(id).collect(),
        }
    }
}

/// Devices by pod, container and resource.
type Held = BTreeMap<(String, String, String), BTreeSet<String>>;

/// Who has what.
struct Ledger<'a> {
    topology: &'a Topology,
    resources: BTreeMap<String, Resource>,
    prefers: bool,
    held: Held,
    /// Of the pod that is being admitted, by resource.
    reusable: BTreeMap<String, BTreeSet<String>>,
}

/// Why a pod is refused: reason and message.
type Refused = (&'static str, String);

fn unexpected(cause: impl std::fmt::Display) -> Refused {
    ("UnexpectedAdmissionError", format!("Allocate failed due to {cause}, which is unexpected"))
}

impl Ledger<'_> {
    fn available(&self, resource: &str) -> BTreeSet<&str> {
        let taken = self.held.iter().filter(|((_, _, name), _)| name == resource);
        let taken: BTreeSet<&str> = taken.flat_map(|(_, ids)| ids).map(String::as_str).collect();
        let healthy = self.resources[resource].healthy.iter().map(String::as_str);
        healthy.filter(|id| !taken.contains(id)).collect()
    }

    /// The hints of the device plugins for these wishes, which a container has or a whole pod.
    fn hints(&self, wishes: &BTreeMap<String, usize>, reuse: bool) -> BTreeMap<String, Hints> {
        let none = BTreeSet::new();
        let known = wishes.iter().filter(|(name, _)| self.resources.contains_key(*name));
        let hints = known.map(|(name, count)| {
            let available = self.available(name);
            let reusable = self.reusable.get(name).filter(|_| reuse);
            let reusable: BTreeSet<&str> = reusable.into_iter().flatten().map(String::as_str).collect();
            let devices = &self.resources[name].devices;
            let request =
                Request { devices, available: &available, reusable: &reusable, held: &none, count: *count };
            (name.clone(), devices::hints(&request, self.topology.machine()))
        });
        hints.collect()
    }

    fn allocate(&mut self, pod: &str, container: &Value, nodes: Option<NodeMask>) -> Result<(), Refused> {
        let name = text(&container["name"]);
        for (resource, count) in wishes(container) {
            let Some(own) = self.resources.get(&resource) else { continue };
            if own.healthy.is_empty() {
                let cause = "no healthy devices present; cannot allocate unhealthy devices";
                return Err(unexpected(format!("{cause} {resource}")));
            }
            if count == 0 {
                continue;
            }
            let available = self.available(&resource);
            let reusable = self.reusable.get(&resource);
            let reusable: BTreeSet<&str> = reusable.into_iter().flatten().map(String::as_str).collect();
            let held = BTreeSet::new();
            let devices = &own.devices;
            let request = Request { devices, available: &available, reusable: &reusable, held: &held, count };
            let choice = Choice::begin(&resource, &request, nodes).map_err(unexpected)?;
            let preferred: Vec<&str> = match choice.question() {
                Some(question) if self.prefers => {
                    let others = question.available.difference(&question.must_include);
                    question.must_include.iter().chain(others).copied().take(question.size).collect()
                }
                _ => Vec::new(),
            };
            let chosen = choice.finish(preferred).into_iter().map(str::to_owned).collect();
            self.held.insert((pod.to_owned(), name.to_owned(), resource), chosen);
        }
        let again = container["init"] == true && container["sidecar"] != true;
        let own = self.held.iter().filter(|((uid, holder, _), _)| uid == pod && holder == name);
        for ((_, _, resource), ids) in own {
            let reusable = self.reusable.entry(resource.clone()).or_default();
            if again {
                reusable.extend(ids.iter().cloned());
            } else {
                reusable.retain(|id| !ids.contains(id));
            }
        }
        Ok(())
    }

    /// Each container's hint.
    fn admit(&mut self, pod: &Value) -> Result<BTreeMap<String, Hint>, Refused> {
        let uid = text(&pod["uid"]);
        self.reusable.clear();
        let refused = |error: TopologyAffinityError| (TopologyAffinityError::REASON, error.to_string());
        let whole = self.topology.policy() != Policy::None && self.topology.scope() == Scope::Pod;
        let of_pod = whole.then(|| [self.hints(&wishes_of_pod(pod), false)]);
        let mut found = BTreeMap::new();
        for container in list(&pod["containers"]) {
            let own = of_pod.clone().unwrap_or_else(|| [self.hints(&wishes(container), true)]);
            let nodes = self.topology.align(&own).map_err(refused)?;
            found.insert(text(&container["name"]).to_owned(), self.topology.best(&own));
            self.allocate(uid, container, nodes)?;
        }
        Ok(found)
    }
}

fn wishes(container: &Value) -> BTreeMap<String, usize> {
    entries(&container["limits"]).map(|(name, wanted)| (name.clone(), count(wanted))).collect()
}

fn wishes_of_pod(pod: &Value) -> BTreeMap<String, usize> {
    let of = |init: bool| -> Vec<Value> {
        let of_kind = list(&pod["containers"]).iter().filter(|one| (one["init"] == true) == init);
        let made = of_kind.map(|one| {
            let limits: Map<String, Value> = entries(&one["limits"])
                .map(|(name, count)| (name.clone(), json!(count.to_string())))
                .collect();
            let policy = if one["sidecar"] == true { json!("Always") } else { Value::Null };
            json!({"restartPolicy": policy, "resources": {"limits": limits}})
        });
        made.collect()
    };
    let spec = json!({"containers": of(false), "initContainers": of(true)});
    let limits = PodResources::from(&spec).limits();
    limits.iter().map(|(name, amount)| (name.to_owned(), usize::try_from(amount.value()).unwrap())).collect()
}

fn admit(topology: &Topology, question: &Value) -> Value {
    let resources =
        entries(&question["resources"]).map(|(name, given)| (name.clone(), Resource::read(given)));
    let mut ledger = Ledger {
        topology,
        resources: resources.collect(),
        prefers: question["prefers"] == true,
        held: Held::new(),
        reusable: BTreeMap::new(),
    };
    let mut answers: Vec<Value> = Vec::new();
    for pod in list(&question["pods"]) {
        let uid = text(&pod["uid"]);
        if pod["gone"] == true {
            ledger.held.retain(|(holder, _, _), _| holder != uid);
            answers.push(json!({}));
            continue;
        }
        answers.push(match ledger.admit(pod) {
            Ok(found) => {
                let affinities: Map<String, Value> =
                    found.iter().map(|(name, hint)| (name.clone(), told(*hint))).collect();
                json!({"affinities": affinities, "devices": held(&ledger, pod, &found)})
            }
            Err((reason, message)) => {
                ledger.held.retain(|(holder, _, _), _| holder != uid);
                json!({"reason": reason, "message": message})
            }
        });
    }
    json!({"pods": answers})
}

/// The devices of each container, or how many lie within, elsewhere and nowhere where the choice is left to chance.
fn held(ledger: &Ledger<'_>, pod: &Value, found: &BTreeMap<String, Hint>) -> Value {
    let mut out: Map<String, Value> =
        list(&pod["containers"]).iter().map(|one| (text(&one["name"]).to_owned(), json!({}))).collect();
    for ((uid, container, resource), ids) in &ledger.held {
        if uid != text(&pod["uid"]) {
            continue;
        }
        let devices = &ledger.resources[resource].devices;
        let mut places = [0, 0, 0];
        for id in ids {
            let own: Vec<i64> = devices[id].iter().flatten().copied().filter(|node| *node != -1).collect();
            let place = match found[container].nodes {
                Some(_) if own.is_empty() => 2,
                Some(nodes) => usize::from(!nodes.meets(NodeMask::of(own))),
                None => 2,
            };
            places[place] += 1;
        }
        out[container][resource] = if ledger.prefers { json!(ids) } else { json!(places) };
    }
    out.into()
}
