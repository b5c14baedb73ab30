//! What Kubernetes 1.36.4's own code answered to our inputs, replayed against ours.
//!
//! The files under `golden/` were printed by small programs around upstream's validation, strategic merge, field
//! manager and protobuf packages; the inputs are ours.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use podwire_api::{Kind, apply, by_gvk, defaults, patch, protobuf, split_api_version, strict, validate};
use serde_json::{Value, json};

fn kind_of(line: &Value) -> &'static Kind {
    let (group, version) = split_api_version(line["apiVersion"].as_str().unwrap());
    by_gvk(group, version, line["kind"].as_str().unwrap()).unwrap()
}

fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Ok(index) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let items = at.as_array_mut().unwrap();
                items.resize(items.len().max(index + 1), json!({}));
                &mut items[index]
            }
            Err(_) => &mut at[part],
        };
    }
    *at = value;
}

#[test]
fn spoiled_pods_get_the_same_complaints() {
    let pods = by_gvk("", "v1", "Pod").unwrap();
    for line in include_str!("golden/pod_validation.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let mut pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
        put(&mut pod, line["at"].as_str().unwrap(), line["value"].clone());
        strict::conform(pods, &mut pod).unwrap();
        defaults::apply(pods, &mut pod);
        let mut ours: Vec<String> =
            validate::create(pods, &pod).iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
        ours.sort();
        assert_eq!(json!(ours), line["errors"], "{} = {}", line["at"], line["value"]);
    }
}

/// Managers without the times, in one order.
fn managers(object: &Value) -> Vec<Value> {
    let mut entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    for entry in &mut entries {
        entry.as_object_mut().unwrap().remove("time");
    }
    entries.sort_by_key(|e| format!("{}{}", e["operation"], e["manager"]));
    entries
}

fn content(kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["managedFields", "uid"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    strict::conform(kind, &mut object).unwrap();
    defaults::apply(kind, &mut object);
    object
}

#[test]
fn patches_and_ownership_come_out_the_same() {
    for line in include_str!("golden/patches.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let kind = kind_of(&line);
        let live = (line["fresh"] != true).then_some(&line["live"]);
        let manager = line["manager"].as_str().unwrap_or_default();
        let operation =
            if line["test"] == "apply" { apply::Operation::Apply } else { apply::Operation::Update };
        let writer = apply::Writer {
            manager,
            operation,
            subresource: "",
            time: "2026-11-15T12:00:00Z".parse().unwrap(),
        };
        let outcome = match line["test"].as_str().unwrap() {
            "smp" => {
                let mut object = line["live"].clone();
                patch::strategic(kind, &mut object, &line["patch"])
                    .map(|()| object)
                    .map_err(|e| e.to_string())
            }
            "update" => {
                let mut object = line["new"].clone();
                apply::track_update(kind, live, &mut object, &writer);
                Ok(object)
            }
            _ => apply::server_side(kind, live, &line["patch"], &writer, line["force"] == true)
                .map_err(|e| e.to_string()),
        };
        match outcome {
            Err(error) => assert_eq!(json!(error), line["error"], "{line}"),
            Ok(object) => {
                assert_eq!(managers(&object), managers(&line["result"]), "{line}");
                assert_eq!(content(kind, &object), content(kind, &line["result"]), "{line}");
            }
        }
    }
}

#[test]
fn bytes_written_by_go_are_read() {
    let lines: Vec<&str> = include_str!("golden/protobuf.txt").lines().collect();
    for pair in lines.chunks(2) {
        let expected: Value = serde_json::from_str(pair[0]).unwrap();
        let digits = pair[1].as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
        assert_eq!(protobuf::decode_any(&bytes).unwrap(), expected);
        let again = protobuf::encode(kind_of(&expected), &expected);
        assert_eq!(protobuf::decode_any(&again).unwrap(), expected);
    }
}
