//! The written questions: each feature alone, then together, with its corners and errors.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::scene::{
    DRIVER, NODE, Scene, all as all_of, cel, claim, class, devices, exactly, slice, taken, want, with,
};

/// Every written question.
pub(crate) fn all() -> Vec<Value> {
    let parts = [
        generations(),
        placements(),
        counts(),
        limits(),
        selectors(),
        constraints(),
        taints(),
        admin_access(),
        counters(),
        broken_counters(),
        capacities(),
        shares(),
        prioritized_lists(),
        configurations(),
        binding_conditions(),
        several_claims(),
        nonsense(),
    ];
    // Tables overlap in their corners.
    let mut known = BTreeSet::new();
    let questions = parts.into_iter().flatten().map(|scene| scene.question());
    questions.filter(|question| known.insert(question.to_string())).collect()
}

fn asks(request: Value) -> Value {
    claim("c", vec![request])
}

/// A slice of a generation of a pool.
fn of_pool(name: &str, generation: i64, count: usize, node: &str, device: &str) -> Value {
    let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": count});
    let spec = json!({"pool": pool, "nodeName": node, "devices": [{"name": device}]});
    with(slice("p", Vec::new()), json!({"metadata": {"name": name}, "spec": spec}))
}

fn generations() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let others = [None, Some((2, NODE)), Some((2, "n2")), Some((0, NODE)), Some((0, "n2")), Some((1, "n2"))];
    for declared in 1..4 {
        for there in 1..4 {
            for (number, other) in others.iter().enumerate() {
                for request in [exactly("r", 1), all_of("r")] {
                    let mut scene = Scene::new().claim(asks(request));
                    for at in 0..there {
                        let (name, device) = (format!("s{at}"), format!("d{at}"));
                        scene = scene.slice(of_pool(&name, 1, declared, NODE, &device));
                    }
                    if let Some((generation, node)) = other {
                        let name = if number % 2 == 0 { "a" } else { "z" };
                        scene = scene.slice(of_pool(name, *generation, declared, node, "other"));
                    }
                    scenes.push(scene);
                }
            }
        }
    }
    for request in [exactly("r", 1), all_of("r")] {
        let twice =
            with(slice("p", devices(2)), json!({"spec": {"devices": [{"name": "d"}, {"name": "d"}]}}));
        let scene = Scene::new().claim(asks(request)).slice(twice);
        scenes.push(scene.clone());
        // The next pool will do.
        scenes.push(scene.clone().slice(slice("q", devices(1))));
        scenes.push(scene.slice(slice("a", devices(1))));
    }
    scenes
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

/// Ways to say which nodes are meant.
fn places() -> Vec<Value> {
    let labels = |one: Value| json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [one]}]}});
    let name = |operator, value| {
        let one = requirement("metadata.name", operator, &[value]);
        json!({"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [one]}]}})
    };
    let zone = |value| json!({"matchExpressions": [requirement("zone", "In", &[value])]});
    vec![
        json!({"nodeName": NODE}),
        json!({"nodeName": "n2"}),
        json!({"nodeName": ""}),
        json!({"allNodes": true}),
        json!({"allNodes": false}),
        json!({}),
        labels(requirement("zone", "In", &["a", "b"])),
        labels(requirement("zone", "In", &["b"])),
        labels(requirement("zone", "NotIn", &["b"])),
        labels(requirement("zone", "Exists", &[])),
        labels(requirement("disk", "DoesNotExist", &[])),
        labels(requirement("disk", "Exists", &[])),
        labels(requirement("cores", "Gt", &["4"])),
        labels(requirement("cores", "Lt", &["4"])),
        labels(requirement("zone", "Gt", &["4"])),
        labels(requirement("zone", "Is", &["a"])),
        labels(requirement("zone", "In", &[])),
        labels(requirement("", "In", &["a"])),
        name("In", NODE),
        name("In", "n2"),
        name("NotIn", "n2"),
        name("Exists", NODE),
        json!({"nodeSelector": {"nodeSelectorTerms": []}}),
        json!({"nodeSelector": {"nodeSelectorTerms": [{}]}}),
        json!({"nodeSelector": {"nodeSelectorTerms": [zone("a"), zone("b")]}}),
        json!({"nodeSelector": {"nodeSelectorTerms": [zone("b"), zone("c")]}}),
    ]
}

fn placements() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for place in places() {
        for request in [exactly("r", 1), all_of("r")] {
            let mut one = slice("p", devices(2));
            one["spec"].as_object_mut().unwrap().remove("nodeName");
            let scene = Scene::new().claim(asks(request));
            scenes.push(scene.clone().slice(with(one.clone(), json!({"spec": place}))));
            // The same for the second device alone.
            let per_device = json!({"spec": {"perDeviceNodeSelection": true, "devices": [
                {"name": "d0", "nodeName": "n2"},
                with(json!({"name": "d1"}), place.clone()),
                {"name": "d2", "allNodes": true, "bindsToNode": false},
            ]}});
            scenes.push(scene.clone().slice(with(one, per_device)));
        }
    }
    // What several devices require of the node is required once.
    for (left, right) in [("a", "a"), ("a", "b"), ("b", "a")] {
        let zone = |value: &str| {
            let values = [value, "a"];
            json!({"nodeSelectorTerms": [{"matchExpressions": [requirement("zone", "In", &values)]}]})
        };
        let place = |pool: &str, value: &str, binds: bool| {
            let mut one = slice(pool, vec![json!({"name": "d", "bindsToNode": binds})]);
            one["spec"].as_object_mut().unwrap().remove("nodeName");
            with(one, json!({"spec": {"nodeSelector": zone(value)}}))
        };
        for binds in [false, true] {
            let scene = Scene::new().claim(asks(exactly("r", 2)));
            scenes.push(scene.slice(place("p", left, false)).slice(place("q", right, binds)));
        }
    }
    scenes
}

