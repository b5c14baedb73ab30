//! Questions made up by chance, of every feature together.
//!
//! What upstream cannot answer is not asked: a step of nothing, a policy whose default it does not allow, requests of no kind.
//! Neither are fractions of binary units (`5.5Gi`) asked of several devices with a policy: upstream adds up in place what it
//! compares, so that such a request grows with each device it is held against.
//! What would take it long is not asked either: pools are small.

use serde_json::{Map, Value, json};

use crate::dice::Dice;
use crate::scene::{NODE, Scene, cel, with};

/// The features, each with what a question holds that has it.
pub(crate) const FEATURES: [(&str, &str); 31] = [
    ("several slices of a pool", "\"resourceSliceCount\":2"),
    ("old generations", "\"generation\":1,"),
    ("all nodes", "\"allNodes\":true"),
    ("node selectors", "\"nodeSelectorTerms\""),
    ("per-device node selection", "\"perDeviceNodeSelection\":true"),
    ("a second driver", "b.example.com"),
    ("a prioritized list", "\"firstAvailable\""),
    ("all devices", "\"allocationMode\":\"All\""),
    ("admin access", "\"adminAccess\":true"),
    ("selectors of a request", "\"count\":1,\"deviceClassName\":\"any\",\"selectors\":"),
    ("selectors of a class", "\"deviceClassName\":\"large\""),
    ("a match constraint", "\"matchAttribute\""),
    ("a distinct constraint", "\"distinctAttribute\""),
    ("taints", "\"effect\":\"NoSchedule\",\"key\":\"k\""),
    ("tolerations", "\"tolerations\""),
    ("counters", "\"sharedCounters\""),
    ("counters of two sets", "\"counterSet\":\"y\""),
    ("shareable devices", "\"allowMultipleAllocations\":true"),
    ("a request for capacity", "\"requests\":{\"memory\""),
    ("a default of a policy", "\"default\""),
    ("a range of a policy", "\"validRange\""),
    ("values of a policy", "\"validValues\""),
    ("binding conditions", "\"bindingConditions\""),
    ("devices that bind to a node", "\"bindsToNode\":true"),
    ("configuration of a class", "\"kind\":\"class\""),
    ("configuration of a claim", "\"kind\":\"claim\""),
    ("several requests", "\"name\":\"r1\""),
    ("several claims", "\"name\":\"c1\""),
    ("devices of other claims", "\"request\":\"other\""),
    ("shares of other claims", "\"shareID\""),
    ("what other claims take", "\"consumedCapacity\""),
];

/// What some answers hold.
pub(crate) const IN_ANSWERS: [&str; 14] = [
    "CEL runtime error",
    "CEL compile error",
    "could not retrieve device class",
    "unsupported count mode",
    "is currently being updated",
    "is currently invalid",
    "invalid resource pools were encountered",
    "exceeds the claim limit",
    "a claim constraint would not be satisfied",
    "failed to perform node selection",
    "\"matchFields\"",
    "\"matchExpressions\"",
    "\"consumedCapacity\"",
    "\"bindingConditions\"",
];

/// The first so many of them.
pub(crate) fn some(count: usize) -> Vec<Value> {
    let mut dice = Dice::new(19);
    (0..count).map(|_| Maker { dice: &mut dice, dull: false }.question()).collect()
}

struct Maker<'a> {
    dice: &'a mut Dice,
    /// Whether nothing in it makes no sense.
    dull: bool,
}

const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];
const SELECTORS: [&str; 8] = [
    "device.attributes['node.org'].numa == 0",
    "device.attributes['a.example.com'].?size.orValue(0) > 2",
    "device.driver == 'a.example.com'",
    "device.driver == 'b.example.com'",
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "has(device.capacity[device.driver].memory) && device.capacity[device.driver].memory.compareTo(quantity('4Gi')) >= 0",
    "device.attributes[device.driver].?fw.hasValue() && device.attributes[device.driver].fw.isLessThan(semver('2.0.0'))",
];
const BAD_SELECTORS: [&str; 3] =
    ["device.attributes['a.example.com'].size > 2", "device.attributes['a'].b.c", "1 +"];
