//! The questions: written ones for the corners, generated ones for the rest.
//!
//! What upstream leaves to chance is not asked: which of several devices is used again (in a pod with init containers no
//! container wants fewer of a resource than the one before), and which of two resources that are both short is named
//! (`plenty` never is, and the two that may be are never wanted by the same container).

use serde_json::{Map, Value, json};

use crate::dice::Dice;

const POLICIES: [&str; 4] = ["best-effort", "restricted", "single-numa-node", "none"];
const SCOPES: [&str; 2] = ["container", "pod"];
/// The one of which there are always enough.
const PLENTY: &str = "example.com/plenty";
const SCARCE: [&str; 2] = ["example.com/gpu", "example.org/nic"];

/// Makes a question; how many there are in all; how many of them are recorded.
type Maker = (fn(&mut Dice) -> Value, usize, usize);

const MAKERS: [Maker; 3] = [(merge, 1500, 500), (admit, 700, 40), (admit_by_chance, 300, 20)];

fn gather(count: fn(usize, usize) -> usize) -> Vec<Value> {
    let mut questions = starts();
    for ((make, all, recorded), seed) in MAKERS.into_iter().zip(1..) {
        let mut dice = Dice::new(seed);
        questions.extend((0..count(all, recorded)).map(|_| make(&mut dice)));
    }
    questions
}

/// Every question.
pub(crate) fn all() -> Vec<Value> {
    gather(|all, _| all)
}

/// The questions whose answers are recorded.
pub(crate) fn fixed() -> Vec<Value> {
    gather(|_, recorded| recorded)
}

fn nodes(count: usize) -> Value {
    (0..count).map(|id| json!({"id": id})).collect()
}

/// What may be configured, right and wrong.
fn starts() -> Vec<Value> {
    let far: Value = (0..2).map(|id| json!({"id": id, "distances": [10, 21]})).collect();
    let mut questions = Vec::new();
    let mut add = |policy: &str, scope: &str, options: Value, nodes: &Value| {
        let machine = json!({"policy": policy, "scope": scope, "options": options, "nodes": nodes});
        questions.push(json!({"ask": "start", "machine": machine}));
    };
    for policy in ["none", "best-effort", "restricted", "single-numa-node", "", "None", "strict"] {
        for scope in ["container", "pod", "", "node"] {
            add(policy, scope, json!({}), &nodes(2));
        }
    }
    for value in ["true", "false", "1", "0", "t", "F", "True", "TRUE", "yes", "", "tRUE", " true"] {
        add("restricted", "pod", json!({"prefer-closest-numa-nodes": value}), &far);
        add("none", "pod", json!({"prefer-closest-numa-nodes": value}), &far);
    }
    add("restricted", "pod", json!({"prefer-closest-numa-nodes": "true"}), &nodes(2));
    add("restricted", "pod", json!({"prefer-closest-numa-nodes": "false"}), &nodes(2));
    let numbers = [
        "8",
        "7",
        "9",
        "+12",
        "-3",
        "0",
        "1e1",
        "",
        "08",
        "9.0",
        " 9",
        "9223372036854775808",
        "-9223372036854775809",
    ];
    for value in numbers {
        add("best-effort", "container", json!({"max-allowable-numa-nodes": value}), &nodes(9));
        add("none", "container", json!({"max-allowable-numa-nodes": value}), &nodes(9));
    }
    for count in [1, 8, 9, 12] {
        add("best-effort", "container", json!({}), &nodes(count));
        add("best-effort", "container", json!({"max-allowable-numa-nodes": "10"}), &nodes(count));
        add("bad", "bad", json!({"max-allowable-numa-nodes": "10"}), &nodes(count));
    }
    add("best-effort", "bad", json!({"farthest": "true"}), &nodes(2));
    add("none", "bad", json!({"farthest": "true"}), &nodes(2));
    questions
}

fn policy(dice: &mut Dice) -> &'static str {
    if dice.one_in(20) { POLICIES[3] } else { dice.pick(&POLICIES[..3]) }
}

fn machine(dice: &mut Dice) -> Value {
    let count = if dice.one_in(8) { 5 + dice.below(4) } else { 1 + dice.below(4) };
    let closest = dice.one_in(3);
    // Upstream looks distances up by a node's number, so that the numbers have no gaps where they count.
    let gap = if closest || !dice.one_in(4) { 1 } else { 1 + dice.below(7) };
    let near: Vec<Vec<usize>> = (0..count)
        .map(|a| (0..count).map(|b| if a == b { 10 } else { 11 + dice.below(4) * 10 }).collect())
        .collect();
    let nodes: Value = (0..count)
        .map(|at| if closest { json!({"id": at, "distances": near[at]}) } else { json!({"id": at * gap}) })
        .collect();
    let mut options = Map::new();
    if closest {
        options.insert("prefer-closest-numa-nodes".to_owned(), json!("true"));
    }
    json!({"policy": policy(dice), "scope": dice.pick(&SCOPES), "options": options, "nodes": nodes})
}