fn counts() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for there in 0..5 {
        for asked in 0..5 {
            for used in 0..3 {
                let mut scene =
                    Scene::new().slice(slice("p", devices(there))).claim(asks(exactly("r", asked)));
                for device in 0..used {
                    scene = scene.taken(taken("p", &format!("d{}", device * 2)));
                }
                scenes.push(scene);
            }
        }
        let scene = Scene::new().slice(slice("p", devices(there))).claim(asks(all_of("r")));
        scenes.push(scene.clone());
        scenes.push(scene.taken(taken("p", "d1")));
    }
    scenes
}

fn list(name: &str, wants: &[i64]) -> Value {
    let alternatives = wants.iter().enumerate().map(|(at, count)| {
        let name = json!({"name": format!("s{at}")});
        with(name, if *count > 0 { want(*count) } else { all_of("")["exactly"].clone() })
    });
    json!({"name": name, "firstAvailable": alternatives.collect::<Value>()})
}

fn limits() -> Vec<Scene> {
    let many = |count| Scene::new().slice(slice("p", devices(count)));
    let mut scenes = Vec::new();
    for count in 31..35 {
        let asked = i64::try_from(count).unwrap();
        scenes.push(many(40).claim(asks(exactly("r", asked))));
        scenes.push(many(count).claim(asks(all_of("r"))));
        scenes.push(many(40).claim(claim("c", vec![exactly("r", 16), exactly("s", asked - 16)])));
        scenes.push(many(count).claim(claim("c", vec![list("r", &[1]), list("s", &[asked - 1, 2])])));
    }
    scenes.push(many(70).claim(claim("c", vec![exactly("r", 32)])).claim(claim("d", vec![exactly("r", 32)])));
    scenes.push(many(40).claim(claim("c", vec![list("r", &[20, 3]), list("s", &[15, 14])])));
    scenes.push(many(40).claim(claim("c", vec![list("r", &[20, 18]), list("s", &[15, 14])])));
    scenes.push(many(40).claim(claim("c", vec![list("r", &[20, 19]), list("s", &[15, 14])])));
    scenes.push(many(40).claim(claim("c", vec![list("r", &[33, 34])])));
    scenes.push(many(40).claim(claim("c", vec![list("r", &[33, 0, 2])])));
    scenes.push(many(40).claim(claim("c", vec![list("r", &[1]), list("s", &[0, 32, 31])])));
    scenes
}

