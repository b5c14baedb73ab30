//! What the comparison with upstream cannot see: bounds, what is given back, selectors that are kept, nearest misses.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::*;

fn slice(name: &str, devices: Value) -> Slice {
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d.example", "pool": pool, "nodeName": "n", "devices": devices});
    let slice = json!({"metadata": {"name": name}, "spec": spec});
    Slice::read(&serde_json::from_value::<ResourceSlice>(slice).unwrap())
}

fn inventory(devices: Value) -> Inventory {
    let mut inventory = Inventory::default();
    inventory.insert(slice("p", devices));
    inventory
}

fn claim(devices: Value) -> ResourceClaim {
    serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"devices": devices}})).unwrap()
}

fn exactly(count: usize, more: Value) -> Value {
    let mut want = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": count});
    for (key, value) in more.as_object().unwrap() {
        want[key] = value.clone();
    }
    json!({"requests": [{"name": "r", "exactly": want}]})
}

/// The result of allocating a claim on node `n`, and the nearest misses.
fn ask(
    inventory: &Inventory,
    taken: &Taken,
    claim: &ResourceClaim,
    steps: u64,
) -> (Result<Allocation, Error>, Vec<NearestMiss>) {
    let class: DeviceClass =
        serde_json::from_value(json!({"metadata": {"name": "any"}, "spec": {}})).unwrap();
    let classes = Classes::from([("any".to_owned(), Arc::new(class))]);
    let selectors = Selectors::new(10);
    let wanted = Wanted::read(&[claim], &classes, &selectors);
    let labels = BTreeMap::new();
    let node = Node { name: "n", labels: &labels };
    let pools = inventory.gather(&node).unwrap();
    let bounds = Bounds { steps, stop: &|| false };
    let allocator = Allocator::new(taken);
    let allocation = allocator.allocate(&node, &pools, &wanted, bounds, &mut || "share".to_owned());
    (allocation, allocator.explain(&node, &pools, &wanted, bounds))
}

fn nearest(devices: Value, taken: &Taken, asked: Value) -> Option<Miss> {
    let (allocation, misses) = ask(&inventory(devices), taken, &claim(asked), 1000);
    assert_eq!(allocation.unwrap().results.is_none(), !misses.is_empty());
    misses.into_iter().next().map(|miss| miss.miss)
}

#[test]
fn a_search_ends_when_it_took_too_many_steps() {
    let devices: Vec<Value> =
        (0..20).map(|at| json!({"name": format!("d{at}"), "attributes": {"k": {"int": at / 9}}})).collect();
    let mut asked = exactly(10, json!({}));
    asked["constraints"] = json!([{"matchAttribute": "d.example/k"}]);
    let (allocation, _) = ask(&inventory(json!(devices)), &Taken::default(), &claim(asked), 100);
    assert!(matches!(allocation, Err(Error::Aborted)), "{allocation:?}");
}

#[test]
fn what_was_taken_and_given_back_is_free_again() {
    let result = |more: Value| -> AllocationResult {
        let mut result = json!({"request": "r", "driver": "d.example", "pool": "p", "device": "d0"});
        for (key, value) in more.as_object().unwrap() {
            result[key] = value.clone();
        }
        serde_json::from_value(json!({"devices": {"results": [result]}})).unwrap()
    };
    let share = result(json!({"shareID": "one", "consumedCapacity": {"memory": "1Gi"}}));
    let (own, admin) = (result(json!({})), result(json!({"adminAccess": true})));
    let mut taken = Taken::default();
    taken.add(&admin);
    assert!(taken.is_empty());
    for allocation in [&share, &own] {
        taken.add(allocation);
        assert!(!taken.is_empty());
        taken.add(allocation);
        taken.remove(allocation);
        assert!(!taken.is_empty());
        taken.remove(allocation);
        assert!(taken.is_empty());
    }
    taken.add(&own);
    let miss = nearest(json!([{"name": "d0"}]), &taken, exactly(1, json!({})));
    assert!(matches!(miss, Some(Miss::InUse { .. })), "{miss:?}");
    taken.remove(&own);
    assert_eq!(nearest(json!([{"name": "d0"}]), &taken, exactly(1, json!({}))), None);
}

#[test]
fn slices_that_change_and_go_are_followed() {
    let mut inventory = inventory(json!([{"name": "d0"}]));
    let before = inventory.revision();
    let taken = Taken::default();
    let two = claim(exactly(2, json!({})));
    let can = |inventory: &Inventory| ask(inventory, &taken, &two, 1000).0.unwrap().results.is_some();
    assert!(!can(&inventory));
    inventory.insert(slice("p", json!([{"name": "d0"}, {"name": "d1"}])));
    assert!(can(&inventory));
    assert_ne!(inventory.revision(), before);
    inventory.remove("p");
    assert!(!can(&inventory));
}

#[test]
fn selectors_are_compiled_once_and_only_so_many_are_kept() {
    let selectors = Selectors::new(2);
    let first = selectors.get("true");
    assert!(Arc::ptr_eq(&first, &selectors.get("true")));
    for text in ["false", "1 +", "1 +"] {
        selectors.get(text);
    }
    assert_eq!(selectors.count(), 2);
    assert!(!Arc::ptr_eq(&first, &selectors.get("true")));
}

#[test]
fn the_nearest_miss_says_what_stood_against_a_request() {
    let taken = Taken::default();
    let one = || exactly(1, json!({}));
    assert_eq!(nearest(json!([]), &taken, one()), Some(Miss::NoDevice));
    let near = nearest(json!([{"name": "d0"}]), &taken, exactly(2, json!({})));
    assert_eq!(near, Some(Miss::TooFew { found: 1 }));
    let tainted = json!([{"name": "d0", "taints": [{"key": "k", "effect": "NoSchedule"}]}]);
    let near = nearest(tainted, &taken, one());
    assert!(matches!(&near, Some(Miss::Taint { key, .. }) if key == "k"), "{near:?}");
    let asked = exactly(1, json!({"selectors": [{"cel": {"expression": "device.driver == ''"}}]}));
    let near = nearest(json!([{"name": "d0"}]), &taken, asked);
    assert!(matches!(&near, Some(Miss::Selector { index: 0, text, .. }) if text == "device.driver == ''"));
    let asked = exactly(1, json!({"capacity": {"requests": {"memory": "3Gi"}}}));
    let near = nearest(json!([{"name": "d0", "capacity": {"memory": {"value": "2Gi"}}}]), &taken, asked);
    let short = |shortage: &Shortage| matches!(shortage, Shortage::Short { asked, left, .. } if asked == "3Gi" && left == "2Gi");
    assert!(matches!(&near, Some(Miss::Capacity { shortage, .. }) if short(shortage)), "{near:?}");
    let mut asked = one();
    asked["constraints"] = json!([{"matchAttribute": "d.example/k"}]);
    let near = nearest(json!([{"name": "d0"}]), &taken, asked);
    assert!(matches!(&near, Some(Miss::Constraint { told: false, rule: Rule::Match, .. })), "{near:?}");
}