const ATTRIBUTES: [&str; 5] =
    ["node.org/numa", "a.example.com/size", "b.example.com/size", "a.example.com/fw", "node.org/root"];

impl Maker<'_> {
    fn question(mut self) -> Value {
        self.dull = !self.dice.one_in(6);
        let mut scene = Scene::default();
        for (name, selector) in [("any", None), ("large", Some(SELECTORS[6])), ("first", Some(SELECTORS[0]))]
        {
            let selectors: Vec<&str> = selector.into_iter().collect();
            let mut class = json!({"metadata": {"name": name}, "spec": {"selectors": cel(&selectors)}});
            if self.dice.one_in(4) {
                class["spec"]["config"] = json!([self.config("class")]);
            }
            scene.classes.push(class);
        }
        let pools = 1 + self.dice.below(3);
        for pool in 0..pools {
            self.pool(&mut scene, pool);
        }
        for claim in 0..1 + self.dice.below(5) / 3 {
            let claim = self.claim(claim);
            scene.claims.push(claim);
        }
        scene.question()
    }

    fn odd(&mut self, n: usize) -> bool {
        !self.dull && self.dice.one_in(n)
    }

    fn config(&mut self, kind: &str) -> Value {
        let driver = self.dice.pick(&DRIVERS);
        json!({"opaque": {"driver": driver, "parameters": {"kind": kind, "n": self.dice.below(3)}}})
    }

    /// Adds a pool: one or two slices of devices, perhaps counters, perhaps of another generation.
    fn pool(&mut self, scene: &mut Scene, number: usize) {
        let (driver, name) = (self.dice.pick(&DRIVERS), format!("p{}", self.dice.below(3)));
        let counters = self.dice.one_in(4);
        let slices = 1 + self.dice.below(2);
        let count = slices + usize::from(counters);
        let place = self.slice_place();
        let mut devices = 0;
        for at in 0..slices {
            let mut spec = json!({"driver": driver});
            let generation = 2 + i64::from(self.odd(6));
            let count = if self.odd(6) { count + 1 } else { count };
            spec["pool"] = json!({"name": name, "generation": generation, "resourceSliceCount": count});
            let place = if self.dice.one_in(4) { self.slice_place() } else { place.clone() };
            let per_device = place.get("perDeviceNodeSelection").is_some();
            spec = with(spec, place);
            let mut list = Vec::new();
            for _ in 0..1 + self.dice.below(3) {
                let name = if self.odd(12) { "d0".to_owned() } else { format!("d{devices}") };
                devices += 1;
                let mut device = self.device(&name, counters);
                if per_device {
                    device = with(device, self.place());
                }
                self.take(scene, driver, spec["pool"]["name"].as_str().unwrap(), &device);
                list.push(device);
            }
            spec["devices"] = json!(list);
            let slice = format!("s{number}{at}");
            if self.dice.one_in(8) {
                let mut old = spec.clone();
                old["pool"]["generation"] = json!(1);
                scene.slices.push(json!({"metadata": {"name": format!("{slice}-old")}, "spec": old}));
            }
            scene.slices.push(json!({"metadata": {"name": slice}, "spec": spec}));
        }
        if counters {
            let pool = json!({"name": name, "generation": 2, "resourceSliceCount": count});
            let mut sets: Vec<Value> = ["x", "y"].iter().map(|set| self.counter_set(set)).collect();
            if self.odd(8) {
                sets.pop();
            }
            let spec = json!({"driver": driver, "pool": pool, "nodeName": NODE, "sharedCounters": sets});
            scene.slices.push(json!({"metadata": {"name": format!("counters{number}")}, "spec": spec}));
        }
    }

    fn counter_set(&mut self, name: &str) -> Value {
        let amount = self.dice.pick(&["4", "6", "8Gi", "5"]);
        json!({"name": name, "counters": {"memory": {"value": amount}, "slots": {"value": "3"}}})
    }

    fn slice_place(&mut self) -> Value {
        match self.dice.below(8) {
            0..5 => json!({"nodeName": NODE}),
            5 => json!({"perDeviceNodeSelection": true}),
            _ => self.place(),
        }
    }

    fn place(&mut self) -> Value {
        let terms = |kind: &str, key: &str, operator: &str, values: Value| {
            let one = json!({"key": key, "operator": operator, "values": values});
            json!({"nodeSelector": {"nodeSelectorTerms": [{kind: [one]}]}})
        };
        match self.dice.below(12) {
            0..3 => json!({"nodeName": NODE}),
            3 => json!({"nodeName": "n2"}),
            4..6 => json!({"allNodes": true}),
            6 => terms("matchExpressions", "zone", "In", json!(["a"])),
            7 => terms("matchExpressions", "zone", "In", json!(["b", "a"])),
            8 => terms("matchExpressions", "cores", "Gt", json!(["6"])),
            9 => terms("matchFields", "metadata.name", "NotIn", json!(["n2"])),
            10 if self.odd(3) => terms("matchExpressions", "zone", "In", json!([])),
            _ => terms("matchExpressions", "zone", "NotIn", json!(["a"])),
        }
    }

    fn device(&mut self, name: &str, counters: bool) -> Value {
        let mut attributes = Map::new();
        attributes.insert("node.org/numa".to_owned(), json!({"int": self.dice.below(2)}));
        if self.dice.one_in(2) {
            attributes.insert("size".to_owned(), json!({"int": self.dice.below(5)}));
        }
        if self.dice.one_in(3) {
            let version = self.dice.pick(&["1.0.0", "1.5.0-rc.1", "2.1.0"]);
            attributes.insert("fw".to_owned(), json!({"version": version}));
        }
        if !self.dice.one_in(4) {
            let root = self.dice.pick(&["pci0", "pci1", "pci2"]);
            attributes.insert("node.org/root".to_owned(), json!({"string": root}));
        }
        let mut device = json!({"name": name, "attributes": attributes});
        let shareable = self.dice.one_in(3);
        if shareable {
            device["allowMultipleAllocations"] = json!(true);
        }
        if shareable || self.dice.one_in(2) {
            device["capacity"] = self.capacity();
        }
        if counters && !self.dice.one_in(4) {
            let sets = self.dice.pick(&[&["x"][..], &["y"], &["x", "y"]]);
            device["consumesCounters"] = sets
                .iter()
                .map(|set| {
                    let amount = self.dice.pick(&["1", "2", "4", "2Gi", "500m"]);
                    json!({"counterSet": set, "counters": {"memory": {"value": amount}, "slots": {"value": "1"}}})
                })
                .collect();
        }
        if self.dice.one_in(5) {
            let effect = self.dice.pick(&["NoSchedule", "NoSchedule", "NoExecute", "None"]);
            device["taints"] = json!([{"key": "k", "value": self.dice.pick(&["v", "w"]), "effect": effect}]);
        }
        if self.dice.one_in(10) {
            device["bindingConditions"] = json!(["Attached"]);
            device["bindingFailureConditions"] = json!(["Failed"]);
        }
        if self.dice.one_in(10) {
            device["bindsToNode"] = json!(true);
        }
        device
    }

    fn capacity(&mut self) -> Value {
        let policy = match self.dice.below(6) {
            0 => json!({"default": "1Gi"}),
            1 => json!({"default": "2Gi", "validRange": {"min": "1Gi", "max": "6Gi"}}),
            2 => json!({"default": "2Gi", "validRange": {"min": "2Gi", "step": "1536Mi"}}),
            3 => json!({"default": "2Gi", "validValues": ["1Gi", "2Gi", "5Gi"]}),
            _ => Value::Null,
        };
        let mut memory = json!({"value": self.dice.pick(&["2Gi", "4Gi", "8Gi", "10000000000"])});
        if !policy.is_null() {
            memory["requestPolicy"] = policy;
        }
        let mut capacity = json!({"memory": memory});
        if self.dice.one_in(3) {
            capacity["slots"] = json!({"value": "3", "requestPolicy": {"default": "1"}});
        }
        capacity
    }

    /// Perhaps another claim has the device, or shares of it.
    fn take(&mut self, scene: &mut Scene, driver: &str, pool: &str, device: &Value) {
        let mut taken = json!({"request": "other", "driver": driver, "pool": pool, "device": device["name"]});
        if device.get("allowMultipleAllocations").is_some() && !self.dice.one_in(8) {
            for share in 0..self.dice.below(6) / 3 {
                let mut taken = taken.clone();
                taken["shareID"] = json!(format!("{pool}-{share}"));
                if !self.dice.one_in(4) {
                    taken["consumedCapacity"] =
                        json!({"memory": self.dice.pick(&["1Gi", "2Gi"]), "slots": "1"});
                }
                scene.allocated.push(json!({"devices": {"results": [taken]}}));
            }
        } else if self.dice.one_in(5) {
            if self.dice.one_in(4) {
                taken["adminAccess"] = json!(true);
            }
            scene.allocated.push(json!({"devices": {"results": [taken]}}));
        }
    }

    fn claim(&mut self, number: usize) -> Value {
        let count = 1 + self.dice.below(6) / 3;
        let requests: Vec<Value> = (0..count).map(|at| self.request(&format!("r{at}"))).collect();
        let mut names = vec!["r0".to_owned(), "r0/s0".to_owned(), "r0/s1".to_owned()];
        names.extend((1..count).map(|at| format!("r{at}")));
        let mut devices = json!({"requests": requests});
        let some_names = |dice: &mut Dice| -> Value {
            let count = dice.below(3);
            (0..count).map(|_| json!(names[dice.below(names.len())])).collect()
        };
        let mut constraints = Vec::new();
        for _ in 0..self.dice.below(4) / 2 {
            let rule = self.dice.pick(&["matchAttribute", "distinctAttribute"]);
            let attribute = self.dice.pick(&ATTRIBUTES);
            let about = some_names(self.dice);
            constraints.push(json!({rule: attribute, "requests": about}));
        }
        let mut config = Vec::new();
        for _ in 0..self.dice.below(6) / 4 {
            let about = some_names(self.dice);
            config.push(with(self.config("claim"), json!({"requests": about})));
        }
        if !constraints.is_empty() {
            devices["constraints"] = json!(constraints);
        }
        if !config.is_empty() {
            devices["config"] = json!(config);
        }
        let name = format!("c{number}");
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}})
    }

    fn request(&mut self, name: &str) -> Value {
        if self.dice.one_in(4) {
            let count = 1 + self.dice.below(3);
            let alternatives: Vec<Value> =
                (0..count).map(|at| with(self.want(), json!({"name": format!("s{at}")}))).collect();
            return json!({"name": name, "firstAvailable": alternatives});
        }
        let mut want = self.want();
        if self.dice.one_in(8) {
            want["adminAccess"] = json!(true);
        }
        json!({"name": name, "exactly": want})
    }

    fn want(&mut self) -> Value {
        let class = self.dice.pick(&["any", "any", "any", "any", "large", "first"]);
        let mut want = json!({"deviceClassName": class});
        if self.odd(12) {
            want["deviceClassName"] = json!("nobody");
        }
        if self.dice.one_in(6) {
            want["allocationMode"] = json!("All");
        } else {
            want["allocationMode"] = json!(if self.odd(20) { "Some" } else { "ExactCount" });
            want["count"] = json!(if self.odd(12) { 33 } else { self.dice.pick(&[1, 1, 1, 2, 2, 3]) });
        }
        if self.dice.one_in(3) {
            let bad = self.odd(4);
            let text = self.dice.pick(if bad { &BAD_SELECTORS[..] } else { &SELECTORS });
            want["selectors"] = cel(&[text]);
        }
        if self.dice.one_in(4) {
            let mut toleration = json!({"key": "k", "operator": "Exists"});
            if self.dice.one_in(2) {
                toleration = json!({"key": "k", "operator": "Equal", "value": "v"});
            }
            want["tolerations"] = json!([toleration]);
        }
        if self.dice.one_in(4) {
            let amount = self.dice.pick(&["512Mi", "1Gi", "3000Mi", "3Gi", "5632Mi", "1"]);
            let name = if self.dice.one_in(10) { "bandwidth" } else { "memory" };
            want["capacity"] = json!({"requests": {name: amount}});
        }
        want
    }
}