const SELECTORS: [&str; 30] = [
    "true",
    "false",
    "device.driver == 'a.example.com'",
    "device.driver == 'b.example.com'",
    "device.attributes['a.example.com'].model == 'x'",
    "device.attributes['a.example.com'].model == 'y'",
    "device.attributes['a.example.com'].size > 3",
    "device.attributes['a.example.com'].size == 4.0",
    "device.attributes['a.example.com'].healthy",
    "!device.attributes['a.example.com'].healthy",
    "device.attributes['a.example.com'].fw.isGreaterThan(semver('1.9.0'))",
    "device.attributes['a.example.com'].fw == semver('2.0.1')",
    "device.attributes['other.org'].model == 'other'",
    "'model' in device.attributes['other.org']",
    "'model' in device.attributes['nobody.org']",
    "device.attributes['nobody.org'].model == 'x'",
    "device.attributes['a.example.com'].none == 'x'",
    "has(device.attributes['a.example.com'].none)",
    "device.attributes['a.example.com'].?none.orValue('x') == 'x'",
    "device.capacity['a.example.com'].memory.compareTo(quantity('8Gi')) >= 0",
    "device.capacity['a.example.com'].memory.isLessThan(quantity('8Gi'))",
    "device.allowMultipleAllocations",
    "device.attributes['a.example.com'].model",
    "device.attributes['a.example.com'].size + 'x' == ''",
    "device.driver",
    "device.nothing",
    "1 +",
    "cel.bind(own, device.attributes['a.example.com'], own.size == 4 && own.model == 'y')",
    "device.attributes['a.example.com'].model.matches('^[xy]$')",
    "lists.range(100).map(a, lists.range(100).map(b, lists.range(100))).size() > 0",
];

/// Three devices that differ.
fn different() -> Vec<Value> {
    vec![
        json!({"name": "d0", "attributes": {
            "model": {"string": "x"}, "size": {"int": 2}, "healthy": {"bool": true}, "fw": {"version": "1.2.3"},
        }, "capacity": {"memory": {"value": "4Gi"}}}),
        json!({"name": "d1", "allowMultipleAllocations": true, "attributes": {
            "a.example.com/model": {"string": "y"}, "size": {"int": 4}, "healthy": {"bool": false},
            "fw": {"version": "2.0.1"}, "other.org/model": {"string": "other"},
        }, "capacity": {"memory": {"value": "16Gi"}}}),
        json!({"name": "d2", "attributes": {
            "model": {"string": "y"}, "size": {"int": 9}, "healthy": {"bool": true}, "fw": {"version": "2.0.1-rc.1"},
        }, "capacity": {"memory": {"value": "8589934592"}}}),
    ]
}

fn selectors() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for text in SELECTORS {
        for request in [exactly("r", 1), exactly("r", 2), all_of("r")] {
            let own = with(request.clone(), json!({"exactly": {"selectors": cel(&[text])}}));
            let scene = Scene::new().slice(slice("p", different()));
            scenes.push(scene.clone().claim(asks(own.clone())));
            let by_class = with(request, json!({"exactly": {"deviceClassName": "some"}}));
            scenes.push(scene.class(class("some", &[text])).claim(asks(by_class)));
        }
        let both = json!({"exactly": {"deviceClassName": "some", "selectors": cel(&["true", text])}});
        let second = claim("c", vec![exactly("q", 1), with(exactly("r", 1), both)]);
        let size = class("some", &["device.attributes['a.example.com'].size > 3"]);
        scenes.push(Scene::new().slice(slice("p", different())).class(size).claim(second));
        // Nobody asks a selector about no device.
        let own = with(exactly("r", 1), json!({"exactly": {"selectors": cel(&[text])}}));
        scenes.push(Scene::new().claim(asks(own)));
    }
    for broken in [json!({"version": "one"}), json!({}), json!({"strings": ["a"]})] {
        for selector in ["true", "device.driver == ''"] {
            let device = json!({"name": "d", "attributes": {"broken": broken}});
            let own = with(exactly("r", 1), json!({"exactly": {"selectors": cel(&[selector])}}));
            scenes.push(Scene::new().slice(slice("p", vec![device.clone()])).claim(asks(own)));
            scenes.push(Scene::new().slice(slice("p", vec![device])).claim(asks(exactly("r", 1))));
        }
    }
    scenes
}