fn ids(machine: &Value) -> Vec<i64> {
    machine["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_i64().unwrap()).collect()
}

fn hint(dice: &mut Dice, ids: &[i64]) -> Value {
    if dice.one_in(12) {
        return json!({"nodes": null, "preferred": dice.one_in(2)});
    }
    let few = 1 + dice.below(3);
    let mut nodes: Vec<i64> = ids.iter().copied().filter(|_| dice.one_in(few)).collect();
    if dice.one_in(15) {
        nodes.push(63);
    }
    json!({"nodes": nodes, "preferred": !dice.one_in(3)})
}

fn hints(dice: &mut Dice, ids: &[i64]) -> Value {
    if dice.one_in(10) {
        return Value::Null;
    }
    let most = if dice.one_in(12) { 1 } else { 6 };
    (0..dice.below(most)).map(|_| hint(dice, ids)).collect()
}

/// Hints of providers that know no devices.
fn merge(dice: &mut Dice) -> Value {
    let machine = machine(dice);
    let ids = ids(&machine);
    let provider = |dice: &mut Dice| -> Value {
        if dice.one_in(12) {
            return Value::Null;
        }
        (0..dice.below(4))
            .map(|at| (format!("resource-{at}"), hints(dice, &ids)))
            .collect::<Map<_, _>>()
            .into()
    };
    let providers: Vec<Value> = (0..dice.below(4)).map(|_| provider(dice)).collect();
    json!({"ask": "merge", "machine": machine, "providers": providers})
}

fn places(dice: &mut Dice, ids: &[i64]) -> Value {
    match dice.below(30) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!([-1]),
        3 => json!([99]),
        4 => json!([-1, dice.pick(ids)]),
        5 => json!([99, dice.pick(ids)]),
        6..=9 => json!([dice.pick(ids), dice.pick(ids)]),
        _ => json!([dice.pick(ids)]),
    }
}

fn devices(dice: &mut Dice, ids: &[i64], count: usize, ill: usize) -> Value {
    let silent = dice.one_in(10);
    let device = |at: usize| {
        let nodes = if silent { Value::Null } else { places(dice, ids) };
        let health = if dice.below(100) < ill { "Unhealthy" } else { "Healthy" };
        // Names in no order of the nodes.
        json!({"id": format!("{:02}", (at * 7) % 31), "nodes": nodes, "health": health})
    };
    (0..count).map(device).collect()
}

fn resources(dice: &mut Dice, ids: &[i64]) -> Map<String, Value> {
    let mut resources = Map::new();
    for name in SCARCE {
        let count = 1 + dice.below(9);
        let ill = dice.pick(&[0, 0, 0, 20, 100]);
        resources.insert(name.to_owned(), devices(dice, ids, count, ill));
    }
    resources.insert(PLENTY.to_owned(), devices(dice, ids, 24, 0));
    resources
}

fn limits(dice: &mut Dice, scarce: usize) -> Map<String, Value> {
    let mut limits = Map::new();
    if !dice.one_in(4) {
        limits.insert(dice.pick(&SCARCE).to_owned(), json!(scarce));
    }
    if dice.one_in(2) {
        limits.insert(PLENTY.to_owned(), json!(1));
    }
    if dice.one_in(10) {
        limits.insert("cpu".to_owned(), json!(2));
    }
    limits
}

fn pod(dice: &mut Dice, uid: String) -> Value {
    let inits = if dice.one_in(3) { 1 + dice.below(2) } else { 0 };
    let most = if dice.one_in(5) { 5 } else { 3 };
    let mut scarce = if dice.one_in(12) { 0 } else { 1 + dice.below(most) };
    let container = |at: usize| {
        let init = at < inits;
        let sidecar = init && dice.one_in(3);
        let container = json!({"name": format!("c{at}"), "init": init, "sidecar": sidecar, "limits": limits(dice, scarce)});
        scarce = if inits > 0 { scarce + dice.below(2) } else { 1 + dice.below(most) };
        container
    };
    let count = inits + 1 + if inits == 0 { 0 } else { 1 };
    let containers: Vec<Value> = (0..count).map(container).collect();
    json!({"uid": uid, "containers": containers})
}

/// Pods that come and go, and plugins that say which devices they like.
fn admit(dice: &mut Dice) -> Value {
    let machine = machine(dice);
    let resources = resources(dice, &ids(&machine));
    let mut pods: Vec<Value> = Vec::new();
    for at in 0..1 + dice.below(5) {
        pods.push(pod(dice, format!("p{at}")));
        if dice.one_in(4) {
            pods.push(json!({"uid": format!("p{}", dice.below(at + 1)), "gone": true}));
        }
    }
    json!({"ask": "admit", "machine": machine, "resources": resources, "prefers": true, "pods": pods})
}

/// One pod with one container, and plugins that like every device the same.
fn admit_by_chance(dice: &mut Dice) -> Value {
    let machine = machine(dice);
    let resources = resources(dice, &ids(&machine));
    let scarce = 1 + dice.below(6);
    let container = json!({"name": "c", "limits": limits(dice, scarce)});
    let pods = json!([{"uid": "p", "containers": [container]}]);
    json!({"ask": "admit", "machine": machine, "resources": resources, "prefers": false, "pods": pods})
}
