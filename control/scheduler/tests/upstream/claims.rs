//! Questions about claims to devices: a few nodes with slices, classes, claims in every state, and a pod that names some.
//!
//! What devices a claim gets is compared elsewhere (tests/allocator): here it is which nodes do, why the others do not, and what
//! an alternative is worth. What leaves a choice to chance or to the clock is not asked.

use serde_json::{Value, json};

use crate::dice::Dice;

const GPU: &str = "example.com/gpu";
const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];

/// Every question.
pub(crate) fn all() -> Vec<Value> {
    (0..1000).map(question).collect()
}

fn question(seed: usize) -> Value {
    let mut dice = Dice::new(u64::try_from(seed).unwrap() + 77_000);
    let nodes = 1 + dice.below(5);
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})];
    for at in 0..nodes {
        let labels = json!({"kubernetes.io/hostname": format!("n{at}"), "zone": dice.pick(&["a", "b"])});
        let mut resources =
            json!({"cpu": if dice.one_in(6) { "50m" } else { "8" }, "memory": "16Gi", "pods": "20"});
        if dice.one_in(4) {
            resources[GPU] = json!(dice.pick(&["0", "1", "4"]));
        }
        objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}"), "labels": labels},
            "status": {"allocatable": resources, "capacity": resources}}));
        for driver in DRIVERS.iter().filter(|_| !dice.one_in(3)).collect::<Vec<_>>() {
            objects.push(slice(&mut dice, driver, at));
        }
    }
    if dice.one_in(3) {
        objects.push(shared_slice(&mut dice));
    }
    for class in ["any", "fast", "first"] {
        if !dice.one_in(12) {
            objects.push(class_of(class));
        }
    }
    let names = ["c0", "c1", "c2"];
    let count = 1 + dice.below(2);
    for name in &names[..=count] {
        if !dice.one_in(20) {
            objects.push(claim(&mut dice, name, nodes));
        }
    }
    let pod = pod(&mut dice, &names[..count]);
    json!({"objects": objects, "pod": pod})
}

fn device(dice: &mut Dice, at: usize) -> Value {
    let mut device =
        json!({"name": format!("d{at}"), "attributes": {"speed": {"string": dice.pick(&["fast", "slow"])}}});
    if dice.one_in(6) {
        device["taints"] = json!([{"key": "sick", "effect": "NoSchedule"}]);
    }
    if dice.one_in(10) {
        device["bindingConditions"] = json!(["attached"]);
        device["bindingFailureConditions"] = json!(["broken"]);
    }
    device
}

fn slice(dice: &mut Dice, driver: &str, node: usize) -> Value {
    let devices: Vec<Value> = (0..1 + dice.below(3)).map(|at| device(dice, at)).collect();
    let count = if dice.one_in(10) { 2 } else { 1 };
    let pool = json!({"name": format!("n{node}"), "generation": 1, "resourceSliceCount": count});
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{driver}-n{node}")},
        "spec": {"driver": driver, "nodeName": format!("n{node}"), "pool": pool, "devices": devices}})
}

fn shared_slice(dice: &mut Dice) -> Value {
    let devices: Vec<Value> = (0..2).map(|at| device(dice, at)).collect();
    let pool = json!({"name": "fabric", "generation": 1, "resourceSliceCount": 1});
    let mut spec = json!({"driver": DRIVERS[0], "pool": pool, "devices": devices});
    match dice.one_in(2) {
        true => spec["allNodes"] = json!(true),
        false => {
            spec["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "zone", "operator": "In", "values": ["a"]}]}]});
        }
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "fabric"}, "spec": spec})
}

fn class_of(name: &str) -> Value {
    let selectors = match name {
        "fast" => json!([{"cel": {"expression":
            "device.attributes['a.example.com'].speed == 'fast' || device.attributes['b.example.com'].speed == 'fast'"}}]),
        "first" => json!([{"cel": {"expression": "device.driver == 'a.example.com'"}}]),
        _ => json!([]),
    };
    // The class `fast` fails for devices of the second driver: such an attribute is not there.
    let mut spec = json!({"selectors": selectors});
    if name == "first" {
        spec["extendedResourceName"] = json!(GPU);
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec})
}