fn constraints() -> Vec<Scene> {
    let values: [(&str, [Value; 4]); 7] = [
        ("string", ["a", "b", "a", "a"].map(|text| json!({"string": text}))),
        ("int", [1, 1, 2, 1].map(|number| json!({"int": number}))),
        ("bool", [true, false, false, true].map(|value| json!({"bool": value}))),
        ("version", ["1.0.0", "1.0.1", "1.0.1", "1.0.0"].map(|text| json!({"version": text}))),
        ("mixed", [json!({"string": "1"}), json!({"int": 1}), json!({"bool": true}), json!({"string": "1"})]),
        ("strange", [json!({}), json!({"int": 1}), json!({}), json!({"int": 2})]),
        ("different", [1, 2, 3, 4].map(|number| json!({"int": number}))),
    ];
    let mut scenes = Vec::new();
    for (_, values) in &values {
        for rule in ["matchAttribute", "distinctAttribute"] {
            for attribute in ["a.example.com/k", "other.org/k", "k"] {
                let offered = values.iter().enumerate().map(|(at, value)| {
                    let name = if at == 1 { "a.example.com/k" } else { "k" };
                    json!({"name": format!("d{at}"), "attributes": {name: value, "other.org/k": {"int": at / 2}}})
                });
                let slice = slice("p", offered.collect());
                let constrained = |requests: Vec<Value>, about: Value| {
                    let constraint = json!({rule: attribute, "requests": about});
                    let more = json!({"spec": {"devices": {"constraints": [constraint]}}});
                    Scene::new().slice(slice.clone()).claim(with(claim("c", requests), more))
                };
                for count in 2..4 {
                    scenes.push(constrained(vec![exactly("r", count)], json!([])));
                }
                let three = || vec![exactly("r", 1), exactly("s", 1), exactly("t", 1)];
                scenes.push(constrained(three(), json!([])));
                scenes.push(constrained(three(), json!(["r", "t"])));
                scenes.push(constrained(vec![exactly("r", 2), list("l", &[3, 1])], json!(["r", "l/s1"])));
                scenes.push(constrained(vec![all_of("r")], json!([])));
            }
        }
    }
    // Over two drivers, and two constraints at once.
    for (left, right) in [(1, 1), (1, 2), (2, 1)] {
        for rule in ["matchAttribute", "distinctAttribute"] {
            let device = |name: &str, number: i64| json!({"name": name, "attributes": {"node.org/numa": {"int": number}, "index": {"int": 7}}});
            let other = with(
                slice("q", vec![device("d0", right), device("d1", left)]),
                json!({"spec": {"driver": "b.example.com"}}),
            );
            let by_driver = |driver: &str| json!({"exactly": {"selectors": cel(&[&format!("device.driver == '{driver}'")])}});
            let requests = vec![
                with(exactly("r", 1), by_driver("a.example.com")),
                with(exactly("s", 1), by_driver("b.example.com")),
            ];
            for second in ["node.org/numa", "a.example.com/index", "b.example.com/index"] {
                let both = json!([{rule: "node.org/numa"}, {"matchAttribute": second, "requests": ["s"]}]);
                let more = json!({"spec": {"devices": {"constraints": both}}});
                let scene = Scene::new().slice(slice("p", vec![device("d0", left), device("d1", right)]));
                scenes.push(scene.slice(other.clone()).claim(with(claim("c", requests.clone()), more)));
            }
        }
    }
    scenes
}

fn taints() -> Vec<Scene> {
    let tolerations = [
        json!([]),
        json!([{"key": "k", "operator": "Equal", "value": "v"}]),
        json!([{"key": "k", "operator": "Equal", "value": "w"}]),
        json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]),
        json!([{"key": "k", "operator": "Exists"}]),
        json!([{"key": "l", "operator": "Exists"}]),
        json!([{"operator": "Exists"}]),
        json!([{"operator": "Exists", "effect": "NoExecute"}]),
        json!([{"key": "k", "operator": "Like", "value": "v"}]),
        json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}, {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]),
    ];
    let mut scenes = Vec::new();
    for effects in
        [vec!["None"], vec!["NoSchedule"], vec!["NoExecute"], vec!["Later"], vec!["NoSchedule", "NoExecute"]]
    {
        let tainted: Value =
            effects.iter().map(|effect| json!({"key": "k", "value": "v", "effect": effect})).collect();
        for tolerated in &tolerations {
            for (request, there) in [(exactly("r", 1), 1), (exactly("r", 1), 2), (all_of("r"), 2)] {
                let mut offered = devices(there);
                offered[0]["taints"] = tainted.clone();
                let request = with(request, json!({"exactly": {"tolerations": tolerated}}));
                scenes.push(Scene::new().slice(slice("p", offered)).claim(asks(request)));
            }
            let mut alternatives = list("r", &[1, 2]);
            alternatives["firstAvailable"][0]["tolerations"] = tolerated.clone();
            let mut offered = devices(3);
            offered[0]["taints"] = tainted.clone();
            offered[1]["taints"] = tainted.clone();
            offered[2]["taints"] = json!([{"key": "k", "effect": "None"}]);
            scenes.push(Scene::new().slice(slice("p", offered)).claim(asks(alternatives)));
        }
    }
    scenes
}

