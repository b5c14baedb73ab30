//! Whatever clients send, the answer is an error or an object, never a panic.
//!
//! A small deterministic generator spoils good inputs; the fuzz targets go deeper.

use podwire_api::selector::{FieldSelector, LabelSelector};
use podwire_api::{
    apply, by_gvk, defaults, kinds, patch, protobuf, quantity, strategy, strict, table, time, validate,
};
use serde_json::{Value, json};

/// A linear congruential generator: the same inputs on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }

    /// A value that has little to do with what is expected.
    fn odd(&mut self) -> Value {
        let values = [
            json!(null),
            json!(true),
            json!(-1),
            json!(1e300),
            json!(""),
            json!("é\u{0}"),
            json!("99999999999999999999Ei"),
            json!([]),
            json!({}),
            json!([null]),
            json!({"": null}),
            json!({"$patch": "delete"}),
            json!([{"$patch": "replace"}]),
            json!("-"),
        ];
        let at = self.roll(values.len());
        values.into_iter().nth(at).unwrap_or(Value::Null)
    }

    /// Changes one place of the value at random.
    fn spoil(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) if !map.is_empty() && self.roll(6) != 0 => {
                let at = self.roll(map.len());
                let key = map.keys().nth(at).cloned().unwrap_or_default();
                match self.roll(8) {
                    0 => {
                        map.remove(&key);
                    }
                    1 => {
                        let odd = self.odd();
                        map.insert(format!("{key}x"), odd);
                    }
                    2 => {
                        let odd = self.odd();
                        map.insert(format!("$setElementOrder/{key}"), odd);
                    }
                    _ => self.spoil(&mut map[&key]),
                }
            }
            Value::Array(items) if !items.is_empty() && self.roll(6) != 0 => {
                let at = self.roll(items.len());
                self.spoil(&mut items[at]);
            }
            other => *other = self.odd(),
        }
    }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d", "labels": {"a": "b"}, "finalizers": ["a/b"], "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "x", "uid": "y"}]},
        "spec": {
            "nodeName": "n", "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "a", "image": "i:1", "ports": [{"containerPort": 80, "hostPort": 80}], "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}, "livenessProbe": {"httpGet": {"port": "http"}}, "volumeMounts": [{"name": "v", "mountPath": "/x"}],
                "securityContext": {"runAsUser": 1, "capabilities": {"add": ["A"]}, "seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}}],
            "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}]}}],
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}]}},
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "a", "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-11-15T12:00:00Z"}}}]},
    })
}

#[test]
fn spoiled_objects_and_patches_never_panic() {
    let kind = by_gvk("", "v1", "Pod").expect("pods are served");
    let mut dice = Dice(7);
    let now = "2026-11-15T12:00:00Z".parse().expect("a time");
    let mut good = pod();
    strict::conform(kind, &mut good).expect("the pod is good");
    defaults::apply(kind, &mut good);
    let writer =
        apply::Writer { manager: "m", operation: apply::Operation::Update, subresource: "", time: now };
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut object = pod();
        for _ in 0..=dice.roll(3) {
            dice.spoil(&mut object);
        }
        let patched = [
            patch::merge(&mut good.clone(), &object).is_ok(),
            patch::strategic(kind, &mut good.clone(), &object).is_ok(),
            patch::json(&mut good.clone(), &json!([object])).is_ok(),
            apply::server_side(kind, Some(&good), &object, &writer, dice.roll(2) == 0).is_ok(),
        ];
        if strict::conform(kind, &mut object).is_err() || patched.iter().all(|p| !p) {
            refused += 1;
            continue;
        }
        accepted += 1;
        defaults::apply(kind, &mut object);
        strategy::prepare_update(kind, &mut object, &good);
        validate::create(kind, &object);
        validate::update(kind, &object, &good);
        validate::update_part(kind, podwire_api::Part::Status, &object, &good);
        table::row(kind, &object, now);
        apply::track_update(kind, Some(&good), &mut object, &writer);
        let bytes = protobuf::encode(kind, &object);
        assert!(protobuf::decode(kind, &bytes).is_ok(), "{object}");
    }
    assert!(accepted > 100 && refused > 100, "accepted {accepted}, refused {refused}");
}

#[test]
fn noise_never_panics() {
    let mut dice = Dice(11);
    let alphabet: Vec<char> = "ab01.-_/=!(),<> inotexKMmE+\\\"'{}[]:é\u{0}".chars().collect();
    for _ in 0..20_000 {
        let text: String = (0..dice.roll(14)).map(|_| alphabet[dice.roll(alphabet.len())]).collect();
        LabelSelector::parse(&text).ok();
        FieldSelector::parse(&text).ok();
        quantity::Quantity::parse(&text).map(|q| q.to_string()).ok();
        time::parse_duration(&text);
        strict::decode_json(text.as_bytes()).ok();
        let mut bytes = b"k8s\0".to_vec();
        bytes.extend(text.bytes());
        protobuf::decode_any(&bytes).ok();
        let kind = &kinds()[dice.roll(kinds().len())];
        validate::object_name(kind, &text);
        validate::generate_name(kind, &text);
    }
}