fn request(dice: &mut Dice, name: &str) -> Value {
    let class = |dice: &mut Dice| dice.pick(&["any", "any", "any", "first", "first", "fast"]);
    let tolerations = json!([{"key": "sick", "operator": "Exists"}]);
    if dice.one_in(3) {
        let mut list = Vec::new();
        for at in 0..1 + dice.below(3) {
            let mut one = json!({"name": format!("s{at}"), "deviceClassName": class(dice), "allocationMode": "ExactCount",
                "count": 3 - at.min(2)});
            if dice.one_in(3) {
                one["tolerations"] = tolerations.clone();
            }
            list.push(one);
        }
        return json!({"name": name, "firstAvailable": list});
    }
    let mut one = json!({"deviceClassName": class(dice), "allocationMode": "ExactCount", "count": dice.pick(&[1, 1, 1, 2, 4])});
    if dice.one_in(8) {
        one = json!({"deviceClassName": class(dice), "allocationMode": "All"});
    }
    if dice.one_in(4) {
        one["tolerations"] = tolerations;
    }
    json!({"name": name, "exactly": one})
}

fn claim(dice: &mut Dice, name: &str, nodes: usize) -> Value {
    let mut meta = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"});
    if dice.one_in(25) {
        meta["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        meta["finalizers"] = json!(["example.com/x"]);
    }
    match dice.below(8) {
        0 => {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "other", "controller": true});
            meta["ownerReferences"] = json!([owner]);
        }
        1 | 2 => {
            let owner =
                json!({"apiVersion": "v1", "kind": "Pod", "name": "new", "uid": "new", "controller": true});
            meta["ownerReferences"] = json!([owner]);
        }
        _ => {}
    }
    let requests: Vec<Value> = (0..1 + dice.below(2)).map(|at| request(dice, &format!("r{at}"))).collect();
    let mut status = json!({});
    if dice.one_in(3) {
        // Each claim another device: what two have, as a scheduler may leave it that is killed, upstream does not notice.
        status = allocated(dice, &requests, nodes, &name.replace('c', "d"));
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta,
        "spec": {"devices": {"requests": requests}}, "status": status})
}

fn allocated(dice: &mut Dice, requests: &[Value], nodes: usize, device: &str) -> Value {
    let node = format!("n{}", dice.below(nodes));
    let name = match requests[0]["firstAvailable"].as_array() {
        Some(list) => format!("r0/{}", list[dice.below(list.len())]["name"].as_str().unwrap()),
        None => "r0".to_owned(),
    };
    let driver = dice.pick(&DRIVERS);
    let mut result = json!({"request": name, "driver": driver, "pool": node, "device": device});
    let mut devices = json!(null);
    if dice.one_in(4) {
        result["bindingConditions"] = json!(["attached"]);
        result["bindingFailureConditions"] = json!(["broken"]);
        let kind = dice.pick(&["attached", "broken", "else"]);
        let condition = json!({"type": kind, "status": "True", "reason": "Told", "message": "so",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        devices = json!([{"driver": driver, "pool": node, "device": device, "conditions": [condition]}]);
    }
    let mut allocation = json!({"devices": {"results": [result]}});
    // Long ago, or never told.
    if dice.one_in(2) {
        allocation["allocationTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if !dice.one_in(4) {
        allocation["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    }
    let users = match dice.below(3) {
        0 => json!([]),
        1 => json!([{"resource": "pods", "name": "new", "uid": "new"}]),
        _ => json!([{"resource": "pods", "name": "another", "uid": "another"}]),
    };
    json!({"allocation": allocation, "reservedFor": users, "devices": devices})
}

fn pod(dice: &mut Dice, names: &[&str]) -> Value {
    let (mut entries, mut statuses) = (Vec::new(), Vec::new());
    for (at, name) in names.iter().enumerate() {
        let entry = format!("e{at}");
        match dice.below(5) {
            0 => {
                entries.push(json!({"name": entry, "resourceClaimTemplateName": "t"}));
                match dice.below(6) {
                    0 => {}
                    1 => statuses.push(json!({"name": entry})),
                    _ => statuses.push(json!({"name": entry, "resourceClaimName": name})),
                }
            }
            _ => entries.push(json!({"name": entry, "resourceClaimName": name})),
        }
    }
    let mut requests = json!({"cpu": "100m"});
    if dice.one_in(3) {
        let resource = dice.pick(&[GPU, GPU, "deviceclass.resource.kubernetes.io/any", "example.com/other"]);
        requests[resource] = json!(dice.pick(&["1", "1", "2", "3"]));
        if dice.one_in(2) {
            (entries, statuses) = (Vec::new(), Vec::new());
        }
    }
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": requests}}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "default", "uid": "new"},
        "spec": {"schedulerName": "default-scheduler", "containers": containers, "resourceClaims": entries},
        "status": {"resourceClaimStatuses": statuses}})
}