fn admin_access() -> Vec<Scene> {
    let admin = |request: Value| with(request, json!({"exactly": {"adminAccess": true}}));
    let plain = |request: Value| with(request, json!({"exactly": {"adminAccess": false}}));
    let mut scenes = Vec::new();
    for used in [None, Some("d0"), Some("d1")] {
        for requests in [
            vec![admin(exactly("r", 1))],
            vec![admin(exactly("r", 2))],
            vec![admin(exactly("r", 3))],
            vec![admin(all_of("r"))],
            vec![plain(exactly("r", 1))],
            vec![plain(exactly("r", 1)), admin(exactly("s", 1))],
            vec![admin(exactly("r", 1)), plain(exactly("s", 1))],
            vec![admin(exactly("r", 1)), admin(exactly("s", 2))],
            vec![admin(all_of("r")), admin(exactly("s", 1))],
            vec![admin(all_of("r")), plain(exactly("s", 1))],
        ] {
            for shareable in [false, true] {
                let mut offered = devices(2);
                if shareable {
                    offered[0]["allowMultipleAllocations"] = json!(true);
                    offered[0]["capacity"] =
                        json!({"memory": {"value": "4", "requestPolicy": {"default": "2"}}});
                }
                let mut scene = Scene::new().slice(slice("p", offered));
                if let Some(device) = used {
                    scene = scene.taken(taken("p", device));
                    scene = scene.taken(with(taken("p", "d1"), json!({"adminAccess": true})));
                }
                scenes.push(scene.clone().claim(claim("c", requests.clone())));
                let each = requests.iter().enumerate();
                let apart = each.fold(scene, |scene, (at, request)| {
                    scene.claim(claim(&format!("c{at}"), vec![request.clone()]))
                });
                if requests.len() > 1 {
                    scenes.push(apart);
                }
            }
        }
    }
    scenes
}

/// Slices of one pool, of which the first has counters.
fn partitions(sets: Value, slices: Vec<(&str, Vec<Value>)>) -> Scene {
    let pool = json!({"spec": {"pool": {"resourceSliceCount": slices.len() + 1}}});
    let mut counters = slice("p", Vec::new());
    counters["spec"].as_object_mut().unwrap().remove("devices");
    let counters =
        with(counters, json!({"metadata": {"name": "counters"}, "spec": {"sharedCounters": sets}}));
    let scene = Scene::new().slice(with(counters, pool.clone()));
    slices.into_iter().enumerate().fold(scene, |scene, (at, (node, devices))| {
        let own = json!({"metadata": {"name": format!("devices-{at}")}, "spec": {"nodeName": node}});
        scene.slice(with(with(slice("p", devices), pool.clone()), own))
    })
}

/// A device that takes so much of a counter of each set.
fn partition(name: &str, takes: &[(&str, &str)]) -> Value {
    let takes: Value = takes
        .iter()
        .map(|(set, amount)| json!({"counterSet": set, "counters": {"memory": {"value": amount}}}))
        .collect();
    json!({"name": name, "consumesCounters": takes})
}

fn counters() -> Vec<Scene> {
    let set = |name: &str, amount: &str| json!({"name": name, "counters": {"memory": {"value": amount}, "slots": {"value": "7"}}});
    let mut scenes = Vec::new();
    for whole in ["4", "8", "8Gi", "1500m", "0"] {
        for (small, large) in [("1", "4"), ("4Gi", "8Gi"), ("500m", "1"), ("0", "8")] {
            for request in [exactly("r", 1), exactly("r", 2), exactly("r", 3), all_of("r")] {
                let parts = vec![
                    partition("d0", &[("gpu", large)]),
                    partition("d1", &[("gpu", small)]),
                    partition("d2", &[("gpu", small)]),
                ];
                let elsewhere = vec![partition("e0", &[("gpu", large)])];
                let sets = json!([set("gpu", whole)]);
                let scene = partitions(sets, vec![(NODE, parts), ("n2", elsewhere)]).claim(asks(request));
                scenes.push(scene.clone());
                scenes.push(scene.clone().taken(taken("p", "d1")));
                scenes.push(scene.taken(taken("p", "e0")));
            }
        }
    }
    // Two sets, one of which may be overdrawn; and a claim for each device.
    for (left, right) in [("4", "4"), ("1", "4"), ("4", "1")] {
        for used in ["d0", "d1", "none"] {
            let parts = vec![
                partition("d0", &[("a", "2")]),
                partition("d1", &[("b", "2")]),
                partition("d2", &[("a", "1"), ("b", "1")]),
                json!({"name": "d3"}),
            ];
            let scene = partitions(json!([set("a", left), set("b", right)]), vec![(NODE, parts)]);
            let scene = scene.taken(taken("p", used));
            scenes.push(scene.clone().claim(asks(exactly("r", 2))));
            scenes.push(scene.clone().claim(asks(exactly("r", 3))));
            scenes.push(scene.claim(asks(exactly("r", 1))).claim(claim("d", vec![exactly("r", 1)])));
        }
    }
    scenes
}

