//! What nodes answered is kept: it must be what they would answer now, whatever came and changed in whatever order.

use std::collections::BTreeMap;

use podwire_scheduler::Configuration;
use podwire_scheduler::explain::Explainer;
use serde_json::{Value, json};

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

fn node(dice: &mut Dice) -> Value {
    let name = format!("n{}", dice.below(4));
    json!({"kind": "Node", "metadata": {"name": name, "labels": {"zone": dice.pick(&["a", "b"])}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}})
}

fn slice(dice: &mut Dice) -> Value {
    let (name, pool) = (format!("s{}", dice.below(6)), dice.pick(&["p", "q"]));
    let device = |at: u64, dice: &mut Dice| json!({"name": format!("{name}-d{at}"), "attributes": {"model": {"string": dice.pick(&["x", "y"])}}});
    let devices: Vec<Value> = (0..1 + dice.below(2)).map(|at| device(at, dice)).collect();
    let pool = json!({"name": pool, "generation": 1, "resourceSliceCount": 1 + dice.below(3)});
    let mut spec = json!({"driver": "d.example", "pool": pool, "devices": devices});
    match dice.below(4) {
        0 => {
            spec["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "zone", "operator": "In", "values": [dice.pick(&["a", "b"])]}]}]})
        }
        _ => spec["nodeName"] = json!(format!("n{}", dice.below(4))),
    }
    json!({"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
}

fn class(dice: &mut Dice) -> Value {
    let text = format!("device.attributes['d.example'].model == '{}'", dice.pick(&["x", "y"]));
    let selectors = if dice.below(2) == 0 { json!([]) } else { json!([{"cel": {"expression": text}}]) };
    json!({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
}

fn claim(name: &str, dice: &mut Dice) -> Value {
    let exactly =
        json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1 + dice.below(2)});
    let mut claim = json!({"kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
    if name != "own" && dice.below(2) == 0 {
        let device = format!("s{}-d{}", dice.below(6), dice.below(2));
        let result =
            json!({"request": "r", "driver": "d.example", "pool": dice.pick(&["p", "q"]), "device": device});
        claim["status"] = json!({"allocation": {"devices": {"results": [result]}}});
    }
    claim
}

#[test]
fn nodes_answer_as_if_they_were_asked_for_the_first_time() {
    let mut dice = Dice(11);
    let pod = json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec":
        {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "e", "resourceClaimName": "own"}]}});
    let (mut fits, mut refused) = (0, 0);
    for _ in 0..40 {
        let mut lived = Explainer::new(&Configuration::default());
        let mut objects: BTreeMap<String, Value> = BTreeMap::new();
        for _ in 0..80 {
            let made = match dice.below(8) {
                0 => node(&mut dice),
                1..=3 => slice(&mut dice),
                4 => class(&mut dice),
                5 => claim("own", &mut dice),
                _ => {
                    let name = format!("other{}", dice.below(4));
                    claim(&name, &mut dice)
                }
            };
            lived.add(&made).unwrap();
            objects.insert(format!("{}/{}", made["kind"], made["metadata"]["name"]), made);
            let mut fresh = Explainer::new(&Configuration::default());
            objects.values().for_each(|one| assert!(fresh.add(one).unwrap()));
            let (old, new) = (lived.explain(&pod).unwrap().unwrap(), fresh.explain(&pod).unwrap().unwrap());
            assert_eq!(old, new, "{objects:#?}");
            fits += old.scores.len();
            refused += old.refused.len();
        }
    }
    assert!(fits > 100 && refused > 100, "{fits} {refused}");
}
