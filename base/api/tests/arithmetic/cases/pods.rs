//! Pods with any mix of containers, init containers, sidecars, overhead and requirements of the pod as a whole.

use serde_json::{Map, Value, json};

use super::Kind;
use crate::dice::Dice;

const NAMES: &[&str] =
    &["cpu", "cpu", "memory", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/nic"];
const AMOUNTS: &[&str] = &[
    "0",
    "1",
    "2",
    "100m",
    "0.1",
    "1500m",
    "1.5",
    "0.1m",
    "1n",
    "1e3",
    "64Mi",
    "1.5Gi",
    "1Gi",
    "128974848",
    "1G",
    "5",
    "1E",
    "250m",
    "1.125",
    "-1",
];

fn list(dice: &mut Dice, most: usize) -> Value {
    let amounts = (0..dice.below(most + 1)).map(|_| {
        let amount = dice.pick(AMOUNTS);
        (dice.pick(NAMES).to_owned(), json!(amount))
    });
    Value::Object(amounts.collect::<Map<_, _>>())
}

fn requirements(dice: &mut Dice) -> Value {
    match dice.below(8) {
        0 => json!({}),
        1 => json!({"requests": list(dice, 4)}),
        2 => json!({"limits": list(dice, 4)}),
        // Pods that can be guaranteed.
        3..=5 => {
            let (cpu, memory) = (dice.pick(&["1", "500m", "1.5"]), dice.pick(&["1Gi", "64Mi", "1e9"]));
            let same = json!({"cpu": cpu, "memory": memory});
            json!({"requests": same, "limits": same})
        }
        _ => json!({"requests": list(dice, 4), "limits": list(dice, 4)}),
    }
}

fn pod(dice: &mut Dice) -> Value {
    let mut containers = Vec::new();
    for number in 0..=dice.below(3) {
        containers.push(json!({"name": format!("c{number}"), "resources": requirements(dice)}));
    }
    let mut init = Vec::new();
    for number in 0..dice.below(4) {
        let mut one = json!({"name": format!("i{number}"), "resources": requirements(dice)});
        match dice.below(5) {
            0 | 1 => one["restartPolicy"] = json!("Always"),
            2 => one["restartPolicy"] = json!("OnFailure"),
            _ => {}
        }
        init.push(one);
    }
    let mut spec = json!({"containers": containers, "initContainers": init});
    if dice.one_in(3) {
        spec["overhead"] = list(dice, 3);
    }
    if dice.one_in(3) {
        spec["resources"] = requirements(dice);
    }
    let mut pod = json!({"spec": spec});
    if dice.one_in(2) {
        pod["status"] = status(dice, &pod["spec"]);
    }
    json!({"ask": "pod", "pod": pod})
}

/// What a node says while a pod is resized.
fn status(dice: &mut Dice, spec: &Value) -> Value {
    let mut reached = |containers: &Value| {
        let mut out = Vec::new();
        for container in containers.as_array().unwrap() {
            let mut one = json!({"name": container["name"]});
            if !dice.one_in(4) {
                one["resources"] = requirements(dice);
            }
            if !dice.one_in(3) {
                one["allocatedResources"] = list(dice, 4);
            }
            if !dice.one_in(6) {
                out.push(one);
            }
        }
        out
    };
    let (containers, init) = (reached(&spec["containers"]), reached(&spec["initContainers"]));
    let mut out = json!({"containerStatuses": containers, "initContainerStatuses": init});
    if dice.one_in(2) {
        let reason = dice.pick(&["Infeasible", "Deferred"]);
        out["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
    if dice.one_in(2) {
        out["resources"] = requirements(dice);
        out["allocatedResources"] = list(dice, 4);
    }
    out
}

pub(super) fn pods() -> Kind {
    let one = |resources: Value| json!({"name": "c", "resources": resources});
    let nic = json!({"requests": {"example.com/nic": "1"}, "limits": {"example.com/nic": "1"}});
    let small = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    let written = [
        json!({"containers": []}),
        json!({"containers": [one(json!({}))]}),
        json!({"containers": [one(nic)]}),
        // Overhead on top of what is given for the pod as a whole.
        json!({"containers": [one(small.clone())], "overhead": {"cpu": "10m", "memory": "1Mi"},
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}}),
        // Not a resource that may be given for the pod as a whole.
        json!({"containers": [one(small.clone())], "resources": {"requests": {"ephemeral-storage": "1Gi"}}}),
        json!({"containers": [one(small.clone())], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
        json!({"containers": [one(small)], "resources": {}}),
        // Limits alone: the API server would have filled in the requests.
        json!({"containers": [one(json!({"limits": {"cpu": "1", "memory": "1Gi"}}))]}),
        // Equal only in the sum.
        json!({"containers": [
            one(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}})),
            one(json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}})),
        ]}),
    ];
    let written = written.map(|spec| json!({"ask": "pod", "pod": {"spec": spec}}));
    Kind { written: written.to_vec(), make: pod, all: 520, recorded: 20 }
}