fn broken_counters() -> Vec<Scene> {
    let set = |name: &str| json!({"name": name, "counters": {"memory": {"value": "4"}}});
    let mut scenes = Vec::new();
    for request in [exactly("r", 1), all_of("r")] {
        for sets in [json!([set("a")]), json!([set("a"), set("a")]), json!([set("b")])] {
            for node in [NODE, "n2"] {
                for takes in ["a", "c"] {
                    let first = vec![partition("d0", &[(takes, "1")])];
                    let second = vec![partition("d1", &[("a", "1")])];
                    let scene = partitions(sets.clone(), vec![(node, first), (NODE, second)]);
                    scenes.push(scene.clone().claim(asks(request.clone())));
                    scenes.push(scene.slice(slice("z", devices(1))).claim(asks(request.clone())));
                }
            }
        }
        let strange = json!({"name": "d", "consumesCounters": [{"counterSet": "a", "counters": {"none": {"value": "1"}}}]});
        scenes.push(partitions(json!([set("a")]), vec![(NODE, vec![strange])]).claim(asks(request.clone())));
        let only_counters = partitions(json!([set("a")]), vec![("n2", devices(1))]);
        scenes.push(only_counters.clone().claim(asks(request.clone())));
        scenes.push(only_counters.slice(slice("z", devices(1))).claim(asks(request)));
    }
    scenes
}

