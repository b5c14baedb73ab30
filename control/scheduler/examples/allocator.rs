//! How long the allocator takes for a node: 5,000 nodes of 8 devices, all of which are asked for one claim, while everything
//! is free and while everything is taken. `cargo run --release -p podwire-scheduler --example allocator`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a part of the program")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use podwire_scheduler::allocator::{
    Allocator, Bounds, Classes, Inventory, Node, Selectors, Slice, Taken, Wanted,
};
use serde_json::json;

const NODES: usize = 5000;

fn main() {
    let names: Vec<String> = (0..NODES).map(|node| format!("node-{node}")).collect();
    let mut inventory = Inventory::default();
    for name in &names {
        let device = |at: usize| {
            json!({"name": format!("gpu-{at}"),
                "attributes": {"model": {"string": "x"}, "index": {"int": at}, "fw": {"version": "1.2.3"}},
                "capacity": {"memory": {"value": "80Gi"}}})
        };
        let devices: Vec<_> = (0..8).map(device).collect();
        let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices});
        let slice: ResourceSlice =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        inventory.insert(Slice::read(&slice));
    }
    let text = "device.attributes['gpu.example.com'].model == 'x' && device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0";
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": text}}]}});
    let class: DeviceClass = serde_json::from_value(class).unwrap();
    let classes = Classes::from([("gpu".to_owned(), Arc::new(class))]);
    let want = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": want}]}}});
    let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
    let selectors = Selectors::new(100);
    let labels = BTreeMap::new();
    let mut taken = Taken::default();
    for round in ["everything is free", "everything is free, again", "everything is taken"] {
        if round == "everything is taken" {
            for (pool, at) in names.iter().flat_map(|name| (0..8).map(move |at| (name, at))) {
                let result = json!({"request": "r", "driver": "gpu.example.com", "pool": pool, "device": format!("gpu-{at}")});
                let allocation = json!({"devices": {"results": [result]}});
                taken.add(&serde_json::from_value::<AllocationResult>(allocation).unwrap());
            }
        }
        let begun = Instant::now();
        let wanted = Wanted::read(&[&claim], &classes, &selectors);
        let allocator = Allocator::new(&taken);
        let bounds = Bounds { steps: 1_000_000, stop: &|| false };
        let mut found = 0;
        for name in &names {
            let node = Node { name, labels: &labels };
            let pools = inventory.gather(&node).unwrap();
            let allocation = allocator.allocate(&node, &pools, &wanted, bounds, &mut String::new).unwrap();
            found += usize::from(allocation.results.is_some());
        }
        let each = begun.elapsed() / u32::try_from(NODES).unwrap();
        println!("{round}: {found} of {NODES} nodes can give, {each:?} for each");
    }
}