/// Policies of a capacity of 10Gi, and one with fractions.
fn policies() -> Vec<Value> {
    vec![
        json!(null),
        json!({"default": "1Gi"}),
        json!({"default": "2Gi", "validRange": {"min": "2Gi"}}),
        json!({"default": "2Gi", "validRange": {"min": "1Gi", "max": "5Gi"}}),
        json!({"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "3Gi"}}),
        json!({"default": "2Gi", "validRange": {"min": "0", "step": "1Gi"}}),
        json!({"default": "2Gi", "validValues": ["1Gi", "2Gi", "2560Mi", "6Gi"]}),
        json!({"validValues": []}),
    ]
}

fn memory(policy: &Value) -> Value {
    let value = json!({"memory": {"value": "10Gi"}});
    if policy.is_null() { value } else { with(value, json!({"memory": {"requestPolicy": policy}})) }
}

fn capacities() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for policy in policies() {
        for asked in ["", "0", "512Mi", "1Gi", "2500Mi", "4000000000", "5.5Gi", "6Gi", "7Gi", "10Gi", "11Gi"]
        {
            for shareable in [false, true] {
                let device = |name: &str| json!({"name": name, "allowMultipleAllocations": shareable, "capacity": memory(&policy)});
                let mut request = exactly("r", 1);
                if !asked.is_empty() {
                    let asked = json!({"capacity": {"requests": {"memory": asked}}});
                    request = with(request, json!({"exactly": asked}));
                }
                let scene = Scene::new().slice(slice("p", vec![device("d0"), device("d1")]));
                let share = |amount: &str| {
                    let consumed =
                        json!({"shareID": format!("of-{amount}"), "consumedCapacity": {"memory": amount}});
                    with(taken("p", "d0"), consumed)
                };
                scenes.push(scene.clone().claim(asks(request.clone())));
                if shareable {
                    let scene = scene.taken(share("3Gi")).taken(share("2.5Gi"));
                    let both = vec![with(request.clone(), json!({"name": "q"})), request];
                    scenes.push(scene.clone().claim(claim("c", both)));
                }
            }
        }
    }
    scenes
}

fn shares() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let asking = |amounts: Value| json!({"exactly": {"capacity": {"requests": amounts}}});
    let offered = |default: &str| {
        let capacity = json!({"memory": {"value": "10"}, "slots": {"value": "3", "requestPolicy": {"default": default}}});
        json!({"name": "d0", "allowMultipleAllocations": true, "capacity": capacity})
    };
    for default in ["1", "2", "0", "1500m"] {
        for amounts in
            [json!({"memory": "3"}), json!({"memory": "3", "slots": "1"}), json!({"none": "1"}), json!({})]
        {
            for claims in 1..5 {
                let mut scene = Scene::new().slice(slice("p", vec![offered(default)]));
                for at in 0..claims {
                    let request = with(exactly("r", 1), asking(amounts.clone()));
                    scene = scene.claim(claim(&format!("c{at}"), vec![request]));
                }
                scenes.push(scene);
            }
            let request = with(exactly("r", 2), asking(amounts.clone()));
            scenes.push(Scene::new().slice(slice("p", vec![offered(default)])).claim(asks(request)));
            let request = with(all_of("r"), asking(amounts.clone()));
            let mut two = vec![offered(default)];
            two.extend(devices(2).pop());
            scenes.push(Scene::new().slice(slice("p", two)).claim(asks(request)));
        }
    }
    // A device without any capacity can be shared by as many as like; one that is taken for itself cannot.
    let bare = json!({"name": "d0", "allowMultipleAllocations": true});
    let three = vec![exactly("r", 1), exactly("s", 1), exactly("t", 1)];
    let scene = Scene::new().slice(slice("p", vec![bare.clone()])).claim(claim("c", three));
    scenes.push(scene.clone());
    scenes.push(scene.clone().taken(taken("p", "d0")));
    scenes.push(scene.taken(with(taken("p", "d0"), json!({"shareID": "one"}))));
    // The first share of a device pays for its counters.
    for whole in ["0", "1", "2"] {
        for share in [json!({}), json!({"consumedCapacity": {"slots": "1"}})] {
            let sets = json!([{"name": "gpu", "counters": {"memory": {"value": whole}}}]);
            let part = |name: &str| with(partition(name, &[("gpu", "1")]), offered("1"));
            let parts = vec![
                with(part(""), json!({"name": "d0"})),
                with(part(""), json!({"name": "d1"})),
                partition("d2", &[("gpu", "1")]),
            ];
            let scene = partitions(sets, vec![(NODE, parts)]);
            for requests in [
                vec![exactly("r", 1), exactly("s", 1)],
                vec![exactly("r", 2), exactly("s", 1)],
                vec![
                    with(exactly("r", 1), asking(json!({"memory": "4"}))),
                    with(exactly("s", 1), asking(json!({"memory": "4"}))),
                ],
                vec![all_of("r")],
            ] {
                let claimed = scene.clone().claim(claim("c", requests));
                scenes.push(claimed.clone());
                let shared = with(json!({"shareID": "one"}), share.clone());
                scenes.push(claimed.clone().taken(with(taken("p", "d0"), shared)));
                scenes.push(claimed.taken(taken("p", "d2")));
            }
        }
    }
    scenes
}

fn prioritized_lists() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for there in 0..5 {
        for wants in [vec![1], vec![3, 1], vec![0, 2], vec![4, 3, 2, 1], vec![5, 0]] {
            for behind in [None, Some(exactly("z", 1)), Some(list("z", &[2, 1])), Some(all_of("z"))] {
                let requests: Vec<Value> = [list("r", &wants)].into_iter().chain(behind).collect();
                scenes.push(Scene::new().slice(slice("p", devices(there))).claim(claim("c", requests)));
            }
        }
    }
    for selector in
        ["device.attributes['a.example.com'].size > 3", "device.attributes['a.example.com'].none", "1 +"]
    {
        let mut request = list("r", &[2, 1, 1]);
        request["firstAvailable"][1]["selectors"] = cel(&[selector]);
        request["firstAvailable"][0]["capacity"] = json!({"requests": {"memory": "9Gi"}});
        let scene = Scene::new().slice(slice("p", different()));
        scenes.push(scene.clone().claim(asks(request.clone())));
        scenes.push(scene.clone().claim(claim("c", vec![exactly("q", 2), request.clone()])));
        request["firstAvailable"][1]["deviceClassName"] = json!("nobody");
        scenes.push(scene.claim(asks(request)));
    }
    scenes
}

fn configurations() -> Vec<Scene> {
    let opaque =
        |name: &str| json!({"opaque": {"driver": DRIVER, "parameters": {"kind": name, "n": [1, null, {}]}}});
    let mut scenes = Vec::new();
    for names in [
        json!([]),
        json!(["r"]),
        json!(["s", "r"]),
        json!(["l"]),
        json!(["l/s0"]),
        json!(["l/s1"]),
        json!(["l", "l/s1", "r"]),
        json!(["nobody"]),
        json!(["s0"]),
    ] {
        for there in [3, 4] {
            let mine = class("mine", &[]);
            let mine = with(mine, json!({"spec": {"config": [opaque("first"), opaque("second"), {}]}}));
            let own = |request: Value| with(request, json!({"exactly": {"deviceClassName": "mine"}}));
            let mut alternatives = list("l", &[2, 1]);
            alternatives["firstAvailable"][1]["deviceClassName"] = json!("mine");
            let requests = vec![own(exactly("r", 1)), alternatives, own(exactly("s", 1))];
            let named = with(opaque("named"), json!({"requests": names}));
            let more = json!({"spec": {"devices": {"config": [named, opaque("all")]}}});
            let scene = Scene::new().slice(slice("p", devices(there))).class(mine);
            scenes.push(scene.claim(with(claim("c", requests), more)));
        }
    }
    scenes
}

fn binding_conditions() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let binding = |conditions: Value| json!({"name": "d", "bindingConditions": conditions, "bindingFailureConditions": ["Broken"], "bindsToNode": true});
    for conditions in [json!(["Ready"]), json!(["Ready", "Steady"])] {
        for count in 1..5 {
            let scene = Scene::new().slice(slice("a", vec![binding(conditions.clone())]));
            let scene =
                scene.slice(slice("b", devices(1))).slice(slice("c", vec![binding(conditions.clone())]));
            scenes.push(scene.clone().claim(asks(exactly("r", count))));
            let mixed = slice("d", vec![devices(1).remove(0), binding(conditions.clone())]);
            scenes.push(scene.slice(mixed).claim(asks(exactly("r", count))));
        }
        scenes.push(Scene::new().slice(slice("a", vec![binding(conditions)])).claim(asks(all_of("r"))));
    }
    scenes
}

fn several_claims() -> Vec<Scene> {
    let mut scenes = Vec::new();
    let large = json!({"exactly": {"selectors": cel(&["device.attributes['a.example.com'].size > 3"])}});
    let requests = [
        exactly("r", 1),
        exactly("r", 2),
        with(exactly("r", 1), large.clone()),
        with(exactly("r", 2), large),
        all_of("r"),
        list("r", &[3, 1]),
    ];
    for first in &requests {
        for second in &requests {
            let one = claim("c", vec![first.clone()]);
            let two = claim("d", vec![second.clone()]);
            let scene = Scene::new().slice(slice("p", different()));
            scenes.push(scene.clone().claim(one.clone()).claim(two.clone()));
            scenes.push(scene.claim(one).claim(two).slice(slice("q", devices(2))));
        }
    }
    // The first choice has to be taken back.
    let match_size = json!({"spec": {"devices": {"constraints": [{"matchAttribute": "a.example.com/fw"}]}}});
    let scene = Scene::new().slice(slice("p", different()));
    let scene = scene.claim(claim("c", vec![exactly("r", 1)]));
    scenes.push(scene.claim(with(claim("d", vec![exactly("r", 1), exactly("s", 1)]), match_size)));
    scenes.push(Scene::new());
    scenes.push(Scene::new().claim(claim("c", Vec::new())).slice(slice("p", devices(1))));
    scenes
}

fn nonsense() -> Vec<Scene> {
    let offered = || Scene::new().slice(slice("p", devices(2)));
    let mut scenes = Vec::new();
    for changed in [
        json!({"deviceClassName": ""}),
        json!({"deviceClassName": "nobody"}),
        json!({"allocationMode": "Some"}),
        json!({"allocationMode": ""}),
        json!({"selectors": [{}]}),
        json!({"selectors": [{"cel": {"expression": "true"}}, {}]}),
    ] {
        let changed = json!({"exactly": changed});
        scenes.push(offered().claim(asks(with(exactly("r", 1), changed.clone()))));
        // What is wrong first is told first.
        scenes.push(offered().claim(claim("c", vec![exactly("q", 40), with(all_of("r"), changed.clone())])));
        scenes.push(
            offered().claim(asks(exactly("r", 33))).claim(claim("d", vec![with(exactly("r", 1), changed)])),
        );
    }
    for constraint in [json!({}), json!({"requests": ["r"]})] {
        let more = json!({"spec": {"devices": {"constraints": [{"matchAttribute": "a/b"}, constraint]}}});
        scenes.push(offered().claim(with(asks(exactly("r", 1)), more.clone())));
        scenes.push(offered().claim(with(asks(exactly("r", 33)), more)));
    }
    scenes
}
